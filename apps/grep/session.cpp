#include "report.hpp"

#include <algorithm>
#include <cerrno>
#include <thread>

#include "common/message.hpp"
#include "search.hpp"

namespace penstock::grep {

namespace {

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
status start_runtime(session& s) {
    if (s.rt != nullptr) return {};
    choose_cache(s.asked.settings);
    choose_service_threads(s.asked.settings);
    s.asked.settings.roots = s.files.roots;
    if (status failed = apps::create_runtime(s.asked.settings, s.notes, s.rt); !failed)
        return failed;
    for (const std::string& path : s.files.named)
        if (const int code = s.rt->allow(path); code != 0)
            return {code,
                    apps::shown(path) + ": " + error_text(code) + "; name a file that can be read"};
    return {};
}

struct prepared_method {
    std::unique_ptr<search_method> method;
    search_limits limits;
    std::uint64_t least_piece = 256 << 10;
};

// A GPU has thousands of groups, so there a single file of some megabytes is cut finely.
constexpr std::uint64_t least_piece_on_gpu = 16 << 10;

status prepare(session& s, const std::string& name, prepared_method& out) {
    const std::uint32_t threads = thread_count(s.asked.settings);
    if (name == "cpu") {
        out.method = make_cpu_search();
        out.limits = cpu_limits(threads);
    } else if (name == "cuda") {
        if (status failed =
                make_cuda_search(s.asked.settings.device, threads, s.files, out.method, out.limits);
            !failed)
            return failed;
        out.least_piece = least_piece_on_gpu;
    } else {
        if (status failed = start_runtime(s); !failed) return failed;
        out.method = make_penstock_search(*s.rt);
        out.limits = penstock_limits(*s.rt);
        if (s.rt->where() == backend::gpu) out.least_piece = least_piece_on_gpu;
    }
    out.limits.record_bytes = s.asked.record_bytes;
    return out.method->prepare(s.words, s.files, out.limits);
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
        return place_of(s, in_x ? x[i] : y[j]) + ": " + a.name + " counted " +
               std::to_string(in_x ? x[i].count : 0) + ", " + b.name + " " +
               std::to_string(in_y ? y[j].count : 0);
    }
    return {};
}

}  // namespace

status run_method(session& s, const std::string& name) {
    stopwatch watch;
    prepared_method ready;
    if (status failed = prepare(s, name, ready); !failed) return failed;
    method_run run;
    run.name = name;
    run.start_seconds = watch.lap();
    run.groups = ready.method->groups();
    run.piece_bytes = s.asked.piece_bytes != 0
                          ? s.asked.piece_bytes
                          : choose_piece_bytes(s.total_bytes, run.groups, ready.least_piece);
    status ended;
    {
        const bool counts_opens = name == "penstock";
        const std::uint64_t opens_before = counts_opens ? s.rt->stats().opens : 0;
        const apps::progress bar(
            "searching", s.files.files.size(), [&] { return s.rt->stats().opens - opens_before; },
            counts_opens && !s.asked.common.quiet);
        ended = count_files(*ready.method, s.words, s.files, run.piece_bytes, run.found);
    }
    run.search_seconds = watch.lap();
    s.runs.push_back(std::move(run));
    return ended;
}

status compare_methods(session& s) {
    if (status failed = run_method(s, "cpu"); !failed) return failed;
    s.runs.clear();  // that one only warmed the OS page cache
    if (status failed = run_method(s, "cpu"); !failed) return failed;
    const status cuda = run_method(s, "cuda");
    if (!cuda && cuda.code != -ENODEV) return cuda;
    if (status failed = run_method(s, "penstock"); !failed) return failed;
    for (const method_run& run : s.runs) {
        const std::string text = difference(s, s.runs.front(), run);
        if (!text.empty())
            return {-EILSEQ, "the methods disagree on " + text + "; please report this"};
    }
    return {};
}

}  // namespace penstock::grep
