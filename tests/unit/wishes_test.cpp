// Wishes: rows of a table that will be wanted soon, of which the host is told without a wait. The
// disk is held back, and the calls return all the same.
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <set>
#include <unistd.h>

#include "fault/faulty_environment.hpp"
#include "fault/plain_environment.hpp"
#include "penstock/launch.hpp"
#include "penstock/table.hpp"
#include "service/wishes.hpp"
#include "soon.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

class wishes : public testing::Test {
protected:
    static constexpr std::uint64_t row = 1000, stride = 8192, rows_of_file = 500;

    wishes() : bytes(pattern(5, rows_of_file * stride)) {
        write_file(path, bytes);
        o = small_options(folder);
        o.service_threads = 1;
        o.worker_threads = 2;
        o.window_bytes = 64 << 20;
        hooks.env = &env;
        layout = {.row_bytes = row, .stride_bytes = stride};
        layout.pieces.push_back({path, 0, rows_of_file});
        for (std::uint64_t i = 0; i < 100; ++i)
            some.push_back(static_cast<std::int32_t>(i * 37 % rows_of_file));
    }
    ~wishes() override { env.release(); }
    void make(const table_options& settings = {}) {
        o.writable = settings.writable;
        rt = make_runtime(o, hooks);
        const status s = table::make(*rt, layout, settings, rows);
        ASSERT_TRUE(s.ok()) << s.message;
    }
    // The operating system has nothing of the file in memory, or the test is skipped.
    void drop_from_memory() {
        const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        const bool dropped = ::fsync(file) == 0 &&
                             ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) == 0 &&
                             host::linux_environment().in_page_cache(file, 0, stride) == 0;
        ::close(file);
        if (!dropped) GTEST_SKIP() << "this file system keeps its pages, or does not tell";
    }
    [[nodiscard]] bool is_in_memory(std::int32_t number) const {
        const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        const int answer = host::linux_environment().in_page_cache(
            file, static_cast<std::uint64_t>(number) * stride, row);
        ::close(file);
        return answer == 1;
    }
    void expect_rows(const std::vector<std::int32_t>& numbers) {
        std::vector<std::uint8_t> got(numbers.size() * row, 0xa5);
        ASSERT_EQ(rows->gather(numbers.data(), numbers.size(), got.data()), 0);
        for (std::size_t i = 0; i < numbers.size(); ++i)
            ASSERT_EQ(std::memcmp(&got[i * row],
                                  &bytes[static_cast<std::size_t>(numbers[i]) * stride], row),
                      0)
                << numbers[i];
        const status s = rows->check();
        EXPECT_TRUE(s.ok()) << s.message;
    }
    [[nodiscard]] std::uint64_t asked() const { return rt->stats().wishes; }
    [[nodiscard]] int will_need(const std::vector<std::int32_t>& numbers) {
        return rows->will_need(numbers.data(), numbers.size());
    }

    const temporary_folder folder;
    const std::string path = folder / "data";
    const std::vector<std::uint8_t> bytes;
    fault::faulty_environment env;
    host::runtime_hooks hooks;
    options o;
    table_layout layout;
    std::vector<std::int32_t> some;
    std::unique_ptr<runtime> rt;
    std::unique_ptr<table> rows;
};

}  // namespace

TEST_F(wishes, the_call_returns_while_the_disk_stands_still_and_the_pages_come_later) {
    make();
    drop_from_memory();
    if (IsSkipped()) return;
    env.stall(fault::call_will_need | fault::call_read | fault::call_plain_read);
    ASSERT_EQ(will_need(some), 0);
    EXPECT_TRUE(soon([&] { return env.stalled() == 1; }));
    EXPECT_FALSE(is_in_memory(some[1]));
    EXPECT_EQ(rt->stats().misses, 0u) << "nothing enters the cache";
    env.release();
    for (const std::int32_t number : some)
        EXPECT_TRUE(soon([&] { return is_in_memory(number); })) << number;
    EXPECT_FALSE(is_in_memory(2)) << "a row for which no caller wished";
    expect_rows(some);
}

