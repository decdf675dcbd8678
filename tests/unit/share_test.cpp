// Caches that runtimes share by a name: here of one process, which find each other by the same
// sockets and descriptors as those of several do (tests/fault/share_kill_test.py has several).
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <random>

#include "penstock/engine/neighbour.hpp"
#include "unit/share_support.hpp"

namespace penstock::test {

namespace {

// By a child of fork(), which may call little.
int open_sockets() {
    int count = 0;
    struct stat facts {};
    for (int fd = 0; fd < 1024; ++fd)
        count += ::fstat(fd, &facts) == 0 && S_ISSOCK(facts.st_mode) ? 1 : 0;
    return std::min(count, 100);
}
int exit_status(pid_t child) {
    int state = 0;
    ::waitpid(child, &state, 0);
    return WIFEXITED(state) ? WEXITSTATUS(state) : 101;
}

}  // namespace

TEST_F(share, second_runtime_reads_the_first_ones_pages) {
    const auto bytes = pattern(1, 20 * page + 100);
    const std::string path = make_file("data", bytes);
    const auto first = make_runtime(shared()), second = make_runtime(shared());
    ASSERT_TRUE(are_linked(*first, *second)) << log();
    EXPECT_EQ(read_all(*first, path, bytes.size()), bytes);
    EXPECT_EQ(read_all(*second, path, bytes.size()), bytes);
    EXPECT_EQ(first->stats().misses, 21u);
    EXPECT_EQ(from_neighbours(*second), 21u);
    EXPECT_EQ(second->stats().file_reads, 0u);
}

// What was read before the newcomer came is there for it; the other direction works too.
TEST_F(share, newcomer_finds_what_is_kept) {
    const auto bytes = pattern(2, 10 * page), others = pattern(3, 10 * page);
    const std::string path = make_file("data", bytes), other = make_file("other", others);
    const auto keeper = make_runtime(shared());
    EXPECT_EQ(read_all(*keeper, path, bytes.size()), bytes);
    const auto newcomer = make_runtime(shared());
    ASSERT_TRUE(are_linked(*keeper, *newcomer)) << log();
    EXPECT_EQ(read_all(*newcomer, path, bytes.size()), bytes);
    EXPECT_EQ(newcomer->stats().file_reads, 0u);
    EXPECT_EQ(read_all(*newcomer, other, others.size()), others);
    EXPECT_EQ(read_all(*keeper, other, others.size()), others);
    EXPECT_EQ(from_neighbours(*keeper), 10u);
}

// A reader that did not leave would keep the memory of each neighbour that ends.
TEST_F(share, every_way_of_reading_leaves) {
    constexpr std::uint64_t pages = 40;
    const auto bytes = pattern(14, pages * page);
    const std::string path = make_file("data", bytes);
    options o = shared();
    o.writable = true;
    o.cache_bytes = 64 * page;
    const auto keeper = make_runtime(o);
    EXPECT_EQ(read_all(*keeper, path, bytes.size()), bytes);
    o.cache_bytes = 8 * page;  // so that frames are short
    o.frame_wait_ms = 1;
    const auto rt = make_runtime(o);
    ASSERT_TRUE(are_linked(*keeper, *rt));
    const int fd = rt->open(path);
    std::vector<std::uint8_t> got(pages * page);
    for (const std::uint64_t length : {std::uint64_t{64}, 3 * page, pages * page})
        EXPECT_EQ(rt->read(fd, got.data(), static_cast<std::int64_t>(length), 17 * 8),
                  static_cast<std::int64_t>(std::min(length, pages * page - 17 * 8)));
    EXPECT_GT(rt->prefetch(fd, 0, pages * page), 0);
    // No frame is left: some of these fail, after they have looked.
    std::vector<mapping> held;
    for (std::uint64_t i = 0; i < 12; ++i)
        held.push_back(rt->map(fd, static_cast<std::int64_t>((20 + i) * page), 100));
    EXPECT_LT(rt->map(fd, 39 * page, 100).bytes, 0);
    rt->read(fd, got.data(), 4 * page, 32 * page);
    rt->prefetch(fd, 0, pages * page);
    for (const mapping& m : held)
        if (m.bytes > 0) rt->unmap(m);
    std::vector<std::uint64_t> rows(500);
    for (std::uint64_t i = 0; i < rows.size(); ++i) rows[i] = i * 7 % 1000;
    EXPECT_EQ(rt->gather(fd, {128, 128, 0}, rows.data(), rows.size(), got.data(), {}), 500);
    EXPECT_GT(from_neighbours(*rt), 0u);
    EXPECT_EQ(rt->stats().file_reads, 0u);
    EXPECT_EQ(readers_inside(*rt), 0u);
    rt->close(fd);
    const int writer = rt->open(path, open_read_write);
    EXPECT_EQ(rt->write(writer, bytes.data(), 5 * page + 1, 2 * page), 5 * page + 1);
    EXPECT_EQ(rt->close(writer), 0);
    EXPECT_EQ(readers_inside(*rt), 0u);
}

TEST_F(share, names_are_apart) {
    const auto bytes = pattern(4, 4 * page);
    const std::string path = make_file("data", bytes);
    options other = shared();
    other.share = "another";
    const auto first = make_runtime(shared()), second = make_runtime(other),
               third = make_runtime(shared());
    ASSERT_TRUE(are_linked(*first, *third));
    EXPECT_EQ(linked(*second), 0u);
    EXPECT_EQ(read_all(*first, path, bytes.size()), bytes);
    EXPECT_EQ(read_all(*second, path, bytes.size()), bytes);
    EXPECT_EQ(from_neighbours(*second), 0u);
}

TEST_F(share, writers_bytes_are_not_seen_before_their_close) {
    const auto before = pattern(5, 4 * page), after = pattern(6, 4 * page);
    const std::string path = make_file("data", before);
    options o = shared();
    o.writable = true;
    const auto writer = make_runtime(o), reader = make_runtime(o);
    ASSERT_TRUE(are_linked(*writer, *reader));
    EXPECT_EQ(read_all(*writer, path, before.size()), before);
    const int open_for_reading = reader->open(path);
    ASSERT_GE(open_for_reading, 0);
    EXPECT_TRUE(soon([&] { return reader->state().share->shared_lives() == 1; }));
    const int fd = writer->open(path, open_read_write);
    ASSERT_GE(fd, 0) << error_text(fd);
    // The answer came when no entry was left.
    EXPECT_EQ(reader->state().share->shared_lives(), 0u);
    ASSERT_EQ(writer->write(fd, after.data(), static_cast<std::int64_t>(after.size()), 0),
              static_cast<std::int64_t>(after.size()));
    std::vector<std::uint8_t> got(before.size());
    EXPECT_EQ(reader->read(open_for_reading, got.data(), static_cast<std::int64_t>(got.size()), 0),
              static_cast<std::int64_t>(got.size()));
    EXPECT_EQ(got, before);
    EXPECT_EQ(from_neighbours(*reader), 0u);
    EXPECT_EQ(writer->close(fd), 0);
    reader->close(open_for_reading);
    EXPECT_EQ(read_all(*reader, path, after.size()), after);
}

// A neighbour that comes while a file is open for writing does not share it either.
TEST_F(share, newcomer_does_not_share_what_is_being_written) {
    const auto before = pattern(7, 4 * page), after = pattern(8, 4 * page);
    const std::string path = make_file("data", before);
    options o = shared();
    o.writable = true;
    const auto writer = make_runtime(o);
    const int fd = writer->open(path, open_read_write);
    ASSERT_EQ(writer->write(fd, after.data(), static_cast<std::int64_t>(after.size()), 0),
              static_cast<std::int64_t>(after.size()));
    const auto reader = make_runtime(o);
    ASSERT_TRUE(are_linked(*writer, *reader));
    EXPECT_EQ(read_all(*reader, path, before.size()), before);
    EXPECT_EQ(from_neighbours(*reader), 0u);
    writer->close(fd);
}

TEST_F(share, changed_file_is_another_file) {
    const auto before = pattern(9, 4 * page), after = pattern(10, 4 * page);
    const std::string path = make_file("data", before);
    const auto first = make_runtime(shared()), second = make_runtime(shared());
    ASSERT_TRUE(are_linked(*first, *second));
    EXPECT_EQ(read_all(*first, path, before.size()), before);
    make_file("data", after);
    EXPECT_EQ(read_all(*second, path, after.size()), after);
    EXPECT_EQ(from_neighbours(*second), 0u);
    EXPECT_EQ(read_all(*first, path, after.size()), after);
    EXPECT_EQ(from_neighbours(*first), 4u);
}

// More files than slots and more pages than frames, by several threads on each; and on one side
// runtimes come and go, more of them than there are places.
TEST_F(share, neighbours_come_and_go_under_load) {
    constexpr std::uint32_t files = 24, pages = 16, generations = 12;
    for (std::uint32_t i = 0; i < files; ++i)
        write_file(folder_ / std::to_string(i), pattern(100 + i, pages * page));
    let_files_settle();
    options o = shared();
    o.max_files = 16;
    o.cache_bytes = 24 * page;
    o.admit_one_in = 4;
    const auto stays = make_runtime(o);
    std::atomic<std::uint64_t> wrong{0}, done{0};
    std::atomic<bool> stop{false};
    const auto read_some = [&](runtime& rt, std::uint64_t seed) {
        std::mt19937_64 random(seed);
        std::vector<std::uint8_t> got(3 * page);
        const std::uint64_t file = random() % files, offset = random() % (pages * page),
                            bytes = 1 + random() % (3 * page);
        const int fd = rt.open(folder_ / std::to_string(file));
        if (fd == -ENFILE || fd == -ENOMEM) return;
        const std::int64_t code = rt.read(fd, got.data(), static_cast<std::int64_t>(bytes),
                                          static_cast<std::int64_t>(offset));
        if (fd < 0 || code < 0) ++wrong;
        for (std::int64_t i = 0; i < code; ++i)
            wrong += got[i] != pattern_byte(100 + file, offset + i);
        rt.close(fd);
        ++done;
    };
    std::vector<std::thread> all;
    for (std::uint32_t t = 0; t < 2; ++t)
        all.emplace_back([&, t] {
            for (std::uint64_t round = 0; !stop; ++round) read_some(*stays, round * 2 + t);
        });
    for (std::uint32_t g = 0; g < generations; ++g) {
        const auto comes = make_runtime(o);
        EXPECT_TRUE(are_linked(*stays, *comes)) << log();
        const std::uint64_t from = done;
        for (std::uint64_t round = 0; round < 100; ++round) read_some(*comes, round * 7 + g);
        EXPECT_TRUE(soon([&] { return done > from + 150; }));
    }
    EXPECT_TRUE(soon([&] { return linked(*stays) == 0; }));
    stop = true;
    for (std::thread& thread : all) thread.join();
    EXPECT_EQ(wrong, 0u);
    EXPECT_GT(from_neighbours(*stays), 0u);
    EXPECT_EQ(readers_inside(*stays), 0u);
    EXPECT_EQ(log().find("not linked"), std::string::npos) << log();
}

// A reader that was stopped between look and check, while its neighbour ended.
TEST_F(share, memory_of_a_neighbour_stays_while_a_reader_is_inside) {
    const auto mapped = [] {
        std::ifstream maps("/proc/self/maps");
        std::size_t count = 0;
        for (std::string line; std::getline(maps, line);)
            count += line.find("/memfd:penstock") != std::string::npos ? 1 : 0;
        return count;
    };
    const auto stays = make_runtime(shared());
    const engine::cache_view view = stays->ref().view;
    const std::size_t alone = mapped();
    auto goes = make_runtime(shared());
    ASSERT_TRUE(are_linked(*stays, *goes));
    const auto* const word = reinterpret_cast<const engine::page_word*>(view.neighbours[0].words);
    engine::neighbour_page inside;
    inside.visit = engine::enter_neighbours(view, 5);
    goes.reset();
    ASSERT_TRUE(soon([&] { return linked(*stays) == 0; }));
    // As long as three beats: with no reader inside it is gone by then.
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    EXPECT_GT(mapped(), alone);
    EXPECT_EQ(engine::load_far(word), 0u);
    engine::leave_neighbours(view, inside);
    EXPECT_TRUE(soon([&] { return mapped() == alone; }));
}

TEST_F(share, other_page_size_is_said_and_not_linked) {
    const auto bytes = pattern(11, 4 * page);
    const std::string path = make_file("data", bytes);
    options other = shared();
    other.page_bytes = 8192;
    const auto first = make_runtime(shared()), second = make_runtime(other);
    EXPECT_TRUE(says("its pages have 8 KiB, and these 4 KiB; give both the same page_bytes"));
    EXPECT_EQ(read_all(*first, path, bytes.size()), bytes);
    EXPECT_EQ(read_all(*second, path, bytes.size()), bytes);
    EXPECT_EQ(linked(*first) + linked(*second), 0u);
}

TEST_F(share, directory_that_others_may_enter_is_refused) {
    const auto bytes = pattern(12, 2 * page);
    const std::string path = make_file("data", bytes);
    std::filesystem::create_directories(sockets());
    ASSERT_EQ(::chmod((meeting() + "/penstock").c_str(), 0700), 0);
    ASSERT_EQ(::chmod(sockets().c_str(), 0750), 0);
    const auto rt = make_runtime(shared());
    EXPECT_TRUE(says("may be entered by others (mode 0750); chmod 700 it"));
    EXPECT_EQ(rt->state().share, nullptr);
    EXPECT_EQ(read_all(*rt, path, bytes.size()), bytes);
}

TEST_F(share, directory_that_is_none_is_refused) {
    write_file(meeting() + "/penstock", {1});
    const auto rt = make_runtime(shared());
    EXPECT_TRUE(says("is no directory that can be opened"));
    EXPECT_EQ(rt->state().share, nullptr);
}

TEST_F(share, directory_of_another_user_is_refused) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root gives directories away";
    std::filesystem::create_directories(sockets());
    ASSERT_EQ(::chmod((meeting() + "/penstock").c_str(), 0700), 0);
    ASSERT_EQ(::chmod(sockets().c_str(), 0700), 0);
    ASSERT_EQ(::chown(sockets().c_str(), 12345, 12345), 0);
    const auto rt = make_runtime(shared());
    EXPECT_TRUE(says("belongs to user 12345"));
    EXPECT_EQ(rt->state().share, nullptr);
}

