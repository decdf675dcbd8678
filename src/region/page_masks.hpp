// Of pages that changes of regions come home to: which bytes these are, so that a page that is
// written back meanwhile goes around them (region/programs.hpp).
//
// Thread-safe. What is written around the masks is written while none is added: either the mask is
// there before the page is written back, or the page is in the file before the changes are.
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
    // Tells an owner that adds masks apart from others that do at the same time, for the same pages
    // maybe. No owner takes another's away, and none waits for another, which may wait for a GPU.
    using owner = const void*;

    // `marks`: mark_bytes for each of the pages, one after the other. A page that has a mask of
    // this owner already gets the bytes of both.
    void add(owner holder, const page_list& pages, const std::byte* marks);
    // The changes are in the file, or will not come.
    void settle(owner holder, const page_list& pages);
    // Of these pages those that are settled go: the kernel gets the page anew.
    void forget_settled(const page_range& pages);
    void remove(owner holder, const page_list& pages);
    // What is not masked by anybody. `bytes`, or a negative errno.
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
