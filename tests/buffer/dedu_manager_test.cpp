// The buffer that keeps equal blocks once: what is read is what was written, whatever is equal to
// what, also where content hashes collide and the disk fails; and it hits where the core alone
// would.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "buffer/buffered_file.hpp"
#include "buffer/core/movement.hpp"
#include "buffer/core/core.hpp"
#include "buffer/core/types.hpp"
#include "buffer/pool/manager.hpp"
#include "buffer/shared_file.hpp"

namespace penstock::test::dedu_manager {

namespace {

using buffer::fixed_page;
using buffer::manager_settings;
using buffer::order_kind;
using buffer::use_kind;

// Random reads, writes and flushes by one thread against a copy; how many bytes were wrong.
// `failing`: the disk does now and then.
struct played_file {
    std::uint64_t wrong = 0;
    buffer::manager_counts counts;
};
played_file play(const shape& s, std::uint64_t file_bytes, std::uint64_t seed,
                 std::uint64_t operations, backend where, bool credulous = false,
                 bool failing = false) {
    played_file out;
    bytes expected = blocks_of(seed, s, file_bytes);
    shared_file f(s, expected, where, credulous);
    auto session = f.all->open_session();
    std::mt19937_64 random(seed);
    for (std::uint64_t i = 0; i < operations; ++i) {
        if (failing && i % 50 == 0) fail_somehow(f.env, random);
        const bool aligned = random() % 2 == 0;
        const std::uint64_t block = s.page_bytes / s.blocks,
                            at = aligned ? random() % file_bytes / block * block
                                         : random() % file_bytes;
        const std::uint64_t most = !aligned            ? 200
                                   : random() % 8 == 0 ? 50 * s.page_bytes
                                                       : 3 * s.page_bytes;
        bytes some(aligned ? (random() % most / block + 1) * block : random() % most + 1);
        const std::uint64_t count = std::min<std::uint64_t>(some.size(), file_bytes - at);
        const auto kind = random() % 100;
        if (kind < 55) {
            const std::int64_t got = session->read(0, at, begin_of(some), some.size());
            if (!failing) {
                EXPECT_EQ(got, static_cast<std::int64_t>(count));
            }
            for (std::int64_t b = 0; b < got; ++b)
                out.wrong += some[static_cast<std::size_t>(b)] !=
                             expected[at + static_cast<std::uint64_t>(b)];
        } else if (kind < 98) {
            fill_blocks(random, s, some.data(), some.size());
            const std::int64_t put = session->write(0, at, begin_of(some), some.size());
            if (!failing) {
                EXPECT_EQ(put, static_cast<std::int64_t>(count));
            }
            std::copy_n(some.begin(), std::max<std::int64_t>(put, 0),
                        expected.begin() + static_cast<std::ptrdiff_t>(at));
        } else if (session->flush(0) == 0 && !credulous) {
            EXPECT_EQ(f.on_disk(), expected) << "seed " << seed << ", operation " << i;
        }
        if (i % 5000 == 4999) f.expect_right();
    }
    f.env.clear();
    EXPECT_EQ(session->flush(0), 0);
    const bytes now = f.on_disk();
    for (std::size_t b = 0; b < file_bytes; ++b) out.wrong += now[b] != expected[b];
    f.expect_right();
    session.reset();
    out.counts = f.all->counts();
    return out;
}

std::uint64_t operations_wanted(std::uint64_t otherwise) {
    const char* const asked = std::getenv("PENSTOCK_BUFFER_OPERATIONS");
    return asked == nullptr ? otherwise : std::strtoull(asked, nullptr, 10);
}

class shared_blocks : public testing::TestWithParam<backend> {
protected:
    void SetUp() override {
        if (GetParam() == backend::gpu && !gpu_is_there()) GTEST_SKIP() << "no GPU in this machine";
    }
};

}  // namespace

// PENSTOCK_BUFFER_OPERATIONS=1000000 for as many of each of five seeds.
TEST_P(shared_blocks, hold_what_was_written) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        shape s;
        s.duplicates = static_cast<unsigned>(22 * (seed - 1));  // 0 to 88
        s.mask = seed % 2 == 0
                     ? 7
                     : ~std::uint64_t{
                           0};  // few content hashes: most that are equal are of different blocks
        s.device = seed == 3 ? 0 : 20;
        s.host = seed == 5 ? 2 : 6;
        s.on_device = seed == 4;
        s.md5 = seed == 2;
        s.order = seed == 4 ? order_kind::clock : order_kind::lru;
        if (seed == 5) s.table = 30;
        s.adaptive = seed % 2 == 1;  // with loads that are posted
        const played_file seen =
            play(s, 64 * 512 - 77, seed, operations_wanted(rounds(2500)), GetParam());
        EXPECT_EQ(seen.wrong, 0u) << seed;
        EXPECT_EQ(seen.counts.differing_blocks != 0, s.mask == 7) << seed;
        EXPECT_GT(seen.counts.looked_blocks, 0u);
        if (s.duplicates >= 40) {
            EXPECT_GT(seen.counts.shared_blocks, 0u) << seed;
        }
    }
}

