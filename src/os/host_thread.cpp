// The host half of a lane that needs the operating system: clock, yield, nap, and the doorbell of a
// service thread.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>

#include "os/bell_word.hpp"
#include "os/patient_yield.hpp"
#include "penstock/group/doorbell.hpp"
#include "penstock/group/lane.hpp"

namespace penstock {

namespace detail {

std::uint64_t host_now_ns() {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                          std::chrono::steady_clock::now().time_since_epoch())
                                          .count());
}

void host_nap() { std::this_thread::sleep_for(std::chrono::microseconds(20)); }

// Naps grow with the time of the wait: after the first ones each is no longer than a thirtieth of
// it. Thousands of threads that wait would leave hardly any time to the thread that they wait for.
// So in a crowd a thread naps as soon as a yield takes long, and twice as long after each nap that
// does. Without a crowd, and beside a busy program, its first rounds nap too
// (os/patient_yield.hpp).
void host_yield_or_nap(std::uint32_t round) {
    constexpr std::uint32_t yields = 448, naps_of_a_length = 64, most_doublings = 6, crowd = 32;
    constexpr std::uint64_t first_nap_ns = 20'000, late_ns = 200'000, longest_ns = 10'000'000;
    static std::atomic<std::uint32_t> waiting{0};  // threads in this function; orders nothing
    thread_local std::uint64_t nap_ns = 0;         // 0: yields are enough
    thread_local host::patient_yield patient;
    if (round == 0) nap_ns = 0;
    if (patient.must_sleep()) nap_ns = std::max(nap_ns, first_nap_ns);
    if (round >= yields) {
        const std::uint32_t doublings = (round - yields) / naps_of_a_length;
        nap_ns = std::max(nap_ns, first_nap_ns << std::min(doublings, most_doublings));
    }
    const bool is_crowd = waiting.fetch_add(1, std::memory_order_relaxed) >= crowd;
    const std::uint64_t begun_ns = is_crowd ? host_now_ns() : 0;
    if (nap_ns == 0) patient.yield();
    else std::this_thread::sleep_for(std::chrono::nanoseconds(nap_ns));
    waiting.fetch_sub(1, std::memory_order_relaxed);
    if (!is_crowd) return;
    const std::uint64_t took_ns = host_now_ns() - begun_ns;
    if (took_ns > nap_ns + late_ns)
        nap_ns = std::min(std::max(2 * nap_ns, took_ns / 4), longest_ns);
}

}  // namespace detail

struct host_doorbell::parts {
    std::uint32_t word = host::bell_awake;
};

host_doorbell::host_doorbell() : parts_(new parts) {}
host_doorbell::~host_doorbell() { delete parts_; }

void host_doorbell::begin_sleep() { host::begin_bell_sleep(&parts_->word); }
void host_doorbell::end_sleep() { host::end_bell_sleep(&parts_->word); }
bool host_doorbell::is_sleeping() const { return host::is_bell_asleep(&parts_->word); }
bool host_doorbell::is_rung() const { return host::is_rung(&parts_->word); }

bool host_doorbell::ring() {
    if (!host::ring_bell(&parts_->word)) return false;
    ::syscall(SYS_futex, &parts_->word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
    return true;
}

// The time of a futex wait that a signal or a spurious wake-up ends is not added again.
bool host_doorbell::wait(std::uint64_t limit_ns) {
    const std::uint64_t end = detail::host_now_ns() + limit_ns;
    while (!host::is_rung(&parts_->word)) {
        const std::uint64_t now = detail::host_now_ns();
        if (now >= end) return false;
        const timespec left{static_cast<time_t>((end - now) / 1'000'000'000),
                            static_cast<long>((end - now) % 1'000'000'000)};
        ::syscall(SYS_futex, &parts_->word, FUTEX_WAIT_PRIVATE, host::bell_asleep, &left, nullptr,
                  0);
    }
    return true;
}

}  // namespace penstock
