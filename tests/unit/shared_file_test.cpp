// Files that every device of a runtime has open, and launches over all devices.
#include <array>
#include <atomic>
#include <mutex>
#include <set>

#include "unit/parts_in_memory.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

options three_caches(const temporary_folder& folder) {
    options o = small_options(folder, 3);
    o.worker_threads = 6;
    return o;
}

// How often each number ran, and on which devices.
struct ran {
    explicit ran(std::uint64_t groups) : times(groups) {}
    std::vector<std::atomic<int>> times;
    std::array<std::atomic<std::uint64_t>, 8> on{};

    void note(const runtime_ref& fs, std::uint64_t i) {
        ++times[i];
        ++on[fs.device];
    }
    [[nodiscard]] bool each_once() const {
        for (const auto& count : times)
            if (count != 1) return false;
        return true;
    }
};

}  // namespace

TEST(shared_file, every_device_reads_by_its_own_descriptor) {
    const temporary_folder folder;
    const auto bytes = pattern(1, 9 * page);
    write_file(folder / "data", bytes);
    write_file(folder / "other", pattern(2, page));
    const auto rt = make_runtime(three_caches(folder));
    // So that the descriptors differ.
    const int other = open(lane{}, rt->ref(1), "other");
    const shared_file file = rt->open_everywhere(folder / "data");
    ASSERT_EQ(file.code(), 0) << error_text(file.code());
    EXPECT_NE(file.of(rt->ref(0)), file.of(rt->ref(1)));
    for (std::uint32_t i = 0; i < 3; ++i) {
        std::vector<std::uint8_t> got(bytes.size());
        EXPECT_EQ(read(lane{}, rt->ref(i), file.of(rt->ref(i)), got.data(),
                       static_cast<std::int64_t>(got.size()), 0),
                  static_cast<std::int64_t>(got.size()));
        EXPECT_EQ(got, bytes) << i;
    }
    EXPECT_EQ(shared_file{}.code(), -EBADF) << "it was opened for no device";
    static_assert(std::is_trivially_copyable_v<shared_file>);
    EXPECT_EQ(file.of(3u), -EBADF);
    EXPECT_EQ(file.of(99u), -EBADF);
    EXPECT_EQ(rt->close(file), 0);
    EXPECT_EQ(rt->close(file), -EBADF);
    EXPECT_EQ(close(lane{}, rt->ref(1), other), 0);
}

TEST(shared_file, is_open_on_all_or_on_none) {
    const temporary_folder folder;
    write_file(folder / "data", pattern(3, page));
    options o = three_caches(folder);
    o.max_files = 16;
    const auto rt = make_runtime(o);
    EXPECT_EQ(rt->open_everywhere(folder / "absent").code(), -ENOENT);
    EXPECT_EQ(rt->open_everywhere(folder / "data", open_write).code(), -EROFS);
    EXPECT_EQ(rt->open_everywhere(folder / "data", 4).code(), -EINVAL);
    EXPECT_EQ(rt->close(rt->open_everywhere(folder / "absent")), -EBADF);
    // The last device has no slot left.
    std::vector<int> held;
    for (int i = 0; i < 16; ++i) {
        const std::string name = "full-" + std::to_string(i);
        write_file(folder / name, pattern(4, 10));
        held.push_back(open(lane{}, rt->ref(2), name.c_str()));
        ASSERT_GE(held.back(), 0);
    }
    const shared_file file = rt->open_everywhere(folder / "data");
    EXPECT_EQ(file.code(), -ENFILE);
    for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(file.of(i), -ENFILE);
    EXPECT_EQ(rt->stats(0).opens, 1u);
    for (const int fd : held) EXPECT_EQ(close(lane{}, rt->ref(2), fd), 0);
    const shared_file again = rt->open_everywhere(folder / "data");
    EXPECT_EQ(again.code(), 0);
    EXPECT_EQ(rt->close(again), 0);
}

TEST(shared_file, written_by_all_has_the_bytes_of_all) {
    const temporary_folder folder;
    options o = three_caches(folder);
    o.writable = true;
    const auto rt = make_runtime(o);
    write_file(folder / "out", pattern(5, 100));  // is cut, by the first device alone
    const shared_file file =
        rt->open_everywhere(folder / "out", open_write | open_create | open_truncate);
    ASSERT_EQ(file.code(), 0) << error_text(file.code());
    // Three devices write between each other, also into the same pages.
    constexpr std::uint64_t pieces = 3000, piece = 100;
    const auto bytes = pattern(6, pieces * piece);
    std::atomic<int> wrong{0};
    EXPECT_EQ(launch(*rt, pieces,
                     [&](const auto& g, const runtime_ref& fs, std::uint64_t i) {
                         if (write(g, fs, file.of(fs), &bytes[i * piece], piece,
                                   static_cast<std::int64_t>(i * piece)) !=
                             static_cast<std::int64_t>(piece))
                             ++wrong;
                     }),
              0);
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(rt->close(file), 0);
    EXPECT_EQ(bytes_on_disk(folder / "out"), bytes);
}