TEST_P(shared_blocks, of_one_a_page_and_of_many) {
    for (const std::uint32_t blocks : {1u, 2u, 8u}) {
        shape s;
        s.blocks = blocks;
        s.page_bytes = 1024;
        EXPECT_EQ(play(s, 50 * 1024 + 1, blocks, rounds(1500), GetParam()).wrong, 0u) << blocks;
    }
}

TEST_P(shared_blocks, are_not_lost_where_reads_and_writes_fail) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        shape s;
        s.device = seed % 2 == 0 ? 0 : 6;
        s.host = 5;
        s.adaptive = seed > 2;
        EXPECT_EQ(play(s, 40 * 512, seed, rounds(2000), GetParam(), false, true).wrong, 0u) << seed;
    }
}

TEST_P(shared_blocks, that_are_taken_for_equal_without_a_look_are_found_out) {
    shape s;
    s.mask = 7;
    EXPECT_GT(play(s, 64 * 512, 1, 4000, GetParam(), true).wrong, 0u);
}

namespace {

// The core, driven as docs/guide/buffer.md says: whole pages of blocks with numbers.
struct whole_page {
    std::uint64_t page = 0;
    bool writes = false;
    std::uint64_t first = 0;  // the numbers of its blocks are from here on, by fours
};
std::uint64_t number_of(const whole_page& page, std::uint32_t i) {
    return (page.first + i * i) % 40;
}

template <typename Order>
buffer::manager_counts driven(const shape& s, std::vector<whole_page> now,
                              const std::vector<whole_page>& accesses) {
    buffer::core<Order> core;
    EXPECT_EQ(core.make({s.host, s.device, s.blocks, *s.table, 2, *s.absent}), 0);
    buffer::manager_counts out;
    buffer::counts moved;
    std::vector<buffer::content_id> contents(s.blocks);
    for (const whole_page& access : accesses) {
        const buffer::page_id id{access.page, 0};
        buffer::found at{};
        if (access.writes) now[access.page].first = access.first;
        for (std::uint32_t i = 0; i < s.blocks; ++i)
            contents[i] = {number_of(now[access.page], i), 0};
        int code = access.writes ? core.replace(id, contents.data(), moved, at)
                                 : core.touch(id, moved, at);
        if (!access.writes && at == buffer::found::nowhere)
            code = core.load(id, contents.data(), moved);
        EXPECT_EQ(code, 0);
        ++(at == buffer::found::host     ? out.host_hits
           : at == buffer::found::device ? out.device_hits
                                         : out.misses);
        out.loads += at == buffer::found::nowhere && !access.writes;
    }
    out.write_backs = moved.written_pages;
    out.demotions = moved.demoted;
    out.promotions = moved.promoted;
    return out;
}

void put(const whole_page& page, const shape& s, std::byte* to) {
    const std::uint64_t block = s.page_bytes / s.blocks;
    for (std::uint32_t i = 0; i < s.blocks; ++i)
        std::memset(to + i * block, static_cast<int>(number_of(page, i)), block);
}

}  // namespace

