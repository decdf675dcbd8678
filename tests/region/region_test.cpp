// Regions in single situations, on CPU threads and on the GPU.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <thread>

#include "region/support.hpp"
#include "region/version_map.hpp"

namespace penstock::test {

namespace {

using bytes = std::vector<std::uint8_t>;

class regions : public testing::TestWithParam<backend> {
protected:
    void SetUp() override {
        if (GetParam() == backend::gpu && !gpu_is_there()) GTEST_SKIP() << "no GPU in this machine";
        runtime_ = make_runtime(region_runtime(folder_, GetParam()));
    }
    std::string file(std::uint64_t size) {
        const std::string path = folder_ / "f";
        write_file(path, pattern(7, size));
        let_files_settle();
        return path;
    }
    status refusal(const std::string& path, std::uint64_t offset, std::uint64_t size,
                   protection access = protection::read) {
        std::unique_ptr<file_region> out;
        status s = map_region(*runtime_, path, offset, size, access, {}, out);
        EXPECT_EQ(out, nullptr);
        return s;
    }
    const temporary_folder folder_;
    std::unique_ptr<runtime> runtime_;
};

constexpr region_options alone{.outside_writers = false};

}  // namespace

TEST_P(regions, a_region_has_the_bytes_of_the_file_and_zeros_behind_it) {
    const std::uint64_t size = (5 << 20) + 123;
    const std::string path = file(size);
    const auto r = map_whole(*runtime_, path, protection::read);
    ASSERT_EQ(r->size_bytes(), size);
    EXPECT_EQ(peek(*r, GetParam(), 0, size), pattern(7, size));
    EXPECT_EQ(peek(*r, GetParam(), size, 4096 - size % 4096), bytes(4096 - size % 4096, 0));
    EXPECT_EQ(r->release(), 0);
    EXPECT_EQ(r->close(), 0);
}

TEST(regions_of_devices, see_what_the_other_released) {
    const temporary_folder folder;
    const std::string path = folder / "f";
    write_file(path, pattern(7, 3 << 20));
    let_files_settle();
    options o = small_options(folder, 2);
    o.writable = true;
    const auto rt = make_runtime(o);
    const auto first = map_whole(*rt, path, protection::read_write, {.device = 0});
    const auto second = map_whole(*rt, path, protection::read_write, {.device = 1});
    bytes expected = pattern(7, 3 << 20);
    std::copy_n(pattern(8, 100).begin(), 100, expected.begin() + 5000);
    poke(*second, backend::cpu, 5000, pattern(8, 100));
    EXPECT_GE(second->release(), 0);
    EXPECT_GE(first->acquire(), 0);
    EXPECT_EQ(peek(*first, backend::cpu, 0, 3 << 20), expected);

    std::unique_ptr<file_region> none;
    const status s = map_region(*rt, path, 0, 0, protection::read, {.device = 2}, none);
    EXPECT_EQ(s.code, -EINVAL);
    EXPECT_NE(s.message.find(path), std::string::npos) << s.message;
    EXPECT_NE(s.message.find("device 2"), std::string::npos) << s.message;
    EXPECT_EQ(none, nullptr);
}

TEST_P(regions, a_part_of_a_file) {
    const std::string path = file(3 << 20);
    std::unique_ptr<file_region> r;
    ASSERT_TRUE(map_region(*runtime_, path, 8192, 10000, protection::read_write, {}, r).ok());
    EXPECT_EQ(r->size_bytes(), 10000u);
    bytes expected = pattern(7, 3 << 20);
    EXPECT_EQ(peek(*r, GetParam(), 0, 10000),
              bytes(expected.begin() + 8192, expected.begin() + 18192));
    poke(*r, GetParam(), 9990, bytes(20, 9));  // ten of them behind the end of the region
    EXPECT_EQ(r->release(), 1);
    std::fill_n(expected.begin() + 8192 + 9990, 10, 9);
    EXPECT_EQ(read_file(path), expected);
}

TEST_P(regions, a_release_writes_the_bytes_that_were_changed_and_no_others) {
    const std::string path = file(1 << 20);
    const auto r = map_whole(*runtime_, path, protection::read_write);
    poke(*r, GetParam(), 4000, {1, 2, 3});
    patch_file(path, 4001, {0xee});  // another program, a byte between
    patch_file(path, 4005, {0xdd});
    poke(*r, GetParam(), 4001, {pattern_byte(7, 4001)});  // back to what it was: no change
    EXPECT_EQ(r->release(), 1);
    bytes expected = pattern(7, 1 << 20);
    expected[4000] = 1;
    expected[4001] = 0xee;
    expected[4002] = 3;
    expected[4005] = 0xdd;
    EXPECT_EQ(read_file(path), expected);
    EXPECT_EQ(r->traffic().bytes_written, 2u);
    EXPECT_EQ(r->release(), 0);  // nothing more to bring
    EXPECT_GE(r->acquire(), 0);
    EXPECT_EQ(peek(*r, GetParam(), 0, 1 << 20), expected);
}

TEST_P(regions, an_acquire_brings_what_programs_wrote_and_keeps_what_is_not_released) {
    const std::string path = file(1 << 20);
    const auto r = map_whole(*runtime_, path, protection::read_write);
    poke(*r, GetParam(), 100, {1});
    patch_file(path, 101, {2});
    EXPECT_GT(r->acquire(), 0);
    EXPECT_EQ(peek(*r, GetParam(), 100, 2), (bytes{1, 2}));
    EXPECT_EQ(read_file(path)[100], pattern_byte(7, 100));
    EXPECT_EQ(r->release(), 1);
    EXPECT_EQ(read_file(path)[100], 1);
    EXPECT_EQ(read_file(path)[101], 2);
}

TEST_P(regions, nothing_moves_where_nothing_changed) {
    const std::string path = file(4 << 20);
    const auto r = map_whole(*runtime_, path, protection::read);
    let_files_settle();
    const std::uint64_t before = r->traffic().pages_fetched;
    EXPECT_EQ(before, 1024u);
    EXPECT_EQ(r->acquire(), 0);
    EXPECT_EQ(r->acquire(), 0);
    EXPECT_EQ(r->traffic().pages_fetched, before);
}

TEST_P(regions, two_regions_fetch_each_others_pages_and_only_those) {
    const std::string path = file(8 << 20);
    const auto other = make_runtime(region_runtime(folder_, GetParam()));
    const auto a = map_whole(*runtime_, path, protection::read_write, alone),
               b = map_whole(*other, path, protection::read_write, alone);
    for (std::uint64_t page : {0u, 3u, 4u, 1000u, 2047u})
        poke(*a, GetParam(), page * 4096 + 17, {0x55});
    poke(*b, GetParam(), 3 * 4096 + 18, {0x66});
    EXPECT_EQ(a->release(), 5);
    EXPECT_EQ(b->release(), 1);
    EXPECT_EQ(b->acquire(), 5);
    EXPECT_EQ(b->acquire(), 0);
    EXPECT_EQ(a->acquire(), 1);
    EXPECT_EQ(peek(*a, GetParam(), 0, 8 << 20), peek(*b, GetParam(), 0, 8 << 20));
    EXPECT_EQ(peek(*a, GetParam(), 3 * 4096 + 17, 2), (bytes{0x55, 0x66}));
    EXPECT_EQ(read_file(path), peek(*a, GetParam(), 0, 8 << 20));
}

// Reads go on over single pages between those that are wanted; those stay as they are.
TEST_P(regions, pages_between_those_that_are_fetched_stay) {
    constexpr std::uint64_t pages = 2048;
    const std::string path = file(pages * 4096);
    const auto a = map_whole(*runtime_, path, protection::read_write, alone),
               b = map_whole(*runtime_, path, protection::read_write, alone);
    bytes a_has = peek(*a, GetParam(), 0, pages * 4096), b_has = a_has;
    std::int64_t changed = 0;
    for (std::uint64_t page = 0; page < pages; page += 2 + page % 3, ++changed)
        b_has[page * 4096 + 5] = a_has[page * 4096 + 5] ^= 0x55;
    for (std::uint64_t page = 1; page < pages; page += 2)
        b_has[page * 4096 + 6] = 0x66;  // not released
    poke(*a, GetParam(), 0, a_has);
    for (std::uint64_t page = 1; page < pages; page += 2)
        poke(*b, GetParam(), page * 4096 + 6, {0x66});
    EXPECT_EQ(a->release(), changed);
    EXPECT_EQ(b->acquire(), changed);
    EXPECT_EQ(peek(*b, GetParam(), 0, pages * 4096), b_has);
    EXPECT_EQ(read_file(path), a_has);
}

// What was released is part of the base: it must not be brought again over what others changed
// since, knowing it.
TEST_P(regions, a_released_change_is_not_released_again) {
    const std::string path = file(8192);
    const auto a = map_whole(*runtime_, path, protection::read_write, alone),
               b = map_whole(*runtime_, path, protection::read_write, alone);
    poke(*a, GetParam(), 5, {1});
    EXPECT_EQ(a->release(), 1);
    EXPECT_EQ(b->acquire(), 1);
    poke(*b, GetParam(), 5, {2});
    EXPECT_EQ(b->release(), 1);
    poke(*a, GetParam(), 6, {3});
    EXPECT_EQ(a->release(), 1);
    EXPECT_EQ(read_file(path)[5], 2);
    EXPECT_EQ(a->acquire(), 1);
    EXPECT_EQ(peek(*a, GetParam(), 5, 2), (bytes{2, 3}));
}

TEST_P(regions, regions_that_go_and_come_see_what_was_released) {
    const std::string path = file(8192);
    for (std::uint8_t round = 0; round < 20; ++round) {
        const auto r = map_whole(*runtime_, path, protection::read_write, alone);
        EXPECT_EQ(peek(*r, GetParam(), round, 1)[0], pattern_byte(7, round));
        if (round > 0) {
            EXPECT_EQ(peek(*r, GetParam(), round - 1u, 1)[0],
                      static_cast<std::uint8_t>(200 + round - 1));
        }
        poke(*r, GetParam(), round, {static_cast<std::uint8_t>(200 + round)});
        EXPECT_EQ(r->close(), 0);  // releases
        EXPECT_EQ(r->acquire(), -EBADF);
        EXPECT_EQ(r->release(), -EBADF);
        EXPECT_EQ(r->sync(), -EBADF);
        EXPECT_EQ(r->close(), -EBADF);
        EXPECT_EQ(r->data(), nullptr);
    }
}

TEST_P(regions, many_short_changes_of_a_page) {
    const std::string path = file(64 << 10);
    for (const bool outside : {false, true}) {
        const auto r =
            map_whole(*runtime_, path, protection::read_write, {.outside_writers = outside});
        bytes now = peek(*r, GetParam(), 0, 64 << 10);
        for (std::size_t i = outside ? 1 : 0; i < now.size(); i += 3)
            now[i] = static_cast<std::uint8_t>(now[i] + 1);
        poke(*r, GetParam(), 0, now);
        EXPECT_EQ(r->release(), 16);
        EXPECT_EQ(r->sync(), 0);
        EXPECT_EQ(read_file(path), now);
    }
}

TEST_P(regions, a_file_that_shrinks_is_an_error_and_keeps_its_new_size) {
    const std::string path = file(1 << 20);
    const auto r = map_whole(*runtime_, path, protection::read_write);
    poke(*r, GetParam(), (1 << 20) - 10, {1});
    poke(*r, GetParam(), 10, {2});
    ASSERT_EQ(::truncate(path.c_str(), 8192), 0);
    EXPECT_EQ(r->acquire(), -ESTALE);
    EXPECT_EQ(r->release(), -ESTALE);
    EXPECT_EQ(read_file(path).size(), 8192u);
    EXPECT_EQ(r->close(), -ESTALE);
    EXPECT_EQ(read_file(path).size(), 8192u);
}

TEST_P(regions, a_file_that_grew_can_be_mapped_anew_beside_the_old_region) {
    const std::string path = file(3 * 4096 + 5);
    const auto small = map_whole(*runtime_, path, protection::read_write, alone);
    ASSERT_EQ(::truncate(path.c_str(), 6 << 20), 0);
    const auto large = map_whole(*runtime_, path, protection::read_write, alone);
    poke(*large, GetParam(), 3 * 4096 + 4, {1, 2});
    poke(*large, GetParam(), (6 << 20) - 1, {3});
    EXPECT_EQ(large->release(), 2);
    EXPECT_EQ(small->acquire(), 1);
    EXPECT_EQ(peek(*small, GetParam(), 3 * 4096 + 4, 1)[0], 1);
    EXPECT_EQ(read_file(path).back(), 3);
}

// Each thread has a region and bytes of its own, all in the same pages.
TEST_P(regions, threads_with_a_region_each_at_once) {
    constexpr std::uint64_t size = 40 * 4096 + 99;
    const std::string path = file(size);
    bytes expected = pattern(7, size);
    std::vector<std::unique_ptr<file_region>> all;
    for (int i = 0; i < 3; ++i)
        all.push_back(map_whole(*runtime_, path, protection::read_write, alone));
    std::vector<std::thread> threads;
    for (std::uint64_t t = 0; t < all.size(); ++t)
        threads.emplace_back([&, t] {
            for (std::uint64_t round = 1; round <= 60; ++round) {
                for (std::uint64_t at = t + round % 5 * 4096; at < size; at += 3 * 701)
                    poke(*all[t], GetParam(), at / 3 * 3 + t, {static_cast<std::uint8_t>(round)});
                EXPECT_GE(all[t]->release(), 0);
                EXPECT_GE(all[t]->acquire(), 0);
            }
        });
    for (std::thread& thread : threads) thread.join();
    for (std::uint64_t t = 0; t < all.size(); ++t)
        for (std::uint64_t round = 1; round <= 60; ++round)
            for (std::uint64_t at = t + round % 5 * 4096; at < size; at += 3 * 701)
                if (at / 3 * 3 + t < size)
                    expected[at / 3 * 3 + t] = static_cast<std::uint8_t>(round);
    EXPECT_TRUE(read_file(path) == expected);
    for (auto& region : all) {
        EXPECT_GE(region->acquire(), 0);
        EXPECT_TRUE(peek(*region, GetParam(), 0, size) == expected);
    }
}

// A program and a region answer each other through one page; neither may see an older number than
// it was promised.
TEST_P(regions, ping_pong_with_a_program) {
    const std::string path = folder_ / "table";
    write_file(path, bytes(4096, 0));
    const auto r = map_whole(*runtime_, path, protection::read_write);
    const int fd = ::open(path.c_str(), O_RDWR);
    ASSERT_GE(fd, 0);
    const std::uint64_t rounds = GetParam() == backend::gpu ? 500 : 5000;
    for (std::uint64_t round = 1; round <= rounds; ++round) {
        ASSERT_EQ(::pwrite(fd, &round, sizeof round, 64), static_cast<ssize_t>(sizeof round));
        ASSERT_GE(r->acquire(), 0);
        std::uint64_t ball = 0;
        const bytes seen = peek(*r, GetParam(), 64, 8);
        std::memcpy(&ball, seen.data(), 8);
        ASSERT_EQ(ball, round) << "the region reads what was replaced before it acquired";
        poke(*r, GetParam(), 72, seen);
        ASSERT_EQ(r->release(), 1);
        ASSERT_EQ(::pread(fd, &ball, sizeof ball, 72), static_cast<ssize_t>(sizeof ball));
        ASSERT_EQ(ball, round) << "the program reads what was replaced before the release returned";
    }
    ::close(fd);
}

// What a region costs is by its own size, wherever the file ends.
TEST_P(regions, a_small_region_of_a_huge_file_costs_little) {
    constexpr std::uint64_t size = std::uint64_t{1} << 42;
    const std::string path = folder_ / "huge";
    write_file(path, pattern(7, 100));
    if (::truncate(path.c_str(), size) != 0) GTEST_SKIP() << "no such files here";
    const auto resident_bytes = [] {
        std::ifstream in("/proc/self/statm");
        std::uint64_t pages = 0;
        in >> pages >> pages;
        return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    };
    std::unique_ptr<file_region> first, last;
    // Without a first one what the runtime has for all regions would count.
    ASSERT_TRUE(map_region(*runtime_, file(5000), 0, 0, protection::read, {}, first).ok());
    const std::uint64_t before = resident_bytes();
    status s = map_region(*runtime_, path, 0, 4096, protection::read_write, {}, first);
    ASSERT_TRUE(s.ok()) << s.message;
    s = map_region(*runtime_, path, size - 4096, 4096, protection::read_write, {}, last);
    ASSERT_TRUE(s.ok()) << s.message;
    EXPECT_LT(resident_bytes(), before + (64u << 20));
    EXPECT_EQ(peek(*first, GetParam(), 0, 100), pattern(7, 100));
    poke(*last, GetParam(), 4000, {1, 2, 3});
    EXPECT_EQ(last->release(), 1);
    std::ifstream in(path);
    in.seekg(static_cast<std::streamoff>(size - 96));
    EXPECT_EQ(in.get(), 1);
}

// Frameworks still have its address.
TEST_P(regions, memory_stays_after_a_detach_and_reaches_no_file) {
    const std::string path = file(64 << 10);
    const auto other = map_whole(*runtime_, path, protection::read_write, alone);
    {
        const auto r = map_whole(*runtime_, path, protection::read_write, alone);
        const void* const at = r->data();
        poke(*r, GetParam(), 17, {0x55});
        EXPECT_EQ(r->detach(), 0);
        EXPECT_EQ(r->data(), at);
        EXPECT_EQ(read_file(path)[17], 0x55);
        poke(*r, GetParam(), 17, {0x66});
        poke(*r, GetParam(), 5000, {0x66});
        EXPECT_EQ(r->release(), -EBADF);
        EXPECT_EQ(r->acquire(), -EBADF);
        EXPECT_EQ(r->detach(), -EBADF);
        EXPECT_EQ(other->acquire(), 1);
        EXPECT_EQ(peek(*r, GetParam(), 5000, 1), (bytes{0x66}));
    }
    EXPECT_EQ(other->acquire(), 0);
    EXPECT_EQ(peek(*other, GetParam(), 17, 1), (bytes{0x55}));
    EXPECT_EQ(read_file(path)[17], 0x55);
    EXPECT_EQ(read_file(path)[5000], pattern(7, 64 << 10)[5000]);
}

// A place for each of most_devices regions: a detached one has none.
TEST_P(regions, a_close_frees_what_a_detach_left) {
    const std::string path = file(10000);
    std::vector<std::unique_ptr<file_region>> all;
    for (unsigned i = 0; i < region::most_devices + 2; ++i) {
        all.push_back(map_whole(*runtime_, path, protection::read));
        EXPECT_EQ(all.back()->detach(), 0);
    }
    EXPECT_EQ(peek(*all.front(), GetParam(), 0, 10000), read_file(path));
    EXPECT_EQ(all.front()->close(), -EBADF);
    EXPECT_EQ(all.front()->data(), nullptr);
}

TEST_P(regions, bad_input) {
    const std::string path = file(10000);
    write_file(folder_ / "empty", {});
    EXPECT_EQ(refusal(folder_ / "none", 0, 0).code, -ENOENT);
    EXPECT_EQ(refusal(folder_.path(), 0, 0).code, -EISDIR);
    EXPECT_EQ(refusal(path, 100, 0).code, -EINVAL);
    EXPECT_NE(refusal(path, 100, 0).message.find("multiple of 4096"), std::string::npos);
    EXPECT_EQ(refusal(path, 0, 10001).code, -EINVAL);
    EXPECT_EQ(refusal(path, 12288, 0).code, -EINVAL);
    EXPECT_EQ(refusal(path, 4096, UINT64_MAX).code, -EINVAL);
    EXPECT_EQ(refusal(folder_ / "empty", 0, 0).code, -EINVAL);
    EXPECT_NE(refusal(folder_ / "empty", 0, 0).message.find("empty"), std::string::npos);
    EXPECT_EQ(map_whole(*runtime_, path, protection::read)->prefer(0, 10000), 10000);
    EXPECT_EQ(map_whole(*runtime_, path, protection::read)->prefer(1, 10000), -EINVAL);
    EXPECT_EQ(map_whole(*runtime_, path, protection::read)->prefer(UINT64_MAX, 2), -EINVAL);
    std::vector<std::unique_ptr<file_region>> all;
    for (unsigned i = 0; i < region::most_devices; ++i)
        all.push_back(map_whole(*runtime_, path, protection::read));
    EXPECT_EQ(refusal(path, 0, 0).code, -EMFILE);
    all.pop_back();
    EXPECT_NE(map_whole(*runtime_, path, protection::read), nullptr);
    options reads = region_runtime(folder_, GetParam());
    reads.writable = false;
    const auto reader = make_runtime(reads);
    std::unique_ptr<file_region> out;
    EXPECT_EQ(map_region(*reader, path, 0, 0, protection::read_write, {}, out).code, -EROFS);
}

#if defined(PENSTOCK_WITH_CUDA)
// More than the device may have: the rest lies in host memory, at addresses that follow.
TEST(gpu_regions, one_range_over_device_and_host_memory) {
    if (!gpu_is_there()) GTEST_SKIP() << "no GPU in this machine";
    const temporary_folder folder;
    const std::uint64_t size = 37 << 20;
    write_file(folder / "f", pattern(3, size));
    const auto rt = make_runtime(region_runtime(folder, backend::gpu));
    const auto r = map_whole(*rt, folder / "f", protection::read_write,
                             {.outside_writers = false, .device_bytes = 16 << 20});
    EXPECT_EQ(r->traffic().bytes_on_device, 16u << 20);
    EXPECT_EQ(peek(*r, backend::gpu, 0, size), pattern(3, size));
    bytes expected = pattern(3, size);
    for (std::uint64_t at = 5; at < size; at += 100000) {
        expected[at] ^= 0xff;
        poke(*r, backend::gpu, at, {expected[at]});
    }
    EXPECT_EQ(r->release(), static_cast<std::int64_t>((size - 5 + 99999) / 100000));
    EXPECT_EQ(read_file(folder / "f"), expected);
}

// Parts change places between device and host memory, with what kernels changed in them; addresses
// stay.
TEST(gpu_regions, a_part_that_is_preferred_comes_to_the_device) {
    if (!gpu_is_there()) GTEST_SKIP() << "no GPU in this machine";
    const temporary_folder folder;
    constexpr std::uint64_t mib = 1 << 20, size = 200 * mib;
    bytes expected = pattern(3, size);
    write_file(folder / "f", expected);
    const auto rt = make_runtime(region_runtime(folder, backend::gpu));
    const auto r = map_whole(*rt, folder / "f", protection::read_write,
                             {.outside_writers = false, .device_bytes = 72 * mib});
    EXPECT_EQ(r->traffic().bytes_on_device, 72 * mib);  // 64 and 8, then 64 twice in host memory
    const auto change = [&](std::uint64_t at) {
        ++expected[at];
        poke(*r, backend::gpu, at, {expected[at]});
    };
    const void* const first = r->data();
    for (const std::uint64_t part : {72 * mib, 136 * mib, 0 * mib, 100 * mib}) {
        for (std::uint64_t at = 77; at < size; at += 9 * mib) change(at);
        EXPECT_EQ(r->prefer(part, 30 * mib), static_cast<std::int64_t>(30 * mib)) << part / mib;
        EXPECT_EQ(r->prefer(part, 30 * mib), static_cast<std::int64_t>(30 * mib)) << part / mib;
        for (std::uint64_t at = 78; at < size; at += 9 * mib) change(at);
        ASSERT_TRUE(peek(*r, backend::gpu, 0, size) == expected) << part / mib;
    }
    EXPECT_EQ(r->prefer(0, size), static_cast<std::int64_t>(72 * mib));
    EXPECT_EQ(r->prefer(60 * mib, 80 * mib), static_cast<std::int64_t>((8 + 64) * mib))
        << "one piece of 64 MiB is there at a time";
    EXPECT_EQ(r->data(), first);
    EXPECT_EQ(r->release(), 23);
    EXPECT_TRUE(read_file(folder / "f") == expected);
}

// What kernels keep changing comes to the device by itself; and a part that was preferred does not
// go for it.
TEST(gpu_regions, what_is_hot_comes_to_the_device) {
    if (!gpu_is_there()) GTEST_SKIP() << "no GPU in this machine";
    const temporary_folder folder;
    constexpr std::uint64_t mib = 1 << 20, size = 192 * mib;
    bytes expected = pattern(3, size);
    write_file(folder / "f", expected);
    const auto rt = make_runtime(region_runtime(folder, backend::gpu));
    const auto r =
        map_whole(*rt, folder / "f", protection::read_write,
                  {.outside_writers = false, .device_bytes = 64 * mib, .promote_hot = true});
    EXPECT_EQ(r->traffic().bytes_on_device, 64 * mib);
    const auto change_every_page = [&](std::uint64_t begin) {
        for (std::uint64_t at = begin; at < begin + 64 * mib; at += 4096) ++expected[at];
        poke(*r, backend::gpu, begin,
             {expected.begin() + static_cast<std::ptrdiff_t>(begin),
              expected.begin() + static_cast<std::ptrdiff_t>(begin + 64 * mib)});
        EXPECT_EQ(r->release(), static_cast<std::int64_t>(64 * mib / 4096));
        EXPECT_EQ(r->acquire(), 0);
        ASSERT_TRUE(peek(*r, backend::gpu, 0, size) == expected);
    };
    change_every_page(128 * mib);
    EXPECT_EQ(r->traffic().bytes_promoted, 64 * mib);
    change_every_page(128 * mib);
    EXPECT_EQ(r->traffic().bytes_promoted, 64 * mib) << "it is there";
    EXPECT_EQ(r->prefer(64 * mib, 64 * mib), static_cast<std::int64_t>(64 * mib));
    change_every_page(0);
    change_every_page(0);
    EXPECT_EQ(r->traffic().bytes_promoted, 64 * mib) << "what was preferred stays";
    EXPECT_EQ(r->close(), 0);
    EXPECT_TRUE(read_file(folder / "f") == expected);
}
#endif

// Where a region lies in one piece nothing is to be promoted.
TEST_P(regions, with_hot_parts_are_as_others) {
    bytes expected = pattern(9, 300'000);
    write_file(folder_ / "hot", expected);
    const auto r = map_whole(*runtime_, folder_ / "hot", protection::read_write,
                             {.outside_writers = false, .promote_hot = true});
    for (int round = 0; round < 3; ++round) {
        ++expected[70'000];
        poke(*r, GetParam(), 70'000, {expected[70'000]});
        EXPECT_EQ(r->release(), 1);
        EXPECT_EQ(r->acquire(), 0);
    }
    EXPECT_EQ(r->traffic().bytes_promoted, 0u);
    EXPECT_EQ(read_file(folder_ / "hot"), expected);
}

INSTANTIATE_TEST_SUITE_P(on, regions, testing::Values(backend::cpu, backend::gpu),
                         [](const auto& info) {
                             return std::string(info.param == backend::gpu ? "gpu" : "cpu");
                         });

}  // namespace penstock::test