TEST(shared_file, exclusive_means_new_for_the_runtime) {
    const temporary_folder folder;
    options o = three_caches(folder);
    o.writable = true;
    const auto rt = make_runtime(o);
    const int flags = open_write | open_create | open_exclusive;
    const shared_file file = rt->open_everywhere(folder / "new", flags);
    EXPECT_EQ(file.code(), 0) << error_text(file.code());
    EXPECT_EQ(rt->open_everywhere(folder / "new", flags).code(), -EEXIST);
    EXPECT_EQ(rt->close(file), 0);
}

TEST(shared_file, windows_are_opened_for_every_device) {
    const temporary_folder folder;
    const std::uint64_t bytes = 5 * engine::window_chunk_bytes / 2;
    write_file(folder / "data", pattern(7, bytes));
    parts_in_memory in_memory;
    in_memory.bring_in(folder / "data");
    host::runtime_hooks hooks;
    hooks.windows_on_cpu = true;
    const auto rt = make_runtime(three_caches(folder), hooks);
    const shared_file file = rt->open_everywhere(folder / "data");
    ASSERT_EQ(file.code(), 0);
    EXPECT_EQ(rt->open_windows(file), static_cast<std::int64_t>(bytes));
    std::vector<std::uint8_t> got(bytes);
    for (std::uint32_t i = 0; i < 3; ++i) {
        EXPECT_EQ(rt->state(i).windows->open_files(), 1u);
        EXPECT_EQ(
            read(lane{}, rt->ref(i), file.of(i), got.data(), static_cast<std::int64_t>(bytes), 0),
            static_cast<std::int64_t>(bytes));
        EXPECT_EQ(got, pattern(7, bytes));
        EXPECT_EQ(rt->stats(i).file_reads, 0u) << "no request";
    }
    rt->close_windows();
    for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(rt->state(i).windows->open_files(), 0u);
    EXPECT_EQ(rt->close(file), 0);
    EXPECT_EQ(rt->open_windows(folder / "da*"), static_cast<std::int64_t>(bytes));
    for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(rt->state(i).windows->open_files(), 1u);
    rt->close_windows();
}

TEST(launch_over_devices, every_number_runs_once) {
    const temporary_folder folder;
    const auto rt = make_runtime(three_caches(folder));
    for (const std::uint64_t groups : {0, 1, 2, 3, 7, 1000, 100001}) {
        ran noted(groups);
        EXPECT_EQ(
            launch(*rt, groups,
                   [&](const auto&, const runtime_ref& fs, std::uint64_t i) { noted.note(fs, i); }),
            0);
        EXPECT_TRUE(noted.each_once()) << groups;
    }
}

TEST(launch_over_devices, a_device_takes_over_what_others_leave) {
    const temporary_folder folder;
    const auto rt = make_runtime(three_caches(folder));
    // The first group of device 0 waits until all other numbers are done, so its workers but one
    // and those of the other devices have to do the rest of its share.
    constexpr std::uint64_t groups = 3000;
    ran noted(groups);
    std::atomic<std::uint64_t> done{0};
    EXPECT_EQ(launch(*rt, groups,
                     [&](const auto&, const runtime_ref& fs, std::uint64_t i) {
                         noted.note(fs, i);
                         while (fs.device == 0 && done < groups - 2) std::this_thread::yield();
                         ++done;
                     }),
              0);
    EXPECT_TRUE(noted.each_once());
    EXPECT_LE(noted.on[0], 2u) << "its two workers waited";
    EXPECT_EQ(noted.on[0] + noted.on[1] + noted.on[2], groups);
}

TEST(launch_over_devices, one_worker_does_the_shares_of_all) {
    const temporary_folder folder;
    options o = three_caches(folder);
    o.worker_threads = 1;
    const auto rt = make_runtime(o);
    ran noted(100);
    EXPECT_EQ(
        launch(*rt, 100,
               [&](const auto&, const runtime_ref& fs, std::uint64_t i) { noted.note(fs, i); }),
        0);
    EXPECT_TRUE(noted.each_once());
    EXPECT_EQ(noted.on[0], 100u);
}

