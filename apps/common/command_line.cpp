// Reads command lines by CLI11, makes the runtime that they ask for, and runs commands.
#include "common/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstring>
#include <cstdio>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>

#include "common/manual.hpp"
#include "common/message.hpp"
#include "common/program.hpp"
#include "common/report_text.hpp"
#include "penstock/version.hpp"
#include "settings/tables.hpp"

namespace penstock::apps {

namespace {

struct option_flag {
    const char* flag;
    std::string common_flags::*text;
    const char* about;
    const char* form;
};

constexpr const char* devices_flag = "--devices";

// Flags of the library's table of options.
constexpr option_flag option_flags[] = {
    {"--backend", &common_flags::backend,
     "Where kernels run: gpu, cpu, or auto (gpu if there is one)", "WHERE"},
    {"--device", &common_flags::device, "Number of the GPU", "N"},
    {devices_flag, &common_flags::devices,
     "Numbers of several GPUs that work together, such as 0,1", "LIST"},
    {"--cache", &common_flags::cache, "Size of the page cache, such as 8GiB", "SIZE"},
    {"--page", &common_flags::page, "Size of a page: a power of two, 512 to 2MiB", "SIZE"},
    {"--workers", &common_flags::workers, "Threads that run kernels on the cpu back end", "N"}};

// Shared by the runtime's threads until the runtime stands, and for its whole life after.
struct held_log {
    std::function<void(const std::string&)> later;
    std::mutex mutex;
    bool held = true;  // guarded by mutex, as are the lines
    std::vector<std::string> lines;

