// Regions over a disk that fails: the error is told, nothing is lost, and the next call brings it.
#include <gtest/gtest.h>

#include <fcntl.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <random>

#include "fault/faulty_environment.hpp"
#include "region/support.hpp"
#include "rounds.hpp"

namespace penstock::test {

namespace {

struct faulty_region {
    temporary_folder folder;
    fault::faulty_environment env;
    std::unique_ptr<runtime> rt;
    std::vector<std::uint8_t> expected;
    std::mutex mutex;
    std::string log;  // guarded by mutex

    explicit faulty_region(std::uint64_t size = 6 << 20) : expected(pattern(9, size)) {
        write_file(folder / "f", expected);
        let_files_settle();
        runtime_hooks_with(env);
    }
    void runtime_hooks_with(host::environment& with) {
        host::runtime_hooks hooks;
        hooks.env = &with;
        options o = region_runtime(folder, backend::cpu);
        o.log = [this](const std::string& line) {
            const std::lock_guard hold(mutex);
            log += line + "\n";
        };
        rt = make_runtime(o, hooks);
    }
    bool has_said(const std::string& part) {
        const std::lock_guard hold(mutex);
        return log.find(part) != std::string::npos;
    }
    std::unique_ptr<file_region> map() {
        return map_whole(*rt, folder / "f", protection::read_write, {.outside_writers = false});
    }
    void change(file_region& r, std::uint64_t at) {
        set(r, at, static_cast<std::uint8_t>(expected[at] + 1));
    }
    void set(file_region& r, std::uint64_t at, std::uint8_t value) {
        poke(r, backend::cpu, at, {value});
        expected[at] = value;
    }
};

}  // namespace

TEST(region_faults, a_release_that_cannot_write_is_made_good_by_the_next) {
    faulty_region f;
    const auto r = f.map();
    for (const bool in_the_middle : {false, true}) {
        const std::vector<std::uint8_t> before = f.expected;
        for (std::uint64_t page = 0; page < 1500; page += 3) f.change(*r, page * 4096 + 1);
        f.env.set({.calls = fault::call_write,
                   .nth = in_the_middle ? 300u : 1u,
                   .for_ever = true,
                   .error = -ENOSPC});
        EXPECT_EQ(r->release(), -ENOSPC);
        EXPECT_EQ(r->release(), -ENOSPC);  // and again: still there, still told
        f.env.clear();
        f.change(*r, 4096 * 9 + 1);                       // once more, whether it is at home or not
        f.set(*r, 4096 * 12 + 1, before[4096 * 12 + 1]);  // back to what it was
        f.set(*r, 4096 * 1200 + 1, before[4096 * 1200 + 1]);
        EXPECT_GE(r->release(), 0);
        EXPECT_TRUE(read_file(f.folder / "f") == f.expected);
        EXPECT_EQ(r->release(), 0);
    }
}

TEST(region_faults, each_call_of_a_release_fails_once) {
    faulty_region f(300 * 4096);
    const auto r = f.map();
    constexpr std::uint32_t kinds =
        fault::call_write | fault::call_open_writing | fault::call_facts | fault::call_read;
    std::uint64_t tried = 0;
    for (std::uint64_t nth = 1;; ++nth, ++tried) {
        for (std::uint64_t i = 0; i < 40; ++i) f.change(*r, i * 4096 * 7 + nth % 100);
        for (std::uint64_t i = 0; i < 60; i += 3) f.change(*r, 1000 + i);
        f.env.set({.calls = kinds, .nth = nth, .error = -EIO});
        const std::int64_t code = r->release();
        const bool failed = f.env.failures() != 0;
        f.env.clear();
        if (!failed) break;
        EXPECT_EQ(code, -EIO) << "call " << nth;
        EXPECT_GE(r->release(), 0);
        ASSERT_TRUE(read_file(f.folder / "f") == f.expected) << "call " << nth;
    }
    EXPECT_GT(tried, 20u);
}

TEST(region_faults, an_acquire_that_cannot_read_is_made_good_by_the_next) {
    faulty_region f;
    const auto b = f.map();
    std::uint64_t last = 0;
    for (std::uint64_t nth = 1, failed = 1; failed != 0; ++nth) {
        auto a = f.map();
        for (std::uint64_t page = 0; page < 1500; page += 5) f.change(*a, page * 4096 + 3);
        EXPECT_EQ(a->release(), 300);
        a.reset();  // else its pages are copied, and none is read
        f.env.set({.calls = fault::call_read | fault::call_facts, .nth = nth, .error = -EIO});
        const std::int64_t code = b->acquire();
        failed = f.env.failures();
        f.env.clear();
        EXPECT_EQ(code, failed != 0 ? -EIO : 300) << "call " << nth;
        EXPECT_GE(b->acquire(), 0);
        ASSERT_TRUE(peek(*b, backend::cpu, 0, f.expected.size()) == f.expected) << "call " << nth;
        if (nth == 20) nth = 290;  // the last ones too
        last = nth;
    }
    EXPECT_GT(last, 290u);
}

TEST(region_faults, short_reads_and_writes) {
    faulty_region f;
    f.env.set({.longest_read = 1000, .longest_write = 700});
    const auto r = f.map();
    EXPECT_EQ(peek(*r, backend::cpu, 0, f.expected.size()), f.expected);
    std::vector<std::uint8_t> more = pattern(10, 100000);
    poke(*r, backend::cpu, 5000, more);
    std::copy(more.begin(), more.end(), f.expected.begin() + 5000);
    EXPECT_GT(r->release(), 0);
    EXPECT_TRUE(read_file(f.folder / "f") == f.expected);
}

// A part of what changed goes by a mapping, the rest by calls, and those fail: what is in the file
// and what is not is known to the byte.
TEST(region_faults, a_release_that_gets_only_so_far) {
    for (const bool others_write : {false, true}) {
        faulty_region f(3 << 20);
        const auto r = map_whole(*f.rt, f.folder / "f", protection::read_write,
                                 {.outside_writers = others_write});
        std::uint64_t most = 1;
        for (int round = 0; round < rounds(60, 6); ++round, most = most * 7 % 100003) {
            const std::vector<std::uint8_t> before = f.expected;
            // Pages with one run, pages with many, and whole ones that follow each other.
            for (std::uint64_t at = 100 + round; at < f.expected.size(); at += 50000)
                f.change(*r, at);
            for (std::uint64_t at = 200000; at < 230000; at += 100 + round) f.change(*r, at);
            std::vector<std::uint8_t> all = pattern(static_cast<std::uint64_t>(round), 40000);
            poke(*r, backend::cpu, 500000, all);
            std::copy(all.begin(), all.end(), f.expected.begin() + 500000);
            f.env.write_scattered_up_to(most);
            if (round % 3 != 0) {
                f.env.set({.calls = fault::call_write,
                           .nth = round % 3 == 1 ? 1u : 9u,
                           .for_ever = true,
                           .error = -ENOSPC});
                const std::int64_t code = r->release();
                EXPECT_TRUE(code == -ENOSPC || f.env.failures() == 0) << code;
                f.env.clear();
                f.set(
                    *r, 100 + round,
                    before[100 + round]);  // back to what it was, whether it is in the file or not
                f.set(*r, 200000, before[200000]);
                f.set(*r, 500000, before[500000]);
            }
            EXPECT_GE(r->release(), 0);
            ASSERT_TRUE(read_file(f.folder / "f") == f.expected)
                << "round " << round << ", up to " << most;
        }
        EXPECT_GT(f.env.scattered_bytes(), 1000u);
    }
}

namespace {

// Another program cuts the file before the n-th mapping by which a release writes, or after its
// n-th call that writes.
class cutting_environment final : public fault::faulty_environment {
public:
    explicit cutting_environment(std::string path) : path_(std::move(path)) {}

