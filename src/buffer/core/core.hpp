// The core of the buffer manager: which page's blocks lie in which frames of host and device, and
// what must move at an access. A state machine: calls in, actions out to the caller's sink; no
// bytes, no threads, no system calls. docs/guide/buffer.md has the rules step by step. The thread
// that drives it calls under a lock and carries the actions out in order. Memory is reserved by
// make(); each call takes constant time or time for the blocks of a page, spread over calls.
#pragma once

#include <cerrno>
#include <cstdint>
#include <new>

#include "buffer/core/movement.hpp"
#include "buffer/core/types.hpp"

namespace penstock::buffer {

// Order: lru_order or clock_order. A sink is called with each action; it may look, and must not
// change the core.
template <typename Order, typename Cache = eviction_cache>
class core {
public:
    // Empty, with all it will ever need. 0, -EINVAL for limits that do not pass their check,
    // -ENOMEM.
    int make(const limits& most) {
        if (const int wrong = most.check(); wrong != 0) return wrong;
        try {
            s_ = state<Order, Cache>(most);
        } catch (const std::bad_alloc&) {
            return -ENOMEM;
        }
        return 0;
    }

    // A page that is in the table is used: its blocks are in the host then. Otherwise nothing
    // happens, and it is for the caller to load(). 0, or -EBUSY: too much is pinned, nothing has
    // happened.
    template <typename Sink>
    int touch(page_id id, Sink&& sink, found& at) {
        const std::uint32_t slot = s_.pages.find(id);
        at = slot == nothing ? found::nowhere : place_of(slot);
        if (at == found::nowhere) return 0;
        if (at == found::device && !has_room(slot)) return -EBUSY;
        if (at == found::device) set_own(slot, true);
        for (std::uint32_t i = 0; i < s_.most.blocks_per_page; ++i)
            use(s_, s_.number_at(slot, i), sink);
        if (at == found::device) set_own(slot, false);
        return 0;
    }

    // A page that is nowhere comes in; `contents` has one for each of its blocks, null: all alone.
    // Of one that is incomplete they are known and not looked at: what is absent of it is filled.
    // 0, -EINVAL for a file beyond the limit, -EEXIST, -EBUSY.
    template <typename Sink>
    int load(page_id id, const content_id* contents, Sink&& sink) {
        if (id.file >= s_.most.files) return -EINVAL;
        const std::uint32_t known = s_.pages.find(id);
        if (known != nothing && place_of(known) != found::nowhere) return -EEXIST;
        if (!has_room(nothing)) return -EBUSY;
        if (known != nothing) {
            s_.pages.load_again(known);
            fill(known, nullptr, sink);
            return 0;
        }
        if (s_.pages.full()) {
            if (s_.pages.first_loaded() == nothing) return -EBUSY;
            drop_page(s_, s_.pages.first_loaded(), sink);
        }
        fill(s_.pages.add(id), contents, sink);
        return 0;
    }

    // The page has these bytes from now on and is dirty, wherever it was before; the only way to
    // change a page that may share blocks. Errors as of load().
    template <typename Sink>
    int replace(page_id id, const content_id* contents, Sink&& sink, found& at) {
        std::uint32_t slot = id.file < s_.most.files ? s_.pages.find(id) : nothing;
        at = slot == nothing ? found::nowhere : place_of(slot);
        if (slot == nothing) {
            if (const int failed = load(id, contents, sink); failed != 0) return failed;
            slot = s_.pages.find(id);
        } else {
            if (!has_room(slot)) return -EBUSY;
            const bool pinned = s_.pages.pins(slot) != 0, was_dirty = s_.pages.is_dirty(slot);
            if (was_dirty) count_dirty(s_, slot, false);
            for (std::uint32_t i = 0; pinned && i < s_.most.blocks_per_page; ++i)
                unpin_block(s_.number_at(slot, i));
            for (std::uint32_t i = 0; i < s_.most.blocks_per_page; ++i)
                take_reference(s_, s_.pages.place(slot, i));
            fill(slot, contents, sink);
            if (was_dirty) count_dirty(s_, slot, true);
            for (std::uint32_t i = 0; pinned && i < s_.most.blocks_per_page; ++i)
                pin_block(s_.number_at(slot, i));
        }
        set_dirty(s_, slot, true);
        return 0;
    }

