// Rows of tables on CPU threads that come from mappings of their files: windows of rows. Programs
// cut and write the files meanwhile, and the process lives.
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <stop_token>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "fault/faulty_environment.hpp"
#include "penstock/table.hpp"
#include "os/anonymous_memory.hpp"
#include "service/window_visits.hpp"
#include "table/row_batches.hpp"
#include "unit/first_store.hpp"
#include "unit/hand_cache.hpp"
#include "unit/parts_in_memory.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

class mapped_rows : public testing::Test {
protected:
    static constexpr std::uint64_t row = 512, rows_of_file = (5u << 20) / row;

    // One file of 5 MiB and a few bytes, so that rows straddle pages and chunks.
    void make(std::uint64_t first_byte = 8) {
        bytes = pattern(3, first_byte + rows_of_file * row);
        write_file(path, bytes);
        in_memory.bring_in(path);
        layout = {.row_bytes = row};
        layout.pieces.push_back({path, first_byte, rows_of_file});
        o = small_options(folder);
        o.log = [this](const std::string& line) { log += line + "\n"; };
        o.worker_threads = 3;
        env.allow_leases();
        hooks.env = &env;
        rt = make_runtime(o, hooks);
        const status s = table::make(*rt, layout, {}, rows);
        ASSERT_TRUE(s.ok()) << s.message;
        for (std::uint64_t i = 0; i < rows_of_file; ++i)
            every.push_back(static_cast<std::int32_t>(mix64(i) % rows_of_file));
        every.push_back(static_cast<std::int32_t>(rows_of_file - 1));
    }
    void open() {
        const std::int64_t inside = rows->open_windows();
        if (inside == -EOPNOTSUPP) GTEST_SKIP() << "no leases on this file system";
        ASSERT_EQ(inside, static_cast<std::int64_t>(rows_of_file * row));
    }
    // 0 or the code of the call.
    int gather() {
        got.assign(every.size() * row, 0xa5);
        return rows->gather(every.data(), every.size(), got.data());
    }
    [[nodiscard]] bool is_right(std::size_t place) const {
        const auto number = static_cast<std::uint64_t>(every[place]);
        return std::memcmp(&got[place * row], &bytes[layout.pieces[0].first_byte + number * row],
                           row) == 0;
    }
    void expect_all_right() {
        ASSERT_EQ(gather(), 0);
        for (std::size_t i = 0; i < every.size(); ++i) ASSERT_TRUE(is_right(i)) << every[i];
        const status s = rows->check();
        EXPECT_TRUE(s.ok()) << s.message;
    }
    // System calls that read a file, in the work of `body`.
    template <typename Body>
    std::uint64_t reads_in(const Body& body) {
        env.set({.calls = fault::call_read});
        body();
        const std::uint64_t calls = env.calls();
        env.clear();
        return calls;
    }
    // As another program would.
    void overwrite(std::uint64_t seed) {
        bytes = pattern(seed, bytes.size());
        const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
        ASSERT_GE(file, 0);
        EXPECT_EQ(open_files(), 0u) << "the program waited for the window's end";
        ASSERT_EQ(::pwrite(file, bytes.data(), bytes.size(), 0),
                  static_cast<ssize_t>(bytes.size()));
        ::close(file);
    }
    [[nodiscard]] std::size_t open_files() const {
        return rt->state().windows_of_rows.set->open_files();
    }

    const temporary_folder folder;
    const std::string path = folder / "data";
    parts_in_memory in_memory;
    std::vector<std::uint8_t> bytes, got;
    std::string log;
    fault::faulty_environment env;
    host::runtime_hooks hooks;
    options o;
    table_layout layout;
    std::unique_ptr<runtime> rt;
    std::unique_ptr<table> rows;
    std::vector<std::int32_t> every;
};

}  // namespace

TEST_F(mapped_rows, a_file_in_memory_is_read_without_system_calls) {
    make();
    open();
    EXPECT_EQ(reads_in([&] { expect_all_right(); }), 0u);
    const statistics s = rt->stats();
    EXPECT_EQ(s.window_bytes, bytes.size());
    EXPECT_GE(s.through_reads, every.size());
    EXPECT_EQ(s.misses, 0u) << "both copies would lie in the same memory";
    rt->close_windows();
    EXPECT_EQ(rt->stats().window_bytes, 0u);
    EXPECT_GT(reads_in([&] { expect_all_right(); }), 0u);
}

