// The parts of regions that are not filled: which placement is chosen and why, how a mapping is
// registered, with a driver that is played, and how a page that left its file is found.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>

#include "fault/faulty_environment.hpp"
#include "os/page_watch.hpp"
#include "os/pinnable_memory.hpp"
#include "region/coarse_times.hpp"
#include "region/in_place_region.hpp"
#include "region/placement.hpp"
#include "region/support.hpp"

namespace penstock::test {

using region::placement_choice;
using region::placement_facts;

namespace {

// A driver that is played: it notes what is registered.
struct played_driver {
    std::mutex mutex;
    std::condition_variable more;
    std::map<std::byte*, std::uint64_t> registered;
    int calls = 0, inside = 0, most_inside = 0;
    int fails_at = 0, wait_for = 1;  // a call waits until so many are inside at once, or 10 s
    int waits = 0, wait_code = 0;    // for streams
};

class played_reader final : public region::mapping_reader {
public:
    explicit played_reader(played_driver& to) : to_(to) {}
    [[nodiscard]] bool registers() const override { return true; }
    status add(std::byte* at, std::uint64_t size) override {
        std::unique_lock hold(to_.mutex);
        to_.most_inside = std::max(to_.most_inside, ++to_.inside);
        to_.more.notify_all();
        to_.more.wait_for(hold, std::chrono::seconds(10),
                          [&] { return to_.most_inside >= to_.wait_for; });
        --to_.inside;
        if (++to_.calls == to_.fails_at) return {-EOPNOTSUPP, "refused by the test"};
        EXPECT_TRUE(to_.registered.emplace(at, size).second);
        return {};
    }
    int wait(void*) override {
        ++to_.waits;
        return to_.wait_code;
    }
    void remove(std::byte* at) override {
        const std::lock_guard hold(to_.mutex);
        EXPECT_EQ(to_.registered.erase(at), 1u);
    }

private:
    played_driver& to_;
};

class registering : public testing::Test {
protected:
    // Sparse: its pages cost memory, and no disk.
    explicit registering(std::uint64_t size = (200u << 20) + 4097) : size_(size) {
        write_file(path_, {});
        EXPECT_EQ(::truncate(path_.c_str(), static_cast<off_t>(size_)), 0);
        EXPECT_EQ(region::shared_files::of(hub_).open_home(env_, path_, false, home_), 0);
    }
    std::unique_ptr<region::in_place_region> make(std::uint64_t offset = 0) {
        return std::make_unique<region::in_place_region>(
            region::file_part{home_, path_, offset, size_ - offset},
            std::make_unique<played_reader>(driver_),
            [this](const std::string& line) { log_ += line + "\n"; });
    }

