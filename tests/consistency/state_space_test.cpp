// Every state of one page under the protocol, for two to four owners; and what each rule of it is
// for: without it a shortest story ends wrong.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "consistency/moves.hpp"
#include "consistency/search.hpp"
#include "rounds.hpp"

namespace penstock::consistency::model {

namespace {

template <unsigned Devices, bool Symmetric = false>
std::string explore(value writes, bool trouble, std::size_t& states,
                    const rules<Devices>& by = {}) {
    search<world<Devices>, moves<Devices, Symmetric>> all;
    std::string wrong = all.run({writes, trouble, by}, world<Devices>{});
    states = all.states();
    std::printf("%u devices, %d writes of one byte: %zu states, %zu moves\n", Devices, writes,
                all.states(), all.moves());
    return wrong;
}

// The numbers are some less than there were: a search that stops early does not pass.
TEST(consistency, one_device_and_the_cpu) {
    std::size_t states = 0;
    EXPECT_EQ(explore<1>(3, true, states), "");
    EXPECT_GT(states, 500000u);
}

// PENSTOCK_STATE_SPACE=N: N writes, and steps that fail and syncs as well; and with three devices
// two writes. That takes a quarter of an hour and 9 GB.
TEST(consistency, two_devices_and_the_cpu) {
    const char* const large = std::getenv("PENSTOCK_STATE_SPACE");
    std::size_t states = 0;
    EXPECT_EQ(explore<2>(large != nullptr ? static_cast<value>(std::atoi(large)) : value{2},
                         large != nullptr, states),
              "");
    EXPECT_GT(states, 5000000u);
}

// The order in which changes come home is that of the numbers of devices. Here they come in any
// order, so more may happen than does. Then a state in which devices have changed their numbers is
// no other state.
template <unsigned Devices>
rules<Devices> in_any_order() {
    rules<Devices> by;
    by.any_order = true;
    return by;
}
TEST(consistency, three_devices_and_the_cpu) {
    const value writes = std::getenv("PENSTOCK_STATE_SPACE") != nullptr ? 2 : 1;
    std::size_t states = 0;
    EXPECT_EQ((explore<3, true>(writes, false, states, in_any_order<3>())), "");
    EXPECT_GT(states, writes == 1 ? 2000000u : 130000000u);
}

TEST(consistency, states_by_any_number_stand_for_all) {
    search<world<2>, moves<2, false>> all;
    search<world<2>, moves<2, true>> some;
    EXPECT_EQ(all.run({1, true, in_any_order<2>()}, world<2>{}), "");
    EXPECT_EQ(some.run({1, true, in_any_order<2>()}, world<2>{}), "");
    EXPECT_EQ(some.named_states(), all.states());
    EXPECT_LT(some.states(), all.states() / 10 * 6);
    std::printf("%zu states stand for %zu\n", some.states(), all.states());
}

// Devices alone, which is less by far. Minutes, and 2 GB.
TEST(consistency, three_devices_that_write_twice) {
    if (test::usual_share != 1 && std::getenv("PENSTOCK_STATE_SPACE") == nullptr)
        GTEST_SKIP() << "only in the long form (PENSTOCK_LONG_TESTS), or with PENSTOCK_STATE_SPACE";
    rules<3> devices_alone = in_any_order<3>();
    devices_alone.cpu_programs = false;
    std::size_t states = 0;
    EXPECT_EQ((explore<3, true>(2, false, states, devices_alone)), "");
    EXPECT_GT(states, 20000000u);
}

// ---- canaries: each breaks one rule, and passes if a program then reads what it must not, or
// storage lacks what it must have

using page = page_versions<2>;

// Of rules with one step broken.
void expect_caught(rules<2> by, const std::string& promise) {
    by.looks_inside = false;
    std::size_t states = 0;
    const std::string wrong = explore<2>(3, true, states, by);
    EXPECT_EQ(wrong.substr(0, wrong.find('\n')), promise) << "the story: " << wrong;
    std::printf("%s\n", wrong.c_str());
}

const char* const device_reads_old = "a device reads what was replaced before it acquired";
const char* const cpu_reads_old = "the CPU reads what was replaced before a release returned";

// Forgotten although a replica lacks a change.
TEST(consistency_canary, stamps_are_forgotten_that_a_replica_needs) {
    rules<2> by;
    by.forget = [](page& p) {
        if (p.pending != 0) return;
        for (place w = 0; w <= 2; ++w) p.released[w] = p.seen[w] = 0;
    };
    expect_caught(by, device_reads_old);
}

TEST(consistency_canary, what_came_home_is_not_put_in_the_base) {
    rules<2> by;
    by.base_moves = false;
    expect_caught(by, device_reads_old);
}

TEST(consistency_canary, a_fill_goes_over_own_changes) {
    rules<2> by;
    by.fill_keeps_own = false;
    expect_caught(by, device_reads_old);
}

TEST(consistency_canary, what_the_cpu_changed_in_its_view_is_not_written_back) {
    rules<2> by;
    by.view_is_written_back = false;
    expect_caught(by, device_reads_old);
}

// Rule 1.
TEST(consistency_canary, changes_come_home_under_a_view) {
    rules<2> by;
    by.for_access = [](const page& p, place holder) {
        if (holder == cpu && p.view) return step{};
        page without_view = p;
        without_view.view = false;
        return next_for_access(without_view, holder);
    };
    by.for_sync = [](const page& p) {
        page without_view = p;
        without_view.view = false;
        return next_for_sync(without_view);
    };
    expect_caught(by, cpu_reads_old);
}

// Rule 2.
TEST(consistency_canary, not_all_changes_are_brought_home) {
    rules<2> by;
    by.for_access = [](const page& seen, place holder) {
        page p = seen;
        if (has(p.pending, 1)) p.pending &= only(1);
        else if (!has(p.present & ~p.stale, holder)) p.pending = 0;
        return next_for_access(p, holder);
    };
    expect_caught(by, device_reads_old);
}

// Rule 4, three times.
TEST(consistency_canary, a_release_during_a_collect_is_forgotten) {
    rules<2> by;
    by.begin = [](page& p, const step& s) {
        const place_set before = p.pending;
        consistency::begin(p, s);
        p.pending = before;
    };
    by.finish = [](page& p, const step& s, bool done) {
        consistency::finish(p, s, done);
        if (done && s.kind == work::collect) p.pending &= ~only(s.holder);
    };
    expect_caught(by, cpu_reads_old);
}

TEST(consistency_canary, a_write_during_a_write_back_is_forgotten) {
    rules<2> by;
    by.begin = [](page& p, const step& s) {
        const bool before = p.newer;
        consistency::begin(p, s);
        if (s.kind == work::write_back) p.newer = before;
    };
    by.finish = [](page& p, const step& s, bool done) {
        consistency::finish(p, s, done);
        if (done && s.kind == work::write_back) p.newer = false;
    };
    expect_caught(by, device_reads_old);
}

TEST(consistency_canary, a_release_during_a_fill_is_taken_for_seen) {
    rules<2> by;
    by.finish = [](page& p, const step& s, bool done) {
        step at_the_end = s;
        if (s.kind == work::fill) at_the_end.seen = newest_of_others(p, s.holder);
        consistency::finish(p, at_the_end, done);
    };
    expect_caught(by, device_reads_old);
}

// Rule 6.
TEST(consistency_canary, the_cpus_writes_have_no_stamp) {
    rules<2> by;
    by.acquire = [](page& p, place holder, stamp now) {
        p.wrote = false;
        consistency::acquire(p, holder, now);
    };
    expect_caught(by, device_reads_old);
}

TEST(consistency_canary, a_release_leaves_the_view) {
    rules<2> by;
    by.for_release = [](const page&) { return step{}; };
    expect_caught(by, cpu_reads_old);
}

// What a fill may take: the base of a device that nothing came home after, and that has no change
// which is not at home.
TEST(consistency_canary, a_base_is_taken_that_is_outdated) {
    rules<2> by;
    by.for_access = [](const page& p, place holder) {
        step next = next_for_access(p, holder);
        if (next.kind == work::fill) next.from |= p.present & ~only(cpu) & ~only(holder);
        return next;
    };
    expect_caught(by, device_reads_old);
}

TEST(consistency_canary, a_base_is_taken_with_changes_pending) {
    rules<2> by;
    by.for_access = [](const page& p, place holder) {
        const place_set changed = p.pending & ~only(holder);
        if (holder == cpu || changed == 0 || has(p.present & ~p.stale, holder))
            return next_for_access(p, holder);
        return step{work::fill, holder, changed, newest_of_others(p, holder)};
    };
    expect_caught(by, device_reads_old);
}

// What is dropped.
TEST(consistency_canary, a_replica_is_dropped_with_its_changes) {
    rules<2> by;
    by.for_eviction = [](const page& seen, place holder) {
        page p = seen;
        if (holder != cpu) p.pending &= ~only(holder);
        return next_for_eviction(p, holder);
    };
    expect_caught(by, cpu_reads_old);
}

TEST(consistency_canary, a_home_is_dropped_that_storage_lacks) {
    rules<2> by;
    by.for_eviction = [](const page& seen, place holder) {
        page p = seen;
        if (holder == cpu) p.newer = false;
        return next_for_eviction(p, holder);
    };
    expect_caught(by, cpu_reads_old);
}

}  // namespace

}  // namespace penstock::consistency::model
