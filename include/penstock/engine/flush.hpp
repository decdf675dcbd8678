// The flush: writes back the dirty pages of a file, several at a time, when the file has to be up
// to date (fsync, msync, the last close). engine/write_back.hpp writes back one page;
// engine/victim.hpp does so when a frame is needed and no clean page was found.
//
// A group that has a lock or a ring slot waits for no other lock, and a group that has a slot waits
// for no other slot: it first ends the writes that it has under way. So groups never wait for each
// other in a circle.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/write_back.hpp"
#include "penstock/group/concept.hpp"
#if defined(__CUDACC__)
#include "penstock/group/gpu_groups.cuh"
#endif

namespace penstock::engine {

// A run of page words that follow each other in the arena, for pages that follow each other in the
// file. `index` is no_words where the file has no page words yet.
struct word_run {
    std::uint64_t index, pages;
};
inline constexpr std::uint64_t no_words = ~std::uint64_t{0};

// Leader only. The words of page `page` of the file and of the pages after it.
PENSTOCK_HD PENSTOCK_NOINLINE inline word_run words_from(const cache_view& c,
                                                         std::uint32_t file_slot,
                                                         std::uint64_t page) {
    const file_record& record = c.file_records[file_slot];
    const std::uint64_t leaf_pages = std::uint64_t{1} << c.leaf_shift;
    if (page < record.page_count && record.two_level == 0)
        return {record.table + page, record.page_count - page};
    const bool grown = page >= record.page_count;
    const std::uint64_t number = grown ? page - record.page_count : page,
                        growth = growth_of(c, file_slot);
    const std::uint64_t rest = leaf_pages - (number & (leaf_pages - 1));
    if (grown && (growth < growth_first || number >> c.leaf_shift >= c.growth_entries))
        return {no_words, no_words};
    const std::uint64_t directory = grown ? growth - growth_first : record.table;
    const std::uint64_t entry = load_relaxed(&c.words[directory + (number >> c.leaf_shift)]);
    const std::uint64_t pages =
        grown || rest < record.page_count - page ? rest : record.page_count - page;
    return {entry == 0 ? no_words : entry - 1 + (number & (leaf_pages - 1)), pages};
}

// A queue of writes that are under way together; all threads of the group have equal copies.
// Neighbours are sent together, so that the host finds them together: one call for many pages takes
// little longer than one for a single page (docs/guide/writing.md).
class write_queue {
public:
    static constexpr std::uint32_t depth = 64;
    // Enough for one call; the first page need not wait for more.
    static constexpr std::uint64_t most_unsent_bytes = 512 * 1024;

