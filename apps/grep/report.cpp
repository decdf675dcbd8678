// What penstock-grep prints: lines, the JSON object, the summary.
#include "session.hpp"

#include <nlohmann/json.hpp>

#include "common/message.hpp"

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

std::string counted(std::uint64_t number, const std::string& single, const std::string& many) {
    return apps::with_commas(number) + " " + (number == 1 ? single : many);
}

}  // namespace

status write_lines(const session& s, apps::output_file& to) {
    constexpr std::size_t full = 1 << 20;
    const bool raw = s.null_ends;
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

json session::json_of() const {
    const method_run& run = runs.back();
    json out = {{"method", run.name},
                {"backend", run.backend},
                {"files", files.files.size()},
                {"binary_files", run.found.binary_files},
                {"bytes", total_bytes},
                {"words", words.words.size()},
                {"matches", matches_of(run)},
                {"lines", run.found.counts.size()},
                {"errors", files.complaints},
                {"methods", json::array()},
                {"runtime", apps::runtime_of(run)}};
    out["seconds"] = {{"dictionary", dictionary_seconds},
                      {"find_files", find_seconds},
                      {"start", run.start_seconds},
                      {"search", run.search_seconds},
                      {"output", output_seconds},
                      {"total", dictionary_seconds + find_seconds + run.start_seconds +
                                    run.search_seconds + output_seconds}};
    for (const file_error& e : run.found.errors) out["errors"].push_back(message_of(*this, e));
    for (const method_run& each : runs) out["methods"].push_back(method_json(*this, each));
    return out;
}

void session::say_summary() const {
    const method_run& run = runs.back();
    apps::say_notes(run);
    std::string text = counted(files.files.size(), "file", "files") + " (" +
                       apps::with_commas(run.found.binary_files) + " binary), " +
                       counted(total_bytes, "byte", "bytes") + ", " +
                       counted(words.words.size(), "word", "words") + ": " +
                       counted(matches_of(run), "match", "matches") + " in " +
                       counted(run.found.counts.size(), "line", "lines") + "; " + run.name +
                       " searched " + text_of("%.3f s", run.search_seconds);
    if (run.rt != nullptr) {
        const statistics figures = run.rt->stats();
        text += " on " + run.backend + ", " + apps::with_commas(figures.hits) + " hits, " +
                apps::with_commas(figures.misses) + " misses";
    }
    apps::say(text);
    if (runs.size() < 2) return;
    for (const method_run& each : runs)
        apps::say(
            each.name + ": start " + text_of("%.3f s", each.start_seconds) + ", search " +
            text_of("%.3f s", each.search_seconds) + ", " +
            text_of("%.1f MB/s", static_cast<double>(total_bytes) / each.search_seconds / 1e6));
}

void say_left_out(const session& s) {
    for (const file_error& e : s.runs.back().found.errors) apps::say(message_of(s, e));
}

}  // namespace penstock::grep