TEST_F(wishes, numbers_that_repeat_cost_one_read) {
    make();
    drop_from_memory();
    if (IsSkipped()) return;
    std::vector<std::int32_t> numbers;
    for (int i = 0; i < 40; ++i) numbers.insert(numbers.end(), some.begin(), some.end());
    ASSERT_EQ(will_need(numbers), 0);
    EXPECT_TRUE(soon([&] { return asked() == some.size(); })) << asked();
    ASSERT_EQ(will_need(numbers), 0);
    ASSERT_TRUE(soon([&] { return is_in_memory(some.back()); }));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(asked(), some.size()) << "what is in memory is not asked for again";
    EXPECT_EQ(rt->stats().wishes_dropped, 0u);
}

// The service thread stands in a call, so the ring fills up.
TEST_F(wishes, a_full_ring_drops_wishes_and_loses_no_row) {
    hooks.ring_slots = 4;
    make();
    env.say_cached(0);
    env.stall(fault::call_will_need);
    std::vector<std::int32_t> all;
    for (std::uint64_t i = 0; i < rows_of_file; ++i) all.push_back(static_cast<std::int32_t>(i));
    for (int round = 0; round < 20; ++round) ASSERT_EQ(will_need(all), 0);
    ASSERT_TRUE(soon([&] { return env.stalled() == 1; }));
    for (int round = 0; round < 20; ++round) ASSERT_EQ(will_need(all), 0);
    const std::uint64_t posted = rt->stats().requests;
    EXPECT_LT(posted, 40 * all.size() / 32) << "none was dropped";
    env.release();
    expect_rows(all);
    EXPECT_TRUE(soon([&] { return asked() > 0; }));
    ASSERT_EQ(will_need(all), 0);
    EXPECT_TRUE(soon([&] { return rt->stats().requests > posted; })) << "slots come back";
}

TEST_F(wishes, numbers_of_no_row_are_passed_over) {
    make();
    env.say_cached(0);
    const std::vector<std::int32_t> numbers = {7, -5, 1 << 30, -1};
    EXPECT_EQ(rows->will_need(numbers.data(), numbers.size(), {.padding = -1}), 0);
    EXPECT_TRUE(rows->check().ok());
    EXPECT_TRUE(soon([&] { return asked() == 1; }));
    EXPECT_EQ(rows->will_need(numbers.data(), 0), 0);
    EXPECT_EQ(rows->will_need(static_cast<const std::int32_t*>(nullptr), 1), -EINVAL);
}

TEST_F(wishes, rows_that_are_in_the_cache_ask_for_nothing) {
    make();
    ASSERT_EQ(rows->prefetch(some.data(), 20), 0);
    const std::uint64_t requests = rt->stats().requests;
    ASSERT_EQ(rows->will_need(some.data(), 20), 0);
    EXPECT_EQ(rt->stats().requests, requests);
}

TEST_F(wishes, a_failure_of_the_hint_is_no_error) {
    make();
    env.say_cached(0);
    env.set({.calls = fault::call_will_need, .nth = 1, .for_ever = true, .error = -EIO});
    ASSERT_EQ(will_need(some), 0);
    EXPECT_TRUE(soon([&] { return asked() == some.size(); }));
    expect_rows(some);
    EXPECT_TRUE(rt->health().ok());
}

TEST_F(wishes, reads_past_the_page_cache_are_not_helped) {
    o.direct_io = direct_mode::on;
    make();
    env.say_cached(0);
    ASSERT_EQ(will_need(some), 0);
    expect_rows(some);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(asked(), 0u);
}

TEST_F(wishes, an_interrupt_ends_them) {
    make();
    rt->interrupt();
    const std::uint64_t requests = rt->stats().requests;
    EXPECT_EQ(will_need(some), 0);
    EXPECT_EQ(rt->stats().requests, requests);
    rt->resume();
}

