// Counts again what the core counts as it goes, for tests: takes time for everything there is.
#pragma once

#include <cstdint>
#include <vector>

#include "buffer/core/movement.hpp"

namespace penstock::buffer {

namespace detail {

// What the places of all pages say of the blocks.
struct recount {
    std::vector<std::uint32_t> references, pins, dirty;
    std::vector<std::uint32_t> dirty_of;
    std::vector<bool> host, device;  // frames with a block
    std::uint32_t pages = 0, unpinned = 0;
};

template <typename State>
const char* check_pages(const State& s, recount& all) {
    for (std::uint32_t slot = 0; slot < s.pages.limit(); ++slot) {
        for (std::uint32_t i = 0; i < s.most.blocks_per_page; ++i) {
            const std::uint32_t number = s.pages.block_at(s.pages.place(slot, i));
            if (s.pages.is_in_use(slot) != (number != nothing))
                return "a page in use lacks a block, or one that is free has one";
            if (number == nothing) continue;
            ++all.references[number];
            if (s.pages.pins(slot) != 0) ++all.pins[number];
            if (s.pages.is_dirty(slot) && s.most.absent_blocks != 0) ++all.dirty[number];
            if (s.pages.is_dirty(slot) && s.blocks[number].where == side::absent)
                return "a dirty page has an absent block";
            if (s.pages.pins(slot) != 0 && s.blocks[number].where != side::host)
                return "a pinned page has a block that is not in the host";
        }
        if (!s.pages.is_in_use(slot)) continue;
        if (s.pages.find(s.pages.id(slot)) != slot) return "a page is not found under its name";
        ++all.pages;
        all.unpinned += s.pages.pins(slot) == 0;
        all.dirty_of[s.pages.id(slot).file] += s.pages.is_dirty(slot);
    }
    if (all.pages != s.pages.in_use()) return "the pages in use are not as many as counted";
    if (all.unpinned != s.pages.unpinned())
        return "the queue of unpinned pages has not all of them";
    for (std::uint32_t file = 0; file < s.most.files; ++file)
        if (all.dirty_of[file] != s.pages.dirty_pages(file))
            return "a file's list of dirty pages has not all of them";
    return nullptr;
}

template <typename State>
const char* check_block(const State& s, recount& all, std::uint32_t number) {
    const block& entry = s.blocks[number];
    if (entry.references.size != all.references[number])
        return "a block has other references than counted";
    if (entry.pins != all.pins[number]) return "a block has other pins than counted";
    if (entry.references.size == 0) return nullptr;
    if (entry.dirty != all.dirty[number])
        return "other references of a block are of dirty pages than counted";
    if (entry.own) return "a block is still kept for a page that was handled";
    std::uint32_t listed = 0;
    for (std::uint32_t at = entry.references.newest; at != nothing;
         at = s.pages.older_reference(at), ++listed)
        if (s.pages.block_at(at) != number || listed > all.references[number])
            return "a place in the list of a block points elsewhere";
    if (listed != all.references[number])
        return "the list of a block has not all places that point at it";
    if (entry.content != content_id::alone() && s.blocks.find(entry.content) != number)
        return "two blocks have the same content, or one is not found by it";
    if (entry.where == side::absent)
        return entry.content == content_id::alone() ? "a block that is alone is absent" : nullptr;
    std::vector<bool>& frames = entry.where == side::host ? all.host : all.device;
    if (entry.frame >= frames.size() || frames[entry.frame])
        return "a block is in a frame that does not exist or has another block";
    frames[entry.frame] = true;
    return nullptr;
}

}  // namespace detail

// Null if pages, blocks, frames, lists and counts agree, or what does not.
template <typename State>
const char* check(const State& s) {
    const std::vector<std::uint32_t> none(s.blocks.limit());
    detail::recount all{none,
                        none,
                        none,
                        std::vector<std::uint32_t>(s.most.files),
                        std::vector<bool>(s.host.size()),
                        std::vector<bool>(s.device.size())};
    if (const char* const wrong = detail::check_pages(s, all); wrong != nullptr) return wrong;
    std::uint32_t in_host = 0, in_device = 0, absent = 0, pinned = 0;
    for (std::uint32_t number = 0; number < s.blocks.limit(); ++number) {
        if (const char* const wrong = detail::check_block(s, all, number); wrong != nullptr)
            return wrong;
        if (all.references[number] == 0) continue;
        ++(s.blocks[number].where == side::host     ? in_host
           : s.blocks[number].where == side::device ? in_device
                                                    : absent);
        pinned += all.pins[number] != 0;
    }
    if (absent != s.absent.size || absent > s.most.absent_blocks)
        return "other blocks are absent than listed, or more than may be";
    if (in_host + in_device + absent != s.blocks.in_use())
        return "the blocks in use are not as many as counted";
    if (in_host != s.host.in_use() || in_device != s.device.in_use())
        return "a frame without a block is not free";
    if (pinned != s.pinned_blocks) return "other blocks are pinned than counted";
    if (in_device != s.cache.listed()) return "the device's list has not all of its frames";
    if constexpr (requires { s.order.listed(); })
        if (in_host - pinned != s.order.listed())
            return "the host's list has not all frames that are not pinned";
    return nullptr;
}

// Pages in the table with a block at which another place points too.
template <typename State>
std::uint32_t pages_with_sharing(const State& s) {
    std::uint32_t sharing = 0;
    for (std::uint32_t slot = 0; slot < s.pages.limit(); ++slot) {
        bool shares = false;
        for (std::uint32_t i = 0; s.pages.is_in_use(slot) && i < s.most.blocks_per_page; ++i)
            shares =
                shares || s.blocks[s.pages.block_at(s.pages.place(slot, i))].references.size > 1;
        sharing += shares;
    }
    return sharing;
}

// manager_contents of it.
template <typename Contents, typename State>
Contents contents_of(const State& s) {
    Contents out;
    out.pages = s.pages.in_use();
    out.pages_with_sharing = pages_with_sharing(s);
    out.blocks = s.blocks.in_use() - s.absent.size;
    out.absent_blocks = s.absent.size;
    out.block_references = std::uint64_t{s.pages.in_use()} * s.most.blocks_per_page;
    return out;
}

}  // namespace penstock::buffer