TEST_F(mapped_rows, windows_open_by_themselves_once_the_rows_have_paid_for_them) {
    make();
    if (rows->open_windows() < 0) GTEST_SKIP() << "no leases on this file system";
    ASSERT_TRUE(table::make(*rt, layout, {}, rows).ok());  // the one before closes its windows
    ASSERT_EQ(open_files(), 0u);
    std::uint8_t one[row];
    ASSERT_EQ(rows->gather(every.data(), 1, one), 0);
    EXPECT_EQ(open_files(), 0u) << "a look at the file costs more than a row";
    expect_all_right();
    EXPECT_EQ(open_files(), 1u);
    EXPECT_EQ(reads_in([&] { expect_all_right(); }), 0u);
}

TEST_F(mapped_rows, rows_in_windows_are_not_wished_for) {
    make();
    open();
    const std::uint64_t requests = rt->stats().requests;
    ASSERT_EQ(rows->will_need(every.data(), every.size()), 0);
    EXPECT_EQ(rt->stats().requests, requests);
}

TEST_F(mapped_rows, pages_in_the_cache_are_hits) {
    make();
    open();
    ASSERT_EQ(rows->prefetch(every.data(), 20), 0);
    const statistics before = rt->stats();
    std::vector<std::uint8_t> few(20 * row);
    ASSERT_EQ(rows->gather(every.data(), 20, few.data()), 0);
    EXPECT_EQ(rt->stats().through_reads, before.through_reads);
    EXPECT_GE(rt->stats().hits, before.hits + 20);
    for (std::size_t i = 0; i < 20; ++i)
        EXPECT_EQ(
            std::memcmp(&few[i * row], &bytes[8 + static_cast<std::size_t>(every[i]) * row], row),
            0);
}

TEST_F(mapped_rows, a_file_that_is_cut_gives_no_zeros_without_a_note) {
    make(0);
    open();
    expect_all_right();
    const std::uint64_t left = rows_of_file / 2;
    ASSERT_EQ(::truncate(path.c_str(), static_cast<off_t>(left * row)), 0);
    EXPECT_EQ(open_files(), 0u) << "the cut waited for the window's end";
    ASSERT_EQ(gather(), 0);
    for (std::size_t i = 0; i < every.size(); ++i) {
        if (static_cast<std::uint64_t>(every[i]) < left) {
            ASSERT_TRUE(is_right(i)) << every[i];
        } else {
            ASSERT_EQ(got[i * row], 0);
            ASSERT_EQ(std::memcmp(&got[i * row], &got[i * row] + 1, row - 1), 0);
        }
    }
    const status s = rows->check();
    EXPECT_EQ(s.code, -ESTALE) << s.message;
    EXPECT_LE(rows->open_windows(), 0) << "it is another file by now";
}

