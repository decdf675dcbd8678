// What is known of every page of a file that regions share: penstock/consistency/page_versions.hpp for each, at the cost of one for each 2 MiB
// where the pages of a chunk are alike, which is so unless single pages were changed.
//
// One thread at a time (the home's lock).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "penstock/consistency/page_versions.hpp"
#include "region/region_memory.hpp"

namespace penstock::region {

inline constexpr unsigned most_devices = 6;
using page_state = consistency::page_versions<most_devices>;

struct page_range {
    std::uint64_t begin = 0, end = 0;
    [[nodiscard]] bool empty() const { return begin >= end; }
};

class version_map {
public:
    static constexpr std::uint64_t chunk_pages = chunk_bytes / page_bytes;

    // All pages as `first`.
    version_map(std::uint64_t pages, const page_state& first) : pages_(pages), chunks_((pages + chunk_pages - 1) / chunk_pages) {
        for (chunk& one : chunks_) one.alike = first;
    }

    [[nodiscard]] std::uint64_t pages() const { return pages_; }
    [[nodiscard]] const page_state& at(std::uint64_t page) const {
        const chunk& of = chunks_[page / chunk_pages];
        return of.each.empty() ? of.alike : of.each[page % chunk_pages];
    }

    // The file has more pages; the new ones as `first`.
    void grow(std::uint64_t pages, const page_state& first) {
        const page_range fresh{pages_, pages};
        chunks_.resize((pages + chunk_pages - 1) / chunk_pages);
        pages_ = pages;
        change(fresh, [&](page_state& one) { one = first; });
    }

    // change(state) for the pages of the range: once for all pages of a chunk, if the range has them all and they are alike.
    template <typename Change>
    void change(const page_range& which, Change&& change) {
        for_chunks(which, [&](chunk& of, const page_range& part) {
            if (of.each.empty() && part.begin % chunk_pages == 0 && (part.end % chunk_pages == 0 || part.end == pages_)) {
                change(of.alike);
                return;
            }
            if (of.each.empty()) of.each.assign(chunk_pages, of.alike);
            for (std::uint64_t page = part.begin; page < part.end; ++page) change(of.each[page % chunk_pages]);
        });
    }

    // visit(state, range) for the range in pieces that have one state; before, chunks whose pages have become alike are made one again.
    template <typename Visit>
    void visit(const page_range& which, Visit&& visit) {
        for_chunks(which, [&](chunk& of, const page_range& part) {
            join(of, (part.begin / chunk_pages) * chunk_pages);
            if (of.each.empty()) {
                visit(of.alike, part);
                return;
            }
            for (std::uint64_t page = part.begin; page < part.end; ++page) visit(of.each[page % chunk_pages], page_range{page, page + 1});
        });
    }

    // How many chunks have a state for each page.
    [[nodiscard]] std::uint64_t split_chunks() const {
        return static_cast<std::uint64_t>(std::count_if(chunks_.begin(), chunks_.end(), [](const chunk& one) { return !one.each.empty(); }));
    }

private:
    struct chunk {
        page_state alike;
        std::vector<page_state> each;  // empty: all are as `alike`
    };

    template <typename Do>
    void for_chunks(const page_range& which, Do&& action) {
        for (std::uint64_t at = which.begin; at < which.end;) {
            const std::uint64_t end = std::min(which.end, (at / chunk_pages + 1) * chunk_pages);
            action(chunks_[at / chunk_pages], page_range{at, end});
            at = end;
        }
    }
    // Places behind the end of the file do not count.
    void join(chunk& of, std::uint64_t first_page) {
        if (of.each.empty()) return;
        const auto end = of.each.begin() + static_cast<std::ptrdiff_t>(std::min(chunk_pages, pages_ - first_page));
        if (!std::all_of(of.each.begin(), end, [&](const page_state& one) { return one == of.each.front(); })) return;
        of.alike = of.each.front();
        of.each = {};
    }

    std::uint64_t pages_;
    std::vector<chunk> chunks_;
};

}  // namespace penstock::region
