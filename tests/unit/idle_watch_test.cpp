// Idle service threads: where posters ring, all sleep; elsewhere one looks at the rings of all, and
// none of the others is woken for nothing.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>

#include "service/idle_watch.hpp"
#include "runtime/runtime_state.hpp"
#include "penstock/base/atomic.hpp"
#include "soon.hpp"
#include "unit/support.hpp"

namespace penstock::host {

using penstock::test::let_files_settle;
using penstock::test::make_runtime;
using penstock::test::small_options;
using penstock::test::temporary_folder;

namespace {

// No sleeper of these tests wakes by itself before the test has failed.
constexpr idle_watch::limits patient{1'000'000, 900'000'000'000};

// A thread that does what a service thread does when it has nothing to do, with a word for its
// ring.
class idler {
public:
    explicit idler(idle_watch& watch, const idle_watch::limits& limits = patient)
        : watch_(watch), limits_(limits), thread_([this] { run(); }) {}
    ~idler() { end(); }

    void end() {
        stop_ = true;
        bell_.ring();
        if (thread_.joinable()) thread_.join();
    }
    // Keeps it from resting again.
    void hold(bool held) { held_ = held; }
    void post() { atomic_store<order::release, scope::system>(&word_, word_ + 1); }
    [[nodiscard]] std::uint64_t served() const { return served_; }
    [[nodiscard]] bool resting() const { return bell_.is_sleeping(); }
    [[nodiscard]] std::uint64_t rests() const { return rests_; }

private:
    void run() {
        while (!stop_) {
            while (atomic_load<order::acquire, scope::system>(&word_) > served_) ++served_;
            while (held_ && !stop_) std::this_thread::yield();
            ++rests_;
            const auto is_asked = [this] {
                return atomic_load<order::acquire, scope::system>(&word_) > served_;
            };
            watch_.rest({&bell_, is_asked}, limits_, stop_, killed_);
        }
    }

    idle_watch& watch_;
    const idle_watch::limits limits_;
    host_doorbell bell_;
    std::uint64_t word_ = 0;
    std::atomic<std::uint64_t> served_{0}, rests_{0};
    std::atomic<bool> stop_{false}, killed_{false}, held_{false};
    std::thread thread_;
};

using team = std::array<std::unique_ptr<idler>, 4>;

team rested(idle_watch& watch) {
    team out;
    for (auto& sleeper : out) sleeper = std::make_unique<idler>(watch);
    EXPECT_TRUE(soon([&] {
        return std::all_of(out.begin(), out.end(),
                           [](const auto& sleeper) { return sleeper->resting(); });
    }));
    return out;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::int64_t switches() {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    return used.ru_nvcsw;
}

// False: in none of ten spans of this length there were fewer switches than this, and so many more
// a second. On a busy machine threads fall asleep late, and a span may see naps of before.
bool switch_rarely(std::chrono::milliseconds span, double once, double a_second) {
    for (int attempt = 0; attempt < 10; ++attempt) {
        const std::int64_t before = switches();
        const auto start = std::chrono::steady_clock::now();
        std::this_thread::sleep_for(span);
        if (static_cast<double>(switches() - before) < once + a_second * seconds_since(start))
            return true;
    }
    return false;
}

}  // namespace

TEST(idle_watch, a_request_in_any_ring_wakes_its_thread_without_a_bell) {
    idle_watch watch;
    const team all = rested(watch);
    for (std::uint64_t round = 1; round <= 20; ++round)
        for (const auto& sleeper : all) {
            sleeper->post();
            EXPECT_TRUE(soon([&] { return sleeper->served() == round; }));
        }
}

TEST(idle_watch, requests_in_all_rings_at_once) {
    idle_watch watch;
    const team all = rested(watch);
    for (std::uint64_t round = 1; round <= 20; ++round) {
        for (const auto& sleeper : all) sleeper->post();
        for (const auto& sleeper : all)
            EXPECT_TRUE(soon([&] { return sleeper->served() == round; }));
    }
}

// When the thread that watches goes, another one must take its place. Otherwise the rest would
// sleep for minutes.
TEST(idle_watch, a_thread_watches_until_the_last_has_ended) {
    idle_watch watch;
    team all = rested(watch);
    for (std::size_t gone = 0; gone + 1 < all.size(); ++gone) {
        all[gone]->end();
        for (std::size_t i = gone + 1; i < all.size(); ++i) {
            const std::uint64_t before = all[i]->served();
            all[i]->post();
            EXPECT_TRUE(soon([&] { return all[i]->served() == before + 1; }))
                << "after " << gone + 1 << " had ended";
        }
    }
}

// A kernel that starts asks in all rings within microseconds. A request that comes while no thread
// watches must not wait for a nap.
TEST(idle_watch, a_new_watcher_looks_before_it_naps) {
    constexpr std::uint64_t no_more_ns = 900'000'000'000;
    constexpr idle_watch::limits no_second_look{no_more_ns, no_more_ns, no_more_ns};
    idle_watch watch;
    const auto are_listed = [&](std::size_t count) {
        return soon([&] { return watch.resting_count() == count; });
    };
    // On the list in this order.
    idler first(watch, no_second_look);
    ASSERT_TRUE(are_listed(1));
    idler asked(watch, no_second_look);
    ASSERT_TRUE(are_listed(2));
    idler next(watch, no_second_look);
    ASSERT_TRUE(are_listed(3));
    next.hold(true);
    first.end();  // wakes the one that came last
    ASSERT_TRUE(soon([&] { return !next.resting(); }));
    asked.post();
    next.hold(false);
    EXPECT_TRUE(soon([&] { return asked.served() == 1; }));
}

TEST(idle_watch, sleepers_are_left_alone_while_one_watches) {
    idle_watch watch;
    const team all = rested(watch);
    const auto rests = [&] {
        std::uint64_t sum = 0;
        for (const auto& sleeper : all) sum += sleeper->rests();
        return sum;
    };
    // At first each that comes has the watcher begin anew.
    EXPECT_TRUE(soon([&] {
        const std::uint64_t before = rests();
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        return rests() == before;
    }));
}

// The watcher was not asked, and takes long naps when another thread has served a request.
TEST(idle_watch, a_thread_that_comes_to_rest_has_the_watcher_take_short_naps) {
    idle_watch::limits long_naps = patient;
    long_naps.look_ns = long_naps.first_look_ns = 900'000'000'000;
    idle_watch::limits short_at_first = long_naps;
    short_at_first.first_look_ns = 1'000'000;
    idle_watch watch;
    idler unasked(watch, long_naps);
    ASSERT_TRUE(soon([&] { return watch.resting_count() == 1; }));
    idler asked(watch, short_at_first);
    EXPECT_TRUE(soon([&] { return unasked.rests() > 1; })) << "it was not woken";
    for (std::uint64_t round = 1; round <= 20; ++round) {
        asked.post();
        EXPECT_TRUE(soon([&] { return asked.served() == round; }));
    }
}

// Its looks are too rare for the test, until the host is about to use the runtime.
TEST(idle_watch, the_host_makes_a_watcher_look_that_looks_rarely) {
    idle_watch::limits rare = patient;
    rare.rare_look_ns = rare.long_sleep_ns = 900'000'000'000;
    idle_watch watch;
    watch.expect();  // no thread rests
    idler sleeper(watch, rare.after(rare.long_idle_ns));
    for (std::uint64_t round = 1; round <= 20; ++round) {
        ASSERT_TRUE(soon([&] { return sleeper.resting() && watch.is_rare(); }));
        sleeper.post();
        watch.expect();
        EXPECT_TRUE(soon([&] { return sleeper.served() == round; }));
    }
}

// The groups of a small kernel ask one thread only. Another one, which was not asked for long,
// watches for it: with looks that are rare, each request after a pause would wait for one.
TEST(idle_watch, a_thread_that_was_asked_lately_is_watched_often) {
    idle_watch::limits rare = patient;
    rare.rare_look_ns = rare.long_sleep_ns = 900'000'000'000;
    idle_watch watch;
    idler unasked(watch, rare.after(rare.long_idle_ns));
    ASSERT_TRUE(soon([&] { return unasked.resting() && watch.is_rare(); }));
    idler asked(watch);
    for (std::uint64_t round = 1; round <= 20; ++round) {
        ASSERT_TRUE(soon([&] { return asked.resting() && watch.resting_count() == 2; }));
        asked.post();
        EXPECT_TRUE(soon([&] { return asked.served() == round; }));
    }
    EXPECT_TRUE(soon([&] { return !watch.is_rare(); }));
}

TEST(idle_watch, looks_are_rare_only_after_long) {
    idle_watch watch;
    const team all = rested(watch);
    EXPECT_FALSE(watch.is_rare());
}

// Each stage naps longer than the one before, and the watch says which one it is in.
TEST(idle_watch, looks_are_rarer_the_longer_no_request_came) {
    const idle_watch::limits l;
    EXPECT_EQ(l.after(0).first_look_ns, l.first_look_ns);
    EXPECT_EQ(l.after(1).first_look_ns, l.look_ns);
    EXPECT_EQ(l.after(l.long_idle_ns - 1).look_ns, l.look_ns);
    EXPECT_EQ(l.after(l.long_idle_ns).look_ns, l.rare_look_ns);
    EXPECT_EQ(l.after(l.longest_idle_ns).look_ns, l.rarest_look_ns);
    EXPECT_EQ(l.after(l.longest_idle_ns).first_look_ns, l.rarest_look_ns);
    idle_watch watch;
    {
        const idler sleeper(watch, l.after(l.long_idle_ns));
        EXPECT_TRUE(soon([&] { return watch.is_rare() && !watch.is_rarest(); }));
    }
    EXPECT_FALSE(watch.is_rare());
    const idler sleeper(watch, l.after(l.longest_idle_ns));
    EXPECT_TRUE(soon([&] { return watch.is_rare() && watch.is_rarest(); }));
}

// No looks at all: a wake-up a second of each thread, and ten of the monitor. Looks by one thread
// for all were 500.
TEST(idle_watch, threads_sleep_where_posters_ring) {
    const temporary_folder folder;
    test::write_file(folder / "a", test::pattern(1, 20 * 4096));
    let_files_settle();
    options o = small_options(folder);
    o.service_threads = 8;
    const auto rt = make_runtime(o);
    const int fd = rt->open("a");
    for (int round = 0; round < 3; ++round) {
        std::uint8_t byte = 0;
        EXPECT_EQ(rt->read(fd, &byte, 1, round * 4096), 1);
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        // Runtimes of two caches have twice as many threads.
        EXPECT_TRUE(switch_rarely(std::chrono::milliseconds(500), 20, 100));
    }
}

TEST(idle_watch, an_idle_runtime_wakes_little_more_than_one_thread) {
    const temporary_folder folder;
    test::write_file(folder / "a", test::pattern(1, 20 * 4096));
    let_files_settle();
    options o = small_options(folder);
    o.service_threads = 8;
    runtime_hooks hooks;
    hooks.no_doorbells = true;
    const auto rt = make_runtime(o, hooks);
    const int fd = rt->open("a");
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    // A second: 1000 of the one that watches, 50 of the monitor, 80 of those that sleep. Each for
    // itself: 8000.
    EXPECT_TRUE(switch_rarely(std::chrono::seconds(1), 0, 2500));
    std::vector<std::thread> readers;
    for (int i = 0; i < 16; ++i)
        readers.emplace_back([&, i] {
            std::uint8_t byte = 0;
            EXPECT_EQ(rt->read(fd, &byte, 1, i * 4096 + 5), 1);
            EXPECT_EQ(byte, test::pattern_byte(1, static_cast<std::uint64_t>(i) * 4096 + 5));
        });
    for (std::thread& thread : readers) thread.join();
}

// Short naps at first are for requests that follow each other; once a kernel has asked, one thread
// takes them for all.
TEST(idle_watch, threads_fall_asleep_with_few_naps) {
    const temporary_folder folder;
    options o = small_options(folder, 1);
    o.service_threads = 8;
    runtime_hooks hooks;
    hooks.no_doorbells = true;
    const auto rt = make_runtime(o, hooks);
    const std::int64_t before = switches();
    const auto start = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    // 48 naps of each, 64 of the one that watches and 500 a second more of it, the monitor's. Each
    // for itself, until it sleeps: over 1000.
    EXPECT_LT(static_cast<double>(switches() - before), 500 + 1500 * seconds_since(start));
}

// With the 50 us that the kernel adds by itself, a nap of 20 us would take 70 and more.
TEST(idle_watch, naps_are_not_stretched_by_the_kernel) {
    const temporary_folder folder;
    const auto rt = make_runtime(small_options(folder));
    const auto first_line = [](const std::filesystem::path& of) {
        std::string line;
        std::getline(std::ifstream(of), line);
        return line;
    };
    int found = 0;
    ASSERT_TRUE(soon([&] {
        for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
            if (first_line(task.path() / "comm") != "penstock-serve") continue;
            const std::string slack_ns =
                first_line("/proc/" + task.path().filename().string() + "/timerslack_ns");
            if (slack_ns.empty() || std::stoull(slack_ns) <= 1000) ++found;
        }
        return found > 0;
    }));
}

TEST(idle_watch, an_idle_runtime_ends_at_once) {
    const temporary_folder folder;
    options o = small_options(folder);
    o.service_threads = 16;
    // Sixteen that sleep to the end of their time would need more than a second, each time; on a
    // busy machine others may too.
    double fastest_s = 1e9;
    for (int attempt = 0; attempt < 50 && fastest_s > 0.7; ++attempt) {
        auto rt = make_runtime(o);
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        const auto start = std::chrono::steady_clock::now();
        rt.reset();
        fastest_s = std::min(fastest_s, seconds_since(start));
    }
    EXPECT_LT(fastest_s, 0.7);
}

}  // namespace penstock::host