TEST_F(wishes, a_tier_is_filled_while_no_caller_waits) {
    o.tier_bytes = 1024 * page;
    make();
    env.stall(fault::call_read | fault::call_direct_read);
    std::vector<std::int32_t> numbers;
    for (int i = 0; i < 40; ++i) numbers.insert(numbers.end(), some.begin(), some.end());
    ASSERT_EQ(will_need(numbers), 0);
    const statistics held = rt->stats();
    EXPECT_EQ(held.read_ahead_pages, some.size()) << "a page for each row, each once";
    EXPECT_EQ(held.tier_loads, 0u);
    env.release();
    // Through the cache, as kernels read them: the host's own gather may go past it.
    std::vector<std::uint8_t> got(row);
    for (const std::int32_t number : some) {
        ASSERT_EQ(read_row(lane{}, rt->ref(), rows->ref(), static_cast<std::uint64_t>(number),
                           got.data()),
                  static_cast<std::int64_t>(row));
        ASSERT_EQ(std::memcmp(got.data(), &bytes[static_cast<std::size_t>(number) * stride], row),
                  0);
    }
    const statistics s = rt->stats();
    EXPECT_EQ(s.tier_loads, some.size());
    EXPECT_EQ(s.requests, held.requests) << "no row asked again";
    EXPECT_EQ(s.file_reads, some.size());
    EXPECT_EQ(s.wishes, 0u);
}

TEST_F(wishes, a_list_takes_no_more_than_half_of_the_tier) {
    o.tier_bytes = 64 * page;
    make();
    std::vector<std::int32_t> all;
    for (std::uint64_t i = 0; i < rows_of_file; ++i) all.push_back(static_cast<std::int32_t>(i));
    ASSERT_EQ(will_need(all), 0);
    EXPECT_GE(rt->stats().read_ahead_pages, 16u);
    EXPECT_LE(rt->stats().read_ahead_pages, 48u);
    expect_rows(all);
}

// A fill names its page by its page word.
TEST_F(wishes, pages_without_a_word_are_wished_for_beside_a_tier) {
    o.tier_bytes = 1 << 20;
    o.page_bytes = 512;
    o.table_bytes = 1 << 16;
    make();
    env.say_cached(0);
    ASSERT_NE(rows->ref().view.only.file.two_level, false);
    ASSERT_EQ(will_need(some), 0);
    EXPECT_EQ(rt->stats().read_ahead_pages, 0u);
    EXPECT_TRUE(soon([&] { return asked() == some.size(); })) << asked();
    expect_rows(some);
}

TEST_F(wishes, rows_of_a_written_file_are_wished_for_beside_a_tier) {
    o.tier_bytes = 1024 * page;
    make({.writable = true});
    env.say_cached(0);
    ASSERT_EQ(will_need(some), 0);
    EXPECT_EQ(rt->stats().read_ahead_pages, 0u);
    EXPECT_TRUE(soon([&] { return asked() == some.size(); })) << asked();
    expect_rows(some);
}

namespace {

class wish_sets : public testing::Test {
protected:
    struct call {
        std::uint32_t slot;
        std::uint64_t offset, bytes;
        bool operator==(const call&) const = default;
    };
    // Answers for descriptors that are slots of files.
    class paper final : public fault::no_files {
    public:
        std::vector<call> calls;
        std::set<std::uint64_t> cached;  // begins of ranges
        int in_page_cache(int, std::uint64_t offset, std::uint64_t) override {
            return cached.count(offset) != 0 ? 1 : 0;
        }
        int will_need(int fd, std::uint64_t offset, std::uint64_t bytes) override {
            calls.push_back({static_cast<std::uint32_t>(fd), offset, bytes});
            return 0;
        }
    };

    std::uint32_t ask(host::wish_set& set, std::uint32_t calls = 1000) {
        return set.ask(calls, [&](std::uint32_t slot, std::uint32_t generation,
                                  std::shared_ptr<host::shared_handle>& file, std::uint64_t& size) {
            if (generation != 1) return -EBADF;
            file = std::make_shared<host::shared_handle>(disk, static_cast<int>(slot));
            size = file_bytes;
            return 0;
        });
    }

    static constexpr std::uint64_t kib = 1024, file_bytes = 10'000 * kib + 100;
    paper disk;
};

}  // namespace

