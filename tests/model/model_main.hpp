// What the programs of the model tests on the cpu back end share: their command line, and a run of
// each seed. A class of runs has types for its settings and for what it has met (settings_type,
// met_type); the settings take the words that others do not have.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>

#include "model/run_seeds.hpp"
#include "penstock/base/hash.hpp"
#include "penstock/group/racing_lane.hpp"

namespace penstock::model {

// A racing lane that now and then stops in the middle of a copy, as a thread may anywhere, so that
// on few processors too frames change hands under optimistic readers.
struct hesitant_lane : racing_lane {
    void copy_out(std::byte* to, const std::byte* from, std::size_t bytes) const {
        thread_local std::uint64_t copies = 0;
        const bool stops = mix64(++copies) % 4 == 0;
        const std::size_t half = stops ? bytes / 2 : 0;
        racing_lane::copy_out(to, from, half);
        if (stops) std::this_thread::yield();
        racing_lane::copy_out(to + half, from + half, bytes - half);
    }
};

static_assert(group<hesitant_lane>);

template <typename Settings>
struct command_line {
    Settings settings;
    std::uint64_t seeds = 1;
    bool lane = false, racing = false, wrong = false;

    command_line(int count, char** words) {
        for (int i = 1; i < count && !wrong; ++i) {
            const std::string word = words[i];
            if (word == "--lane") lane = true;
            else if (word == "--racing") racing = true;
            else if (!settings.take(word)) wrong = ++i == count || !take(word, words[i]);
        }
        if (!lane && !racing) lane = racing = true;
        if (wrong) std::cerr << "usage: " << words[0] << Settings::usage;
    }

private:
    bool take(const std::string& word, const char* text) {
        char* end = nullptr;
        const std::uint64_t value = std::strtoull(text, &end, 0);
        if (*end != '\0' || *text == '\0') return false;
        if (word == "--seed") settings.seed = value;
        else if (word == "--seeds") seeds = value;
        else if (word == "--operations") settings.operations = value;
        else return settings.take(word, value);
        return true;
    }
};

// Of a program that tests; shorter runs need not have met everything.
template <template <typename> class Run>
int run_program(const char* name, std::uint64_t operations_for_all, int count, char** words) {
    using settings_type = typename Run<lane>::settings_type;
    using met_type = typename Run<lane>::met_type;
    const command_line<settings_type> line(count, words);
    if (line.wrong) return 2;
    met_type met;
    const bool good = run_seeds(name, line.settings, line.seeds, operations_for_all, met,
                                [&](const settings_type& settings, met_type& all) {
                                    const auto run_by = [&]<typename Group>(const Group&) {
                                        Run<Group> test(settings);
                                        const bool is_right = test.run();
                                        all.add(test.met());
                                        return is_right;
                                    };
                                    const bool is_right = !line.lane || run_by(lane{});
                                    return (!line.racing || run_by(hesitant_lane{})) && is_right;
                                });
    return good ? 0 : 1;
}

// Of a canary.
template <typename Run>
int run_canary(int count, char** words) {
    const command_line<typename Run::settings_type> line(count, words);
    if (line.wrong) return 2;
    return Run(line.settings).run() ? 0 : 1;
}

}  // namespace penstock::model