// A row is the file's at some moment: its bytes, zeros of the part that was extended, or cut off.
TEST_F(mapped_rows, a_file_that_is_cut_and_extended_all_the_while_kills_no_thread) {
    make(0);
    open();
    std::uint64_t cuts = 0;
    std::jthread cutter([&](const std::stop_token& stop) {
        for (; !stop.stop_requested(); ++cuts) {
            const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
            if (file < 0) break;
            const std::size_t kept = mix64(cuts) % bytes.size();
            if (::ftruncate(file, static_cast<off_t>(kept)) != 0 ||
                ::ftruncate(file, static_cast<off_t>(bytes.size())) != 0 ||
                ::pwrite(file, &bytes[kept], bytes.size() - kept, static_cast<off_t>(kept)) !=
                    static_cast<ssize_t>(bytes.size() - kept))
                ADD_FAILURE() << "the file could not be written";
            ::close(file);
            std::this_thread::sleep_for(std::chrono::milliseconds(3));
        }
    });
    std::uint64_t from_windows = 0;
    for (int round = 0; round < 60; ++round) {
        if (rows->open_windows() > 0) ++from_windows;
        ASSERT_EQ(gather(), 0);
        for (std::size_t i = 0; i < every.size(); ++i) {
            if (is_right(i)) continue;  // most are, and under a sanitizer each byte costs
            const std::uint8_t* const right = &bytes[static_cast<std::size_t>(every[i]) * row];
            std::size_t wrong = 0;
            for (std::size_t k = 0; k < row; ++k)
                wrong += got[i * row + k] != right[k] && got[i * row + k] != 0 ? 1 : 0;
            ASSERT_EQ(wrong, 0u) << every[i];
        }
        const int code = rows->check().code;
        ASSERT_TRUE(code == 0 || code == -ESTALE) << error_text(code);
    }
    cutter.request_stop();
    cutter.join();
    EXPECT_GT(cuts, 0u);
    EXPECT_GT(from_windows, 0u);
    // The cache may have pages of then.
    rows.reset();
    let_files_settle();
    ASSERT_TRUE(table::make(*rt, layout, {}, rows).ok());
    expect_all_right();
}

// No page of it is in the cache, which would keep its bytes until the file is opened anew.
TEST_F(mapped_rows, what_a_program_wrote_is_seen_by_the_next_gather) {
    make();
    open();
    expect_all_right();
    for (std::uint64_t round = 10; round < 13; ++round) {
        overwrite(round);
        ASSERT_GT(rows->open_windows(), 0);
        EXPECT_EQ(reads_in([&] { expect_all_right(); }), 0u);
    }
}

TEST_F(mapped_rows, what_a_program_wrote_is_seen_by_a_table_that_is_made_afterwards) {
    make();
    open();
    for (std::uint64_t round = 10; round < 13; ++round) {
        ASSERT_EQ(rows->prefetch(every.data(), 50), 0);
        overwrite(round);
        rows.reset();
        let_files_settle();
        ASSERT_TRUE(table::make(*rt, layout, {}, rows).ok());
        ASSERT_GT(rows->open_windows(), 0);
        expect_all_right();
    }
}

TEST_F(mapped_rows, a_file_without_a_lease_is_read_by_system_calls_and_the_log_says_so_once) {
    make();
    open();
    const int writer = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(writer, 0);
    EXPECT_EQ(rows->open_windows(), -EOPNOTSUPP);
    EXPECT_EQ(rows->open_windows(), -EOPNOTSUPP);
    EXPECT_EQ(rt->stats().window_bytes, 0u);
    const std::string said = "no windows: a file has no read lease";
    ASSERT_NE(log.find(said), std::string::npos) << log;
    EXPECT_EQ(log.find(said), log.rfind(said)) << log;
    EXPECT_GT(reads_in([&] { expect_all_right(); }), 0u);
    ASSERT_EQ(::ftruncate(writer, 100), 0);
    ASSERT_EQ(gather(), 0);
    EXPECT_EQ(rows->check().code, -ESTALE);
    ::close(writer);
}

TEST_F(mapped_rows, a_table_closes_the_windows_that_no_other_table_has) {
    make();
    open();
    std::unique_ptr<table> other;
    ASSERT_TRUE(table::make(*rt, layout, {}, other).ok());
    ASSERT_GT(other->open_windows(), 0);
    rows.reset();
    EXPECT_EQ(open_files(), 1u);
    EXPECT_EQ(rt->stats().window_bytes, bytes.size()) << "they share one mapping";
    rows = std::move(other);
    EXPECT_EQ(reads_in([&] { expect_all_right(); }), 0u);
    rows.reset();
    EXPECT_EQ(open_files(), 0u);
    EXPECT_EQ(rt->stats().window_bytes, 0u);
    const int file = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    EXPECT_GE(file, 0) << "a lease is left";
    ::close(file);
}

TEST_F(mapped_rows, a_budget_of_nothing_means_system_calls) {
    make();
    rows.reset();
    o.window_bytes = 0;
    rt = make_runtime(o, hooks);
    ASSERT_TRUE(table::make(*rt, layout, {}, rows).ok());
    EXPECT_EQ(rows->open_windows(), -EOPNOTSUPP);
    EXPECT_GT(reads_in([&] { expect_all_right(); }), 0u);
    EXPECT_EQ(rt->stats().window_bytes, 0u);
}

