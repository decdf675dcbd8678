// Baseline: all cores, vector code, memory maps.
#include <cerrno>

#include "common/progress.hpp"
#include "common/stopwatch.hpp"
#include "common/thread_scratch.hpp"
#include "common/threads.hpp"
#include "lane_compare.hpp"
#include "mapped_images.hpp"
#include "match_memory.hpp"
#include "methods.hpp"

namespace penstock::match {

status match_with_cpu(const match_job& job, method_report& report) {
    apps::stopwatch watch;
    const std::uint32_t threads = apps::thread_count(job.settings.worker_threads);
    mapped_images mapped;
    if (status s = mapped.open(job.databases); !s) return s;
    match_memory memory(apps::make_host_memory());
    const match_cut cut{lane_images, lane_queries, std::uint64_t{16} * threads, job.floats()};
    if (status s = memory.place(job, cut, {}); !s) return s;
    if (status s = memory.reset(); !s) return s;
    apps::thread_scratch scratch;
    if (status s = scratch.allocate(threads, lane_scratch_floats(job.floats())); !s) return s;
    report.note = std::to_string(threads) + " threads, " + chosen_kernel().name;
    report.start_seconds = watch.lap();

    const double cpu_before = apps::cpu_seconds();
    std::vector<float> queries;
    if (status s = read_queries(job, queries); !s) return s;
    match_view view = memory.view();
    view.queries = queries.data();
    {
        const apps::progress bar(
            "tiles", view.item_count(),
            [&] { return atomic_load<order::relaxed>(&view.totals->items_taken); }, !job.quiet);
        apps::on_threads(threads, [&](std::uint32_t thread) {
            for (std::uint64_t item = take_item(view);
                 item < view.item_count() && !was_interrupted(); item = take_item(view))
                compare_on_lane(mapped, view, place_of(view, item), scratch.pointers()[thread]);
        });
    }
    const status copied = memory.download(report);
    report.match_seconds = watch.lap();
    report.cpu_seconds = apps::cpu_seconds() - cpu_before;
    return copied;
}

}  // namespace penstock::match
