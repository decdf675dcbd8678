// penstock-grep: counts the words of a dictionary in files, or prints the lines that hold them. The
// texts below say what it promises.
#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "common/device_memory.hpp"
#include "common/files.hpp"
#include "common/message.hpp"
#include "common/methods.hpp"
#include "common/program.hpp"
#include "common/report_text.hpp"
#include "common/threads.hpp"
#include "inputs.hpp"
#include "line_search.hpp"
#include "search.hpp"

namespace penstock::grep {

namespace {

using apps::text_of;
using apps::with_commas;
using nlohmann::json;

constexpr const char* about =
    "Counts how often each word of a dictionary occurs in each file, with kernels that open and "
    "read the files themselves.\n"
    "It counts as grep -o -w -F -- WORD FILE | wc -l does in the C locale. Prints word, path and "
    "count, separated by tabs, one line\n"
    "for each count that is not zero, sorted by path and then word. A backslash, tab or line end "
    "in a path is printed as\n"
    "\\\\, \\t or \\n; --null prints it as it is.\n"
    "\n"
    "With --lines it prints each line with a word in it, as grep -a -n -H -w -F -f WORDS FILE... "
    "does: path, number of the\n"
    "line and the line, separated by colons, by path and number.\n";

constexpr const char* details =
    "\nPATH may be a file or a directory; directories are searched with all below them, links "
    "inside are not followed, and\n"
    "only regular files are read. Each path counts once. The dictionary has one word per line, at "
    "most 255 bytes each.\n"
    "As in grep, matches of a file are no longer counted from the piece on in which a zero byte is "
    "read; --lines takes\n"
    "every file for text.\n"
    "Kernels may open what the PATHs name and nothing else; PENSTOCK_ROOTS is not used. With "
    "--lines "
    "they also append\n"
    "what they print to a passing file, in a folder of its own in the directory TMPDIR (/tmp); its "
    "parts are copied to\n"
    "the output in order.\n"
    "\n"
    "A PATH or dictionary that cannot be read ends the program before it prints anything. A file "
    "below a directory that\n"
    "cannot be read, or a file that changes while it is read, costs one line on standard error and "
    "its counts or lines;\n"
    "the rest is printed and the exit status is 1. With --out, the file appears whole or not at "
    "all.\n"
    "\n"
    "Exit status: 0 done, also if nothing was found; 1 failed; 2 wrong usage.\n";

// What a method did. It starts by making the runtime and placing the dictionary.
struct method_run : apps::method_report {
    double search_seconds = 0;
    std::uint64_t groups = 0;
    std::uint64_t piece_bytes = 0;
    counted_files found;
    printed_lines printed;
};

// A run: what was asked for, what was read and found, and how long each part took.
struct session final : apps::command {
    session() : command({"", about, details, apps::command_kind::main}) {}
    void add_options(apps::option_list& add) override;
    status check() override;
    status open() override;
    status run() override;
    [[nodiscard]] json json_of() const override;
    void say_summary() const override;
    [[nodiscard]] bool complete() const override {
        return files.complaints.empty() && runs.back().found.errors.empty();
    }

    [[nodiscard]] std::string difference(const method_run& a, const method_run& b) const;
    [[nodiscard]] std::string message_of(const file_error& e) const;
    [[nodiscard]] status check_output() const;
    status write_lines();
    status print_lines(search_method& ready, method_run& run);

    // What was asked for.
    std::string dictionary_path, out;
    std::vector<std::string> paths;
    std::string method = "penstock";
    bool compare = false, strict = false, null_ends = false, prints_lines = false;
    std::uint64_t record_bytes = 0, piece_bytes = 0;  // 0: automatic

