// The thread of a service: its rounds while there is work, and its rest while there is none.
#include <algorithm>
#include <chrono>
#include <pthread.h>
#include <sys/prctl.h>
#include <utility>

#include "os/size_signal.hpp"
#include "service/service.hpp"
#include "service/trace.hpp"

namespace penstock::host {

namespace {
constexpr unsigned long timer_slack_ns = 1000;
// Idle rounds before a thread naps or sleeps.
constexpr std::uint32_t yields = 200;
// A block of a store comes in milliseconds.
constexpr std::chrono::microseconds block_nap(50);
}  // namespace

service::~service() {
    begin_end();
    if (thread_.joinable()) thread_.join();
}

// Ordered before the bell's look at the sleeper: either the thread sees the stop before it sleeps,
// or the bell wakes it (os/bell_word.hpp).
void service::begin_end() {
    stop_.store(true, std::memory_order_relaxed);
    doorbell_->ring();
}

void service::start() {
    alive_.store(true, std::memory_order_release);
    thread_ = std::thread([this] {
        pthread_setname_np(pthread_self(), "penstock-serve");
        ignore_size_signal();
        // Naps are as short as 20 us; the kernel would add up to 50 us to each to save wake-ups.
        ::prctl(PR_SET_TIMERSLACK, timer_slack_ns, 0, 0, 0);
        try {
            if (settings_.is_helper) settings_.crew->count_awake(1);
            run();
        } catch (...) {  // out of memory: the monitor sees a dead thread and releases every waiting
                         // kernel
            alive_.store(false, std::memory_order_release);
        }
    });
}

void service::run() {
    std::uint32_t idle_rounds = 0;
    while (!must_end()) {
        std::uint32_t taken = 0;
        rounds_.store(rounds_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
        if (any_is_posted()) {
            const trace_range range("batch");
            taken = take_requests();
            io_->submit();
        }
        note_backlog(std::exchange(worth_helpers_, 0));
        run_writers();
        const bool has_copies = !copying_.empty();
        if (has_copies) look_at_copies();
        const bool has_blocks = awaits_blocks();
        if (has_blocks) look_at_blocks();
        if (taken == 0 && in_flight_ > 0)
            io_->submit();  // reads that finish() started again after a short read
        const bool has_wishes = !wishes_.empty();
        if (has_wishes) ask_for_wishes(taken == 0 ? 16 : 2);
        handles_.forget_stale();
        if (!settling_.empty()) {
            settle_files();
            std::this_thread::yield();
        }
        const bool only_reads =
            in_flight_ > 0 && taken == 0 && !has_wishes && !has_copies && !has_blocks;
        finish_all(only_reads ? read_wait_ns() : 0);
        fruitless_waits_ = only_reads && finished_.empty() ? fruitless_waits_ + 1 : 0;
        if (has_copies && taken == 0) std::this_thread::yield();
        else if (has_blocks && taken == 0) std::this_thread::sleep_for(block_nap);
        const bool is_idle = taken == 0 && in_flight_ == 0 && writers_.empty() && !has_wishes &&
                             settling_.empty() && !awaits_blocks();
        idle_rounds = is_idle ? rest(idle_rounds + 1) : 0;
    }
    while (!writers_.empty() && !killed_.load(std::memory_order_relaxed)) run_writers();
    give_up_copies();
    give_up_blocks();
    // The operating system still writes to the staging area, which must not be freed before the
    // last read came back.
    constexpr std::uint64_t round_ns = 1'000'000;
    for (std::uint64_t waited_ns = 0; in_flight_ > 0 && waited_ns < settings_.drain_ns;
         waited_ns += round_ns) {
        io_->submit();
        finish_all(round_ns);
    }
    alive_.store(false, std::memory_order_release);
}

// With reads in flight and no new request the thread waits a moment for a read to finish. New
// requests wait no longer than that. While a disk takes long, the moments grow to 320 us, or they
// would take much of a processor.
std::uint64_t service::read_wait_ns() const {
    constexpr std::uint32_t waits_of_a_length = 64;
    return 20'000ull << std::min(fruitless_waits_ / waits_of_a_length, 4u);
}

// Rests while idle: the thread looks again at once for a while, but not beside a busy program. Then
// it sleeps until a poster rings, or, where posters cannot, takes longer and longer naps and soon
// lets one thread watch for all. Alone, each thread would take hundreds of naps until it may sleep,
// which was most of the processor time of a kernel that asks once. Returns how many idle rounds
// there were, for the next call.
std::uint32_t service::rest(std::uint32_t idle_rounds) {
    constexpr std::uint32_t naps_of_a_length = 16, lengths = 3,
                            long_asleep = yields + naps_of_a_length * lengths;
    handles_.forget_stale();
    if (settings_.is_helper) return rest_as_helper(idle_rounds);
    if (idle_rounds < yields && !patient_.must_sleep()) {
        patient_.yield();
        return idle_rounds;
    }
    idle_rounds = std::max(idle_rounds, yields);
    if (posters_ring_) {
        sleep_until_rung();
        return yields - 1;
    }
    // Woken to watch for all although this thread has nothing to do: work has come for another
    // thread.
    if (idle_rounds >= long_asleep) return watch_or_sleep() ? long_asleep - 1 : long_asleep;
    const std::uint64_t nap_ns = 20'000ull << ((idle_rounds - yields) / naps_of_a_length);
    doorbell_->begin_sleep();
    if (!any_is_posted() && !must_end()) doorbell_->wait(nap_ns);
    doorbell_->end_sleep();
    return idle_rounds;
}

// A poster that comes after the look rings.
void service::sleep_until_rung() {
    handles_.forget_all();  // another thread may wait for a handle to go
    doorbell_->begin_sleep();
    if (!any_is_posted() && !must_end()) doorbell_->wait(settings_.sleep_ns);
    doorbell_->end_sleep();
}

// As idle_watch::rest.
bool service::watch_or_sleep() {
    handles_.forget_all();
    const idle_watch::limits limits = settings_.idle.after(watched_ns_);
    const bool woken = settings_.watch->rest({doorbell_, [this] { return any_is_posted(); }},
                                             limits, stop_, killed_);
    if (woken && watched_ns_ >= limits.longest_idle_ns && settings_.crew != nullptr)
        settings_.crew->end_rest();
    watched_ns_ = woken ? 0 : watched_ns_ + limits.sleep_ns;
    return woken;
}

// A helper that was woken looks at the rings for two milliseconds from its last request on: with
// less, helpers fell asleep between the bursts of a kernel that reads a file, and it took a third
// longer. While a thread is stalled it then naps between its looks: no poster can ring it.
std::uint32_t service::rest_as_helper(std::uint32_t idle_rounds) {
    constexpr std::chrono::milliseconds awake(2);
    constexpr std::uint32_t naps_of_a_length = 16;
    constexpr std::uint64_t sleep_ns = 10'000'000'000;
    service_crew& crew = *settings_.crew;
    const auto now = std::chrono::steady_clock::now();
    if (idle_rounds == 1) idle_since_ = now;
    if (now - idle_since_ < awake && !patient_.must_sleep()) {
        patient_.yield();
        return std::min(idle_rounds, yields);
    }
    const std::uint32_t naps = idle_rounds < yields ? 0 : idle_rounds - yields;
    if (crew.is_stalled()) {
        doorbell_->begin_sleep();
        if (!any_is_posted() && !must_end())
            doorbell_->wait(20'000ull << std::min(naps / naps_of_a_length, 5u));
        doorbell_->end_sleep();
        return yields + naps;
    }
    handles_.forget_all();
    crew.count_awake(-1);
    doorbell_->begin_sleep();
    const bool woken = must_end() || doorbell_->wait(sleep_ns);
    doorbell_->end_sleep();
    crew.count_awake(1);
    return woken ? 0 : yields;
}

// A helper is worth so much time in rounds that each take several requests, one after the other. A
// round may take hundreds of large pages, which is milliseconds: then more than one is asked for.
// Writes do not count: those of a file wait for each other, and with 16 threads took a sixth longer
// than with 4 (bench/results/h100/2026-11-27-write.json).
void service::note_backlog(std::uint32_t taken) {
    constexpr std::uint32_t several = 4;
    constexpr std::chrono::microseconds worth_a_helper(150);
    constexpr std::int64_t most_in_a_round = 8;  // a round may also have waited for a disk
    if (settings_.crew == nullptr || !settings_.crew->takes_backlog()) return;
    if (taken < several) return crowded_since_.reset();
    const auto now = std::chrono::steady_clock::now();
    if (!crowded_since_) crowded_since_ = now;
    const std::int64_t wanted =
        std::min<std::int64_t>((now - *crowded_since_) / worth_a_helper, most_in_a_round);
    for (std::int64_t i = 0; i < wanted; ++i) settings_.crew->ask_for_backlog();
    if (wanted != 0) crowded_since_ = now;
}

bool service::any_is_posted() const {
    return std::any_of(rings_.begin(), rings_.end(),
                       [](const host_ring& ring) { return next_is_posted(ring); });
}

}  // namespace penstock::host
