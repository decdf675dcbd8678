// The version map: the states of the pages of a file that regions share
// (penstock/consistency/page_versions.hpp). The pages of a chunk of 2 MiB have few different states
// at a time. So a chunk has a list of its states, and for each page the index of its state; if all
// pages are alike, it has no indices.
//
// Only chunks that a region has, or had, are kept: a small region of a huge file costs what the
// region is. Kept chunks that follow each other in the file lie in one span, so that as a rule the
// map is one vector.
//
// For one thread at a time (the home's lock).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "penstock/consistency/page_versions.hpp"
#include "region/region_memory.hpp"

namespace penstock::region {

inline constexpr unsigned most_devices = 8;
using page_state = consistency::page_versions<most_devices>;
using page_list = std::vector<std::uint64_t>;  // numbers of pages of the file, in order

struct page_range {
    std::uint64_t begin = 0, end = 0;
    [[nodiscard]] bool empty() const { return begin >= end; }
};

// The pages that lie in both.
inline page_range common(const page_range& a, const page_range& b) {
    const std::uint64_t begin = std::max(a.begin, b.begin);
    return {begin, std::max(begin, std::min(a.end, b.end))};
}

// action(range, first, last) for each run of pages[first] to pages[last] with no more than `gap`
// others between two of them.
template <typename Action>
void for_runs(const page_list& pages, std::uint64_t gap, Action&& action) {
    for (std::size_t i = 0, end = 0; i < pages.size(); i = end) {
        for (end = i + 1; end < pages.size() && pages[end] <= pages[end - 1] + 1 + gap;) ++end;
        action(page_range{pages[i], pages[end - 1] + 1}, i, end - 1);
    }
}

// action(range) for each run of neighbours.
template <typename Action>
void for_runs(const page_list& pages, Action&& action) {
    for_runs(pages, 0, [&](const page_range& run, std::size_t, std::size_t) { action(run); });
}

class version_map {
public:
    static constexpr std::uint64_t chunk_pages = chunk_bytes / page_bytes;

    // Of a file of so many pages, of which none is kept yet.
    explicit version_map(std::uint64_t pages) : pages_(pages) {}
    // All of them are kept, and begin in state `first`.
    version_map(std::uint64_t pages, const page_state& first) : pages_(pages) {
        keep({0, pages}, first);
    }

    // Keeps the pages of the range, which may reach beyond the file, from now on. Those that were
    // not kept before begin in state `first`.
    void keep(const page_range& which, const page_state& first) {
        add_chunks({which.begin / chunk_pages, (which.end + chunk_pages - 1) / chunk_pages}, first);
        const page_range fresh{pages_, std::max(pages_, which.end)};
        pages_ = fresh.end;
        change(fresh, [&](page_state& state) { state = first; });
    }

    [[nodiscard]] std::uint64_t pages() const { return pages_; }
    // Of a page that is not kept nothing is known: no device has it, and programs may see it.
    [[nodiscard]] const page_state& at(std::uint64_t page) const {
        static constexpr page_state unknown{.view = true};
        const chunk* const of = chunk_at(page / chunk_pages);
        return of != nullptr ? state_in(*of, page % chunk_pages) : unknown;
    }

    // The chunks that have these pages, whole: to change them allocates nothing.
    [[nodiscard]] page_range in_whole_chunks(const page_range& pages) const {
        const std::uint64_t end = (pages.end + chunk_pages - 1) / chunk_pages * chunk_pages;
        return {pages.begin / chunk_pages * chunk_pages, std::min(end, pages_)};
    }
    // Calls change(state), which does the same to equal states, for the pages of the range that are
    // kept. So with all calls below.
    template <typename Change>
    void change(const page_range& which, const Change& change) {
        for_chunks(which, [&](chunk& of, const page_range& part) {
            const bool whole = part.begin % chunk_pages == 0 &&
                               (part.end % chunk_pages == 0 || part.end == pages_);
            if (whole) {
                for (page_state& state : of.states) change(state);
                return;
            }
            changer<Change> changing(of, change, scratch_);
            for (std::uint64_t page = part.begin; page < part.end; ++page)
                changing.apply(page % chunk_pages);
        });
    }

    // The same for these pages, each listed once.
    template <typename Change>
    void change(const page_list& which, const Change& change) {
        for (std::size_t i = 0; i < which.size();) {
            const std::uint64_t number = which[i] / chunk_pages, first = number * chunk_pages,
                                count = std::min(chunk_pages, pages_ - first);
            chunk* const of = chunk_at(number);
            if (of == nullptr) {
                while (i < which.size() && which[i] / chunk_pages == number) ++i;
                continue;
            }
            if (which[i] == first && which.size() - i >= count &&
                which[i + count - 1] == first + count - 1) {  // all pages of the chunk
                for (page_state& state : of->states) change(state);
                i += count;
                continue;
            }
            changer<Change> changing(*of, change, scratch_);
            for (; i < which.size() && which[i] / chunk_pages == number; ++i)
                changing.apply(which[i] % chunk_pages);
        }
    }

