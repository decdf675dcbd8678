// Millions of records: a vector for them, and joining those that groups wrote, in any order, to
// counts sorted by file and word.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <span>
#include <sys/mman.h>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/threads.hpp"
#include "search_view.hpp"

namespace penstock::grep {

template <typename T>
struct big_allocator {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_default_constructible_v<T>,
                  "elements without a value must do no harm");
    using value_type = T;

    big_allocator() = default;
    template <typename U>
    big_allocator(const big_allocator<U>&) {}

    T* allocate(std::size_t count) {
        constexpr std::size_t huge = std::size_t{2} << 20;
        if (count > (static_cast<std::size_t>(-1) - huge) / sizeof(T)) throw std::bad_alloc();
        const std::size_t bytes = count * sizeof(T), step = bytes >= 2 * huge ? huge : 64,
                          whole = (bytes + step - 1) / step * step;
        void* const at = std::aligned_alloc(step, whole);
        if (at == nullptr) throw std::bad_alloc();
        // Where the kernel has no huge pages it costs what it would cost anyway.
        if (step == huge) ::madvise(at, whole, MADV_HUGEPAGE);
        return static_cast<T*>(at);
    }
    void deallocate(T* at, std::size_t) { std::free(at); }

    template <typename U, typename... Arguments>
    void construct(U* at, Arguments&&... arguments) {
        if constexpr (sizeof...(Arguments) == 0) ::new (static_cast<void*>(at)) U;
        else ::new (static_cast<void*>(at)) U(std::forward<Arguments>(arguments)...);
    }

    template <typename U>
    friend bool operator==(const big_allocator&, const big_allocator<U>&) {
        return true;
    }
};

template <typename T>
using big_vector = std::vector<T, big_allocator<T>>;

struct word_count {
    std::uint32_t file;
    std::uint32_t word;
    std::uint64_t count;

    friend bool operator==(const word_count&, const word_count&) = default;
};

// Records of one file that lie one after the other. They must outlive the call they are given to.
struct record_run {
    std::uint32_t file;
    const record* first;
    std::uint64_t count;
};

// Adds the runs of `records` to `runs`: a job's records lie together. `file_of(record)` is a file,
// or `no_file` to leave the record out.
inline constexpr std::uint32_t no_file = ~std::uint32_t{0};
template <typename FileOf>
void find_runs(const big_vector<record>& records, std::vector<record_run>& runs,
               const FileOf& file_of) {
    std::uint64_t end = 0;
    for (std::uint64_t begin = 0; begin < records.size(); begin = end) {
        const std::uint32_t file = file_of(records[begin]);
        for (end = begin + 1; end < records.size() && file_of(records[end]) == file;) ++end;
        if (file != no_file) runs.push_back({file, records.data() + begin, end - begin});
    }
}

namespace detail {

// The runs of one file, and where its counts go.
struct file_part {
    std::uint64_t first_run;
    std::uint64_t end_run;
    std::uint64_t at;
    std::uint64_t kept;
};

inline std::vector<file_part> parts_of(const std::vector<record_run>& runs, std::uint64_t& total) {
    std::vector<file_part> parts;
    total = 0;
    for (std::uint64_t i = 0; i < runs.size(); ++i) {
        if (i == 0 || runs[i].file != runs[i - 1].file) parts.push_back({i, i, total, 0});
        parts.back().end_run = i + 1;
        total += runs[i].count;
    }
    return parts;
}

inline void join_one(const std::vector<record_run>& runs, file_part& part,
                     big_vector<word_count>& out) {
    std::uint64_t at = part.at;
    for (std::uint64_t i = part.first_run; i < part.end_run; ++i)
        for (const record& r : std::span(runs[i].first, runs[i].count))
            out[at++] = {runs[i].file, r.word, r.count};
    const std::span<word_count> counts(out.data() + part.at, at - part.at);
    std::ranges::sort(counts, {}, &word_count::word);
    for (const word_count& entry : counts) {
        if (part.kept > 0 && counts[part.kept - 1].word == entry.word)
            counts[part.kept - 1].count += entry.count;
        else counts[part.kept++] = entry;
    }
}

}  // namespace detail

// Sorted by file, then word; counts of the same word in the same file are added up. Done by up to
// `threads` threads, because at millions of records one thread would take longer than all of them
// took to count.
inline big_vector<word_count> join_records(std::vector<record_run> runs, unsigned threads) {
    std::ranges::sort(runs, {}, &record_run::file);
    std::uint64_t total = 0;
    std::vector<detail::file_part> parts = detail::parts_of(runs, total);
    big_vector<word_count> out(total);
    constexpr std::uint64_t parts_at_once = 64, worth_a_thread = 1 << 16;
    const std::uint64_t helpers = std::min<std::uint64_t>(threads - 1, total / worth_a_thread);
    apps::on_pieces(static_cast<std::uint32_t>(helpers + 1), parts.size(), parts_at_once,
                    [&](std::uint32_t, std::uint64_t first, std::uint64_t count) {
                        for (detail::file_part& part : std::span(parts).subspan(first, count))
                            detail::join_one(runs, part, out);
                        return status{};
                    });
    // What was added up left gaps.
    std::uint64_t kept = 0;
    for (const detail::file_part& part : parts) {
        if (kept != part.at) std::copy_n(out.data() + part.at, part.kept, out.data() + kept);
        kept += part.kept;
    }
    out.resize(kept);
    return out;
}

}  // namespace penstock::grep
