// Which pages are written back, and several at a time: when the file is to be up to date (flush_pages: fsync, msync, the last close), and
// when a frame is needed and no clean page was found (clean_victim). How one page is: engine/write_back.hpp.
//
// A group that has locks or ring slots waits for neither another lock nor another slot: it first ends what it has under way. So groups
// never wait for each other in a circle.
#pragma once

#include <cerrno>
#include <cstdint>

#include "penstock/engine/clock.hpp"
#include "penstock/engine/write_back.hpp"

namespace penstock::engine {

// Page words that follow each other in the arena, for pages that do. `index` is no_words where the file has none yet.
struct word_run {
    std::uint64_t index, pages;
};
inline constexpr std::uint64_t no_words = ~std::uint64_t{0};

// Leader only. The words of page `page` of the file and of what follows it.
PENSTOCK_HD PENSTOCK_NOINLINE inline word_run words_from(const cache_view& c, std::uint32_t file_slot, std::uint64_t page) {
    const file_record& record = c.file_records[file_slot];
    const std::uint64_t leaf_pages = std::uint64_t{1} << c.leaf_shift;
    if (page < record.page_count && record.two_level == 0) return {record.table + page, record.page_count - page};
    const bool grown = page >= record.page_count;
    const std::uint64_t number = grown ? page - record.page_count : page, growth = growth_of(c, file_slot);
    const std::uint64_t rest = leaf_pages - (number & (leaf_pages - 1));
    if (grown && (growth < growth_first || number >> c.leaf_shift >= c.growth_entries)) return {no_words, no_words};
    const std::uint64_t directory = grown ? growth - growth_first : record.table;
    const std::uint64_t entry = glance(&c.words[directory + (number >> c.leaf_shift)]);
    const std::uint64_t pages = grown || rest < record.page_count - page ? rest : record.page_count - page;
    return {entry == 0 ? no_words : entry - 1 + (number & (leaf_pages - 1)), pages};
}

// Leader only. The page in the frame was written back. If groups wait for frames and nobody has the page, it is evicted: true.
template <typename Group>
PENSTOCK_HD inline bool free_awaited(const Group& g, const cache_view& c, std::uint32_t frame) {
    keep_nothing nothing;
    if (awaited_frames(c) == 0 || try_take_frame(g, c, c, frame, nothing) != frame_step::taken) return false;
    set_frame_word(c, frame, frame_free);
    return true;
}

// Dirty, and in nobody's hands.
constexpr PENSTOCK_HD bool is_idle_dirty(page_word seen) { return is_valid(seen) && is_dirty(seen) && pins_of(seen) == 0; }

// Several writes under way at a time; the whole group has equal copies. Neighbours are sent together, so that the host finds them together: a call
// for many pages takes little longer than for one (docs/writing.md).
class write_queue {
public:
    static constexpr std::uint32_t depth = 64;
    static constexpr std::uint64_t most_unsent_bytes = 512 * 1024;  // enough for one call; the first is not to wait for more

    // With `own_frame` the other frames go to the groups that wait for some, each as soon as its page is written: clean pages that lie about
    // are taken by whoever comes by.
    explicit PENSTOCK_HD write_queue(std::uint32_t own_frame = no_frame) : own_frame_(own_frame) {}

    // All that were copied are sent: before the group waits for anything, or others that come after them in a ring would wait too. Each by
    // another thread: a post takes as long as the bus, and what the host finds at one look it writes in one call.
    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE void post_all(const Group& g, const cache_view& c) {
        if (posted_ == end_) return;
        g.sync();  // everybody sees what the leader noted
        for (std::uint32_t i = posted_ + g.rank(); i < end_; i += g.size()) post_write(g, c, frames_[i % depth]);
        posted_ = end_;
    }
    template <typename Group>
    PENSTOCK_HD void finish_oldest(const Group& g, const cache_view& c) {
        post_all(g, c);
        const std::uint32_t frame = frames_[first_ % depth];
        const std::int64_t code = finish_write(g, c, frame);
        ++first_;
        if (code == 0) ++written_;
        std::uint32_t ticket = 0;
        if (code == 0 && own_frame_ != no_frame && own_frame_ != frame && g.is_leader() && free_awaited(g, c, frame) && take_turn(c, ticket))
            give_turn(c, ticket, frame);
        if (code != 0 && error_ == 0) error_ = code;
    }
    template <typename Group>
    PENSTOCK_HD void finish_all(const Group& g, const cache_view& c) {
        while (first_ != end_) finish_oldest(g, c);
    }
    // Where there is no room for one more, room for many is made, so that many are sent together again.
    template <typename Group>
    PENSTOCK_HD void make_room(const Group& g, const cache_view& c) {
        if (end_ - first_ != depth) return;
        for (std::uint32_t i = 0; i < depth / 2; ++i) finish_oldest(g, c);
    }
    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE void write(const Group& g, const cache_view& c, std::uint64_t word_index) {
        patience waiting(g, 2 * c.request_wait_ns);  // another group may wait for a slot and for the answer
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
                late = static_cast<std::int64_t>(g.broadcast(static_cast<std::uint64_t>(late)));
                code = late == -ETIME ? -ETIMEDOUT : late;
                g.pause(round);
            }
            if (code == 0) continue;
            if (error_ == 0) error_ = code;
            return;
        }
    }
    // A page that is dirty and in nobody's hands; others are left as they are. False: there was no slot for it at once.
    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE bool try_write(const Group& g, const cache_view& c, std::uint64_t word_index) {
        bool idle = false;
        if (g.is_leader()) idle = is_idle_dirty(glance(&c.words[word_index]));
        if (g.broadcast(idle ? 1 : 0) == 0) return true;
        make_room(g, c);
        pending_write w;
        if (hold_together(g, c, word_index, w) != 1) return true;
        const std::int64_t code = begin_write(g, c, false, w);
        if (code == 1) add(g, c, w);
        return code >= 0;
    }
    // One that was begun.
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
    std::uint32_t own_frame_;
};

