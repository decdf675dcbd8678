// penstock_write_model: the model test of writes as a program, so that any seed can be run for as long as one likes.
#include "model/hesitant_lane.hpp"
#include "model/write_main.hpp"

namespace {

template <typename Group>
bool run_one(const penstock::model::write_settings& settings, penstock::model::write_coverage& met) {
    penstock::model::write_run<Group> one(settings);
    const bool good = one.run();
    met.add(one.met());
    return good;
}

// Over so many operations everything is met many times; a run that has not met it does not test it any more.
constexpr std::uint64_t operations_for_all = 150000;

}  // namespace

int main(int count, char** words) {
    penstock::model::write_command_line line(count, words);
    if (line.wrong) return penstock::model::write_usage(words[0]);
    bool good = true;
    penstock::model::write_coverage met;
    for (std::uint64_t i = 0; i < line.seeds; ++i, ++line.settings.seed) {
        if (line.lane) good = run_one<penstock::lane>(line.settings, met) && good;
        if (line.racing) good = run_one<penstock::model::hesitant_lane>(line.settings, met) && good;
    }
    if (const std::string missing = met.missing(); good && met.found.steps >= operations_for_all && !missing.empty()) {
        std::cout << "write model: never met: " << missing << ": FAILED\n";
        good = false;
    }
    return good ? 0 : 1;
}