// By one thread exactly.
TEST_P(shared_blocks, are_hit_where_the_core_alone_does) {
    for (const auto& [host, device, order, table, absent] :
         {std::tuple{4u, 0u, order_kind::lru, 25u, 32u},
          {4u, 6u, order_kind::lru, 25u, 0u},
          {4u, 2u, order_kind::lru, 50u, 48u},
          {8u, 5u, order_kind::clock, 25u, 3u},
          {2u, 3u, order_kind::clock, 60u, 40u}}) {
        shape s{.host = host, .device = device, .order = order, .table = table, .absent = absent};
        constexpr std::uint64_t pages = 60;
        std::mt19937_64 random(host);
        std::vector<whole_page> now, accesses;
        bytes content(pages * s.page_bytes);
        for (std::uint64_t page = 0; page < pages; ++page) {
            now.push_back({page, false, random() % 400});
            put(now.back(), s, begin_of(content) + page * s.page_bytes);
        }
        for (int i = 0; i < 4000; ++i)
            accesses.push_back({random() % 10 < 6 ? random() % 12 : random() % pages,
                                random() % 5 == 0, random() % 400});
        shared_file f(s, content, GetParam());
        auto session = f.all->open_session();
        for (const whole_page& access : accesses) {
            fixed_page fixed;
            ASSERT_EQ(access.writes ? session->fix_fresh({access.page, 0}, fixed)
                                    : session->fix({access.page, 0}, use_kind::read, fixed),
                      0);
            if (access.writes) put(access, s, fixed.data);
            session->unfix(fixed, access.writes);
        }
        session.reset();
        const buffer::manager_counts seen = f.all->counts(),
                                     expected = order == order_kind::lru
                                                    ? driven<buffer::lru_order>(s, now, accesses)
                                                    : driven<buffer::clock_order>(s, now, accesses);
        EXPECT_EQ(seen.loads, expected.loads);
        expect_as(seen, expected);
        f.expect_right();
    }
}

namespace {

struct adding_dedu_threads : adding_to<shared_file> {
    adding_dedu_threads(const shape& s, backend where, bool failing)
        : adding_to(failing, 1, s, bytes(pages * 512, 0), where) {}
};

}  // namespace

TEST_P(shared_blocks, lose_no_update_of_many_threads) {
    for (const auto& [host, device, mask, wait] : {std::tuple{8u, 0u, ~0ull, 0u},
                                                   {8u, 10u, ~0ull, 0u},
                                                   {8u, 10u, 3ull, 0u},
                                                   {3u, 100u, ~0ull, 30u}}) {
        const shape s{.host = host,
                      .device = device,
                      .mask = mask,
                      .on_device = device == 100,
                      .adaptive = mask != 3,
                      .sessions = 8,
                      .batch_wait_us = wait};
        adding_dedu_threads all(s, GetParam(), false);
        all.run(rounds(1500));
        const buffer::manager_counts counts = all.f.all->counts();
        EXPECT_GT(counts.misses, 0u);
        EXPECT_EQ(counts.device_hits != 0, device != 0);
        EXPECT_GT(counts.shared_blocks, 0u);  // all are zero at first
    }
}

TEST_P(shared_blocks, lose_no_update_of_many_threads_where_the_disk_fails) {
    for (const auto& [host, device] : {std::pair{8u, 0u}, {8u, 10u}})
        adding_dedu_threads({.host = host, .device = device, .adaptive = true, .sessions = 8},
                            GetParam(), true)
            .run(rounds(1500));
}

// Many pages of the same few blocks, read by all threads while the pages come and go.
TEST_P(shared_blocks, of_many_pages_are_those_that_were_asked_for) {
    constexpr std::uint64_t pages = 40;
    const shape s{
        .host = 2, .device = 3, .adaptive = true, .sessions = 4, .table = 10, .page_bytes = 256};
    bytes content(pages * 256);
    for (std::uint64_t i = 0; i < content.size(); ++i)
        content[i] = static_cast<std::uint8_t>(i / 64 % 13 == 5 ? i / 256 : i / 64 % 13);
    shared_file f(s, content, GetParam());
    std::vector<std::jthread> running;
    for (std::uint64_t t = 0; t < 4; ++t)
        running.emplace_back([&, t] {
            auto session = f.all->open_session();
            std::mt19937_64 random(t);
            for (std::uint64_t i = 0; i < rounds(8000) && !testing::Test::HasFailure(); ++i) {
                const std::uint64_t page = random() % 4 == 0 ? random() % pages : random() % 8;
                fixed_page fixed;
                ASSERT_EQ(session->fix({page, 0}, use_kind::read, fixed), 0);
                ASSERT_EQ(std::memcmp(fixed.data, content.data() + page * 256, 256), 0) << page;
                session->unfix(fixed, false);
                if (i % 16 != 0) continue;
                bytes some(random() % (36 * 256) + 1);
                const std::uint64_t at = random() % content.size(),
                                    there =
                                        std::min<std::uint64_t>(some.size(), content.size() - at);
                ASSERT_EQ(session->read(0, at, begin_of(some), some.size()),
                          static_cast<std::int64_t>(there));
                ASSERT_EQ(std::memcmp(some.data(), content.data() + at, there), 0) << at;
            }
        });
    running.clear();
    f.expect_right();
    EXPECT_GT(f.all->counts().shared_blocks, 0u);
}

