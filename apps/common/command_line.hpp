// The options that every program has, and reading a command line so that a mistake costs one clear
// line.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/process.hpp"
#include "penstock/runtime.hpp"

namespace CLI {
class App;  // its header is for the sources that define options: every source that has it compiles
            // its functions
}

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

// Adds an option that takes a value which may not be empty; `form` stands for it in the help.
void add_value(CLI::App& app, const std::string& flag, std::string& out, const std::string& about,
               const char* form);

// Parses. Nothing if the program should go on; else the exit status, with help printed on standard
// output, or one line about the mistake on standard error.
std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv);

// The text of one of the flags of options, such as "--cache"; empty: not given, or no such flag.
std::string flag_text(const common_flags& flags, const std::string& flag);

// Environment first, flags over it, ranges checked. -EINVAL and a message with option, value and
// cure.
status settle_options(const common_flags& flags, options& out);

// A runtime for these options. What it logs until it stands goes to `notes`, so that a failure is
// one line; later lines go to standard error.
status create_runtime(options settings, std::vector<std::string>& notes,
                      std::unique_ptr<runtime>& out);

// The same; the notes go to standard error as soon as the runtime stands, unless `quiet`.
status create_runtime(options settings, bool quiet, std::unique_ptr<runtime>& out);

// Why penstock::launch returned `code`, which is not 0.
status launch_error(const runtime& rt, int code);

}  // namespace penstock::apps
