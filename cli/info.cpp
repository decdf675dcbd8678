#include "commands.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "common/message.hpp"
#include "common/files.hpp"
#include "machine_report.hpp"
#include "penstock/engine/layout.hpp"
#include "penstock/version.hpp"
#include "settings/tables.hpp"

namespace penstock::info {

namespace {

using nlohmann::json;

// An option as text: its value in force, and where that value came from.
struct option_row {
    const settings::option_entry* option;
    std::string value;   // for programs
    std::string shown;   // for people
    std::string source;  // "command line", "environment", "default", or "automatic": the runtime's
};

struct report {
    host_facts host;
    gpu_report gpus;
    std::vector<finding> findings;
    std::vector<option_row> rows;
    status made;                   // of the runtime
    std::vector<std::string> log;  // what the runtime said while it was made
    std::string device;
    std::string io;
};

// `in_force` is `asked` after a runtime settled it, or `asked` again if there is none.
std::vector<option_row> rows_of(const apps::common_flags& flags, const options& asked,
                                const options& in_force) {
    std::vector<option_row> rows;
    for (const settings::option_entry& option : settings::option_entries()) {
        const char* const set = std::getenv(option.variable);
        const char* const source = !apps::flag_text(flags, option.flag).empty() ? "command line"
                                   : set != nullptr && *set != '\0'             ? "environment"
                                   : settings::is_automatic(option, asked)      ? "automatic"
                                                                                : "default";
        rows.push_back({&option, settings::plain_text(option, in_force),
                        settings::shown_text(option, in_force), source});
    }
    return rows;
}

const char* unit_name(settings::unit of) {
    return of == settings::unit::bytes ? "bytes" : of == settings::unit::ms ? "ms" : "";
}

json value_json(const option_row& row) {
    if (row.value.empty()) return nullptr;
    const std::string unit = unit_name(row.option->unit);
    return unit.empty() ? json(row.value) : json(std::stoull(row.value));
}

report look(const apps::common_flags& flags, const options& asked) {
    report out;
    out.host = read_host_facts();
    out.gpus = look_at_gpus(asked.device);
    out.findings = {probe_opening(), probe_io_uring(), probe_direct_io(), probe_huge_pages(),
                    probe_exact_times()};
    out.findings.insert(out.findings.end(), out.gpus.findings.begin(), out.gpus.findings.end());
    options in_force = asked;
    options settings = asked;
    settings.log = [&out](const std::string& line) { out.log.push_back(line); };
    std::unique_ptr<runtime> rt;
    out.made = runtime::make(settings, rt);
    if (out.made.ok()) {
        in_force = rt->settings();
        out.device = rt->device_name();
        out.io = rt->io_name();
    }
    rt.reset();  // before the log it writes to
    out.rows = rows_of(flags, asked, in_force);
    return out;
}

json limit_json(std::uint64_t value) {
    return value == host_facts::unlimited ? json(nullptr) : json(value);
}

json json_of(const report& r) {
    json out = {{"program", "penstock info"},
                {"version", version()},
                {"host",
                 {{"kernel", r.host.kernel},
                  {"processors", r.host.processors},
                  {"memory_bytes", r.host.memory_bytes}}},
                {"cuda",
                 {{"built_with", r.gpus.runtime.empty() ? json(nullptr) : json(r.gpus.runtime)},
                  {"driver", r.gpus.driver.empty() ? json(nullptr) : json(r.gpus.driver)},
                  {"why_not", r.gpus.why.empty() ? json(nullptr) : json(r.gpus.why)}}},
                {"gpus", json::array()},
                {"works", json::array()},
                {"limits",
                 {{"open_files", limit_json(r.host.open_files)},
                  {"locked_bytes", limit_json(r.host.locked_bytes)},
                  {"page_bytes_least", 512},
                  {"page_bytes_most", 2 << 20},
                  {"cache_pages_most", engine::max_frames},
                  {"files_most", engine::max_file_slots}}},
                {"runtime",
                 {{"made", r.made.ok()},
                  {"why_not", r.made.ok() ? json(nullptr) : json(r.made.message)},
                  {"device", r.made.ok() ? json(r.device) : json(nullptr)},
                  {"io", r.made.ok() ? json(r.io) : json(nullptr)},
                  {"log", r.log}}},
                {"options", json::array()}};
    for (const gpu& g : r.gpus.gpus)
        out["gpus"].push_back({{"number", g.number},
                               {"name", g.name},
                               {"compute_capability", g.capability},
                               {"memory_bytes", g.memory_bytes},
                               {"free_bytes", g.free_bytes},
                               {"multiprocessors", g.multiprocessors}});
    for (const finding& f : r.findings)
        out["works"].push_back({{"what", f.feature}, {"works", f.works}, {"why", f.why}});
    for (const option_row& o : r.rows)
        out["options"].push_back({{"name", o.option->name},
                                  {"environment", o.option->variable},
                                  {"unit", unit_name(o.option->unit)},
                                  {"value", value_json(o)},
                                  {"source", o.source}});
    return out;
}

std::string padded(std::string text, std::size_t width) {
    text.resize(std::max(text.size() + 1, width), ' ');
    return text;
}

// Sizes of memory are seldom whole.
std::string roughly(std::uint64_t bytes) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f GiB", static_cast<double>(bytes) / (1 << 30));
    return text;
}

std::string shown_limit(std::uint64_t value, bool bytes) {
    return value == host_facts::unlimited ? "unlimited"
           : bytes                        ? format_size(value)
                                          : apps::with_commas(value);
}

std::string text_of(const report& r) {
    std::string out = std::string("Penstock ") + version() + "\n\nDevices\n";
    const auto line = [&out](const std::string& name, const std::string& value) {
        out += "  " + padded(name, 28) + value + "\n";
    };
    line("CPU", std::to_string(r.host.processors) + " processors, " + roughly(r.host.memory_bytes) +
                    ", " + r.host.kernel);
    for (const gpu& g : r.gpus.gpus)
        line("GPU " + std::to_string(g.number), g.name + ", " + roughly(g.memory_bytes) + ", " +
                                                    roughly(g.free_bytes) +
                                                    " free, compute capability " + g.capability);
    if (!r.gpus.why.empty()) line("GPU", "none: " + r.gpus.why);
    if (!r.gpus.runtime.empty())
        line("CUDA", "built with " + r.gpus.runtime + ", driver for " +
                         (r.gpus.driver.empty() ? "none" : r.gpus.driver));
    out += "\nWhat works here\n";
    for (const finding& f : r.findings)
        line(f.feature, (f.works ? "yes" : "no") + (f.why.empty() ? "" : ": " + f.why));
    out += "\nLimits\n";
    line("open files (ulimit -n)", shown_limit(r.host.open_files, false));
    line("locked memory (ulimit -l)", shown_limit(r.host.locked_bytes, true));
    line("page size", "512 B to 2 MiB, a power of two");
    line("pages in a cache", "fewer than " + apps::with_commas(engine::max_frames));
    line("files open or remembered", "up to " + apps::with_commas(engine::max_file_slots));
    out += "\nOptions in force\n";
    for (const option_row& o : r.rows)
        out += "  " + padded(o.option->name, 18) + padded(o.shown, 24) + padded(o.source, 14) +
               o.option->variable + "\n";
    out += "\nRuntime\n";
    for (const std::string& said : r.log) line("note", said);
    if (r.made.ok()) line("made", "on " + r.device + ", reading with " + r.io);
    return out;
}

}  // namespace

int run(const apps::common_flags& flags) {
    options asked;
    if (const status failed = apps::settle_options(flags, asked); !failed) {
        apps::say(failed.message);
        return apps::exit_usage;
    }
    const report r = look(flags, asked);
    const std::string text =
        flags.json ? json_of(r).dump(-1, ' ', false, json::error_handler_t::replace) + "\n"
                   : text_of(r);
    apps::output_file standard_output;
    status ended = standard_output.open("");
    if (ended.ok()) ended = standard_output.write(text.data(), text.size());
    if (ended.ok()) ended = r.made;
    if (ended.ok()) return apps::exit_done;
    if (ended.code != -EPIPE) apps::say(ended.message);
    return apps::exit_failed;
}

}  // namespace penstock::info
