// The pages that are in the buffer, in slots: which blocks each has, whether it is dirty, how often it is pinned. Slots stand in two lists: the unpinned ones
// in the order in which they were loaded, and the dirty ones of each file in the order in which they became so.
#pragma once

#include <cstdint>
#include <vector>

#include "buffer/number_index.hpp"
#include "buffer/types.hpp"
#include "penstock/base/hash.hpp"

namespace penstock::buffer {

struct page_slot {
    page_id id;
    std::uint32_t pins = 0;
    bool dirty = false, in_use = false;
};

class page_table {
public:
    page_table() = default;
    explicit page_table(const limits& most)
        : slots_(most.pages), blocks_(std::size_t{most.pages} * most.blocks_per_page, nothing), loaded_(most.pages), dirty_(most.pages),
          dirty_of_(most.files), by_id_(most.pages), blocks_per_page_(most.blocks_per_page) {
        free_.reserve(most.pages);
        for (std::uint32_t slot = most.pages; slot-- > 0;) free_.push_back(slot);
    }

    const page_slot& operator[](std::uint32_t slot) const { return slots_[slot]; }
    [[nodiscard]] std::uint32_t limit() const { return static_cast<std::uint32_t>(slots_.size()); }
    [[nodiscard]] std::uint32_t in_use() const { return static_cast<std::uint32_t>(slots_.size() - free_.size()); }
    [[nodiscard]] bool full() const { return free_.empty(); }

    [[nodiscard]] std::uint32_t place(std::uint32_t slot, std::uint32_t i) const { return slot * blocks_per_page_ + i; }
    [[nodiscard]] std::uint32_t slot_of(std::uint32_t place) const { return place / blocks_per_page_; }
    std::uint32_t& block_at(std::uint32_t place) { return blocks_[place]; }
    [[nodiscard]] std::uint32_t block_at(std::uint32_t place) const { return blocks_[place]; }

    [[nodiscard]] std::uint32_t find(page_id id) const {
        return by_id_.find(hash(id), [&](std::uint32_t slot) { return slots_[slot].id == id; });
    }
    // The table is not full, and the page is not in it.
    std::uint32_t add(page_id id) {
        const std::uint32_t slot = free_.back();
        free_.pop_back();
        slots_[slot] = {id, 0, false, true};
        by_id_.add(hash(id), slot);
        loaded_.push_newest(unpinned_, slot);
        return slot;
    }
    // It is clean and not pinned, and its places point at nothing.
    void remove(std::uint32_t slot) {
        loaded_.remove(unpinned_, slot);
        by_id_.remove(hash(slots_[slot].id), slot);
        slots_[slot].in_use = false;
        free_.push_back(slot);
    }

    void set_dirty(std::uint32_t slot, bool dirty) {
        page_slot& page = slots_[slot];
        if (page.dirty == dirty) return;
        page.dirty = dirty;
        if (dirty) dirty_.push_newest(dirty_of_[page.id.file], slot);
        else dirty_.remove(dirty_of_[page.id.file], slot);
    }
    // The slot of the file's page that became dirty first, or `nothing`.
    [[nodiscard]] std::uint32_t first_dirty(std::uint32_t file) const { return dirty_of_[file].oldest; }
    [[nodiscard]] std::uint32_t dirty_pages(std::uint32_t file) const { return dirty_of_[file].size; }

    // Both say whether the page was pinned by nobody before or after. Who is unpinned counts as loaded just now.
    bool pin(std::uint32_t slot) {
        if (slots_[slot].pins++ != 0) return false;
        loaded_.remove(unpinned_, slot);
        return true;
    }
    bool unpin(std::uint32_t slot) {
        if (--slots_[slot].pins != 0) return false;
        loaded_.push_newest(unpinned_, slot);
        return true;
    }
    // The slot of the unpinned page that was loaded first, or `nothing`.
    [[nodiscard]] std::uint32_t first_loaded() const { return unpinned_.oldest; }
    [[nodiscard]] std::uint32_t unpinned() const { return unpinned_.size; }

private:
    static std::uint64_t hash(page_id id) { return mix64(id.page + std::uint64_t{id.file} * 0x9e3779b97f4a7c15ull); }

    std::vector<page_slot> slots_;
    std::vector<std::uint32_t> blocks_;  // by place
    std::vector<std::uint32_t> free_;
    linked loaded_, dirty_;
    list_ends unpinned_;
    std::vector<list_ends> dirty_of_;
    number_index by_id_;
    std::uint32_t blocks_per_page_ = 1;
};

}  // namespace penstock::buffer
