#include "commands.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include "common/message.hpp"
#include "common/files.hpp"
#include "common/report_text.hpp"
#include "source_file.hpp"
#include "penstock/version.hpp"

namespace penstock::cat {

namespace {

constexpr std::uint64_t piece_bytes = 4 << 20;

constexpr const char* instead = "cat";  // for what is no regular file

status about_file(const std::string& name, std::int64_t code) {
    return apps::about_source(name, code, instead);
}

status open_all(runtime& rt, const std::vector<std::string>& names, std::vector<open_file>& out) {
    for (const std::string& name : names) {
        const int fd = rt.open(name);
        file_stat facts{};
        const int code = fd < 0 ? fd : rt.stat(fd, &facts);
        if (code < 0) return about_file(name, code);
        out.push_back({fd, facts.size_bytes});
    }
    return {};
}

status copy_all(runtime& rt, const request& wanted, const std::vector<open_file>& files,
                apps::output_file& to, std::atomic<std::uint64_t>& written) {
    const std::uint32_t readers =
        rt.where() == backend::gpu ? 4 : std::min(*rt.settings().worker_threads, 8u);
    ordered_reader reader(rt, files, piece_bytes, readers);
    piece part;
    while (reader.next(part)) {
        if (was_interrupted())
            return {-ECANCELED, "interrupted; nothing was written to " + apps::shown(wanted.out)};
        if (part.error != 0) return about_file(wanted.files[part.file], part.error);
        if (status failed = to.write(part.bytes.data(), part.bytes.size()); !failed) return failed;
        written += part.bytes.size();
    }
    return {};
}

std::string report_of(const runtime& rt, const request& wanted, std::uint64_t bytes,
                      double seconds) {
    return apps::line_of(
        {{"program", "penstock cat"},
         {"version", version()},
         {"files", wanted.files.size()},
         {"bytes", bytes},
         {"seconds", seconds},
         {"bytes_per_second", seconds > 0 ? static_cast<double>(bytes) / seconds : 0.0},
         {"runtime", apps::json_of(rt)}});
}

status print_to_standard_error(const std::string& text) {
    for (std::size_t done = 0; done < text.size();) {
        const ssize_t got = ::write(STDERR_FILENO, text.data() + done, text.size() - done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0)
            return {-errno, "standard error: " + error_text(-errno) + "; the report is incomplete"};
        done += static_cast<std::size_t>(got);
    }
    return {};
}

status settle(const request& wanted, options& settings) {
    if (wanted.common.json && wanted.out.empty())
        return {-EINVAL,
                "--json: standard output holds the file itself; give --out FILE as well, or "
                "--stats instead of --json"};
    if (status failed = apps::settle_options(wanted.common, settings); !failed) return failed;
    settings.roots = {
        "."};  // names on a command line start at the working directory, whatever kernels may open
    return {};
}

status cat_files(const request& wanted, const options& settings) {
    // Without --out the usual effect of Ctrl-C is the right one, also while a write waits for a
    // full pipe.
    if (!wanted.out.empty())
        if (status failed = apps::watch_signals(); !failed) return failed;
    struct stat facts {};
    for (const std::string& name : wanted.files)
        if (status failed = apps::look_at_source(name, instead, facts); !failed) return failed;
    apps::output_file to;
    if (status failed = to.open(wanted.out); !failed) return failed;
    std::unique_ptr<runtime> rt;
    if (status failed = apps::create_runtime(settings, wanted.common.quiet, rt); !failed)
        return failed;
    std::vector<open_file> files;
    if (status failed = open_all(*rt, wanted.files, files); !failed) return failed;
    std::uint64_t total = 0;
    for (const open_file& file : files) total += file.size_bytes;
    std::atomic<std::uint64_t> written{0};
    const auto start = std::chrono::steady_clock::now();
    {
        // No bar over the text of the files.
        const bool bar_wanted =
            !wanted.common.quiet && (!wanted.out.empty() || ::isatty(STDOUT_FILENO) == 0);
        const apps::progress bar(
            "reading", total, [&] { return written.load(); }, bar_wanted);
        if (status failed = copy_all(*rt, wanted, files, to, written); !failed) return failed;
    }
    if (status failed = to.commit(); !failed) return failed;
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    for (const open_file& file : files) rt->close(file.fd);
    const std::string report = report_of(*rt, wanted, written, seconds);
    if (wanted.stats)
        if (status failed = print_to_standard_error(report); !failed) return failed;
    return wanted.common.json ? apps::print_json(report) : status{};
}

}  // namespace

int run(const request& wanted) {
    options settings;
    if (const status failed = settle(wanted, settings); !failed) {
        apps::say(failed.message);
        return apps::exit_usage;
    }
    const status ended = cat_files(wanted, settings);
    if (ended.ok()) return apps::exit_done;
    // The reader of a pipe went away: it has what it wanted.
    if (ended.code != -EPIPE) apps::say(ended.message);
    return apps::exit_failed;
}

}  // namespace penstock::cat