TEST_F(share, sockets_go_with_their_runtimes) {
    {
        const auto first = make_runtime(shared()), second = make_runtime(shared());
        ASSERT_TRUE(are_linked(*first, *second));
        EXPECT_EQ(socket_count(), 2u);
    }
    EXPECT_EQ(socket_count(), 0u);
}

// A child that lives on has copies of all descriptors; they must not hold the links.
TEST_F(share, child_of_fork_holds_no_link) {
    const auto bytes = pattern(13, 4 * page);
    const std::string path = make_file("data", bytes);
    auto first = make_runtime(shared());
    const auto second = make_runtime(shared());
    ASSERT_TRUE(are_linked(*first, *second));
    EXPECT_EQ(read_all(*first, path, bytes.size()), bytes);
    std::byte* const frames = first->ref().view.frames;
    int done[2];
    ASSERT_EQ(::pipe(done), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        // What it writes to its copy stays its own.
        std::memset(frames, 0xee, 4 * page);
        const int code = first->open(path);
        const char result = code == -ECHILD ? 'y' : 'n';
        static_cast<void>(!::write(done[1], &result, 1));
        for (;;) ::pause();
    }
    char result = 0;
    ASSERT_EQ(::read(done[0], &result, 1), 1);
    EXPECT_EQ(result, 'y');
    EXPECT_EQ(read_all(*first, path, bytes.size()), bytes);
    EXPECT_EQ(read_all(*second, path, bytes.size()), bytes);
    EXPECT_EQ(second->stats().file_reads, 0u);
    first.reset();
    EXPECT_TRUE(soon([&] { return linked(*second) == 0; }));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(done[0]);
    ::close(done[1]);
}

// The log is called while the runtime is made: it has sockets by then. A child that kept them would
// stand for it after its end.
TEST_F(share, child_of_a_fork_while_a_runtime_is_made_holds_no_link) {
    const auto first = make_runtime(shared());
    options o = shared();
    std::atomic<int> sockets_of_child{-1};
    o.log = [&](const std::string& line) {
        if (line.find(" is linked") == std::string::npos || sockets_of_child >= 0) return;
        const pid_t child = ::fork();
        if (child == 0) ::_exit(open_sockets());
        sockets_of_child = exit_status(child);
    };
    const auto second = make_runtime(o);
    ASSERT_TRUE(soon([&] { return sockets_of_child >= 0; }));
    // As many as the child of a runtime that is there: those that the test was started with.
    const pid_t later = ::fork();
    if (later == 0) ::_exit(open_sockets());
    EXPECT_EQ(sockets_of_child, exit_status(later));
}

}  // namespace penstock::test
