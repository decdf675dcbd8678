// One kernel that reads the databases as it goes: tile after tile, until every query has a match or
// no tile is left.
#include <algorithm>
#include <cerrno>
#include <type_traits>

#include "common/command_line.hpp"
#include "common/numbers.hpp"
#include "common/message.hpp"
#include "common/threads.hpp"
#include "common/work_items.hpp"
#include "lane_compare.hpp"
#include "methods.hpp"
#include "penstock/file.hpp"
#include "penstock/launch.hpp"
#if defined(__CUDACC__)
#include "block_compare.cuh"
#include "common/gpu.cuh"
#endif

namespace penstock::match {

namespace {

// Images through Penstock's page cache.
class page_source {
public:
    PENSTOCK_HD explicit page_source(const runtime_ref& fs) : fs_(fs) {}

    // On a CPU thread: pins one page at a time.
    template <typename Visit>
    int visit(const tile_place& at, std::uint64_t first_byte, std::uint64_t bytes,
              const Visit& visit) const {
        for (std::uint64_t done = 0; done < bytes;) {
            const mapping piece =
                map(lane{}, fs_, at.from.fd, static_cast<std::int64_t>(first_byte + done),
                    static_cast<std::int64_t>(bytes - done));
            if (piece.bytes <= 0) return failure(piece);
            const auto here = static_cast<std::uint64_t>(piece.bytes);
            visit(reinterpret_cast<const float*>(piece.data), done / sizeof(float),
                  here / sizeof(float));
            unmap(lane{}, fs_, piece);
            done += here;
        }
        return 0;
    }

#if defined(__CUDACC__)
    PENSTOCK_D std::uint32_t page_shift() const { return fs_.view.page_shift; }
    PENSTOCK_D std::uint32_t in_page(std::uint64_t byte) const {
        return static_cast<std::uint32_t>(byte & (fs_.view.page_bytes() - 1));
    }

    // Whole block: pins the pages of a slab of each image. Each warp has images of its own, side by
    // side, and begins with another one in each group, so that blocks that want the same tile do
    // not wait for the same pages but bring different ones.
    PENSTOCK_D bool pin(const block& g, const match_view& v, const tile_place& at,
                        std::uint32_t slab, std::uint32_t floats, block_state& s) const {
        const warp w = this_warp();
        constexpr std::uint32_t rows = block_images / (block_threads / 32);
        const std::uint32_t turn =
            static_cast<std::uint32_t>(at.query_begin / v.group_queries) * rows / v.group_count;
        for (std::uint32_t i = 0; i < rows; ++i) {
            const std::uint32_t row = threadIdx.x / 32 * rows + (i + turn) % rows;
            const std::int32_t code = row < at.images ? pin_row(w, at, row, slab, floats, s) : 0;
            if (code != 0 && w.is_leader()) s.code = code;  // of several any one will do
            if (code != 0) break;
        }
        g.sync();
        return s.code == 0;
    }

