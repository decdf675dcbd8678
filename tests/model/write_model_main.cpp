// penstock_write_model: the model test of writes as a program, so that any seed can be run for as
// long as one likes.
#include "model/hesitant_lane.hpp"
#include "model/run_seeds.hpp"
#include "model/write_main.hpp"

namespace {

template <typename Group>
bool run_one(const penstock::model::write_settings& settings,
             penstock::model::write_coverage& met) {
    penstock::model::write_run<Group> test(settings);
    const bool good = test.run();
    met.add(test.met());
    return good;
}

// Shorter runs need not have met everything.
constexpr std::uint64_t operations_for_all = 150000;

}  // namespace

int main(int count, char** words) {
    penstock::model::write_command_line line(count, words);
    if (line.wrong) return penstock::model::write_usage(words[0]);
    penstock::model::write_coverage met;
    const bool good = penstock::model::run_seeds(
        "write model", line.settings, line.seeds, operations_for_all, met,
        [&](const auto& settings, auto& all) {
            bool right = true;
            if (line.lane) right = run_one<penstock::lane>(settings, all);
            if (line.racing)
                right = run_one<penstock::model::hesitant_lane>(settings, all) && right;
            return right;
        });
    return good ? 0 : 1;
}