    const std::uint64_t size_;
    const temporary_folder folder_;
    const std::string path_ = folder_ / "f";
    fault::faulty_environment env_;
    host::hub hub_;
    std::shared_ptr<region::shared_home> home_;
    played_driver driver_;
    std::string log_;
};

}  // namespace

TEST_F(registering, the_parts_are_the_whole_each_once_and_go_with_the_region) {
    const auto r = make(8192);
    const status s = r->open();
    ASSERT_TRUE(s.ok()) << s.message;
    auto* at = static_cast<std::byte*>(r->data());
    for (const auto& [from, part] : driver_.registered) {
        EXPECT_EQ(from, at);
        EXPECT_LE(part, 1u << 30);
        at += part;
    }
    const std::uint64_t pages = (size_ - 8192 + 4095) / 4096 * 4096;
    EXPECT_EQ(static_cast<std::uint64_t>(at - static_cast<std::byte*>(r->data())), pages);
    EXPECT_GE(driver_.registered.size(), 2u);
    EXPECT_EQ(r->traffic().bytes_registered, pages);
    EXPECT_GT(r->traffic().register_ns, 0u);
    EXPECT_EQ(r->acquire({}, nullptr), 0);
    EXPECT_EQ(r->close(nullptr), 0);
    EXPECT_TRUE(driver_.registered.empty());
    EXPECT_EQ(log_, "");
}

TEST_F(registering, threads_register_at_the_same_time) {
    if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "this machine has one processor";
    driver_.wait_for = 2;
    const auto r = make();
    ASSERT_TRUE(r->open().ok());
    EXPECT_GE(driver_.most_inside, 2);
}

TEST_F(registering, a_part_that_is_refused_takes_back_the_others) {
    driver_.fails_at = 2;
    const auto r = make();
    const status s = r->open();
    EXPECT_EQ(s.code, -EOPNOTSUPP);
    EXPECT_EQ(s.message, "refused by the test");
    EXPECT_TRUE(driver_.registered.empty());
    EXPECT_EQ(r->data(), nullptr);
    EXPECT_EQ(r->acquire({}, nullptr), -EBADF);
}

TEST_F(registering, pages_that_do_not_come_are_an_error) {
    // The first call maps the part, the second the watched page, the third brings pages.
    env_.set({.calls = fault::call_map, .nth = 3, .error = -EFAULT});
    const auto r = make();
    EXPECT_EQ(r->open().code, -EFAULT);
    EXPECT_TRUE(driver_.registered.empty());
}

TEST_F(registering, a_system_that_cannot_bring_pages_at_once_leaves_it_to_the_driver) {
    env_.set({.calls = fault::call_map, .nth = 3, .for_ever = true, .error = -EINVAL});
    const auto r = make();
    ASSERT_TRUE(r->open().ok());
    EXPECT_GE(driver_.registered.size(), 2u);
}

TEST_F(registering, pages_that_cannot_be_watched_are_said) {
    env_.set({.calls = fault::call_map, .nth = 2, .error = -ENOMEM});
    const auto r = make();
    ASSERT_TRUE(r->open().ok());
    EXPECT_NE(log_.find("cannot be watched"), std::string::npos) << log_;
    EXPECT_EQ(r->acquire({}, nullptr), 0);
    ASSERT_EQ(::truncate(path_.c_str(), 4096), 0);
    EXPECT_EQ(r->acquire({}, nullptr), -ESTALE);
}

TEST_F(registering, bytes_that_programs_write_leave_all_parts_as_they_are) {
    const auto r = make();
    ASSERT_TRUE(r->open().ok());
    const int calls = driver_.calls;
    for (const std::uint64_t at : {std::uint64_t{0}, std::uint64_t{100} << 20, size_ - 1}) {
        patch_file(path_, at, {1});
        EXPECT_EQ(r->acquire({}, nullptr), 0);
    }
    EXPECT_EQ(driver_.calls, calls);
    EXPECT_EQ(driver_.waits, 0);
}

TEST_F(registering, parts_whose_pages_left_the_file_are_registered_anew) {
    const auto r = make();
    ASSERT_TRUE(r->open().ok());
    const auto parts = driver_.registered;
    ASSERT_GE(parts.size(), 2u);
    // A cut of the last page, and the file is as long again.
    int calls = driver_.calls;
    ASSERT_EQ(::truncate(path_.c_str(), static_cast<off_t>(size_ - 4096 - 1)), 0);
    EXPECT_EQ(r->acquire({}, nullptr), -ESTALE);
    EXPECT_EQ(driver_.calls, calls) << "nothing moves while it is shorter";
    ASSERT_EQ(::truncate(path_.c_str(), static_cast<off_t>(size_)), 0);
    EXPECT_EQ(r->acquire({}, nullptr), 0);
    EXPECT_EQ(driver_.calls, calls + 1);
    EXPECT_EQ(driver_.waits, 1);
    EXPECT_EQ(driver_.registered, parts);
    const std::uint64_t once = r->traffic().bytes_registered;
    EXPECT_GT(once, (size_ + 4095) / 4096 * 4096);
    // All of it.
    ASSERT_EQ(::truncate(path_.c_str(), 0), 0);
    ASSERT_EQ(::truncate(path_.c_str(), static_cast<off_t>(size_)), 0);
    calls = driver_.calls;
    EXPECT_EQ(r->acquire({}, nullptr), 0);
    EXPECT_EQ(driver_.calls, calls + static_cast<int>(parts.size()));
    EXPECT_EQ(r->acquire({}, nullptr), 0);
    EXPECT_EQ(driver_.calls, calls + static_cast<int>(parts.size()));
    EXPECT_EQ(r->close(nullptr), 0);
    EXPECT_TRUE(driver_.registered.empty());
}

// The file has a hole by then, and the times that it had.
TEST_F(registering, pages_that_leave_without_other_times_are_found_while_these_are_no_proof) {
    coarse_times env;
    home_.reset();
    ASSERT_EQ(region::shared_files::of(hub_).open_home(env, path_, false, home_), 0);
    const auto r = make();
    ASSERT_TRUE(r->open().ok());
    const int calls = driver_.calls;
    ASSERT_EQ(::truncate(path_.c_str(), static_cast<off_t>(size_ - 4096 - 1)), 0);
    ASSERT_EQ(::truncate(path_.c_str(), static_cast<off_t>(size_)), 0);
    EXPECT_EQ(r->acquire({}, nullptr), 0);
    EXPECT_EQ(driver_.calls, calls + 1);
    EXPECT_EQ(r->close(nullptr), 0);
    home_.reset();
}

TEST_F(registering, a_hole_in_the_middle_is_found) {
    const auto r = make();
    ASSERT_TRUE(r->open().ok());
    const int calls = driver_.calls;
    const int fd = ::open(path_.c_str(), O_RDWR);
    const int code = ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 10 << 20, 4096);
    const int error = errno;
    ::close(fd);
    if (code != 0 && error == EOPNOTSUPP) GTEST_SKIP() << "this file system has no holes";
    ASSERT_EQ(code, 0);
    EXPECT_EQ(r->acquire({}, nullptr), 0);
    EXPECT_EQ(driver_.calls, calls + 1);
}