    void take(const std::string& line) {
        std::lock_guard lock(mutex);
        if (held) lines.push_back(line);
        else later(line);
    }
    std::vector<std::string> release() {
        std::lock_guard lock(mutex);
        held = false;
        return std::move(lines);
    }
};

// CLI11 takes an operand "[a,b]" for a list, and "++" for the end of a command; either may be the
// name of a file. A byte that no argument can hold, behind them, makes them texts as any other.
constexpr char is_text = '\0';

std::string with_mark(std::string text) {
    const bool is_list = !text.empty() && text.front() == '[' && text.back() == ']';
    if (is_list || text == "++") text += is_text;
    return text;
}

std::string without_mark(std::string text) {
    if (!text.empty() && text.back() == is_text) text.pop_back();
    return text;
}

std::string not_empty(const std::string& text) {
    return text.empty() ? "'' is no value; give one" : "";
}

// "a, b or c".
std::string list_of(const std::vector<std::string>& names) {
    std::string list;
    for (std::size_t i = 0; i < names.size(); ++i)
        list += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
    return list;
}

// -EINVAL and a message that lists the names, "give a, b or c", unless the text is one of them.
status check_name(const std::string& flag, const std::string& text, const char* noun,
                  const std::vector<std::string>& names, const char* end) {
    if (std::find(names.begin(), names.end(), text) != names.end()) return {};
    return {-EINVAL,
            flag + ": " + shown(text) + " is no " + noun + "; give " + list_of(names) + end};
}

// A help whose names of options are what a caller types: CLI11 puts behind a flag that clears
// something what it stores, "--no-windows{false}".
class help_of_options final : public CLI::Formatter {
    std::string make_option_name(const CLI::Option* option, bool is_operand) const override {
        std::string names = Formatter::make_option_name(option, is_operand);
        const std::string stored = "{false}";
        for (std::size_t at = 0; (at = names.find(stored, at)) != std::string::npos;)
            names.erase(at, stored.size());
        return names;
    }
};

// CLI11's own words, last argument first as there; but those have marks, and end at the first one.
std::string unexpected(const std::vector<std::string>& left) {
    if (left.empty()) return {};
    std::string text = left.size() > 1 ? "The following arguments were not expected:"
                                       : "The following argument was not expected:";
    for (auto word = left.rbegin(); word != left.rend(); ++word) text += " " + without_mark(*word);
    return text;
}

// What CLI11 does not say where something else is missing besides, or not as it was given: an
// argument that is no option, a command that is none. Empty: its own words are good.
std::string wrong_word(const CLI::App& app, CLI::ExitCodes code) {
    const CLI::App* at = &app;  // the last one that was found
    while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
    std::vector<std::string> names;
    for (const CLI::App* const each : at->get_subcommands([](const CLI::App*) { return true; }))
        if (!each->get_group().empty()) names.push_back(each->get_name());
    const std::vector<std::string> left = at->remaining();
    if (!left.empty() && left.front().rfind('-', 0) == 0)
        return "The following argument was not expected: " + without_mark(left.front());
    if (names.empty()) return code == CLI::ExitCodes::ExtrasError ? unexpected(left) : "";
    if (left.empty() && at->get_require_subcommand_min() == 0) return {};
    return (left.empty() ? "no command given"
                         : shown(without_mark(left.front())) + " is no command") +
           "; give " + list_of(names);
}

void add_make_flags(CLI::App& app, common_flags& flags) {
    add_value(app, "--workers", flags.workers, "Threads; default: one for every processor", "N");
    app.add_flag("--json", flags.json, "Print exactly one JSON object on standard output");
    app.add_flag("--quiet", flags.quiet, "Print no summary; errors and warnings still appear");
}

CLI::Option* add_operands(CLI::App& app, const char* name, std::vector<std::string>& out,
                          const char* about) {
    const auto store = [&out](const std::vector<std::string>& texts) {
        out.clear();
        for (const std::string& text : texts) out.push_back(without_mark(text));
    };
    return app.add_option_function<std::vector<std::string>>(name, store, about);
}

void add_version_flag(CLI::App& app) {
    app.set_version_flag("--version", std::string("penstock ") + version());
}

void declare(CLI::App& app, command& wanted, status& mistake) {
    app.footer(wanted.text.details);
    option_list options(app, mistake);
    wanted.add_options(options);
    switch (wanted.text.kind) {
        case command_kind::main:
        case command_kind::run: add_common_flags(app, wanted.common, wanted.text.devices); break;
        case command_kind::make: add_make_flags(app, wanted.common); break;
        case command_kind::internal: app.group(""); break;
    }
}

status report(const program_text& program, const command& ended) {
    if (ended.common.json) {
        nlohmann::json out = {{"program", program.name}, {"version", version()}};
        if (*ended.text.name != '\0') out["command"] = ended.text.name;
        out.update(ended.json_of());
        if (status failed = print_json(line_of(out)); !failed) return failed;
    }
    if (!ended.common.quiet) ended.say_summary();
    return {};
}

}  // namespace

option_list::option_list(CLI::App& app, status& mistake) : app_(app), mistake_(mistake) {
    app.formatter(std::make_shared<help_of_options>());
}

void option_list::required() {
    last_->required();
    if (!last_->get_description().empty())
        last_->description(last_->get_description() + " (required)");
}

void option_list::operand(const char* name, std::string& out, const char* about) {
    const auto store = [&out](const std::string& text) { out = without_mark(text); };
    app_.add_option_function<std::string>(name, store, about)->required();
}

void option_list::operands(const char* name, std::vector<std::string>& out, const char* about) {
    add_operands(app_, name, out, about)->required();
}

void option_list::optional_operands(const char* name, std::vector<std::string>& out,
                                    const char* about) {
    add_operands(app_, name, out, about);
}

void option_list::flag(const char* name, bool& out, const char* about) {
    app_.add_flag(name, out, about);
}

void option_list::windows_flag(bool& out) {
    flag("--windows,!--no-windows", out,
         "Open windows onto what the OS page cache has before the kernel runs: it takes longer "
         "than requests if a file is read once, and one core in place of most. GPU only");
}

option_list& option_list::text(const char* flag, std::string& out, const std::string& about,
                               const char* form) {
    const auto read = [&out](const std::string&, const std::string& text) -> status {
        out = text;
        return {};
    };
    return value(flag, read, about, form);
}

option_list& option_list::value(const char* flag, const reader& read, const std::string& about,
                                const char* form) {
    const std::string names = flag, name = names.substr(names.rfind(',') + 1);
    const auto store = [&mistake = mistake_, read, name](const std::string& text) {
        if (mistake.ok()) mistake = read(name, without_mark(text));
    };
    last_ = app_.add_option_function<std::string>(names, store, about)
                ->option_text(form)
                ->check(not_empty);
    return *this;
}

option_list& option_list::size(const char* flag, std::uint64_t& out, std::uint64_t most,
                               const char* example, const std::string& about, const char* form) {
    const auto read = [&out, most, example](const std::string& name,
                                            const std::string& text) -> status {
        if (status s = parse_size(name.c_str(), text, out); !s) return s;
        if (out == 0)
            return {-EINVAL, name + ": '" + text + "' is no usable size; give one, such as " +
                                 example + ", or leave " + name + " out"};
        if (out <= most) return {};
        std::string limit = format_size(most);  // "1 MiB"
        limit.erase(std::remove(limit.begin(), limit.end(), ' '), limit.end());
        return {-EINVAL, name + ": " + shown(text) + " is more than " + limit + "; give " + limit +
                             " or less"};
    };
    return value(flag, read, about, form);
}

option_list& option_list::choice(const char* flag, std::string& out,
                                 const std::vector<std::string>& names, const char* noun,
                                 const std::string& about, const char* form) {
    const auto read = [&out, names, noun](const std::string& name,
                                          const std::string& text) -> status {
        out = text;
        return check_name(name, text, noun, names, "");
    };
    return value(flag, read, about, form);
}

option_list& option_list::choices(const char* flag, std::vector<std::string>& out,
                                  const std::vector<std::string>& names, const char* noun,
                                  const std::string& about, const char* form) {
    const auto read = [&out, names, noun](const std::string& name,
                                          const std::string& text) -> status {
        out.clear();
        for (std::size_t at = 0; at <= text.size(); at += out.back().size() + 1) {
            out.push_back(text.substr(at, text.find(',', at) - at));
            if (status s = check_name(name, out.back(), noun, names, ", or several with commas");
                !s)
                return s;
        }
        return {};
    };
    return value(flag, read, about, form);
}

std::string option_list::text_of_bound(double bound) { return text_of("%g", bound); }

CLI::Option* add_value(CLI::App& app, const std::string& flag, std::string& out,
                       const std::string& about, const char* form) {
    const auto store = [&out](const std::string& text) { out = without_mark(text); };
    return app.add_option_function<std::string>(flag, store, about)
        ->option_text(form)
        ->check(not_empty);
}

void add_common_flags(CLI::App& app, common_flags& flags, device_use use) {
    add_version_flag(app);
    for (const option_flag& known : option_flags)
        for (const settings::option_entry& option : settings::option_entries()) {
            if (option.flag != std::string(known.flag)) continue;
            CLI::Option* const added =
                add_value(app, known.flag, flags.*known.text,
                          std::string(known.about) + ". " + option.variable, known.form);
            if (known.flag == devices_flag && use == device_use::single) added->group("");
        }
    app.add_flag("--json", flags.json, "Print exactly one JSON object on standard output");
    app.add_flag("--quiet", flags.quiet,
                 "Print no summary and no notes; errors and warnings still appear");
}

std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv) {
    std::vector<std::string> last_first;  // as CLI11 wants them
    for (int i = argc - 1; i > 0; --i) last_first.push_back(with_mark(argv[i]));
    try {
        app.parse(std::move(last_first));
    } catch (const CLI::Success& wanted) {
        std::ostringstream text;
        app.exit(wanted, text, text);  // help or version
        const status printed = print_json(text.str());
        say(printed.message);
        return printed.ok() ? exit_done : exit_failed;
    } catch (const CLI::ParseError& mistake) {
        std::string text;
        const auto code = static_cast<CLI::ExitCodes>(mistake.get_exit_code());
        if (code == CLI::ExitCodes::RequiredError || code == CLI::ExitCodes::ExtrasError)
            text = wrong_word(app, code);
        if (text.empty()) text = mistake.what();
        while (!text.empty() && (text.back() == '\n' || text.back() == '.')) text.pop_back();
        say(text + "; see --help");
        return exit_usage;
    }
    return std::nullopt;
}

