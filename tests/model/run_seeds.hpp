// The seeds of one command line, and as many more as it takes until everything was met.
#pragma once

#include <cstdint>
#include <iostream>
#include <string>

namespace penstock::model {

// What a seed meets hangs on how its threads are scheduled, so a long run goes on for `more_seeds`
// while something was never met. If that is still so then, it is not chance: the test does not test
// it any more, and fails. Each seed calls run(settings, met), which says whether all was right.
template <typename Settings, typename Met, typename Run>
bool run_seeds(const char* name, Settings settings, std::uint64_t seeds,
               std::uint64_t operations_for_all, Met& met, const Run& run) {
    constexpr std::uint64_t more_seeds = 15;
    bool good = true;
    std::string missing;
    for (std::uint64_t i = 0; i < seeds || (good && i < seeds + more_seeds && !missing.empty());
         ++i, ++settings.seed) {
        good = run(settings, met) && good;
        missing = met.operations_done() >= operations_for_all ? met.missing() : std::string();
    }
    if (!good || missing.empty()) return good;
    std::cout << name << ": never met: " << missing << ": FAILED\n";
    return false;
}

}  // namespace penstock::model
