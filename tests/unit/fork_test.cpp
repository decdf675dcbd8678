// A child of fork() may end, destroy, use or ignore what it inherited: nothing hangs there, every
// call gives -ECHILD at once, and the parent goes on. Requests are in flight all the while.
#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "unit/support.hpp"

#if defined(__SANITIZE_ADDRESS__)
// What a child leaves alone is a leak to LeakSanitizer, and this test is about children that do so.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }
#endif

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// The sanitizers of GCC 12 fork without the locks of their allocator: a child may find one locked
// by a thread that it does not have, and waits for ever. So requests rest while a process forks.
constexpr bool requests_rest_at_a_fork = true;
#else
constexpr bool requests_rest_at_a_fork = false;
#endif

namespace penstock::test {

namespace {

constexpr std::uint64_t file_pages = 512;  // eight times the cache

// Objects that only the end of the process destroys.
std::unique_ptr<runtime> global_runtime;
std::unique_ptr<file_region> global_region;

// The reader holds it while it has requests in flight.
std::mutex requests_in_flight;
std::atomic<int> forks_that_wait{0};  // a mutex alone would let the reader go on and on

pid_t fork_now() {
    std::unique_lock rest(requests_in_flight, std::defer_lock);
    if (requests_rest_at_a_fork) {
        ++forks_that_wait;
        rest.lock();
        --forks_that_wait;
    }
    return ::fork();
}

// Runs `body` in a child, which must end by itself. Its exit status, or -1: it hung, or a signal
// ended it.
template <typename Body>
int in_child(const Body& body) {
    std::fflush(nullptr);
    const pid_t child = fork_now();
    if (child < 0) return -1;
    if (child == 0) body();  // which ends the process
    for (int i = 0; i < 6000; ++i) {
        int state = 0;
        if (::waitpid(child, &state, WNOHANG) == child)
            return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    return -1;
}

// Reads pages at random, most of which have to be requested.
struct read_at_random {
    shared_file file;
    std::atomic<std::uint64_t>* wrong;

    template <typename Group>
    void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
        std::uint8_t bytes[64];
        const std::uint64_t at = mix64(index) % file_pages * 4096;
        const std::int64_t got =
            read(g, fs, file.of(fs), bytes, sizeof bytes, static_cast<std::int64_t>(at));
        if (got != sizeof bytes || bytes[0] != pattern_byte(7, at)) ++*wrong;
    }
};

class fork : public testing::Test {
protected:
    void SetUp() override {
        write_file(folder_ / "data", pattern(7, file_pages * 4096));
        options o = small_options(folder_);
        o.writable = true;
        o.worker_threads = 3;
        rt_ = make_runtime(o);
        ASSERT_NE(rt_, nullptr);
        file_ = rt_->open_everywhere(folder_ / "data");
        ASSERT_EQ(file_.code(), 0);
        fd_ = file_.of(0);
        reader_ = std::thread([this] {
            while (!stop_) {
                while (forks_that_wait > 0) std::this_thread::yield();
                const std::lock_guard busy(requests_in_flight);
                launch<width::lane>(*rt_, 400, read_at_random{file_, &wrong_});
                ++rounds_;
            }
        });
        while (rounds_ == 0) std::this_thread::yield();
    }
    void TearDown() override {
        const std::uint64_t before = rounds_;
        while (rounds_ < before + 2) std::this_thread::yield();
        stop_ = true;
        reader_.join();
        EXPECT_EQ(wrong_, 0u);
        if (rt_ != nullptr) {
            EXPECT_EQ(rt_->close(file_), 0);
        }
    }

