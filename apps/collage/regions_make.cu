// One kernel that reads the library by plain pointers, from regions of its files.
#include "common/command_line.hpp"
#include "common/threads.hpp"
#include "methods.hpp"
#include "penstock/launch.hpp"
#include "penstock/region.hpp"

namespace penstock::collage {

namespace {

// Makes block number i of the order.
struct make_from_memory {
    collage_view view;
    plain_source source;
    bool rehearsal;  // the launch is only to put the kernel in place

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref&, std::uint64_t i) const {
        if (!rehearsal) make_one(g, source, view, i);
    }
};

using regions = std::vector<std::unique_ptr<file_region>>;

status map_library(const collage_job& job, runtime& rt, plain_source& source, regions& out) {
    region_options settings;
    settings.outside_writers = false;
    settings.placement = job.in_place ? region_placement::in_place : region_placement::filled;
    const std::vector<library_file> files = job.from.files();
    for (std::uint32_t i = 0; i < file_count; ++i) {
        std::unique_ptr<file_region>& made = out.emplace_back();
        if (status s = map_region(rt, files[i].path, 0, 0, protection::read, settings, made); !s)
            return s;
        if (made->size_bytes() < files[i].bytes) return block_error(job.from, -ESTALE);
        source.place(i, made->data());
    }
    source.place_entries(entries_at(job.from.header.slots));
    return {};
}

}  // namespace

status make_with_regions(const collage_job& job, picture& out, method_report& report) {
    apps::stopwatch watch;
    if (status s = apps::start_runtime(job.settings, report); !s) return s;
    runtime& rt = *report.rt;
    const bool on_gpu = rt.where() == backend::gpu;
    report.note = job.in_place ? "one kernel over regions in place" : "one kernel over regions";
    collage_sides sides(1);
    sides.front().memory =
        on_gpu ? apps::make_gpu_memory(rt.settings().device) : apps::make_host_memory();
    if (status s = place_collage(job, on_gpu, out, sides); !s) return s;
    make_from_memory function{sides.front().view, {}, true};
    report.blocks = function.view.blocks();
    launch_shape shape;
    shape.threads_per_block = threads_for(rt, report.blocks);
    const auto launch = [&]() -> status {
        const int code = penstock::launch<width::block>(rt, report.blocks, function, shape);
        return code == 0 ? status{} : apps::launch_error(rt, code);
    };
    if (status s = launch(); !s) return s;
    function.rehearsal = false;
    report.start_seconds = watch.lap();
    regions mapped;
    if (status s = map_library(job, rt, function.source, mapped); !s) return s;
    report.window_seconds = watch.lap();
    for (const auto& region : mapped) report.pages_read += (region->size_bytes() + 4095) / 4096;

    std::vector<collage_totals> totals;
    const auto compute = [&](const std::vector<std::uint32_t>&) { return launch(); };
    const auto fetch = [&] { return download_result(sides, out, totals); };
    if (status s = timed_collage(job, sides, report, compute, fetch); !s) return s;
    return note_counts(job, sides, totals, report);
}

}  // namespace penstock::collage
