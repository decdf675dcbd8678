// One job: count the words of a piece of a file. The same for every way of getting at the text.
//
// A text source has
//   int for_each_window(g, from, to, body)   calls body(window, first, last) for consecutive pieces
//                                            that together cover the positions [from, to); 0 or a
//                                            negative errno. All threads of the group call
//                                            together; the source synchronises them after each
//                                            body.
#pragma once

#include <cstdint>

#include "scan.hpp"
#include "tally.hpp"

namespace penstock::grep {

// Counts everything found: right for words that cannot overlap themselves.
template <typename Group>
struct plain_sink {
    const Group& g;
    const tally& t;
    std::uint64_t first_zero = no_zero_byte;

    PENSTOCK_HD PENSTOCK_INLINE void found(std::uint32_t word, std::uint64_t) { t.add(g, word); }
    PENSTOCK_HD PENSTOCK_INLINE void zero_byte(std::uint64_t position) {
        if (position < first_zero) first_zero = position;
    }
};

// Counts the words that can overlap themselves, greedily from the left. Places of a word that
// overlap form a chain; the choice within a chain depends on nothing outside it, so the job in
// whose piece a chain begins counts the whole of it, and every job can tell where chains begin by
// looking back one word length.
template <typename Group>
struct chain_sink {
    const Group& g;
    const search_view& v;
    const tally& t;
    std::uint64_t begin;
    std::uint64_t end;
    std::uint64_t stamp;
    std::uint64_t chase_until = 0;  // a chain of ours may go on below this position

    PENSTOCK_HD void found(std::uint32_t index, std::uint64_t position) {
        const chained_word word = v.chained_words[index];
        chain_state& chain = t.chains[index];
        if (chain.stamp != stamp || chain.last_seen + word.bytes <= position) {
            const bool ours = position >= begin && position < end;
            chain.stamp = stamp;
            chain.free_from = ours ? position + word.bytes : 0;
            if (ours) t.add(g, word.word);
        } else if (chain.free_from != 0 && position >= chain.free_from) {
            chain.free_from = position + word.bytes;
            t.add(g, word.word);
        }
        chain.last_seen = position;
        if (chain.free_from != 0 && position + word.bytes > chase_until)
            chase_until = position + word.bytes;
    }
    PENSTOCK_HD void zero_byte(std::uint64_t) {}
};

// Each thread of a wide group takes short stretches in turn; a group of one takes all at once.
inline constexpr std::uint64_t stretch_bytes = 128;

// Out of line, so that the compiler gives its loop the registers and not what surrounds it.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE void scan_stretches(const Group& g, const dictionary_ref& d,
                                                  const text_window& w, std::uint64_t from,
                                                  std::uint64_t to, plain_sink<Group>& out) {
    plain_sink<Group> sink = out;  // a copy in registers
    const std::uint64_t step = g.size() == 1 ? to - from : stretch_bytes;
    for (std::uint64_t at = from + g.rank() * step; at < to; at += g.size() * step)
        scan(d, w, at, to - at < step ? to : at + step, sink);
    out.first_zero = sink.first_zero;
}

template <typename Group, typename Source>
PENSTOCK_HD inline int count_plain(const Group& g, const search_view& v, const tally& t,
                                   Source& source, const job& piece) {
    plain_sink<Group> sink{g, t};
    const int code = source.for_each_window(
        g, piece.begin, piece.end, [&](const text_window& w, std::uint64_t from, std::uint64_t to) {
            scan_stretches(g, v.plain, w, from, to, sink);
        });
    if (sink.first_zero != no_zero_byte) note_zero_byte(v, piece.file, sink.first_zero);
    return code;
}

// The leader alone, in order; such words are rare, and other groups use the processor meanwhile.
template <typename Group, typename Source>
PENSTOCK_HD PENSTOCK_NOINLINE int count_chained(const Group& g, const search_view& v,
                                                const tally& t, Source& source, const job& piece,
                                                std::uint64_t stamp) {
    chain_sink<Group> sink{g, v, t, piece.begin, piece.end, stamp};
    const auto body = [&](const text_window& w, std::uint64_t from, std::uint64_t to) {
        if (g.is_leader()) scan(v.chained, w, from, to, sink);
    };
    std::uint64_t from = piece.begin > v.longest_chained ? piece.begin - v.longest_chained : 0;
    std::uint64_t to = piece.end;
    while (from < to) {
        if (const int code = source.for_each_window(g, from, to, body); code != 0) return code;
        from = to;
        to = g.broadcast(sink.chase_until);
    }
    return 0;
}

// Whole group. Returns the job's status.
template <typename Group, typename Source>
PENSTOCK_HD inline int count_job(const Group& g, const search_view& v, const tally& t,
                                 Source& source, std::uint32_t job_index) {
    const job piece = v.jobs[job_index];
    int code = count_plain(g, v, t, source, piece);
    if (code == 0 && v.chained_count != 0)
        code = count_chained(g, v, t, source, piece, v.stamp_base + job_index);
    const bool fits = empty_tally(g, v, t, job_index, code == 0);
    if (code != 0) return code;
    if (!fits && g.is_leader()) atomic_store<order::relaxed>(&v.shared->stop, 1u);
    return fits ? 0 : job_open;
}

// True if nothing of the job's file can count any more: another job met a zero byte near its
// beginning.
PENSTOCK_HD inline bool is_settled(const search_view& v, std::uint32_t job_index) {
    return atomic_load<order::relaxed>(&v.first_zero[v.jobs[job_index].file]) < first_read_bytes;
}

// Leader only. The next job, or v.job_count when there is none or the search is to stop.
PENSTOCK_HD inline std::uint64_t take_job(const search_view& v) {
    if (atomic_load<order::relaxed>(&v.shared->stop) != 0) return v.job_count;
    const std::uint64_t next =
        atomic_fetch_add<order::relaxed>(&v.shared->next_job, std::uint64_t{1});
    return next < v.job_count ? next : v.job_count;
}

}  // namespace penstock::grep
