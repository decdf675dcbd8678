#include "common/command_line.hpp"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <mutex>

#include "common/message.hpp"
#include "penstock/version.hpp"
#include "settings/option_table.hpp"

namespace penstock::apps {

namespace {

struct option_flag {
    const char* flag;
    std::string common_flags::*text;
    const char* about;
    const char* form;
};

// Flags of the library's table of options.
constexpr option_flag option_flags[] = {
    {"--backend", &common_flags::backend,
     "Where kernels run: gpu, cpu, or auto (gpu if there is one)", "WHERE"},
    {"--device", &common_flags::device, "Number of the GPU", "N"},
    {"--cache", &common_flags::cache, "Size of the page cache, such as 8GiB", "SIZE"},
    {"--page", &common_flags::page, "Size of a page: a power of two, 512 to 2MiB", "SIZE"},
    {"--workers", &common_flags::workers, "Threads that run kernels on the cpu back end", "N"}};

// Shared by the runtime's threads until the runtime stands, and for its whole life after.
struct held_log {
    std::mutex mutex;
    bool held = true;  // guarded by mutex, as are the lines
    std::vector<std::string> lines;

    void take(const std::string& line) {
        std::lock_guard lock(mutex);
        if (held) lines.push_back(line);
        else say(line);
    }
    std::vector<std::string> release() {
        std::lock_guard lock(mutex);
        held = false;
        return std::move(lines);
    }
};

}  // namespace

void add_value(CLI::App& app, const std::string& flag, std::string& out, const std::string& about,
               const char* form) {
    app.add_option(flag, out, about)->option_text(form)->check([](const std::string& given) {
        return given.empty() ? std::string("'' is no value; give one") : std::string();
    });
}

void add_common_flags(CLI::App& app, common_flags& flags) {
    app.set_version_flag("--version", std::string("penstock ") + version());
    for (const option_flag& known : option_flags)
        for (const settings::option_entry& option : settings::option_entries())
            if (option.flag == std::string(known.flag))
                add_value(app, known.flag, flags.*known.text,
                          std::string(known.about) + ". " + option.variable, known.form);
    app.add_flag("--json", flags.json, "Print exactly one JSON object on standard output");
    app.add_flag("--quiet", flags.quiet,
                 "Print no summary and no notes; errors and warnings still appear");
}

std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv) {
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& wanted) {
        return app.exit(wanted);  // prints help or version
    } catch (const CLI::ParseError& mistake) {
        std::string text = mistake.what();
        while (!text.empty() && (text.back() == '\n' || text.back() == '.')) text.pop_back();
        say(text + "; see --help");
        return exit_usage;
    }
    return std::nullopt;
}

std::string flag_text(const common_flags& flags, const std::string& flag) {
    for (const option_flag& known : option_flags)
        if (known.flag == flag) return flags.*known.text;
    return {};
}

status settle_options(const common_flags& flags, options& out) {
    if (status s = options::from_environment(out); !s) return s;
    for (const settings::option_entry& option : settings::option_entries()) {
        const std::string text = flag_text(flags, option.flag);
        if (text.empty()) continue;
        if (status s = settings::set_option(option, option.flag, text, out); !s) return s;
    }
    return out.check();
}

status create_runtime(options settings, std::vector<std::string>& notes,
                      std::unique_ptr<runtime>& out) {
    const auto log = std::make_shared<held_log>();
    settings.log = [log](const std::string& line) { log->take(line); };
    if (status s = runtime::create(settings, out); !s) return s;
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

}  // namespace penstock::apps