TEST(launch_over_devices, launch_on_uses_one) {
    const temporary_folder folder;
    write_file(folder / "data", pattern(8, 50 * page));
    const auto rt = make_runtime(three_caches(folder));
    ran noted(50);
    EXPECT_EQ(launch_on(*rt, 1, 50,
                        [&](const auto& g, const runtime_ref& fs, std::uint64_t i) {
                            noted.note(fs, i);
                            std::uint8_t byte = 0;
                            const int fd = open(g, fs, "data");
                            read(g, fs, fd, &byte, 1, static_cast<std::int64_t>(i * page));
                            close(g, fs, fd);
                        }),
              0);
    EXPECT_TRUE(noted.each_once());
    EXPECT_EQ(noted.on[1], 50u);
    EXPECT_EQ(rt->stats(1).misses, 50u);
    EXPECT_EQ(rt->stats().misses, 50u);
    EXPECT_EQ(launch_on(*rt, 3, 1, [](const auto&, const runtime_ref&, std::uint64_t) {}), -EINVAL);
}

// How the parts of a launch over GPUs come about.
TEST(launch_over_devices, parts_get_smaller_and_cover_all) {
    constexpr std::uint64_t groups = 100003, least = 500;
    detail::number_shares numbers(groups, 3);
    std::vector<int> times(groups);
    std::uint64_t begin = 0, end = 0, taken = 0, last = groups;
    for (std::uint64_t parts = 0; numbers.take(1, least, true, begin, end); ++parts) {
        ASSERT_LT(parts, 60u);
        ASSERT_LT(begin, end);
        ASSERT_LE(end, groups);
        for (std::uint64_t i = begin; i < end; ++i) ++times[i];
        if (taken == 0) {
            EXPECT_EQ(begin, groups / 3) << "its own share comes first";
        }
        if (taken < groups / 3) {
            EXPECT_LE(end - begin, last);
        }
        if (taken == groups / 3) {
            EXPECT_EQ(end, groups) << "then the end of the largest share of another";
        }
        last = end - begin;
        taken += end - begin;
    }
    EXPECT_EQ(taken, groups);
    EXPECT_EQ(std::count(times.begin(), times.end(), 1), static_cast<std::int64_t>(groups));
    EXPECT_FALSE(numbers.take(0, least, true, begin, end));
}

TEST(launch_over_devices, parts_come_from_begun_shares_first) {
    detail::number_shares numbers(300, 3);
    std::uint64_t begin = 0, end = 0;
    ASSERT_TRUE(numbers.take(0, 100, false, begin, end));
    EXPECT_FALSE(numbers.take(0, 10, false, begin, end)) << "no other device has begun";
    ASSERT_TRUE(numbers.take(2, 10, false, begin, end));
    EXPECT_EQ(begin, 200u);
    EXPECT_EQ(end, 250u);
    ASSERT_TRUE(numbers.take(0, 10, false, begin, end));
    EXPECT_EQ(begin, 275u) << "the end of the share that was begun, though another is larger";
    EXPECT_EQ(end, 300u);
    ASSERT_TRUE(numbers.take(0, 10, true, begin, end));
    EXPECT_EQ(begin, 150u);
    EXPECT_EQ(end, 200u);
}

namespace {

constexpr std::uint64_t row = 100, rows = 500;

table_layout rows_of(const std::string& path) {
    table_layout layout;
    layout.row_bytes = row;
    layout.pieces.push_back({path, 0, rows});
    return layout;
}

}  // namespace

TEST(table_on_devices, each_gathers_through_its_own_cache) {
    const temporary_folder folder;
    const auto bytes = pattern(9, rows * row);
    write_file(folder / "rows", bytes);
    options o = three_caches(folder);
    o.window_bytes = 0;
    const auto rt = make_runtime(o);
    std::unique_ptr<table> made;
    ASSERT_TRUE(table::make(*rt, rows_of(folder / "rows"), {}, made).ok());
    const std::vector<std::uint32_t> numbers = {499, 0, 7, 250, 7};
    for (std::uint32_t i = 0; i < 3; ++i) {
        std::vector<std::uint8_t> out(numbers.size() * row);
        EXPECT_EQ(made->prefetch(numbers.data(), numbers.size(), {.device = i}), 0);
        const std::uint64_t misses = rt->stats(i).misses;
        EXPECT_GT(misses, 0u) << i;
        EXPECT_EQ(made->gather(numbers.data(), numbers.size(), out.data(), {.device = i}), 0);
        EXPECT_EQ(rt->stats(i).misses, misses) << "its cache has them";
        for (std::size_t k = 0; k < numbers.size(); ++k)
            EXPECT_EQ(std::memcmp(&out[k * row], &bytes[numbers[k] * row], row), 0) << k;
        if (i < 2) {
            EXPECT_EQ(rt->stats(i + 1).misses, 0u);
        }
        // As a kernel of that device does it.
        EXPECT_EQ(
            gather(lane{}, rt->ref(i), made->ref(i), numbers.data(), numbers.size(), out.data()),
            0u);
        EXPECT_EQ(std::memcmp(&out[3 * row], &bytes[250 * row], row), 0);
    }
    std::vector<std::uint8_t> out(row);
    EXPECT_EQ(made->gather(numbers.data(), 1, out.data(), {.device = 3}), -EINVAL);
    EXPECT_EQ(made->gather(numbers.data(), 1, out.data()), 0) << "cpu: device 0";
    EXPECT_EQ(rt->stats(0).hits, rt->stats(1).hits + 1);
}

