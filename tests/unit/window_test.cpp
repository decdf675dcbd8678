// Windows: the engine's half by hand, and the whole of it on the cpu back end, where a test may
// open windows.
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "device/device.hpp"
#include "os/anonymous_memory.hpp"
#include "runtime/runtime_state.hpp"
#include "penstock/engine/read.hpp"
#include "penstock/engine/window.hpp"
#include "soon.hpp"
#include "unit/hand_cache.hpp"
#include "unit/parts_in_memory.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

constexpr std::uint64_t mib = 1u << 20, chunk = engine::window_chunk_bytes;

struct windowed_cache : hand_cache {
    alignas(64) std::byte bytes[1536];
    std::uint64_t window_words[files] = {}, chunk_words[4] = {};

    windowed_cache() {
        for (std::size_t i = 0; i < sizeof bytes; ++i)
            bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
        view.windows = window_words;
        view.window_chunks = chunk_words;
        chunk_words[1] = reinterpret_cast<std::uintptr_t>(bytes);
    }
    [[nodiscard]] const std::byte* find(std::uint64_t offset) const {
        engine::window_word word = 0;
        return engine::find_in_window(view, 2, 1, offset, word);
    }
};

}  // namespace

TEST(window, a_page_in_a_window_is_loaded_without_a_request) {
    windowed_cache c;
    engine::file_handle f = c.add_file(2, 8, 3);
    f.size_bytes = c.file_records[2].size_bytes = 1030;
    c.window_words[2] = engine::make_window_word(1, 1);
    std::byte got[1030] = {};
    EXPECT_EQ(engine::read_file(lane{}, c.view, f, got, 2000, 0), 1030);
    EXPECT_EQ(std::memcmp(got, c.bytes, 1030), 0);
    EXPECT_EQ(c.tail, 0u) << "the ring was used";
    EXPECT_EQ(c.counted(engine::count_window_loads), 3u);
    EXPECT_EQ(c.counted(engine::count_misses), 3u);
    const engine::page_word last = c.page_words[10];
    ASSERT_TRUE(engine::is_valid(last));
    const std::byte* frame = c.view.frame_address(engine::frame_of(last));
    for (std::size_t i = 6; i < 512; ++i)
        ASSERT_EQ(frame[i], std::byte{0}) << "behind the end of the file, byte " << i;
    EXPECT_EQ(engine::check_invariants(c.view, {.references = 1}).rule, nullptr);
}

TEST(window, what_is_no_window_of_this_file_is_passed_over) {
    windowed_cache c;
    c.add_file(2, 8, 3);
    EXPECT_EQ(c.find(0), nullptr);
    c.window_words[2] = engine::make_window_word(2, 1);
    EXPECT_EQ(c.find(0), nullptr) << "a window of another life of the slot";
    c.window_words[2] = engine::make_window_word(1, 0);
    EXPECT_EQ(c.find(0), nullptr) << "a chunk that is not there";
    EXPECT_EQ(c.find(chunk + 512), c.bytes + 512) << "the chunk after it is";
    c.view.windows = nullptr;
    EXPECT_EQ(c.find(chunk), nullptr) << "a runtime without windows";
}

// ThreadSanitizer is the judge: the words that lead to the mapping order it before the reader.
TEST(window, memory_that_is_mapped_beside_a_reader_is_seen_whole) {
    windowed_cache c;
    c.add_file(2, 8, 3);
    const auto device = host::make_cpu_device();
    std::byte got[1024] = {};
    bool found = false;
    std::thread reader([&] {
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        while (!found && std::chrono::steady_clock::now() < end) {
            const std::byte* const from = c.find(512);
            if (from == nullptr) continue;
            lane{}.copy_through(got, from, sizeof got);
            found = true;
        }
    });
    // The reader began before: its start orders nothing of what follows.
    host::anonymous_memory mapped;
    const bool taken = mapped.take(chunk);
    if (taken) {
        std::memcpy(mapped.at(0), c.bytes, sizeof c.bytes);
        const std::uint64_t first = reinterpret_cast<std::uintptr_t>(mapped.at(0)),
                            word = engine::make_window_word(1, 3);
        EXPECT_EQ(device->upload(c.chunk_words + 3, &first, 8), 0);
        EXPECT_EQ(device->upload(c.window_words + 2, &word, 8), 0);
    }
    reader.join();
    ASSERT_TRUE(taken && found);
    EXPECT_EQ(std::memcmp(got, c.bytes + 512, sizeof got), 0);
}

namespace {

class windows : public testing::Test {
protected:
    static constexpr std::uint64_t size = 3 * chunk + 5000;

