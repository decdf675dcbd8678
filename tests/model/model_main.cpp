// penstock_model_test: the model test as a program of its own, so that any seed can be run for as long as one likes.
#include "model/model_main.hpp"

#include "model/hesitant_lane.hpp"

namespace {

template <typename Group>
bool run_one(const penstock::model::run_settings& settings, penstock::model::coverage& met) {
    penstock::model::model_run<Group> one(settings);
    const bool good = one.run();
    met.add(one.met());
    return good;
}

// Over so many operations everything is met many times; a run that has not met it does not test it any more.
constexpr std::uint64_t operations_for_all = 50000;

}  // namespace

int main(int count, char** words) {
    penstock::model::command_line line(count, words);
    if (line.wrong) return penstock::model::usage(words[0]);
    bool good = true;
    penstock::model::coverage met;
    for (std::uint64_t i = 0; i < line.seeds; ++i, ++line.settings.seed) {
        if (line.lane) good = run_one<penstock::lane>(line.settings, met) && good;
        if (line.racing) good = run_one<penstock::model::hesitant_lane>(line.settings, met) && good;
    }
    if (const std::string missing = met.missing(); good && met.operations >= operations_for_all && !missing.empty()) {
        std::cout << "model: never met: " << missing << ": FAILED\n";
        good = false;
    }
    return good ? 0 : 1;
}
