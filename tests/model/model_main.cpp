// penstock_model_test: the model test as a program of its own, so that any seed can be run for as
// long as one likes.
#include "model/model_main.hpp"

#include "model/hesitant_lane.hpp"
#include "model/run_seeds.hpp"

namespace {

template <typename Group>
bool run_one(const penstock::model::run_settings& settings, penstock::model::coverage& met) {
    penstock::model::model_run<Group> test(settings);
    const bool good = test.run();
    met.add(test.met());
    return good;
}

// Shorter runs need not have met everything.
constexpr std::uint64_t operations_for_all = 50000;

}  // namespace

int main(int count, char** words) {
    penstock::model::command_line line(count, words);
    if (line.wrong) return penstock::model::usage(words[0]);
    penstock::model::coverage met;
    const bool good = penstock::model::run_seeds(
        "model", line.settings, line.seeds, operations_for_all, met,
        [&](const auto& settings, auto& all) {
            bool right = true;
            if (line.lane) right = run_one<penstock::lane>(settings, all);
            if (line.racing)
                right = run_one<penstock::model::hesitant_lane>(settings, all) && right;
            return right;
        });
    return good ? 0 : 1;
}