    // Whole block: gives them back. What every thread has read of them comes before, by the barrier
    // and the release of the pin.
    PENSTOCK_D void unpin(const block& g, block_state& s) const {
        g.sync();
        if (threadIdx.x < block_images) {
            for (std::uint32_t i = 0; i < s.pieces[threadIdx.x]; ++i)
                unmap(lane{}, fs_,
                      mapping{fs_.view.frame_address(s.frame[threadIdx.x][i]), 0,
                              s.word[threadIdx.x][i], s.frame[threadIdx.x][i]});
            s.pieces[threadIdx.x] = 0;
        }
        g.sync();
    }

private:
    PENSTOCK_D std::int32_t pin_row(const warp& w, const tile_place& at, std::uint32_t row,
                                    std::uint32_t slab, std::uint32_t floats,
                                    block_state& s) const {
        const std::uint64_t begin = at.byte_of(row) + std::uint64_t{slab} * sizeof(float);
        const std::uint32_t bytes = floats * sizeof(float);
        std::uint32_t count = 0;
        for (std::uint32_t done = 0; done < bytes; ++count) {
            const mapping piece =
                map(w, fs_, at.from.fd, static_cast<std::int64_t>(begin + done), bytes - done);
            if (piece.bytes <= 0) return failure(piece);
            if (w.is_leader()) {
                s.piece[row][count] = reinterpret_cast<std::uint64_t>(piece.data) - done;
                s.word[row][count] = piece.word_index;
                s.frame[row][count] = piece.frame;
                s.pieces[row] = count + 1;
            }
            done += static_cast<std::uint32_t>(piece.bytes);
        }
        return 0;
    }
#endif

private:
    // A page that has no bytes where there should be some: the file was checked when it was opened,
    // so it shrank.
    static PENSTOCK_HD std::int32_t failure(const mapping& piece) {
        return piece.bytes < 0 ? static_cast<std::int32_t>(piece.bytes) : -ESTALE;
    }

    const runtime_ref& fs_;
};

// A query by each group.
struct read_query {
    match_view view;
    float* to;
    int fd;
    std::uint64_t first_byte;
    std::uint64_t stride_bytes;
    bool rehearsal;  // the launch is only to put the kernel in place

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref& fs, std::uint64_t query) const {
        if (rehearsal) return;
        const std::int64_t bytes = static_cast<std::int64_t>(view.floats * sizeof(float));
        const std::int64_t got = read(g, fs, fd, to + query * view.floats, bytes,
                                      static_cast<std::int64_t>(first_byte + query * stride_bytes));
        // About none of the databases: the queries.
        if (got != bytes && g.is_leader())
            apps::note_error(view.totals, view.database_count, got < 0 ? got : -ESTALE);
    }
};

// Items one after the other, by a thread block or a CPU thread, until none is left. They are taken
// in order, so that the first databases are searched first, and what is matched there is not
// searched for in later ones.
struct match_items {
    match_view view;
    float* const* scratch;  // of CPU threads
    bool rehearsal;         // the launch is only to put the kernel in place

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref& fs,
                                [[maybe_unused]] std::uint64_t index) const {
        if (rehearsal) return;
        const apps::user_interrupt stop{fs};
        for (std::uint64_t item = take_item(g, view, stop); item < view.item_count();
             item = take_item(g, view, stop)) {
            const tile_place at = place_of(view, item);
#if PENSTOCK_ON_DEVICE
            if constexpr (std::is_same_v<Group, block>)
                compare_on_block(g, page_source(fs), view, at, shared_state());
#else
            if constexpr (std::is_same_v<Group, lane>)
                compare_on_lane(page_source(fs), view, at, scratch[index]);
#endif
        }
    }
};

// How the work is cut, and by how many groups it is done.
struct match_plan {
    match_cut cut;
    launch_shape shape;
    std::uint64_t groups = 1;
};

