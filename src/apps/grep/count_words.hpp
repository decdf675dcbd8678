// The kernel: opens files, reads them through the cache, counts words. A function object over a group, so that the same
// body runs as GPU warps and as CPU lanes.
#pragma once

#include <cstdint>

#include "count_job.hpp"
#include "penstock/file.hpp"

namespace penstock::grep {

// A file behind the page cache. The inside of a page is scanned where it lies, through a mapping; only the seam between
// two pages is copied, into the group's scratch. Pages too small for that are copied whole, several at a time.
struct paged_source {
    const runtime_ref& fs;
    int fd;
    std::uint64_t file_bytes;
    std::uint64_t page_bytes;
    unsigned char* copy;
    std::uint64_t copy_bytes;  // at least 2 * window_margin + 2
    std::uint64_t ahead_bytes; // how much to bring in before it is scanned; 0: nothing

    static constexpr std::uint64_t least_mapped_page = 8192;

    template <typename Group, typename Body>
    PENSTOCK_HD int for_each_window(const Group& g, std::uint64_t from, std::uint64_t to, const Body& body) const {
        std::uint64_t fetched = from;
        for (std::uint64_t at = from; at < to;) {
            if (ahead_bytes != 0 && at >= fetched && to - at > page_bytes) {
                // What it could not bring in, the read or map below reports.
                const std::uint64_t bytes = to - at < ahead_bytes ? to - at : ahead_bytes;
                prefetch(g, fs, fd, static_cast<std::int64_t>(at), static_cast<std::int64_t>(bytes));
                fetched = at + ahead_bytes - window_margin;
            }
            const std::uint64_t before = at > 0 ? at - 1 : 0;
            const std::uint64_t page_end = (before | (page_bytes - 1)) + 1;
            std::uint64_t until = page_end >= file_bytes ? file_bytes : page_end - window_margin;
            if (until > to) until = to;
            const bool mapped = page_bytes >= least_mapped_page && at < until;
            if (!mapped) {
                until = at + (copy_bytes - window_margin - 1);
                if (page_bytes >= least_mapped_page && until > page_end + 1) until = page_end + 1;
                if (until > to) until = to;
            }
            const int code = mapped ? scan_mapped(g, before, page_end, at, until, body)
                                    : scan_copied(g, before, at, until, body);
            if (code != 0) return code;
            at = until;
        }
        return 0;
    }

    template <typename Group, typename Body>
    PENSTOCK_HD int scan_mapped(const Group& g, std::uint64_t before, std::uint64_t page_end, std::uint64_t from,
                                std::uint64_t to, const Body& body) const {
        const mapping m = map(g, fs, fd, static_cast<std::int64_t>(before), static_cast<std::int64_t>(page_end - before));
        if (m.bytes < 0) return static_cast<int>(m.bytes);
        const std::uint64_t end = before + static_cast<std::uint64_t>(m.bytes);
        const bool whole = end == (page_end < file_bytes ? page_end : file_bytes);
        if (whole) body(text_window{reinterpret_cast<const unsigned char*>(m.data), before, end}, from, to);
        const int code = unmap(g, fs, m);
        return whole ? code : -ESTALE;
    }

    template <typename Group, typename Body>
    PENSTOCK_HD int scan_copied(const Group& g, std::uint64_t before, std::uint64_t from, std::uint64_t to,
                                const Body& body) const {
        const std::uint64_t end = file_bytes - to > window_margin ? to + window_margin : file_bytes;
        const auto wanted = static_cast<std::int64_t>(end - before);
        const std::int64_t got = read(g, fs, fd, copy, wanted, static_cast<std::int64_t>(before));
        if (got < 0) return static_cast<int>(got);
        if (got == wanted) body(text_window{copy, before, end}, from, to);
        g.sync();  // nobody still reads the copy when the next one overwrites it
        return got == wanted ? 0 : -ESTALE;
    }
};

struct count_words {
    search_view view;
    std::uint64_t ahead_bytes;

    // Groups are numbered by their scratch; each takes jobs until none is left.
    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
        const tally t(view, index);
        for (;;) {
            const std::uint64_t taken = g.broadcast(g.is_leader() ? take_job(view) : 0);
            if (taken >= view.job_count) return;
            const auto job_index = static_cast<std::uint32_t>(taken);
            const bool settled = g.broadcast(is_settled(view, job_index) ? 1 : 0) != 0;
            const int code = settled ? 0 : run(g, fs, t, job_index);
            if (!g.is_leader()) continue;
            view.status[job_index] = code;
            // These concern the runtime and not the file: the rest would fail the same way, each after a wait.
            if (code == -ECANCELED || code == -ESHUTDOWN || code == -ETIMEDOUT)
                atomic_store<order::relaxed>(&view.shared->stop, 1u);
        }
    }

    template <typename Group>
    PENSTOCK_HD int run(const Group& g, const runtime_ref& fs, const tally& t, std::uint32_t job_index) const {
        const std::uint32_t file = view.jobs[job_index].file;
        const int fd = open(g, fs, view.paths + view.path_at[file]);
        if (fd < 0) return fd;
        auto* const about = reinterpret_cast<file_stat*>(t.text);  // memory that the whole group can read
        int code = stat(g, fs, fd, about);
        if (code == 0 && about->size_bytes != view.file_bytes[file]) code = -ESTALE;
        const std::uint64_t page_bytes = about->page_bytes;
        g.sync();  // everybody has read it before text takes its place
        if (code == 0) {
            paged_source source{fs, fd, view.file_bytes[file], page_bytes, t.text, view.layout.text_bytes, ahead_bytes};
            code = count_job(g, view, t, source, job_index);
        }
        close(g, fs, fd);
        return code;
    }
};

}  // namespace penstock::grep
