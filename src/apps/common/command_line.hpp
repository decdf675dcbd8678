// The options that every program has, and reading a command line so that a mistake costs one clear line.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/runtime.hpp"

namespace penstock::apps {

// As given on the command line; empty: not given.
struct common_flags {
    std::string backend;
    std::string device;
    std::string cache;
    std::string page;
    std::string workers;
    bool json = false;
    bool quiet = false;
};

// Adds --backend, --device, --cache, --page, --workers, --json, --quiet and --version.
void add_common_flags(CLI::App& app, common_flags& flags);

// Parses. Nothing if the program should go on; else the exit status, with help printed on standard output, or one line
// about the mistake on standard error.
std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv);

// Environment first, flags over it, ranges checked. -EINVAL and a message with option, value and cure.
status settle_options(const common_flags& flags, options& out);

// A runtime for these options. Its log lines are held back until it stands, so that a failure is one line; then they go
// to standard error, unless `quiet`.
status create_runtime(options settings, bool quiet, std::unique_ptr<runtime>& out);

// Makes Ctrl-C and SIGTERM end the search in order. -errno and a message if that cannot be set up.
status watch_signals();

}  // namespace penstock::apps