status plan_for([[maybe_unused]] const runtime& rt, [[maybe_unused]] const match_job& job,
                std::uint32_t threads, match_plan& out) {
    out.groups = threads;
    out.cut = {lane_images, lane_queries, std::uint64_t{16} * threads, job.floats()};
#if defined(__CUDACC__)
    if (rt.where() != backend::gpu) return {};
    const std::uint64_t page = rt.settings().page_bytes, frames = *rt.settings().cache_bytes / page;
    const std::uint64_t image_bytes = std::uint64_t{job.floats()} * sizeof(float);
    std::uint64_t stride_bytes = image_bytes;
    for (const image_file& file : job.databases)
        stride_bytes = std::max(stride_bytes, file.header.stride_bytes());
    // One page fewer than there is room for, because a slab need not begin with a page. What is
    // compared to the end is best held whole; else most images are given up within their first
    // page.
    const std::uint64_t slab =
        std::min({image_bytes, (row_pages - 1) * page,
                  job.whole ? image_bytes : std::max<std::uint64_t>(page, 4096)});
    const std::uint64_t held = std::min(block_images * (apps::pieces_of(slab, page) + 1),
                                        apps::pieces_of(block_images * stride_bytes, page) + 1);
    if (frames < 2 * held)
        return {-EINVAL, "--cache: " + format_size(*rt.settings().cache_bytes) +
                             " is too small to hold " + std::to_string(block_images) +
                             " images twice; give " + format_size(2 * held * page) + " or more"};
    // Half of the frames are left for pages that are being loaded.
    const std::uint64_t most = apps::resident_blocks(
        rt.settings().device, penstock::detail::run_groups<width::block, match_items>,
        block_threads);
    out.groups = std::clamp<std::uint64_t>(frames / 2 / held, 1, most);
    out.shape.threads_per_block = block_threads;
    out.shape.blocks = static_cast<std::uint32_t>(out.groups);
    out.cut = {block_images, block_queries, std::uint64_t{16} * out.groups,
               static_cast<std::uint32_t>(slab / sizeof(float))};
#endif
    return {};
}

}  // namespace

status match_with_penstock(const match_job& job, match_report& report) {
    apps::stopwatch watch;
    if (status s = apps::start_runtime(job.settings, report); !s) return s;
    runtime& rt = *report.rt;
    const bool on_gpu = rt.where() == backend::gpu;
    const std::uint32_t threads = apps::thread_count(job.settings.worker_threads);
    std::vector<int> fds;  // of the databases, then the queries
    const auto open_file = [&](const image_file& file) -> status {
        const int fd = fds.emplace_back(rt.open(file.path));
        if (fd >= 0) return {};
        return {fd, apps::shown(file.path) + ": " + error_text(fd) +
                        "; name a file of images that can be read"};
    };
    for (const image_file& file : job.databases)
        if (status s = open_file(file); !s) return s;
    if (status s = open_file(job.queries); !s) return s;
    const int queries = fds.back();
    fds.pop_back();
    match_plan plan{};
    if (status s = plan_for(rt, job, threads, plan); !s) return s;
    report.note = on_gpu ? std::to_string(plan.groups) + " thread blocks"
                         : std::to_string(threads) + " threads, " + chosen_kernel().name;
    match_memory memory(on_gpu ? apps::make_gpu_memory(rt.settings().device)
                               : apps::make_host_memory());
    if (status s = memory.place(job, plan.cut, fds); !s) return s;
    apps::thread_scratch scratch;
    if (!on_gpu)
        if (status s = scratch.allocate(threads, lane_scratch_floats(job.floats())); !s) return s;
    const match_view& view = memory.view();
    const image_header& h = job.queries.header;
    read_query reader{view, memory.queries(), queries, h.data_offset, h.stride_bytes(), true};
    match_items items{view, scratch.pointers(), true};
    // Launches that do nothing, so that the kernels and their stacks are on the device before the
    // clock runs. Of no group at all nothing would be launched.
    if (const int code = penstock::launch<width::warp>(rt, 1, reader); code != 0)
        return apps::launch_error(rt, code);
    if (const int code = penstock::launch<width::block>(rt, plan.groups, items, plan.shape);
        code != 0)
        return apps::launch_error(rt, code);
    reader.rehearsal = items.rehearsal = false;
    report.start_seconds = watch.lap();
    if (on_gpu && job.windows) report.window_bytes = apps::open_windows(rt, fds);
    report.window_seconds = watch.lap();

    return apps::repeat_timed(1, rt, report, [&]() -> status {
        int code = penstock::launch<width::warp>(rt, h.image_count, reader);
        if (code == 0) code = penstock::launch<width::block>(rt, plan.groups, items, plan.shape);
        return code == 0 ? memory.download(report) : apps::launch_error(rt, code);
    });
}

}  // namespace penstock::match
