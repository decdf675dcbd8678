// Reads that go on while the buffer makes room for their pages: what is read is what the file has,
// whatever others do meanwhile, and where reads fail nothing of them is left.
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <random>
#include <thread>

#include "buffer/buffered_file.hpp"
#include "buffer/pool/page_io.hpp"

namespace penstock::test::begun_reads {

namespace {

using buffer::fixed_page;
using buffer::manager_settings;
using buffer::order_kind;
using buffer::use_kind;

constexpr std::uint64_t page_bytes = 512, pages = 400;

manager_settings settings(std::uint32_t host, std::uint32_t device, buffer_kind kind,
                          std::uint32_t sessions = 2) {
    manager_settings out = small(host, device, order_kind::lru, page_bytes);
    out.sessions = sessions;
    out.policy = kind.policy;
    out.wait_ms = 500;
    return out;
}

// A file without equal blocks, and of which dedu knows that already. It is in the buffer by its
// last pages only.
struct peaceful_file : buffered_file {
    peaceful_file(const manager_settings& tuning, buffer_kind kind)
        : buffered_file(tuning, pattern(1, pages * page_bytes), kind),
          content(pattern(1, pages * page_bytes)) {
        const auto session = all->open_session();
        for (std::uint64_t page = 0; page < pages; ++page) EXPECT_EQ(look(*session, page), 0);
    }
    // The error, or that of a page which is not as it should be.
    int look(buffer::session& session, std::uint64_t page) const {
        fixed_page fixed;
        if (const int code = session.fix({page, 0}, use_kind::read, fixed); code != 0) return code;
        const bool right =
            std::memcmp(fixed.data, content.data() + page * page_bytes, page_bytes) == 0;
        session.unfix(fixed, false);
        return right ? 0 : -EILSEQ;
    }
    void fail_reads(int error) {
        fault::fault_plan plan;
        plan.calls = fault::call_read;
        plan.nth = 1;
        plan.for_ever = true;
        plan.error = error;
        env.set(plan);
    }
    const bytes content;
};

// Where io_uring is missing, from the build or from the kernel, no read is begun: every one is
// waited for.
struct begun_reads : on_backends {
    void SetUp() override {
        on_backends::SetUp();
        std::string why;
        if (host::linux_environment().make_io_engine(true, 1, why) == nullptr) GTEST_SKIP() << why;
    }
};

}  // namespace

TEST_P(begun_reads, bring_what_the_file_has) {
    peaceful_file f(settings(6, 10, GetParam()), GetParam());
    auto session = f.all->open_session();
    std::mt19937_64 random(1);
    const std::uint64_t before = f.env.queued_reads(), misses = f.all->counts().misses;
    for (int i = 0; i < 2000; ++i) ASSERT_EQ(f.look(*session, random() % pages), 0);
    session.reset();
    EXPECT_EQ(f.env.queued_reads() - before,
              f.all->counts().misses - misses);  // none went another way
    f.expect_right();
}

TEST_P(begun_reads, that_bring_a_part_are_read_to_their_end) {
    peaceful_file f(settings(6, 10, GetParam()), GetParam());
    fault::fault_plan plan;
    plan.longest_read = 100;
    f.env.set(plan);
    auto session = f.all->open_session();
    for (std::uint64_t page = 0; page < pages; page += 7)
        ASSERT_EQ(f.look(*session, page), 0) << page;
    session.reset();
    f.expect_right();
}

// More of them fail than the host has frames, so none may keep one.
TEST_P(begun_reads, that_fail_leave_nothing) {
    peaceful_file f(settings(6, 4, GetParam()), GetParam());
    auto session = f.all->open_session();
    const buffer::manager_counts before = f.all->counts();
    f.fail_reads(-EIO);
    for (std::uint64_t page = 0; page < 40; ++page) ASSERT_EQ(f.look(*session, page), -EIO) << page;
    f.fail_reads(0);  // the file seems to end
    for (std::uint64_t page = 0; page < 40; ++page)
        ASSERT_EQ(f.look(*session, page), -ESTALE) << page;
    f.env.clear();
    f.expect_right();
    EXPECT_EQ(f.all->counts().loads, before.loads);
    for (std::uint64_t page = 0; page < 40; ++page) ASSERT_EQ(f.look(*session, page), 0) << page;
    session.reset();
    f.expect_right();
}

// While the disk does not answer, other sessions have the pages in the buffer. They also write
// pages that need not be read. A session that wants the page that is being read has to wait.
TEST_P(begun_reads, keep_sessions_waiting_for_the_page_only) {
    peaceful_file f(settings(6, 4, GetParam()), GetParam());
    auto session = f.all->open_session();
    f.env.stall(fault::call_read);
    const std::uint64_t before = f.env.queued_reads();
    std::future<int> first = std::async(std::launch::async, [&] {
        const auto his = f.all->open_session();
        return f.look(*his, 17);
    });
    while (f.env.queued_reads() == before) std::this_thread::yield();
    EXPECT_EQ(f.look(*session, pages - 1), 0);
    EXPECT_EQ(f.look(*session, 17), -ETIMEDOUT);
    bytes written(page_bytes, 7);
    // Of whole pages the device frame that the victim went to has its turn only after the read.
    const std::uint64_t end = GetParam().policy == buffer::policy_kind::dedu ? 120 : 103;
    for (std::uint64_t page = 100; page < end; ++page)
        ASSERT_EQ(session->write(0, page * page_bytes, begin_of(written), page_bytes),
                  static_cast<std::int64_t>(page_bytes))
            << page;
    EXPECT_EQ(first.wait_for(std::chrono::milliseconds(0)), std::future_status::timeout);
    f.env.release();
    EXPECT_EQ(first.get(), 0);
    EXPECT_EQ(f.look(*session, 17), 0);
    session.reset();
    f.expect_right();
}

// A reader that saw a page in the device asks for it when it has left and is being read anew. In
// between, the page before it holds the reader up: the reader reads that page from the file.
TEST_P(begun_reads, are_not_seen_by_late_readers) {
    if (GetParam().policy != buffer::policy_kind::dedu)
        GTEST_SKIP() << "there a page is asked for and brought under one lock";
    constexpr std::uint64_t page = pages - 10;  // the first of those in the buffer
    peaceful_file f(settings(6, 4, GetParam(), 3), GetParam());
    auto session = f.all->open_session();
    f.env.stall(fault::call_plain_read);
    bytes two(2 * page_bytes);
    std::future<std::int64_t> late = std::async(std::launch::async, [&] {
        const auto his = f.all->open_session();
        return his->read(0, (page - 1) * page_bytes, begin_of(two), two.size());
    });
    while (f.env.stalled() == 0) std::this_thread::yield();
    bytes written(page_bytes, 7);
    for (std::uint64_t other = 100; other < 120; ++other)
        ASSERT_EQ(session->write(0, other * page_bytes, begin_of(written), page_bytes),
                  static_cast<std::int64_t>(page_bytes))
            << other;
    fault::fault_plan plan;
    plan.read_delay_ns = 200'000'000;
    f.env.set(plan);
    const std::uint64_t before = f.env.queued_reads();
    std::future<int> first = std::async(std::launch::async, [&] {
        const auto his = f.all->open_session();
        return f.look(*his, page);
    });
    while (f.env.queued_reads() == before) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // in which the disk is at it
    f.env.release();
    EXPECT_EQ(late.get(), static_cast<std::int64_t>(two.size()));
    EXPECT_EQ(std::memcmp(two.data(), f.content.data() + (page - 1) * page_bytes, two.size()), 0);
    EXPECT_EQ(first.get(), 0);
    session.reset();
    f.expect_right();
}

// The load of a page that was read last is left to the session that comes first. Other sessions may
// forget the page, bring it anew and change it meanwhile.
TEST_P(begun_reads, may_be_forgotten_as_soon_as_they_have_ended) {
    peaceful_file f(settings(6, 4, GetParam()), GetParam());
    auto session = f.all->open_session(), other = f.all->open_session();
    ASSERT_EQ(f.look(*session, 17), 0);
    ASSERT_EQ(other->forget(0, 17, 1), 0);
    ASSERT_EQ(f.look(*other, 17), 0);
    ASSERT_EQ(f.look(*session, 18), 0);  // what was its page is the other's by now
    f.expect_right();
    bytes written(page_bytes, 7);
    ASSERT_EQ(session->write(0, 17 * page_bytes, begin_of(written), page_bytes),
              static_cast<std::int64_t>(page_bytes));
    for (std::uint64_t page = 100; page < 120; ++page) ASSERT_EQ(f.look(*other, page), 0);
    ASSERT_EQ(session->flush(0), 0);
    EXPECT_EQ(std::memcmp(f.on_disk().data() + 17 * page_bytes, written.data(), page_bytes), 0);
    session.reset();
    other.reset();
    f.expect_right();
    EXPECT_EQ(f.all->remove_file(0), 0);
    f.expect_right();
}

// A page that was read is there even if its reader never asks for anything again.
TEST_P(begun_reads, are_there_for_others_at_once) {
    peaceful_file f(settings(6, 4, GetParam()), GetParam());
    auto session = f.all->open_session(), other = f.all->open_session();
    fixed_page kept, changed;
    ASSERT_EQ(session->fix({17, 0}, use_kind::read, kept), 0);
    const std::uint64_t before = f.env.queued_reads();
    EXPECT_EQ(f.look(*other, 17), 0);
    EXPECT_EQ(f.env.queued_reads(), before);  // by both once
    if (GetParam().policy != buffer::policy_kind::dedu) {
        session->unfix(kept, false);
        return;
    }
    session->unfix(kept, false);
    ASSERT_EQ(session->fix({18, 0}, use_kind::read, kept), 0);
    ASSERT_EQ(other->fix({18, 0}, use_kind::write, changed), 0);  // the reader keeps the old bytes
    std::memset(changed.data, 7, page_bytes);
    other->unfix(changed, true);
    EXPECT_EQ(std::memcmp(kept.data, f.content.data() + 18 * page_bytes, page_bytes), 0);
    session->unfix(kept, false);
    ASSERT_EQ(f.look(*session, 19), 0);
    EXPECT_EQ(f.all->remove_file(0), 0);
}

// A session that has several pages fixed has each as it is, and so have other sessions. That holds
// whenever the buffer gets round to copying a page.
TEST_P(begun_reads, lie_still_while_others_are_fixed) {
    constexpr std::uint32_t most = 3;
    manager_settings tuning = settings(10, 10, GetParam());
    tuning.fixed_pages = most;
    peaceful_file f(tuning, GetParam());
    auto session = f.all->open_session(), other = f.all->open_session();
    std::mt19937_64 random(5);
    std::vector<fixed_page> fixed;
    for (int i = 0; i < 3000; ++i) {
        const std::uint64_t page = random() % 4 == 0 ? random() % pages : random() % 24;
        fixed.emplace_back();
        ASSERT_EQ(session->fix({page, 0}, use_kind::read, fixed.back()), 0);
        if (fixed.size() == most) {
            fixed_page more;
            ASSERT_EQ(session->fix({page, 0}, use_kind::read, more), -EBUSY);
        }
        while (fixed.size() == most || (!fixed.empty() && random() % 2 == 0)) {
            std::swap(fixed[random() % fixed.size()], fixed.back());
            ASSERT_EQ(std::memcmp(fixed.back().data,
                                  f.content.data() + fixed.back().id.page * page_bytes, page_bytes),
                      0)
                << i;
            session->unfix(fixed.back(), false);
            fixed.pop_back();
        }
        if (random() % 4 == 0) {
            ASSERT_EQ(f.look(*other, random() % 24), 0) << i;
        }
    }
    for (const fixed_page& page : fixed) session->unfix(page, false);
    session.reset();
    other.reset();
    f.expect_right();
}

// Threads that want the same few pages, of which the buffer has room for half, while the disk fails
// now and then.
TEST_P(begun_reads, of_many_threads_bring_what_the_file_has) {
    constexpr std::uint32_t threads = 4;
    for (const bool failing : {false, true}) {
        peaceful_file f(
            settings(GetParam().policy == buffer::policy_kind::dedu ? 2 : 2 * threads + 1, 4,
                     GetParam(), threads),
            GetParam());
        std::vector<std::jthread> running;
        for (std::uint32_t t = 0; t < threads; ++t)
            running.emplace_back([&, t] {
                auto session = f.all->open_session();
                std::mt19937_64 random(t);
                for (std::uint64_t i = 0; i < rounds(6000u) && !testing::Test::HasFailure(); ++i) {
                    if (failing && t == 0 && i % 100 == 0) fail_somehow(f.env, random);
                    const int code =
                        f.look(*session, random() % 4 == 0 ? random() % pages : random() % 20);
                    ASSERT_TRUE(code == 0 || (failing && (code == -EIO || code == -ENOSPC)))
                        << code;
                }
            });
        running.clear();
        f.env.clear();
        f.expect_right();
    }
}

namespace {

// Has so many bytes, and past the page cache no read may begin at an odd place.
struct odd_end final : fault::faulty_environment {
    std::int64_t read(int, std::byte*, std::uint64_t, std::uint64_t offset) override {
        return offset % page_bytes == 0 && offset < size ? static_cast<std::int64_t>(size - offset)
                                                         : -EINVAL;
    }
    std::uint64_t size = 100;
};

}  // namespace

TEST(whole_reads, of_a_file_that_became_shorter_say_so_also_past_the_page_cache) {
    odd_end env;
    std::byte room[page_bytes];
    EXPECT_EQ(buffer::read_whole(env, -1, room, 100, page_bytes, 0), 0);
    EXPECT_EQ(buffer::read_whole(env, -1, room, 101, page_bytes, 0), -ESTALE);
    EXPECT_EQ(buffer::read_whole(env, -1, room, 1, page_bytes, 100), -EINVAL);
}

INSTANTIATE_TEST_SUITE_P(on, begun_reads,
                         testing::Values(buffer_kind(backend::cpu), buffer_kind(backend::gpu),
                                         buffer_kind(backend::cpu, buffer::policy_kind::dedu),
                                         buffer_kind(backend::gpu, buffer::policy_kind::dedu)),
                         name_of);

}  // namespace penstock::test::begun_reads
