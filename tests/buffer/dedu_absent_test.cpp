// Blocks that have left a buffer that keeps equal blocks once, and are known still: they come back
// with any of their pages, and with the right bytes, whatever the disk or others do meanwhile.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "buffer/shared_file.hpp"

namespace penstock::test {

namespace {

using buffer::fixed_page;
using buffer::use_kind;

class absent_shared_blocks : public testing::TestWithParam<backend> {
protected:
    void SetUp() override {
        if (GetParam() == backend::gpu && !gpu_is_there()) GTEST_SKIP() << "no GPU in this machine";
    }
};

// Pages 0, 1, 5 and 6 have the same four blocks, the others random ones, and the host has room for
// three pages: with `bring`, the blocks are absent that the first two have.
struct absent_pages {
    explicit absent_pages(backend where, bool dirty = false,
                          std::optional<std::uint32_t> table = std::nullopt)
        : sizes{.host = 3, .device = 0, .duplicates = 0, .table = table},
          expected(blocks_of(1, sizes, 12 * 512)),
          page(512) {
        for (const std::uint64_t equal : {1, 5, 6})
            std::copy_n(expected.begin(), 512,
                        expected.begin() + static_cast<std::ptrdiff_t>(equal) * 512);
        f = std::make_unique<shared_file>(sizes, expected, where);
        session = f->all->open_session();
        for (const std::uint64_t at : {0, 1})
            if (dirty) EXPECT_EQ(session->write(0, at * 512, begin_of(expected), 512), 512);
            else expect(at);
    }
    ~absent_pages() { f->expect_right(); }

    void bring() {
        for (const std::uint64_t at : {2, 3, 4}) expect(at);
    }
    void expect(std::uint64_t at) {
        ASSERT_EQ(session->read(0, at * 512, begin_of(page), 512), 512) << at;
        EXPECT_EQ(std::memcmp(page.data(), expected.data() + at * 512, 512), 0) << at;
    }
    void expect_fixed(std::uint64_t at) {
        fixed_page fixed;
        ASSERT_EQ(session->fix({at, 0}, use_kind::read, fixed), 0) << at;
        EXPECT_EQ(std::memcmp(fixed.data, expected.data() + at * 512, 512), 0) << at;
        session->unfix(fixed, false);
    }
    [[nodiscard]] std::uint64_t absent() const { return f->all->contents().absent_blocks; }
    [[nodiscard]] std::uint64_t misses() const { return f->all->counts().misses; }

