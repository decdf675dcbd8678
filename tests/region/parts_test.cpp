// The pieces that regions are made of, against plain versions of themselves.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <numeric>
#include <random>

#include "penstock/group/lane.hpp"
#include "region/region_memory.hpp"
#include "region/home_writer.hpp"
#include "region/page_masks.hpp"
#include "region/piece_heat.hpp"
#include "region/version_map.hpp"
#include "unit/support.hpp"

namespace penstock::region {

namespace {

struct alignas(16) page {
    std::byte bytes[page_bytes];
    bool operator==(const page& other) const {
        return std::equal(std::begin(bytes), std::end(bytes), std::begin(other.bytes));
    }
};

page random_page(std::mt19937_64& random) {
    page out;
    for (std::byte& byte : out.bytes) byte = static_cast<std::byte>(random());
    return out;
}

// Some bytes of it other ones; few, many or all.
page changed_page(const page& of, std::mt19937_64& random) {
    page out = of;
    const std::uint64_t one_in = random() % 3 == 0 ? 1 : random() % 200 + 1;
    for (std::byte& byte : out.bytes)
        if (random() % one_in == 0) byte = static_cast<std::byte>(random() % 4);
    return out;
}

}  // namespace

TEST(page_steps, filling_keeps_what_is_the_replicas_own) {
    std::mt19937_64 random(1);
    for (int round = 0; round < 300; ++round) {
        const page before = random_page(random), fresh = changed_page(before, random);
        page base = before, replica = changed_page(before, random), expected = replica;
        for (std::size_t i = 0; i < page_bytes; ++i)
            if (replica.bytes[i] == before.bytes[i]) expected.bytes[i] = fresh.bytes[i];
        fill_page(lane{}, replica.bytes, base.bytes, fresh.bytes);
        ASSERT_TRUE(replica == expected && base == fresh) << round;
        fill_page(lane{}, replica.bytes, nullptr, before.bytes);
        ASSERT_TRUE(replica == before) << round;
    }
}

TEST(page_steps, every_changed_byte_is_marked_and_no_other) {
    std::mt19937_64 random(2);
    for (int round = 0; round < 300; ++round) {
        const page before = random_page(random),
                   now = round % 7 == 0 ? before : changed_page(before, random);
        EXPECT_EQ(is_changed(lane{}, now.bytes, before.bytes), !(now == before));
        page staged;
        alignas(16) std::byte marks[mark_bytes];
        collect_page(lane{}, now.bytes, before.bytes, staged.bytes, marks);
        ASSERT_TRUE(staged == now);
        for (std::size_t i = 0; i < page_bytes; ++i)
            ASSERT_EQ((static_cast<unsigned>(marks[i / 8]) >> (i % 8) & 1) != 0,
                      now.bytes[i] != before.bytes[i])
                << round << " byte " << i;
        page base = before, expected = before;
        const std::uint64_t part = random() % (page_bytes + 1);
        std::copy_n(now.bytes, part, expected.bytes);
        adopt_page(lane{}, base.bytes, staged.bytes, part);
        ASSERT_TRUE(base == expected);
    }
}

// Changes of single pages and of ranges of all kinds: as if each page had a state of its own all
// the time, but for stamps that tell nothing.
TEST(version_map, is_as_a_state_for_each_page) {
    std::mt19937_64 random(3);
    std::uint64_t pages = 3 * version_map::chunk_pages + 77;
    page_state first{};
    first.present = 7;  // the host's, and two replicas
    version_map map(pages, first);
    std::vector<page_state> plain(pages, first);
    std::uint64_t most = 0;
    for (int round = 0; round < 6000; ++round) {
        page_range which{random() % pages, 0};
        which.end = which.begin + 1 + random() % (pages - which.begin);
        if (random() % 4 == 0)
            which = {which.begin / version_map::chunk_pages * version_map::chunk_pages, pages};
        if (random() % 4 != 0) which.end = std::min(pages, which.begin + 1 + random() % 3);
        const auto holder = static_cast<consistency::place>(random() % 3);
        const bool catches_up = random() % 2 == 0, stale = random() % 40 == 0;
        const auto now = static_cast<consistency::stamp>(round + 1);
        const auto change = [&](page_state& p) {
            if (catches_up) p.seen[1] = p.seen[2] = now;
            else p.released[holder] = now;
            p.stale = stale ? 2 : 0;
        };
        if (random() % 3 == 0) {
            page_list some;
            const std::uint64_t most_step = random() % 3 == 0 ? 1 : 5;
            for (std::uint64_t page = which.begin; page < which.end;
                 page += 1 + random() % most_step)
                some.push_back(page);
            map.change(some, change);
            for (const std::uint64_t page : some) change(plain[page]);
        } else {
            map.change(which, change);
            for (std::uint64_t page = which.begin; page < which.end; ++page) change(plain[page]);
        }
        if (round % 500 == 499) {
            map.keep({pages, pages + 100}, first);
            plain.resize(pages += 100, first);
        }
        const std::uint64_t looked = random() % pages;
        page_state state = map.at(looked), plain_state = plain[looked];
        consistency::forget_stamps(state), consistency::forget_stamps(plain_state);
        ASSERT_TRUE(state == plain_state) << "round " << round << " page " << looked;
        if (round % 10 != 0) continue;
        most = std::max(most, map.states());
        const auto is_stale = [](const page_state& p) { return p.stale != 0; };
        const page_list found = map.pages_where({0, pages}, is_stale);
        page_list expected;
        for (std::uint64_t page = 0; page < pages; ++page) {
            consistency::forget_stamps(plain[page]);
            ASSERT_TRUE(map.at(page) == plain[page]) << "round " << round << " page " << page;
            if (is_stale(plain[page])) expected.push_back(page);
        }
        ASSERT_EQ(found, expected);
        ASSERT_EQ(map.any({0, pages}, is_stale), !expected.empty());
    }
    EXPECT_GT(most, 100u);
    map.change(page_range{0, pages},
               [](page_state& p) { p.stale = 0, p.seen[1] = p.seen[2] = 1u << 30; });
    EXPECT_TRUE(
        map.pages_where({0, pages}, [](const page_state& p) { return p.stale != 0; }).empty());
    EXPECT_EQ(map.states(), (pages + version_map::chunk_pages - 1) / version_map::chunk_pages);
}

// Ranges of a huge file are kept one after the other: apart, side by side, over each other.
TEST(version_map, keeps_what_was_asked_for_and_no_more) {
    constexpr std::uint64_t huge = std::uint64_t{1} << 50, chunk = version_map::chunk_pages;
    version_map map(huge / page_bytes);
    EXPECT_EQ(map.bytes(), 0u);
    EXPECT_EQ(map.states(), 0u);
    page_state first{}, second{};
    first.present = 1, second.present = 3;
    const auto stale = [](page_state& p) { p.stale = 2; };
    const auto is_stale = [](const page_state& p) { return p.stale != 0; };
    map.change(page_range{0, map.pages()}, stale);
    map.change(page_list{5, 7 * chunk}, stale);
    EXPECT_FALSE(map.any({0, map.pages()}, is_stale));
    EXPECT_TRUE(map.pages_where({100, 200}, is_stale).empty());
    EXPECT_EQ(map.at(7).present, 0u);
    EXPECT_TRUE(map.at(7).view);

    map.keep({10 * chunk + 5, 10 * chunk + 6}, first);
    map.change(page_list{10 * chunk + 5, 11 * chunk}, stale);
    map.keep({20 * chunk, 22 * chunk}, first);
    map.keep({10 * chunk, 10 * chunk + 9}, second);
    EXPECT_EQ(map.states(), 2u + 2u);
    EXPECT_EQ(map.at(10 * chunk).present, 1u) << "it was kept before";
    EXPECT_EQ(map.pages_where({0, 30 * chunk}, is_stale), page_list{10 * chunk + 5});
    map.keep({12 * chunk, 20 * chunk}, second);
    EXPECT_EQ(map.at(11 * chunk).present, 0u);
    EXPECT_EQ(map.at(12 * chunk).present, 3u);
    EXPECT_EQ(map.at(21 * chunk).present, 1u);
    map.change(page_range{10 * chunk, 13 * chunk}, stale);
    map.keep({0, 30 * chunk}, second);
    EXPECT_EQ(map.at(11 * chunk).stale, 0u);
    page_list expected(chunk);
    std::iota(expected.begin(), expected.end(), 10 * chunk);
    for (std::uint64_t page = 12 * chunk; page < 13 * chunk; ++page) expected.push_back(page);
    EXPECT_EQ(map.pages_where({0, 30 * chunk}, is_stale), expected);
    EXPECT_TRUE(map.any({10 * chunk + 1, 10 * chunk + 2}, is_stale));
    EXPECT_FALSE(map.any({11 * chunk, 12 * chunk}, is_stale));
    EXPECT_LT(map.bytes(), 64u << 10);
    map.keep({map.pages() - 1, map.pages() + 3}, first);
    EXPECT_EQ(map.at(map.pages() - 1).present, 1u);
    EXPECT_EQ(map.pages(), huge / page_bytes + 3);
}

// As many different states as there are pages, many times: what no page has any more does not stay.
// What a region does when it leaves must not ask for memory.
TEST(version_map, whole_chunks_are_changed_in_place) {
    constexpr std::uint64_t chunk = version_map::chunk_pages, pages = 3 * chunk + 77;
    page_state first{};
    first.present = 6;
    version_map map(pages, first);
    const page_range part{chunk + 5, 2 * chunk + 9}, rest{3 * chunk + 1, 3 * chunk + 2};
    EXPECT_EQ(map.in_whole_chunks(part).begin, chunk);
    EXPECT_EQ(map.in_whole_chunks(part).end, 3 * chunk);
    EXPECT_EQ(map.in_whole_chunks(rest).end, pages);
    const std::uint64_t states = map.states(), bytes = map.bytes();
    for (const page_range& each : {part, rest})
        map.change(map.in_whole_chunks(each), [](page_state& p) { p.present &= ~2u; });
    EXPECT_EQ(map.states(), states);
    EXPECT_EQ(map.bytes(), bytes);
    EXPECT_EQ(map.at(0).present, 6u);
    EXPECT_EQ(map.at(chunk).present, 4u);
    EXPECT_EQ(map.at(pages - 1).present, 4u);
}

TEST(version_map, states_of_pages_do_not_pile_up) {
    page_state first{};
    first.present = 3;
    version_map map(2 * version_map::chunk_pages, first);
    for (consistency::stamp now = 1; now < 6000; ++now)
        map.change(page_list{now * 7 % 1024}, [&](page_state& p) { p.released[0] = now; });
    EXPECT_LE(map.states(), 4 * version_map::chunk_pages + 2);
    for (std::uint64_t page = 0; page < 1024; ++page)
        EXPECT_GT(map.at(page).released[0], 6000u - 1025u);
}

// A state for each page, and then pages that are alike again.
TEST(version_map, room_for_many_states_goes_back) {
    page_state first{};
    first.present = 3;
    constexpr std::uint64_t pages = 4 * version_map::chunk_pages;
    version_map map(pages, first);
    const std::uint64_t before = map.bytes();
    for (std::uint64_t page = 0; page < pages; ++page)
        map.change(page_list{page}, [&](page_state& p) { p.released[0] = page + 1; });
    EXPECT_GT(map.bytes(), pages * sizeof(page_state));
    EXPECT_LT(map.bytes(), 3 * pages * sizeof(page_state));
    map.change(page_range{0, pages}, [&](page_state& p) { p = first; });
    EXPECT_TRUE(map.pages_where({0, pages}, [](const page_state&) { return false; }).empty());
    EXPECT_LE(map.bytes(), before + pages * sizeof(std::uint16_t));  // the places of the indices
}

// What is written back goes around the bytes that came home, from when they are noted until the
// kernel has the page anew.
TEST(page_masks, what_is_written_back_goes_around_them) {
    const test::temporary_folder folder;
    const std::string path = folder / "f";
    test::write_file(path, std::vector<std::uint8_t>(4 * page_bytes, 1));
    const int fd = ::open(path.c_str(), O_RDWR);
    ASSERT_GE(fd, 0);
    std::vector<std::byte> marks(2 * mark_bytes), fresh(3 * page_bytes, std::byte{2});
    const auto mark = [&](std::size_t page, std::size_t byte) {
        marks[page * mark_bytes + byte / 8] |= static_cast<std::byte>(1u << byte % 8);
    };
    for (const std::size_t byte : {0u, 1u, 7u, 4095u}) mark(0, byte);
    mark(1, 300);
    page_masks masks;
    const int owner = 1, other_owner = 2;
    masks.add(&owner, {1, 3}, marks.data());
    const auto bytes_now = [&] {
        EXPECT_EQ(masks.write_around(fd, fresh.data(), fresh.size(), page_bytes - 10),
                  static_cast<std::int64_t>(fresh.size()));
        std::vector<std::uint8_t> out(4 * page_bytes);
        EXPECT_EQ(::pread(fd, out.data(), out.size(), 0), static_cast<ssize_t>(out.size()));
        return out;
    };
    std::vector<std::uint8_t> expected(4 * page_bytes, 1);
    std::fill_n(expected.begin() + page_bytes - 10, fresh.size(), 2);
    for (const std::size_t at :
         {page_bytes, page_bytes + 1, page_bytes + 7, 2 * page_bytes - 1, 3 * page_bytes + 300})
        expected[at] = 1;
    EXPECT_EQ(bytes_now(), expected);
    masks.forget_settled({0, 4});
    EXPECT_EQ(bytes_now(), expected) << "the changes are not in the file yet";
    masks.settle(&owner, {1});
    masks.forget_settled({0, 4});
    for (const std::size_t at : {page_bytes, page_bytes + 1, page_bytes + 7, 2 * page_bytes - 1})
        expected[at] = 2;
    EXPECT_EQ(bytes_now(), expected);
    masks.add(&other_owner, {3}, marks.data() + mark_bytes);
    masks.remove(&owner, {3});
    EXPECT_EQ(bytes_now(), expected) << "another has it masked as well";
    masks.remove(&other_owner, {3});
    expected[3 * page_bytes + 300] = 2;
    EXPECT_EQ(bytes_now(), expected);
    ::close(fd);
}

// Those of one owner are added to what it has, and with what others have: none of them is written.
TEST(page_masks, of_one_page_are_joined_and_those_added_anew_are_not_settled) {
    const test::temporary_folder folder;
    const std::string path = folder / "f";
    test::write_file(path, std::vector<std::uint8_t>(page_bytes, 1));
    const int fd = ::open(path.c_str(), O_RDWR);
    ASSERT_GE(fd, 0);
    const auto mark = [](std::size_t byte) {
        std::vector<std::byte> out(mark_bytes);
        out[byte / 8] = static_cast<std::byte>(1u << byte % 8);
        return out;
    };
    const std::vector<std::byte> fresh(page_bytes, std::byte{2});
    page_masks masks;
    const int owner = 1, other_owner = 2;
    masks.add(&owner, {0}, mark(10).data());
    masks.settle(&owner, {0});
    masks.add(&owner, {0}, mark(20).data());
    masks.add(&other_owner, {0}, mark(30).data());
    masks.forget_settled({0, 1});
    EXPECT_EQ(masks.write_around(fd, fresh.data(), page_bytes, 0),
              static_cast<std::int64_t>(page_bytes));
    std::vector<std::uint8_t> expected(page_bytes, 2);
    for (const std::size_t byte : {10, 20, 30}) expected[byte] = 1;
    std::vector<std::uint8_t> now(page_bytes);
    EXPECT_EQ(::pread(fd, now.data(), page_bytes, 0), static_cast<ssize_t>(page_bytes));
    EXPECT_EQ(now, expected);
    ::close(fd);
}

// The file has each marked byte, nothing behind its end, and, exactly, no byte that was not marked.
TEST(home_writer, writes_what_is_marked) {
    std::mt19937_64 random(4);
    const test::temporary_folder folder;
    host::environment& env = host::linux_environment();
    for (int round = 0; round < 60; ++round) {
        const std::uint64_t end_bytes =
            5 * page_bytes - (round % 3 == 0 ? 0 : random() % page_bytes);
        std::vector<std::uint8_t> expected = test::pattern(round, end_bytes);
        test::write_file(folder / "home", expected);
        const std::vector<std::uint64_t> numbers{0, 1, 3, 4};
        std::vector<std::byte> bytes(numbers.size() * page_bytes),
            marks(numbers.size() * mark_bytes);
        for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
        const std::uint64_t run = round % 4 == 0 ? 1 : random() % 6000 + 1;
        for (std::uint64_t i = 0, marked = 0; i < bytes.size(); ++i) {
            if (i % run == 0) marked = random() % 2;
            if (marked == 0) continue;
            marks[i / 8] |= static_cast<std::byte>(1u << (i % 8));
            const std::uint64_t at = numbers[i / page_bytes] * page_bytes + i % page_bytes;
            if (at < end_bytes) expected[at] = static_cast<std::uint8_t>(bytes[i]);
        }
        const int found = env.find(-100, folder / "home");
        const int fd = env.open_writing(found);
        ASSERT_GE(fd, 0);
        const written_pages out = write_marked(
            env, fd,
            {numbers, bytes.data(), marks.data(), end_bytes, round % 2 == 0, round % 3 == 0});
        EXPECT_EQ(out.code, 0);
        EXPECT_EQ(out.settled, bytes.size());
        env.close(fd);
        env.close(found);
        std::ifstream in(folder / "home", std::ios::binary);
        const std::vector<std::uint8_t> now{std::istreambuf_iterator<char>(in), {}};
        ASSERT_TRUE(now == expected) << "round " << round;
    }
}

namespace {

using pairs = std::vector<std::pair<std::size_t, std::size_t>>;

// Two pieces on the device, the others in host memory; 1600 pages each.
piece_heat some_pieces(std::size_t count) {
    piece_heat out;
    for (std::size_t i = 0; i < count; ++i) out.add({.pages = 1600, .on_device = i < 2});
    return out;
}

}  // namespace

TEST(piece_heat, brings_what_is_hot_for_what_is_cold) {
    piece_heat all = some_pieces(4);
    all.used(0, 700);
    all.used(2, 400);
    all.used(3, 300);
    EXPECT_EQ(all.next_exchanges(), (pairs{{1, 2}}));  // 3 is not twice as warm as 0
    EXPECT_EQ(all.next_exchanges(), pairs{});          // nothing was used since
}

TEST(piece_heat, leaves_what_is_hardly_warm) {
    piece_heat all = some_pieces(3);
    all.used(2, 199);  // of 1600, an eighth is 200
    EXPECT_EQ(all.next_exchanges(), pairs{});
    all.used(2, 100);  // and half of the 199
    EXPECT_EQ(all.next_exchanges(), pairs{});
    all.used(2, 101);  // and half of the 199
    EXPECT_EQ(all.next_exchanges(), (pairs{{0, 2}}));
}

TEST(piece_heat, does_not_go_back_and_forth) {
    piece_heat all = some_pieces(3);
    for (int round = 0; round < 20; ++round) {
        for (std::size_t i = 0; i < 3; ++i) all.used(i, 1600);
        EXPECT_EQ(all.next_exchanges(), pairs{}) << round;
    }
}

TEST(piece_heat, moves_only_what_may_and_not_all_at_once) {
    piece_heat all;
    for (std::size_t i = 0; i < 40; ++i)
        all.add({.pages = 1600, .on_device = i < 20, .may_move = i != 0 && i != 39});
    for (std::size_t i = 20; i < 40; ++i) all.used(i, 1000 + i);
    const pairs chosen = all.next_exchanges();
    ASSERT_EQ(chosen.size(), piece_heat::most_exchanges);
    for (std::size_t i = 0; i < chosen.size(); ++i)
        EXPECT_EQ(chosen[i], (std::pair<std::size_t, std::size_t>{i + 1, 38 - i}));
}

TEST(helpers, each_number_is_done_once_and_all_have_ended) {
    helpers some;
    for (unsigned round = 0; round < 2000; ++round) {
        const unsigned count = round % 9 + 1;
        std::vector<std::atomic<unsigned>> times(count);
        std::atomic<unsigned> inside{0};
        std::atomic<int> left{40};  // pieces of work; below 1 there are none
        some.run(count, [&](unsigned i) {
            ++inside;
            ++times.at(i);
            while (left.fetch_sub(1) > 1) {
            }
            --inside;
        });
        ASSERT_EQ(inside.load(), 0u) << round;
        ASSERT_EQ(times[0].load(), 1u);
        for (const auto& runs : times) ASSERT_LE(runs.load(), 1u);
    }
}

}  // namespace penstock::region
