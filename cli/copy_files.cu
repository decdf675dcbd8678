#include "copy_job.hpp"

#include <algorithm>
#include <cerrno>
#include <type_traits>
#include <unistd.h>

#include "common/command_line.hpp"
#include "common/device_memory.hpp"
#include "common/threads.hpp"
#include "penstock/launch.hpp"

namespace penstock::cp {

std::vector<file_range> data_of(int fd, std::uint64_t size_bytes, std::uint64_t piece_bytes) {
    std::vector<file_range> out;
    for (std::uint64_t at = 0; at < size_bytes;) {
        const off_t data = ::lseek(fd, static_cast<off_t>(at), SEEK_DATA);
        if (data < 0 && errno == ENXIO) break;  // a hole up to the end
        // Where one of the two calls fails the rest counts as data.
        const off_t hole = data < 0 ? -1 : ::lseek(fd, data, SEEK_HOLE);
        const std::uint64_t begin =
            (data < 0 ? at : static_cast<std::uint64_t>(data)) / piece_bytes * piece_bytes;
        std::uint64_t end = hole <= data ? size_bytes
                                         : (static_cast<std::uint64_t>(hole) + piece_bytes - 1) /
                                               piece_bytes * piece_bytes;
        end = std::min(end, size_bytes);
        if (begin >= end) break;  // data behind what was the end a moment ago
        if (!out.empty() && out.back().offset_bytes + out.back().bytes >= begin)
            out.back().bytes = end - out.back().offset_bytes;
        else out.push_back({begin, end - begin});
        at = end;
    }
    return out;
}

namespace {

template <bool Compare>
struct work_on_pieces {
    copy_view view;

    template <typename Group>
    PENSTOCK_HD void operator()([[maybe_unused]] const Group& g,
                                [[maybe_unused]] const runtime_ref& fs, std::uint64_t) const {
#if PENSTOCK_ON_DEVICE
        if constexpr (std::is_same_v<Group, warp>) work_through<Compare>(g, fs, view);
#else
        if constexpr (std::is_same_v<Group, lane>) work_through<Compare>(g, fs, view);
#endif
    }
};

// So few groups that each has the slots to send its piece to the host together: many that send a
// page now and then make a system call of each. A piece is short enough that all groups get some.
// The pages that all have under way, of both files, take no more than half of the frames, so that
// none is dropped before it is used and none waits for a frame that others hold. Bytes of a piece,
// and the number of groups.
std::pair<std::uint64_t, std::uint64_t> shape_of(const runtime& rt, std::uint64_t bytes) {
    constexpr std::uint64_t most_pages = 16, most_warps = 96;
    const options& o = rt.settings();
    const std::uint64_t frames = *o.cache_bytes / o.page_bytes, pages = bytes / o.page_bytes + 1;
    const std::uint64_t workers =
        rt.where() == backend::gpu ? most_warps : apps::thread_count(o.worker_threads);
    const std::uint64_t pages_each =
        std::clamp<std::uint64_t>(std::min(pages / workers, frames / 16), 1, most_pages);
    return {pages_each * o.page_bytes,
            std::clamp<std::uint64_t>(frames / (4 * pages_each), 1, workers)};
}

// The job as the device sees it, and what it left behind.
struct placed_job {
    std::vector<copy_extent> extents;
    std::vector<copy_file> files;
    std::unique_ptr<apps::device_memory> memory;
    copy_view view{};
    std::uint64_t items_taken = 0;

    void list(const std::vector<open_copy>& from, std::uint64_t piece_bytes) {
        view.piece_bytes = piece_bytes;
        for (std::uint64_t file = 0; file < from.size(); ++file) {
            files.push_back({from[file].from, from[file].to, 0});
            for (const file_range& part : from[file].data) {
                extents.push_back({part.offset_bytes, part.bytes, view.items, file});
                view.items += apps::pieces_of(part.bytes, piece_bytes);
            }
        }
        view.extent_count = extents.size();
    }
    status place(const runtime& rt) {
        memory = rt.where() == backend::gpu ? apps::make_gpu_memory(rt.settings().device)
                                            : apps::make_host_memory();
        const bool placed =
            memory != nullptr && memory->place(view.extents, extents) &&
            memory->allocate(view.files, files.size()) &&
            memory->upload(view.files, files.data(), files.size() * sizeof(copy_file)) &&
            memory->allocate(view.totals, 1);
        return placed ? status{}
                      : status{-ENOMEM,
                               "no memory for the list of what is copied; give a smaller --cache"};
    }
    status fetch() {
        apps::work_totals totals{};
        if (!memory->download(files.data(), view.files, files.size() * sizeof(copy_file)) ||
            !memory->download(&totals, view.totals, sizeof totals))
            return {-EIO, "what was copied cannot be fetched from the device; see penstock info"};
        items_taken = std::min(totals.items_taken, view.items);
        return {};
    }
    // A file is done up to its failure, or to its first piece that no group took, whichever
    // comes first.
    void judge(std::vector<open_copy>& out) const {
        for (open_copy& copy : out) {
            copy.reached_bytes = copy.bytes;
            copy.code = 0;
        }
        for (auto extent = extents.rbegin(); extent != extents.rend(); ++extent) {
            const std::uint64_t first = extent->first_item;
            if (first + apps::pieces_of(extent->bytes, view.piece_bytes) <= items_taken) break;
            out[extent->file].reached_bytes =
                extent->offset_bytes + (std::max(items_taken, first) - first) * view.piece_bytes;
            out[extent->file].code = -ECANCELED;
        }
        for (std::uint64_t file = 0; file < out.size(); ++file) {
            const std::uint64_t failure = files[file].failure;
            if (failure == 0 || offset_of(failure) > out[file].reached_bytes) continue;
            out[file].reached_bytes = offset_of(failure);
            out[file].code = code_of(failure);
            out[file].reading = step_of(failure) == failed_at::reading;
        }
    }
};

template <bool Compare>
status work_on(runtime& rt, std::vector<open_copy>& files) {
    std::uint64_t bytes = 0;
    for (const open_copy& copy : files)
        for (const file_range& part : copy.data) bytes += part.bytes;
    const auto [piece_bytes, groups] = shape_of(rt, bytes);
    placed_job job;
    job.list(files, piece_bytes);
    if (job.view.items > 0) {
        if (status s = job.place(rt); !s) return s;
        const int code = launch<width::warp>(rt, groups, work_on_pieces<Compare>{job.view});
        if (code != 0) return apps::launch_error(rt, code);
        if (status s = job.fetch(); !s) return s;
    }
    job.judge(files);
    return {};
}

}  // namespace

status copy_open_files(runtime& rt, std::vector<open_copy>& files) {
    return work_on<false>(rt, files);
}
status compare_open_files(runtime& rt, std::vector<open_copy>& files) {
    return work_on<true>(rt, files);
}

}  // namespace penstock::cp
