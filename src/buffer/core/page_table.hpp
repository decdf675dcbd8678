// The pages that are in the buffer, in slots: which blocks each has, whether it is dirty, how often
// it is pinned. Slots stand in a queue, the unpinned ones in the order in which they were loaded,
// and in lists, the dirty ones of each file in the order in which they became so.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "buffer/core/block_table.hpp"
#include "buffer/core/load_queue.hpp"
#include "buffer/core/number_index.hpp"
#include "buffer/core/types.hpp"
#include "penstock/base/hash.hpp"

namespace penstock::buffer {

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
