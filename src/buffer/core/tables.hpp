// What the core knows of pages, blocks and frames: which pages are in the table, which blocks each
// has, where each block lies, and which frames are free. Memory is reserved when a table is made.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "buffer/core/types.hpp"
#include "penstock/base/hash.hpp"

namespace penstock::buffer {

// A hash table from keys to numbers below a limit. The keys lie with the owner of the numbers; an
// entry has the number and 32 bits of its key's hash, so that a search hardly ever looks at a key
// that is not the one. At most half full, entries in a row from where the hash says, rows closed up
// when one goes.
class number_index {
public:
    explicit number_index(std::uint32_t limit = 0)
        : entries_(std::min(std::bit_ceil(2 * std::uint64_t{limit} + 2), std::uint64_t{1} << 32)),
          mask_(static_cast<std::uint32_t>(entries_.size() - 1)) {}

    // The number with this hash for which `is_it` holds, or `nothing`.
    template <typename IsIt>
    [[nodiscard]] std::uint32_t find(std::uint64_t hash, const IsIt& is_it) const {
        const auto part = static_cast<std::uint32_t>(hash);
        for (std::uint32_t at = part & mask_; entries_[at].number != nothing; at = (at + 1) & mask_)
            if (entries_[at].hash == part && is_it(entries_[at].number)) return entries_[at].number;
        return nothing;
    }
    void add(std::uint64_t hash, std::uint32_t number) {
        const auto part = static_cast<std::uint32_t>(hash);
        std::uint32_t at = part & mask_;
        while (entries_[at].number != nothing) at = (at + 1) & mask_;
        entries_[at] = {number, part};
    }
    // `number` was added with this hash.
    void remove(std::uint64_t hash, std::uint32_t number) {
        std::uint32_t hole = static_cast<std::uint32_t>(hash) & mask_;
        while (entries_[hole].number != number) hole = (hole + 1) & mask_;
        // An entry may fill the hole if a search for it begins at the hole or before.
        for (std::uint32_t at = (hole + 1) & mask_; entries_[at].number != nothing;
             at = (at + 1) & mask_) {
            if (((at - entries_[at].hash) & mask_) < ((at - hole) & mask_)) continue;
            entries_[hole] = entries_[at];
            hole = at;
        }
        entries_[hole].number = nothing;
    }
    // The number that a search for this hash will look at first, or `nothing`.
    [[nodiscard]] std::uint32_t likely(std::uint64_t hash) const {
        return find(hash, [](std::uint32_t) { return true; });
    }
    // This hash will be looked for.
    PENSTOCK_FETCHING void expect(std::uint64_t hash) const {
        fetch(&entries_[static_cast<std::uint32_t>(hash) & mask_]);
    }

private:
    struct entry {
        std::uint32_t number = nothing, hash = 0;
    };
    std::vector<entry> entries_;
    std::uint32_t mask_;
};

// Slots in the order in which they were put here, of which the oldest is wanted now and then and
// most leave from the middle. A slot that leaves stays behind as a stale entry, told by its number;
// when the ring is full the stale ones are swept out. So a slot that comes or goes costs no look at
// others.
class load_queue {
public:
    explicit load_queue(std::uint32_t slots = 0) : ring_(2 * std::size_t{slots}) {}

