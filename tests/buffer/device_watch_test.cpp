// When GRAM stands back: what the device's part costs and what it saves, by times that a test
// chooses.
#include <gtest/gtest.h>

#include "buffer/simulated_part.hpp"

namespace penstock::test {

namespace {

using buffer::device_watch;
using buffer::shadow_list;
using state = device_watch::state;
using kind = device_watch::request_kind;

constexpr std::uint32_t device_pages = 1024;
constexpr std::uint64_t epoch = device_watch::epoch_requests;
constexpr part_sizes sizes{1024, device_pages};
// A GPU beside a disk that answers from a cache of its own: moving is dear.
constexpr request_costs fast_disk{36'000, 6'000, 15'000};
constexpr request_costs slow_disk{5'000'000, 6'000, 15'000};

}  // namespace

TEST(device_watch, stays_engaged_where_the_device_answers) {
    simulated_part part(sizes);
    part.play(in_circles(1800), 100 * epoch, fast_disk);
    EXPECT_EQ(part.now(), state::engaged);
    EXPECT_GT(part.answered(), part.requests() * 8 / 10);
    EXPECT_LT(part.over_native(), -0.4);
}

TEST(device_watch, stands_back_within_four_epochs_where_the_device_never_answers) {
    simulated_part part(sizes);
    part.play(onwards(), 1024 + 4 * epoch, fast_disk);
    EXPECT_EQ(part.now(), state::standing_back);
    const std::uint64_t moved = part.moved();
    part.play([](std::uint64_t i) { return 1'000'000 + i; }, 100 * epoch, fast_disk);
    EXPECT_EQ(part.now(), state::standing_back);
    EXPECT_LT(part.moved() - moved, 100 * epoch / 20);
}

// Where a move costs next to nothing beside a read there is nothing to lose.
TEST(device_watch, stays_engaged_where_moves_are_cheap) {
    simulated_part part(sizes);
    part.play(onwards(), 100 * epoch, slow_disk);
    EXPECT_EQ(part.now(), state::engaged);
    EXPECT_EQ(part.watch().times_back(), 0u);
    EXPECT_LT(part.over_native(), 0.01);
}

TEST(device_watch, comes_back_when_the_trace_changes) {
    simulated_part part(sizes);
    part.play(onwards(), 50 * epoch, fast_disk);
    ASSERT_EQ(part.now(), state::standing_back);
    part.play(in_circles(1800), 40 * epoch, fast_disk);
    EXPECT_EQ(part.now(), state::engaged);
    const std::uint64_t answered = part.answered(), requests = part.requests();
    part.play(in_circles(1800), 20 * epoch, fast_disk);
    EXPECT_GT(part.answered() - answered, (part.requests() - requests) * 9 / 10);
    part.play(onwards(), 20 * epoch, fast_disk);  // and goes again
    EXPECT_EQ(part.now(), state::standing_back);
}

TEST(device_watch, comes_back_when_the_disk_becomes_slow_and_goes_when_it_becomes_fast) {
    constexpr request_costs from_memory{2'000, 6'000, 15'000};
    simulated_part part(sizes);
    const page_sequence pages = uniform(2500);
    part.play(pages, 60 * epoch, from_memory);
    ASSERT_EQ(part.now(), state::standing_back);
    EXPECT_LT(part.over_native(), 0.02);
    part.play(pages, 100 * epoch, {300'000, 6'000, 15'000});
    ASSERT_EQ(part.now(), state::engaged);
    part.play(pages, 100 * epoch, from_memory);
    EXPECT_EQ(part.now(), state::standing_back);
}

TEST(device_watch, probing_costs_less_than_a_hundredth) {
    for (const request_costs& costs :
         {fast_disk, request_costs{36'000, 1'500, 60'000}, request_costs{2'000, 20'000, 30'000}}) {
        simulated_part part(sizes);
        part.play(uniform(10240), 50 * epoch, costs);
        ASSERT_EQ(part.now(), state::standing_back) << costs.read;
        const double spent = part.spent(), native = part.native();
        part.play(uniform(10240, 2), 200 * epoch, costs);
        EXPECT_EQ(part.now(), state::standing_back) << costs.read;
        EXPECT_LT(part.spent() - spent, 1.01 * (part.native() - native)) << costs.read;
    }
}

// A disk that becomes slower and faster for all requests says nothing of the device.
TEST(device_watch, stays_engaged_beside_a_disk_that_drifts) {
    simulated_part part(sizes);
    const page_sequence pages = uniform(2500);
    for (std::uint64_t i = 0; i < 300 * epoch; ++i) {
        const double phase = static_cast<double>(i) / static_cast<double>(30 * epoch);
        part.access(pages(i), {40'000 * (1.5 + std::sin(phase)), 2'000, 10'000});
    }
    EXPECT_EQ(part.now(), state::engaged);
    EXPECT_EQ(part.watch().times_back(), 0u);
    EXPECT_LT(part.over_native(), -0.4);
}

// The answers hang on the requests alone.
TEST(device_watch, answers_the_same_to_the_same_requests) {
    simulated_part first(sizes), second(sizes);
    for (std::uint64_t i = 0; i < 50 * epoch; ++i) {
        const std::uint64_t page = skewed(4000)(i);
        first.access(page, fast_disk);
        second.access(page, fast_disk);
        ASSERT_EQ(first.now(), second.now());
        ASSERT_EQ(first.moved(), second.moved());
    }
}

TEST(device_watch, one_slow_request_says_nothing_of_the_others) {
    buffer::recent_mean mean;
    for (int i = 0; i < 640; ++i) mean.add(i % 64 == 5 ? 100'000'000 : 1'000);
    EXPECT_LT(mean.value(), 1'500);
    for (int i = 0; i < 64; ++i) mean.add(50'000);  // all are slow from here on
    for (int i = 0; i < 64; ++i) mean.add(50'000);
    EXPECT_NEAR(mean.value(), 50'000, 1);
}

// The list that follows names only finds as many as the device would.
TEST(device_watch, forecasts_what_a_full_device_would_answer) {
    for (const std::uint32_t pages : {64u, 1024u, 16u << 10}) {
        buffer::core<buffer::lru_order> core;
        ASSERT_EQ(core.make({pages, pages, 1, 2 * pages + 1, 1, 0}), 0);
        shadow_list shadow(pages);
        std::uint64_t wanted = 0, answered = 0, followed = 0, forecast = 0;
        const page_sequence page_of = uniform(5 * pages);
        for (std::uint64_t i = 0; i < 40 * pages; ++i) {
            const buffer::page_id id{page_of(i), 0};
            const auto left = [&](std::uint32_t block) {
                core.inside().each_page_of(block, [&](buffer::page_id victim, std::uint32_t) {
                    shadow.left_host(victim);
                });
            };
            const auto note = [&](const buffer::action& told) {
                if (told.kind == buffer::move::demote) left(told.block);
                if (told.kind == buffer::move::exchange) left(told.other);
            };
            const buffer::block* const known = core.inside().block_of(id, 0);
            const bool in_host = known != nullptr && known->where == buffer::side::host;
            if (!in_host) {
                const shadow_list::answer told = shadow.want(id);
                ++wanted, answered += known != nullptr;
                followed += told != shadow_list::answer::unfollowed;
                forecast += told == shadow_list::answer::present;
                if (pages <= 256 && known != nullptr) {
                    ASSERT_EQ(told, shadow_list::answer::present);
                }
            }
            buffer::found at{};
            core.touch(id, note, at);
            if (at == buffer::found::nowhere) {
                ASSERT_EQ(core.load(id, nullptr, note), 0);
            }
        }
        const double share = static_cast<double>(answered) / static_cast<double>(wanted);
        EXPECT_NEAR(static_cast<double>(forecast) / static_cast<double>(followed), share,
                    pages <= 256 ? 1e-9 : 0.1 * share);
    }
}

// A trace of the paper or of another kind, and what a buffer of GRAM costs beside native.

namespace {

struct named_trace {
    const char* name;
    page_sequence pages;
    std::uint64_t accesses = 0;
};

// At a 64th of the paper's sizes, where it has 62,500 accesses.
std::vector<named_trace> traces() {
    constexpr std::uint64_t ki = 16, paper = 62'500;
    std::vector<named_trace> out;
    for (const std::uint64_t set : {64, 128, 256, 512, 640, 1024, 2048})
        out.push_back({"uniform", uniform(set * ki, set), paper});
    out.push_back({"skewed", skewed(640 * ki), paper});
    out.push_back({"in circles that fit", in_circles(100 * ki), paper});
    out.push_back({"in circles that do not", in_circles(200 * ki), paper});
    out.push_back({"each page once", onwards(), paper});
    out.push_back(
        {"phases",
         [](std::uint64_t i) { return i / 30'000 % 2 == 0 ? 100'000 + i : i % (110 * ki); },
         8 * paper});
    return out;
}

const std::vector<request_costs> machines = {
    {2'000, 6'000, 15'000},          // files in the page cache
    {36'000, 1'000, 1'200},          // memory in place of a device
    {36'000, 1'000, 1'200, 12'000},  // the same, beside a way to read that takes longer
    {36'000, 2'000, 12'000, 3'000},
    {36'000, 2'000, 12'000},
    {36'000, 6'000, 15'000},
    {36'000, 12'000, 30'000},
    {36'000, 40'000, 60'000},  // a device that is slower than the
                               // disk
    {90'000, 6'000, 15'000},
    {300'000, 6'000, 15'000},
    {5'000'000, 6'000, 15'000},
};

}  // namespace

TEST(device_watch, costs_at_most_a_fiftieth_more_than_native_whatever_the_trace_and_the_machine) {
    int always_costs_more = 0;
    for (const named_trace& trace : traces())
        for (const request_costs& costs : machines) {
            simulated_part part(sizes), always(sizes, false);
            part.play(trace.pages, trace.accesses, costs);
            always.play(trace.pages, trace.accesses, costs);
            EXPECT_LT(part.over_native(), 0.02)
                << trace.name << ", read " << costs.read << ", move " << costs.move << ", answer "
                << costs.answer << "; without the watch " << always.over_native();
            always_costs_more += always.over_native() >= 0.02;
            // What it saves is not given away, where a device pays at all.
            if (always.over_native() < -0.2) {
                EXPECT_LT(part.over_native(), always.over_native() / 2)
                    << trace.name << ", read " << costs.read << ", move " << costs.move
                    << ", answer " << costs.answer << "; without " << always.over_native();
            }
        }
    // The canary: a buffer that does not watch fails this test.
    EXPECT_GT(always_costs_more, 20);
}

}  // namespace penstock::test
