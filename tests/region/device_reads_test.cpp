// Reads of programs that devices answer (region/device_reads.cpp), with an operating system that
// says it has nothing of the file in memory.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <thread>

#include "fault/faulty_environment.hpp"
#include "region/program_reads.hpp"
#include "region/support.hpp"
#include "rounds.hpp"

namespace penstock::test::device_reads {

namespace {

using bytes = std::vector<std::uint8_t>;
using region::program_access;
using region::program_write;

constexpr std::uint64_t file_bytes = (1 << 20) + 100;
constexpr region_options by_page{.outside_writers = false};

class device_reads : public testing::Test {
protected:
    void SetUp() override {
        write_file(path_, content_);
        fd_ = ::open(path_.c_str(), O_RDWR);
        key_ = key_of(fd_);
        host::runtime_hooks hooks;
        hooks.env = &env_;
        runtime_ = make_runtime(region_runtime(folder_, backend::cpu), hooks);
        env_.say_cached(0);
    }
    void TearDown() override { ::close(fd_); }

    std::unique_ptr<file_region> map(std::uint64_t offset, std::uint64_t count, protection access,
                                     const region_options& settings = by_page) {
        std::unique_ptr<file_region> out;
        const status s = map_region(*runtime_, path_, offset, count, access, settings, out);
        EXPECT_TRUE(s.ok()) << s.message;
        return out;
    }
    bytes read(std::uint64_t offset, std::uint64_t count, std::uint64_t& from_devices) const {
        return read_as_program(key_, fd_, offset, count, from_devices);
    }
    std::uint64_t expect_read(const bytes& expected, std::uint64_t offset,
                              std::uint64_t count) const {
        std::uint64_t from_devices = 0;
        const std::uint64_t end = std::min<std::uint64_t>(offset + count, expected.size());
        EXPECT_EQ(read(offset, count, from_devices),
                  bytes(expected.begin() + static_cast<std::ptrdiff_t>(offset),
                        expected.begin() + static_cast<std::ptrdiff_t>(end)))
            << "from " << offset << ", " << count;
        return from_devices;
    }
    void write_as_program(std::uint64_t offset, const bytes& new_bytes) {
        program_write access(file_of(key_), program_access::kind::direct, offset, new_bytes.size());
        ASSERT_EQ(::pwrite(fd_, new_bytes.data(), new_bytes.size(), static_cast<off_t>(offset)),
                  static_cast<ssize_t>(new_bytes.size()));
        access.wrote(offset, new_bytes.size());
        std::copy(new_bytes.begin(), new_bytes.end(),
                  content_.begin() + static_cast<std::ptrdiff_t>(offset));
    }