namespace {

// All commands in one App. A command of the kind main is the program itself there.
std::optional<int> write_manual_of(const program_text& program, std::span<command* const> commands,
                                   int argc, char** argv) {
    status mistake;
    command& first = *commands.front();
    const bool has_main = first.text.kind == command_kind::main;
    CLI::App app(has_main ? first.text.about : program.about, program.name);
    if (has_main) declare(app, first, mistake);
    else add_version_flag(app);
    for (command* const each : commands.subspan(has_main ? 1 : 0))
        declare(*app.add_subcommand(each->text.name, each->text.about), *each, mistake);
    return manual_asked(app, argc, argv);
}

}  // namespace

std::optional<int> choose_command(const program_text& program, std::span<command* const> commands,
                                  int argc, char** argv, command*& chosen) {
    command* const first = commands.front();
    status mistake;
    if (argc > 1 && std::strcmp(argv[1], manual_option) == 0)
        if (const auto ended = write_manual_of(program, commands, argc, argv)) return ended;
    std::optional<int> ended;
    if (first->text.kind == command_kind::main) {
        chosen = first;
        for (command* const other : commands.subspan(1))
            if (argc > 1 && std::strcmp(argv[1], other->text.name) == 0) chosen = other;
        const bool is_other = chosen != first;
        CLI::App app(chosen->text.about,
                     is_other ? std::string(program.name) + " " + argv[1] : program.name);
        declare(app, *chosen, mistake);
        ended = parse_command_line(app, argc - is_other, argv + is_other);
    } else {
        CLI::App app(program.about, program.name);
        app.require_subcommand(1);
        add_version_flag(app);
        for (command* const each : commands)
            declare(*app.add_subcommand(each->text.name, each->text.about), *each, mistake);
        ended = parse_command_line(app, argc, argv);
        for (command* const each : commands)
            if (app.got_subcommand(each->text.name)) chosen = each;
    }
    if (ended) return ended;
    if (mistake.ok())
        mistake = settle_options(chosen->common, chosen->settings, chosen->text.devices);
    if (mistake.ok()) mistake = chosen->check();
    if (mistake.ok()) return std::nullopt;
    say(mistake.message);
    return exit_usage;
}

