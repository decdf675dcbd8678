// Orders to write pages of one file, from several threads: which calls they become, and what each
// is answered.
#include "files/file_writer.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "fault/plain_environment.hpp"
#include "files/marked_runs.hpp"

namespace penstock::host {

namespace {

constexpr std::uint64_t page = 4096;

// A file in memory that counts how many threads write to it at a time.
class memory_file : public fault::no_files {
public:
    std::vector<std::byte> bytes = std::vector<std::byte>(640 * page);
    std::vector<std::uint64_t> offsets;          // of the calls, as they came
    std::uint64_t fails_at = ~std::uint64_t{0};  // the call that reaches this offset has no room
    std::uint64_t has_room_from = ~std::uint64_t{0};  // one from this offset on has room again
    std::set<std::uint64_t> without_room;             // pages: a call stops in front of one
    std::uint64_t longest = ~std::uint64_t{0};        // a call writes no more
    std::function<void()> meanwhile = [] {};          // while a call is under way
    std::atomic<int> inside{0}, most_inside{0};
    // The first call stays inside until there is another, for a second at most.
    std::atomic<bool> first_waits{false};

    std::int64_t write(int, const memory_piece* pieces, std::size_t count,
                       std::uint64_t offset) override {
        const int now = ++inside;
        for (int seen = most_inside; seen < now && !most_inside.compare_exchange_weak(seen, now);) {
        }
        if (first_waits.exchange(false))
            for (int round = 0; round < 1000 && most_inside < 2; ++round)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
        meanwhile();
        std::uint64_t done = 0;
        {
            std::lock_guard lock(mutex_);
            offsets.push_back(offset);
            for (std::size_t i = 0; i < count && done < longest; ++i) {
                const std::uint64_t part = std::min(pieces[i].bytes, longest - done);
                if (offset + done + part > fails_at && offset + done < has_room_from) break;
                if (without_room.contains((offset + done) / page)) break;
                std::memcpy(bytes.data() + offset + done, pieces[i].from, part);
                done += part;
            }
        }
        --inside;
        return done == 0 ? -ENOSPC : static_cast<std::int64_t>(done);
    }

private:
    std::mutex mutex_;
};

// A page as it lies in the staging area of a slot: its bytes, and a mark for each.
struct staged_page {
    std::vector<std::byte> memory = std::vector<std::byte>(page + page / 8);
    engine::ring_reply reply{};
    std::uint64_t number;

    staged_page(std::uint64_t n, std::byte value) : number(n) {
        std::memset(memory.data(), static_cast<int>(value), page);
    }
    void mark(std::uint64_t begin, std::uint64_t end) {
        for (std::uint64_t i = begin; i < end; ++i) memory[page + i / 8] |= std::byte{1} << (i % 8);
    }
    write_order order(bool whole) { return {memory.data(), number * page, whole, &reply, number}; }
    [[nodiscard]] bool answered() const { return reply.completed == number + 1; }
};

}  // namespace

class file_writing : public testing::Test {
protected:
    memory_file file;
    host::hub shared;
    file_writer writer{file, shared, std::make_shared<shared_handle>(file, 5),
                       page, {0, 1}, "somewhere/file"};
    write_counters counters;
    std::string said;
    write_error_log write_errors{[this](const std::string& line) { said = line; }};
    write_scratch scratch;
    std::deque<staged_page> pages;