    windows() : bytes(pattern(7, size)) {
        write_file(path, bytes);
        in_memory.bring_in(path);
        o = small_options(folder);
        o.window_bytes = 64 * mib;
        hooks.windows_on_cpu = true;
    }
    void create() { rt = make_runtime(o, hooks); }
    // Every byte through the cache, in pieces that do not end where pages do.
    void expect_contents(int fd) {
        std::vector<std::uint8_t> got(size);
        for (std::uint64_t at = 0; at < size; at += 10007) {
            const auto want = static_cast<std::int64_t>(std::min<std::uint64_t>(10007, size - at));
            ASSERT_EQ(
                read(lane{}, rt->ref(), fd, got.data() + at, want, static_cast<std::int64_t>(at)),
                want);
        }
        EXPECT_TRUE(got == bytes);
    }
    // True if the operating system let go of these bytes of the file.
    bool drop_from_memory(std::uint64_t offset, std::uint64_t length) const {
        const int file = ::open(path.c_str(), O_RDONLY);
        const bool done = ::fsync(file) == 0 &&
                          ::posix_fadvise(file, static_cast<off_t>(offset),
                                          static_cast<off_t>(length), POSIX_FADV_DONTNEED) == 0;
        ::close(file);
        return done;
    }

    const temporary_folder folder;
    const std::string path = folder / "data";
    parts_in_memory in_memory;
    std::vector<std::uint8_t> bytes;
    options o;
    host::runtime_hooks hooks;
    std::unique_ptr<runtime> rt;
};

}  // namespace

TEST_F(windows, a_file_in_memory_is_read_without_requests) {
    create();
    const int fd = rt->open("data");
    ASSERT_EQ(rt->open_windows(fd), static_cast<std::int64_t>(size));
    EXPECT_EQ(rt->stats().window_bytes, size);
    expect_contents(fd);
    const statistics s = rt->stats();
    EXPECT_EQ(s.requests, s.open_requests);
    EXPECT_EQ(s.file_reads, 0u);
    EXPECT_EQ(s.window_loads, s.misses);
    EXPECT_GE(s.misses + s.through_reads, (size + 4095) / 4096);
    EXPECT_GT(s.through_reads, 0u) << "the cache is small";
    rt->close_windows();
    EXPECT_EQ(rt->stats().window_bytes, 0u);
    expect_contents(fd);
    EXPECT_GT(rt->stats().file_reads, 0u);
}

// Most pages are read through the window; one enters when it is drawn for the second time.
TEST_F(windows, pages_enter_when_they_are_read_again_and_again) {
    o.page_bytes = 512;
    o.cache_bytes = 512 * 512;
    create();
    const int fd = rt->open("data");
    ASSERT_EQ(rt->open_windows(fd), static_cast<std::int64_t>(size));
    const auto read_page = [&](std::uint64_t page) {
        std::uint8_t got[512];
        ASSERT_EQ(read(lane{}, rt->ref(), fd, got, 512, static_cast<std::int64_t>(page * 512)),
                  512);
        ASSERT_EQ(std::memcmp(got, &bytes[page * 512], 512), 0);
    };
    const std::uint64_t pages = size / 512;  // 24 caches of them
    for (std::uint64_t i = 0; i < 4000; ++i) read_page(i % pages);
    const std::uint64_t filled = rt->stats().misses;
    EXPECT_GE(filled, 512u) << "frames that were never used are filled at once";
    for (std::uint64_t i = 0; i < 40000; ++i) read_page(mix64(i) % pages);
    const std::uint64_t once = rt->stats().misses - filled;
    // One in 20 is drawn, of which one in 25 would be again by chance.
    EXPECT_LT(once, 40000 / 20 / 4) << "pages that are hardly read again";
    for (std::uint64_t i = 0; i < 40000; ++i) read_page(pages - 1 - mix64(i) % 64);
    const std::uint64_t before = rt->stats().hits;
    for (std::uint64_t i = 0; i < 1000; ++i) read_page(pages - 1 - i % 64);
    EXPECT_GT(rt->stats().hits - before, 900u) << "pages that are read all the time";
}

TEST_F(windows, what_is_written_is_seen_by_later_loads) {
    create();
    const int fd = rt->open("data");
    ASSERT_EQ(rt->open_windows(fd), static_cast<std::int64_t>(size));
    const int file = ::open(path.c_str(), O_WRONLY);
    const char text[] = "written through a system call";
    ASSERT_EQ(::pwrite(file, text, sizeof text, chunk + 100), static_cast<ssize_t>(sizeof text));
    ::close(file);
    char got[sizeof text] = {};
    ASSERT_EQ(read(lane{}, rt->ref(), fd, got, sizeof text, chunk + 100),
              static_cast<std::int64_t>(sizeof text));
    EXPECT_STREQ(got, text);
}

