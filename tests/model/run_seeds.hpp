// What every program of a model test has: a folder, and the seeds of one command line.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>

namespace penstock::model {

// Of one run, and goes away with it.
class run_folder {
public:
    explicit run_folder(const std::string& name) {
        std::string made = (std::filesystem::temp_directory_path() / (name + "-XXXXXX")).string();
        if (::mkdtemp(made.data()) == nullptr) std::abort();
        path_ = std::filesystem::canonical(made).string();
    }
    ~run_folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    run_folder(const run_folder&) = delete;
    run_folder& operator=(const run_folder&) = delete;

    [[nodiscard]] const std::string& path() const { return path_; }

private:
    std::string path_;
};

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