    // Does is_so hold for any page of the range's chunks?
    template <typename Is>
    [[nodiscard]] bool any(const page_range& which, const Is& is_so) const {
        const auto has_one = [&](const chunk& of) {
            return std::any_of(of.states.begin(), of.states.end(), is_so);
        };
        return std::any_of(spans_.begin(), spans_.end(), [&](const span& s) {
            const page_range part = common(which, s.pages());
            if (part.empty()) return false;
            const auto first = s.chunks.begin() - static_cast<std::ptrdiff_t>(s.first);
            return std::any_of(
                first + static_cast<std::ptrdiff_t>(part.begin / chunk_pages),
                first + static_cast<std::ptrdiff_t>((part.end - 1) / chunk_pages + 1), has_one);
        });
    }

    // Lists the pages of the range for which is_so holds. First it forgets stamps that no longer
    // say anything, and joins states that are equal. Call it only while no step of these pages is
    // under way.
    template <typename Is>
    [[nodiscard]] page_list pages_where(const page_range& range, const Is& is_so) {
        page_list out;
        out.reserve(range.empty() ? 0 : range.end - range.begin);  // unused memory is never made
        std::vector<char> so;
        for_chunks(range, [&](chunk& of, const page_range& part) {
            const std::uint64_t first = part.begin / chunk_pages * chunk_pages;
            for (page_state& state : of.states) consistency::forget_stamps(state);
            if (!of.which.empty())
                std::fill(of.which.begin() +
                              static_cast<std::ptrdiff_t>(std::min(chunk_pages, pages_ - first)),
                          of.which.end(), of.which[0]);
            put_together(of);
            so.clear();
            for (const page_state& state : of.states) so.push_back(is_so(state));
            if (std::find(so.begin(), so.end(), char{1}) == so.end()) return;
            if (!of.which.empty()) {
                add_pages(of, {part.begin - first, part.end - first}, so, first, out);
                return;
            }
            out.resize(out.size() + (part.end - part.begin));
            std::iota(out.end() - static_cast<std::ptrdiff_t>(part.end - part.begin), out.end(),
                      part.begin);
        });
        return out;
    }

    // The number of states of all chunks together: 1 for a chunk whose pages are all alike.
    [[nodiscard]] std::uint64_t states() const {
        std::uint64_t sum = 0;
        for (const span& s : spans_)
            for (const chunk& part : s.chunks) sum += part.states.size();
        return sum;
    }

    // The memory that the map takes, with the room that its lists have to spare.
    [[nodiscard]] std::uint64_t bytes() const {
        std::uint64_t sum = spans_.capacity() * sizeof(span);
        for (const span& s : spans_) {
            sum += s.chunks.capacity() * sizeof(chunk);
            for (const chunk& part : s.chunks)
                sum += part.states.capacity() * sizeof(page_state) +
                       part.which.capacity() * sizeof(part.which[0]);
        }
        return sum;
    }

private:
    struct chunk {
        std::vector<page_state> states;    // at least one
        std::vector<std::uint16_t> which;  // state of each page; empty: all have the first
    };
    // Chunks that follow each other in the file.
    struct span {
        std::uint64_t first = 0;
        std::vector<chunk> chunks;
        [[nodiscard]] std::uint64_t end() const { return first + chunks.size(); }
        [[nodiscard]] page_range pages() const {
            return {first * chunk_pages, end() * chunk_pages};
        }
    };
    static constexpr std::uint16_t none = UINT16_MAX;
    static constexpr std::size_t few_states = 16;
    static constexpr std::uint64_t at_once = 8;  // pages of a chunk that are compared together
    static_assert(chunk_pages % at_once == 0);

    // Gives pages of a chunk a changed state instead of their own; pages with equal states get the
    // same state. Each page once.
    template <typename Change>
    class changer {
    public:
        changer(chunk& of, const Change& change, std::vector<std::uint16_t>& scratch)
            : of_(of), change_(change), changed_(scratch) {
            if (of.states.size() > most_states) {
                std::vector<page_state> kept;
                version_map::put_together(of, scratch, kept);
            }
            if (of.which.empty()) of.which.assign(chunk_pages, 0);
            changed_.assign(of.states.size(), none);
        }
        void apply(std::uint64_t number) {
            std::uint16_t& which = of_.which[number];
            std::uint16_t& changed = changed_[which];
            if (changed == none) {
                page_state fresh = of_.states[which];
                change_(fresh);
                changed = static_cast<std::uint16_t>(of_.states.size());
                of_.states.push_back(fresh);
            }
            which = changed;
        }

    private:
        // A call adds at most one state for each page, so there are never more states than 16 bits
        // can number.
        static constexpr std::size_t most_states = chunk_pages;
        chunk& of_;
        const Change& change_;
        std::vector<std::uint16_t>& changed_;  // by the state before
    };

