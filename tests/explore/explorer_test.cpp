// Does the explorer itself see every outcome? Small programs whose outcomes are known, and random
// ones that are also run under plainly every schedule.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>

#include "explore/explorer.hpp"
#include "penstock/base/atomic.hpp"

namespace {

using namespace penstock;

struct small_memory {
    std::uint64_t word[4];
    std::uint64_t result[4];
};
small_memory memory;

// A bound that no program here reaches: nothing is left out. With limits::remember off nothing is
// reduced either.
constexpr int all_switches = 1000;

explore::program small_program(
    std::vector<std::function<void()>> fibers, std::function<void()> check = [] {}) {
    explore::program program;
    program.fibers = std::move(fibers);
    program.reset = [] { std::memset(&memory, 0, sizeof memory); };
    program.check = std::move(check);
    program.memory = reinterpret_cast<std::byte*>(&memory.word);
    program.memory_bytes = sizeof memory.word;
    return program;
}

std::uint64_t load(int i) { return atomic_load<order::relaxed>(&memory.word[i]); }
void store(int i, std::uint64_t v) { atomic_store<order::relaxed>(&memory.word[i], v); }
void pause() { explore::explorer::current()->pause(); }

TEST(explorer, runs_independent_accesses_once) {
    explore::explorer x(
        small_program({[] { store(0, 1); }, [] { store(1, 1); }, [] { store(2, 1); }}), {});
    const auto out = x.run();
    EXPECT_TRUE(out.complete);
    EXPECT_EQ(out.schedules, 1u);
}

TEST(explorer, finds_the_lost_update) {
    const auto add = [] { store(0, load(0) + 1); };
    explore::explorer x(
        small_program({add, add}, [] { explore::require(memory.word[0] == 2, "lost an update"); }),
        {});
    const auto out = x.run();
    EXPECT_EQ(out.violation, "lost an update");
    EXPECT_NE(out.trace.find("fiber 1 writes"), std::string::npos);
}

TEST(explorer, finds_that_no_fiber_can_go_on) {
    const auto wait_for = [](int i) {
        while (load(i) == 0) pause();
    };
    explore::explorer x(
        small_program({[=] { wait_for(0), store(1, 1); }, [=] { wait_for(1), store(0, 1); }}), {});
    EXPECT_EQ(x.run().violation, "a fiber waits for ever");
}

TEST(explorer, wakes_a_waiter_and_ends) {
    explore::explorer x(
        small_program({[] {
                           while (load(0) == 0) pause();
                           memory.result[0] = load(1);
                       },
                       [] { store(1, 7), store(0, 1); }},
                      [] { explore::require(memory.result[0] == 7, "woke too early"); }),
        {});
    const auto out = x.run();
    EXPECT_TRUE(out.complete) << out.violation;
}

TEST(explorer, lets_time_out_only_what_nothing_else_can_wake) {
    explore::explorer x(
        small_program({[] {
                           const auto begin = explore::explorer::current()->now();
                           while (load(0) == 0 && explore::explorer::current()->now() == begin)
                               pause();
                           memory.result[0] = load(0);
                       },
                       [] { store(0, 1); }},
                      [] { explore::require(memory.result[0] == 1, "timed out"); }),
        {});
    EXPECT_TRUE(x.run().complete);
}

// Every fiber does a few random steps; one in four waits until a word is at least something, for a
// bounded time.
struct random_step {
    std::uint32_t kind, word, value;
};

void run_steps(const std::vector<random_step>& steps, std::uint64_t& seen) {
    for (const random_step& s : steps) {
        if (s.kind == 0) store(s.word, s.value);
        if (s.kind == 1) seen = seen * 31 + load(s.word);
        if (s.kind == 2)
            seen = seen * 31 +
                   atomic_fetch_add<order::relaxed>(&memory.word[s.word], std::uint64_t{1});
        if (s.kind == 3) {
            const auto begin = explore::explorer::current()->now();
            while (load(s.word) + load((s.word + 1) % 3) < s.value &&
                   explore::explorer::current()->now() == begin)
                pause();
        }
    }
}

std::string print_steps(const std::vector<std::vector<random_step>>& fibers) {
    std::string text;
    for (const auto& fiber : fibers) {
        text += "\nfiber:";
        for (const random_step& s : fiber)
            text += std::string(" ") + "slaw"[s.kind] + std::to_string(s.word) + "," +
                    std::to_string(s.value);
    }
    return text;
}

struct seen_outcomes {
    std::set<std::string> states;
    explore::outcome out;
};

seen_outcomes explore_steps(const std::vector<std::vector<random_step>>& fibers, int preemptions,
                            bool remember = false) {
    seen_outcomes seen;
    std::vector<std::function<void()>> bodies;
    for (std::size_t i = 0; i < fibers.size(); ++i)
        bodies.push_back([&fibers, i] { run_steps(fibers[i], memory.result[i]); });
    explore::explorer x(
        small_program(
            bodies,
            [&] { seen.states.emplace(reinterpret_cast<const char*>(&memory), sizeof memory); }),
        {20'000, preemptions, remember});
    seen.out = x.run();
    return seen;
}

std::vector<std::vector<random_step>> random_fibers(std::mt19937& random) {
    std::vector<std::vector<random_step>> fibers(2 + random() % 2);
    const std::size_t steps = fibers.size() == 2 ? 4 : 3;
    for (auto& fiber : fibers)
        for (std::size_t i = 0; i < steps; ++i)
            fiber.push_back({static_cast<std::uint32_t>(random() % 4),
                             static_cast<std::uint32_t>(random() % 3),
                             static_cast<std::uint32_t>(1 + random() % 3)});
    return fibers;
}

TEST(explorer, reaches_every_final_state_of_random_programs) {
    std::mt19937 random(20240607);
    std::uint64_t reduced = 0, plain = 0;
    int compared = 0;
    for (int round = 0; round < 150; ++round) {
        const auto fibers = random_fibers(random);
        const auto all = explore_steps(fibers, all_switches), some = explore_steps(fibers, -1);
        ASSERT_EQ(all.out.violation + some.out.violation, "");
        if (!all.out.complete) continue;  // too many for the plain way
        ++compared;
        ASSERT_TRUE(some.out.complete);
        ASSERT_TRUE(all.states == some.states)
            << "round " << round << ": " << some.states.size() << " of " << all.states.size()
            << print_steps(fibers);
        plain += all.out.schedules;
        reduced += some.out.schedules + some.out.cut;
    }
    std::printf("%d programs: plain %llu schedules, reduced %llu\n", compared,
                static_cast<unsigned long long>(plain), static_cast<unsigned long long>(reduced));
    EXPECT_GT(compared, 50);
    EXPECT_LT(reduced, plain / 4);
}

// Within each bound: going on from a state once leaves out no final state, and no more is reached.
TEST(explorer, reaches_within_a_bound_what_it_reaches_without_a_memory_of_states) {
    std::mt19937 random(20261126);
    std::uint64_t remembered = 0, plain = 0;
    int compared = 0;
    for (int round = 0; round < 60; ++round) {
        const auto fibers = random_fibers(random);
        for (const int bound : {0, 1, 2, 3, all_switches}) {
            const auto all = explore_steps(fibers, bound),
                       some = explore_steps(fibers, bound, true);
            ASSERT_EQ(all.out.violation + some.out.violation, "");
            if (!all.out.complete) continue;  // too many for the plain way
            ++compared;
            ASSERT_TRUE(some.out.complete);
            ASSERT_TRUE(all.states == some.states)
                << "round " << round << ", bound " << bound << ": " << some.states.size() << " of "
                << all.states.size() << print_steps(fibers);
            ASSERT_EQ(all.out.ends, some.out.ends);
            plain += all.out.schedules;
            remembered += some.out.schedules + some.out.cut;
        }
    }
    std::printf("%d explorations: plain %llu schedules, with a memory %llu\n", compared,
                static_cast<unsigned long long>(plain),
                static_cast<unsigned long long>(remembered));
    EXPECT_GT(compared, 200);
    EXPECT_LT(remembered, plain / 4);
}

// A fiber that reads beside its accesses, as checks do, fails in one order of two steps that are
// independent by their words. The state before is met once, and both orders are tried from there.
TEST(explorer, makes_every_step_from_a_state_that_it_met) {
    explore::explorer x(small_program({[] {
                                           store(1, 1);
                                           explore::require(memory.word[0] == 0,
                                                            "the other came first");
                                       },
                                       [] { store(0, 1); }}),
                        {.preemptions = 1});
    EXPECT_EQ(x.run().violation, "the other came first");
}

}  // namespace
