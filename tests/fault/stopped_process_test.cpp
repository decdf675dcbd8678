// A process that is stopped for longer than its patience (Ctrl-Z, SIGSTOP) goes on where it was: a
// read that waits for its disk waits on, and does not find that its own host stood still.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <thread>

#include <dlfcn.h>

#include "fault/scenario.hpp"

// The monitor thread of a process that was stopped in its sleep rests for a while, so that threads
// that wait look before it beats: without that either may be first.
extern "C" int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                      clockid_t clock, const timespec* until) {
    static const auto wait = reinterpret_cast<decltype(&pthread_cond_clockwait)>(
        dlsym(RTLD_NEXT, "pthread_cond_clockwait"));
    const int code = wait(condition, mutex, clock, until);
    char name[16] = "";
    timespec now{};
    clock_gettime(clock, &now);
    pthread_getname_np(pthread_self(), name, sizeof name);
    if (std::strcmp(name, "penstock-beat") == 0 && now.tv_sec > until->tv_sec + 1) {
        const timespec rest{0, 200'000'000};
        nanosleep(&rest, nullptr);
    }
    return code;
}

namespace penstock::fault {

namespace {

constexpr std::uint32_t patience_ms = 2000;

// The child: its read waits until the parent says so. 0, or what went wrong.
int read_when_told(int tell, int told) {
    const sample_folder from;
    faulty_environment disk;
    options o = tiny_options(from, io_method::pread);
    o.host_wait_ms = patience_ms;
    const auto rt = test::make_runtime(o, tiny_hooks(disk));
    const int fd = open(lane{}, rt->ref(), "big");
    std::uint8_t byte = 0;
    if (read(lane{}, rt->ref(), fd, &byte, 1, 127 * page) != 1) return 2;  // opens; fills a table
    disk.stall(call_read);
    std::thread teller([&] {
        while (disk.stalled() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        // The waiter has looked by now, or looks for the first time after the stop.
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        char word = 'w';
        static_cast<void>(!::write(tell, &word, 1));
        static_cast<void>(!::read(told, &word, 1));
        disk.release();
    });
    const std::int64_t got = read(lane{}, rt->ref(), fd, &byte, 1, 0);
    disk.release();
    teller.join();
    if (got == 1) return 0;
    std::fprintf(stderr, "%s\n", error_text(got).c_str());
    return 3;
}

}  // namespace

TEST(stopped_process, read_goes_on_after_a_stop_longer_than_its_patience) {
    int said[2], heard[2];
    ASSERT_EQ(::pipe(said), 0);
    ASSERT_EQ(::pipe(heard), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) _exit(read_when_told(said[1], heard[0]));
    ::close(said[1]);
    char word = 0;
    ASSERT_EQ(::read(said[0], &word, 1), 1) << "the child ended";
    ASSERT_EQ(::kill(child, SIGSTOP), 0);
    int state = 0;
    ASSERT_EQ(::waitpid(child, &state, WUNTRACED), child);
    ASSERT_TRUE(WIFSTOPPED(state));
    std::this_thread::sleep_for(std::chrono::milliseconds(patience_ms + 1000));
    ASSERT_EQ(::kill(child, SIGCONT), 0);
    // In which the wait would end if the stop had counted.
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    ASSERT_EQ(::write(heard[1], &word, 1), 1);
    ASSERT_EQ(::waitpid(child, &state, 0), child);
    EXPECT_TRUE(WIFEXITED(state));
    EXPECT_EQ(WEXITSTATUS(state), 0);
    for (const int end : {said[0], heard[0], heard[1]}) ::close(end);
}

}  // namespace penstock::fault