    // The bytes of a page whose blocks are all alone were changed where they lie. -ENOENT if it is
    // not in the table.
    int mark_dirty(page_id id) {
        const std::uint32_t slot = s_.pages.find(id);
        if (slot == nothing) return -ENOENT;
        set_dirty(s_, slot, true);
        return 0;
    }

    // The page is in its file as it is here: the driver of the core has written it back. -ENOENT if
    // it is not in the table.
    int mark_clean(page_id id) {
        const std::uint32_t slot = s_.pages.find(id);
        if (slot == nothing) return -ENOENT;
        set_dirty(s_, slot, false);
        return 0;
    }
    [[nodiscard]] bool is_dirty(page_id id) const {
        const std::uint32_t slot = s_.pages.find(id);
        return slot != nothing && s_.pages.is_dirty(slot);
    }
    [[nodiscard]] std::uint32_t dirty_pages(std::uint32_t file) const {
        return file < s_.most.files ? s_.pages.dirty_pages(file) : 0;
    }
    // The page of the file that became dirty first; false if none is dirty.
    bool first_dirty(std::uint32_t file, page_id& out) const {
        const std::uint32_t slot = file < s_.most.files ? s_.pages.first_dirty(file) : nothing;
        if (slot != nothing) out = s_.pages.id(slot);
        return slot != nothing;
    }
    // How the order finds a victim may depend on the thread that drives the core (lru_order.hpp
    // says what an order is).
    Order& order() { return s_.order; }
    // False: until it is set again, a block for which the host has no room is evicted, and not
    // demoted. What lies in the device stays there, and is found there.
    void set_demotes(bool demotes) { s_.demotes = demotes; }

    // Between pin() and as many unpin() the page's blocks stay in their host frames, and the page
    // in the table. -ENOENT if the page is not in the table, -EAGAIN if a block of it is in the
    // device: touch it first. Of unpin: -ENOENT if it is not pinned.
    int pin(page_id id) {
        const std::uint32_t slot = s_.pages.find(id);
        if (slot == nothing) return -ENOENT;
        if (place_of(slot) != found::host) return -EAGAIN;
        if (s_.pages.pin(slot))
            for (std::uint32_t i = 0; i < s_.most.blocks_per_page; ++i)
                pin_block(s_.number_at(slot, i));
        return 0;
    }
    int unpin(page_id id) {
        const std::uint32_t slot = s_.pages.find(id);
        if (slot == nothing || s_.pages.pins(slot) == 0) return -ENOENT;
        if (s_.pages.unpin(slot))
            for (std::uint32_t i = 0; i < s_.most.blocks_per_page; ++i)
                unpin_block(s_.number_at(slot, i));
        return 0;
    }

    // Every dirty page of the file is written back and clean; what became dirty first, first.
    template <typename Sink>
    int flush(std::uint32_t file, Sink&& sink) {
        if (file >= s_.most.files) return -EINVAL;
        while (s_.pages.first_dirty(file) != nothing)
            write_back(s_, s_.pages.first_dirty(file), sink);
        return 0;
    }

    // The page leaves the table and nothing is written: its load failed, or its file ends before
    // it. -ENOENT, -EBUSY if it is pinned.
    template <typename Sink>
    int forget(page_id id, Sink&& sink) {
        const std::uint32_t slot = s_.pages.find(id);
        if (slot == nothing) return -ENOENT;
        if (s_.pages.pins(slot) != 0) return -EBUSY;
        set_dirty(s_, slot, false);
        drop_page(s_, slot, sink);
        return 0;
    }

    // The page will be touched: makes the processor fetch what that looks at, in three steps with
    // some other calls between, for each needs what the one before has fetched. Nothing but time
    // depends on it.
    PENSTOCK_FETCHING void expect_first(page_id id) const { s_.pages.expect(id); }
    PENSTOCK_FETCHING void expect_second(page_id id) const {
        if (const std::uint32_t slot = s_.pages.likely_slot(id); slot != nothing)
            s_.pages.expect_slot(slot);
    }
    PENSTOCK_FETCHING void expect_third(page_id id) const {
        const std::uint32_t slot = s_.pages.likely_slot(id);
        for (std::uint32_t i = 0; slot != nothing && i < s_.most.blocks_per_page; ++i)
            if (const std::uint32_t number = s_.number_at(slot, i); number != nothing)
                fetch(&s_.blocks[number]);
    }