    dictionary words;
    file_list files;
    std::uint64_t total_bytes = 0;
    apps::output_file lines;
    std::vector<method_run> runs;  // the last one is the one whose lines are printed
    double dictionary_seconds = 0, find_seconds = 0, output_seconds = 0;
};

status prepare_penstock(session& s, method_run& run, search_method& out) {
    options& o = s.settings;
    // Every file is read once. On CPU threads a cache beyond what is in flight costs the first
    // touch of its memory, which takes longer than counting does; on a GPU it costs nothing.
    constexpr std::uint64_t least_cache = std::uint64_t{64} << 20, pages_of_a_thread = 32;
    if (!o.cache_bytes && !apps::will_use_gpu(o))
        o.cache_bytes = std::max(
            least_cache, apps::thread_count(o.worker_threads) * pages_of_a_thread * o.page_bytes);
    // A kernel opens thousands of files at a time, and the host's calls for each are all that it
    // waits for. On CPU threads those need the processors.
    constexpr std::uint32_t most_service_threads = 16;
    if (!o.service_threads && apps::will_use_gpu(o))
        o.service_threads =
            std::clamp(std::thread::hardware_concurrency(), 1u, most_service_threads);
    // The files that were named may be opened wherever they lie; below the directories, everything
    // may.
    o.roots = s.files.roots;
    o.writable = s.prints_lines;
    if (status failed = apps::start_runtime(o, run); !failed) return failed;
    for (const std::string& path : s.files.named)
        if (const int code = run.rt->allow(path); code != 0)
            return {code,
                    apps::shown(path) + ": " + error_text(code) + "; name a file that can be read"};
    out = make_penstock_search(*run.rt);
    return {};
}

status prepare_cpu(session& s, method_run&, search_method& out) {
    out = make_cpu_search(apps::thread_count(s.settings.worker_threads));
    return {};
}

status prepare_cuda(session& s, method_run& run, search_method& out) {
    run.backend = "gpu";
    return make_cuda_search(s.settings.device, apps::thread_count(s.settings.worker_threads),
                            s.files, out);
}

using grep_method = apps::method<status(session&, method_run&, search_method&)>;
constexpr grep_method methods[] = {
    {"penstock", apps::runs_on::anywhere, prepare_penstock},
    {"cpu", apps::runs_on::cpu, prepare_cpu},
    {"cuda", apps::runs_on::gpu, prepare_cuda},
};

void session::add_options(apps::option_list& add) {
    add.text("--dict", dictionary_path, "File with the words to count, one per line", "WORDS")
        .required();
    add.text("--out", out, "Write the lines to this file instead of standard output", "FILE");
    add.operands("PATH", paths, "Files and directories to search");
    add.choice("--method", method, apps::names_of(methods), "method",
               "penstock, or a baseline: cpu (all cores, plain reads), cuda (GPU, host reads)",
               "NAME");
    add.flag("--compare", compare,
             "Run every method there is, whatever --method says, after a run of cpu that warms the "
             "OS page cache; check that all agree and report their times");
    add.flag("--strict", strict,
             "Make a repeated word in the dictionary an error; else it is a warning");
    add.flag("--lines", prints_lines,
             "Print each line with a word in it, as PATH:NUMBER:LINE, in place of counts");
    add.flag("--null", null_ends,
             "End every word, path and count by a zero byte, and print paths as they are; with "
             "--lines, end the path by a zero byte in place of a colon");
    add.size("--result-buffer", record_bytes, UINT64_MAX, "1MiB",
             "Room for counts between two launches; at least one per word is made", "SIZE");
    add.size("--piece", piece_bytes, 1 << 20, "1MiB",
             "Size of the pieces in which groups share a file; at most 1MiB", "SIZE");
}

status session::check() {
    if (!prints_lines) return {};
    if (compare) return {-EINVAL, "--compare: compares counts; leave it out, or --lines"};
    if (method == "cuda") return {-EINVAL, "--method: 'cuda' prints no lines; use penstock or cpu"};
    if (record_bytes != 0)
        return {-EINVAL, "--result-buffer: lines need none; leave it out, or --lines"};
    return {};
}

status session::open() {
    apps::stopwatch watch;
    if (status failed = load_dictionary(dictionary_path, strict, words); !failed) return failed;
    dictionary_seconds = watch.lap();
    if (status failed = find_files(paths, files); !failed) return failed;
    for (const input_file& file : files.files) total_bytes += file.bytes;
    find_seconds = watch.lap();
    if (status failed = check_output(); !failed) return failed;
    if (status s = apps::check_not_report(common.json, out); !s) return s;
    // With --json the object is all that standard output gets.
    return lines.open(prints_lines && common.json && out.empty() ? "/dev/null" : out);
}

// Files to search may be many, and it is known where they lie.
status session::check_output() const {
    if (status failed = apps::check_not_input(out, {dictionary_path}); !failed) return failed;
    const std::optional<apps::file_place> place = apps::place_of(out);
    if (!place || !place->name.empty()) return {};
    for (const input_file& file : files.files)
        if (file.version.device == place->device && file.version.inode == place->inode)
            return apps::is_input(out, file.path);
    return {};
}

status session::run() {
    const auto by = [this](const grep_method& chosen, method_run& run) -> status {
        apps::stopwatch watch;
        search_method ready;
        if (status failed = chosen.run(*this, run, ready); !failed) return failed;
        if (prints_lines) {
            run.start_seconds = watch.lap();
            const status ended = print_lines(ready, run);
            run.search_seconds = watch.lap();
            return ended;
        }
        file_search search(ready, words, files);
        if (status failed = search.prepare(record_bytes); !failed) return failed;
        run.start_seconds = watch.lap();
        run.groups = search.groups();
        run.piece_bytes = piece_bytes != 0
                              ? piece_bytes
                              : choose_piece_bytes(total_bytes, run.groups, ready.least_piece);
        const std::uint64_t opens_before = run.rt != nullptr ? run.rt->stats().opens : 0;
        const apps::progress bar(
            "searching", files.files.size(), [&] { return run.rt->stats().opens - opens_before; },
            run.rt != nullptr && !common.quiet);
        status ended = search.count(run.piece_bytes, run.found);
        run.search_seconds = watch.lap();
        return ended;
    };
    const auto differ = [this](const method_run& a, const method_run& b) {
        return difference(a, b);
    };
    const status ended = compare ? apps::compare_methods(methods, runs, by, differ)
                                 : apps::run_method(apps::method_named(methods, method), runs, by);
    if (!ended.ok()) return ended;
    apps::say(words.warning);
    for (const std::string& complaint : files.complaints) apps::say(complaint);
    for (const file_error& e : runs.back().found.errors) apps::say(message_of(e));
    apps::stopwatch watch;
    if (!out.empty() || !common.json) {
        if (!prints_lines)
            if (status failed = write_lines(); !failed) return failed;
        if (status failed = lines.commit(); !failed) return failed;
    }
    output_seconds = watch.lap();
    return {};
}

// Writes the lines too: they may be more than memory holds.
status session::print_lines(search_method& ready, method_run& run) {
    if (run.rt == nullptr) {
        const status ended = print_lines_by_host(words, files, null_ends, lines, run.printed);
        run.found.errors = run.printed.errors;
        return ended;
    }
    line_search search(*run.rt, ready, words, files, null_ends);
    if (status failed = search.prepare(); !failed) return failed;
    run.groups = search.groups();
    run.piece_bytes = piece_bytes != 0
                          ? piece_bytes
                          : choose_piece_bytes(total_bytes, run.groups, ready.least_piece);
    const status ended = search.print(run.piece_bytes, lines, run.printed);
    run.found.errors = run.printed.errors;
    run.found.jobs = run.printed.jobs;
    run.found.launches = run.printed.launches;
    run.found.launch_seconds = run.printed.launch_seconds;
    run.found.join_seconds = run.printed.join_seconds;
    return ended;
}

// The first count in which two runs differ, in words.
std::string session::difference(const method_run& a, const method_run& b) const {
    const auto &x = a.found.counts, &y = b.found.counts;
    const auto [i, j] = std::mismatch(x.begin(), x.end(), y.begin(), y.end());
    if (i == x.end() && j == y.end()) return {};
    const auto key = [](const word_count& c) { return std::pair(c.file, c.word); };
    const bool in_x = i != x.end() && (j == y.end() || key(*i) <= key(*j));
    const bool in_y = j != y.end() && (i == x.end() || key(*j) <= key(*i));
    const word_count& c = in_x ? *i : *j;
    return "the methods disagree on " + apps::shown(words.words[c.word]) + " in " +
           apps::shown(files.files[c.file].path) + ": " + a.name + " counted " +
           std::to_string(in_x ? i->count : 0) + ", " + b.name + " " +
           std::to_string(in_y ? j->count : 0);
}

std::string session::message_of(const file_error& e) const {
    const std::string left_out =
        prints_lines ? "its lines are left out" : "its counts are left out";
    return apps::shown(files.files[e.file].path) + ": " + error_text(e.code) + "; " +
           (e.code == -ESTALE ? "it changed while it was read: run again; " : "") +
           (e.code == -EFBIG && method == "cuda"
                ? "matches that overlap go on for too long: use --method penstock; "
                : "") +
           left_out;
}

// word<TAB>path<TAB>count, one line per count, with field_of() the path; a word may have tabs, so
// lines are taken apart from their end. With --null the path as it is, and a zero byte behind every
// field in place of tabs and line ends.
status session::write_lines() {
    constexpr std::size_t full = 1 << 20;
    const char between = null_ends ? '\0' : '\t', end = null_ends ? '\0' : '\n';
    std::string text;
    for (const word_count& c : runs.back().found.counts) {
        const std::string& path = files.files[c.file].path;
        text.append(words.words[c.word]).append(1, between);
        text.append(null_ends ? path : apps::field_of(path)).append(1, between);
        text.append(std::to_string(c.count)).append(1, end);
        if (text.size() < full) continue;
        if (status failed = lines.write(text.data(), text.size()); !failed) return failed;
        text.clear();
    }
    return lines.write(text.data(), text.size());
}

std::uint64_t matches_of(const method_run& run) {
    std::uint64_t sum = 0;
    for (const word_count& c : run.found.counts) sum += c.count;
    return sum;
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
    if (prints_lines) {
        out.erase("matches");
        out.erase("binary_files");
        out["lines"] = run.printed.lines;
        out["output_bytes"] = run.printed.bytes;
    }
    for (const file_error& e : run.found.errors) out["errors"].push_back(message_of(e));
    const auto bytes = static_cast<double>(total_bytes);
    for (const method_run& each : runs)
        out["methods"].push_back(
            {{"method", each.name},
             {"start_seconds", each.start_seconds},
             {"search_seconds", each.search_seconds},
             {"phases",
              {{"launch", each.found.launch_seconds},
               {"collect", each.found.collect_seconds},
               {"join", each.found.join_seconds}}},
             {"bytes_per_second", each.search_seconds > 0 ? bytes / each.search_seconds : 0.0},
             {"groups", each.groups},
             {"piece_bytes", each.piece_bytes},
             {"pieces", each.found.jobs},
             {"launches", each.found.launches}});
    return out;
}

std::string counted(std::uint64_t number, const std::string& single, const std::string& many) {
    return with_commas(number) + " " + (number == 1 ? single : many);
}

void session::say_summary() const {
    const method_run& run = runs.back();
    apps::say_notes(run);
    const std::string found = prints_lines ? counted(run.printed.lines, "line", "lines")
                                           : counted(matches_of(run), "match", "matches") + " in " +
                                                 counted(run.found.counts.size(), "line", "lines");
    const std::string binary =
        prints_lines ? "" : " (" + with_commas(run.found.binary_files) + " binary)";
    std::string text = counted(files.files.size(), "file", "files") + binary + ", " +
                       counted(total_bytes, "byte", "bytes") + ", " +
                       counted(words.words.size(), "word", "words") + ": " + found + "; " +
                       run.name + " searched " + text_of("%.3f s", run.search_seconds);
    if (run.rt != nullptr) {
        const statistics figures = run.rt->stats();
        text += " on " + run.backend + ", " + with_commas(figures.hits) + " hits, " +
                with_commas(figures.misses) + " misses";
    }
    apps::say(text);
    if (runs.size() < 2) return;
    for (const method_run& each : runs)
        apps::say(
            each.name + ": start " + text_of("%.3f s", each.start_seconds) + ", search " +
            text_of("%.3f s", each.search_seconds) + ", " +
            text_of("%.1f MB/s", static_cast<double>(total_bytes) / each.search_seconds / 1e6));
}

}  // namespace

}  // namespace penstock::grep

int main(int argc, char** argv) {
    return penstock::apps::run_program<penstock::grep::session>(
        {"penstock-grep", "", "search fewer files at a time"}, argc, argv);
}