TEST_F(wish_sets, neighbours_and_repeats_go_together) {
    host::wish_set set(disk);
    for (const std::uint64_t at : {8, 4, 100, 4, 8, 12})
        EXPECT_TRUE(set.add({3, 1, at * kib, 4 * kib}));
    EXPECT_TRUE(set.add({3, 1, 101 * kib, 512})) << "in the page of another";
    EXPECT_TRUE(set.add({4, 1, 16 * kib, 4 * kib}));
    EXPECT_EQ(ask(set), 3u);
    const std::vector<call> expected = {
        {3, 4 * kib, 12 * kib}, {3, 100 * kib, 4 * kib}, {4, 16 * kib, 4 * kib}};
    EXPECT_EQ(disk.calls, expected);
    EXPECT_TRUE(set.empty());
    EXPECT_EQ(ask(set), 0u);
}

TEST_F(wish_sets, a_long_range_goes_in_pieces) {
    host::wish_set set(disk);
    EXPECT_TRUE(set.add({3, 1, 0, 300 * kib}));
    EXPECT_EQ(ask(set, 1), 1u);
    EXPECT_FALSE(set.empty());
    EXPECT_EQ(ask(set), 2u);
    const std::vector<call> expected = {
        {3, 0, 128 * kib}, {3, 128 * kib, 128 * kib}, {3, 256 * kib, 44 * kib}};
    EXPECT_EQ(disk.calls, expected);
}

TEST_F(wish_sets, of_two_from_one_place_the_longer_counts) {
    host::wish_set set(disk);
    EXPECT_TRUE(set.add({3, 1, 0, 8 * kib}));
    EXPECT_TRUE(set.add({3, 1, 0, 4 * kib}));
    // What is left of a long one begins where another is longer.
    EXPECT_TRUE(set.add({4, 1, 0, 132 * kib}));
    EXPECT_TRUE(set.add({4, 1, 128 * kib, 64 * kib}));
    EXPECT_EQ(ask(set), 3u);
    const std::vector<call> expected = {
        {3, 0, 8 * kib}, {4, 0, 128 * kib}, {4, 128 * kib, 64 * kib}};
    EXPECT_EQ(disk.calls, expected);
}

TEST_F(wish_sets, no_part_of_an_open_file_and_no_call) {
    host::wish_set set(disk);
    disk.cached.insert(8 * kib);
    EXPECT_TRUE(set.add({3, 2, 0, 4 * kib})) << "of another life of the slot";
    EXPECT_TRUE(set.add({3, 1, 10'004 * kib, 4 * kib})) << "behind the end";
    EXPECT_TRUE(set.add({3, 1, 8 * kib, 4 * kib})) << "in memory";
    EXPECT_TRUE(set.add({3, 1, 10'000 * kib, 64 * kib})) << "over the end";
    EXPECT_EQ(ask(set), 1u);
    const std::vector<call> expected = {{3, 10'000 * kib, 100}};
    EXPECT_EQ(disk.calls, expected);
    EXPECT_TRUE(set.empty());
}

TEST_F(wish_sets, a_full_set_drops_what_is_new) {
    host::wish_set set(disk, 2);
    EXPECT_TRUE(set.add({3, 1, 0, 4 * kib}));
    EXPECT_TRUE(set.add({3, 1, 40 * kib, 4 * kib}));
    EXPECT_FALSE(set.add({3, 1, 80 * kib, 4 * kib}));
    EXPECT_TRUE(set.add({3, 1, 40 * kib, 8 * kib})) << "a range that it has";
    EXPECT_EQ(ask(set), 2u);
    EXPECT_EQ(disk.calls.back(), (call{3, 40 * kib, 8 * kib}));
    EXPECT_TRUE(set.add({3, 1, 80 * kib, 4 * kib})) << "there is room again";
}

// Wishes that keep coming for the begin of a file do not hold up those for its end.
TEST_F(wish_sets, the_order_goes_round) {
    host::wish_set set(disk);
    EXPECT_TRUE(set.add({3, 1, 0, 4 * kib}));
    EXPECT_TRUE(set.add({3, 1, 80 * kib, 4 * kib}));
    EXPECT_EQ(ask(set, 1), 1u);
    EXPECT_TRUE(set.add({3, 1, 0, 4 * kib}));
    EXPECT_EQ(ask(set, 1), 1u);
    EXPECT_EQ(disk.calls.back(), (call{3, 80 * kib, 4 * kib}));
    EXPECT_EQ(ask(set, 1), 1u);
    EXPECT_EQ(disk.calls.back(), (call{3, 0, 4 * kib}));
}

}  // namespace penstock::test