    // turn(slot) is a reference to the slot's number in the queue; 0: it is not in the queue.
    template <typename Turn>
    void push(std::uint32_t slot, const Turn& turn) {
        if (size_ == ring_.size()) sweep(turn);
        last_ = last_ + 1 == 0 ? 1 : last_ + 1;
        turn(slot) = last_;
        ring_[at(size_++)] = {slot, last_};
    }
    template <typename Turn>
    void remove(std::uint32_t slot, const Turn& turn) {
        turn(slot) = 0;
    }
    // The slot that came first of those that are here, or `nothing`.
    template <typename Turn>
    std::uint32_t first(const Turn& turn) {
        while (size_ != 0 && stale(ring_[first_], turn)) {
            first_ = at(1);
            --size_;
        }
        return size_ == 0 ? nothing : ring_[first_].slot;
    }
    // For the check.
    template <typename Turn>
    [[nodiscard]] std::uint32_t count(const Turn& turn) const {
        std::uint32_t live = 0;
        for (std::size_t i = 0; i < size_; ++i) live += !stale(ring_[at(i)], turn);
        return live;
    }

private:
    struct entry {
        std::uint32_t slot = 0, turn = 0;
    };
    [[nodiscard]] std::size_t at(std::size_t i) const {
        return first_ + i < ring_.size() ? first_ + i : first_ + i - ring_.size();
    }
    template <typename Turn>
    static bool stale(const entry& queued, const Turn& turn) {
        return turn(queued.slot) != queued.turn;
    }
    // At most half of the entries are in use, so the next sweep is as many pushes away.
    template <typename Turn>
    void sweep(const Turn& turn) {
        std::size_t kept = 0;
        for (std::size_t i = 0; i < size_; ++i)
            if (const entry queued = ring_[at(i)]; !stale(queued, turn)) ring_[at(kept++)] = queued;
        size_ = kept;
    }

    std::vector<entry> ring_;
    std::size_t first_ = 0, size_ = 0;
    std::uint32_t last_ = 0;
};

// The free frames of one side: a stack, with frame 0 on top at the start. What was freed last is
// taken first.
class frame_pool {
public:
    explicit frame_pool(std::uint32_t frames = 0) : size_(frames) {
        free_.reserve(frames);
        for (std::uint32_t frame = frames; frame-- > 0;) free_.push_back(frame);
    }

    [[nodiscard]] std::uint32_t size() const { return size_; }
    [[nodiscard]] bool full() const { return free_.empty(); }
    [[nodiscard]] std::uint32_t in_use() const {
        return static_cast<std::uint32_t>(size_ - free_.size());
    }

    std::uint32_t take() {
        const std::uint32_t frame = free_.back();
        free_.pop_back();
        return frame;
    }
    void give(std::uint32_t frame) { free_.push_back(frame); }

private:
    std::uint32_t size_;
    std::vector<std::uint32_t> free_;
};

// The blocks that are known, in the buffer or absent: where each lies, what it holds, and which
// places of pages point at it. A place is one block of one page of the page table.

// All that is known of a block, in one line of the processor's cache: a step through a large buffer
// waits for memory, and for nothing else.
struct alignas(64) block {
    content_id content;
    list_ends references;    // the places that point here; none: the block is not in use
    neighbours order;        // in the list of its side, or of what is absent
    std::uint32_t pins = 0;  // places among them whose page is pinned
    // And whose page is dirty; counted only where blocks may become absent.
    std::uint32_t dirty = 0;
    std::uint32_t frame = 0;
    side where = side::host;
    bool own = false;   // of the page that is being handled, so no victim now
    bool used = false;  // CLOCK's bit
};

class block_table {
public:
    explicit block_table(std::uint32_t blocks = 0) : blocks_(blocks), by_content_(blocks) {
        free_.reserve(blocks);
        for (std::uint32_t number = blocks; number-- > 0;) free_.push_back(number);
    }

    block& operator[](std::uint32_t number) { return blocks_[number]; }
    const block& operator[](std::uint32_t number) const { return blocks_[number]; }
    [[nodiscard]] std::uint32_t limit() const { return static_cast<std::uint32_t>(blocks_.size()); }
    [[nodiscard]] std::uint32_t in_use() const {
        return static_cast<std::uint32_t>(blocks_.size() - free_.size());
    }

    // The block with these bytes, or `nothing`.
    [[nodiscard]] std::uint32_t find(content_id content) const {
        if (content == content_id::alone()) return nothing;
        return by_content_.find(hash(content), [&](std::uint32_t number) {
            return blocks_[number].content == content;
        });
    }

