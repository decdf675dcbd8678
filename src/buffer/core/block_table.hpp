// The blocks that are known, in the buffer or absent: where each lies, what it holds, and which
// places of pages point at it. A place is one block of one page of the page table.
#pragma once

#include <cstdint>
#include <vector>

#include "buffer/core/number_index.hpp"
#include "buffer/core/types.hpp"
#include "penstock/base/hash.hpp"

namespace penstock::buffer {

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

}  // namespace penstock::buffer
