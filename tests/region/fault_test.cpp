// Regions over a disk that fails: the error is told, nothing is lost, and the next call brings it.
#include <gtest/gtest.h>

#include "fault/faulty_environment.hpp"
#include "region/support.hpp"

namespace penstock::test {

namespace {

struct faulty_region {
    temporary_folder folder;
    fault::faulty_environment env;
    std::unique_ptr<runtime> rt;
    std::vector<std::uint8_t> expected;

    explicit faulty_region(std::uint64_t size = 6 << 20) : expected(pattern(9, size)) {
        write_file(folder / "f", expected);
        let_files_settle();
        runtime_hooks_with(env);
    }
    void runtime_hooks_with(host::environment& with) {
        host::runtime_hooks hooks;
        hooks.env = &with;
        rt = make_runtime(region_runtime(folder, backend::cpu), hooks);
    }
    std::unique_ptr<file_region> map() { return map_whole(*rt, folder / "f", protection::read_write, {.outside_writers = false}); }
    void change(file_region& r, std::uint64_t at) { set(r, at, static_cast<std::uint8_t>(expected[at] + 1)); }
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
        f.env.set({.calls = fault::call_write, .nth = in_the_middle ? 300u : 1u, .for_ever = true, .error = -ENOSPC});
        EXPECT_EQ(r->release(), -ENOSPC);
        EXPECT_EQ(r->release(), -ENOSPC);  // and again: still there, still told
        f.env.clear();
        f.change(*r, 4096 * 9 + 1);                              // once more, whether it is at home or not
        f.set(*r, 4096 * 12 + 1, before[4096 * 12 + 1]);         // back to what it was
        f.set(*r, 4096 * 1200 + 1, before[4096 * 1200 + 1]);
        EXPECT_GE(r->release(), 0);
        EXPECT_TRUE(read_file(f.folder / "f") == f.expected);
        EXPECT_EQ(r->release(), 0);
    }
}

TEST(region_faults, each_call_of_a_release_fails_once) {
    faulty_region f(300 * 4096);
    const auto r = f.map();
    constexpr std::uint32_t kinds = fault::call_write | fault::call_open_writing | fault::call_facts | fault::call_read;
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
    const auto a = f.map(), b = f.map();
    for (std::uint64_t nth = 1, failed = 1; failed != 0; ++nth) {
        for (std::uint64_t page = 0; page < 1500; page += 5) f.change(*a, page * 4096 + 3);
        EXPECT_EQ(a->release(), 300);
        f.env.set({.calls = fault::call_read | fault::call_facts, .nth = nth, .error = -EIO});
        const std::int64_t code = b->acquire();
        failed = f.env.failures();
        f.env.clear();
        EXPECT_EQ(code, failed != 0 ? -EIO : 300) << "call " << nth;
        EXPECT_GE(b->acquire(), 0);
        ASSERT_TRUE(peek(*b, backend::cpu, 0, f.expected.size()) == f.expected) << "call " << nth;
        if (nth == 20) nth = 290;  // the last ones too
    }
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

TEST(region_faults, each_call_of_mapping_fails_once_and_nothing_is_left_open) {
    faulty_region f;
    const int handles = f.env.handles();
    for (std::uint64_t nth = 1;; ++nth) {
        f.env.set({.calls = fault::every_call | fault::every_write_call, .nth = nth, .error = -EACCES});
        std::unique_ptr<file_region> out;
        const status s = f.rt->map_region(f.folder / "f", 0, 0, protection::read_write, {}, out);
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
