// Regions of files that a server has, and regions beside other users of the file in this process.
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <mutex>

#include "fault/faulty_environment.hpp"
#include "penstock/pieces.hpp"
#include "penstock/group/lane.hpp"
#include "region/placement.hpp"
#include "region/region_memory.hpp"
#include "region/support.hpp"
#include "runtime/runtime_state.hpp"

namespace penstock::test {

namespace {

using bytes = std::vector<std::uint8_t>;

// Runs what a test gives it before a write, once.
class met_environment final : public fault::faulty_environment {
public:
    void before_a_write(std::function<void()> meanwhile) {
        const std::lock_guard hold(mutex_);
        meanwhile_ = std::move(meanwhile);
    }
    // SEEK_DATA of a server that has not heard of the newest bytes.
    void hide_data() { hides_data_ = true; }
    std::int64_t write(int fd, const host::memory_piece* pieces, std::size_t count,
                       std::uint64_t offset) override {
        std::function<void()> now;
        {
            const std::lock_guard hold(mutex_);
            std::swap(now, meanwhile_);
        }
        if (now) now();
        return faulty_environment::write(fd, pieces, count, offset);
    }
    std::int64_t next_data(int fd, std::uint64_t offset) override {
        return hides_data_ ? INT64_MAX : faulty_environment::next_data(fd, offset);
    }

private:
    std::mutex mutex_;
    std::function<void()> meanwhile_;
    std::atomic<bool> hides_data_{false};
};

struct shared_region {
    static constexpr std::uint64_t pages = 300;
    temporary_folder folder;
    const std::string path = folder / "f";
    met_environment env;
    bytes expected = pattern(9, pages * 4096);
    std::mutex mutex;
    std::string log;  // guarded by mutex
    std::unique_ptr<runtime> rt;