    // Sends all pages that were copied. A group does so before it waits for anything, or requests
    // behind them in a ring would wait too. Each thread posts another page: a post takes as long as
    // the bus, and the host writes all pages that it finds at one look in one call.
    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE void post_all(const Group& g, const cache_view& c) {
        if (posted_ == end_) return;
        g.sync();  // every thread sees what the leader noted
        for (std::uint32_t i = posted_ + g.rank(); i < end_; i += g.size())
            post_write(g, c, frames_[i % depth]);
        posted_ = end_;
    }
    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE void finish_oldest(const Group& g, const cache_view& c) {
        post_all(g, c);
        const std::uint32_t frame = frames_[first_ % depth];
        const std::int64_t code = finish_write(g, c, frame);
        ++first_;
        if (code == 0) ++written_;
        if (code != 0 && error_ == 0) error_ = code;
    }
    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE void finish_all(const Group& g, const cache_view& c) {
        while (first_ != end_) finish_oldest(g, c);
    }
    // If there is no room for one more page, makes room for many, so that many are sent together
    // again.
    template <typename Group>
    PENSTOCK_HD void make_room(const Group& g, const cache_view& c) {
        if (end_ - first_ != depth) return;
        PENSTOCK_ROLLED
        for (std::uint32_t i = 0; i < depth / 2; ++i) finish_oldest(g, c);
    }
    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE void write(const Group& g, const cache_view& c,
                                             std::uint64_t word_index) {
        wait_deadline waiting(
            g, 2 * c.request_wait_ns);  // another group may wait for a slot and for the answer
        for (std::uint32_t round = 0;; ++round) {
            make_room(g, c);
            pending_write w;
            std::int64_t code = hold_together(g, c, word_index, w);
            if (code == 0) return;
            if (code == 1) code = begin_write(g, c, first_ == end_, w);
            if (code == 0) return;
            if (code == 1) return add(g, c, w);
            if (first_ != end_) {
                finish_all(g, c);
                continue;
            }
            if (code == -EAGAIN) {
                std::int64_t late = 0;
                if (g.is_leader()) late = waiting.check(g, c);
                late = share_code(g, late);
                code = late == -ETIME ? -ETIMEDOUT : late;
                g.pause(round);
            }
            if (code == 0) continue;
            if (error_ == 0) error_ = code;
            return;
        }
    }
    // Begins the write of a page that the caller holds, and lets the page go if it cannot be
    // written. False: there was no slot for it.
    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE bool write_held(const Group& g, const cache_view& c,
                                                  const pending_write& w) {
        make_room(g, c);
        const std::int64_t code = begin_write(g, c, first_ == end_, w);
        if (code == 1) add(g, c, w);
        if (code < 0 && first_ == end_ && error_ == 0) error_ = code;
        return code >= 0;
    }
    // Adds a write that was begun.
    template <typename Group>
    PENSTOCK_HD void add(const Group& g, const cache_view& c, const pending_write& w) {
        frames_[end_++ % depth] = w.frame;
        if ((end_ - posted_) << c.page_shift >= most_unsent_bytes) post_all(g, c);
    }
    PENSTOCK_HD std::int64_t error() const { return error_; }
    PENSTOCK_HD std::uint64_t written() const { return written_; }
    PENSTOCK_HD std::uint32_t sent() const { return end_; }

private:
    std::uint32_t frames_[depth];
    std::uint32_t first_ = 0, posted_ = 0, end_ = 0;
    std::int64_t error_ = 0;
    std::uint64_t written_ = 0;
};

// Whole group. Puts the dirty pages among the pages [first, end) of an open file into the queue,
// and waits for pages that other groups are writing.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE void queue_pages(const Group& g, const cache_view& c,
                                               std::uint32_t file_slot, std::uint64_t first,
                                               std::uint64_t end, write_queue& queue) {
    for (std::uint64_t page = first; page < end;) {
        word_run run{};
        if (g.is_leader()) run = words_from(c, file_slot, page);
        run = {g.broadcast(run.index), g.broadcast(run.pages)};
        if (run.pages > end - page) run.pages = end - page;
        for (std::uint64_t i = 0; run.index != no_words && i < run.pages; i += g.size()) {
            const std::uint64_t own_index = i + g.rank();
            if (g.all(own_index >= run.pages ||
                      !may_have_marks(load_relaxed(&c.words[run.index + own_index]))))
                continue;
            PENSTOCK_ROLLED
            for (std::uint64_t k = i; k < i + g.size() && k < run.pages; ++k)
                queue.write(g, c, run.index + k);
        }
        page += run.pages;
    }
}

// How many groups flush a file together, and how many pages that follow each other belong to one of
// them. Few enough that what is under way is still in the processor's caches when it is written,
// and enough that copying is not what all wait for: for pages of 64 KiB 8 were best, of 4 KiB 32,
// with 512 pages in a row among them (bench/results/h200/2026-11-22-write-flush.txt).
PENSTOCK_HD PENSTOCK_INLINE std::uint32_t flushing_groups(const cache_view& c) {
    constexpr std::uint64_t under_way_bytes = 32u << 20;
    const std::uint64_t groups = under_way_bytes / write_queue::depth >> c.page_shift;
    return groups < 8 ? 8 : groups > 32 ? 32 : static_cast<std::uint32_t>(groups);
}
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t flushed_piece_pages(const cache_view& c) {
    return 512 / flushing_groups(c);
}

// Whole group. Waits for all writes in the queue. Returns 0, or the first error; the other pages
// were tried all the same.
template <typename Group>
PENSTOCK_HD inline std::int64_t finish_flush(const Group& g, const cache_view& c,
                                             write_queue& queue) {
    queue.finish_all(g, c);
    atomic_fence();  // the last write-backs of pages seen clean, with their changes of the
                     // file's count, come before the next steps
    g.sync();
    return queue.error();
}

