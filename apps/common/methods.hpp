// The methods of a program, Penstock's and the baselines: one table, and running them from it.
#pragma once

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "common/process.hpp"
#include "penstock/error.hpp"

namespace penstock::apps {

enum class runs_on {
    anywhere,  // on the back end of the runtime
    cpu,
    gpu,  // -ENODEV where there is none
};

// A table is an array of these: Penstock's own method first, the baseline on all cores second. All
// methods of a table find the same result.
template <typename Function>
struct method {
    const char* name;
    runs_on where;
    Function* run;
};

// For option_list::choice(), in the order of the table.
template <typename Table>
std::vector<std::string> names_of(const Table& table) {
    std::vector<std::string> out;
    for (const auto& m : table) out.emplace_back(m.name);
    return out;
}

// A method by a name that the table has.
template <typename Table>
const auto& method_named(const Table& table, const std::string& name) {
    auto at = std::begin(table);
    while (name != at->name) ++at;
    return *at;
}

// Runs one method: `run(method, report)` fills a report of its own, which joins `runs` if all went
// well.
template <typename Method, typename Report, typename Run>
status run_method(const Method& chosen, std::vector<Report>& runs, const Run& run) {
    Report report;
    report.name = chosen.name;
    status ended = run(chosen, report);
    if (status s = not_interrupted(); !s) return s;
    if (ended.ok()) runs.push_back(std::move(report));
    return ended;
}

// Runs all methods, the table's first one last, after a run of the second one that warms the OS
// page cache. A method that needs a GPU is left out where there is none. `difference(first, last)`
// says in words where two reports differ; -EILSEQ if it says anything.
template <typename Table, typename Report, typename Run, typename Difference>
status compare_methods(const Table& table, std::vector<Report>& runs, const Run& run,
                       const Difference& difference) {
    if (status s = run_method(table[1], runs, run); !s) return s;
    runs.clear();
    for (std::size_t i = 1; i <= std::size(table); ++i) {
        const auto& next = table[i % std::size(table)];
        const status ended = run_method(next, runs, run);
        if (next.where == runs_on::gpu && ended.code == -ENODEV) continue;
        if (!ended.ok()) return ended;
        const std::string text = difference(runs.front(), runs.back());
        if (!text.empty()) return {-EILSEQ, text + "; please report this"};
    }
    return {};
}

}  // namespace penstock::apps
