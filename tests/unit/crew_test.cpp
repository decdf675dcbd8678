// The helpers of service threads: which are woken, and what is counted.
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "service/crew.hpp"

namespace penstock::test {

namespace {

using host::service_crew;

// So many helpers that sleep.
std::vector<host_doorbell*> asleep(service_crew& crew, std::uint32_t helpers) {
    std::vector<host_doorbell*> bells;
    for (std::uint32_t i = 0; i < helpers; ++i) {
        bells.push_back(crew.next_bell());
        crew.count_made(false);
        bells.back()->begin_sleep();
    }
    return bells;
}

std::size_t woken(const std::vector<host_doorbell*>& bells) {
    std::size_t count = 0;
    for (host_doorbell* const bell : bells) count += bell->wait(0) ? 1 : 0;
    return count;
}

}  // namespace

// None of them has a processor before all are asked for.
TEST(crew, several_that_are_asked_for_at_once_are_all_woken) {
    service_crew crew(4, 4, [] {});
    const auto bells = asleep(crew, 4);
    const std::uint64_t before = crew.for_backlog();
    for (std::size_t asked = 1; asked <= 3; ++asked) {
        crew.ask_for_backlog();
        EXPECT_EQ(woken(bells), asked);
        EXPECT_EQ(crew.for_backlog() - before, asked);
    }
    for (int i = 0; i < 3; ++i) crew.ask_for_backlog();
    EXPECT_EQ(woken(bells), 4u);
    EXPECT_EQ(crew.for_backlog() - before, 4u) << "no other one sleeps";
}

TEST(crew, no_more_are_woken_than_processors_are_there_for) {
    service_crew crew(4, 2, [] {});
    const auto bells = asleep(crew, 4);
    for (int i = 0; i < 4; ++i) crew.ask_for_backlog();
    EXPECT_EQ(woken(bells), 2u);
}

// No helper is made where one is on its way.
TEST(crew, one_that_was_woken_for_a_stall_is_counted_once) {
    service_crew crew(4, 4, [] {});
    const auto bells = asleep(crew, 1);
    for (int beat = 0; beat < 3; ++beat) EXPECT_TRUE(crew.wake_for_stall());
    EXPECT_EQ(woken(bells), 1u);
    EXPECT_EQ(crew.for_stalls(), 1u);
    bells[0]->end_sleep();
    EXPECT_FALSE(crew.wake_for_stall());
}

// Else a monitor that has no thread for a helper would look without a pause.
TEST(crew, one_that_the_system_refused_calls_the_monitor_once) {
    int calls = 0;
    service_crew crew(4, 4, [&calls] { ++calls; });
    crew.ask_for_backlog();
    EXPECT_EQ(calls, 1);
    EXPECT_TRUE(crew.take_wish_for_more());
    EXPECT_TRUE(crew.refuse(std::chrono::hours(1)));
    for (int i = 0; i < 5; ++i) {
        crew.ask_for_backlog();
        EXPECT_FALSE(crew.take_wish_for_more());
    }
    EXPECT_EQ(calls, 2);
    EXPECT_FALSE(crew.refuse(std::chrono::nanoseconds(0)));
    EXPECT_TRUE(crew.take_wish_for_more()) << "it is remembered until the next try";
}

}  // namespace penstock::test
