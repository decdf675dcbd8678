// What is known of every page of a file that regions share: penstock/consistency/page_versions.hpp for each. Where the pages of a chunk of 2 MiB are
// alike one state stands for all, where a few are not, they are listed, and only chunks with many different pages have a state for each.
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
    static constexpr std::uint64_t most_others = 32;  // listed in a chunk

    // All pages as `first`.
    version_map(std::uint64_t pages, const page_state& first) : pages_(pages), chunks_((pages + chunk_pages - 1) / chunk_pages) {
        for (chunk& one : chunks_) one.alike = first;
    }

    // The file has more pages; the new ones as `first`.
    void grow(std::uint64_t pages, const page_state& first) {
        const page_range fresh{pages_, pages};
        chunks_.resize((pages + chunk_pages - 1) / chunk_pages);
        pages_ = pages;
        change(fresh, [&](page_state& one) { one = first; });
    }

    [[nodiscard]] std::uint64_t pages() const { return pages_; }
    [[nodiscard]] const page_state& at(std::uint64_t page) const {
        const chunk& of = chunks_[page / chunk_pages];
        const std::uint64_t number = page % chunk_pages;
        if (!of.each.empty()) return of.each[number];
        const auto found = place_of(of, number);
        return found != of.others.end() && found->number == number ? found->state : of.alike;
    }

    // change(state) for the pages of the range: once for all pages of a chunk that are alike, if the range has the whole chunk.
    template <typename Change>
    void change(const page_range& which, Change&& change) {
        for_chunks(which, [&](chunk& of, const page_range& part) {
            const bool whole = part.begin % chunk_pages == 0 && (part.end % chunk_pages == 0 || part.end == pages_);
            if (of.each.empty() && whole) {
                change(of.alike);
                for (other& one : of.others) change(one.state);
                return;
            }
            if (of.each.empty() && of.others.size() + (part.end - part.begin) > most_others) spread(of);
            for (std::uint64_t page = part.begin; page < part.end; ++page) change(own_state(of, page % chunk_pages));
        });
    }

    // visit(state, range) for the range in pieces that have one state. Before, stamps that tell nothing any more are forgotten, and pages that are alike
    // are put together. Only while no step of these pages is under way.
    template <typename Visit>
    void visit(const page_range& which, Visit&& visit) {
        for_chunks(which, [&](chunk& of, const page_range& part) {
            const std::uint64_t first = part.begin / chunk_pages * chunk_pages;
            gather(of, std::min(chunk_pages, pages_ - first));
            if (!of.each.empty()) {
                for (std::uint64_t page = part.begin; page < part.end; ++page) visit(of.each[page - first], page_range{page, page + 1});
                return;
            }
            std::uint64_t next = part.begin;
            for (const other& one : of.others) {
                const std::uint64_t page = first + one.number;
                if (page < part.begin || page >= part.end) continue;
                if (next < page) visit(of.alike, page_range{next, page});
                visit(one.state, page_range{page, page + 1});
                next = page + 1;
            }
            if (next < part.end) visit(of.alike, page_range{next, part.end});
        });
    }

    // How many chunks have a state for each page, and how many pages are listed in others.
    [[nodiscard]] std::uint64_t split_chunks() const {
        return static_cast<std::uint64_t>(std::count_if(chunks_.begin(), chunks_.end(), [](const chunk& one) { return !one.each.empty(); }));
    }
    [[nodiscard]] std::uint64_t listed_pages() const {
        std::uint64_t sum = 0;
        for (const chunk& one : chunks_) sum += one.others.size();
        return sum;
    }

private:
    struct other {
        std::uint64_t number;  // in the chunk
        page_state state;
    };
    // At most one of the two is not empty.
    struct chunk {
        page_state alike;
        std::vector<other> others;     // by number; the pages that are not as `alike`
        std::vector<page_state> each;  // all of them
    };

    template <typename Do>
    void for_chunks(const page_range& which, Do&& action) {
        for (std::uint64_t at = which.begin; at < which.end;) {
            const std::uint64_t end = std::min(which.end, (at / chunk_pages + 1) * chunk_pages);
            action(chunks_[at / chunk_pages], page_range{at, end});
            at = end;
        }
    }
    static std::vector<other>::const_iterator place_of(const chunk& of, std::uint64_t number) {
        return std::lower_bound(of.others.begin(), of.others.end(), number, [](const other& one, std::uint64_t wanted) { return one.number < wanted; });
    }
    // To be changed by itself.
    static page_state& own_state(chunk& of, std::uint64_t number) {
        if (!of.each.empty()) return of.each[number];
        const auto found = place_of(of, number);
        const auto at = of.others.begin() + (found - of.others.cbegin());
        return found != of.others.end() && found->number == number ? at->state : of.others.insert(at, {number, of.alike})->state;
    }
    static void spread(chunk& of) {
        of.each.assign(chunk_pages, of.alike);
        for (const other& one : of.others) of.each[one.number] = one.state;
        of.others = {};
    }
    // The first `count` places are pages of the file; what is behind does not count.
    static void gather(chunk& of, std::uint64_t count) {
        consistency::forget_stamps(of.alike);
        for (other& one : of.others) consistency::forget_stamps(one.state);
        std::erase_if(of.others, [&](const other& one) { return one.number >= count || one.state == of.alike; });
        if (of.each.empty()) return;
        for (page_state& one : of.each) consistency::forget_stamps(one);
        // As most are likely to be: as the first, or as the last.
        for (const page_state& common : {of.each.front(), of.each[count - 1]}) {
            const auto differ = std::count_if(of.each.begin(), of.each.begin() + static_cast<std::ptrdiff_t>(count), [&](const page_state& one) { return !(one == common); });
            if (static_cast<std::uint64_t>(differ) > most_others) continue;
            of.alike = common;
            for (std::uint64_t i = 0; i < count; ++i)
                if (!(of.each[i] == common)) of.others.push_back({i, of.each[i]});
            of.each = {};
            return;
        }
    }

    std::uint64_t pages_;
    std::vector<chunk> chunks_;
};

}  // namespace penstock::region