    void cut_before_mapping(std::uint64_t nth, std::uint64_t size_bytes) {
        write_scattered_up_to(UINT64_MAX);
        mappings_left_ = nth;
        size_bytes_ = size_bytes;
    }
    void cut_after_call(std::uint64_t nth, std::uint64_t size_bytes) {
        calls_left_ = nth;
        size_bytes_ = size_bytes;
    }
    std::int64_t write_scattered(int fd, const host::placed_piece* pieces,
                                 std::size_t count) override {
        // One at a time: what comes after the cut really does.
        const std::lock_guard hold(mutex_);
        cut_at_last(mappings_left_);
        return faulty_environment::write_scattered(fd, pieces, count);
    }
    std::int64_t write(int fd, const host::memory_piece* pieces, std::size_t count,
                       std::uint64_t offset) override {
        const std::lock_guard hold(mutex_);
        const std::int64_t done = faulty_environment::write(fd, pieces, count, offset);
        cut_at_last(calls_left_);
        return done;
    }

private:
    void cut_at_last(std::uint64_t& left) const {
        if (left != 0 && --left == 0) std::filesystem::resize_file(path_, size_bytes_);
    }

    const std::string path_;
    std::mutex mutex_;
    std::uint64_t mappings_left_ = 0, calls_left_ = 0, size_bytes_ = 0;  // guarded by mutex_
};

struct cut_region : faulty_region {
    const std::uint64_t size;
    cutting_environment cutting{folder / "f"};

