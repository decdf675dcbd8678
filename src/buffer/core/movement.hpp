// Which block leaves its frame next, and how blocks move between the frames of both sides and out
// of the buffer: the steps of docs/guide/buffer.md below an access. Each step tells the sink what
// bytes must move before it changes what is known.
#pragma once

#include <cstdint>
#include <vector>

#include "buffer/core/tables.hpp"
#include "buffer/core/types.hpp"

namespace penstock::buffer {

// Blocks of one side in the order in which they came: what both LRU and the device's part are.
class block_list {
public:
    void enter(block_table& blocks, std::uint32_t number) {
        push_newest(ends_, number, blocks.order());
    }
    void leave(block_table& blocks, std::uint32_t number) {
        take_out(ends_, number, blocks.order());
    }
    // The block that came first of those that may go.
    template <typename MayGo>
    [[nodiscard]] std::uint32_t first(const block_table& blocks, const MayGo& may_go) const {
        std::uint32_t at = ends_.oldest;
        while (at != nothing && !may_go(at)) at = blocks[at].order.newer;
        return at;
    }
    // The block that came first, whether it may go or not.
    [[nodiscard]] std::uint32_t oldest() const { return ends_.oldest; }
    [[nodiscard]] std::uint32_t newest() const { return ends_.newest; }
    // For the check: how many blocks can be found.
    [[nodiscard]] std::uint32_t listed() const { return ends_.size; }

private:
    list_ends ends_;
};

// LRU over the host's blocks, as in the paper: the block that was not used for longest goes.
//
// Every order has this shape. It is a template parameter of the core and no virtual call, for
// `touch` is called for every block of every hit. A block enters when it has come to its frame in
// the host, and leaves with it. Between hold() and release() a block is pinned and no victim;
// victim() is called only where every frame has a block and one of them may go.
class lru_order : public block_list {
public:
    explicit lru_order(std::uint32_t = 0) {}

    void touch(block_table& blocks, std::uint32_t number) {
        if (blocks[number].pins != 0 || newest() == number) return;
        leave(blocks, number);
        enter(blocks, number);
    }
    // A pinned block stands in no list, so that searches need not pass it; it has been in use until
    // it comes back.
    void hold(block_table& blocks, std::uint32_t number) { leave(blocks, number); }
    void release(block_table& blocks, std::uint32_t number) { enter(blocks, number); }

    template <typename MayGo>
    std::uint32_t victim(block_table& blocks, const MayGo& may_go) {
        return first(blocks, may_go);
    }
};

// CLOCK over the host's frames, as the engine has it (docs/decisions/replacement.md): a hand goes
// round the frames, clears the use bits that it finds set, and takes the first block whose bit is
// clear. A block begins with its bit clear; a hit sets it where it is clear and writes nothing
// else.
class clock_order {
public:
    explicit clock_order(std::uint32_t frames = 0) : in_frame_(frames, nothing) {}

    void enter(block_table& blocks, std::uint32_t number) {
        blocks[number].used = false;
        in_frame_[blocks[number].frame] = number;
    }
    void leave(block_table&, std::uint32_t) {}
    void touch(block_table& blocks, std::uint32_t number) {
        if (!blocks[number].used) blocks[number].used = true;
    }
    // The hand asks of each block whether it may go, and passes a pinned one by.
    void hold(block_table&, std::uint32_t) {}
    void release(block_table&, std::uint32_t) {}

    // A block that may go is found within two rounds.
    template <typename MayGo>
    std::uint32_t victim(block_table& blocks, const MayGo& may_go) {
        for (std::uint64_t steps = 0; steps < 2 * std::uint64_t{in_frame_.size()}; ++steps) {
            const std::uint32_t number = in_frame_[hand_];
            hand_ = hand_ + 1 == in_frame_.size() ? 0 : hand_ + 1;
            if (!may_go(number)) continue;
            if (!blocks[number].used) return number;
            blocks[number].used = false;
        }
        return nothing;
    }

private:
    std::vector<std::uint32_t> in_frame_;
    std::uint32_t hand_ = 0;
};

// The order of the device's blocks: a demoted block enters at the head, the tail goes when room is
// needed, and a block that is used leaves. It continues the host's order, which is why nothing is
// ever touched here.
class eviction_cache : public block_list {
public:
    // The block nearest to the tail that may go.
    template <typename MayGo>
    [[nodiscard]] std::uint32_t tail(const block_table& blocks, const MayGo& may_go) const {
        return first(blocks, may_go);
    }
};

// What is known of pages, blocks and frames, whatever the order. The driver of the core may look at
// it between two calls, and changes nothing.
struct core_tables {
    core_tables() = default;
    explicit core_tables(const limits& how_much)
        : most(how_much),
          pages(how_much),
          blocks(how_much.blocks()),
          host(how_much.host_frames()),
          device(how_much.device_frames()) {}