    [[nodiscard]] const state<Order, Cache>& inside() const { return s_; }

private:
    [[nodiscard]] found place_of(std::uint32_t slot) const {
        found out = found::host;
        for (std::uint32_t i = 0; i < s_.most.blocks_per_page; ++i) {
            const side where = s_.blocks[s_.number_at(slot, i)].where;
            if (where == side::absent) return found::nowhere;
            if (where == side::device) out = found::device;
        }
        return out;
    }

    void set_own(std::uint32_t slot, bool own) {
        for (std::uint32_t i = 0; i < s_.most.blocks_per_page; ++i)
            if (const std::uint32_t number = s_.number_at(slot, i); number != nothing)
                s_.blocks[number].own = own;
    }

    // Whether a page's blocks fit into the host beside those that other pages have pinned. Asked
    // before anything is changed; afterwards every search for a victim finds one.
    [[nodiscard]] bool has_room(std::uint32_t slot) const {
        const std::uint32_t blocks = s_.most.blocks_per_page;
        std::uint32_t pinned = s_.pinned_blocks;
        if (pinned + blocks <= s_.host.size()) return true;
        for (std::uint32_t i = 0; slot != nothing && s_.pages.pins(slot) != 0 && i < blocks; ++i) {
            std::uint32_t before = 0, all = 0;
            for (std::uint32_t k = 0; k < blocks; ++k)
                if (s_.number_at(slot, k) == s_.number_at(slot, i)) before += k < i, ++all;
            if (before == 0 && s_.blocks[s_.number_at(slot, i)].pins == all) --pinned;
        }
        return pinned + blocks <= s_.host.size();
    }

    // Gives every place of a page that points at nothing a block with these contents, and a frame
    // to those of its blocks that have none. The blocks that exist are taken first, so that making
    // room for the others does not drive them out.
    template <typename Sink>
    void fill(std::uint32_t slot, const content_id* contents, Sink& sink) {
        const auto content = [&](std::uint32_t i) {
            return contents == nullptr ? content_id::alone() : contents[i];
        };
        set_own(slot, true);
        for (std::uint32_t i = 0; i < s_.most.blocks_per_page; ++i)
            if (const std::uint32_t place = s_.pages.place(slot, i);
                s_.pages.block_at(place) == nothing)
                if (const std::uint32_t number = s_.blocks.find(content(i)); number != nothing)
                    point(place, number);
        for (std::uint32_t i = 0; i < s_.most.blocks_per_page; ++i) {
            const std::uint32_t place = s_.pages.place(slot, i);
            if (s_.pages.block_at(place) ==
                nothing)  // again, for an earlier block of this page may have the same bytes
                if (const std::uint32_t number = s_.blocks.find(content(i)); number != nothing)
                    point(place, number);
            std::uint32_t number = s_.pages.block_at(place);
            if (number != nothing && s_.blocks[number].where != side::absent) {
                use(s_, number, sink);
                continue;
            }
            const std::uint32_t frame = free_host_frame(s_, sink);
            if (number != nothing) {
                take_away(s_, number);
                put_in_host(s_, number, frame);
            } else {
                number = s_.blocks.make(content(i));
                put_in_host(s_, number, frame);
                point(place, number);
            }
            sink({move::fill, number, nothing, frame, nothing, i, s_.pages.id(slot)});
        }
        set_own(slot, false);
    }
    void point(std::uint32_t place, std::uint32_t number) {
        s_.pages.point(place, s_.blocks, number);
        s_.blocks[number].own = true;
    }

    void pin_block(std::uint32_t number) {
        if (s_.blocks[number].pins++ != 0) return;
        ++s_.pinned_blocks;
        s_.order.hold(s_.blocks, number);
    }
    void unpin_block(std::uint32_t number) {
        if (--s_.blocks[number].pins != 0) return;
        --s_.pinned_blocks;
        s_.order.release(s_.blocks, number);
    }

    state<Order, Cache> s_;
};

}  // namespace penstock::buffer
