// The frame of an application: its commands, each from its options to its report.
//
//   main      run_program<Commands...>() is all of it: process.hpp starts the process, and the
//             command that the command line names does the work.
//   request   command::add_options() declares typed options with their ranges (command_line.hpp);
//             command::check() judges values that are wrong only together. A mistake costs one
//             line, and the exit status 2.
//   session   the command's members, its base's options and flags among them. open() finds
//             everything that can be wrong with what was named; from run() on, a signal makes
//             was_interrupted() true in place of ending the program.
//   methods   one table for each program (methods.hpp).
//   report    command::json_of() and say_summary(); report_text.hpp has what they share.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <tuple>

#include "common/command_line.hpp"
#include "common/process.hpp"
#include "penstock/options.hpp"

namespace penstock::apps {

enum class command_kind {
    main,      // its options follow the program's name; all shared flags
    run,       // follows its own name; all shared flags
    make,      // follows its own name; makes no runtime, so only --workers, --json and --quiet
    internal,  // for the program itself: no help shows it, no shared flags, a signal ends it at
               // once
};

struct command_text {
    const char* name;     // on the command line and in the JSON object; "": the object names none
    const char* about;    // the first part of the help
    const char* details;  // the last one; may be ""
    command_kind kind;
    device_use devices = device_use::single;
};

// A command: derive from it, with the request and the state of a run as members.
class command {
public:
    explicit command(const command_text& text) : text(text) {}
    virtual ~command() = default;
    command(const command&) = delete;
    command& operator=(const command&) = delete;

    virtual void add_options(option_list& add) = 0;

    // After all options were read and `settings` made of environment and flags, which it may
    // change. -EINVAL and a message that names option, value and cure.
    virtual status check() { return {}; }

    // Finds what is wrong with the files that were named, before any work is done. A signal ends
    // the program meanwhile.
    virtual status open() { return {}; }

    // Does the work and writes the result. Returns not_interrupted() (process.hpp) where the work
    // ended early for a signal.
    virtual status run() = 0;

    // What is printed after run() succeeded. The object gets program, version and command too.
    [[nodiscard]] virtual nlohmann::json json_of() const;
    virtual void say_summary() const {}

    // False: there is a report, and the exit status is 1, for something had to be left out.
    [[nodiscard]] virtual bool complete() const { return true; }

    const command_text text;
    common_flags common;
    options settings;
};

struct program_text {
    const char* name;   // "penstock-grep"
    const char* about;  // unless there is a command of the kind main
    // The cure where memory or threads run out: "search fewer files at a time".
    const char* smaller;
};

// Parts of run_program(), for commands of any type.
// Reads the command line into the command that it names. Nothing if the program should go on with
// `chosen`, else its exit status; what was wrong has been said.
std::optional<int> choose_command(const program_text& program, std::span<command* const> commands,
                                  int argc, char** argv, command*& chosen);
// The exit status; what was wrong has been said.
int run_command(const program_text& program, command& chosen);

// The whole program; returns its exit status. A command of the kind main comes first.
template <typename... Commands>
int run_program(const program_text& program, int argc, char** argv) {
    return run_process(program.name, program.smaller, [&] {
        std::tuple<Commands...> commands;
        command* chosen = nullptr;
        const auto all = std::apply(
            [](auto&... each) { return std::array<command*, sizeof...(Commands)>{&each...}; },
            commands);
        if (const auto ended = choose_command(program, all, argc, argv, chosen)) return *ended;
        return run_command(program, *chosen);
    });
}

}  // namespace penstock::apps
