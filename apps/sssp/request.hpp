// What was asked for on the command line, checked as far as that goes without touching a file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph_file.hpp"
#include "penstock/options.hpp"
#include "update.hpp"

namespace penstock {
class runtime;
}

namespace penstock::sssp {

struct run_request {
    std::string graph;
    std::uint64_t source = 0;
    std::vector<std::string> methods;  // each once, penstock first
    std::vector<double> percents;      // empty: no updater changes the graph
    std::uint32_t rounds = 3;
    std::uint64_t seed = 1;
    std::uint32_t delta = 0;  // 0: chosen
    bool by_store = false;
    bool mounts = true;
    bool check = false;
    std::string point;  // empty: a folder of its own
    std::string out;    // empty: distances are not written

    [[nodiscard]] bool has(const std::string& method) const;
    [[nodiscard]] bool wants_mount() const {
        return mounts && !percents.empty() && has("penstock");
    }
};

enum class command { make, run, update };

struct request {
    command what = command::run;
    bool json = false;
    bool quiet = false;
    options settings;
    std::uint32_t threads = 1;
    run_request run;
    make_request make;
    update_request update;
};

// Nothing if the program should go on with `out`, else its exit status; what was wrong has been
// said.
std::optional<int> read_request(int argc, char** argv, request& out);

// Ctrl-C and SIGTERM end the work in order from now on.
status watch_for_signals();

status start_runtime(const request& asked, backend where, std::unique_ptr<runtime>& out);

}  // namespace penstock::sssp
