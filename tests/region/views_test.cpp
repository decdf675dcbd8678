// What regions and a mount promise each other (region/programs.hpp), with a kernel that is played
// here: it keeps pages for programs, holds a page locked while it waits for an answer about it, and
// writes back whole pages that were stored to. So it runs without FUSE, and under the sanitizers.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <thread>

#include "fault/faulty_environment.hpp"
#include "region/program_reads.hpp"
#include "region/support.hpp"
#include "rounds.hpp"

namespace penstock::test {

namespace {

constexpr std::uint64_t page_count = 12, file_bytes = page_count * 4096,
                        file_words = file_bytes / 8, words_of_page = 512;

class played_kernel final : public host::program_views {
public:
    explicit played_kernel(const std::string& path) : fd_(::open(path.c_str(), O_RDWR)) {
        struct stat facts {};
        EXPECT_EQ(::fstat(fd_, &facts), 0);
        key_ = {facts.st_dev, facts.st_ino};
    }
    ~played_kernel() override { ::close(fd_); }

    // A program stores to its mapping, loads from it, or writes.
    void store(std::uint64_t word, std::uint64_t value) {
        page& p = pages_[word / words_of_page];
        std::lock_guard lock(p.lock);
        fetch(p, word / words_of_page);
        p.words[word % words_of_page] = value;
        p.dirty = true;
    }
    std::uint64_t load(std::uint64_t word) {
        page& p = pages_[word / words_of_page];
        std::lock_guard lock(p.lock);
        fetch(p, word / words_of_page);
        return p.words[word % words_of_page];
    }
    void write(std::uint64_t word, std::uint64_t value) {
        page& p = pages_[word / words_of_page];
        std::lock_guard lock(p.lock);
        region::program_write access(file_of(key_), region::program_access::kind::fetch, word * 8,
                                     8);
        EXPECT_EQ(::pwrite(fd_, &value, 8, static_cast<off_t>(word * 8)), 8);
        access.wrote(word * 8, 8);
        if (p.cached) p.words[word % words_of_page] = value;
    }

    int collect(const region::file_key& file) override {
        if (file != key_ || broken_) return 0;
        for (std::uint64_t i = 0; i < page_count; ++i) {
            std::lock_guard lock(pages_[i].lock);
            write_back(pages_[i], i);
        }
        return 0;
    }
    int take_away(const region::file_key& file, std::uint64_t offset,
                  std::uint64_t bytes) override {
        if (file != key_ || broken_) return 0;
        if (refusing_) return -EIO;
        ++taken_;
        for (std::uint64_t i = offset / 4096;
             i < std::min(page_count, (offset + bytes + 4095) / 4096); ++i) {
            std::lock_guard lock(pages_[i].lock);
            write_back(pages_[i], i);
            pages_[i].cached = false;
        }
        return 0;
    }
    void break_it() { broken_ = true; }
    void refuse(bool now) { refusing_ = now; }
    [[nodiscard]] int taken() const { return taken_; }
    [[nodiscard]] int from_devices() const { return from_devices_; }

private:
    struct page {
        std::mutex lock;
        bool cached = false, dirty = false;
        std::array<std::uint64_t, words_of_page> words{};
    };
    void fetch(page& p, std::uint64_t number) {
        if (p.cached) return;
        const region::program_access access(file_of(key_), region::program_access::kind::fetch,
                                            number * 4096, 4096);
        const auto take = [&](const std::byte* from, std::uint64_t count, std::uint64_t) {
            std::memcpy(p.words.data(), from, count);
        };
        if (access.read_devices(fd_, number * 4096, 4096, take) != 0) ++from_devices_;
        else EXPECT_EQ(::pread(fd_, p.words.data(), 4096, static_cast<off_t>(number * 4096)), 4096);
        p.cached = true;
    }
    void write_back(page& p, std::uint64_t number) {
        if (!p.dirty) return;
        const auto* const from = reinterpret_cast<const std::byte*>(p.words.data());
        EXPECT_EQ(region::program_write::write_back(file_of(key_), fd_, from, 4096, number * 4096),
                  4096);
        p.dirty = false;
    }

    const int fd_;
    region::file_key key_;
    std::array<page, page_count> pages_;
    std::atomic<bool> broken_{false}, refusing_{false};
    std::atomic<int> taken_{0}, from_devices_{0};
};

class region_views : public testing::Test {
protected:
    void SetUp() override {
        write_file(folder_ / "f", std::vector<std::uint8_t>(file_bytes, 0));
        kernel_ = std::make_shared<played_kernel>(folder_ / "f");
        host::hub::of_process().add_views(kernel_);
        host::runtime_hooks hooks;
        hooks.env = &env_;
        runtime_ = make_runtime(region_runtime(folder_, backend::cpu), hooks);
        for (auto& region : regions_)
            region = map_whole(*runtime_, folder_ / "f", protection::read_write,
                               {.outside_writers = false});
    }
    void TearDown() override { host::hub::of_process().remove_views(*kernel_); }