    const shape sizes;
    bytes expected, page;
    std::unique_ptr<shared_file> f;
    std::unique_ptr<buffer::session> session;
};

}  // namespace

TEST_P(absent_shared_blocks, come_back_for_all_their_pages) {
    absent_pages p(GetParam());
    p.bring();
    EXPECT_EQ(p.absent(), 4u);
    p.expect(5);  // read for the first time, and found equal
    EXPECT_EQ(p.absent(), 0u);
    const std::uint64_t misses = p.misses();
    p.expect(0);
    p.expect(1);
    EXPECT_EQ(p.misses(), misses);
}

TEST_P(absent_shared_blocks, come_with_pages_read_at_once_and_ahead) {
    absent_pages p(GetParam());
    p.bring();
    const std::uint64_t misses = p.misses();
    bytes both(1024);
    ASSERT_EQ(p.session->read(0, 0, begin_of(both), 1024), 1024);
    EXPECT_EQ(std::memcmp(both.data(), p.expected.data(), 1024), 0);
    EXPECT_EQ(p.misses(), misses + 1);
    p.bring();
    EXPECT_EQ(p.absent(), 4u);
    p.session->prefetch(0, 1, 1);
    EXPECT_EQ(p.absent(), 0u);
    EXPECT_EQ(p.f->all->counts().prefetched, 1u);
    p.expect(0);
    p.expect(1);
    EXPECT_EQ(p.misses(), misses + 4);  // bring() had three
}

TEST_P(absent_shared_blocks, that_cannot_be_read_are_equal_to_none) {
    absent_pages p(GetParam());
    p.bring();
    p.expect(5);  // what it was compared with still lies there
    p.bring();
    p.f->env.set({.calls = fault::call_read, .nth = 2, .for_ever = true, .error = -EIO});
    p.expect(6);
    EXPECT_EQ(p.absent(), 4u);
    p.f->env.clear();
    for (std::uint64_t at = 0; at < 12; ++at) p.expect(at);
}

// A program that changes a file below says so afterwards. Bytes that were read of the file before
// must not become another page's.
TEST_P(absent_shared_blocks, are_not_taken_from_a_file_that_was_changed) {
    for (const bool fixes : {false, true}) {
        absent_pages p(GetParam());
        p.bring();
        std::fill_n(p.expected.begin(), 512, 77);
        ASSERT_EQ(::pwrite(p.f->fd, p.expected.data(), 512, 0), 512);
        if (fixes) p.expect_fixed(0);
        else p.expect(0);
        p.expect(1);
        EXPECT_EQ(p.session->forget(0, 0, 1), 0);
        p.expect(0);
        p.bring();
        p.expect(1);
    }
}

// Page 1 is in the table when the batch begins, and page 0, which comes first, needs its slot.
TEST_P(absent_shared_blocks, are_found_by_a_page_that_left_in_the_same_batch) {
    absent_pages p(GetParam(), false, 5);
    p.expect(5);
    EXPECT_EQ(p.session->forget(0, 0, 1), 0);
    p.bring();
    EXPECT_EQ(p.absent(), 4u);
    const std::uint64_t shared = p.f->all->counts().shared_blocks;
    bytes both(1024);
    ASSERT_EQ(p.session->read(0, 0, begin_of(both), 1024), 1024);
    EXPECT_EQ(std::memcmp(both.data(), p.expected.data(), 1024), 0);
    EXPECT_EQ(p.f->all->counts().shared_blocks, shared + 8);
    EXPECT_EQ(p.absent(), 0u);
}

TEST_P(absent_shared_blocks, are_kept_where_their_pages_cannot_be_written_before) {
    absent_pages p(GetParam(), true);
    p.expect(2);
    p.expect(3);
    p.f->env.set({.calls = fault::call_write, .nth = 1, .for_ever = true, .error = -EIO});
    p.expect(4);
    EXPECT_EQ(p.session->read(0, 6 * 512, begin_of(p.page), 512),
              -EIO);  // before anything else has to go
    p.expect(0);
    p.expect(1);
    p.f->env.clear();
    EXPECT_EQ(p.session->flush(0), 0);
    EXPECT_EQ(p.f->on_disk(), p.expected);
    p.bring();
    p.expect(0);
}

// The block of pages 0 and 1 is absent, they could not be written, and the batch is not over yet:
// page 2 has to go, too. A reader of page 0 must then not read it from its file.
TEST_P(absent_shared_blocks, that_cannot_be_written_before_are_not_read_from_the_file) {
    const shape s{.host = 2, .device = 2, .duplicates = 0};
    bytes expected = blocks_of(1, s, 12 * 512), page(512), seen(512);
    std::copy_n(expected.begin() + 5 * 512, 128,
                expected.begin() + 5 * 512 +
                    128);  // so that 0 to 5 have as many blocks as there are frames
    shared_file f(s, expected, GetParam());
    auto session = f.all->open_session(), other = f.all->open_session();
    std::fill_n(expected.begin(), 1024, 7);
    for (const std::uint64_t at : {0, 1, 2})
        ASSERT_EQ(session->write(0, at * 512, begin_of(expected) + at * 512, 512), 512);
    for (const std::uint64_t at : {3, 4, 5})
        ASSERT_EQ(session->read(0, at * 512, begin_of(page), 512), 512);
    std::int64_t got = 0;
    std::atomic<bool> is_done{false};
    std::jthread reader;
    f.watched.before_move = [&] {
        if (f.env.failures() != 2 || reader.joinable()) return;
        reader = std::jthread([&] {
            got = other->read(0, 0, begin_of(seen), 512);
            is_done = true;
        });
        for (int i = 0; i < 50 && !is_done; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));  // a wrong read ends by then
    };
    f.env.set(
        {.calls = fault::call_read | fault::call_write, .nth = 2, .for_ever = true, .error = -EIO});
    EXPECT_EQ(session->read(0, 6 * 512, begin_of(page), 512), 512);
    ASSERT_TRUE(reader.joinable());
    reader.join();
    EXPECT_EQ(got, 512);
    EXPECT_EQ(seen, bytes(512, 7));
    f.env.clear();
    EXPECT_EQ(session->flush(0), 0);
    EXPECT_EQ(f.on_disk(), expected);
    f.expect_right();
}

// A page with absent blocks leaves like others, and what the file below has then is read.
TEST_P(absent_shared_blocks, are_forgotten_with_their_file) {
    absent_pages p(GetParam());
    p.bring();
    EXPECT_EQ(p.session->resize(0, 512), 0);
    EXPECT_EQ(p.f->all->contents().pages, 1u);
    EXPECT_EQ(p.session->resize(0, 100), 0);
    EXPECT_EQ(p.absent(), 0u);
    EXPECT_EQ(p.session->resize(0, 512), 0);
    EXPECT_EQ(p.session->resize(0, 12 * 512), 0);
    std::fill_n(p.expected.begin() + 600, 300, 78);
    ASSERT_EQ(::pwrite(p.f->fd, p.expected.data(), p.expected.size(), 0), 12 * 512);
    for (std::uint64_t at = 0; at < 12; ++at) p.expect(at);
    p.session.reset();
    EXPECT_EQ(p.f->all->remove_file(0), 0);
    EXPECT_EQ(p.f->all->contents().pages, 0u);
    EXPECT_EQ(p.absent(), 0u);
}

INSTANTIATE_TEST_SUITE_P(on, absent_shared_blocks, testing::Values(backend::cpu, backend::gpu),
                         [](const testing::TestParamInfo<backend>& info) {
                             return info.param == backend::gpu ? "gpu" : "cpu";
                         });

}  // namespace penstock::test