    shared_region() {
        write_file(path, expected);
        let_files_settle();
        host::runtime_hooks hooks;
        hooks.env = &env;
        options o = region_runtime(folder, backend::cpu);
        o.request_wait_ms = 50;
        o.log = [this](const std::string& line) {
            const std::lock_guard hold(mutex);
            log += line + "\n";
        };
        rt = make_runtime(o, hooks);
    }
    ~shared_region() { rt.reset(); }  // its threads use the environment
    std::unique_ptr<file_region> map(bool outside_writers = false) {
        return map_whole(*rt, path, protection::read_write, {.outside_writers = outside_writers});
    }
    void change(file_region& r, std::uint64_t at) { poke(r, backend::cpu, at, {++expected[at]}); }
    std::string said() {
        const std::lock_guard hold(mutex);
        return log;
    }
};

}  // namespace

// Of a mapping the operating system sends whole pages, later, and what a server answers then is
// told to none.
TEST(region_elsewhere, a_release_to_a_server_stores_through_no_mapping) {
    for (const bool outside_writers : {false, true}) {
        shared_region f;
        f.env.say_changes_elsewhere();
        f.env.write_scattered_up_to(UINT64_MAX);
        const auto r = f.map(outside_writers);
        for (std::uint64_t page = 0; page < f.pages; page += 3) f.change(*r, page * 4096 + 5);
        f.env.set({.calls = fault::call_write});
        EXPECT_EQ(r->release(), 100);
        EXPECT_EQ(f.env.scattered_bytes(), 0u);
        EXPECT_EQ(f.env.calls(), 100u);
        EXPECT_TRUE(read_file(f.path) == f.expected);
    }
}

// A server may refuse bytes that the operating system took.
TEST(region_elsewhere, what_a_server_refuses_late_stays_changed) {
    for (const bool outside_writers : {false, true}) {
        shared_region f;
        f.env.say_changes_elsewhere();
        const auto r = f.map(outside_writers);
        for (std::uint64_t page = 0; page < f.pages; ++page) f.change(*r, page * 4096 + 5);
        f.env.set({.calls = fault::call_sync, .nth = 1, .for_ever = true, .error = -EDQUOT});
        EXPECT_EQ(r->release(), -EDQUOT);
        EXPECT_EQ(r->release(), -EDQUOT) << "it is told again";
        f.env.clear();
        patch_file(f.path, 0, pattern(9, f.pages * 4096));  // the server has none of it
        EXPECT_GE(r->release(), 0);
        EXPECT_TRUE(read_file(f.path) == f.expected);
        EXPECT_EQ(r->traffic().bytes_written, f.pages);
    }
}

// The answer to one batch may come to another: after it none counts as written.
TEST(region_elsewhere, after_one_refusal_no_batch_is_settled) {
    shared_region f;
    f.env.say_changes_elsewhere();
    const auto r = f.map();
    for (std::uint64_t page = 0; page < f.pages; ++page) f.change(*r, page * 4096 + 5);
    f.env.set({.calls = fault::call_sync, .nth = 1, .error = -EIO});
    EXPECT_EQ(r->release(), -EIO);
    patch_file(f.path, 0, pattern(9, f.pages * 4096));
    EXPECT_GE(r->release(), 0);
    EXPECT_TRUE(read_file(f.path) == f.expected);
    f.env.set({.calls = fault::call_sync, .nth = 1, .error = -EINTR});
    f.change(*r, 7);
    EXPECT_EQ(r->release(), 1) << "a signal ended the wait, which is begun again";
    EXPECT_EQ(f.env.failures(), 1u);
}

// A server answers where bytes are by what it has, and programs of this machine may have stored
// bytes that it has not got yet.
TEST(region_elsewhere, holes_are_not_asked_of_a_server) {
    shared_region f;
    f.env.say_changes_elsewhere();
    f.env.hide_data();
    const auto r = map_whole(*f.rt, f.path, protection::read);
    EXPECT_TRUE(peek(*r, backend::cpu, 0, f.expected.size()) == f.expected);
}

// A page of many runs is read, merged and written as a whole only where no other user of the file
// is known: a kernel's bytes that came between the read and the write would go.
TEST(region_beside, a_release_undoes_no_write_of_a_kernel) {
    shared_region f;
    const auto r = f.map();
    constexpr std::uint64_t runs = 20;
    const auto change_page = [&] {
        for (std::uint64_t i = 0; i < runs; ++i) f.change(*r, 4096 + i * 100);
    };
    f.env.set({.calls = fault::call_write});
    change_page();
    EXPECT_EQ(r->release(), 1);
    EXPECT_EQ(f.env.calls(), 1u) << "in one piece";

    const int file = f.rt->open(f.path, open_read_write);
    ASSERT_GE(file, 0);
    change_page();
    const bytes own{1, 2, 3, 4};
    std::copy(own.begin(), own.end(), f.expected.begin() + 4096 + 50);
    bool ran = false;
    f.env.before_a_write([&] {
        ran = true;
        EXPECT_EQ(f.rt->write(file, own.data(), own.size(), 4096 + 50), 4);
        EXPECT_EQ(f.rt->fsync(file), 0);
    });
    EXPECT_EQ(r->release(), 1);
    EXPECT_TRUE(ran);
    EXPECT_TRUE(read_file(f.path) == f.expected);
    EXPECT_EQ(f.rt->close(file), 0);
    EXPECT_TRUE(read_file(f.path) == f.expected);
}

namespace {
std::atomic<int> size_signals{0};
}

// The system ends a program that writes past its limit, unless the program keeps the signal off.
TEST(region_beside, a_release_past_the_limit_on_file_sizes_is_an_error) {
    shared_region f;
    const auto r = f.map();
    f.change(*r, 200 * 4096);
    struct sigaction counted {
    }, before{};
    counted.sa_handler = [](int) { ++size_signals; };
    ASSERT_EQ(::sigaction(SIGXFSZ, &counted, &before), 0);
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
    rlimit small = limit;
    small.rlim_cur = 200 * 4096;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    const std::int64_t code = r->release();
    ::setrlimit(RLIMIT_FSIZE, &limit);
    EXPECT_EQ(code, -EFBIG);
    EXPECT_EQ(size_signals, 0);
    ::sigaction(SIGXFSZ, &before, nullptr);
    EXPECT_EQ(r->release(), 1);
    EXPECT_TRUE(read_file(f.path) == f.expected);
}

// Kernels of the region may store beside an acquire: what it stores over what it read a moment ago
// would undo them. The page here cannot be stored to.
TEST(region_beside, a_fill_stores_only_what_others_changed) {
    constexpr std::uint64_t page = region::page_bytes;
    void* const memory =
        ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    auto* const replica = static_cast<std::byte*>(memory);
    alignas(16) static std::byte base[page], fresh[page];
    for (std::uint64_t i = 0; i < page; ++i) base[i] = fresh[i] = static_cast<std::byte>(i * 7);
    std::copy_n(base, page, replica);
    replica[100] = std::byte{1};
    fresh[208] = std::byte{2};
    region::fill_page(lane{}, replica, base, fresh);
    EXPECT_EQ(replica[100], std::byte{1});
    EXPECT_EQ(replica[208], std::byte{2});
    EXPECT_TRUE(std::equal(base, base + page, fresh));
    // Now there is nothing that others changed.
    const auto fill_without_stores = [&] {
        if (::mprotect(memory, page, PROT_READ) != 0) ::_exit(2);
        region::fill_page(lane{}, replica, base, fresh);
        ::_exit(replica[100] == std::byte{1} ? 0 : 1);
    };
    EXPECT_EXIT(fill_without_stores(), testing::ExitedWithCode(0), "");
    ::munmap(memory, page);
}

// No stream waits for it, so it takes as long as it takes.
TEST(region_beside, a_request_on_cpu_threads_has_no_deadline) {
    shared_region f;
    const auto r = f.map(true);
    patch_file(f.path, 5, {1});
    f.env.stall(fault::call_facts);
    const region_request request = r->acquire_async();
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    f.env.release();
    EXPECT_GE(request.wait(), 1);
    EXPECT_EQ(f.said(), "");
}

TEST(region_beside, a_sync_that_fails_does_not_say_that_nothing_is_lost) {
    shared_region f;
    const auto filled = f.map(), placed = map_whole(*f.rt, f.path, protection::read,
                                                    {.placement = region_placement::in_place});
    for (file_region* const r : {filled.get(), placed.get()}) {
        f.env.set({.calls = fault::call_sync, .nth = 1, .error = -EIO});
        EXPECT_EQ(r->sync(), -EIO);
    }
    f.env.clear();
    const std::string said = f.said();
    EXPECT_EQ(said.find("nothing is lost"), std::string::npos) << said;
    std::size_t lines = 0;
    for (std::size_t at = 0; (at = said.find("may be lost; write", at)) != std::string::npos; ++at)
        ++lines;
    EXPECT_EQ(lines, 2u) << said;
}

// A tensor may keep the object, and its file could not be unmounted, or its place on the disk not
// be given back.
TEST(region_beside, a_region_that_is_closed_has_no_file_open) {
    shared_region f;
    const int before = f.env.handles();
    for (const bool is_detached : {false, true})
        for (const region_placement where :
             {region_placement::filled, region_placement::in_place}) {
            const auto r = map_whole(*f.rt, f.path, protection::read, {.placement = where});
            EXPECT_GT(f.env.handles(), before);
            EXPECT_EQ(is_detached ? r->detach() : r->close(), 0);
            EXPECT_EQ(f.env.handles(), before) << is_detached << region::name_of(where);
            if (is_detached) {
                EXPECT_TRUE(std::equal(f.expected.begin(), f.expected.end(),
                                       static_cast<const std::uint8_t*>(r->data())));
            }
            EXPECT_EQ(r->sync(), -EBADF);
            EXPECT_EQ(r->acquire(), -EBADF);
            EXPECT_EQ(r->close(), -EBADF);
        }
    std::unique_ptr<file_pieces> pieces;
    ASSERT_TRUE(map_pieces(*f.rt, f.path, {}, pieces).ok());
    EXPECT_EQ(pieces->close(), 0);
    EXPECT_EQ(f.env.handles(), before);
}

}  // namespace penstock::test