TEST_F(windows, parts_that_are_not_in_memory_come_by_request_and_later_by_window) {
    o.direct_io = direct_mode::off;  // a read past the page cache would leave nothing in it
    create();
    const int fd = rt->open("data");
    in_memory.let_go();
    if (!drop_from_memory(chunk, chunk)) GTEST_SKIP() << "this file system keeps its pages";
    in_memory.bring_in(path, 0, chunk);
    in_memory.bring_in(path, 2 * chunk, size - 2 * chunk);
    const std::int64_t inside = rt->open_windows(fd);
    if (inside == static_cast<std::int64_t>(size))
        GTEST_SKIP() << "this file system keeps its pages";
    EXPECT_EQ(inside, static_cast<std::int64_t>(size - chunk));
    expect_contents(fd);
    EXPECT_EQ(rt->stats().window_loads + rt->stats().file_reads, rt->stats().misses);
    EXPECT_GE(rt->stats().file_reads, chunk / 4096);
    // What was read since is in memory, unless the operating system has taken it out again.
    in_memory.bring_in(path, chunk, chunk);
    EXPECT_EQ(rt->open_windows(fd), static_cast<std::int64_t>(size));
    EXPECT_EQ(rt->stats().window_bytes, size);
}

// The cut waits for the window's end, so nothing that follows the cut is read through it: by
// request it is known to be gone.
TEST_F(windows, a_file_that_is_cut_gives_no_zeros) {
    create();
    const int fd = rt->open("data");
    ASSERT_EQ(rt->open_windows(fd), static_cast<std::int64_t>(size));
    std::uint8_t byte = 0;
    ASSERT_EQ(read(lane{}, rt->ref(), fd, &byte, 1, 0), 1);
    ASSERT_EQ(::truncate(path.c_str(), size - 600), 0);
    if (rt->state().windows->open_files() != 0) GTEST_SKIP() << "no leases on this file system";
    std::vector<std::uint8_t> got(4096);
    const auto last_page = static_cast<std::int64_t>(size / 4096 * 4096);
    EXPECT_EQ(read(lane{}, rt->ref(), fd, got.data(), 4096, last_page), -ESTALE);
    ASSERT_EQ(read(lane{}, rt->ref(), fd, got.data(), 4096, chunk), 4096)
        << "before the cut the file is as it was";
    EXPECT_TRUE(std::equal(got.begin(), got.end(), bytes.begin() + chunk));
    EXPECT_EQ(rt->open_windows(fd), 0) << "it is another file by now";
}

// Where there is a writer already there is no lease: the file's size is looked at.
TEST_F(windows, a_cut_by_one_that_had_it_open_is_noticed) {
    create();
    const int writer = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(writer, 0);
    const int fd = rt->open("data");
    ASSERT_EQ(rt->open_windows(fd), static_cast<std::int64_t>(size));
    ASSERT_EQ(::ftruncate(writer, size - 600), 0);
    ::close(writer);
    ASSERT_TRUE(soon([&] { return rt->state().windows->open_files() == 0; }));
    std::vector<std::uint8_t> got(4096);
    EXPECT_EQ(read(lane{}, rt->ref(), fd, got.data(), 4096,
                   static_cast<std::int64_t>(size / 4096 * 4096)),
              -ESTALE);
}

// The window goes between a group's copy and its second look, and another may come: the page is
// asked for.
TEST(window, one_that_is_closed_during_a_copy_does_not_count) {
    for (const engine::window_word later : {engine::window_word{0}, engine::make_window_word(1, 0)})
        for (const bool many : {false, true}) {
            windowed_cache c;
            const engine::file_handle f = c.add_file(2, 8, 3);
            c.window_words[2] = engine::make_window_word(1, 1);
            engine::wait_deadline deadline(lane{}, 1000);
            engine::pending_load load{};
            ASSERT_EQ(engine::begin_load(lane{}, c.view, f, 0, true, deadline, load), 1);
            c.window_words[2] = later;
            if (many) {
                EXPECT_EQ(engine::copy_at_hand(lane{}, c.view, f, &load, 1), 0u);
                engine::give_back(c.view, load);
            } else {
                EXPECT_EQ(engine::fetch_load(lane{}, c.view, f, load), engine::load_again);
            }
            EXPECT_TRUE(engine::is_absent(c.page_words[8]));
            EXPECT_EQ(engine::check_invariants(c.view, {.references = 1}).rule, nullptr);
        }
}