namespace {

// Holds the page of the file at 10 MiB, as a driver would, by a pipe that has it; and reads it as a
// GPU would, whatever the file has there by now.
class holding_reader final : public region::mapping_reader {
public:
    static constexpr std::uint64_t held_at = 10 << 20;
    holding_reader() {
        EXPECT_EQ(::pipe(held_), 0);
        EXPECT_EQ(::pipe(copy_), 0);
    }
    ~holding_reader() override {
        for (const int end : {held_[0], held_[1], copy_[0], copy_[1]}) ::close(end);
    }
    [[nodiscard]] bool registers() const override { return true; }
    status add(std::byte* at, std::uint64_t) override {
        const std::lock_guard hold(mutex_);
        if (first_ == nullptr || at < first_) first_ = at;
        if (at != first_) return {};
        iovec page{at + held_at, 4096};
        EXPECT_EQ(::vmsplice(held_[1], &page, 1, 0), 4096);
        return {};
    }
    void remove(std::byte* at) override {
        std::uint8_t gone[4096];
        if (at == first_) {
            EXPECT_EQ(::read(held_[0], gone, sizeof gone), 4096);
        }
    }
    [[nodiscard]] int first_byte() const {
        std::uint8_t page[4096] = {};
        EXPECT_EQ(::tee(held_[0], copy_[1], 4096, 0), 4096);
        EXPECT_EQ(::read(copy_[0], page, sizeof page), 4096);
        return page[0];
    }

private:
    std::mutex mutex_;
    std::byte* first_ = nullptr;
    int held_[2] = {-1, -1}, copy_[2] = {-1, -1};
};

class held_page : public registering {
protected:
    // One part, so that one thread registers it.
    held_page() : registering(32 << 20) {
        auto reader = std::make_unique<holding_reader>();
        gpu_ = reader.get();
        region_ = std::make_unique<region::in_place_region>(
            region::file_part{home_, path_, 0, size_}, std::move(reader),
            [this](const std::string& line) { log_ += line + "\n"; });
        EXPECT_TRUE(region_->open().ok());
    }

    const holding_reader* gpu_ = nullptr;
    std::unique_ptr<region::in_place_region> region_;
};

}  // namespace

TEST_F(held_page, a_write_past_the_page_cache_is_seen_after_an_acquire) {
    EXPECT_EQ(gpu_->first_byte(), 0);
    patch_file(path_, holding_reader::held_at, {1});
    EXPECT_EQ(gpu_->first_byte(), 1) << "the page is the file's";
    const int fd = ::open(path_.c_str(), O_RDWR | O_DIRECT);
    if (fd < 0) GTEST_SKIP() << "this file system has no writes past the page cache";
    struct alignas(4096) aligned_page {
        std::uint8_t bytes[4096];
    } page{{3}};
    ASSERT_EQ(::pwrite(fd, page.bytes, sizeof page.bytes, holding_reader::held_at), 4096);
    ::close(fd);
    EXPECT_EQ(region_->acquire({}, nullptr), 0);
    EXPECT_EQ(gpu_->first_byte(), 3);
}

