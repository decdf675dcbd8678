#include "trace_command.hpp"

#include <CLI/CLI.hpp>
#include <cerrno>

#include "common/command_line.hpp"
#include "common/message.hpp"
#include "common/number.hpp"
#include "common/threads.hpp"
#include "penstock/options.hpp"
#include "summary.hpp"
#include "trace_report.hpp"

namespace penstock::trace_command {

namespace {

using apps::add_value;
using apps::parse_number;

constexpr const char* about =
    "Makes, imports, converts and describes traces: which pages of which files were read, written "
    "and flushed, and when.\n";

constexpr const char* details =
    "\nA trace is text, or binary, which shows when it was cut or changed; every command takes "
    "both. Traces and files appear whole or not at all.\n"
    "\nExit status: 0 done; 1 failed; 2 wrong usage.\n";

constexpr std::uint64_t most_pages = std::uint64_t{1} << 40, most_accesses = 10000000000,
                        most_rate = 1000000000;
constexpr std::uint32_t most_machines = 256;

void add_common(CLI::App& app, request& wanted) {
    app.footer(details);
    app.add_flag("--json", wanted.json, "Print exactly one JSON object on standard output");
    app.add_flag("--quiet", wanted.quiet, "Print no summary; errors and warnings still appear");
}

void add_output(CLI::App& app, request& wanted, std::string& out) {
    add_value(app, "-o,--out", out, "File that gets the trace", "TRACE");
    app.get_option("--out")->required();
    app.add_flag("--text", wanted.text, "As text");
    app.add_flag("--binary", wanted.binary, "Binary")->excludes("--text");
}

void add_generate(CLI::App& app, request& wanted) {
    CLI::App* const make = app.add_subcommand(
        "generate", "Make a trace that the seed alone decides, and the file that it is of");
    add_output(*make, wanted, wanted.generate.out);
    add_value(*make, "--pages", wanted.pages,
              "Pages of the file, over which the accesses go: the working set; of every image, "
              "with --machines",
              "W");
    add_value(*make, "--accesses", wanted.accesses, "Reads and writes, of a page each", "N");
    for (const char* flag : {"--pages", "--accesses"}) make->get_option(flag)->required();
    add_value(*make, "--pattern", wanted.pattern,
              "Which page is next: uniform (the default), zipf (the n-th hottest as 1/n^S), or "
              "loop (one after the other)",
              "HOW");
    add_value(*make, "--skew", wanted.skew, "S of zipf, 0.001 to 5; default: 0.9", "S");
    add_value(*make, "--writes", wanted.writes, "Percent of the accesses that write; default: 0",
              "PERCENT");
    add_value(*make, "--shared-writes", wanted.shared_writes,
              "Percent of the writes that store what other pages hold; the others store what no "
              "page holds; default: 0",
              "PERCENT");
    add_value(*make, "--flush-every", wanted.flush_every,
              "Flush the file after so many writes; default: never", "N");
    add_value(*make, "--factor", wanted.factor,
              "How many pages hold the same, on average: 1 (the default) to 1000, such as 2.5",
              "D");
    add_value(*make, "--machines", wanted.machines,
              "Make a trace of so many virtual machines, 1 to 256, each with an image called "
              "PATH.0, PATH.1 and so on",
              "M");
    add_value(*make, "--common", wanted.common,
              "Percent of the pages of an image that are equal in all; default: 0", "PERCENT");
    add_value(*make, "--rate", wanted.rate, "Accesses in a second; default: 10000", "N");
    add_value(*make, "--page", wanted.page,
              "Size of a page: a power of two, 512 to 2MiB; default: 4KiB", "SIZE");
    add_value(*make, "--seed", wanted.seed, "Of all that is made; default: 1", "S");
    add_value(*make, "--file", wanted.generate.file,
              "What the trace calls its file; default: TRACE.data", "PATH");
    add_value(*make, "--data", wanted.generate.data, "Make the file too, here, and call it so",
              "PATH");
    make->get_option("--data")->excludes("--file");
    add_value(*make, "--workers", wanted.workers,
              "Threads that make it; default: one for every processor", "N");
    add_common(*make, wanted);
}

void add_import(CLI::App& app, request& wanted) {
    CLI::App* const take = app.add_subcommand(
        "import", "Make a trace of what blkparse printed, or of a log of fio (version 2 or 3)");
    take->add_option("INPUT", wanted.import.input, "File with what was recorded")->required();
    add_value(*take, "--from", wanted.from, "What recorded it: blkparse or fio", "TOOL");
    take->get_option("--from")->required();
    add_output(*take, wanted, wanted.import.out);
    add_value(*take, "--file", wanted.import.file,
              "What the trace calls its file; needed for blkparse, and for fio in place of the "
              "only name in the log",
              "PATH");
    add_value(*take, "--pages", wanted.pages,
              "Pages of each file; default: as far as it was accessed", "N");
    add_value(*take, "--page", wanted.page,
              "Size of a page: a power of two, 512 to 2MiB; default: 4KiB", "SIZE");
    add_value(*take, "--action", wanted.action,
              "Of blkparse: which events are taken: Q (queued; the default), G, I, D (issued) or C "
              "(completed)",
              "A");
    add_value(*take, "--device", wanted.import.device,
              "Of blkparse: whose events are taken; needed if there are several", "MAJOR,MINOR");
    add_common(*take, wanted);
}

void add_convert(CLI::App& app, request& wanted) {
    CLI::App* const convert = app.add_subcommand("convert", "Write a trace as text, or binary");
    convert->add_option("TRACE", wanted.input, "The trace")->required();
    add_output(*convert, wanted, wanted.out);
    add_common(*convert, wanted);
}

void add_show(CLI::App& app, request& wanted) {
    CLI::App* const show =
        app.add_subcommand("show", "Check a trace from front to back, and say what is in it");
    show->add_option("TRACE", wanted.input, "The trace")->required();
    add_common(*show, wanted);
}

status parse_pattern(const std::string& text, trace::pattern& out) {
    if (text.empty() || text == "uniform") out = trace::pattern::uniform;
    else if (text == "zipf") out = trace::pattern::zipf;
    else if (text == "loop") out = trace::pattern::loop;
    else
        return {-EINVAL,
                "--pattern: " + apps::shown(text) + " is no pattern; give uniform, zipf or loop"};
    return {};
}

status parse_page(const std::string& text, std::uint32_t& out) {
    std::uint64_t bytes = out;
    if (!text.empty())
        if (status s = parse_size("--page", text, bytes); !s) return s;
    if (bytes < trace::least_page_bytes || bytes > trace::most_page_bytes ||
        (bytes & (bytes - 1)) != 0)
        return {-EINVAL, "--page: " + apps::shown(text) +
                             " is no size of a page; give a power of two from 512 to 2MiB"};
    out = static_cast<std::uint32_t>(bytes);
    return {};
}

status whole(const char* flag, const std::string& text, std::uint64_t least, std::uint64_t most,
             std::uint64_t& out) {
    return parse_number<std::uint64_t>(
        flag, text, least, most,
        "from " + apps::with_commas(least) + " to " + apps::with_commas(most), out);
}

status percent(const char* flag, const std::string& text, double& out) {
    return parse_number<double>(flag, text, 0, 100, "from 0 to 100", out);
}

status check_generate(request& wanted) {
    trace::generate_request& g = wanted.generate;
    std::uint64_t machines = 0, workers = 0;
    status s = whole("--pages", wanted.pages, 1, most_pages, g.pages);
    if (s) s = whole("--accesses", wanted.accesses, 1, most_accesses, g.accesses);
    if (s) s = parse_pattern(wanted.pattern, g.how);
    if (s) s = parse_number<double>("--skew", wanted.skew, 0.001, 5, "from 0.001 to 5", g.skew);
    if (s) s = percent("--writes", wanted.writes, g.write_percent);
    if (s) s = percent("--shared-writes", wanted.shared_writes, g.shared_write_percent);
    if (s) s = whole("--flush-every", wanted.flush_every, 1, most_accesses, g.flush_every);
    if (s) s = parse_number<double>("--factor", wanted.factor, 1, 1000, "from 1 to 1000", g.factor);
    if (s) s = whole("--machines", wanted.machines, 1, most_machines, machines);
    if (s) s = percent("--common", wanted.common, g.common_percent);
    if (s) s = whole("--rate", wanted.rate, 1, most_rate, g.rate);
    if (s) s = whole("--seed", wanted.seed, 0, UINT64_MAX, g.seed);
    if (s) s = whole("--workers", wanted.workers, 1, 1024, workers);
    if (s) s = parse_page(wanted.page, g.page_bytes);
    if (!s) return s;
    if (!wanted.common.empty() && wanted.machines.empty())
        return {-EINVAL, "--common: there is one file only; give --machines too, or leave it out"};
    if (!wanted.skew.empty() && g.how != trace::pattern::zipf)
        return {-EINVAL, "--skew: is only for --pattern zipf; give that, or leave it out"};
    g.machines = static_cast<std::uint32_t>(machines);
    g.threads = apps::thread_count(static_cast<std::uint32_t>(workers));
    g.binary = wanted.binary;
    g.quiet = wanted.quiet;
    if (g.file.empty()) g.file = g.out + ".data";
    return {};
}

status check_import(request& wanted) {
    trace::import_request& i = wanted.import;
    if (wanted.from != "blkparse" && wanted.from != "fio")
        return {-EINVAL,
                "--from: " + apps::shown(wanted.from) + " is not known; give blkparse or fio"};
    i.from = wanted.from == "fio" ? trace::recorder::fio : trace::recorder::blkparse;
    if (i.from == trace::recorder::fio && (!wanted.action.empty() || !i.device.empty()))
        return {-EINVAL, "--action and --device are only for --from blkparse; leave them out"};
    if (i.from == trace::recorder::blkparse && i.file.empty())
        return {-EINVAL,
                "--file is needed for --from blkparse, whose text names no file; give the path "
                "that the trace is to have"};
    if (!wanted.action.empty() && (wanted.action.size() != 1 ||
                                   std::string("QGIDC").find(wanted.action) == std::string::npos))
        return {-EINVAL, "--action: " + apps::shown(wanted.action) +
                             " is no action with sectors; give Q, G, I, D or C"};
    if (!wanted.action.empty()) i.action = wanted.action[0];
    if (status s = whole("--pages", wanted.pages, 1, most_pages, i.pages); !s) return s;
    i.binary = wanted.binary;
    return parse_page(wanted.page, i.page_bytes);
}

status check(request& wanted) {
    if (wanted.what == request::command::generate) return check_generate(wanted);
    if (wanted.what == request::command::import) return check_import(wanted);
    if (wanted.what == request::command::convert && !wanted.text && !wanted.binary)
        return {-EINVAL, "give --text or --binary, for what the trace is to become"};
    return {};
}

status follow(const request& wanted) {
    const report_form form{wanted.json, wanted.quiet};
    if (status s = apps::watch_signals(); !s) return s;
    if (wanted.what == request::command::generate) {
        trace::generate_report done;
        status s = trace::generate(wanted.generate, done);
        return s ? report(form, wanted.generate, done) : s;
    }
    if (wanted.what == request::command::import) {
        trace::import_report done;
        status s = trace::import_trace(wanted.import, done);
        return s ? report(form, wanted.import, done) : s;
    }
    if (wanted.what == request::command::convert) {
        std::uint64_t records = 0;
        status s = trace::convert(wanted.input, wanted.out, wanted.binary, records);
        return s ? report_converted(form, wanted.input, wanted.out, wanted.binary, records) : s;
    }
    trace::summary found;
    status s = trace::summarise(wanted.input, found);
    return s ? report(form, wanted.input, found) : s;
}

}  // namespace

CLI::App* add(CLI::App& app, request& wanted) {
    CLI::App* const trace = app.add_subcommand("trace", about);
    trace->footer(details);
    trace->require_subcommand(1);
    add_generate(*trace, wanted);
    add_import(*trace, wanted);
    add_convert(*trace, wanted);
    add_show(*trace, wanted);
    trace->parse_complete_callback([trace, &wanted] {
        using enum request::command;
        wanted.what = trace->got_subcommand("generate")  ? generate
                      : trace->got_subcommand("import")  ? import
                      : trace->got_subcommand("convert") ? convert
                                                         : show;
    });
    return trace;
}

int run(request& wanted) {
    status failed = check(wanted);
    const int code = failed ? apps::exit_failed : apps::exit_usage;
    if (failed) failed = follow(wanted);
    if (failed) return apps::exit_done;
    apps::say(failed.message);
    return code;
}

}  // namespace penstock::trace_command