// Whole group, one of `shares` groups that flush together: writes back every shares-th piece of the
// pages [first, end). Each group has up to write_queue::depth pages under way. Pieces that follow
// each other belong to different groups, so that pages that reach the host at about the same time
// are neighbours in the file.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t flush_share(const Group g, const cache_view& c,
                                                       std::uint32_t file_slot, std::uint64_t first,
                                                       std::uint64_t end, std::uint64_t share,
                                                       std::uint64_t shares, std::uint64_t piece) {
    write_queue queue;
    for (std::uint64_t at = first + share * piece; at < end; at += shares * piece)
        queue_pages(g, c, file_slot, at, end - at < piece ? end : at + piece, queue);
    return finish_flush(g, c, queue);
}

// The parts in which a group flushes: the warps of a block, each with pages of its own, for a block
// that works on one small page waits at barriers most of the time. A block of 256 threads brought
// 1.67 GB/s of pages of 4 KiB so, and 0.25 as a whole; of 64 KiB 2.75 and 3.11
// (bench/results/h100/2026-11-27-msync.txt). A group that does not consist of whole warps has one.
template <typename Group>
PENSTOCK_HD inline std::uint32_t flushing_parts([[maybe_unused]] const Group& g,
                                                [[maybe_unused]] const cache_view& c) {
    if constexpr (group_of_warps<Group>) {
        constexpr std::uint64_t largest_page_of_a_warp = 16 * 1024;
        if (c.page_bytes() <= largest_page_of_a_warp && g.size() % 32 == 0) return g.size() / 32;
    }
    return 1;
}

// Whole group. Each part of it does work(part, number, parts). Returns 0 when all have returned, or
// the error of one of them. While a part works it holds what a group may hold; it waits for no
// other part before its end.
template <typename Group, typename Work>
PENSTOCK_HD inline std::int64_t in_flushing_parts(const Group& g,
                                                  [[maybe_unused]] const cache_view& c,
                                                  const Work& work) {
#if PENSTOCK_ON_DEVICE
    if constexpr (group_of_warps<Group>) {
        constexpr std::uint64_t none = ~std::uint64_t{0};
        if (const std::uint32_t parts = flushing_parts(g, c); parts > 1) {
            const std::int64_t code = work(warp(), g.rank() / 32, parts);
            const std::uint64_t failed =
                g.least(code == 0 ? none : static_cast<std::uint64_t>(-code));
            return failed == none ? 0 : -static_cast<std::int64_t>(failed);
        }
    }
#endif
    return work(g, 0u, 1u);
}

// What a part does in flush_pages: its share of [first, shared_end), and the first part the rest.
struct part_of_flush {
    const cache_view* cache;
    std::uint32_t file_slot;
    std::uint64_t first, shared_end, end;

    template <typename Group>
    PENSTOCK_HD std::int64_t operator()(const Group& part, std::uint32_t share,
                                        std::uint32_t shares) const {
        const cache_view& c = *cache;
        std::int64_t code = 0;
        if (shared_end != first)
            code = flush_share(part, c, file_slot, first, shared_end, share, shares,
                               flushed_piece_pages(c));
        if (share != 0 || shared_end == end) return code;
        write_queue queue;
        queue_pages(part, c, file_slot, shared_end, end, queue);
        const std::int64_t rest = finish_flush(part, c, queue);
        return code != 0 ? code : rest;
    }
};

// Whole group. Writes back the dirty pages among the pages [first, end) of an open file. Returns
// the same as finish_flush.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t flush_pages(const Group g, const cache_view& c,
                                                       std::uint32_t file_slot, std::uint64_t first,
                                                       std::uint64_t end) {
    // Shared out is what the file has; its end may move meanwhile.
    std::uint64_t shared_end = first;
    if (flushing_parts(g, c) > 1 && g.is_leader()) shared_end = pages_of(c, size_of(c, file_slot));
    shared_end = g.broadcast(shared_end);
    if (shared_end < first) shared_end = first;
    if (shared_end > end) shared_end = end;
    return in_flushing_parts(g, c, part_of_flush{&c, file_slot, first, shared_end, end});
}

}  // namespace penstock::engine
