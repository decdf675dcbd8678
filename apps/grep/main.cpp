// penstock-grep: counts the words of a dictionary in files. The texts below say what it promises.
#include <algorithm>
#include <cerrno>
#include <thread>

#include "common/message.hpp"
#include "common/methods.hpp"
#include "search.hpp"
#include "session.hpp"

namespace penstock::grep {

namespace {

constexpr const char* about =
    "Counts how often each word of a dictionary occurs in each file, as grep -o -w -F -- WORD FILE "
    "| wc -l does in the C\n"
    "locale, with kernels that open and read the files themselves. Prints word, path and count, "
    "separated by tabs, one line\n"
    "for each count that is not zero, sorted by path and then word. A backslash, tab or line end "
    "in a path is printed as\n"
    "\\\\, \\t or \\n; --null prints it as it is.\n";

constexpr const char* details =
    "\nPATH may be a file or a directory; directories are searched with all below them, links "
    "inside are not followed, and\n"
    "only regular files are read. Each path counts once. The dictionary has one word per line, at "
    "most 255 bytes each.\n"
    "As in grep, matches of a file are no longer counted from the piece on in which a zero byte is "
    "read.\n"
    "Kernels may open what the PATHs name and nothing else; PENSTOCK_ROOTS is not used.\n"
    "\n"
    "A PATH or dictionary that cannot be read ends the program before it prints anything. A file "
    "below a directory that\n"
    "cannot be read, or a file that changes while it is read, costs one line on standard error and "
    "its counts; the rest is\n"
    "printed and the exit status is 1. With --out, the file appears whole or not at all.\n"
    "\n"
    "Exit status: 0 done, also if nothing was found; 1 failed; 2 wrong usage.\n";

std::uint32_t thread_count(const options& o) {
    return o.worker_threads.value_or(std::max(1u, std::thread::hardware_concurrency()));
}

// Every file is read once. On CPU threads a cache beyond what is in flight costs the first touch of
// its memory, which takes longer than counting does; on a GPU it costs nothing.
void choose_cache(options& o) {
    constexpr std::uint64_t least = std::uint64_t{64} << 20, pages_of_a_thread = 32;
    if (o.where == backend::cpu && !o.cache_bytes)
        o.cache_bytes = std::max(least, thread_count(o) * pages_of_a_thread * o.page_bytes);
}

// A kernel opens thousands of files at a time, and the host's calls for each are all that it waits
// for. On CPU threads those need the processors.
void choose_service_threads(options& o) {
    constexpr std::uint32_t most = 16;
    if (!o.service_threads && will_use_gpu(o))
        o.service_threads = std::clamp(std::thread::hardware_concurrency(), 1u, most);
}

// The files that were named may be opened wherever they lie; below the directories, everything may.
status start_runtime(session& s, method_run& run) {
    choose_cache(s.settings);
    choose_service_threads(s.settings);
    s.settings.roots = s.files.roots;
    if (status failed = apps::start_runtime(s.settings, run); !failed) return failed;
    for (const std::string& path : s.files.named)
        if (const int code = run.rt->allow(path); code != 0)
            return {code,
                    apps::shown(path) + ": " + error_text(code) + "; name a file that can be read"};
    return {};
}

// A method that is ready to search. A GPU has thousands of groups, so there a single file of some
// megabytes is cut finely.
struct prepared_method {
    std::unique_ptr<search_method> method;
    search_limits limits;
    std::uint64_t least_piece = 256 << 10;

