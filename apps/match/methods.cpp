// Memory of the device that compares, and the baseline on CPU threads.
#include "methods.hpp"

#include <algorithm>
#include <cerrno>

#include "common/message.hpp"
#include "common/files.hpp"
#include "common/threads.hpp"
#include "common/work_items.hpp"
#include "lane_compare.hpp"
#include "penstock/group/lane.hpp"

namespace penstock::match {

namespace {

status if_copied(bool copied) {
    if (copied) return {};
    return {-EIO,
            "queries or results could not be copied to or from the device; is the GPU in order?"};
}

}  // namespace

status match_memory::place(const match_job& job, const match_cut& cut,
                           const std::vector<int>& fds) {
    match_view& v = view_;
    v.query_count = job.queries.header.image_count;
    v.tile_images = cut.tile_images;
    v.floats = job.floats();
    v.slab_floats = cut.slab_floats;
    v.threshold = job.threshold;
    v.whole = job.whole ? 1 : 0;
    std::vector<database_view> places;
    std::uint64_t images = 0;
    for (const image_file& database : job.databases) {
        const image_header& h = database.header;
        const int fd = places.size() < fds.size() ? fds[places.size()] : -1;
        places.push_back(
            {fd, h.data_offset, h.stride_bytes(), h.image_count, images, v.tile_count});
        images += h.image_count;
        v.tile_count += apps::pieces_of(h.image_count, cut.tile_images);
    }
    v.database_count = static_cast<std::uint32_t>(places.size());
    const std::uint64_t units =
        std::max<std::uint64_t>(apps::pieces_of(v.query_count, cut.query_unit), 1);
    const std::uint64_t groups = std::clamp<std::uint64_t>(
        cut.items_wanted / std::max<std::uint64_t>(v.tile_count, 1), 1, units);
    v.group_queries = apps::pieces_of(units, groups) * cut.query_unit;
    v.group_count = static_cast<std::uint32_t>(
        std::max<std::uint64_t>(apps::pieces_of(v.query_count, v.group_queries), 1));
    const std::uint64_t query_floats = v.query_count * v.floats;
    if (memory_ == nullptr || !memory_->allocate(queries_, query_floats) ||
        !memory_->place(v.databases, places) || !memory_->allocate(v.best, v.query_count) ||
        !memory_->allocate(v.totals, 1))
        return {-ENOMEM, "the queries need " + format_size(query_floats * sizeof(float)) +
                             " of memory that is not free; search for fewer at a time, or use a "
                             "smaller --cache"};
    v.queries = queries_;
    const std::vector<std::uint64_t> none(v.query_count, no_match);
    return if_copied(memory_->upload(v.best, none.data(), none.size() * sizeof no_match));
}

status match_memory::upload_queries(const std::vector<float>& queries) {
    return if_copied(memory_->upload(queries_, queries.data(), queries.size() * sizeof(float)));
}

status match_memory::download(match_report& report) {
    report.best.resize(view_.query_count);
    return if_copied(
        memory_->download(report.best.data(), view_.best, report.best.size() * sizeof no_match) &&
        memory_->download(&report.totals, view_.totals, sizeof report.totals));
}

status read_queries(const match_job& job, float* to) {
    const image_header& h = job.queries.header;
    const std::string& path = job.queries.path;
    const std::uint64_t floats = job.floats();
    apps::unique_fd fd;
    if (status s = apps::open_to_read(path, "a file of images", fd); !s) return s;
    if (h.stride_floats == floats)
        return apps::read_exactly(path, fd, to, h.data_bytes(), h.data_offset);
    status ended;
    for (std::uint64_t i = 0; i < h.image_count && ended.ok(); ++i)
        ended = apps::read_exactly(path, fd, to + i * floats, floats * sizeof(float),
                                   h.data_offset + i * h.stride_bytes());
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

namespace {

// A source for compare_on_lane.
struct mapped_images {
    std::vector<apps::mapped_file> maps;

    template <typename Visit>
    int visit(const tile_place& at, std::uint64_t first_byte, std::uint64_t bytes,
              const Visit& visit) const {
        visit(reinterpret_cast<const float*>(maps[at.database].data() + first_byte), 0,
              bytes / sizeof(float));
        return 0;
    }
};

}  // namespace

status match_with_cpu(const match_job& job, match_report& report) {
    apps::stopwatch watch;
    const std::uint32_t threads = apps::thread_count(job.settings.worker_threads);
    mapped_images mapped;
    for (const image_file& file : job.databases)
        if (status s = mapped.maps.emplace_back().open(
                file.path, file.header.data_offset + file.header.data_bytes());
            !s)
            return s;
    match_memory memory(apps::make_host_memory());
    const match_cut cut{lane_images, lane_queries, std::uint64_t{16} * threads, job.floats()};
    if (status s = memory.place(job, cut, {}); !s) return s;
    apps::thread_scratch scratch;
    if (status s = scratch.allocate(threads, lane_scratch_floats(job.floats())); !s) return s;
    report.note = std::to_string(threads) + " threads, " + chosen_kernel().name;
    report.start_seconds = watch.lap();

    return apps::repeat_timed(1, report, [&]() -> status {
        if (status s = read_queries(job, memory.queries()); !s) return s;
        const match_view& view = memory.view();
        {
            const apps::progress bar(
                "tiles", view.item_count(),
                [&] { return atomic_load<order::relaxed>(&view.totals->items_taken); }, !job.quiet);
            apps::on_threads(threads, [&](std::uint32_t thread) {
                for (std::uint64_t item = take_item(lane{}, view, was_interrupted);
                     item < view.item_count(); item = take_item(lane{}, view, was_interrupted))
                    compare_on_lane(mapped, view, place_of(view, item), scratch.pointers()[thread]);
            });
        }
        return memory.download(report);
    });
}

}  // namespace penstock::match
