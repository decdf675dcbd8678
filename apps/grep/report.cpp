#include "report.hpp"

#include <nlohmann/json.hpp>

#include "common/message.hpp"
#include "common/report_text.hpp"
#include "penstock/version.hpp"

namespace penstock::grep {

namespace {

using apps::text_of;
using nlohmann::json;

std::uint64_t matches_of(const method_run& run) {
    std::uint64_t sum = 0;
    for (const word_count& c : run.found.counts) sum += c.count;
    return sum;
}

std::string message_of(const session& s, const file_error& e) {
    const char* const cure =
        e.code == -ESTALE ? "it changed while it was read: run again; its counts are left out"
                          : "its counts are left out";
    return apps::shown(s.files.files[e.file].path) + ": " + error_text(e.code) + "; " + cure;
}

json method_json(const session& s, const method_run& run) {
    return {
        {"method", run.name},
        {"start_seconds", run.start_seconds},
        {"search_seconds", run.search_seconds},
        {"phases",
         {{"launch", run.found.launch_seconds},
          {"collect", run.found.collect_seconds},
          {"join", run.found.join_seconds}}},
        {"bytes_per_second",
         run.search_seconds > 0 ? static_cast<double>(s.total_bytes) / run.search_seconds : 0.0},
        {"groups", run.groups},
        {"piece_bytes", run.piece_bytes},
        {"pieces", run.found.jobs},
        {"launches", run.found.launches}};
}

std::string counted(std::uint64_t number, const std::string& one, const std::string& many) {
    return apps::with_commas(number) + " " + (number == 1 ? one : many);
}

}  // namespace

status write_lines(const session& s, apps::output_file& to) {
    constexpr std::size_t full = 1 << 20;
    const bool raw = s.asked.null_ends;
    std::string text;
    for (const word_count& c : s.runs.back().found.counts) {
        const std::string &word = s.words.words[c.word], &path = s.files.files[c.file].path;
        text += word;
        text += raw ? '\0' : '\t';
        text += raw ? path : apps::field_of(path);
        text += raw ? '\0' : '\t';
        text += std::to_string(c.count);
        text += raw ? '\0' : '\n';
        if (text.size() < full) continue;
        if (status failed = to.write(text.data(), text.size()); !failed) return failed;
        text.clear();
    }
    return to.write(text.data(), text.size());
}

std::string json_of(const session& s) {
    const method_run& run = s.runs.back();
    json out = {{"program", "penstock-grep"},
                {"version", version()},
                {"method", run.name},
                {"backend", s.rt != nullptr      ? name_of(s.rt->where())
                            : run.name == "cuda" ? "gpu"
                                                 : "cpu"},
                {"files", s.files.files.size()},
                {"binary_files", run.found.binary_files},
                {"bytes", s.total_bytes},
                {"words", s.words.words.size()},
                {"matches", matches_of(run)},
                {"lines", run.found.counts.size()},
                {"errors", json::array()},
                {"methods", json::array()}};
    const seconds_by_phase& t = s.seconds;
    out["seconds"] = {{"dictionary", t.dictionary},
                      {"find_files", t.find_files},
                      {"start", t.start},
                      {"search", t.search},
                      {"output", t.output},
                      {"total", t.dictionary + t.find_files + t.start + t.search + t.output}};
    for (const std::string& complaint : s.files.complaints) out["errors"].push_back(complaint);
    for (const file_error& e : run.found.errors) out["errors"].push_back(message_of(s, e));
    for (const method_run& one : s.runs) out["methods"].push_back(method_json(s, one));
    out["runtime"] = s.rt != nullptr ? apps::json_of(*s.rt) : json(nullptr);
    // Names of files need not be UTF-8; JSON must be.
    return out.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

void say_summary(const session& s) {
    for (const std::string& note : s.notes) apps::say(note);
    const method_run& run = s.runs.back();
    std::string text = counted(s.files.files.size(), "file", "files") + " (" +
                       apps::with_commas(run.found.binary_files) + " binary), " +
                       counted(s.total_bytes, "byte", "bytes") + ", " +
                       counted(s.words.words.size(), "word", "words") + ": " +
                       counted(matches_of(run), "match", "matches") + " in " +
                       counted(run.found.counts.size(), "line", "lines") + "; " + run.name +
                       " searched " + text_of("%.3f s", run.search_seconds);
    if (s.rt != nullptr) {
        const statistics figures = s.rt->stats();
        text += std::string(" on ") + name_of(s.rt->where()) + ", " +
                apps::with_commas(figures.hits) + " hits, " + apps::with_commas(figures.misses) +
                " misses";
    }
    apps::say(text);
    if (s.runs.size() < 2) return;
    for (const method_run& one : s.runs)
        apps::say(
            one.name + ": start " + text_of("%.3f s", one.start_seconds) + ", search " +
            text_of("%.3f s", one.search_seconds) + ", " +
            text_of("%.1f MB/s", static_cast<double>(s.total_bytes) / one.search_seconds / 1e6));
}

void say_left_out(const session& s) {
    for (const file_error& e : s.runs.back().found.errors) apps::say(message_of(s, e));
}

}  // namespace penstock::grep