    const temporary_folder folder_;
    const std::string path_ = folder_ / "f";
    bytes content_ = pattern(7, file_bytes);
    fault::faulty_environment env_;
    std::unique_ptr<runtime> runtime_;
    region::file_key key_;
    int fd_ = -1;
};

}  // namespace

TEST_F(device_reads, what_a_device_holds_comes_from_it_and_the_rest_from_the_file) {
    const auto first = map(0, 256 << 10, protection::read),
               last = map(512 << 10, 0, protection::read_write);
    // No part of Penstock is told of this, so it shows where bytes come from.
    const bytes other = pattern(8, file_bytes);
    ASSERT_EQ(::pwrite(fd_, other.data(), other.size(), 0), static_cast<ssize_t>(file_bytes));
    bytes expected = content_;
    std::copy(other.begin() + (256 << 10), other.begin() + (512 << 10),
              expected.begin() + (256 << 10));
    EXPECT_EQ(expect_read(expected, 0, 4096), 4096u);
    EXPECT_EQ(expect_read(expected, 100, 5000), 5000u);
    EXPECT_EQ(expect_read(expected, 300 << 10, 4096), 0u);
    EXPECT_EQ(expect_read(expected, (256 << 10) - 8000, 16384), 8000u);
    EXPECT_EQ(expect_read(expected, (512 << 10) - 5000, 10000), 5000u);
    EXPECT_EQ(expect_read(expected, file_bytes - 50, 4096), 50u);
    EXPECT_EQ(expect_read(expected, file_bytes, 4096), 0u);
    EXPECT_EQ(expect_read(expected, 1 << 20, 4096), 100u);
}

TEST_F(device_reads, what_is_in_memory_comes_from_the_file) {
    const auto all = map(0, 0, protection::read);
    for (const int said : {1, -ENOSYS}) {  // a file that was just written is in memory, where that
                                           // has to be found out by a mapping
        env_.say_cached(said);
        EXPECT_EQ(expect_read(content_, 8192, 8192), 0u) << said;
    }
    env_.say_cached(0);
    EXPECT_EQ(expect_read(content_, 8192, 8192), 8192u);
}

TEST_F(device_reads, pages_that_programs_wrote_are_not_the_devices_until_it_has_them) {
    const auto all = map(0, 0, protection::read_write);
    write_as_program(5 * 4096 + 10, bytes(20, 1));
    EXPECT_EQ(expect_read(content_, 4 * 4096, 3 * 4096), 2 * 4096u);
    EXPECT_EQ(all->acquire(), 1);
    EXPECT_EQ(expect_read(content_, 4 * 4096, 3 * 4096), 3 * 4096u);
    program_write open(file_of(key_), program_access::kind::direct, 100 * 4096, 1);
    EXPECT_EQ(expect_read(content_, 0, 4096), 0u) << "while a program writes";
}

TEST_F(device_reads, what_was_not_released_is_not_read) {
    const auto writer = map(0, 0, protection::read_write), reader = map(0, 0, protection::read);
    const bytes fresh(100, 9);
    poke(*writer, backend::cpu, 4096, fresh);
    EXPECT_EQ(expect_read(content_, 0, 8192), 8192u);
    EXPECT_EQ(writer->release(), 1);
    std::copy(fresh.begin(), fresh.end(), content_.begin() + 4096);
    EXPECT_EQ(expect_read(content_, 0, 8192), 8192u);
    poke(*writer, backend::cpu, 4096, bytes(100, 10));
    EXPECT_EQ(expect_read(content_, 0, 8192), 8192u);
    EXPECT_EQ(writer->close(), 0);
    std::fill_n(content_.begin() + 4096, 100, 10);
    EXPECT_EQ(expect_read(content_, 4096, 4096), 0u) << "the other is outdated";
    EXPECT_EQ(reader->acquire(), 1);
    EXPECT_EQ(expect_read(content_, 4096, 4096), 4096u);
    EXPECT_EQ(reader->close(), 0);
    EXPECT_EQ(expect_read(content_, 0, 4096), 0u);
}

// What kernels write behind the end of a region of a part of a file is in its memory, and not in
// the file.
TEST_F(device_reads, bytes_behind_a_regions_end_come_from_the_file) {
    const auto part = map(0, 6000, protection::read_write);
    poke(*part, backend::cpu, 5990, bytes(20, 9));
    EXPECT_EQ(part->release(), 1);
    std::fill_n(content_.begin() + 5990, 10, 9);
    EXPECT_EQ(expect_read(content_, 0, 8192), 4096u);
    EXPECT_EQ(expect_read(content_, 4096, 4096), 0u);
}

// Where a program may write without Penstock being told, the file's times decide.
TEST_F(device_reads, a_file_that_others_may_have_changed_is_read_itself) {
    const auto all = map(0, 0, protection::read, {});
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ::close(fd_);
    fd_ = ::open(path_.c_str(), O_RDONLY);
    EXPECT_GE(all->acquire(), 0);
    EXPECT_EQ(expect_read(content_, 0, 8192), 8192u);
    std::fill_n(content_.begin() + 50, 3, 200);
    patch_file(path_, 50, bytes(3, 200));
    EXPECT_EQ(expect_read(content_, 0, 8192), 0u);
}

TEST_F(device_reads, a_read_that_fails_is_left_to_the_file) {
    const auto half = map(0, 512 << 10, protection::read);
    fault::fault_plan plan;
    plan.calls = fault::call_read;
    plan.nth = 1;
    env_.set(plan);
    EXPECT_EQ(expect_read(content_, (512 << 10) - 4096, 8192), 0u);
    EXPECT_EQ(expect_read(content_, (512 << 10) - 4096, 8192), 4096u);
    plan = {};
    plan.longest_read = 100;
    env_.set(plan);
    EXPECT_EQ(expect_read(content_, (512 << 10) - 4096, 8192), 4096u);
}

// A number that one reader has seen no reader sees smaller again, while a program and two regions
// write and others come and go.
TEST_F(device_reads, no_reader_sees_a_number_older_than_any_reader_saw) {
    const auto region = map(0, 16384, protection::read_write);
    std::atomic<std::uint64_t> seen[2]{};  // the largest that any reader has seen: a word of the
                                           // program, one of the region
    for (const std::uint64_t at : {0u, 8u})
        ASSERT_EQ(::pwrite(fd_, bytes(8, 0).data(), 8, static_cast<off_t>(at)), 8);
    program_write(file_of(key_), program_access::kind::direct, 0, 16).wrote(0, 16);
    ASSERT_GE(region->acquire(), 0);
    std::atomic<bool> over{false};
    std::atomic<std::uint64_t> old{0}, device_answers{0};
    const auto reader = [&] {
        while (!over) {
            const std::uint64_t before[2] = {seen[0], seen[1]};
            std::uint64_t words[2]{}, from_devices = 0;
            std::memcpy(words, read(0, 4096, from_devices).data(), sizeof words);
            device_answers += from_devices != 0;
            for (int i = 0; i < 2; ++i) {
                old += words[i] < before[i];
                for (std::uint64_t known = before[i];
                     known < words[i] && !seen[i].compare_exchange_weak(known, words[i]);) {
                }
            }
        }
    };
    std::vector<std::thread> all;
    for (int i = 0; i < 2; ++i) all.emplace_back(reader);
    all.emplace_back([&] {
        // A slow machine may give the region no turn between two writes for long; and the page is
        // the device's only after one.
        const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(10);
        for (std::uint64_t round = 1;
             round <= rounds<std::uint64_t>(12000, 750) ||
             (device_answers == 0 && std::chrono::steady_clock::now() < until);
             ++round) {
            {
                program_write access(file_of(key_), program_access::kind::direct, 0, 8);
                EXPECT_EQ(::pwrite(fd_, &round, 8, 0), 8);
                std::this_thread::yield();  // what was written is there for readers before it is
                                            // told
                access.wrote(0, 8);
            }
            if (round % 64 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        over = true;
    });
    for (std::uint64_t round = 1; !over; ++round) {
        std::memcpy(static_cast<std::byte*>(region->data()) + 8, &round, 8);
        EXPECT_EQ(region->release(), 1);
        EXPECT_GE(region->acquire(), 0);
    }
    for (std::thread& t : all) t.join();
    EXPECT_EQ(old, 0u);
    EXPECT_GT(device_answers, 0u);
}

}  // namespace penstock::test::device_reads
