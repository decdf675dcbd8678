// Searches with kernels that open and read the files themselves.
#include <algorithm>
#include <cstdint>

#include "common/command_line.hpp"
#include "common/work_items.hpp"
#include "count_job.hpp"
#include "line_job.hpp"
#include "line_search.hpp"
#include "penstock/file.hpp"
#include "penstock/launch.hpp"
#include "search.hpp"

namespace penstock::grep {

// A file behind the page cache. The inside of a page is scanned where it lies, through a mapping;
// only the seam between two pages is copied, into the group's scratch. Pages too small for that are
// copied whole, several at a time.
//
// Getting at text is kept out of line: its registers would be taken from the scanning loop.
struct paged_source {
    const runtime_ref& fs;
    int fd;
    std::uint64_t file_bytes;
    std::uint64_t page_bytes;
    unsigned char* copy;
    std::uint64_t copy_bytes;   // at least 2 * window_margin + 2
    std::uint64_t ahead_bytes;  // how much to bring in before it is scanned; 0: nothing

    static constexpr std::uint64_t least_mapped_page = 8192;

    struct piece {
        text_window window;
        std::uint64_t until;  // positions below it can be scanned with this window
        mapping held;         // of a page, or empty
        int code;             // 0 or a negative errno
    };

    template <typename Group, typename Body>
    PENSTOCK_HD int for_each_window(const Group& g, std::uint64_t from, std::uint64_t to,
                                    const Body& body) const {
        std::uint64_t fetched = from;
        for (std::uint64_t at = from; at < to;) {
            if (ahead_bytes != 0 && at >= fetched && to - at > page_bytes) {
                bring_in(g, at, to);
                fetched = at + ahead_bytes - window_margin;
            }
            piece p{};
            get(g, at, to, p);
            if (p.code == 0) body(p.window, at, p.until);
            const int code = give_back(g, p);
            if (p.code != 0 || code != 0) return p.code != 0 ? p.code : code;
            at = p.until;
        }
        return 0;
    }

private:
    // What it could not bring in, get() reports.
    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE void bring_in(const Group& g, std::uint64_t at,
                                                std::uint64_t to) const {
        const std::uint64_t bytes = to - at < ahead_bytes ? to - at : ahead_bytes;
        prefetch(g, fs, fd, static_cast<std::int64_t>(at), static_cast<std::int64_t>(bytes));
    }

    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE void get(const Group& g, std::uint64_t at, std::uint64_t to,
                                           piece& out) const {
        const std::uint64_t before = at > 0 ? at - 1 : 0;
        const std::uint64_t page_end = (before | (page_bytes - 1)) + 1;
        const std::uint64_t inside = page_end >= file_bytes ? file_bytes : page_end - window_margin;
        const bool can_map = page_bytes >= least_mapped_page;
        out.window = {copy, before, 0};
        out.until = apps::lesser(inside, to);
        std::int64_t got = 0;
        if (can_map && at < out.until) {
            out.window.end = apps::lesser(page_end, file_bytes);
            out.held = map(g, fs, fd, static_cast<std::int64_t>(before),
                           static_cast<std::int64_t>(out.window.size()));
            out.window.bytes = reinterpret_cast<const unsigned char*>(out.held.data);
            got = out.held.bytes;
        } else {
            out.until = apps::lesser(at + (copy_bytes - window_margin - 1), to);
            if (can_map) out.until = apps::lesser(out.until, page_end + 1);
            out.window.end = apps::lesser(file_bytes, out.until + window_margin);
            got = read(g, fs, fd, copy, static_cast<std::int64_t>(out.window.size()),
                       static_cast<std::int64_t>(before));
        }
        if (got < 0) out.code = static_cast<int>(got);
        else out.code = static_cast<std::uint64_t>(got) == out.window.size() ? 0 : -ESTALE;
    }

    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE int give_back(const Group& g, const piece& p) const {
        g.sync();  // no thread still reads the text when the next piece takes its place
        return p.held.data != nullptr ? unmap(g, fs, p.held) : 0;
    }
};

struct count_words {
    search_view view;
    std::uint64_t ahead_bytes;

    // Groups are numbered by their scratch.
    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
        take_jobs(g, view, index, [&](const tally& t, std::uint32_t job_index) {
            paged_source source{fs, -1, 0, 0, t.text, view.layout.text_bytes, ahead_bytes};
            int code = open_text(g, view.jobs[job_index].file, source);
            if (code == 0) code = count_job(g, view, t, source, job_index);
            if (source.fd >= 0) close_text(g, source);
            return code;
        });
    }

    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE int open_text(const Group& g, std::uint32_t file,
                                                paged_source& out) const {
        out.fd = open(g, out.fs, view.paths + view.path_at[file]);
        if (out.fd < 0) return out.fd;
        // Memory that the whole group can read.
        auto* const about = reinterpret_cast<file_stat*>(out.copy);
        const int code = stat(g, out.fs, out.fd, about);
        out.file_bytes = about->size_bytes;
        out.page_bytes = about->page_bytes;
        g.sync();  // every thread has read it before text takes its place
        if (code != 0) return code;
        return out.file_bytes == view.file_bytes[file] ? 0 : -ESTALE;
    }

    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE void close_text(const Group& g,
                                                  const paged_source& source) const {
        close(g, source.fs, source.fd);
    }
};

namespace {

constexpr std::uint64_t pages_ahead = 8;  // what one call keeps in flight

#if defined(__CUDACC__)
// With 64 registers for each thread (CMakeLists.txt), 32 warps fit a multiprocessor.
std::uint64_t resident_warps(int device) {
    int multiprocessors = 1;
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    return static_cast<std::uint64_t>(multiprocessors) * 32;
}
#endif

}  // namespace

search_method make_penstock_search(runtime& rt) {
    const options& o = rt.settings();
    const std::uint64_t pages = *o.cache_bytes / o.page_bytes;
    search_method out;
    out.memory = apps::make_host_memory();
    out.groups = *o.worker_threads;
#if defined(__CUDACC__)
    if (rt.where() == backend::gpu) {
        out.memory = apps::make_gpu_memory(o.device);
        out.groups = resident_warps(o.device);
        out.least_piece = least_gpu_piece;
    }
#endif
    // A group holds one page at a time, and half the frames are left for pages that are being
    // loaded.
    out.groups = std::min(
        {out.groups, std::max<std::uint64_t>(1, pages / 2), std::uint64_t{o.max_files} / 2});
    out.launch = [&rt, pages](const search_view& view, const std::vector<job>&,
                              std::uint64_t groups) -> status {
        // Reading ahead must not push out what other groups are about to read.
        const std::uint64_t ahead =
            pages >= groups * pages_ahead * 2 ? pages_ahead * rt.settings().page_bytes : 0;
        const int code = penstock::launch<width::warp>(rt, groups, count_words{view, ahead});
        return code == 0 ? status{} : apps::launch_error(rt, code);
    };
    return out;
}

int launch_lines(runtime& rt, const line_view& view, std::uint64_t groups) {
    return penstock::launch<width::warp>(rt, groups, print_lines{view});
}

}  // namespace penstock::grep