    explicit cut_region(std::uint64_t of_size) : faulty_region(of_size), size(of_size) {
        runtime_hooks_with(cutting);
    }
    ~cut_region() { rt.reset(); }  // its threads use the environment
    [[nodiscard]] std::uint64_t size_now() const {
        return std::filesystem::file_size(folder / "f");
    }
    // In every page: each byte, some, or so many runs that the page is written whole.
    void change_all(file_region& r) {
        for (std::uint64_t page = 0; page < size / 4096; ++page) {
            const std::uint64_t step = page % 3 == 0 ? 1 : page % 3 == 1 ? 3000 : 100;
            for (std::uint64_t at = 0; at < 4096; at += step) change(r, page * 4096 + at);
        }
    }
    void release_under_a_cut(bool others_write, std::uint64_t end) {
        const auto r =
            map_whole(*rt, folder / "f", protection::read_write, {.outside_writers = others_write});
        change_all(*r);
        EXPECT_EQ(r->release(), -ESTALE);
        EXPECT_EQ(size_now(), end);
        EXPECT_EQ(r->release(), -ESTALE) << "the next call tells it again";
        EXPECT_EQ(r->acquire(), -ESTALE);
        EXPECT_EQ(size_now(), end);
        EXPECT_TRUE(peek(*r, backend::cpu, 0, size) == expected)
            << "the region has its bytes still";
    }
};

}  // namespace

// What another program has cut off while a release is under way stays cut off, and is told.
TEST(region_faults, a_cut_under_a_release_is_not_undone) {
    for (const bool others_write : {false, true})
        for (const std::uint64_t nth : {1, 2, 3})
            for (const std::uint64_t left : {0, 3000}) {
                const testing::ScopedTrace at(__FILE__, __LINE__, std::to_string(nth));
                cut_region f(6 << 20);
                const std::uint64_t end = left == 0 ? 0 : f.size - left;
                f.cutting.cut_before_mapping(nth, end);
                f.release_under_a_cut(others_write, end);
            }
}

// The same where the file system has no mappings. One batch: no thread is between its look at the
// end and its write when the cut comes, which is the part that is left.
TEST(region_faults, a_cut_between_two_writes_is_not_undone) {
    for (const bool others_write : {false, true})
        for (const std::uint64_t nth : {1, 2, 3})
            for (const std::uint64_t left : {0, 3000}) {
                const testing::ScopedTrace at(__FILE__, __LINE__, std::to_string(nth));
                cut_region f(32 * 4096);
                const std::uint64_t end = left == 0 ? 0 : f.size - left;
                f.cutting.cut_after_call(nth, end);
                f.release_under_a_cut(others_write, end);
            }
}

// What did not come to the file is still to come: when the file is as long again, or, as far as it
// goes, when a region of a part that is left asks for it.
TEST(region_faults, what_a_cut_kept_from_the_file_comes_later) {
    constexpr std::uint64_t end = 6000;
    cut_region f(6 << 20);
    const auto r = f.map();
    f.change_all(*r);
    f.cutting.cut_before_mapping(1, end);
    EXPECT_EQ(r->release(), -ESTALE);
    std::unique_ptr<file_region> first;
    ASSERT_TRUE(map_region(*f.rt, f.folder / "f", 0, 4096, protection::read, {}, first).ok());
    EXPECT_TRUE(peek(*first, backend::cpu, 0, 4096) ==
                std::vector<std::uint8_t>(f.expected.begin(), f.expected.begin() + 4096));
    EXPECT_EQ(f.size_now(), end);
    // The second page is cut through: its changes cannot all come, and so none do.
    std::unique_ptr<file_region> second;
    EXPECT_EQ(
        map_region(*f.rt, f.folder / "f", 4096, end - 4096, protection::read, {}, second).code,
        -ESTALE);
    EXPECT_EQ(f.size_now(), end);
    std::filesystem::resize_file(f.folder / "f", f.size);
    EXPECT_GT(r->release(), 0);
    const std::vector<std::uint8_t> there = read_file(f.folder / "f");
    ASSERT_EQ(there.size(), f.size);
    for (std::uint64_t page = 0; page < f.size / 4096; page += 3)  // those with each byte changed
        EXPECT_TRUE(std::equal(there.begin() + page * 4096, there.begin() + (page + 1) * 4096,
                               f.expected.begin() + page * 4096))
            << page;
}

// What was never written is not read; what is written there later is.
TEST(region_faults, holes_are_not_read) {
    const temporary_folder folder;
    const std::uint64_t size = 20 << 20;
    std::vector<std::uint8_t> expected(size, 0);
    write_file(folder / "f", {});
    std::filesystem::resize_file(folder / "f", size);
    for (const std::uint64_t at : {3u << 20, (7u << 20) + 100, (20u << 20) - 5000}) {
        const std::vector<std::uint8_t> some = pattern(at, 5000);
        patch_file(folder / "f", at, some);
        std::copy(some.begin(), some.end(), expected.begin() + at);
    }
    let_files_settle();
    fault::faulty_environment env;
    host::runtime_hooks hooks;
    hooks.env = &env;
    const auto rt = make_runtime(region_runtime(folder, backend::cpu), hooks);
    env.set({.calls = fault::call_read});
    const auto r = map_whole(*rt, folder / "f", protection::read_write, {.outside_writers = false});
    EXPECT_LE(env.calls(), 3 * 2u);
    EXPECT_GE(env.calls(), 3u);
    EXPECT_TRUE(peek(*r, backend::cpu, 0, size) == expected);
    const auto other =
        map_whole(*rt, folder / "f", protection::read_write, {.outside_writers = false});
    for (const std::uint64_t at : {std::uint64_t{10}, std::uint64_t{10} << 20, size - 1}) {
        expected[at] = 9;
        poke(*other, backend::cpu, at, {9});
    }
    EXPECT_EQ(other->release(), 3);
    EXPECT_EQ(r->acquire(), 3);
    EXPECT_TRUE(peek(*r, backend::cpu, 0, size) == expected);
    EXPECT_TRUE(read_file(folder / "f") == expected);
}

TEST(region_faults, what_a_mapping_cannot_write_is_left_to_calls) {
    const temporary_folder folder;
    write_file(folder / "f", std::vector<std::uint8_t>(10000, 1));
    host::environment& real = host::linux_environment();
    const int found = real.find(AT_FDCWD, folder / "f"), fd = real.open_found(found),
              writing = real.open_writing(fd);
    ASSERT_GE(writing, 0);
    const std::vector<std::byte> fresh(6000, std::byte{7});
    const host::placed_piece inside[] = {{fresh.data(), 5, 4094}, {fresh.data(), 6000, 4000}};
    EXPECT_EQ(real.write_scattered(writing, inside, 2), 6005);
    const host::placed_piece behind{fresh.data(), 2, 9999};
    EXPECT_LT(real.write_scattered(writing, &behind, 1), 0);
    EXPECT_LT(real.write_scattered(fd, inside, 2), 0) << "it is open for reading only";
    std::vector<std::uint8_t> expected(10000, 1);
    std::fill_n(expected.begin() + 4000, 6000, 7);
    EXPECT_EQ(read_file(folder / "f"), expected);
    for (const int handle : {writing, fd, found}) real.close(handle);
}

TEST(region_faults, a_mapping_takes_pieces_of_all_sizes_at_once) {
    const temporary_folder folder;
    std::mt19937_64 random(5);
    std::vector<std::uint8_t> expected(12 << 20, 1);
    write_file(folder / "f", expected);
    std::vector<std::byte> fresh(expected.size());
    for (std::byte& byte : fresh) byte = static_cast<std::byte>(random());
    host::environment& real = host::linux_environment();
    const int found = real.find(AT_FDCWD, folder / "f"), writing = real.open_writing(found);
    ASSERT_GE(writing, 0);
    std::vector<host::placed_piece> pieces;
    std::uint64_t all = 0;
    for (std::uint64_t at = 3; at < expected.size() - 200'000;) {
        // Thousands of a few bytes, then some that are larger than all that is gathered, and again.
        const bool is_small = pieces.size() % 2000 < 1990;
        const std::uint64_t bytes = is_small ? random() % 9 + 1 : random() % 200'000 + 1;
        pieces.push_back({fresh.data() + at, bytes, at});
        std::copy_n(reinterpret_cast<const std::uint8_t*>(fresh.data()) + at, bytes,
                    expected.begin() + static_cast<std::ptrdiff_t>(at));
        at += bytes + random() % 900;
        all += bytes;
    }
    EXPECT_GT(pieces.size(), 6000u);
    EXPECT_EQ(real.write_scattered(writing, pieces.data(), pieces.size()),
              static_cast<std::int64_t>(all));
    EXPECT_TRUE(read_file(folder / "f") == expected);
    for (const int handle : {writing, found}) real.close(handle);
}

// A server may refuse an open with the code that a captured stream has. The region's changes are
// lost then, and it leaves its place all the same: the next region that asks for its pages would
// find its memory gone.
TEST(region_faults, a_region_whose_file_is_busy_ends_and_leaves) {
    for (const bool is_closed : {false, true}) {
        faulty_region f(300 * 4096);
        auto a = f.map();
        const auto b = f.map();
        for (std::uint64_t page = 0; page < 300; page += 3)
            poke(*a, backend::cpu, page * 4096 + 7,
                 {static_cast<std::uint8_t>(f.expected[page * 4096 + 7] + 1)});
        f.env.set({.calls = fault::call_open_writing, .nth = 1, .for_ever = true, .error = -EBUSY});
        if (is_closed) {
            EXPECT_EQ(a->close(), -ETXTBSY);
            EXPECT_EQ(a->close(), -EBADF) << "it is closed all the same";
        }
        a.reset();
        f.env.clear();
        EXPECT_GE(b->acquire(), 0);
        EXPECT_TRUE(peek(*b, backend::cpu, 0, f.expected.size()) == f.expected);
        EXPECT_TRUE(read_file(f.folder / "f") == f.expected);
        f.change(*b, 7);
        EXPECT_EQ(b->release(), 1);
        EXPECT_TRUE(read_file(f.folder / "f") == f.expected);
        EXPECT_TRUE(f.has_said("close: ")) << f.log;
        EXPECT_TRUE(f.has_said("changes that did not come to the file are lost")) << f.log;
        EXPECT_FALSE(f.has_said("captured")) << f.log;
    }
}

// A busy file is no captured stream: the log has to name the right cause.
TEST(region_faults, a_busy_file_is_told_as_that) {
    faulty_region f(300 * 4096);
    const auto r = f.map();
    f.change(*r, 10);
    f.env.set({.calls = fault::call_open_writing, .nth = 1, .for_ever = true, .error = -EBUSY});
    EXPECT_EQ(r->release(), -ETXTBSY);
    f.env.clear();
    EXPECT_EQ(r->release(), 1);
    {
        auto other = f.map();
        f.change(*other, 20);
        EXPECT_EQ(other->release(), 1);
    }
    f.env.set({.calls = fault::call_read, .nth = 1, .for_ever = true, .error = -EBUSY});
    EXPECT_EQ(r->acquire(), -ETXTBSY);
    f.env.set({.calls = fault::call_facts, .nth = 1, .for_ever = true, .error = -EBUSY});
    EXPECT_EQ(r->acquire(), -ETXTBSY);
    f.env.set({.calls = fault::call_sync, .nth = 1, .for_ever = true, .error = -EBUSY});
    EXPECT_EQ(r->sync(), -ETXTBSY);
    f.env.clear();
    EXPECT_EQ(r->acquire(), 1);
    EXPECT_TRUE(peek(*r, backend::cpu, 0, f.expected.size()) == f.expected);
    const auto placed = map_whole(*f.rt, f.folder / "f", protection::read,
                                  {.placement = region_placement::in_place});
    std::unique_ptr<file_pieces> pieces;
    ASSERT_TRUE(map_pieces(*f.rt, f.folder / "f", {}, pieces).ok());
    for (const std::uint32_t kind : {fault::call_facts, fault::call_read}) {
        f.env.set({.calls = kind, .nth = 1, .for_ever = true, .error = -EBUSY});
        EXPECT_EQ(pieces->expect({0, 4096}), -ETXTBSY);
        if (kind == fault::call_facts) {
            EXPECT_EQ(placed->acquire(), -ETXTBSY);
        }
    }
    f.env.clear();
    EXPECT_FALSE(f.has_said("captured")) << f.log;
}

// A signal without SA_RESTART, as Python's, or a file system that says "try again".
TEST(region_faults, a_call_that_a_signal_ended_is_made_again) {
    for (const int error : {-EINTR, -EAGAIN})
        for (const bool others_write : {false, true})
            for (const std::uint32_t kind : {fault::call_write, fault::call_read}) {
                faulty_region f(300 * 4096);
                const auto r = map_whole(*f.rt, f.folder / "f", protection::read_write,
                                         {.outside_writers = others_write});
                // In one page many runs: where no other program writes it is read first.
                for (std::uint64_t at = 0; at < 4096; at += 100) f.change(*r, at);
                f.change(*r, 5000);
                f.env.set({.calls = kind, .nth = 1, .error = error});
                EXPECT_EQ(r->close(), 0);
                EXPECT_EQ(f.env.failures(), kind == fault::call_read && others_write ? 0u : 1u);
                f.env.clear();
                EXPECT_TRUE(read_file(f.folder / "f") == f.expected);
                f.env.set({.calls = fault::call_read, .nth = 1, .error = error});
                EXPECT_TRUE(peek(*f.map(), backend::cpu, 0, f.expected.size()) == f.expected);
                EXPECT_EQ(f.env.failures(), 1u);
            }
}

TEST(region_faults, a_disk_that_says_try_again_for_ever_ends_in_an_error) {
    faulty_region f(300 * 4096);
    const auto r = f.map();
    for (const int error : {-EINTR, -EAGAIN}) {
        f.change(*r, 10);
        f.env.set({.calls = fault::call_write, .nth = 1, .for_ever = true, .error = error});
        EXPECT_EQ(r->release(), error);
        f.env.clear();
        EXPECT_EQ(r->release(), 1);
    }
    EXPECT_TRUE(read_file(f.folder / "f") == f.expected);
}

// Some file systems have no fsync for a file. There is nothing to wait for, and no failure.
TEST(region_faults, sync_of_a_file_that_cannot_be_synced) {
    faulty_region f(300 * 4096);
    const auto r = f.map();
    f.env.set({.calls = fault::call_sync, .nth = 1, .for_ever = true, .error = -EINVAL});
    EXPECT_EQ(r->sync(), 0);
    f.env.set({.calls = fault::call_sync, .nth = 1, .error = -EINTR});
    EXPECT_EQ(r->sync(), 0);
    EXPECT_EQ(f.env.failures(), 1u);
    f.env.set({.calls = fault::call_sync, .nth = 1, .error = -EIO});
    EXPECT_EQ(r->sync(), -EIO);
    f.env.clear();
    EXPECT_EQ(f.log.find("EINVAL"), std::string::npos) << f.log;
}

TEST(region_faults, each_call_of_mapping_fails_once_and_nothing_is_left_open) {
    faulty_region f;
    const int handles = f.env.handles();
    for (std::uint64_t nth = 1;; ++nth) {
        f.env.set(
            {.calls = fault::every_call | fault::every_write_call, .nth = nth, .error = -EACCES});
        std::unique_ptr<file_region> out;
        const status s = map_region(*f.rt, f.folder / "f", 0, 0, protection::read_write, {}, out);
        const bool failed = f.env.failures() != 0;
        f.env.clear();
        EXPECT_EQ(s.code, failed ? -EACCES : 0) << "call " << nth;
        EXPECT_EQ(out == nullptr, failed) << "call " << nth;
        out.reset();
        EXPECT_EQ(f.env.handles(), handles) << "call " << nth;
        if (!failed) break;
    }
}

}  // namespace penstock::test
