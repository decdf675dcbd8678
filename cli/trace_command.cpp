// The command penstock trace: its options, and the report of what it did.
#include "commands.hpp"

#include <CLI/CLI.hpp>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "common/command_line.hpp"
#include "common/message.hpp"
#include "common/numbers.hpp"
#include "common/report_text.hpp"
#include "common/threads.hpp"
#include "penstock/options.hpp"
#include "penstock/version.hpp"
#include "trace/summary.hpp"

namespace penstock::trace_command {

namespace {

using apps::add_value;
using apps::parse_number;
using apps::with_commas;
using nlohmann::json;

constexpr const char* about =
    "Makes, converts and describes traces: which pages of which files were read, written "
    "and flushed, and when.\n";

constexpr const char* details =
    "\nA trace is text, or binary, which shows when it was cut or changed; every command takes "
    "both. Traces and files appear whole or not at all. tools/trace_import.py in the sources makes "
    "traces of what blkparse and fio recorded.\n"
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
    if (s) s = parse_pattern(wanted.pattern, g.access_pattern);
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
    if (!wanted.skew.empty() && g.access_pattern != trace::pattern::zipf)
        return {-EINVAL, "--skew: is only for --pattern zipf; give that, or leave it out"};
    g.machines = static_cast<std::uint32_t>(machines);
    std::optional<std::uint32_t> threads;
    if (!wanted.workers.empty()) threads = static_cast<std::uint32_t>(workers);
    g.threads = apps::thread_count(threads);
    g.binary = wanted.binary;
    g.quiet = wanted.quiet;
    if (g.file.empty()) g.file = g.out + ".data";
    return {};
}

status check(request& wanted) {
    if (wanted.subcommand == request::command::generate) return check_generate(wanted);
    if (wanted.subcommand == request::command::convert && !wanted.text && !wanted.binary)
        return {-EINVAL, "give --text or --binary, for what the trace is to become"};
    return {};
}

// The report.

struct report_form {
    bool json = false, quiet = false;
};

json begin(const char* command) {
    return {{"program", "penstock trace"}, {"version", version()}, {"command", command}};
}

json json_of(const trace::trace_header& header) {
    json files = json::array();
    for (const trace::file_entry& file : header.files)
        files.push_back({{"path", file.path}, {"pages", file.pages}});
    json contents = nullptr;
    if (header.contents) {
        const trace::made_contents& c = *header.contents;
        contents = {{"distinct", c.distinct},
                    {"seed", c.seed},
                    {"common_pages", c.common_pages},
                    {"common_distinct", c.common_distinct},
                    {"own_distinct", c.own_distinct}};
    }
    return {{"page_bytes", header.page_bytes}, {"files", files}, {"contents", contents}};
}

// One line of JSON on standard output, or one for people on standard error.
status put(const report_form& form, const json& object, const std::string& line) {
    if (form.json) return apps::print_json(apps::line_of(object));
    if (!form.quiet) apps::say(line);
    return {};
}

const char* name_of(bool binary) { return binary ? "binary" : "text"; }

std::string counts_of(std::uint64_t reads, std::uint64_t writes, std::uint64_t flushes) {
    const auto counted = [](std::uint64_t count, const char* noun, const char* more) {
        return with_commas(count) + noun + (count == 1 ? "" : more);
    };
    return counted(reads, " read", "s") + ", " + counted(writes, " write", "s") + ", " +
           counted(flushes, " flush", "es");
}

std::string share(double of) { return apps::text_of("%.1f %%", 100 * of); }

std::string text_of(const std::string& path, const trace::summary& s) {
    const trace::trace_header& h = s.header;
    std::string out = apps::shown(path) + ": " + name_of(s.binary) + ", pages of " +
                      format_size(h.page_bytes) + "\n";
    for (std::size_t f = 0; f < h.files.size(); ++f)
        out += "file " + std::to_string(f) + ": " + apps::shown(h.files[f].path) + ", " +
               with_commas(h.files[f].pages) + " pages\n";
    if (h.contents) out += "contents: " + with_commas(h.contents->distinct) + " distinct\n";
    if (h.contents && h.contents->common_pages > 0)
        out +=
            "common: the first " + with_commas(h.contents->common_pages) + " pages of each file\n";
    out += with_commas(s.records) + " records: " + counts_of(s.reads, s.writes, s.flushes) + "\n";
    out += with_commas(s.pages_read) + " pages read, " + with_commas(s.pages_written) +
           " written; " + with_commas(s.with_content) + " writes name their contents\n";
    out += apps::text_of("%.6f s from first to last",
                         1e-9 * static_cast<double>(s.last_ns - s.first_ns)) +
           "\n";
    if (!s.counted)
        return out + "the files are too large, or the records too wide, to count pages\n";
    return out + with_commas(s.distinct_pages) + " distinct pages; the hottest 1 % take " +
           share(s.hottest_1) + " of the accesses, the hottest 10 % " + share(s.hottest_10) + "\n";
}

status report(const report_form& form, const trace::generate_request& asked,
              const trace::generate_report& done) {
    json out = begin("generate");
    out.update({{"trace", asked.out},
                {"format", name_of(asked.binary)},
                {"reads", done.reads},
                {"writes", done.writes},
                {"flushes", done.flushes},
                {"data_bytes", done.data_bytes},
                {"seconds", done.seconds}});
    out.update(json_of(done.header));
    std::string line = asked.out + ": " + counts_of(done.reads, done.writes, done.flushes);
    if (done.data_bytes > 0) line += "; " + format_size(done.data_bytes) + " of data made";
    return put(form, out, line + apps::text_of(" in %.2f s", done.seconds));
}

status report_converted(const report_form& form, const std::string& from, const std::string& to,
                        bool binary, std::uint64_t records) {
    json out = begin("convert");
    out.update({{"input", from}, {"trace", to}, {"format", name_of(binary)}, {"records", records}});
    return put(form, out, to + ": " + with_commas(records) + " records as " + name_of(binary));
}

status report(const report_form& form, const std::string& path, const trace::summary& s) {
    if (!form.json) return form.quiet ? status{} : apps::print_json(text_of(path, s));
    json out = begin("show");
    out.update({{"trace", path},
                {"format", name_of(s.binary)},
                {"records", s.records},
                {"reads", s.reads},
                {"writes", s.writes},
                {"flushes", s.flushes},
                {"writes_with_content", s.with_content},
                {"pages_read", s.pages_read},
                {"pages_written", s.pages_written},
                {"first_ns", s.first_ns},
                {"last_ns", s.last_ns},
                {"duration_ns", s.last_ns - s.first_ns},
                {"distinct_pages", s.counted ? json(s.distinct_pages) : json(nullptr)},
                {"hottest_1_percent_share", s.counted ? json(s.hottest_1) : json(nullptr)},
                {"hottest_10_percent_share", s.counted ? json(s.hottest_10) : json(nullptr)}});
    out.update(json_of(s.header));
    return apps::print_json(apps::line_of(out));
}

status follow(const request& wanted) {
    const report_form form{wanted.json, wanted.quiet};
    if (status s = apps::watch_signals(); !s) return s;
    if (wanted.subcommand == request::command::generate) {
        trace::generate_report done;
        status s = trace::generate(wanted.generate, done);
        return s ? report(form, wanted.generate, done) : s;
    }
    if (wanted.subcommand == request::command::convert) {
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
    add_convert(*trace, wanted);
    add_show(*trace, wanted);
    trace->parse_complete_callback([trace, &wanted] {
        using enum request::command;
        wanted.subcommand = trace->got_subcommand("generate")  ? generate
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