    template <typename Do>
    void for_chunks(const page_range& which, const Do& action) {
        for (span& s : spans_) {
            const page_range part = common(which, s.pages());
            for (std::uint64_t at = part.begin; at < part.end;) {
                const std::uint64_t end = std::min(part.end, (at / chunk_pages + 1) * chunk_pages);
                action(s.chunks[at / chunk_pages - s.first], page_range{at, end});
                at = end;
            }
        }
    }
    // Null: it is not kept.
    [[nodiscard]] const chunk* chunk_at(std::uint64_t number) const {
        const auto behind =
            std::upper_bound(spans_.begin(), spans_.end(), number,
                             [](std::uint64_t wanted, const span& s) { return wanted < s.first; });
        if (behind == spans_.begin()) return nullptr;
        const span& s = behind[-1];
        return number < s.end() ? &s.chunks[number - s.first] : nullptr;
    }
    [[nodiscard]] chunk* chunk_at(std::uint64_t number) {
        return const_cast<chunk*>(std::as_const(*this).chunk_at(number));
    }
    // Makes one span of these chunks and of all spans that they overlap or touch.
    void add_chunks(const page_range& numbers, const page_state& first) {
        const auto begin = std::find_if(spans_.begin(), spans_.end(),
                                        [&](const span&s) { return s.end() >= numbers.begin; }),
                   end = std::find_if(begin, spans_.end(),
                                      [&](const span&s) { return s.first > numbers.end; });
        if (begin != end && begin->first <= numbers.begin && numbers.end <= begin->end()) return;
        span all{numbers.begin, {}};
        std::uint64_t last = numbers.end;
        if (begin != end) {
            all.first = std::min(all.first, begin->first);
            last = std::max(last, end[-1].end());
        }
        all.chunks.assign(last - all.first, chunk{{first}, {}});
        if (begin == end) {
            spans_.insert(begin, std::move(all));
            return;
        }
        for (auto s = begin; s != end; ++s)
            std::move(s->chunks.begin(), s->chunks.end(),
                      all.chunks.begin() + static_cast<std::ptrdiff_t>(s->first - all.first));
        *begin = std::move(all);
        spans_.erase(begin + 1, end);
    }
    static const page_state& state_in(const chunk& of, std::uint64_t number) {
        return of.states[of.which.empty() ? 0 : of.which[number]];
    }

    // Adds the pages [part) of the chunk whose state is in `so`. Mostly these are few, and the
    // other pages have one state, so eight pages are skipped at once.
    static void add_pages(const chunk& of, const page_range& part, const std::vector<char>& so,
                          std::uint64_t first, page_list& out) {
        const auto usual =
            static_cast<std::uint16_t>(std::find(so.begin(), so.end(), char{0}) - so.begin());
        for (std::uint64_t at = part.begin; at < part.end;) {
            const std::uint64_t end = std::min(part.end, at + at_once);
            for (const bool pass = end - at == at_once && are_all(of.which.data() + at, usual);
                 !pass && at < end; ++at)
                if (so[of.which[at]]) out.push_back(first + at);
            at = end;
        }
    }
    static bool are_all(const std::uint16_t* which, std::uint16_t index) {
        std::uint64_t both[2];
        std::memcpy(both, which, sizeof both);
        const std::uint64_t four = index * 0x0001'0001'0001'0001u;
        return both[0] == four && both[1] == four;
    }

    // Drops states that no page has, and of equal states all but the first. Mostly all states have
    // become equal, and then no page is looked at.
    void put_together(chunk& of) { put_together(of, scratch_, kept_); }
    static void put_together(chunk& of, std::vector<std::uint16_t>& becomes,
                             std::vector<page_state>& kept) {
        if (of.which.empty()) return;
        const auto all_alike = [&] {
            return std::all_of(of.states.begin() + 1, of.states.end(),
                               [&](const page_state& state) { return state == of.states[0]; });
        };
        if (of.states.size() == 1 || (of.states.size() <= few_states && all_alike())) {
            of.states.resize(1);
            of.which.clear();
            give_back_room(of);
            return;
        }
        becomes.assign(of.states.size(), none);
        kept.clear();
        for (std::size_t at = 0; at < of.which.size(); at += at_once) {
            if (becomes[0] == 0 && are_all(&of.which[at], 0)) continue;
            for (std::size_t i = at; i < at + at_once; ++i) {
                std::uint16_t& to = becomes[of.which[i]];
                if (to == none) {
                    const auto same = std::find(kept.begin(), kept.end(), of.states[of.which[i]]);
                    to = static_cast<std::uint16_t>(same - kept.begin());
                    if (same == kept.end()) kept.push_back(of.states[of.which[i]]);
                }
                of.which[i] = to;
            }
        }
        of.states = kept;
        if (of.states.size() == 1) of.which.clear();
        give_back_room(of);
    }
    // Pages are alike again once all devices have acquired, and then room for hundreds of states
    // would stay for as long as the file has regions. The room of the indices stays: it is small.
    static void give_back_room(chunk& of) {
        if (of.states.capacity() > 4 * of.states.size() + few_states) of.states.shrink_to_fit();
    }

    std::uint64_t pages_;
    std::vector<span> spans_;  // in the order of the file; none touches the next
    // Kept between calls, so that no call makes them anew for each chunk.
    std::vector<std::uint16_t> scratch_;
    std::vector<page_state> kept_;
};

}  // namespace penstock::region