    // Block `i` of a page, or null if the page is not in the table.
    [[nodiscard]] const block* block_of(page_id id, std::uint32_t i) const {
        const std::uint32_t number = number_of(id, i);
        return number == nothing ? nullptr : &blocks[number];
    }
    [[nodiscard]] std::uint32_t number_of(page_id id, std::uint32_t i) const {
        const std::uint32_t slot = pages.find(id);
        return slot == nothing ? nothing : number_at(slot, i);
    }
    [[nodiscard]] std::uint32_t number_at(std::uint32_t slot, std::uint32_t i) const {
        return pages.block_at(pages.place(slot, i));
    }
    // In the table, and none of its blocks is absent.
    [[nodiscard]] bool is_complete(page_id id) const {
        const std::uint32_t slot = pages.find(id);
        for (std::uint32_t i = 0; slot != nothing && i < most.blocks_per_page; ++i)
            if (const std::uint32_t number = number_at(slot, i);
                number == nothing || blocks[number].where == side::absent)
                return false;
        return slot != nothing;
    }
    // Calls with the page_id and the place of everything that points at a block; a page that has it
    // twice comes twice.
    template <typename Call>
    void each_page_of(std::uint32_t number, const Call& call) const {
        for (std::uint32_t at = blocks[number].references.newest; at != nothing;
             at = pages.older_reference(at))
            call(pages.id(pages.slot_of(at)), at % most.blocks_per_page);
    }

    limits most;
    page_table pages;
    block_table blocks;
    frame_pool host, device;
    list_ends absent;  // blocks, what became so first oldest
    std::uint32_t pinned_blocks = 0;
    bool demotes = true;  // false: what leaves the host leaves the buffer
};

template <typename Order, typename Cache>
struct state : core_tables {
    state() = default;
    explicit state(const limits& how_much) : core_tables(how_much), order(how_much.host_frames()) {}

