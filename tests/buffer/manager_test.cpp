// The buffer manager: what is read is what was written, wherever pages lie, by one thread and many,
// also where the disk fails; and it hits where the core alone would.
#include "buffer/pool/manager.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <barrier>
#include <cerrno>
#include <cstring>
#include <random>
#include <thread>

#include "buffer/core/movement.hpp"
#include "buffer/core/core.hpp"
#include "buffer/core/types.hpp"
#include "buffered_file.hpp"

namespace penstock::test {

namespace {

using buffer::fixed_page;
using buffer::manager_settings;
using buffer::order_kind;
using buffer::use_kind;

// Random reads, writes and flushes by one thread against a copy; how many bytes were wrong.
// `failing`: writes and reads fail now and then, and are tried again.
std::uint64_t wrong_bytes(const manager_settings& settings, std::uint64_t file_bytes,
                          std::uint64_t seed, int operations, buffer_kind where,
                          bool forgetful = false, bool failing = false) {
    bytes expected = pattern(seed, file_bytes);
    buffered_file f(settings, expected, where, forgetful);
    auto session = f.all->open_session();
    std::mt19937_64 random(seed);
    std::uint64_t wrong = 0;
    for (int i = 0; i < operations; ++i) {
        if (failing && i % 50 == 0) fail_somehow(f.env, random);
        const std::uint64_t at = random() % file_bytes,
                            most = random() % 4 == 0 ? 3 * settings.page_bytes : 200;
        bytes some(random() % most + 1);
        const std::uint64_t count = std::min<std::uint64_t>(some.size(), file_bytes - at);
        const auto kind = random() % 100;
        if (kind < 50) {
            const std::int64_t got = session->read(0, at, begin_of(some), some.size());
            if (!failing) {
                EXPECT_EQ(got, static_cast<std::int64_t>(count));
            }
            for (std::int64_t b = 0; b < got; ++b)
                wrong += some[static_cast<std::size_t>(b)] !=
                         expected[at + static_cast<std::uint64_t>(b)];
        } else if (kind < 98) {
            for (auto& byte : some) byte = static_cast<std::uint8_t>(random());
            const std::int64_t put = session->write(0, at, begin_of(some), some.size());
            if (!failing) {
                EXPECT_EQ(put, static_cast<std::int64_t>(count));
            }
            std::copy_n(some.begin(), std::max<std::int64_t>(put, 0),
                        expected.begin() + static_cast<std::ptrdiff_t>(at));
        } else if (session->flush(0) == 0 && !forgetful) {
            EXPECT_EQ(f.on_disk(), expected) << "seed " << seed << ", operation " << i;
        }
    }
    f.env.clear();
    EXPECT_EQ(session->flush(0), 0);
    const bytes now = f.on_disk();
    for (std::size_t b = 0; b < file_bytes; ++b) wrong += now[b] != expected[b];
    f.expect_right();
    return wrong;
}

using buffers = on_backends;

// The core, driven as docs/guide/buffer.md says, for the same accesses.
template <typename Order>
buffer::manager_counts played(const manager_settings& settings,
                              const std::vector<std::pair<std::uint64_t, bool>>& accesses) {
    buffer::core<Order> core;
    EXPECT_EQ(core.make({settings.host_pages, settings.device_pages, 1,
                         settings.host_pages + settings.device_pages + 1, 1}),
              0);
    buffer::manager_counts out;
    buffer::counts moved;
    for (const auto& [page, writes] : accesses) {
        const buffer::page_id id{page, 0};
        buffer::found at{};
        EXPECT_EQ(core.touch(id, moved, at), 0);
        ++(at == buffer::found::host     ? out.host_hits
           : at == buffer::found::device ? out.device_hits
                                         : out.misses);
        int code = at == buffer::found::nowhere ? core.load(id, nullptr, moved) : 0;
        if (writes && code == 0) code = core.mark_dirty(id);
        EXPECT_EQ(code, 0);
    }
    out.write_backs = moved.written_pages;
    out.demotions = moved.demoted;
    out.promotions = moved.promoted;
    return out;
}

}  // namespace

TEST_P(buffers, hold_what_was_written) {
    for (const order_kind order : {order_kind::lru, order_kind::clock})
        for (const auto& [host, device] :
             {std::pair{5u, 0u}, {5u, 1u}, {6u, 9u}, {40u, 3u}, {5u, 200u}})
            EXPECT_EQ(wrong_bytes(small(host, device, order), 40 * 512 - 77, host + device,
                                  rounds(4000), GetParam()),
                      0u)
                << host << ' ' << device;
    EXPECT_EQ(wrong_bytes(small(7, 9, order_kind::lru, 4096), 50 * 4096 + 1, 3, 2000, GetParam()),
              0u);
}

TEST_P(buffers, lose_nothing_where_reads_and_writes_fail) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed)
        for (const auto& [host, device] : {std::pair{5u, 0u}, {5u, 6u}})
            EXPECT_EQ(wrong_bytes(small(host, device, order_kind::lru), 30 * 512, seed,
                                  rounds(3000), GetParam(), false, true),
                      0u)
                << seed;
}

