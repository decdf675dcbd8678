// The commands of penstock: what each was asked for, and how it is run.
#pragma once

#include <string>
#include <vector>

#include "common/command_line.hpp"
#include "copy_batch.hpp"
#include "mount/mount.hpp"
#include "trace/generate.hpp"

namespace CLI {
class App;
}

namespace penstock::cat {

// penstock cat: files through the cache to standard output.
struct request {
    apps::common_flags common;
    std::vector<std::string> files;
    std::string out;
    bool stats = false;
};

// The exit status; what went wrong has been said.
int run(const request& wanted);

}  // namespace penstock::cat

namespace penstock::cp {

// penstock cp: files copied by a kernel, or by CPU threads, through the cache.
struct request {
    apps::common_flags common;
    std::vector<std::string> names;  // of the files, and last where they go
    copy_settings settings;
};

// The exit status; what went wrong has been said.
int run(const request& wanted);

}  // namespace penstock::cp

namespace penstock::info {

// penstock info: what there is, what works here and why not, and the options in force.
// The exit status; what went wrong has been said.
int run(const apps::common_flags& flags);

}  // namespace penstock::info

namespace penstock::mount_command {

// penstock mount: a directory at another place, for programs that know nothing of Penstock.
struct request {
    mount::serve_options options;
    std::string threads, read_ahead, buffer, ram, gpu, page, backend;  // as given; empty: not given
    bool json = false, quiet = false;
};

// Serves until the mount is taken away. The exit status; what went wrong has been said.
int run(const request& wanted);

}  // namespace penstock::mount_command

namespace penstock::replay {

// penstock replay: plays a trace of page accesses through a buffer of host and device memory.
// All values as given on the command line; empty: not given.
struct request {
    std::string trace, policy, order = "lru", ram, gpu, blocks, table, absent, threads, backend,
                               signature, sign_on, batch, batch_wait;
    bool simulate = false, cached = false, writes = false, verify = false, always_dedu = false,
         json = false, quiet = false;
};

// The exit status; what went wrong has been said.
int run(const request& wanted);

}  // namespace penstock::replay

namespace penstock::trace_command {

// penstock trace: makes, converts and describes traces.
struct request {
    enum class command { generate, convert, show } subcommand = command::show;
    trace::generate_request generate;
    std::string input, out;  // of convert and show
    bool text = false, binary = false, json = false, quiet = false;
    // As given; empty: not given.
    std::string page, pages, accesses, pattern, skew, writes, shared_writes, factor, seed, rate,
        flush_every, machines, common, workers;
};

// Adds the command and those below it.
CLI::App* add(CLI::App& app, request& wanted);

// The exit status; what went wrong has been said.
int run(request& wanted);

}  // namespace penstock::trace_command