    // There are as many numbers as frames and absent blocks, so a block that has a frame has a
    // number.
    std::uint32_t make(content_id content) {
        const std::uint32_t number = free_.back();
        free_.pop_back();
        blocks_[number] = {};
        blocks_[number].content = content;
        if (content != content_id::alone()) by_content_.add(hash(content), number);
        return number;
    }
    // No thread points at it any more.
    void remove(std::uint32_t number) {
        if (blocks_[number].content != content_id::alone())
            by_content_.remove(hash(blocks_[number].content), number);
        free_.push_back(number);
    }

    // The links of the lists of both sides.
    auto order() {
        return [this](std::uint32_t number) -> neighbours& { return blocks_[number].order; };
    }

private:
    // Contents that differ in the last two bits only lie side by side, so that looking for all four
    // is one look into memory (content_finder.hpp).
    static std::uint64_t hash(content_id content) {
        return mix64(content.first + mix64((content.second >> 2) + 0x9e3779b97f4a7c15ull)) +
               (content.second & 3);
    }

    std::vector<block> blocks_;
    std::vector<std::uint32_t> free_;
    number_index by_content_;
};

// The pages that are in the buffer, in slots: which blocks each has, whether it is dirty, how often
// it is pinned. Slots stand in a queue, the unpinned ones in the order in which they were loaded,
// and in lists, the dirty ones of each file in the order in which they became so.
class page_table {
    auto turn() {
        return [this](std::uint32_t slot) -> std::uint32_t& { return slots_[slot].turn; };
    }
    auto references() {
        return [this](std::uint32_t place) -> neighbours& { return places_[place].references; };
    }

public:
    page_table() = default;
    explicit page_table(const limits& most)
        : slots_(most.pages),
          places_(std::size_t{most.pages} * most.blocks_per_page),
          loaded_(most.pages),
          dirty_of_(most.files),
          by_id_(most.pages),
          place_bits_(static_cast<std::uint32_t>(std::countr_zero(most.blocks_per_page))) {
        free_.reserve(most.pages);
        for (std::uint32_t slot = most.pages; slot-- > 0;) free_.push_back(slot);
    }

    [[nodiscard]] std::uint32_t limit() const { return static_cast<std::uint32_t>(slots_.size()); }
    [[nodiscard]] std::uint32_t in_use() const {
        return static_cast<std::uint32_t>(slots_.size() - free_.size());
    }
    [[nodiscard]] bool full() const { return free_.empty(); }

    [[nodiscard]] page_id id(std::uint32_t slot) const {
        return {slots_[slot].page, slots_[slot].file};
    }
    [[nodiscard]] bool is_in_use(std::uint32_t slot) const { return slots_[slot].in_use != 0; }
    [[nodiscard]] bool is_dirty(std::uint32_t slot) const { return slots_[slot].dirty != 0; }
    [[nodiscard]] std::uint32_t pins(std::uint32_t slot) const { return slots_[slot].pins; }

    // Places: which block one points at, and the list of those that point at one block.
    [[nodiscard]] std::uint32_t place(std::uint32_t slot, std::uint32_t i) const {
        return (slot << place_bits_) + i;
    }
    [[nodiscard]] std::uint32_t slot_of(std::uint32_t place) const { return place >> place_bits_; }
    [[nodiscard]] std::uint32_t block_at(std::uint32_t place) const { return places_[place].block; }
    [[nodiscard]] std::uint32_t older_reference(std::uint32_t place) const {
        return places_[place].references.older;
    }
    void point(std::uint32_t place, block_table& blocks, std::uint32_t number) {
        places_[place].block = number;
        push_newest(blocks[number].references, place, references());
    }
    void point_at_nothing(std::uint32_t place, block_table& blocks) {
        take_out(blocks[places_[place].block].references, place, references());
        places_[place].block = nothing;
    }