    const temporary_folder folder_;
    std::unique_ptr<runtime> rt_;
    shared_file file_{};
    int fd_ = -1;  // of the first device
    std::atomic<bool> stop_{false};
    std::atomic<std::uint64_t> wrong_{0}, rounds_{0};
    std::thread reader_;
};

}  // namespace

TEST_F(fork, children_end_as_they_like) {
    for (int i = 0; i < 5; ++i) {
        EXPECT_EQ(in_child([] { std::exit(3); }), 3);
        EXPECT_EQ(in_child([] { ::_exit(4); }), 4);
        EXPECT_EQ(in_child([] {
                      ::execl("/bin/sh", "sh", "-c", "exit 5", nullptr);
                      ::_exit(1);
                  }),
                  5);
        EXPECT_EQ(in_child([this] {
                      rt_.reset();
                      std::exit(6);
                  }),
                  6);
    }
}

TEST_F(fork, calls_of_a_child_give_an_error_at_once) {
    table_layout layout{.row_bytes = 64};
    layout.pieces.push_back({folder_ / "data", 0, 100});
    std::unique_ptr<table> rows;
    ASSERT_TRUE(table::make(*rt_, layout, {.writable = true}, rows).ok());
    EXPECT_EQ(
        in_child([this, &rows] {
            runtime& rt = *rt_;
            std::uint8_t byte = 0;
            std::uint64_t index = 0;
            file_stat facts{};
            std::unique_ptr<file_region> region;
            std::atomic<std::uint64_t> wrong{0};
            const bool calls =
                rt.open(folder_ / "data") == -ECHILD && rt.close(fd_) == -ECHILD &&
                rt.read(fd_, &byte, 1, 0) == -ECHILD && rt.write(fd_, &byte, 1, 0) == -ECHILD &&
                rt.append(fd_, &byte, 1) == -ECHILD && rt.fsync(fd_) == -ECHILD &&
                rt.msync(fd_, 0, 1) == -ECHILD && rt.truncate(fd_, 1) == -ECHILD &&
                rt.stat(fd_, &facts) == -ECHILD && rt.prefetch(fd_, 0, 1) == -ECHILD &&
                rt.advise(fd_, advice::sequential) == -ECHILD &&
                rt.map(fd_, 0, 1).bytes == -ECHILD && rt.unlink(folder_ / "data") == -ECHILD &&
                rt.rename(folder_ / "data", folder_ / "x") == -ECHILD &&
                rt.allow(folder_ / "data") == -ECHILD && rt.open_windows(fd_) == -ECHILD &&
                rt.open_windows(folder_ / "*") == -ECHILD;
            const bool others =
                rt.gather(fd_, {64, 64, 0}, &index, 1, &byte) == -ECHILD &&
                rt.health().code == -ECHILD && rt.view_status().code == -ECHILD &&
                rt.write_status().code == -ECHILD && rt.stats().requests == 0 &&
                map_region(rt, folder_ / "data", 0, 0, protection::read, {}, region).code ==
                    -ECHILD &&
                rt.open_everywhere(folder_ / "data").code() == -ECHILD &&
                rt.close(file_) == -ECHILD && rows->check().code == -ECHILD &&
                rows->gather(&index, 1, &byte) == -ECHILD && rows->sync() == -ECHILD &&
                rows->close().message.find("parent of this process") != std::string::npos &&
                launch<width::lane>(rt, 1, read_at_random{file_, &wrong}) == -ECHILD && wrong == 0;
            rt.interrupt();
            rt.resume();
            rt.close_windows();
            // Calls of the device: hits are hits, and what would have to be requested ends at once.
            std::int64_t code = 0;
            const auto begun = std::chrono::steady_clock::now();
            for (std::uint64_t page = 0; page < file_pages && code >= 0; ++page)
                code =
                    read(lane{}, rt.ref(), fd_, &byte, 1, static_cast<std::int64_t>(page * 4096));
            const bool at_once =
                std::chrono::steady_clock::now() - begun < std::chrono::seconds(10);
            std::exit(calls && others && code == -ECHILD && at_once
                          ? 7
                          : (calls ? 0 : 1) + (others ? 0 : 2) + (code == -ECHILD ? 0 : 8) +
                                (at_once ? 0 : 16));
        }),
        7);
    EXPECT_TRUE(std::filesystem::exists(folder_ / "data"));
    EXPECT_TRUE(rt_->health().ok());
}

// A thread of the parent holds the lock of the room for tables in most moments.
TEST_F(fork, a_child_may_drop_a_table_while_others_are_made) {
    if (requests_rest_at_a_fork) GTEST_SKIP() << "this process forks with a thread at work";
    table_layout layout{.row_bytes = 64};
    layout.pieces.push_back({folder_ / "data", 0, 100});
    std::unique_ptr<table> rows;
    ASSERT_TRUE(table::make(*rt_, layout, {.writable = true}, rows).ok());
    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> made{0}, refused{0};
    std::thread maker([&] {
        host::runtime_state& state = rt_->state();
        for (host::table_room::share share; !stop; ++made) {
            if (state.tables.take(*state.device, 1, share).ok()) state.tables.give(share);
            else ++refused;
        }
    });
    while (made == 0) std::this_thread::yield();
    int last = 7;
    for (int i = 0; i < 40 && last == 7; ++i)
        last = in_child([&] {
            rows.reset();
            std::exit(7);
        });
    stop = true;
    maker.join();
    EXPECT_EQ(last, 7);
    EXPECT_EQ(refused, 0u);
}

TEST_F(fork, a_child_may_drop_or_ask_a_region) {
    write_file(folder_ / "mapped", pattern(8, 1 << 20));
    std::unique_ptr<file_region> region;
    ASSERT_TRUE(
        map_region(*rt_, folder_ / "mapped", 0, 0, protection::read_write, {}, region).ok());
    auto* const bytes = static_cast<std::uint8_t*>(region->data());
    bytes[5] = 1;
    for (int i = 0; i < 3; ++i)
        EXPECT_EQ(in_child([&] {
                      bytes[6] = 99;  // the child's copy
                      const bool all = region->acquire() == -ECHILD &&
                                       region->release() == -ECHILD && region->sync() == -ECHILD &&
                                       region->prefer(0, 1) == -ECHILD &&
                                       region->close() == -ECHILD;
                      region.reset();
                      std::exit(all ? 7 : 1);
                  }),
                  7);
    EXPECT_EQ(region->release(), 1);
    auto wanted = pattern(8, 1 << 20);
    wanted[5] = 1;
    std::vector<std::uint8_t> now(wanted.size());
    std::ifstream(folder_ / "mapped", std::ios::binary)
        .read(reinterpret_cast<char*>(now.data()), static_cast<std::streamsize>(now.size()));
    EXPECT_TRUE(now == wanted);
    EXPECT_EQ(region->close(), 0);
}

TEST_F(fork, objects_that_live_as_long_as_the_process) {
    options o = small_options(folder_);
    o.writable = true;
    global_runtime = make_runtime(o);
    write_file(folder_ / "mapped", pattern(8, 1 << 20));
    ASSERT_TRUE(map_region(*global_runtime, folder_ / "mapped", 0, 0, protection::read_write, {},
                           global_region)
                    .ok());
    for (int i = 0; i < 3; ++i) EXPECT_EQ(in_child([] { std::exit(0); }), 0);
    global_region.reset();
    global_runtime.reset();
}

TEST_F(fork, a_child_makes_its_own) {
#if defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "ThreadSanitizer allows no threads in a child";
#endif
    for (int i = 0; i < 3; ++i)
        EXPECT_EQ(
            in_child([this] {
                std::unique_ptr<runtime> own;
                std::atomic<std::uint64_t> wrong{0};
                bool good = runtime::make(small_options(folder_), own).ok();
                const shared_file file =
                    good ? own->open_everywhere(folder_ / "data") : shared_file{};
                good = good && file.code() == 0 &&
                       launch<width::lane>(*own, 200, read_at_random{file, &wrong}) == 0 &&
                       wrong == 0;
                std::unique_ptr<file_region> region;
                good =
                    good &&
                    map_region(*own, folder_ / "data", 0, 0, protection::read, {}, region).ok() &&
                    region->acquire() == 0;
                region.reset();
                own.reset();
                std::exit(good ? 7 : 1);
            }),
            7);
}

}  // namespace penstock::test
