// Belady's optimum: drops the page whose next use lies furthest ahead. It knows the future, so it
// is a bound and no policy.
#pragma once

#include <cstdint>
#include <queue>
#include <utility>
#include <vector>

namespace penstock::bench::policy {

class belady {
public:
    belady(std::uint32_t frames, std::uint32_t pages, const std::vector<std::uint32_t>& trace)
        : frames_(frames), next_use_(trace.size()), resident_until_(pages, absent) {
        std::vector<std::uint64_t> coming(pages, never);
        for (std::size_t i = trace.size(); i-- > 0;) {
            next_use_[i] = coming[trace[i]];
            coming[trace[i]] = i;
        }
    }

    // Call with the trace's pages in order.
    bool access(std::uint32_t page) {
        const std::uint64_t next = next_use_[at_++];
        const bool hit = resident_until_[page] != absent;
        if (!hit && resident_ == frames_) drop_one();
        else if (!hit) ++resident_;
        resident_until_[page] = next;
        order_.emplace(next, page);
        return hit;
    }

private:
    static constexpr std::uint64_t never = ~std::uint64_t{0}, absent = never - 1;

    void drop_one() {
        // An entry that the page has outlived by another use is skipped.
        while (resident_until_[order_.top().second] != order_.top().first) order_.pop();
        resident_until_[order_.top().second] = absent;
        order_.pop();
    }

    std::uint32_t frames_, resident_ = 0;
    std::vector<std::uint64_t> next_use_, resident_until_;
    std::priority_queue<std::pair<std::uint64_t, std::uint32_t>> order_;
    std::size_t at_ = 0;
};

}  // namespace penstock::bench::policy
