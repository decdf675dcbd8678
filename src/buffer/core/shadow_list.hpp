// What a full device part would hold: the names of pages that left the host, without their bytes.
//
// A buffer that keeps its device part out of use still wants to know what that part would have
// answered. The list has the rules of the device's own list (docs/guide/buffer.md): a page that
// leaves the host enters at the head, a page that is wanted leaves, and the tail goes when there
// are as many as the device has frames. It follows one page of a few, chosen by the hash of its
// name, over as much smaller a list: the share of wanted pages that it finds is the same.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "buffer/core/tables.hpp"
#include "buffer/core/types.hpp"
#include "penstock/base/hash.hpp"

namespace penstock::buffer {

class shadow_list {
public:
    // Of a page that is wanted and is not in the host.
    enum class answer : std::uint8_t {
        unfollowed,  // the list does not follow this page
        absent,      // a full device part would not have it
        present      // a full device part would have it
    };

    // Throws std::bad_alloc.
    explicit shadow_list(std::uint32_t device_pages)
        : followed_of_(most_followed_of(device_pages)),
          most_(std::max(device_pages / followed_of_, 1u)),
          names_(most_),
          links_(most_),
          by_name_(most_) {
        free_.reserve(most_);
        for (std::uint32_t number = most_; number-- > 0;) free_.push_back(number);
    }

    void left_host(page_id id) {
        const std::uint64_t hash = hash_of(id);
        if (!is_followed(hash)) return;
        if (const std::uint32_t known = find(hash, id); known != nothing) remove(hash, known);
        if (free_.empty()) remove(hash_of(names_[ends_.oldest]), ends_.oldest);
        const std::uint32_t number = free_.back();
        free_.pop_back();
        names_[number] = id;
        by_name_.add(hash, number);
        links_.push_newest(ends_, number);
    }
    answer want(page_id id) {
        const std::uint64_t hash = hash_of(id);
        if (!is_followed(hash)) return answer::unfollowed;
        const std::uint32_t known = find(hash, id);
        if (known == nothing) return answer::absent;
        remove(hash, known);
        return answer::present;
    }

private:
    // A list of some hundred names says the share to a few percent of itself.
    static std::uint32_t most_followed_of(std::uint32_t device_pages) {
        constexpr std::uint32_t least_names = 256, most = 8;
        return std::bit_floor(std::clamp(device_pages / least_names, 1u, most));
    }
    static std::uint64_t hash_of(page_id id) {
        return mix64(id.page + std::uint64_t{id.file} * 0x9e3779b97f4a7c15ull);
    }
    // The high bits choose; the index uses the low ones.
    [[nodiscard]] bool is_followed(std::uint64_t hash) const {
        return (hash >> 40) % followed_of_ == 0;
    }
    [[nodiscard]] std::uint32_t find(std::uint64_t hash, page_id id) const {
        return by_name_.find(hash, [&](std::uint32_t number) { return names_[number] == id; });
    }
    void remove(std::uint64_t hash, std::uint32_t number) {
        by_name_.remove(hash, number);
        links_.remove(ends_, number);
        free_.push_back(number);
    }

    const std::uint32_t followed_of_, most_;
    std::vector<page_id> names_;
    linked links_;
    number_index by_name_;
    list_ends ends_;
    std::vector<std::uint32_t> free_;
};

}  // namespace penstock::buffer