TEST_F(held_page, a_file_that_is_written_anew_is_seen_after_an_acquire) {
    ASSERT_EQ(::truncate(path_.c_str(), 0), 0);
    ASSERT_EQ(::truncate(path_.c_str(), static_cast<off_t>(size_)), 0);
    patch_file(path_, holding_reader::held_at, {5});
    EXPECT_EQ(gpu_->first_byte(), 0) << "a page that is held is the file's no more";
    EXPECT_EQ(region_->acquire({}, nullptr), 0);
    EXPECT_EQ(gpu_->first_byte(), 5);
}

TEST_F(registering, a_part_that_cannot_be_registered_anew_is_tried_by_the_next_acquire) {
    const auto r = make();
    ASSERT_TRUE(r->open().ok());
    const auto parts = driver_.registered;
    ASSERT_EQ(::truncate(path_.c_str(), 0), 0);
    ASSERT_EQ(::truncate(path_.c_str(), static_cast<off_t>(size_)), 0);
    driver_.wait_code = -EBUSY;
    EXPECT_EQ(r->acquire({}, nullptr), -EBUSY);
    EXPECT_EQ(driver_.registered, parts) << "a captured stream leaves all as it is";
    driver_.wait_code = 0;
    driver_.fails_at = driver_.calls + 2;
    EXPECT_EQ(r->acquire({}, nullptr), -EOPNOTSUPP);
    EXPECT_NE(log_.find("until an acquire succeeds: refused by the test"), std::string::npos);
    EXPECT_LT(driver_.registered.size(), parts.size());
    EXPECT_EQ(r->acquire({}, nullptr), 0);
    EXPECT_EQ(driver_.registered, parts);
}