// Where no two blocks are equal nearly all of the looking is left out.
TEST_P(shared_blocks, are_not_looked_for_where_there_are_none) {
    for (const bool adaptive : {false, true}) {
        const shape s{.host = 4, .device = 4, .duplicates = 0, .adaptive = adaptive};
        constexpr std::uint64_t pages = 8000;
        shared_file f(s, blocks_of(1, s, pages * 512), GetParam());
        auto session = f.all->open_session();
        bytes page(512);
        for (std::uint64_t i = 0; i < pages; ++i)
            ASSERT_EQ(session->read(0, i * 512, begin_of(page), 512), 512);
        EXPECT_EQ(f.all->counts().looked_blocks, adaptive ? 1024u : 4 * pages);
        f.expect_right();
    }
}

// Pages that had to go while nothing could be written are read, written again, and in the file when
// that is possible.
TEST_P(shared_blocks, that_cannot_be_written_can_be_read) {
    const shape s{.host = 3, .device = 2, .duplicates = 0};
    bytes expected = blocks_of(1, s, 60 * 512), page(512);
    shared_file f(s, expected, GetParam());
    auto session = f.all->open_session();
    fault::fault_plan broken;
    broken.calls = fault::call_write;
    broken.nth = 1;
    broken.for_ever = true;
    broken.error = -EIO;
    f.env.set(broken);
    std::uint64_t refused = 0;
    for (std::uint64_t i = 0; i < 60; ++i) {
        std::fill(page.begin(), page.end(), static_cast<std::uint8_t>(i));
        const std::int64_t put = session->write(0, i * 512, begin_of(page), 512);
        refused += put == -EIO ? 1 : 0;
        if (put == 512)
            std::copy(page.begin(), page.end(),
                      expected.begin() + static_cast<std::ptrdiff_t>(i) * 512);
    }
    EXPECT_GT(refused, 30u);  // a page of one byte is one block, four times
    for (std::uint64_t i = 0; i < 60 - refused; ++i) {  // those that were written are the first
        ASSERT_EQ(session->read(0, i * 512, begin_of(page), 512), 512) << i;
        EXPECT_EQ(std::memcmp(page.data(), expected.data() + i * 512, 512), 0) << i;
    }
    EXPECT_EQ(session->flush(0), -EIO);
    f.expect_right();
    f.env.clear();
    EXPECT_EQ(session->flush(0), 0);
    EXPECT_EQ(f.on_disk(), expected);
    f.expect_right();
}

TEST_P(shared_blocks, refuse_what_cannot_be) {
    std::unique_ptr<buffer::manager> none;
    fault::faulty_environment env;
    std::string why;
    shape s;
    const auto frames = buffer::make_cpu_frames(buffer::frames_for(settings_of(s)), why);
    shape wrong = s;
    wrong.blocks = 16;
    EXPECT_EQ(buffer::manager::make(settings_of(wrong), *frames, env, none).code, -EINVAL);
    wrong.blocks = 3;
    EXPECT_EQ(buffer::manager::make(settings_of(wrong), *frames, env, none).code, -EINVAL);

    shared_file f(s, bytes(5000, 1), GetParam());
    auto session = f.all->open_session(), other = f.all->open_session();
    EXPECT_EQ(f.all->open_session(), nullptr);
    fixed_page page, second, third;
    EXPECT_EQ(session->fix({10, 0}, use_kind::read, page), -EINVAL);
    EXPECT_EQ(session->fix({0, 1}, use_kind::read, page), -EINVAL);
    EXPECT_EQ(session->flush(3), -EINVAL);
    ASSERT_EQ(session->fix({3, 0}, use_kind::write, page), 0);
    ASSERT_EQ(session->fix({4, 0}, use_kind::read, second), 0);
    EXPECT_EQ(session->fix({5, 0}, use_kind::read, third), -EBUSY);
    // A reader has the page as it was, and a writer is alone with its changes.
    ASSERT_EQ(other->fix({3, 0}, use_kind::read, third), 0);
    page.data[0] = std::byte{7};
    EXPECT_EQ(third.data[0], std::byte{1});
    other->unfix(third, false);
    session->unfix(second, false);
    session->unfix(page, true);
    ASSERT_EQ(other->fix({3, 0}, use_kind::read, third), 0);
    EXPECT_EQ(third.data[0], std::byte{7});
    other->unfix(third, false);
}

INSTANTIATE_TEST_SUITE_P(on, shared_blocks, testing::Values(backend::cpu, backend::gpu),
                         [](const testing::TestParamInfo<backend>& info) {
                             return info.param == backend::gpu ? "gpu" : "cpu";
                         });

}  // namespace penstock::test::dedu_manager