TEST_F(windows, the_budget_is_kept) {
    o.window_bytes = 2 * chunk;
    create();
    const int fd = rt->open("data");
    EXPECT_EQ(rt->open_windows(fd), static_cast<std::int64_t>(2 * chunk));
    expect_contents(fd);
    EXPECT_EQ(rt->open_windows(fd, 2 * chunk, 100), -ENOSPC);
    rt->close_windows();
    EXPECT_EQ(rt->open_windows(fd, 2 * chunk, 100), 100);
    expect_contents(fd);
}

TEST_F(windows, a_file_with_a_window_keeps_its_slot) {
    o.max_files = 16;
    create();
    const int fd = rt->open("data");
    ASSERT_EQ(rt->open_windows(fd), static_cast<std::int64_t>(size));
    ASSERT_EQ(rt->open_windows(fd, 0, 1), 1);
    EXPECT_EQ(rt->close(fd), 0);
    for (int i = 0; i < 100; ++i) {
        write_file(folder / ("f" + std::to_string(i)), pattern(i, 3000));
        const int other = rt->open("f" + std::to_string(i));
        ASSERT_GE(other, 0);
        std::vector<std::uint8_t> got(3000);
        ASSERT_EQ(rt->read(other, got.data(), 3000, 0), 3000);
        ASSERT_EQ(got, pattern(i, 3000));
        ASSERT_EQ(rt->close(other), 0);
    }
    EXPECT_EQ(rt->open("data"), fd) << "its slot was not taken down";
    EXPECT_EQ(rt->close(fd), 0);
    rt->close_windows();
    EXPECT_EQ(rt->close(fd), -EBADF) << "no reference is left";
}

TEST_F(windows, a_file_that_was_replaced_has_no_window) {
    create();
    int fd = rt->open("data");
    ASSERT_EQ(rt->open_windows(fd), static_cast<std::int64_t>(size));
    EXPECT_EQ(rt->close(fd), 0);
    std::filesystem::rename(path, folder / "old");
    bytes = pattern(9, size);
    write_file(path, bytes);
    in_memory.bring_in(path);
    fd = rt->open("data");
    expect_contents(fd);
    EXPECT_EQ(rt->stats().window_loads, 0u);
    EXPECT_EQ(rt->open_windows(fd), static_cast<std::int64_t>(size));
    rt->close_windows();
}

TEST_F(windows, a_file_of_which_nothing_could_be_opened_keeps_no_slot) {
    o.max_files = 16;
    o.window_bytes = chunk;
    create();
    ASSERT_EQ(rt->open_windows(rt->open("data"), 0, 1), 1) << "the budget is used up";
    for (int i = 0; i < 40; ++i) {
        write_file(folder / ("f" + std::to_string(i)), pattern(i, 100));
        const int fd = rt->open("f" + std::to_string(i));
        ASSERT_GE(fd, 0) << "file " << i << ": " << error_text(fd);
        EXPECT_EQ(rt->open_windows(fd), -ENOSPC);
        ASSERT_EQ(rt->close(fd), 0);
    }
}

TEST_F(windows, patterns) {
    create();
    write_file(folder / "more", pattern(8, 100));
    ::mkdir((folder / "mold").c_str(), 0700);
    EXPECT_EQ(rt->open_windows(folder / "*a*"), static_cast<std::int64_t>(size));
    EXPECT_EQ(rt->open_windows(folder / "mo*"), 100);
    EXPECT_EQ(rt->open_windows(folder / "nothing*"), -ENOENT);
    EXPECT_EQ(rt->open_windows(folder / "mold"), -ENOENT);
    EXPECT_EQ(rt->stats().window_bytes, size + 100);
    rt->close_windows();
    EXPECT_EQ(engine::check_invariants(rt->ref().view, {}).rule, nullptr) << "a reference is left";
}

TEST_F(windows, wrong_arguments) {
    create();
    const int fd = rt->open("data");
    EXPECT_EQ(rt->open_windows(fd, -1), -EINVAL);
    EXPECT_EQ(rt->open_windows(fd, 0, -1), -EINVAL);
    EXPECT_EQ(rt->open_windows(fd, 0, 0), 0);
    EXPECT_EQ(rt->open_windows(fd, size), 0);
    EXPECT_EQ(rt->open_windows(-1), -EBADF);
    EXPECT_EQ(rt->open_windows(fd + 1), -EBADF);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(rt->open_windows(fd), -EBADF);
    hooks.windows_on_cpu = false;
    create();
    EXPECT_EQ(rt->open_windows(rt->open("data")), -EOPNOTSUPP);
    EXPECT_EQ(rt->open_windows(folder / "*"), -EOPNOTSUPP);
    rt->close_windows();
}

}  // namespace penstock::test
