// Regions whose opens of the file wait for another program's lease, and signals that come
// meanwhile.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "os/came_signal.hpp"
#include "region/support.hpp"

namespace penstock::test {

namespace {

std::atomic<int> signals_seen{0};

// Runs `call` on a thread while another handle of the file holds a lease that the call has to wait
// for, and ends the wait by signals before the lease goes back. False: there are no leases here.
bool runs_beside_a_lease(const std::string& path, int kind, const std::function<void()>& call) {
    const int held =
        ::open(path.c_str(), (kind == F_RDLCK ? O_RDONLY : O_RDWR) | O_CLOEXEC | O_NONBLOCK);
    if (held < 0 || ::fcntl(held, F_SETSIG, SIGURG) != 0 || ::fcntl(held, F_SETLEASE, kind) != 0) {
        if (held >= 0) ::close(held);
        return false;
    }
    struct sigaction noted {
    }, before{};
    noted.sa_handler = [](int) { ++signals_seen; };  // without SA_RESTART
    ::sigaction(SIGUSR1, &noted, &before);
    std::atomic<bool> is_done{false};
    std::thread caller([&] {
        call();
        is_done = true;
    });
    while (!is_done && ::fcntl(held, F_GETLEASE) == kind)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (int sent = 0; sent < 3 && !is_done; ++sent) {
        const int seen = signals_seen;
        ::pthread_kill(caller.native_handle(), SIGUSR1);
        while (signals_seen == seen && !is_done)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        std::this_thread::sleep_for(std::chrono::milliseconds(10));  // until it waits again
    }
    ::fcntl(held, F_SETLEASE, F_UNLCK);
    caller.join();
    ::close(held);
    ::sigaction(SIGUSR1, &before, nullptr);
    return true;
}

}  // namespace

// The open of a release waits for the lease of another program, and so does that of a mapping.
TEST(region_signals, signals_end_no_wait_for_a_lease) {
    const temporary_folder folder;
    std::vector<std::uint8_t> expected = pattern(11, 300 * 4096);
    write_file(folder / "f", expected);
    const auto rt = make_runtime(region_runtime(folder, backend::cpu));
    auto r = map_whole(*rt, folder / "f", protection::read_write);
    poke(*r, backend::cpu, 4097, {9});
    expected[4097] = 9;
    if (!runs_beside_a_lease(folder / "f", F_RDLCK, [&] { EXPECT_EQ(r->close(), 0); }))
        GTEST_SKIP() << "no leases here";
    EXPECT_TRUE(read_file(folder / "f") == expected);
    r.reset();
    EXPECT_TRUE(runs_beside_a_lease(folder / "f", F_WRLCK,
                                    [&] { r = map_whole(*rt, folder / "f", protection::read); }));
    ASSERT_NE(r, nullptr);
    EXPECT_TRUE(peek(*r, backend::cpu, 0, expected.size()) == expected);
}

// But a program that asked for it (interrupt_on_signals) waits no longer after Ctrl-C.
TEST(region_signals, a_signal_for_the_end_ends_the_wait_for_a_lease) {
    const temporary_folder folder;
    std::vector<std::uint8_t> expected = pattern(12, 300 * 4096);
    write_file(folder / "f", expected);
    const auto rt = make_runtime(region_runtime(folder, backend::cpu));
    const auto r = map_whole(*rt, folder / "f", protection::read_write);
    poke(*r, backend::cpu, 4097, {9});
    expected[4097] = 9;
    const bool there_are_leases = runs_beside_a_lease(folder / "f", F_RDLCK, [&] {
        host::signal_came = true;
        EXPECT_EQ(r->release(), -ECANCELED);
        host::signal_came = false;
    });
    if (!there_are_leases) GTEST_SKIP() << "no leases here";
    EXPECT_EQ(r->release(), 1);
    EXPECT_TRUE(read_file(folder / "f") == expected);
}

}  // namespace penstock::test
