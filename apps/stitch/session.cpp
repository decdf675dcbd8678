#include "report.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "common/message.hpp"
#include "common/stopwatch.hpp"
#include "common/threads.hpp"

namespace penstock::stitch {

namespace {

// The page cache of the runtime is not used, and its memory is wanted for regions.
constexpr std::uint64_t cache_bytes = 16u << 20, table_bytes = 4u << 20, staging_bytes = 4u << 20;

bool only_cpu(const run_request& asked) {
    return !asked.all && std::all_of(asked.methods.begin(), asked.methods.end(),
                                     [](const std::string& name) { return name == "cpu"; });
}

status start_processors(session& s) {
    const std::uint32_t threads = apps::thread_count(s.asked.settings.worker_threads);
    s.job.threads = s.job.all_threads = threads;
    if (only_cpu(s.asked.run)) return {};
    apps::stopwatch watch;
    options settings = s.asked.settings;
    settings.writable = true;
    if (!settings.cache_bytes)
        settings.cache_bytes = std::max(cache_bytes, 8 * settings.page_bytes);
    settings.table_bytes = std::min(settings.table_bytes, table_bytes);
    if (!settings.staging_bytes)
        settings.staging_bytes = std::max(staging_bytes, 4 * settings.page_bytes);
    settings.worker_threads = 1;
    if (status failed = make_runtime(s, std::move(settings)); !failed) return failed;
    s.job.rt = s.rt.get();
    if (s.rt->where() == backend::gpu) {
        s.left_maker = make_gpu_maker(s.rt->settings().device, threads);
    } else {
        const std::uint32_t half = std::max(threads / 2, 1u);
        s.left_maker = make_thread_maker(half, threads);
        s.job.threads = std::max(threads - half, 1u);
    }
    s.job.left_maker = s.left_maker.get();
    s.start_seconds = watch.lap();
    return {};
}

// Which columns each has, and which pieces these are.
status divide(session& s) {
    stitch_job& job = s.job;
    apps::stopwatch watch;
    if (status failed = owned_pieces(job.tiles, job.all); !failed) return failed;
    s.layout_seconds = watch.lap();
    double share = s.asked.run.split.value_or(0);
    if (!s.asked.run.split.has_value() && job.left_maker != nullptr) {
        s.measured.emplace();
        if (status failed = measure_balance(job, *s.measured); !failed) return failed;
        share = s.measured->share;
    }
    job.split = static_cast<std::uint32_t>(std::lround(share * job.tiles.image_width));
    job.left = within(job.all, 0, job.split);
    job.right = within(job.all, job.split, job.tiles.image_width);
    return {};
}

using method_function = status (*)(const stitch_job&, image_file&, phases&);

method_function function_of(const std::string& name) {
    return name == "penstock"  ? with_penstock
           : name == "private" ? with_private
           : name == "managed" ? with_managed
                               : with_cpu;
}

// What is left out is said.
void choose_all(session& s) {
    std::vector<std::string>& names = s.asked.run.methods;
    names = {"cpu"};
    if (const status can = check_managed(s.job); can.ok()) names.push_back("managed");
    else s.notes.push_back("left out: " + can.message);
    names.insert(names.end(), {"private", "penstock"});
}

status run_method(session& s, const std::string& name, image_file& image) {
    method_run& out = s.methods.emplace_back();
    out.name = name;
    for (std::uint32_t i = 0; i < s.asked.run.repetitions; ++i) {
        if (status failed = image.clear(); !failed) return failed;
        phases took;
        if (status failed = function_of(name)(s.job, image, took); !failed) return failed;
        if (was_interrupted()) return {-ECANCELED, "interrupted; nothing was written"};
        out.runs.push_back(took);
        std::uint64_t hash = 0;
        if (status failed = image.hash(s.job.all_threads, hash); !failed) return failed;
        if (s.methods.size() == 1 && i == 0) s.hash = hash;
        if (hash != s.hash)
            return {-EILSEQ, "--method " + name + ": made another image than " +
                                 s.methods.front().name +
                                 "; nothing was written, please report this"};
    }
    return {};
}

}  // namespace

double method_run::median(double (*what)(const phases&)) const {
    std::vector<double> sorted;
    for (const phases& one : runs) sorted.push_back(what(one));
    if (sorted.empty()) return 0;
    std::sort(sorted.begin(), sorted.end());
    const std::size_t half = sorted.size() / 2;
    return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

double method_run::median_total() const {
    return median([](const phases& one) { return one.total(); });
}

status open_files(session& s) {
    const run_request& asked = s.asked.run;
    if (status failed = open_tiles(asked.tiles, s.job.tiles); !failed) return failed;
    if (status failed = apps::check_not_input(asked.out, {&s.job.tiles.file}); !failed)
        return failed;
    s.job.convolutions = asked.convolutions;
    s.job.whole_pages = asked.whole_pages;
    return s.image.open(asked.out, s.job.tiles.image_width, s.job.tiles.image_height);
}

status stitch(session& s) {
    if (status failed = start_processors(s); !failed) return failed;
    if (status failed = divide(s); !failed) return failed;
    if (s.asked.run.all) choose_all(s);
    for (const std::string& name : s.asked.run.methods) {
        if (name == "managed")
            if (status can = check_managed(s.job); !can) return can;
        if (status failed = run_method(s, name, s.image); !failed) return failed;
    }
    return {};
}

}  // namespace penstock::stitch
