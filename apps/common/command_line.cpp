#include "common/command_line.hpp"

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <mutex>

#include "common/message.hpp"
#include "penstock/version.hpp"

namespace penstock::apps {

namespace {

// Sizes that are given must be usable ones: 0 means "automatic" inside, and no user that types
// it means that.
status positive_size(const char* flag, const std::string& text, std::uint64_t& out) {
    if (text.empty()) return {};
    if (status s = parse_size(flag, text, out); !s) return s;
    if (out == 0)
        return {-EINVAL, std::string(flag) + ": '" + text +
                             "' is no usable size; give one, such as 64KiB, or leave " + flag +
                             " out"};
    return {};
}

template <typename Integer>
status whole_number(const char* flag, const std::string& text, Integer& out) {
    if (text.empty()) return {};
    const char* const end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, out);
    if (parsed.ec == std::errc() && parsed.ptr == end) return {};
    return {-EINVAL, std::string(flag) + ": '" + text +
                         "' is not a whole number that fits; give one, such as 4"};
}

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
    add_value(app, "--backend", flags.backend,
              "Where kernels run: gpu, cpu, or auto (gpu if there is one). PENSTOCK_BACKEND",
              "WHERE");
    add_value(app, "--device", flags.device, "Number of the GPU. PENSTOCK_DEVICE", "N");
    add_value(app, "--cache", flags.cache, "Size of the page cache, such as 8GiB. PENSTOCK_CACHE",
              "SIZE");
    add_value(app, "--page", flags.page,
              "Size of a page: a power of two, 512 to 2MiB. PENSTOCK_PAGE", "SIZE");
    add_value(app, "--workers", flags.workers,
              "Threads that run kernels on the cpu back end. PENSTOCK_WORKERS", "N");
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

status settle_options(const common_flags& flags, options& out) {
    if (status s = options::from_environment(out); !s) return s;
    if (!flags.backend.empty())
        if (status s = parse_backend("--backend", flags.backend, out.where); !s) return s;
    if (status s = whole_number("--device", flags.device, out.device); !s) return s;
    if (status s = whole_number("--workers", flags.workers, out.worker_threads); !s) return s;
    if (status s = positive_size("--cache", flags.cache, out.cache_bytes); !s) return s;
    if (status s = positive_size("--page", flags.page, out.page_bytes); !s) return s;
    return out.check();
}

status create_runtime(options settings, std::vector<std::string>& notes,
                      std::unique_ptr<runtime>& out) {
    const auto log = std::make_shared<held_log>();
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

}  // namespace penstock::apps