TEST(page_watch, tells_pages_that_left_from_pages_that_were_written) {
    const temporary_folder folder;
    const std::string path = folder / "f";
    write_file(path, pattern(7, 5 * 4096));
    host::environment& env = host::linux_environment();
    const int fd = ::open(path.c_str(), O_RDWR);
    host::page_watch pages(env), none(env);
    ASSERT_EQ(pages.begin(fd, 4096, 4 * 4096), 0);
    EXPECT_TRUE(pages.has_left(0, 4096)) << "it is not watched yet";
    ASSERT_EQ(pages.watch(0, 4 * 4096), 0);
    patch_file(path, 0, pattern(9, 5 * 4096));
    ASSERT_EQ(::fsync(fd), 0);
    ASSERT_EQ(::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    EXPECT_FALSE(pages.has_left(0, 4 * 4096));
    ASSERT_EQ(::ftruncate(fd, 4 * 4096), 0);
    ASSERT_EQ(::ftruncate(fd, 5 * 4096), 0);
    patch_file(path, 4 * 4096, pattern(9, 4096));
    EXPECT_TRUE(pages.has_left(0, 4 * 4096));
    EXPECT_TRUE(pages.has_left(3 * 4096, 4096));
    EXPECT_FALSE(pages.has_left(0, 4096));
    ASSERT_EQ(pages.watch(3 * 4096, 4096), 0);
    EXPECT_FALSE(pages.has_left(0, 4 * 4096));
    EXPECT_NE(none.begin(-1, 0, 4096), 0);
    EXPECT_TRUE(none.has_left(0, 4096));
    ::close(fd);
}

TEST(pinnable_memory, is_a_part_of_what_is_available_and_of_the_containers_limit) {
    const auto of = [](const std::string& meminfo, const std::string& limit) {
        std::istringstream facts(meminfo), most(limit);
        return host::pinnable_of(facts, most);
    };
    const std::string facts = "MemTotal:  900 kB\nMemAvailable:   800 kB\nBuffers:   1 kB\n";
    EXPECT_EQ(of(facts, ""), 700u << 10);
    EXPECT_EQ(of(facts, "max\n"), 700u << 10);
    EXPECT_EQ(of(facts, "409600\n"), 350u << 10);
    EXPECT_EQ(of("MemTotal: 900 kB\n", ""), 0u);
    EXPECT_GT(host::pinnable_bytes(), 0u);
}

TEST(placements, follow_from_the_facts) {
    constexpr std::uint64_t gib = 1ull << 30;
    placement_facts f;
    f.wanted = region_placement::automatic;
    f.bytes = 6 * gib;
    f.device = {.is_gpu = true, .free_bytes = 4 * gib, .reads_pageable = false, .registers = true};
    f.pinnable_bytes = 100 * gib;
    const auto chosen = [&](const placement_facts& facts, const std::string& word) {
        placement_choice out;
        const status s = region::choose_placement(facts, out);
        EXPECT_TRUE(s.ok()) << s.message;
        EXPECT_NE(out.reason.find(word), std::string::npos) << out.reason;
        return out.where;
    };
    EXPECT_EQ(chosen(f, "6 GiB do not fit in the 4 GiB"), region_placement::in_place);
    auto g = f;
    g.device_bytes = 8 * gib;  // an allowance makes no memory
    EXPECT_EQ(chosen(g, "4 GiB"), region_placement::in_place);
    g.device.free_bytes = 7 * gib;
    EXPECT_EQ(chosen(g, "fit in the device memory"), region_placement::filled);
    g = f;
    g.pinnable_bytes = 5 * gib;
    EXPECT_EQ(chosen(g, "room for 5 GiB"), region_placement::filled);
    g.device.reads_pageable = true;
    EXPECT_EQ(chosen(g, "room for 5 GiB"), region_placement::system);
    g.pinnable_bytes = 0;  // not known
    EXPECT_EQ(chosen(g, "do not fit"), region_placement::in_place);
    g = f;
    g.device.registers = false;
    EXPECT_EQ(chosen(g, "ReadOnly"), region_placement::filled);
    g = f;
    g.changes_elsewhere = true;
    EXPECT_EQ(chosen(g, "outside_writers"), region_placement::filled);
    g.outside_writers = false;
    EXPECT_EQ(chosen(g, "do not fit"), region_placement::in_place);
    g.has_mounts = true;
    EXPECT_EQ(chosen(g, "mounts"), region_placement::filled);
    g = f;
    g.in_place_tried = {-ENOMEM, "failed: out of memory"};
    EXPECT_EQ(chosen(g, "in place failed: out of memory"), region_placement::filled);
    g.device.reads_pageable = true;
    EXPECT_EQ(chosen(g, "in place failed: out of memory"), region_placement::system);
    g.system_tried = {-ENODEV, "failed: no device"};
    EXPECT_EQ(chosen(g, "system failed: no device"), region_placement::filled);
}

TEST(placements, that_cannot_be_had_are_refused_with_the_cure) {
    constexpr std::uint64_t gib = 1ull << 30;
    placement_facts f;
    f.bytes = 6 * gib;
    f.device = {.is_gpu = true, .free_bytes = 4 * gib, .reads_pageable = false, .registers = false};
    placement_choice out;
    f.wanted = region_placement::in_place;
    status s = region::choose_placement(f, out);
    EXPECT_EQ(s.code, -EOPNOTSUPP);
    EXPECT_NE(s.message.find("filled"), std::string::npos) << s.message;
    f.device.registers = true;
    f.pinnable_bytes = gib;
    s = region::choose_placement(f, out);
    EXPECT_EQ(s.code, -ENOMEM);
    EXPECT_NE(s.message.find("6 GiB"), std::string::npos) << s.message;
    EXPECT_NE(s.message.find("smaller part"), std::string::npos) << s.message;
    f.wanted = region_placement::system;
    s = region::choose_placement(f, out);
    EXPECT_EQ(s.code, -EOPNOTSUPP);
    EXPECT_NE(s.message.find("use in_place"), std::string::npos) << s.message;
    f.device.reads_pageable = true;
    EXPECT_TRUE(region::choose_placement(f, out).ok());
    EXPECT_EQ(out.where, region_placement::system);
}

}  // namespace penstock::test
