// What kernels write by write and truncate, seen by programs through a mount of the process, and by
// regions: on CPU threads and on the GPU.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "mount/mounted_backend.hpp"

namespace penstock::test::kernel_write {

namespace {

using bytes = std::vector<std::uint8_t>;
constexpr region_options by_page{.outside_writers = false};

class kernel_writes : public mounted_backend {
protected:
    int open_to_write(const bytes& content) {
        write_file(source(), content);
        const int fd = runtime_->open(source(), open_read_write);
        EXPECT_GE(fd, 0) << fd;
        return fd;
    }
    void kernel_writes_word(int fd, std::uint64_t offset, std::uint64_t value) {
        EXPECT_EQ(runtime_->write(fd, &value, 8, static_cast<std::int64_t>(offset)), 8);
        EXPECT_EQ(runtime_->fsync(fd), 0);
    }
};

}  // namespace

// Without an open in between: the kernel of the operating system keeps the pages for the program.
TEST_P(kernel_writes, are_seen_by_a_program_that_has_the_page) {
    const int fd = open_to_write(bytes(64 << 10, 1));
    ASSERT_GE(one_.open(seen_as(), O_RDONLY), 0);
    for (std::uint64_t round = 2; round < 40; ++round) {
        const std::uint64_t at = round % 5 * 4096 + 128;
        EXPECT_NE(one_.read(at).value, round);
        kernel_writes_word(fd, at, round);
        ASSERT_EQ(one_.read(at).value, round);
    }
    EXPECT_EQ(one_.close_file(), 0);
    EXPECT_EQ(runtime_->close(fd), 0);
}

TEST_P(kernel_writes, are_loaded_from_a_mapping_and_what_was_stored_beside_them_stays) {
    const int fd = open_to_write(bytes(16 << 10, 0));
    ASSERT_GE(one_.open(seen_as()), 0);
    ASSERT_EQ(one_.map(16 << 10), 0);
    for (std::uint64_t round = 1; round < 60; ++round) {
        EXPECT_EQ(one_.store(4096 + 8, round), 0);
        kernel_writes_word(fd, 4096 + 16, round);
        ASSERT_EQ(one_.load(4096 + 16).value, round);
        ASSERT_EQ(one_.load(4096 + 8).value, round);
    }
    EXPECT_EQ(one_.close_file(), 0);
    EXPECT_EQ(runtime_->close(fd), 0);
    const bytes now = read_file(source());
    EXPECT_EQ(now[4096 + 8], 59);
    EXPECT_EQ(now[4096 + 16], 59);
}

// A program stores to every second word, a kernel writes each of the others once, at the same time.
// Each word has one writer; what that wrote last is there.
TEST_P(kernel_writes, and_stores_to_the_same_pages_at_once_are_all_there) {
    constexpr std::uint64_t size = 32 << 10, words = size / 8, rounds = 64, hammered = 8000;
    const int fd = open_to_write(bytes(size, 0));
    ASSERT_GE(one_.open(seen_as()), 0);
    ASSERT_EQ(one_.map(size), 0);
    one_.begin_hammering(0, 2, size, hammered);
    for (std::uint64_t round = 0; round < rounds; ++round) {
        const std::uint64_t value = round + 1;
        for (std::uint64_t word = 2 * round + 1; word < words; word += 2 * rounds)
            EXPECT_EQ(runtime_->write(fd, &value, 8, static_cast<std::int64_t>(word * 8)), 8);
        ASSERT_EQ(runtime_->fsync(fd), 0);
    }
    EXPECT_EQ(one_.hear().code, 0);
    EXPECT_EQ(one_.close_file(), 0);
    EXPECT_EQ(runtime_->close(fd), 0);
    const bytes now = read_file(source());
    std::vector<std::uint64_t> seen(words);
    std::memcpy(seen.data(), now.data(), size);
    for (std::uint64_t word = 0; word < words; ++word)
        ASSERT_EQ(seen[word], word % 2 == 0 ? hammered : word / 2 % rounds + 1) << word;
}

TEST_P(kernel_writes, are_fetched_by_regions_page_by_page) {
    constexpr std::uint64_t size = 4 << 20;
    const int fd = open_to_write(pattern(5, size));
    const auto r = map_whole(*runtime_, source(), protection::read_write, by_page);
    EXPECT_EQ(r->acquire(), 0);
    for (const std::uint64_t page : {3u, 4u, 900u}) kernel_writes_word(fd, page * 4096 + 40, page);
    EXPECT_EQ(r->acquire(), 3);
    EXPECT_EQ(r->acquire(), 0);
    EXPECT_EQ(peek(*r, where(), 0, size), read_file(source()));
    EXPECT_EQ(runtime_->truncate(fd, size - 5000), 0);
    EXPECT_EQ(r->acquire(), -ESTALE);
    EXPECT_EQ(runtime_->close(fd), 0);
}

TEST_P(kernel_writes, and_cuts_change_the_size_that_programs_see) {
    const int fd = open_to_write(bytes(10000, 7));
    ASSERT_GE(one_.open(seen_as(), O_RDWR), 0);
    ASSERT_EQ(one_.map(12288), 0);
    struct stat facts {};
    ASSERT_EQ(::stat(seen_as().c_str(), &facts), 0);
    EXPECT_EQ(facts.st_size, 10000);
    EXPECT_EQ(one_.store(9000, 8), 0);
    EXPECT_EQ(runtime_->truncate(fd, 5000), 0);
    ASSERT_EQ(::stat(seen_as().c_str(), &facts), 0);
    EXPECT_EQ(facts.st_size, 5000);
    EXPECT_EQ(one_.read(5000).code, 0) << "the end";
    kernel_writes_word(fd, 20000, 9);
    ASSERT_EQ(::stat(seen_as().c_str(), &facts), 0);
    EXPECT_EQ(facts.st_size, 20008);
    EXPECT_EQ(one_.read(20000).value, 9u);
    EXPECT_EQ(one_.read(9000).value, 0u) << "a hole since it was cut";
    EXPECT_EQ(one_.close_file(), 0);
    EXPECT_EQ(runtime_->close(fd), 0);
    EXPECT_EQ(std::filesystem::file_size(source()), 20008u);
}

// A program keeps its mapping and calls nothing. An open finds what it stored before, as in any
// file.
TEST_P(kernel_writes, an_open_has_what_a_program_stored_to_a_mapping_that_it_keeps) {
    write_file(source(), bytes(16 << 10, 0));
    ASSERT_GE(one_.open(seen_as()), 0);
    ASSERT_EQ(one_.map(16 << 10), 0);
    std::uint64_t old = 0;
    const std::uint64_t rounds = where() == backend::gpu ? 100 : 500;
    for (std::uint64_t round = 1; round <= rounds; ++round) {
        EXPECT_EQ(one_.store(round % 4 * 4096 + 64, round), 0);
        const int fd = runtime_->open(source());
        ASSERT_GE(fd, 0);
        std::uint64_t seen = 0;
        EXPECT_EQ(runtime_->read(fd, &seen, 8, static_cast<std::int64_t>(round % 4 * 4096 + 64)),
                  8);
        old += seen != round;
        EXPECT_EQ(runtime_->close(fd), 0);
    }
    EXPECT_EQ(old, 0u) << "of " << rounds;
    EXPECT_EQ(one_.close_file(), 0);
}

INSTANTIATE_TEST_SUITE_P(backends, kernel_writes,
                         testing::Values(mounted_as(backend::cpu), mounted_as(backend::gpu),
                                         mounted_as(backend::cpu, true),
                                         mounted_as(backend::gpu, true)),
                         [](const auto& info) { return name_of(info); });

}  // namespace penstock::test::kernel_write
