// penstock_model_test: the model test as a program of its own, so that any seed can be run for as long as one likes.
#include "model/model_main.hpp"

#include "model/hesitant_lane.hpp"

namespace {

template <typename Group>
bool run_one(const penstock::model::run_settings& settings) {
    return penstock::model::model_run<Group>(settings).run();
}

}  // namespace

int main(int count, char** words) {
    penstock::model::command_line line(count, words);
    if (line.wrong) return penstock::model::usage(words[0]);
    bool good = true;
    for (std::uint64_t i = 0; i < line.seeds; ++i, ++line.settings.seed) {
        if (line.lane) good = run_one<penstock::lane>(line.settings) && good;
        if (line.racing) good = run_one<penstock::model::hesitant_lane>(line.settings) && good;
    }
    return good ? 0 : 1;
}
