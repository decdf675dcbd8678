// Masks: for pages of the file that get changes of regions, they say which bytes these changes are.
// A page that is written back meanwhile is written around them (region/programs.hpp).
//
// Thread-safe. No mask is added while a page is written around the masks: either the mask is there
// before the page is written back, or the page is in the file before the changes are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "hub/hub.hpp"
#include "region/version_map.hpp"

namespace penstock::region {

using host::file_key;

class page_masks {
public:
    // Tells apart the owners that add masks at the same time, maybe for the same pages. No owner
    // removes the masks of another owner, and no owner waits for another, which may wait for a GPU.
    using owner = const void*;

    // `marks`: mark_bytes for each of the pages, one after the other. If a page has a mask of this
    // owner already, the two masks are joined.
    void add(owner holder, const page_list& pages, const std::byte* marks);
    // Tells that the changes are in the file, or will not come.
    void settle(owner holder, const page_list& pages);
    // Removes the settled masks of these pages: the kernel gets the pages anew.
    void forget_settled(const page_range& pages);
    void remove(owner holder, const page_list& pages);
    // Writes the bytes that no owner has masked. Returns `bytes`, or a negative errno.
    std::int64_t write_around(int fd, const std::byte* from, std::uint64_t bytes,
                              std::uint64_t offset);

private:
    struct mask {
        owner holder = nullptr;
        std::array<std::byte, mark_bytes> marks{};
        bool settled = false;
    };
    [[nodiscard]] mask* of(owner holder, std::uint64_t page);

    std::mutex lock_;
    std::unordered_multimap<std::uint64_t, mask> masks_;  // by page; guarded by lock_
};

}  // namespace penstock::region
