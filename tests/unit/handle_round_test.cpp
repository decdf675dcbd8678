// The hand that looks for handles to park, against a list of names that moves as the comment says.
#include <gtest/gtest.h>

#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "files/file_registry.hpp"

namespace penstock::host {

TEST(handle_round, meets_each_slot_once_a_round) {
    handle_round round(8);
    for (const std::uint32_t slot : {5u, 2u, 7u}) round.add(slot);
    for (int again = 0; again < 3; ++again) {
        EXPECT_EQ(round.next(), 5u);
        EXPECT_EQ(round.next(), 2u);
        EXPECT_EQ(round.next(), 7u);
    }
}

TEST(handle_round, a_slot_in_the_place_of_a_parked_one_is_met_next) {
    handle_round round(8);
    for (std::uint32_t slot = 0; slot < 4; ++slot) round.add(slot);
    EXPECT_EQ(round.next(), 0u);
    round.remove(0);
    EXPECT_EQ(round.next(), 3u);
    EXPECT_EQ(round.next(), 1u);
    round.remove(1);
    EXPECT_EQ(round.next(), 2u);
    EXPECT_EQ(round.next(), 3u);
}

TEST(handle_round, the_last_of_all_can_be_parked) {
    handle_round round(2);
    round.add(1);
    EXPECT_EQ(round.next(), 1u);
    round.remove(1);
    EXPECT_EQ(round.size(), 0u);
    round.add(0);
    EXPECT_EQ(round.next(), 0u);
}

// Nothing is lost and nothing comes that is not in, whatever comes and goes; and in two rounds
// without change each is met at least once.
TEST(handle_round, has_what_was_added_and_not_removed) {
    for (unsigned seed = 0; seed < 20; ++seed) {
        std::mt19937 random(seed);
        handle_round round(32);
        std::set<std::uint32_t> in;
        for (int i = 0; i < 2000; ++i) {
            const std::uint32_t slot = random() % 32;
            const bool park = random() % 3 == 0;
            if (park && !in.empty()) {
                const std::uint32_t met = round.next();
                ASSERT_EQ(in.count(met), 1u) << "seed " << seed;
                round.remove(met);
                in.erase(met);
            } else if (in.insert(slot).second) {
                round.add(slot);
            } else {
                round.remove(slot);
                in.erase(slot);
            }
            ASSERT_EQ(round.size(), in.size());
        }
        std::set<std::uint32_t> met;
        for (std::size_t i = 0; i < 2 * in.size(); ++i) met.insert(round.next());
        EXPECT_EQ(met, in) << "seed " << seed;
    }
}

TEST(adaptive_mutex, keeps_threads_apart) {
    adaptive_mutex mutex;
    std::uint64_t counted = 0;  // plain: a thread that came in beside another would lose some
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&] {
            for (int i = 0; i < 50000; ++i) {
                const std::lock_guard lock(mutex);
                ++counted;
            }
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(counted, 200000u);
}

}  // namespace penstock::host