// What is written back together when a frame is needed, if it is dirty: the aligned part of the file around the page. Neighbours come to
// the file in one call, which costs little more than one page by itself; and the groups that look for frames next find clean pages.
inline constexpr std::uint64_t write_behind_bytes = 512 * 1024;
inline constexpr std::uint64_t most_write_behind_pages = 128;

PENSTOCK_HD inline std::uint64_t write_behind_pages(const cache_view& c) {
    const std::uint64_t fitting = write_behind_bytes >> c.page_shift;
    return fitting < 1 ? 1 : fitting < most_write_behind_pages ? fitting : most_write_behind_pages;
}

// How many groups may write pages back for a frame at a time. So few that the host meets many pages of each before it writes, and that none
// falls far behind the others meanwhile; and no more than the rings can carry.
inline constexpr std::uint64_t enough_write_behind_groups = 16;
PENSTOCK_HD inline std::uint32_t most_write_behind_groups(const cache_view& c) {
    const std::uint64_t fitting = std::uint64_t{c.ring_count} * c.rings[0].slots / (2 * write_behind_pages(c));
    return static_cast<std::uint32_t>(fitting < 1 ? 1 : fitting < enough_write_behind_groups ? fitting : enough_write_behind_groups);
}

// Leader only: 1: the group is one of those that write. -EAGAIN: its turn has come to search again, with the frame that the deadline offers if
// there is one. Or why the wait ended.
template <typename Group>
PENSTOCK_HD inline std::int64_t await_turn(const Group& g, const cache_view& c, patience& deadline) {
    const std::uint32_t most = most_write_behind_groups(c);
    if (begin_write_behind(c, most)) return 1;
    const std::uint32_t ticket = draw_frame_ticket(c);
    for (std::uint32_t round = 0; !turn_came(c, ticket, deadline.offered_frame); ++round) {
        // Its turn first: a frame that was given and not taken is found by the clock only.
        if (begin_write_behind(c, most)) return 1;
        g.pause(round);
        const std::int64_t late = deadline.check(g, c);
        if (late != 0 && late != -ETIME) return late;
        if (late == -ETIME && g.now_ns() - deadline.start_ns() > c.request_wait_ns) break;
    }
    return -EAGAIN;
}

// Leader only, one of the groups that write. The frame of a dirty page; no_frame if none was met: then the deadline offers a free one, or
// who waits is to see for himself.
template <typename Group>
PENSTOCK_HD inline std::uint32_t find_victim(const Group& g, const cache_view& c, patience& deadline) {
    const std::uint64_t all = 2 * std::uint64_t{c.frame_count};
    std::uint32_t frame = no_frame;
    sweep_notes notes;
    keep_nothing nothing;
    if (sweep_clock(g, c, c, mix64(g.now_ns()), all < 1024 ? all : 1024, frame, notes, nothing)) {
        set_frame_word(c, frame, frame_free);
        deadline.offered_frame = frame;
        return no_frame;
    }
    if (notes.dirty_pages == 0)
        for (std::uint32_t i = 0, ticket = 0; i < c.frame_turn_words && take_turn(c, ticket); ++i) give_turn(c, ticket, no_frame);
    return notes.dirty_frame;
}

// Whole group, which has begun to write `w` back: that page and its neighbours. 0: some page was written back; or why none was.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t write_with_neighbours(const Group& g, const cache_view& c, const pending_write& w) {
    const std::uint64_t most = write_behind_pages(c);
    word_run run{};
    if (g.is_leader()) {
        const std::uint64_t page = page_in_frame(c, w.frame);  // named, and its file in this slot, as long as it is held
        const std::uint64_t first = page & ~(most - 1);
        run = words_from(c, w.file_slot, first);
        const bool together = run.index != no_words && page - first < run.pages && run.index + (page - first) == w.word_index;
        if (!together) run = {w.word_index, 1};
        if (run.pages > most) run.pages = most;
    }
    run = {g.broadcast(run.index), g.broadcast(run.pages)};
    write_queue queue(w.frame);
    queue.add(g, c, w);
    bool has_slots = true;
    for (std::uint64_t i = 0; has_slots && i < run.pages; ++i)
        has_slots = run.index + i == w.word_index || queue.try_write(g, c, run.index + i);
    queue.finish_all(g, c);
    if (g.is_leader()) count(g, c, count_dirty_victims, queue.sent());
    return queue.written() != 0 ? 0 : queue.error();
}