TEST_P(buffers, whose_frames_forget_a_move_are_found_out) {
    EXPECT_GT(wrong_bytes(small(5, 20, order_kind::lru), 40 * 512, 1, 3000, GetParam(), true), 0u);
}

// By one thread exactly; the pages are those that are fixed.
TEST_P(buffers, hit_where_the_core_alone_does) {
    for (const order_kind order : {order_kind::lru, order_kind::clock})
        for (const auto& [host, device] : {std::pair{8u, 0u}, {8u, 5u}, {20u, 40u}}) {
            const manager_settings settings = small(host, device, order);
            buffered_file f(settings, bytes(100 * 512, 1), GetParam());
            auto session = f.all->open_session();
            std::mt19937_64 random(host);
            std::vector<std::pair<std::uint64_t, bool>> accesses;
            for (int i = 0; i < 5000; ++i)
                accesses.emplace_back(random() % 10 < 7 ? random() % 12 : random() % 100,
                                      random() % 4 == 0);
            for (const auto& [page, writes] : accesses) {
                fixed_page fixed;
                ASSERT_EQ(session->fix({page, 0}, writes ? use_kind::write : use_kind::read, fixed),
                          0);
                session->unfix(fixed, writes);
            }
            session.reset();
            const buffer::manager_counts seen = f.all->counts(),
                                         expected =
                                             order == order_kind::lru
                                                 ? played<buffer::lru_order>(settings, accesses)
                                                 : played<buffer::clock_order>(settings, accesses);
            EXPECT_EQ(seen.loads, expected.misses);
            expect_as(seen, expected);
            f.expect_right();
        }
}

namespace {

struct adding_threads : adding_to<buffered_file> {
    adding_threads(std::uint32_t host, std::uint32_t device, order_kind order, buffer_kind where,
                   bool failing)
        : adding_to(failing, 2,
                    manager_settings{.page_bytes = 512,
                                     .host_pages = host,
                                     .device_pages = device,
                                     .sessions = threads,
                                     .fixed_pages = 2,
                                     .order = order,
                                     .stands_back = failing},
                    bytes(pages * 512, 0), where) {}