    void cut_finely() { least_piece = 16 << 10; }
};

status prepare_penstock(session& s, method_run& run, prepared_method& out) {
    if (status failed = start_runtime(s, run); !failed) return failed;
    out.method = make_penstock_search(*run.rt);
    out.limits = penstock_limits(*run.rt);
    if (run.rt->where() == backend::gpu) out.cut_finely();
    return {};
}

status prepare_cpu(session& s, method_run&, prepared_method& out) {
    out.method = make_cpu_search();
    out.limits = cpu_limits(thread_count(s.settings));
    return {};
}

status prepare_cuda(session& s, method_run& run, prepared_method& out) {
    run.backend = "gpu";
    out.cut_finely();
    return make_cuda_search(s.settings.device, thread_count(s.settings), s.files, out.method,
                            out.limits);
}

using grep_method = apps::method<status(session&, method_run&, prepared_method&)>;
constexpr grep_method methods[] = {
    {"penstock", apps::runs_on::anywhere, prepare_penstock},
    {"cpu", apps::runs_on::cpu, prepare_cpu},
    {"cuda", apps::runs_on::gpu, prepare_cuda},
};

status search(session& s, const grep_method& by, method_run& run) {
    stopwatch watch;
    prepared_method ready;
    if (status failed = by.run(s, run, ready); !failed) return failed;
    ready.limits.record_bytes = s.record_bytes;
    if (status failed = ready.method->prepare(s.words, s.files, ready.limits); !failed)
        return failed;
    run.start_seconds = watch.lap();
    run.groups = ready.method->groups();
    run.piece_bytes = s.piece_bytes != 0
                          ? s.piece_bytes
                          : choose_piece_bytes(s.total_bytes, run.groups, ready.least_piece);
    const std::uint64_t opens_before = run.rt != nullptr ? run.rt->stats().opens : 0;
    const apps::progress bar(
        "searching", s.files.files.size(), [&] { return run.rt->stats().opens - opens_before; },
        run.rt != nullptr && !s.common.quiet);
    status ended = count_files(*ready.method, s.words, s.files, run.piece_bytes, run.found);
    run.search_seconds = watch.lap();
    return ended;
}

std::string place_of(const session& s, const word_count& c) {
    return apps::shown(s.words.words[c.word]) + " in " + apps::shown(s.files.files[c.file].path);
}

// The first count in which two runs differ, in words.
std::string difference(const session& s, const method_run& a, const method_run& b) {
    const auto& x = a.found.counts;
    const auto& y = b.found.counts;
    const auto key = [](const word_count& c) { return std::pair(c.file, c.word); };
    for (std::size_t i = 0, j = 0; i < x.size() || j < y.size(); ++i, ++j) {
        if (i < x.size() && j < y.size() && x[i] == y[j]) continue;
        const bool in_x = i < x.size() && (j == y.size() || key(x[i]) <= key(y[j]));
        const bool in_y = j < y.size() && (i == x.size() || key(y[j]) <= key(x[i]));
        return "the methods disagree on " + place_of(s, in_x ? x[i] : y[j]) + ": " + a.name +
               " counted " + std::to_string(in_x ? x[i].count : 0) + ", " + b.name + " " +
               std::to_string(in_y ? y[j].count : 0);
    }
    return {};
}

}  // namespace

session::session() : command({"", about, details, apps::command_kind::main}) {}

void session::add_options(apps::option_list& add) {
    add.text("--dict", dictionary_path, "File with the words to count, one per line", "WORDS")
        .required();
    add.text("--out", out, "Write the lines to this file instead of standard output", "FILE");
    add.operands("PATH", paths, "Files and directories to search");
    add.choice("--method", method, apps::names_of(methods), "method",
               "penstock, or a baseline: cpu (all cores, plain reads), cuda (GPU, host reads)",
               "NAME");
    add.flag("--compare", compare,
             "Run every method there is, after a run of cpu that warms the OS page cache; "
             "check that all agree and report their times");
    add.flag("--strict", strict,
             "Make a repeated word in the dictionary an error; else it is a warning");
    add.flag("--null", null_ends,
             "End every word, path and count by a zero byte, and print paths as they are");
    add.size("--result-buffer", record_bytes, UINT64_MAX, "1MiB",
             "Room for counts between two launches; at least one per word is made", "SIZE");
    add.size("--piece", piece_bytes, 1 << 20, "1MiB",
             "Size of the pieces in which groups share a file; at most 1MiB", "SIZE");
}

status session::open() {
    stopwatch watch;
    if (status failed = load_dictionary(dictionary_path, strict, words); !failed) return failed;
    dictionary_seconds = watch.lap();
    if (status failed = find_files(paths, files); !failed) return failed;
    for (const input_file& file : files.files) total_bytes += file.bytes;
    find_seconds = watch.lap();
    return lines.open(out);
}

status session::run() {
    const auto by = [this](const grep_method& chosen, method_run& run) {
        return search(*this, chosen, run);
    };
    const auto differ = [this](const method_run& first, const method_run& last) {
        return difference(*this, first, last);
    };
    if (status failed = compare ? apps::compare_methods(methods, runs, by, differ)
                                : apps::run_method(apps::method_named(methods, method), runs, by);
        !failed)
        return failed;
    apps::say(words.warning);
    for (const std::string& complaint : files.complaints) apps::say(complaint);
    say_left_out(*this);
    stopwatch watch;
    if (!out.empty() || !common.json) {
        if (status failed = write_lines(*this, lines); !failed) return failed;
        if (status failed = lines.commit(); !failed) return failed;
    }
    output_seconds = watch.lap();
    return {};
}

bool session::complete() const {
    return files.complaints.empty() && runs.back().found.errors.empty();
}

}  // namespace penstock::grep

int main(int argc, char** argv) {
    return penstock::apps::run_program<penstock::grep::session>(
        {"penstock-grep", "", "search fewer files at a time"}, argc, argv);
}
