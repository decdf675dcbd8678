// The frame of a command of penstock: its options, its work and its report. main.cpp has them all.
// With it comes what they report with.
#pragma once

#include <cerrno>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/command_line.hpp"
#include "common/message.hpp"
#include "common/report_text.hpp"
#include "penstock/buffer.hpp"
#include "penstock/options.hpp"

namespace penstock::cli {

struct command_text {
    const char* name;  // on the command line: "cat", or "trace show" below "trace"
    const char* about;
    std::string details;              // the last part of the help, before the exit statuses
    bool makes_runtime = false;       // then it takes the flags of all programs, as `common`
    const char* message_prefix = "";  // of what it says of its failure
    apps::device_use devices = apps::device_use::single;
    const char* about_json = nullptr;  // the help of --json where it prints more than one object
};

// Derive from it, with the request as members. The frame reads the options, settles `settings` if
// the command makes a runtime, and calls check() and run(). It says why the command failed.
class command {
public:
    explicit command(command_text text) : text(std::move(text)) {}
    virtual ~command() = default;
    command(const command&) = delete;
    command& operator=(const command&) = delete;

    virtual void add_options(apps::option_list& add) = 0;
    // Judges values that are wrong only together: a failure is wrong usage.
    virtual status check() { return {}; }
    // Does the work and prints the report. Without a message, what failed has been said.
    virtual status run() = 0;

    const command_text text;
    apps::common_flags common;
    options settings;
    bool used_wrongly = false;  // run() failed for what the command line asked

protected:
    // The object, with what all reports have, in one line of JSON.
    [[nodiscard]] std::string line_of(nlohmann::json object) const;
    // On standard output: that line with --json; else the text, unless --quiet.
    status report(const nlohmann::json& object, const std::string& shown) const;
};

// Something that the command line may have asked wrongly, and the message about it.
struct mistake {
    bool made;
    std::string message;
};

// -EINVAL for the first that was made.
inline status first_mistake(std::initializer_list<mistake> all) {
    for (const mistake& each : all)
        if (each.made) return {-EINVAL, each.message};
    return {};
}

// Values of options of several commands.

// For option_list::value(); parse_size() says why not.
inline status read_size(const std::string& flag, const std::string& text,
                        std::optional<std::uint64_t>& out) {
    return parse_size(flag.c_str(), text, out.emplace());
}

inline std::vector<std::string> policy_names() { return {"native", "gram", "dedu"}; }
inline buffer::policy_kind policy_named(const std::string& name) {
    using enum buffer::policy_kind;
    return name == "native" ? native : name == "dedu" ? dedu : gram;
}

// Empty: a GPU if there is one.
inline backend backend_named(const std::string& name) {
    return name == "gpu" ? backend::gpu : name == "cpu" ? backend::cpu : backend::automatic;
}

std::unique_ptr<command> make_info();
std::unique_ptr<command> make_cat();
std::unique_ptr<command> make_cp();
std::unique_ptr<command> make_keep();
std::unique_ptr<command> make_mount();
std::unique_ptr<command> make_replay();
std::unique_ptr<command> make_stat();
// Of the program, which must outlive them.
std::unique_ptr<command> make_man(const CLI::App& program);
std::unique_ptr<command> make_completion(const CLI::App& program);
std::vector<std::unique_ptr<command>> make_trace_commands();

}  // namespace penstock::cli