    // Threads that race may all miss the one page that the device has. A lone session finds it
    // soon.
    void look_until_a_device_hit(bool may_come) {
        const auto session = f.all->open_session();
        std::mt19937_64 random(threads);
        for (int i = 0; i < 10'000 && may_come && f.all->counts().device_hits == 0; ++i)
            step(*session, 0, random);
    }
};

}  // namespace

TEST_P(buffers, lose_no_update_of_many_threads) {
    for (const order_kind order : {order_kind::lru, order_kind::clock})
        for (const auto& [host, device] :
             {std::pair{30u, 0u}, {30u, 10u}, {30u, 100u}, {25u, 1u}}) {
            adding_threads all(host, device, order, GetParam(), false);
            all.run(rounds(6000));
            all.look_until_a_device_hit(device != 0);
            const buffer::manager_counts counts = all.f.all->counts();
            EXPECT_GT(counts.misses, 0u);
            EXPECT_EQ(counts.device_hits != 0, device != 0);
        }
}

TEST_P(buffers, lose_no_update_of_many_threads_where_the_disk_fails) {
    for (const auto& [host, device] : {std::pair{30u, 0u}, {30u, 10u}, {25u, 1u}}) {
        adding_threads all(host, device, order_kind::lru, GetParam(), true);
        all.run(rounds(6000));
    }
}

// Threads that hit so fast that they cannot tell all of it: each hit is counted once all the same.
TEST_P(buffers, count_each_hit_of_many_threads) {
    constexpr std::uint64_t threads = 4, pages = 64;
    manager_settings settings = small(80, 10, order_kind::lru);
    settings.sessions = threads;
    buffered_file f(settings, bytes(pages * 512, 1), GetParam());
    const auto look = [&](std::uint64_t count) {
        const auto session = f.all->open_session();
        for (std::uint64_t i = 0; i < count; ++i) {
            fixed_page fixed;
            ASSERT_EQ(session->fix({i % pages, 0}, use_kind::read, fixed), 0);
            session->unfix(fixed, false);
        }
    };
    look(pages);
    {
        std::vector<std::jthread> running;
        for (std::uint64_t t = 0; t < threads; ++t) running.emplace_back(look, rounds(200'000u));
    }
    const buffer::manager_counts counts = f.all->counts();
    EXPECT_EQ(counts.misses, pages);
    EXPECT_EQ(counts.device_hits, 0u);
    EXPECT_EQ(counts.host_hits, threads * rounds(200'000u));
    f.expect_right();
}

// Threads want pages whose frames are given to others all the time, also between a look at where
// the page is and the step on its frame.
TEST_P(buffers, give_the_page_that_was_asked_for) {
    constexpr std::uint64_t pages = 12;
    manager_settings settings = small(9, 3, order_kind::lru, 64);
    settings.sessions = 4;
    buffered_file f(settings, bytes(pages * 64, 0), GetParam());
    {
        auto first = f.all->open_session();
        for (std::uint64_t page = 0; page < pages; ++page) {
            fixed_page fixed;
            ASSERT_EQ(first->fix_fresh({page, 0}, fixed), 0);
            std::memset(fixed.data, static_cast<int>(page + 1), 64);
            first->unfix(fixed, true);
        }
    }
    std::atomic<bool> done{false};  // a thread has failed
    std::vector<std::jthread> running;
    for (std::uint64_t t = 0; t < 4; ++t)
        running.emplace_back([&, t] {
            auto session = f.all->open_session();
            std::mt19937_64 random(t);
            for (std::uint64_t i = 0; i < rounds(100'000) && !done; ++i) {
                const std::uint64_t page = random() % pages;
                fixed_page fixed;
                ASSERT_EQ(session->fix({page, 0}, use_kind::read, fixed), 0);
                const auto seen = static_cast<std::uint64_t>(fixed.data[i % 64]);
                session->unfix(fixed, false);
                if (seen != page + 1) done = true;
                ASSERT_EQ(seen, page + 1);
            }
        });
    running.clear();
    f.expect_right();
}

TEST_P(buffers, refuse_what_cannot_be) {
    std::unique_ptr<buffer::manager> none;
    fault::faulty_environment env;
    std::string why;
    manager_settings settings = small(5, 0, order_kind::lru);
    settings.wait_ms = 50;
    const auto frames = buffer::make_cpu_frames(buffer::frames_for(settings), why);
    manager_settings tiny = settings;
    tiny.host_pages = 4;
    const status refused = buffer::manager::make(tiny, *frames, env, none);
    EXPECT_EQ(refused.code, -EINVAL);
    EXPECT_NE(refused.message.find("give it 5"), std::string::npos) << refused.message;

    buffered_file f(settings, bytes(5000, 1), GetParam());
    auto session = f.all->open_session(), other = f.all->open_session();
    EXPECT_EQ(f.all->open_session(), nullptr);
    fixed_page page, second;
    EXPECT_EQ(session->fix({10, 0}, use_kind::read, page), -EINVAL);
    EXPECT_EQ(session->fix({0, 1}, use_kind::read, page), -EINVAL);
    EXPECT_EQ(session->flush(3), -EINVAL);
    ASSERT_EQ(session->fix({3, 0}, use_kind::write, page), 0);
    EXPECT_EQ(session->fix({4, 0}, use_kind::read, second), -EBUSY);
    EXPECT_EQ(other->fix({3, 0}, use_kind::read, second), -ETIMEDOUT);
    session->unfix(page, false);
    ASSERT_EQ(session->fix({3, 0}, use_kind::read, page), 0);
    ASSERT_EQ(other->fix({3, 0}, use_kind::read, second), 0);
    other->unfix(second, false);
    EXPECT_EQ(other->fix({3, 0}, use_kind::write, second), -ETIMEDOUT);
    session->unfix(page, false);
    bytes some(10);
    EXPECT_EQ(session->read(0, 5000, begin_of(some), 10), 0);
    EXPECT_EQ(session->read(0, 4995, begin_of(some), 10), 5);
    EXPECT_EQ(session->read(1, 0, begin_of(some), 10), -EBADF);
}

INSTANTIATE_TEST_SUITE_P(on, buffers,
                         testing::Values(buffer_kind(backend::cpu), buffer_kind(backend::gpu)),
                         name_of);

}  // namespace penstock::test
