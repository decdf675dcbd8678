// penstock trace: makes, imports, converts and describes traces.
#pragma once

#include <string>

#include "generate.hpp"
#include "import.hpp"

namespace CLI {
class App;
}

namespace penstock::trace_command {

struct request {
    enum class command { generate, import, convert, show } what = command::show;
    trace::generate_request generate;
    trace::import_request import;
    std::string input, out;  // of convert and show
    bool text = false, binary = false, json = false, quiet = false;
    // As given; empty: not given.
    std::string page, pages, accesses, pattern, skew, writes, shared_writes, factor, seed, rate,
        flush_every, machines, common, workers, from, action;
};

// Adds the command and those below it.
CLI::App* add(CLI::App& app, request& wanted);

// The exit status; what went wrong has been said.
int run(request& wanted);

}  // namespace penstock::trace_command