TEST(table_on_devices, each_notes_its_own_error) {
    const temporary_folder folder;
    write_file(folder / "rows", pattern(10, rows * row));
    const auto rt = make_runtime(three_caches(folder));
    std::unique_ptr<table> made;
    ASSERT_TRUE(table::make(*rt, rows_of(folder / "rows"), {}, made).ok());
    const std::uint64_t wrong = rows, right = 3;
    std::vector<std::uint8_t> out(row);
    EXPECT_EQ(made->gather(&wrong, 1, out.data(), {.device = 1}), 0);
    EXPECT_EQ(made->gather(&right, 1, out.data(), {.device = 1}), -ERANGE);
    EXPECT_EQ(made->gather(&right, 1, out.data(), {.device = 2}), 0) << "the others go on";
    const status noted = made->check();
    EXPECT_EQ(noted.code, -ERANGE) << noted.message;
    EXPECT_TRUE(made->check().ok());
    EXPECT_EQ(made->gather(&right, 1, out.data(), {.device = 1}), 0);
}

TEST(table_on_devices, rows_scattered_by_each_are_in_the_file) {
    const temporary_folder folder;
    auto bytes = pattern(11, rows * row);
    write_file(folder / "rows", bytes);
    options o = three_caches(folder);
    o.writable = true;
    const auto rt = make_runtime(o);
    std::unique_ptr<table> made;
    ASSERT_TRUE(table::make(*rt, rows_of(folder / "rows"), {.writable = true}, made).ok());
    // Rows of one page, from three devices.
    for (std::uint32_t i = 0; i < 3; ++i) {
        const std::uint64_t number = 4 + i;
        const auto fresh = pattern(20 + i, row);
        std::copy(fresh.begin(), fresh.end(), bytes.begin() + static_cast<long>(number * row));
        EXPECT_EQ(made->scatter(&number, 1, fresh.data(), {.device = i}), 0);
    }
    EXPECT_EQ(made->sync(), 0);
    EXPECT_EQ(bytes_on_disk(folder / "rows"), bytes);
}

TEST(table_on_devices, windows_are_opened_for_each) {
    const temporary_folder folder;
    const auto bytes = pattern(12, rows * row);
    write_file(folder / "rows", bytes);
    parts_in_memory in_memory;
    in_memory.bring_in(folder / "rows");
    const auto rt = make_runtime(three_caches(folder));
    std::unique_ptr<table> made;
    ASSERT_TRUE(table::make(*rt, rows_of(folder / "rows"), {}, made).ok());
    const std::int64_t inside = made->open_windows();
    if (inside == -EOPNOTSUPP) GTEST_SKIP() << "no leases on this file system";
    EXPECT_EQ(inside, static_cast<std::int64_t>(rows * row));
    for (std::uint32_t i = 0; i < 3; ++i) {
        const std::uint64_t number = 77;
        std::vector<std::uint8_t> out(row);
        EXPECT_EQ(made->gather(&number, 1, out.data(), {.device = i}), 0);
        EXPECT_EQ(std::memcmp(out.data(), &bytes[77 * row], row), 0);
        EXPECT_GT(rt->stats(i).through_reads, 0u) << i;
    }
}

TEST(run_on_devices, the_first_error_of_a_device_is_the_result) {
    const temporary_folder folder;
    const auto rt = make_runtime(three_caches(folder));
    std::atomic<std::uint32_t> seen{0};
    EXPECT_EQ(rt->run_on_devices([&](std::uint32_t device) {
        seen |= 1u << device;
        return device == 0 ? 0 : -static_cast<int>(device);
    }),
              -1);
    EXPECT_EQ(seen, 7u);
}

}  // namespace penstock::test