// Whole group, which holds nothing, or a pin on one page; needs a frame, and the clock found dirty pages only, one of them in `frame`, or
// others wait (no_frame). 0: try again; a page may have been written back. -ENOBUFS: no page could be, for as long as a group looks for a
// frame; or what a wait ended with.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t clean_victim(const Group& g, const cache_view& c, std::uint32_t frame, patience& deadline) {
    std::uint64_t word_index = no_words;
    std::int64_t code = 0;
    if (g.is_leader()) {
        code = await_turn(g, c, deadline);
        if (code == 1 && frame == no_frame) frame = find_victim(g, c, deadline);
        if (code == 1 && frame != no_frame) word_index = owner_word_index(look_at_frame(c, frame));
    }
    code = static_cast<std::int64_t>(g.broadcast(static_cast<std::uint64_t>(code)));
    word_index = g.broadcast(word_index);
    const bool permitted = code == 1;
    pending_write w;
    if (permitted) code = word_index == no_words ? -EAGAIN : hold_together(g, c, word_index, w);
    const bool others_write = code == -EAGAIN;
    if (code == 1) code = begin_write(g, c, true, w);
    const bool begun = code == 1;
    if (begun) code = write_with_neighbours(g, c, w);
    if (begun && code == 0 && g.is_leader() && free_awaited(g, c, w.frame)) deadline.offered_frame = w.frame;
    if (permitted && g.is_leader()) end_write_behind(c);
    if (code == 0) return 0;
    if (g.is_leader()) {
        const bool searches = deadline.offered_frame != no_frame;
        // Passed over for a round, so that others are tried.
        if (permitted && !others_write) touch(&c.words[word_index], 0);
        else if (permitted && !searches) g.pause(6);
        const std::int64_t late = deadline.check(g, c);
        code = late != 0 && late != -ETIME ? late : 0;
        // While others write pages back it is their speed that counts, not that of a group that looks for a frame.
        if (late == -ETIME && !searches && (!others_write || g.now_ns() - deadline.start_ns() > c.request_wait_ns)) code = -ENOBUFS;
    }
    return static_cast<std::int64_t>(g.broadcast(static_cast<std::uint64_t>(code)));
}

// Whole group. Puts the dirty ones of the pages [first, end) of an open file into the queue, and waits for those that others are writing.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE void queue_pages(const Group& g, const cache_view& c, std::uint32_t file_slot, std::uint64_t first, std::uint64_t end,
                                               write_queue& queue) {
    for (std::uint64_t page = first; page < end;) {
        word_run run{};
        if (g.is_leader()) run = words_from(c, file_slot, page);
        run = {g.broadcast(run.index), g.broadcast(run.pages)};
        if (run.pages > end - page) run.pages = end - page;
        for (std::uint64_t i = 0; run.index != no_words && i < run.pages; i += g.size()) {
            const std::uint64_t mine = i + g.rank();
            if (g.all(mine >= run.pages || !may_have_marks(glance(&c.words[run.index + mine])))) continue;
            for (std::uint64_t k = i; k < i + g.size() && k < run.pages; ++k) queue.write(g, c, run.index + k);
        }
        page += run.pages;
    }
}

// Whole group. Waits for all that is in the queue. 0, or the first error; all the others were tried all the same.
template <typename Group>
PENSTOCK_HD inline std::int64_t finish_flush(const Group& g, const cache_view& c, write_queue& queue) {
    queue.finish_all(g, c);
    atomic_fence();  // pages that were seen clean: what their last write-back did, to the file's count too, comes before what follows
    g.sync();
    return queue.error();
}

// Whole group. Writes back the dirty ones of the pages [first, end) of an open file. As finish_flush.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t flush_pages(const Group g, const cache_view& c, std::uint32_t file_slot, std::uint64_t first, std::uint64_t end) {
    write_queue queue;
    queue_pages(g, c, file_slot, first, end, queue);
    return finish_flush(g, c, queue);
}

// Whole group, one of `shares` that do the same at a time: every shares-th piece of the pages [0, end). Each has a piece of neighbours under
// way, which come to the host together.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t flush_share(const Group g, const cache_view& c, std::uint32_t file_slot, std::uint64_t end, std::uint64_t share,
                                                       std::uint64_t shares) {
    constexpr std::uint64_t piece = write_queue::depth;
    write_queue queue;
    for (std::uint64_t first = share * piece; first < end; first += shares * piece)
        queue_pages(g, c, file_slot, first, end - first < piece ? end : first + piece, queue);
    return finish_flush(g, c, queue);
}

}  // namespace penstock::engine