    Order order;  // of the host's blocks
    Cache cache;  // of the device's
};

template <typename State>
void put_in_host(State& s, std::uint32_t number, std::uint32_t frame) {
    s.blocks[number].where = side::host;
    s.blocks[number].frame = frame;
    s.order.enter(s.blocks, number);
}

template <typename State>
void put_in_device(State& s, std::uint32_t number, std::uint32_t frame) {
    s.blocks[number].where = side::device;
    s.blocks[number].frame = frame;
    s.cache.enter(s.blocks, number);
}

// Its frame is free then, if it has one; what list it is in next, the caller says.
template <typename State>
void take_away(State& s, std::uint32_t number) {
    const block& left = s.blocks[number];
    if (left.where == side::host) {
        s.order.leave(s.blocks, number);
        s.host.give(left.frame);
    } else if (left.where == side::device) {
        s.cache.leave(s.blocks, number);
        s.device.give(left.frame);
    } else {
        take_out(s.absent, number, s.blocks.order());
    }
}

// The place points at nothing then. A block to which no place points is free, wherever it lies.
template <typename State>
void take_reference(State& s, std::uint32_t place) {
    const std::uint32_t number = s.pages.block_at(place);
    s.pages.point_at_nothing(place, s.blocks);
    if (s.blocks[number].references.size != 0) return;
    take_away(s, number);
    s.blocks.remove(number);
}

// How many places of dirty pages point at a block, block::dirty, is known where blocks may become
// absent, and no other thread asks.
template <typename State>
void count_dirty(State& s, std::uint32_t slot, bool more) {
    if (s.most.absent_blocks == 0) return;
    for (std::uint32_t i = 0; i < s.most.blocks_per_page; ++i) {
        block& entry = s.blocks[s.pages.block_at(s.pages.place(slot, i))];
        if (more) ++entry.dirty;
        else --entry.dirty;
    }
}
template <typename State>
void set_dirty(State& s, std::uint32_t slot, bool dirty) {
    if (s.pages.is_dirty(slot) == dirty) return;
    s.pages.set_dirty(slot, dirty);
    count_dirty(s, slot, dirty);
}

// The page is clean then, and stays. A dirty page is complete: its blocks all have frames.
template <typename State, typename Sink>
void write_back(State& s, std::uint32_t slot, Sink& sink) {
    for (std::uint32_t i = 0; i < s.most.blocks_per_page; ++i) {
        action tell{move::write_back};
        tell.block = s.pages.block_at(s.pages.place(slot, i));
        const block& from = s.blocks[tell.block];
        (from.where == side::host ? tell.host : tell.device) = from.frame;
        tell.place = i;
        tell.page = s.pages.id(slot);
        sink(tell);
    }
    set_dirty(s, slot, false);
}

template <typename State, typename Sink>
void drop_page(State& s, std::uint32_t slot, Sink& sink) {
    if (s.pages.is_dirty(slot)) write_back(s, slot, sink);
    action tell{move::drop};
    tell.page = s.pages.id(slot);
    sink(tell);
    for (std::uint32_t i = 0; i < s.most.blocks_per_page; ++i)
        take_reference(s, s.pages.place(slot, i));
    s.pages.remove(slot);
}

// Drops every page that has the block; with the last of them the block is free.
template <typename State, typename Sink>
void drop_pages_of(State& s, std::uint32_t number, Sink& sink) {
    while (s.blocks[number].references.size != 0)
        drop_page(s, s.pages.slot_of(s.blocks[number].references.newest), sink);
}

// Whether places of two pages or more point at a block. One page has at most D of them, so this
// takes no longer.
template <typename State>
[[nodiscard]] bool is_of_many_pages(const State& s, std::uint32_t number) {
    const std::uint32_t newest = s.blocks[number].references.newest;
    for (std::uint32_t at = newest; at != nothing; at = s.pages.older_reference(at))
        if (s.pages.slot_of(at) != s.pages.slot_of(newest)) return true;
    return false;
}

// What is dirty was pointed at since all of the block's pages were clean last, so its places are
// the newest, and no reference is passed by more than once.
template <typename State, typename Sink>
void make_absent(State& s, std::uint32_t number, Sink& sink) {
    block& victim = s.blocks[number];
    for (std::uint32_t at = victim.references.newest; victim.dirty != 0;
         at = s.pages.older_reference(at))
        if (s.pages.is_dirty(s.pages.slot_of(at))) write_back(s, s.pages.slot_of(at), sink);
    action tell{move::vanish, number};
    (victim.where == side::host ? tell.host : tell.device) = victim.frame;
    sink(tell);
    take_away(s, number);
    victim.where = side::absent;
    push_newest(s.absent, number, s.blocks.order());
}

// The block's frame is free then. A block of several pages becomes absent; where there are as many
// as may be, what became so first goes with its pages, which are clean. Those of the page that is
// handled stay; if there are no others the block goes with its pages, as one does that only one
// page has.
template <typename State, typename Sink>
void evict(State& s, std::uint32_t number, Sink& sink) {
    while (s.most.absent_blocks != 0 && is_of_many_pages(s, number)) {
        if (s.absent.size < s.most.absent_blocks) return make_absent(s, number, sink);
        std::uint32_t first = s.absent.oldest;
        while (first != nothing && s.blocks[first].own) first = s.blocks[first].order.newer;
        if (first == nothing) break;
        drop_pages_of(s, first, sink);
    }
    drop_pages_of(s, number, sink);
}

template <typename State>
std::uint32_t host_victim(State& s) {
    return s.order.victim(s.blocks, [&](std::uint32_t number) {
        return s.blocks[number].pins == 0 && !s.blocks[number].own;
    });
}

// Fetches from memory what evicting the blocks from `first` on will look at, a step further for
// each every time. In a buffer that is larger than the processor's caches a miss would wait for
// four such looks one after the other.
template <typename State>
PENSTOCK_FETCHING void expect_evictions(const State& s, std::uint32_t first) {
    if (first == nothing) return;
    s.pages.expect_drop_soon(s.blocks[first].references.newest);
    const std::uint32_t second = s.blocks[first].order.newer;
    if (second == nothing) return;
    s.pages.expect_slot(s.pages.slot_of(s.blocks[second].references.newest));
    if (const std::uint32_t third = s.blocks[second].order.newer; third != nothing)
        fetch(&s.blocks[third]);
}

// A host frame that is free. Eviction comes before demotion, since pages that go may leave host
// frames free, and then nothing need be demoted.
template <typename State, typename Sink>
std::uint32_t free_host_frame(State& s, Sink& sink) {
    while (s.host.full()) {
        const bool demotes = s.device.size() != 0 && s.demotes;
        if (demotes && s.device.full()) {
            evict(
                s,
                s.cache.tail(s.blocks, [&](std::uint32_t number) { return !s.blocks[number].own; }),
                sink);
            expect_evictions(s, s.cache.oldest());
            continue;
        }
        const std::uint32_t number = host_victim(s);
        if (!demotes) {
            evict(s, number, sink);
            if constexpr (requires { s.order.oldest(); }) expect_evictions(s, s.order.oldest());
            continue;
        }
        action tell{move::demote, number};
        tell.host = s.blocks[number].frame;
        tell.device = s.device.take();
        sink(tell);
        s.order.leave(s.blocks, number);
        s.host.give(tell.host);
        put_in_device(s, number, tell.device);
    }
    return s.host.take();
}

// From the device to a free host frame, or in exchange with a victim.
template <typename State, typename Sink>
void promote(State& s, std::uint32_t number, Sink& sink) {
    action tell{s.host.full() ? move::exchange : move::promote, number};
    tell.device = s.blocks[number].frame;
    if (tell.kind == move::exchange) tell.other = host_victim(s);
    tell.host = tell.kind == move::exchange ? s.blocks[tell.other].frame : s.host.take();
    sink(tell);
    s.cache.leave(s.blocks, number);
    if (tell.kind == move::exchange) {
        s.order.leave(s.blocks, tell.other);
        put_in_device(s, tell.other, tell.device);
    } else {
        s.device.give(tell.device);
    }
    put_in_host(s, number, tell.host);
}

// What an access does to each block of its page: used where it is in the host, brought there where
// it is not.
template <typename State, typename Sink>
void use(State& s, std::uint32_t number, Sink& sink) {
    if (s.blocks[number].where == side::host) s.order.touch(s.blocks, number);
    else promote(s, number, sink);
}

}  // namespace penstock::buffer