    void put(std::uint64_t number, char value) {
        pages.emplace_back(number, std::byte{static_cast<unsigned char>(value)});
        writer.put({pages.back().order(true)});
    }
    [[nodiscard]] char at(std::uint64_t offset) const {
        return static_cast<char>(file.bytes[offset]);
    }
};

TEST_F(file_writing, neighbours_go_in_one_call_whatever_order_they_came_in) {
    for (const std::uint64_t number : {5, 3, 9, 4, 10})
        put(number, static_cast<char>('a' + number));
    EXPECT_FALSE(writer.run(scratch, counters, write_errors)) << "nothing is left";
    EXPECT_EQ(file.offsets, (std::vector<std::uint64_t>{3 * page, 9 * page}));
    for (const staged_page& entry : pages) {
        EXPECT_TRUE(entry.answered());
        EXPECT_EQ(entry.reply.result, 0);
        EXPECT_EQ(at(entry.number * page + page - 1), static_cast<char>('a' + entry.number));
    }
    EXPECT_EQ(counters.bytes, 5 * page);
    EXPECT_FALSE(writer.run(scratch, counters, write_errors)) << "nothing is left";
    EXPECT_EQ(counters.writes, 2u) << "there was nothing left";
}

// Beside a look at each bit: pages and parts of them, with marks from none to all.
TEST(marked_runs, are_those_of_the_bits) {
    using runs = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
    std::mt19937_64 random(3);
    for (int round = 0; round < 400; ++round) {
        std::vector<std::uint64_t> words(64);
        for (std::uint64_t& word : words)
            word = round % 5 == 0   ? -(random() % 2)
                   : round % 5 == 1 ? 1ull << random() % 64
                                    : random();
        const std::uint64_t bytes = round % 2 == 0 ? 4096 : random() % 4097;
        runs expected, got;
        for (std::uint64_t i = 0, before = 0; i < bytes; ++i) {
            const std::uint64_t marked = words[i / 64] >> i % 64 & 1;
            if (marked != 0 && before == 0) expected.emplace_back(i, i);
            if (marked != 0) expected.back().second = i + 1;
            before = marked;
        }
        const auto* const marks = reinterpret_cast<const std::byte*>(words.data());
        EXPECT_TRUE(for_marked_runs(marks, bytes, [&](std::uint64_t begin, std::uint64_t end) {
            got.emplace_back(begin, end);
            return true;
        }));
        ASSERT_EQ(got, expected) << "round " << round;
        std::size_t seen = 0;
        const bool all =
            for_marked_runs(marks, bytes, [&](std::uint64_t, std::uint64_t) { return ++seen < 3; });
        ASSERT_EQ(all, expected.size() < 3);
        ASSERT_EQ(seen, std::min<std::size_t>(3, expected.size()));
    }
}

TEST_F(file_writing, marked_bytes_and_no_others) {
    pages.emplace_back(2, std::byte{'x'});
    pages.back().mark(0, 3);
    pages.back().mark(100, 200);
    pages.emplace_back(3, std::byte{'y'});  // no marks at all: nothing to write, and an answer
    writer.put({pages[0].order(false), pages[1].order(false)});
    EXPECT_FALSE(writer.run(scratch, counters, write_errors)) << "nothing is left";
    EXPECT_EQ(file.offsets, (std::vector<std::uint64_t>{2 * page, 2 * page + 100}));
    EXPECT_EQ(counters.bytes, 103u);
    EXPECT_TRUE(pages[0].answered());
    EXPECT_TRUE(pages[1].answered());
    EXPECT_EQ(at(2 * page + 3), 0);
    EXPECT_EQ(at(2 * page + 199), 'x');
}

TEST_F(file_writing, short_writes_go_on_where_they_stopped) {
    file.longest = page + 100;
    for (std::uint64_t number = 0; number < 4; ++number)
        put(number, static_cast<char>('a' + number));
    EXPECT_FALSE(writer.run(scratch, counters, write_errors)) << "nothing is left";
    for (std::uint64_t number = 0; number < 4; ++number) {
        EXPECT_EQ(pages[number].reply.result, 0);
        EXPECT_EQ(at(number * page), static_cast<char>('a' + number));
        EXPECT_EQ(at(number * page + page - 1), static_cast<char>('a' + number));
    }
    EXPECT_EQ(counters.bytes, 4 * page);
}

// What was written before the file was full is answered so; the rest has the error, which names the
// file and the bytes.
TEST_F(file_writing, a_full_file_fails_what_did_not_fit) {
    file.fails_at = 6 * page;
    for (std::uint64_t number = 4; number < 8; ++number) put(number, 'z');
    EXPECT_FALSE(writer.run(scratch, counters, write_errors)) << "nothing is left";
    for (const staged_page& entry : pages) {
        EXPECT_TRUE(entry.answered());
        EXPECT_EQ(entry.reply.result, entry.number < 6 ? 0 : -ENOSPC) << entry.number;
    }
    EXPECT_EQ(counters.errors, 2u);
    EXPECT_NE(said.find("somewhere/file"), std::string::npos) << said;
    EXPECT_NE(said.find(std::to_string(6 * page)), std::string::npos) << said;
}

// The call before stopped within a page, and the rest of that page finds no room.
TEST_F(file_writing, behind_a_page_that_fits_in_part_every_byte_is_written) {
    file.longest = 100;
    file.fails_at = 4 * page + 100;
    file.has_room_from = 5 * page;
    put(4, 'a');
    put(5, 'b');
    EXPECT_FALSE(writer.run(scratch, counters, write_errors)) << "nothing is left";
    EXPECT_EQ(pages[0].reply.result, -ENOSPC);
    EXPECT_EQ(pages[1].reply.result, 0);
    for (std::uint64_t i = 0; i < page; ++i) ASSERT_EQ(at(5 * page + i), 'b') << i;
}

// Each page without room costs a call, so after so many one after the other the rest is not tried;
// a page that is written between two of them says that there is room.
TEST_F(file_writing, on_a_full_disk_pages_are_tried_until_too_many_fail_one_after_the_other) {
    constexpr std::uint64_t most_failures = 16;
    for (std::uint64_t number = 0; number < 3 * most_failures; ++number) {
        put(number, 'r');
        if (number % most_failures != most_failures - 1) file.without_room.insert(number);
    }
    EXPECT_FALSE(writer.run(scratch, counters, write_errors)) << "nothing is left";
    for (const staged_page& entry : pages) {
        EXPECT_TRUE(entry.answered());
        EXPECT_EQ(entry.reply.result, file.without_room.contains(entry.number) ? -ENOSPC : 0)
            << entry.number;
    }
    EXPECT_EQ(file.offsets.size(), 3 * most_failures) << "one call for each page";
    pages.clear();
    file.offsets.clear();
    for (std::uint64_t number = 100; number < 102 + most_failures; ++number) {
        put(number, 'r');
        if (number < 101 + most_failures) file.without_room.insert(number);
    }
    EXPECT_FALSE(writer.run(scratch, counters, write_errors)) << "nothing is left";
    for (const staged_page& entry : pages) {
        EXPECT_TRUE(entry.answered());
        EXPECT_EQ(entry.reply.result, -ENOSPC) << entry.number;
    }
    EXPECT_EQ(file.offsets.size(), most_failures) << "the last page has room, and is not tried";
}

// What the file is known to have: a cut takes away what lies behind it, and beside a cut nothing
// is known, since a write may have come before it.
TEST_F(file_writing, what_is_stored_is_not_known_beside_a_cut) {
    const auto write_page = [&](std::uint64_t number) {
        put(number, 's');
        EXPECT_FALSE(writer.run(scratch, counters, write_errors));
        EXPECT_EQ(pages.back().reply.result, 0);
    };
    write_page(3);
    EXPECT_EQ(writer.stored().bytes, 4 * page);
    write_page(1);
    EXPECT_EQ(writer.stored().bytes, 4 * page);
    const std::uint64_t cuts = writer.stored().cuts;
    writer.begin_cut();
    EXPECT_EQ(writer.stored().bytes, 0u);
    EXPECT_NE(writer.stored().cuts, cuts);
    write_page(9);
    writer.begin_cut();
    writer.end_cut(UINT64_MAX);
    EXPECT_EQ(writer.stored().bytes, 0u) << "the other one goes on";
    write_page(10);
    writer.end_cut(6 * page);
    EXPECT_EQ(writer.stored().bytes, 4 * page) << "a longer file has zeros there";
    writer.begin_cut();
    writer.end_cut(2 * page);
    EXPECT_EQ(writer.stored().bytes, 2 * page);
    // A cut that begins and ends within a write; one that begins in it; and one that ends in it.
    file.meanwhile = [&] {
        writer.begin_cut();
        writer.end_cut(2 * page);
    };
    write_page(5);
    EXPECT_EQ(writer.stored().bytes, 2 * page);
    file.meanwhile = [&] { writer.begin_cut(); };
    write_page(6);
    file.meanwhile = [&] { writer.end_cut(2 * page); };
    write_page(7);
    file.meanwhile = [] {};
    EXPECT_EQ(writer.stored().bytes, 2 * page);
    write_page(8);
    EXPECT_EQ(writer.stored().bytes, 9 * page);
}

// Too few for a second thread, and the first has taken its list already.
TEST_F(file_writing, orders_that_come_meanwhile_are_left_to_the_thread_that_writes) {
    write_scratch other_scratch;
    bool came = false;
    file.meanwhile = [&] {
        if (std::exchange(came, true)) return;
        put(7, 'b');
        EXPECT_FALSE(writer.run(other_scratch, counters, write_errors));
    };
    put(3, 'a');
    EXPECT_TRUE(writer.run(scratch, counters, write_errors)) << "it has to come again";
    EXPECT_FALSE(pages.back().answered());
    EXPECT_FALSE(writer.run(scratch, counters, write_errors));
    for (const staged_page& entry : pages) EXPECT_TRUE(entry.answered()) << entry.number;
    EXPECT_EQ(at(7 * page), 'b');
}

// Threads that put pages and write: every page is written and answered once, and no more of them
// write at a time than may.
TEST_F(file_writing, many_threads) {
    constexpr std::uint64_t threads = 6, each = 10;
    for (std::uint64_t number = 0; number < threads * each; ++number)
        pages.emplace_back(number, std::byte{static_cast<unsigned char>('A' + number % 26)});
    std::vector<std::thread> all;
    for (std::uint64_t t = 0; t < threads; ++t)
        all.emplace_back([&, t] {
            write_scratch own_scratch;
            for (std::uint64_t i = 0; i < each; ++i) {
                writer.put({pages[i * threads + t].order(true)});
                while (writer.run(own_scratch, counters, write_errors)) {
                }
            }
        });
    for (std::thread& thread : all) thread.join();
    for (const staged_page& entry : pages) {
        EXPECT_TRUE(entry.answered());
        EXPECT_EQ(at(entry.number * page), static_cast<char>('A' + entry.number % 26));
    }
    EXPECT_EQ(counters.bytes, threads * each * page) << "nothing is written twice";
    EXPECT_LE(file.most_inside.load(), static_cast<int>(file_writer::most_threads));
}

// While one thread writes, another leaves a short list to grow, and takes a long one.
TEST_F(file_writing, a_second_thread_takes_a_long_list_only) {
    constexpr std::uint64_t enough = file_writer::long_list_bytes / page;
    file.first_waits = true;
    put(0, 'a');
    std::thread first([&] {
        write_scratch own_scratch;
        while (writer.run(own_scratch, counters, write_errors)) {
        }
    });
    while (file.inside == 0) std::this_thread::yield();
    put(2, 'b');
    EXPECT_FALSE(writer.run(scratch, counters, write_errors));
    EXPECT_FALSE(pages.back().answered()) << "a short list is left to the thread that writes";
    for (std::uint64_t number = 3; number < 3 + enough; ++number) put(number, 'c');
    while (writer.run(scratch, counters, write_errors)) {
    }
    first.join();
    EXPECT_EQ(file.most_inside, 2) << "the long list waited for the thread that wrote";
    for (const staged_page& entry : pages) EXPECT_TRUE(entry.answered()) << entry.number;
    EXPECT_EQ(counters.bytes, pages.size() * page);
}

}  // namespace penstock::host