// A child has the handle of the lease too, and lives on.
TEST_F(mapped_rows, a_writer_does_not_wait_for_a_child_of_fork) {
    make();
    open();
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        for (;;) ::pause();
    }
    const auto began = std::chrono::steady_clock::now();
    const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    EXPECT_GE(file, 0);
    ::close(file);
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(40))
        << "the system's lease-break-time is 45 s";
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
}

// As those of FUSE, files of /proc change without this kernel's leases, and it grants them all the
// same.
TEST(leases, are_taken_where_the_kernel_sees_every_change) {
    const int file = ::open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ASSERT_GE(file, 0);
    EXPECT_EQ(host::linux_environment().take_lease(file), -EINVAL);
    ::close(file);
    const temporary_folder folder;
    write_file(folder / "data", pattern(1, 100));
    const int own = ::open((folder / "data").c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_GE(own, 0);
    const int code = host::linux_environment().take_lease(own);
    EXPECT_TRUE(code == 0 || code == -EINVAL) << error_text(code);
    EXPECT_EQ(host::linux_environment().is_lease_awaited(own), code != 0);
    host::linux_environment().end_lease(own);
    EXPECT_TRUE(host::linux_environment().is_lease_awaited(own)) << "it has none";
    ::close(own);
}

// A row of five chunks: the first and the last lie where one mapping of the file would have them,
// and between them lies something else.
TEST(row_batches, a_row_of_many_chunks_lies_in_one_mapping_or_is_left) {
    constexpr std::uint64_t chunk = engine::window_chunk_bytes, chunks = 5;
    host::anonymous_memory memory;
    ASSERT_TRUE(memory.take(chunks * chunk));
    for (std::uint64_t i = 0; i < chunks; ++i)
        std::memset(memory.at(i * chunk), static_cast<int>(i + 1), chunk);
    const auto address = reinterpret_cast<std::uintptr_t>(memory.at(0));
    hand_cache c;
    c.view.page_shift = engine::window_chunk_shift;
    engine::file_handle file = c.add_file(2, 8, chunks);
    std::uint64_t windows[hand_cache::files] = {}, chunk_words[chunks] = {};
    c.view.windows = windows;
    c.view.window_chunks = chunk_words;
    windows[2] = engine::make_window_word(1, 0);
    file.size_bytes = c.file_records[2].size_bytes = chunks * chunk;

    const std::int64_t number = 0;
    std::vector<std::byte> got(chunks * chunk - 200);
    host::table_job job{};
    job.table.only = {file, 100, 0, 1, 0};
    job.table.rows = job.table.run_count = job.table.rows_per_run = 1;
    job.table.row_bytes = job.table.stride_bytes = job.stride_bytes = got.size();
    job.list = {&number, engine::number_type::int64, false, 0};
    job.count = 1;
    job.memory = got.data();
    const auto rows_left = [&](std::uint64_t other, std::uint64_t place) {
        for (std::uint64_t i = 0; i < chunks; ++i) chunk_words[i] = address + i * chunk;
        if (other < chunks) chunk_words[other] = place;
        std::uint32_t left = 0;
        host::row_batches::copy(c.view, job, 0, 1, &left);
        return left;
    };
    EXPECT_EQ(rows_left(chunks, 0), 0u);
    EXPECT_EQ(std::memcmp(got.data(), memory.at(100), got.size()), 0);
    for (std::uint64_t i = 0; i < chunks; ++i) {
        EXPECT_EQ(rows_left(i, 0), 1u) << "chunk " << i << " has no window";
        EXPECT_EQ(rows_left(i, address + (i == 0 ? 1 : 0) * chunk), 1u)
            << "chunk " << i << " lies elsewhere";
    }
}

namespace {

// Four rows of two files, of two pages each: 1 and 2 of the first file, 1 and 7 of the second, in
// turns. The place of the last is met (first_store): by then all were looked at and the others are
// copied, and none was looked at again.
class rows_by_hand : public testing::Test {
protected:
    static constexpr std::uint64_t row = 1024, rows_of_file = 8, first_slot = 2, second_slot = 3,
                                   first_table = 8, second_table = 32, count = 4,
                                   page_bytes = 1u << hand_cache::page_shift;
    static constexpr std::uint32_t of_first = 0b0101, of_second = 0b1010;

    rows_by_hand() : bytes(pattern(5, 2 * rows_of_file * row)) {
        runs[0] = {c.add_file(first_slot, first_table, 2 * rows_of_file), 0, 0, rows_of_file, 0};
        runs[1] = {c.add_file(second_slot, second_table, 2 * rows_of_file), 0, rows_of_file,
                   rows_of_file, 0};
        c.view.windows = windows;
        c.view.window_chunks = chunks;
        windows[first_slot] = engine::make_window_word(1, 0);
        windows[second_slot] = engine::make_window_word(1, 1);
        for (std::uint64_t i : {0, 1})
            chunks[i] = reinterpret_cast<std::uintptr_t>(&bytes[i * rows_of_file * row]);
        job.table.runs = runs;
        job.table.only = runs[0];
        job.table.rows = 2 * rows_of_file;
        job.table.rows_per_run = rows_of_file;
        job.table.run_count = 2;
        job.table.row_bytes = job.table.stride_bytes = job.stride_bytes = row;
        job.list = {numbers, engine::number_type::int32, false, 0};
        job.count = count;
    }
    // A bit for each row that was left, where `change` comes after the copies.
    std::uint32_t left_after(const std::function<void()>& change) {
        const first_store last([&](const void*) { change(); });
        job.memory = last.memory() - (count - 1) * row;
        std::uint32_t left = 0;
        host::row_batches::copy(c.view, job, 0, count, &left);
        EXPECT_TRUE(last.was_met() || (left & 0b1000) != 0);
        for (std::uint64_t i = 0; i < count; ++i) {
            if ((left >> i & 1) != 0) continue;
            const auto number = static_cast<std::uint64_t>(numbers[i]);
            EXPECT_EQ(std::memcmp(job.memory + i * row, &bytes[number * row], job.table.row_bytes),
                      0)
                << i;
        }
        return left;
    }

    template <typename T>
    static void put(T& word, std::uint64_t value) {
        atomic_store<order::relaxed>(&word, static_cast<T>(value));
    }

    hand_cache c;
    std::vector<std::uint8_t> bytes;
    std::uint64_t windows[hand_cache::files] = {}, chunks[2] = {};
    engine::write_record writes[hand_cache::files] = {};
    engine::table_run runs[2] = {};
    std::int32_t numbers[count] = {1, 9, 2, 15};
    host::table_job job{};
};

}  // namespace

TEST_F(rows_by_hand, are_delivered_where_nothing_changes) {
    EXPECT_EQ(left_after([] {}), 0u);
    EXPECT_EQ(c.counted(engine::count_through_reads), 2 * count);
}

TEST_F(rows_by_hand, whose_window_ends_meanwhile_are_left) {
    EXPECT_EQ(left_after([&] { put(windows[first_slot], 0); }), of_first);
    EXPECT_EQ(left_after([] {}), of_first) << "it has none now";
    const std::uint64_t of_a_later_life = engine::make_window_word(2, 1);
    EXPECT_EQ(left_after([&] { put(windows[second_slot], of_a_later_life); }),
              of_first | of_second);
}

TEST_F(rows_by_hand, of_which_a_page_enters_meanwhile_are_left) {
    struct {
        std::uint64_t word;
        std::uint32_t left;
    } const cases[] = {{first_table + 2, 0b0001},   {first_table + 3, 0b0001},
                       {second_table + 2, 0b0010},  {first_table + 5, 0b0100},
                       {second_table + 15, 0b1000}, {first_table + 6, 0}};
    // It is there, it is on its way, or it was there and has gone again.
    for (const engine::page_word later : {engine::state_valid | 3, engine::state_loading | 3,
                                          engine::state_absent | engine::generation_one})
        for (const auto& [word, left] : cases) {
            EXPECT_EQ(left_after([&] { put(c.page_words[word], later); }), left)
                << word << " " << later;
            c.page_words[word] = 0;
        }
}

TEST_F(rows_by_hand, of_a_leaf_that_comes_meanwhile_are_left) {
    runs[1].file.two_level = true;
    EXPECT_EQ(left_after([] {}), 0u);
    EXPECT_EQ(left_after([&] { put(c.page_words[second_table], 41); }), 0b0010u);
    EXPECT_EQ(left_after([] {}), 0u) << "its pages are absent";
}

TEST_F(rows_by_hand, of_a_page_that_leaves_the_cache_meanwhile_are_left) {
    if (!lane::copies_race()) GTEST_SKIP() << "no row comes from a page without a pin";
    job.table.row_bytes = page_bytes;
    c.place(first_slot, first_table + 2, 5);
    std::memcpy(c.view.frame_address(5), &bytes[row], page_bytes);
    EXPECT_EQ(left_after([] {}), 0u);
    EXPECT_EQ(c.counted(engine::count_hits), 1u);
    EXPECT_EQ(left_after([&] { put(c.page_words[first_table + 2], engine::generation_one); }),
              0b0001u);
    EXPECT_EQ(c.counted(engine::count_hits), 1u);
}

TEST_F(rows_by_hand, that_are_cut_off_meanwhile_are_left) {
    c.view.writes = writes;
    EXPECT_EQ(left_after([] {}), 0u);
    EXPECT_EQ(left_after([&] { put(c.file_records[first_slot].size_bytes, 3 * row - 1); }),
              0b0100u);
}

// Their words are no longer where the file's words were.
TEST_F(rows_by_hand, by_which_the_file_has_grown_are_left) {
    c.view.writes = writes;
    c.file_records[second_slot].page_count = 3;
    EXPECT_EQ(left_after([] {}), of_second);
}

TEST_F(rows_by_hand, are_left_once_kernels_are_to_end) {
    const std::int64_t stop = -ECANCELED;
    c.view.stop = &stop;
    EXPECT_EQ(left_after([] {}), of_first | of_second);
}

TEST(window_visits, a_word_that_was_cleared_is_free_after_the_visits_of_then) {
    host::window_visits visits;
    std::uint64_t from = visits.free_from();
    EXPECT_GE(visits.pass(), from) << "there are none";
    {
        const host::window_visits::visit early(visits);
        from = visits.free_from();
        for (int i = 0; i < 5; ++i) EXPECT_LT(visits.pass(), from);
    }
    EXPECT_GE(visits.pass(), from);
    // Visits without end, of which each ends: the host need not meet a moment without any.
    auto running = std::make_unique<host::window_visits::visit>(visits);
    from = visits.free_from();
    for (int i = 0; i < 3; ++i) {
        auto next = std::make_unique<host::window_visits::visit>(visits);
        running = std::move(next);
        visits.pass();
    }
    EXPECT_GE(visits.pass(), from);
}

TEST(host_copy, every_length_and_place_arrives_and_nothing_around_it) {
    std::vector<std::uint8_t> from = pattern(1, 6000);
    std::vector<std::size_t> lengths;
    for (std::size_t n = 0; n <= 200; ++n) lengths.push_back(n);
    for (const std::size_t n : {511, 512, 513, 2047, 2048, 2049, 4096, 5000}) lengths.push_back(n);
    for (const std::size_t n : lengths)
        for (const std::size_t place : {0, 1, 7, 16, 61}) {
            std::vector<std::uint8_t> to(n + 128, 0xa5);
            lane{}.copy_out(reinterpret_cast<std::byte*>(&to[place]),
                            reinterpret_cast<const std::byte*>(&from[64 - place]), n);
            ASSERT_EQ(std::memcmp(&to[place], &from[64 - place], n), 0) << n << " at " << place;
            for (std::size_t i = 0; i < to.size(); ++i) {
                if (i >= place && i < place + n) continue;
                ASSERT_EQ(to[i], 0xa5) << n << " at " << place;
            }
        }
}

}  // namespace penstock::test