    static std::uint64_t* words_of(file_region& r) { return static_cast<std::uint64_t*>(r.data()); }

    // Word w is of writer w % 4: a program that stores, one that writes, both each word once, and
    // two regions, all words in each round. How many words are lost at the end.
    std::uint64_t lost_words(std::uint64_t rounds) {
        std::atomic<int> devices{2};
        const auto program = [&](std::uint64_t holder) {
            for (std::uint64_t word = holder; word < file_words; word += 4) {
                if (holder == 0) kernel_->store(word, rounds);
                else kernel_->write(word, rounds);
                if (devices != 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
            }
        };
        const auto device = [&](std::uint64_t holder, file_region& r) {
            for (std::uint64_t round = 1; round <= rounds; ++round) {
                for (std::uint64_t word = holder; word < file_words; word += 4)
                    words_of(r)[word] = round;
                EXPECT_GE(r.release(), 0);
                EXPECT_GE(r.acquire(), 0);
            }
            --devices;
        };
        std::vector<std::thread> all;
        all.emplace_back(program, 0);
        all.emplace_back(program, 1);
        all.emplace_back(device, 2, std::ref(*regions_[0]));
        device(3, *regions_[1]);
        for (std::thread& thread : all) thread.join();
        std::uint64_t lost = 0;
        for (auto& region : regions_) EXPECT_GE(region->acquire(), 0);
        for (std::uint64_t word = 0; word < file_words; ++word) {
            lost += words_of(*regions_[0])[word] != rounds;
            lost += words_of(*regions_[1])[word] != rounds;
            lost += kernel_->load(word) != rounds;
        }
        return lost;
    }

    const temporary_folder folder_;
    fault::faulty_environment env_;
    std::shared_ptr<played_kernel> kernel_;
    std::unique_ptr<runtime> runtime_;
    std::array<std::unique_ptr<file_region>, 2> regions_;
};

}  // namespace

TEST_F(region_views, nothing_is_lost_of_pages_that_all_change) {
    fault::fault_plan plan;
    // A page comes home in many pieces, between which a program might look.
    plan.longest_write = 128;
    env_.set(plan);
    EXPECT_EQ(lost_words(rounds(600u, 100u)), 0u);
    EXPECT_GT(kernel_->taken(), 0);
}

// The same where programs read from devices whenever they may.
TEST_F(region_views, nothing_is_lost_where_devices_answer_programs) {
    env_.say_cached(0);
    EXPECT_EQ(lost_words(rounds(600u, 100u)), 0u);
    EXPECT_GT(kernel_->from_devices(), 0);
}

// As above, and a quarter of the words is written by `write`, each once, a few between two fsyncs;
// the same words of two pages at a time.
TEST_F(region_views, nothing_is_lost_of_what_kernels_write_by_write) {
    fault::fault_plan plan;
    plan.longest_write = 128;
    env_.set(plan);
    const int fd = runtime_->open(folder_ / "f", open_read_write);
    ASSERT_GE(fd, 0);
    constexpr std::uint64_t value = 7, rounds = words_of_page / 4;
    std::atomic<bool> all_written{false};
    const auto program = [&](std::uint64_t holder) {
        for (std::uint64_t word = holder; word < file_words; word += 4) {
            if (holder == 0) kernel_->store(word, value);
            else kernel_->write(word, value);
            if (!all_written) std::this_thread::sleep_for(std::chrono::microseconds(100));
        }
    };
    std::jthread storer(program, 0), writer(program, 1), region([&] {
        for (std::uint64_t number = 1; !all_written; ++number) {
            for (std::uint64_t word = 2; word < file_words; word += 4)
                words_of(*regions_[0])[word] = number;
            EXPECT_GE(regions_[0]->release(), 0);
            EXPECT_GE(regions_[0]->acquire(), 0);
        }
        for (std::uint64_t word = 2; word < file_words; word += 4)
            words_of(*regions_[0])[word] = value;
        EXPECT_GE(regions_[0]->release(), 0);
    });
    for (std::uint64_t round = 0; round < rounds; ++round) {
        for (std::uint64_t page = 0; page < page_count; ++page)
            EXPECT_EQ(runtime_->write(
                          fd, &value, 8,
                          static_cast<std::int64_t>((page * words_of_page + 4 * round + 3) * 8)),
                      8);
        EXPECT_EQ(runtime_->fsync(fd), 0);
    }
    all_written = true;
    for (std::jthread* thread : {&storer, &writer, &region}) thread->join();
    EXPECT_EQ(runtime_->close(fd), 0);
    for (auto& r : regions_) EXPECT_GE(r->acquire(), 0);
    for (std::uint64_t word = 0; word < file_words; ++word) {
        ASSERT_EQ(words_of(*regions_[0])[word], value) << word;
        ASSERT_EQ(words_of(*regions_[1])[word], value) << word;
        ASSERT_EQ(kernel_->load(word), value) << word;
    }
}

TEST_F(region_views, a_kernel_that_keeps_its_pages_is_found_out) {
    kernel_->break_it();
    EXPECT_GT(lost_words(10), 0u);
}

TEST_F(region_views, what_a_program_cached_is_new_after_a_release) {
    for (std::uint64_t round = 1; round <= 200; ++round) {
        kernel_->store(5, round);
        ASSERT_GE(regions_[0]->acquire(), 0);
        ASSERT_EQ(words_of(*regions_[0])[5], round);
        words_of(*regions_[0])[6] = round;
        ASSERT_EQ(regions_[0]->release(), 1);
        ASSERT_EQ(kernel_->load(6), round);
        ASSERT_EQ(kernel_->load(5), round);
    }
}

// Pages that no program has are not asked for again.
TEST_F(region_views, views_are_taken_where_there_are_any) {
    words_of(*regions_[0])[0] = 1;
    EXPECT_EQ(regions_[0]->release(), 1);
    const int first = kernel_->taken();
    EXPECT_GT(first, 0);  // what the kernel had before the region was mapped is not known
    for (std::uint64_t round = 2; round < 10; ++round) {
        words_of(*regions_[0])[0] = round;
        EXPECT_EQ(regions_[0]->release(), 1);
    }
    EXPECT_EQ(kernel_->taken(), first);
    EXPECT_EQ(kernel_->load(words_of_page), 0u);  // another page
    words_of(*regions_[0])[0] = 77;
    EXPECT_EQ(regions_[0]->release(), 1);
    EXPECT_EQ(kernel_->taken(), first);
    EXPECT_EQ(kernel_->load(0), 77u);
}

TEST_F(region_views, a_view_that_is_not_given_up_keeps_changes_for_the_next_release) {
    kernel_->store(1, 10);
    EXPECT_EQ(kernel_->load(2), 0u);
    kernel_->refuse(true);
    words_of(*regions_[0])[2] = 20;
    EXPECT_EQ(regions_[0]->release(), -EIO);
    kernel_->refuse(false);
    EXPECT_GE(regions_[0]->release(), 0);
    EXPECT_EQ(kernel_->load(2), 20u);
    EXPECT_EQ(kernel_->load(1), 10u);
    EXPECT_EQ(regions_[1]->acquire(), 1);
    EXPECT_EQ(words_of(*regions_[1])[1], 10u);
    EXPECT_EQ(words_of(*regions_[1])[2], 20u);
}

// Of pages that no region keeps nothing is asked: there may be any number of them.
TEST(region_program, cuts_a_huge_file_of_which_a_region_has_little) {
    if (!std::filesystem::is_directory("/dev/shm")) GTEST_SKIP() << "no folder in memory";
    const temporary_folder folder("/dev/shm");
    const std::string path = folder / "huge";
    write_file(path, std::vector<std::uint8_t>(file_bytes, 7));
    if (::truncate(path.c_str(), off_t{1} << 56) != 0) GTEST_SKIP() << "no such files here";
    const auto rt = make_runtime(region_runtime(folder, backend::cpu), {});
    std::unique_ptr<file_region> r;
    const status s =
        map_region(*rt, path, 0, file_bytes, protection::read_write, {.outside_writers = false}, r);
    ASSERT_TRUE(s.ok()) << s.message;
    struct stat facts {};
    ASSERT_EQ(::stat(path.c_str(), &facts), 0);
    constexpr std::uint64_t end = 8 << 20;
    region::program_write access(file_of({facts.st_dev, facts.st_ino}),
                                 region::program_access::kind::direct, end, UINT64_MAX);
    ASSERT_EQ(::truncate(path.c_str(), end), 0);
    access.wrote(end, UINT64_MAX);
    EXPECT_GE(r->acquire(), 0);
    EXPECT_EQ(static_cast<const std::uint8_t*>(r->data())[file_bytes - 1], 7);
}

}  // namespace penstock::test