std::string flag_text(const common_flags& flags, const std::string& flag) {
    for (const option_flag& known : option_flags)
        if (known.flag == flag) return flags.*known.text;
    return {};
}

status settle_options(const common_flags& flags, options& out, device_use use) {
    if (!flags.device.empty() && !flags.devices.empty())
        return {-EINVAL, "--device: " + shown(flags.device) + " is given beside --devices " +
                             shown(flags.devices) + "; give one of the two"};
    if (status s = options::from_environment(out); !s) return s;
    for (const settings::option_entry& option : settings::option_entries()) {
        const std::string text = flag_text(flags, option.flag);
        if (text.empty()) continue;
        if (status s = settings::set_option(option, option.flag, text, out); !s) return s;
    }
    if (!flags.device.empty()) out.devices.clear();  // a flag counts more than PENSTOCK_DEVICES
    // For what uses no runtime, and looks at `device` alone.
    if (out.devices.size() == 1) out.device = out.devices.front();
    // Variables are for all programs, also for methods that use no device.
    if (!flags.devices.empty() && use == device_use::single)
        if (status s = check_single_device(out, "this program"); !s) return s;
    return out.check();
}

status check_single_device(const options& settings, const std::string& user) {
    if (settings.devices.size() <= 1) return {};
    return {-EINVAL, "devices: " + user +
                         " uses one device; name one in PENSTOCK_DEVICES, or give --device"};
}

status create_runtime(options settings, std::vector<std::string>& notes,
                      std::unique_ptr<runtime>& out, device_use use) {
    if (use == device_use::single)
        if (status s = check_single_device(settings, "this program"); !s) return s;
    const auto log = std::make_shared<held_log>();
    log->later = settings.log ? settings.log : say;
    settings.log = [log](const std::string& line) { log->take(line); };
    if (status s = runtime::make(settings, out); !s) return s;
    notes = log->release();
    return {};
}

status create_runtime(options settings, bool quiet, std::unique_ptr<runtime>& out) {
    std::vector<std::string> notes;
    if (status s = create_runtime(std::move(settings), notes, out); !s) return s;
    if (!quiet)
        for (const std::string& note : notes) say(note);
    return {};
}

status launch_error(const runtime& rt, int code) {
    const status health = rt.health();
    return {code, health.ok() ? error_text(code) : health.message};
}

nlohmann::json command::json_of() const { return nlohmann::json::object(); }

int run_command(const program_text& program, command& chosen) {
    status ended = chosen.open();
    if (ended.ok() && chosen.text.kind != command_kind::internal) ended = watch_signals();
    if (ended.ok()) ended = chosen.run();
    if (ended.ok()) ended = report(program, chosen);
    say(ended.message);
    return ended.ok() && chosen.complete() ? exit_done : exit_failed;
}

}  // namespace penstock::apps
