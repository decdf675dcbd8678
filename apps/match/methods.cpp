// Memory of the device that compares, and the baseline on CPU threads.
#include "methods.hpp"

#include <algorithm>
#include <cerrno>

#include "common/message.hpp"
#include "common/process.hpp"
#include "common/threads.hpp"
#include "common/files.hpp"
#include "image_file.hpp"
#include "lane_compare.hpp"
#include "penstock/options.hpp"

namespace penstock::match {

namespace {

status copy_failed() {
    return {-EIO,
            "queries or results could not be copied to or from the device; is the GPU in order?"};
}

std::vector<database_view> places_of(const match_job& job, const std::vector<int>& fds,
                                     std::uint32_t tile_images, std::uint64_t& tiles) {
    std::vector<database_view> out;
    std::uint64_t images = 0;
    tiles = 0;
    for (const image_file& database : job.databases) {
        const int fd = out.size() < fds.size() ? fds[out.size()] : -1;
        out.push_back({fd, database.header.data_offset, database.header.stride_bytes(),
                       database.header.image_count, images, tiles});
        images += database.header.image_count;
        tiles += (database.header.image_count + tile_images - 1) / tile_images;
    }
    return out;
}

}  // namespace

std::uint64_t match_job::image_count() const {
    std::uint64_t images = 0;
    for (const image_file& database : databases) images += database.header.image_count;
    return images;
}

status match_memory::place(const match_job& job, const match_cut& cut,
                           const std::vector<int>& fds) {
    view_ = {};
    view_.query_count = job.queries.header.image_count;
    view_.tile_images = cut.tile_images;
    const std::vector<database_view> places =
        places_of(job, fds, cut.tile_images, view_.tile_count);
    view_.database_count = static_cast<std::uint32_t>(places.size());
    view_.floats = job.floats();
    view_.slab_floats = cut.slab_floats;
    view_.threshold = job.threshold;
    view_.whole = job.whole ? 1 : 0;
    const std::uint64_t units = (view_.query_count + cut.query_unit - 1) / cut.query_unit;
    const std::uint64_t groups =
        std::clamp<std::uint64_t>(cut.items_wanted / std::max<std::uint64_t>(view_.tile_count, 1),
                                  1, std::max<std::uint64_t>(units, 1));
    view_.group_queries = (units + groups - 1) / groups * cut.query_unit;
    view_.group_count =
        view_.group_queries == 0
            ? 1
            : static_cast<std::uint32_t>((view_.query_count + view_.group_queries - 1) /
                                         view_.group_queries);
    const std::uint64_t query_floats = view_.query_count * view_.floats;
    if (memory_ != nullptr && memory_->allocate(queries_, query_floats) &&
        memory_->place(view_.databases, places) &&
        memory_->allocate(view_.best, view_.query_count) && memory_->allocate(view_.totals, 1)) {
        view_.queries = queries_;
        return {};
    }
    return {
        -ENOMEM,
        "the queries need " + format_size(query_floats * sizeof(float)) +
            " of memory that is not free; search for fewer at a time, or use a smaller --cache"};
}

status match_memory::reset() {
    const std::vector<std::uint64_t> none(view_.query_count, no_match);
    const match_totals zero{};
    const bool copied =
        memory_->upload(view_.best, none.data(), none.size() * sizeof(std::uint64_t)) &&
        memory_->upload(view_.totals, &zero, sizeof zero);
    return copied ? status{} : copy_failed();
}

status match_memory::upload_queries(const std::vector<float>& queries) {
    return memory_->upload(queries_, queries.data(), queries.size() * sizeof(float))
               ? status{}
               : copy_failed();
}

status match_memory::download(match_report& report) {
    report.best.resize(view_.query_count);
    const bool copied = memory_->download(report.best.data(), view_.best,
                                          report.best.size() * sizeof(std::uint64_t)) &&
                        memory_->download(&report.totals, view_.totals, sizeof report.totals);
    return copied ? status{} : copy_failed();
}

status read_queries(const match_job& job, std::vector<float>& out) {
    const image_header& h = job.queries.header;
    const std::uint32_t floats = job.floats();
    out.resize(h.image_count * floats);
    apps::unique_fd fd;
    if (status s = apps::open_to_read(job.queries.path, "a file of images", fd); !s) return s;
    status ended;
    if (h.stride_floats == floats)
        ended = apps::read_exactly(job.queries.path, fd, out.data(), h.data_bytes(), h.data_offset);
    else
        for (std::uint64_t i = 0; i < h.image_count && ended.ok(); ++i)
            ended =
                apps::read_exactly(job.queries.path, fd, out.data() + i * floats,
                                   floats * sizeof(float), h.data_offset + i * h.stride_bytes());
    return ended;
}

status match_error(const match_job& job, std::uint32_t database, int code) {
    const image_file& file =
        database < job.databases.size() ? job.databases[database] : job.queries;
    if (code == -ESTALE)
        return {code, apps::shown(file.path) +
                          ": a file changed while it was read; "
                          "run again when no program writes to it"};
    if (code == -ENOBUFS)
        return {code, apps::shown(file.path) +
                          ": all pages of the cache are in use; use a larger --cache"};
    return {code, apps::shown(file.path) + ": " + error_text(code)};
}

// Baseline: all cores, vector code, memory maps.

status match_with_cpu(const match_job& job, match_report& report) {
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

    return apps::repeat_timed(1, report, [&]() -> status {
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
        return memory.download(report);
    });
}

}  // namespace penstock::match