    [[nodiscard]] std::uint32_t find(page_id id) const {
        return by_id_.find(hash(id), [&](std::uint32_t slot) {
            return slots_[slot].page == id.page && slots_[slot].file == id.file;
        });
    }
    // Fetching from memory ahead of use: where a page will be looked up; what dropping a page looks
    // at, in two steps of which the second needs what the first fetched.
    PENSTOCK_FETCHING void expect(page_id id) const { by_id_.expect(hash(id)); }
    // The slot that a search for the page will look at first, or `nothing`; needs what expect()
    // fetched.
    [[nodiscard]] std::uint32_t likely_slot(page_id id) const { return by_id_.likely(hash(id)); }
    PENSTOCK_FETCHING void expect_slot(std::uint32_t slot) const {
        fetch(&slots_[slot]);
        fetch(&places_[place(slot, 0)]);
    }
    PENSTOCK_FETCHING void expect_drop_soon(std::uint32_t place) const {
        by_id_.expect(hash(id(slot_of(place))));
    }
    // The table is not full, and the page is not in it.
    std::uint32_t add(page_id id) {
        const std::uint32_t slot = free_.back();
        free_.pop_back();
        slots_[slot] = {};
        slots_[slot].page = id.page;
        slots_[slot].file = id.file;
        slots_[slot].in_use = 1;
        by_id_.add(hash(id), slot);
        loaded_.push(slot, turn());
        return slot;
    }
    // A page that is not pinned counts as loaded just now.
    void load_again(std::uint32_t slot) {
        loaded_.remove(slot, turn());
        loaded_.push(slot, turn());
    }
    // It is clean and not pinned, and its places point at nothing.
    void remove(std::uint32_t slot) {
        loaded_.remove(slot, turn());
        by_id_.remove(hash(id(slot)), slot);
        slots_[slot].in_use = 0;
        free_.push_back(slot);
    }

    void set_dirty(std::uint32_t slot, bool dirty) {
        if (is_dirty(slot) == dirty) return;
        slots_[slot].dirty = dirty ? 1 : 0;
        list_ends& ends = dirty_of_[slots_[slot].file];
        const auto links = [this](std::uint32_t n) -> neighbours& { return slots_[n].dirty_pages; };
        if (dirty) push_newest(ends, slot, links);
        else take_out(ends, slot, links);
    }
    // The slot of the file's page that became dirty first, or `nothing`.
    [[nodiscard]] std::uint32_t first_dirty(std::uint32_t file) const {
        return dirty_of_[file].oldest;
    }
    [[nodiscard]] std::uint32_t dirty_pages(std::uint32_t file) const {
        return dirty_of_[file].size;
    }

    // Both say whether the page was pinned by no thread before or after. A page that is unpinned
    // counts as loaded just now.
    bool pin(std::uint32_t slot) {
        if (slots_[slot].pins++ != 0) return false;
        loaded_.remove(slot, turn());
        return true;
    }
    bool unpin(std::uint32_t slot) {
        if (--slots_[slot].pins != 0) return false;
        loaded_.push(slot, turn());
        return true;
    }
    // The slot of the unpinned page that was loaded first, or `nothing`.
    [[nodiscard]] std::uint32_t first_loaded() { return loaded_.first(turn()); }
    [[nodiscard]] std::uint32_t unpinned() const {
        return loaded_.count([this](std::uint32_t slot) { return slots_[slot].turn; });
    }

private:
    // Half a line of the processor's cache.
    struct alignas(32) page_slot {
        std::uint64_t page = 0;
        std::uint32_t file = 0;
        std::uint32_t pins : 30 = 0, dirty : 1 = 0, in_use : 1 = 0;
        neighbours dirty_pages;
        std::uint32_t turn = 0;  // in the queue of loaded ones
    };
    struct place_words {
        std::uint32_t block = nothing;
        neighbours references;
    };
    static std::uint64_t hash(page_id id) {
        return mix64(id.page + std::uint64_t{id.file} * 0x9e3779b97f4a7c15ull);
    }

    std::vector<page_slot> slots_;
    std::vector<place_words> places_;
    std::vector<std::uint32_t> free_;
    load_queue loaded_;
    std::vector<list_ends> dirty_of_;
    number_index by_id_;
    std::uint32_t place_bits_ = 0;
};

}  // namespace penstock::buffer
