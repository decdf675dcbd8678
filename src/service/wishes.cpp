#include "service/wishes.hpp"

#include <algorithm>

namespace penstock::host {

namespace {

constexpr std::uint64_t os_page_bytes = 4096;

}  // namespace

bool wish_set::add(const wish& wanted) {
    const std::uint64_t begin = wanted.offset / os_page_bytes * os_page_bytes,
                        end = (wanted.offset + wanted.bytes + os_page_bytes - 1) / os_page_bytes *
                              os_page_bytes;
    const place at{wanted.slot, wanted.generation, begin};
    if (const auto known = wishes_.find(at); known != wishes_.end()) {
        known->second = std::max(known->second, end - begin);
        return true;
    }
    if (wishes_.size() >= most_) return false;
    wishes_.emplace(at, end - begin);
    return true;
}

wish wish_set::take() {
    auto next = wishes_.lower_bound(hand_);
    if (next == wishes_.end()) next = wishes_.begin();
    wish out{next->first.slot, next->first.generation, next->first.offset, 0};
    // Neighbours, and ranges that overlap.
    while (next != wishes_.end() && next->first.slot == out.slot &&
           next->first.generation == out.generation &&
           next->first.offset <= out.offset + out.bytes && out.bytes < most_call_bytes) {
        out.bytes = std::max(out.bytes, next->first.offset + next->second - out.offset);
        next = wishes_.erase(next);
    }
    if (out.bytes > most_call_bytes) {
        const std::uint64_t left = out.bytes - most_call_bytes;
        out.bytes = most_call_bytes;
        std::uint64_t& rest = wishes_[{out.slot, out.generation, out.offset + most_call_bytes}];
        rest = std::max(rest, left);
    }
    hand_ = {out.slot, out.generation, out.offset + out.bytes};
    return out;
}

std::uint32_t wish_set::ask_for(const wish& range, const shared_handle& file,
                                std::uint64_t size_bytes) {
    if (range.offset >= size_bytes || !file.uses_page_cache()) return 0;
    const std::uint64_t bytes = std::min(range.bytes, size_bytes - range.offset);
    if (env_.in_page_cache(file.fd(), range.offset, bytes) == 1) return 0;
    env_.will_need(file.fd(), range.offset, bytes);
    return 1;
}

}  // namespace penstock::host
