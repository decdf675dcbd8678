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

template <unsigned Devices, typename Rules = rules>
std::string explore(value writes, bool trouble, std::size_t& states) {
    search<world<Devices>, moves<Devices, Rules>> all;
    std::string wrong = all.run(moves<Devices, Rules>(writes, trouble), world<Devices>{});
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
struct in_any_order : rules {
    static constexpr bool any_order = true;
};
struct by_any_number : in_any_order {
    static constexpr bool symmetric = true;
};
TEST(consistency, three_devices_and_the_cpu) {
    const value writes = std::getenv("PENSTOCK_STATE_SPACE") != nullptr ? 2 : 1;
    std::size_t states = 0;
    EXPECT_EQ((explore<3, by_any_number>(writes, false, states)), "");
    EXPECT_GT(states, writes == 1 ? 2000000u : 130000000u);
}

TEST(consistency, states_by_any_number_stand_for_all) {
    search<world<2>, moves<2, in_any_order>> all;
    search<world<2>, moves<2, by_any_number>> some;
    EXPECT_EQ(all.run(moves<2, in_any_order>(1, true), world<2>{}), "");
    EXPECT_EQ(some.run(moves<2, by_any_number>(1, true), world<2>{}), "");
    EXPECT_EQ(some.named_states(), all.states());
    EXPECT_LT(some.states(), all.states() / 10 * 6);
    std::printf("%zu states stand for %zu\n", some.states(), all.states());
}

// Devices alone, which is less by far. Minutes, and 2 GB.
struct devices_alone : by_any_number {
    static constexpr bool cpu_programs = false;
};
TEST(consistency, three_devices_that_write_twice) {
    if (test::usual_share != 1 && std::getenv("PENSTOCK_STATE_SPACE") == nullptr)
        GTEST_SKIP() << "only in the long form (PENSTOCK_LONG_TESTS), or with PENSTOCK_STATE_SPACE";
    std::size_t states = 0;
    EXPECT_EQ((explore<3, devices_alone>(2, false, states)), "");
    EXPECT_GT(states, 20000000u);
}

// ---- canaries: each breaks one rule, and passes if a program then reads what it must not, or
// storage lacks what it must have

struct broken : rules {
    static constexpr bool looks_inside = false;
};

template <typename Rules>
void expect_caught(const std::string& promise) {
    std::size_t states = 0;
    const std::string wrong = explore<2, Rules>(3, true, states);
    EXPECT_EQ(wrong.substr(0, wrong.find('\n')), promise) << "the story: " << wrong;
    std::printf("%s\n", wrong.c_str());
}

const char* const device_reads_old = "a device reads what was replaced before it acquired";
const char* const cpu_reads_old = "the CPU reads what was replaced before a release returned";

// Forgotten although a replica lacks a change.
struct forgets_early : broken {
    template <unsigned D>
    static void forget(page_versions<D>& p) {
        if (p.pending != 0) return;
        for (place w = 0; w <= D; ++w) p.released[w] = p.seen[w] = 0;
    }
};
TEST(consistency_canary, stamps_are_forgotten_that_a_replica_needs) {
    expect_caught<forgets_early>(device_reads_old);
}

struct base_stays : broken {
    static constexpr bool base_moves = false;
};
TEST(consistency_canary, what_came_home_is_not_put_in_the_base) {
    expect_caught<base_stays>(device_reads_old);
}

struct own_changes_go : broken {
    static constexpr bool fill_keeps_own = false;
};
TEST(consistency_canary, a_fill_goes_over_own_changes) {
    expect_caught<own_changes_go>(device_reads_old);
}

struct view_kept : broken {
    static constexpr bool view_is_written_back = false;
};
TEST(consistency_canary, what_the_cpu_changed_in_its_view_is_not_written_back) {
    expect_caught<view_kept>(device_reads_old);
}

// Rule 1.
struct view_stays : broken {
    template <unsigned D>
    static step without_view(page_versions<D> p, step (*next)(const page_versions<D>&)) {
        p.view = false;
        return next(p);
    }
    template <unsigned D>
    static step for_access(page_versions<D> p, place holder) {
        if (holder == cpu && p.view) return {};
        p.view = false;
        return next_for_access(p, holder);
    }
    template <unsigned D>
    static step for_sync(const page_versions<D>& p) {
        return without_view<D>(p, next_for_sync<D>);
    }
};
TEST(consistency_canary, changes_come_home_under_a_view) {
    expect_caught<view_stays>(cpu_reads_old);
}

// Rule 2.
struct one_at_a_time : broken {
    template <unsigned D>
    static step for_access(page_versions<D> p, place holder) {
        if (has(p.pending, 1)) p.pending &= only(1);
        else if (!has(p.present & ~p.stale, holder)) p.pending = 0;
        return next_for_access(p, holder);
    }
};
TEST(consistency_canary, not_all_changes_are_brought_home) {
    expect_caught<one_at_a_time>(device_reads_old);
}

// Rule 4, three times.
struct pending_goes_late : broken {
    template <unsigned D>
    static void begin(page_versions<D>& p, const step& s) {
        const place_set before = p.pending;
        consistency::begin(p, s);
        p.pending = before;
    }
    template <unsigned D>
    static void finish(page_versions<D>& p, const step& s, bool done) {
        consistency::finish(p, s, done);
        if (done && s.kind == work::collect) p.pending &= ~only(s.holder);
    }
};
TEST(consistency_canary, a_release_during_a_collect_is_forgotten) {
    expect_caught<pending_goes_late>(cpu_reads_old);
}

struct newer_goes_late : broken {
    template <unsigned D>
    static void begin(page_versions<D>& p, const step& s) {
        const bool before = p.newer;
        consistency::begin(p, s);
        if (s.kind == work::write_back) p.newer = before;
    }
    template <unsigned D>
    static void finish(page_versions<D>& p, const step& s, bool done) {
        consistency::finish(p, s, done);
        if (done && s.kind == work::write_back) p.newer = false;
    }
};
TEST(consistency_canary, a_write_during_a_write_back_is_forgotten) {
    expect_caught<newer_goes_late>(device_reads_old);
}

struct seen_at_the_end : broken {
    template <unsigned D>
    static void finish(page_versions<D>& p, step s, bool done) {
        if (s.kind == work::fill) s.seen = newest_of_others(p, s.holder);
        consistency::finish(p, s, done);
    }
};
TEST(consistency_canary, a_release_during_a_fill_is_taken_for_seen) {
    expect_caught<seen_at_the_end>(device_reads_old);
}

// Rule 6.
struct cpu_is_not_stamped : broken {
    template <unsigned D>
    static void acquire(page_versions<D>& p, place holder, stamp now) {
        p.wrote = false;
        consistency::acquire(p, holder, now);
    }
};
TEST(consistency_canary, the_cpus_writes_have_no_stamp) {
    expect_caught<cpu_is_not_stamped>(device_reads_old);
}

struct view_outlives_release : broken {
    template <unsigned D>
    static step for_release(const page_versions<D>&) {
        return {};
    }
};
TEST(consistency_canary, a_release_leaves_the_view) {
    expect_caught<view_outlives_release>(cpu_reads_old);
}

// What a fill may take: the base of a device that nothing came home after, and that has no change
// which is not at home.
struct outdated_base : broken {
    template <unsigned D>
    static step for_access(const page_versions<D>& p, place holder) {
        step next = next_for_access(p, holder);
        if (next.kind == work::fill) next.from |= p.present & ~only(cpu) & ~only(holder);
        return next;
    }
};
TEST(consistency_canary, a_base_is_taken_that_is_outdated) {
    expect_caught<outdated_base>(device_reads_old);
}

struct pending_base : broken {
    template <unsigned D>
    static step for_access(const page_versions<D>& p, place holder) {
        const place_set changed = p.pending & ~only(holder);
        if (holder == cpu || changed == 0 || has(p.present & ~p.stale, holder))
            return next_for_access(p, holder);
        return {work::fill, holder, changed, newest_of_others(p, holder)};
    }
};
TEST(consistency_canary, a_base_is_taken_with_changes_pending) {
    expect_caught<pending_base>(device_reads_old);
}

// What is dropped.
struct drops_changes : broken {
    template <unsigned D>
    static step for_eviction(page_versions<D> p, place holder) {
        if (holder != cpu) p.pending &= ~only(holder);
        return next_for_eviction(p, holder);
    }
};
TEST(consistency_canary, a_replica_is_dropped_with_its_changes) {
    expect_caught<drops_changes>(cpu_reads_old);
}

struct drops_the_home : broken {
    template <unsigned D>
    static step for_eviction(page_versions<D> p, place holder) {
        if (holder == cpu) p.newer = false;
        return next_for_eviction(p, holder);
    }
};
TEST(consistency_canary, a_home_is_dropped_that_storage_lacks) {
    expect_caught<drops_the_home>(cpu_reads_old);
}

}  // namespace

}  // namespace penstock::consistency::model
