// One job: count the words of a piece of a file. The same for every way of getting at the text.
//
// A text source has
//   int for_each_window(g, from, to, body)   calls body(window, first, last) for consecutive pieces
//                                            that together cover the positions [from, to); 0 or a
//                                            negative errno. All threads of the group call
//                                            together; the source synchronises them after each
//                                            body.
#pragma once

#include <cerrno>
#include <cstdint>

#include "penstock/base/atomic.hpp"
#include "search_view.hpp"

namespace penstock::grep {

// Bytes [begin, end) of a file. Around the positions to be scanned it must hold the byte before
// (unless the file begins there) and the max_word_bytes + 1 bytes behind (unless the file ends
// there).
struct text_window {
    const unsigned char* bytes;
    std::uint64_t begin;
    std::uint64_t end;

    [[nodiscard]] PENSTOCK_HD PENSTOCK_INLINE std::uint64_t size() const { return end - begin; }
};
inline constexpr std::uint32_t window_margin = max_word_bytes + 1;

// Reports the words of `longer` that stand at `at`; `entry` is the key found there. Ends of words
// are looked at first, because that is one byte and most lengths fail it.
template <typename Sink>
PENSTOCK_HD inline void scan_longer(const dictionary_ref& d, const text_window& w, std::uint64_t at,
                                    const key_entry& entry, Sink& sink) {
    const std::uint64_t room = w.size() - at;
    for (std::uint32_t i = 0; i < entry.length_count; ++i) {
        const std::uint32_t length = d.lengths[entry.lengths_at + i];
        if (length > room) return;
        if (length < room && is_constituent(w.bytes[at + length])) continue;
        const text_hash hash = hash_text(w.bytes + at, length, room);
        if (const key_entry* const word = find_entry(d.longer, d.text, hash, w.bytes + at))
            sink.found(word->word, w.begin + at);
    }
}

// Looks up the key of `bytes` bytes at `at`, and what begins with it.
template <typename Sink>
PENSTOCK_HD PENSTOCK_INLINE void scan_key(const dictionary_ref& d, const text_window& w,
                                          std::uint64_t at, std::uint32_t bytes, Sink& sink) {
    const text_hash hash = hash_text(w.bytes + at, bytes, w.size() - at);
    const key_entry* const entry = find_entry(d.keys, d.text, hash, w.bytes + at);
    if (entry == nullptr) return;
    if (entry->word != no_word) sink.found(entry->word, w.begin + at);
    if (entry->length_count != 0) scan_longer(d, w, at, *entry, sink);
}

// Length of the run at `at`, of which `known` bytes were seen up to the end of a block; more than
// d.max_run_bytes if it is too long to be looked up.
PENSTOCK_HD inline std::uint32_t run_beyond(const dictionary_ref& d, const text_window& w,
                                            std::uint64_t at, std::uint32_t known) {
    std::uint32_t length = known;
    while (length <= d.max_run_bytes && at + length < w.size() &&
           is_constituent(w.bytes[at + length]))
        ++length;
    return length;
}

// Reports, in order, every word that begins at a position of [from, to) and has no constituent
// before or behind it: sink.found(word, position). Also the first zero byte of each block:
// sink.zero_byte(position). Matches that overlap are all reported.
//
// Works on blocks of 64 positions. Bits of `begins` are the places where a match can begin: where a
// run begins, and, if some word begins with another byte, where neither the byte nor the one before
// it is a constituent.
template <typename Sink>
PENSTOCK_HD inline void scan(const dictionary_ref& d, const text_window& w, std::uint64_t from,
                             std::uint64_t to, Sink& sink) {
    const bool any_leads = (d.lead_bits[0] | d.lead_bits[1] | d.lead_bits[2] | d.lead_bits[3]) != 0;
    const std::uint64_t first = from - w.begin, stop = to - w.begin;
    std::uint64_t carry = first > 0 && is_constituent(w.bytes[first - 1]) ? 1 : 0;
    for (std::uint64_t block = first; block < stop; block += 64) {
        const std::uint32_t count =
            stop - block < 64 ? static_cast<std::uint32_t>(stop - block) : 64;
        const byte_kinds kinds = look_at(w.bytes + block, count, w.size() - block);
        if (kinds.zero != 0) sink.zero_byte(w.begin + block + lowest_bit(kinds.zero));
        const std::uint64_t runs = kinds.constituent, follow_run = runs << 1 | carry;
        carry = runs >> 63;
        std::uint64_t begins = (any_leads ? low_bits(count) : runs) & ~follow_run;
        for (; begins != 0; begins &= begins - 1) {
            const std::uint32_t bit = lowest_bit(begins);
            const std::uint64_t at = block + bit;
            if (((runs >> bit) & 1) == 0) {
                if (d.leads(w.bytes[at])) scan_key(d, w, at, 1, sink);
                continue;
            }
            std::uint32_t length = lowest_bit(~(runs >> bit));
            if (bit + length >= count) length = run_beyond(d, w, at, count - bit);
            if (length <= d.max_run_bytes) scan_key(d, w, at, length, sink);
        }
    }
}

// Counting within one job: a dense counter per word and the list of those in use, so that ending a
// job costs what it found and not the size of the dictionary.
//
// Thread safety: a tally belongs to one group. Its threads add together; on the GPU that is why
// counters are changed atomically. Orders are relaxed throughout: within the group, sync() stands
// between adding and reading; to the host, the end of the launch does.

struct tally {
    std::uint64_t* counters;
    std::uint32_t* touched;
    std::uint32_t* touched_count;
    chain_state* chains;
    unsigned char* text;

    PENSTOCK_HD tally(const search_view& v, std::uint64_t group) {
        std::byte* const base = v.scratch + group * v.layout.bytes;
        counters = reinterpret_cast<std::uint64_t*>(base);
        chains = reinterpret_cast<chain_state*>(base + v.layout.chains_at);
        touched = reinterpret_cast<std::uint32_t*>(base + v.layout.touched_at);
        touched_count = reinterpret_cast<std::uint32_t*>(base + v.layout.touched_count_at);
        text = reinterpret_cast<unsigned char*>(base + v.layout.text_at);
    }

    // By any thread of the group.
    template <typename Group>
    PENSTOCK_HD PENSTOCK_INLINE void add(const Group& g, std::uint32_t word) const {
        if (g.size() == 1) {  // no other thread adds here
            if (counters[word]++ == 0) touched[(*touched_count)++] = word;
        } else if (atomic_fetch_add<order::relaxed>(&counters[word], std::uint64_t{1}) == 0) {
            touched[atomic_fetch_add<order::relaxed>(touched_count, std::uint32_t{1})] = word;
        }
    }
};

inline constexpr std::uint64_t no_room = ~std::uint64_t{0};

// Where `count` records may be written, all or none, so that no gap is left; or no_room.
PENSTOCK_HD inline std::uint64_t reserve_records(const search_view& v, std::uint64_t count) {
    std::uint64_t used = atomic_load<order::relaxed>(&v.shared->records_used);
    while (count <= v.record_capacity - used) {
        if (atomic_compare_swap<order::relaxed>(&v.shared->records_used, used, used + count))
            return used;
        used = atomic_load<order::relaxed>(&v.shared->records_used);
    }
    return no_room;
}

// Whole group. Writes the job's counts out if `keep`, and clears them. Returns false if they did
// not fit.
template <typename Group>
PENSTOCK_HD inline bool empty_tally(const Group& g, const search_view& v, const tally& t,
                                    std::uint32_t job_index, bool keep) {
    g.sync();  // every thread has added what it found
    const auto count =
        static_cast<std::uint32_t>(g.broadcast(atomic_load<order::relaxed>(t.touched_count)));
    std::uint64_t at = 0;
    if (g.is_leader() && keep) at = reserve_records(v, count);
    at = g.broadcast(at);
    const bool fits = at != no_room;
    for (std::uint32_t i = g.rank(); i < count; i += g.size()) {
        const std::uint32_t word = atomic_load<order::relaxed>(&t.touched[i]);
        if (keep && fits)
            v.records[at + i] = {job_index, word, atomic_load<order::relaxed>(&t.counters[word])};
        atomic_store<order::relaxed>(&t.counters[word], std::uint64_t{0});
    }
    g.sync();  // every thread has read the list before it is empty
    if (g.is_leader()) atomic_store<order::relaxed>(t.touched_count, std::uint32_t{0});
    g.sync();  // and it is empty before any thread adds again
    return fits;
}

// Lowers the file's first zero byte to `position`. By any thread.
PENSTOCK_HD inline void note_zero_byte(const search_view& v, std::uint32_t file,
                                       std::uint64_t position) {
    std::uint64_t known = atomic_load<order::relaxed>(&v.first_zero[file]);
    while (position < known) {
        if (atomic_compare_swap<order::relaxed>(&v.first_zero[file], known, position)) return;
        known = atomic_load<order::relaxed>(&v.first_zero[file]);
    }
}

// One job: count the words of a piece of a file. The same for every way of getting at the text.
//
// A text source has
//   int for_each_window(g, from, to, body)   calls body(window, first, last) for consecutive pieces
//                                            that together cover the positions [from, to); 0 or a
//                                            negative errno. All threads of the group call
//                                            together; the source synchronises them after each
//                                            body.

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

// Errors of the runtime and not of a file: the rest would fail the same way, each after a wait.
constexpr PENSTOCK_HD bool concerns_runtime(std::int32_t code) {
    return code == -ECANCELED || code == -ESHUTDOWN || code == -ETIMEDOUT;
}

// Leader only. The next job, or v.job_count when there is none or the search is to stop.
PENSTOCK_HD inline std::uint64_t take_job(const search_view& v) {
    if (atomic_load<order::relaxed>(&v.shared->stop) != 0) return v.job_count;
    return atomic_fetch_add<order::relaxed>(&v.shared->next_job, std::uint64_t{1});
}

// Whole group, with the scratch of this number: takes jobs until none is left.
// count(tally, job_index): the job's status.
template <typename Group, typename Count>
PENSTOCK_HD PENSTOCK_INLINE void take_jobs(const Group& g, const search_view& v,
                                           std::uint64_t scratch, const Count& count) {
    const tally t(v, scratch);
    for (;;) {
        const std::uint64_t taken = g.broadcast(g.is_leader() ? take_job(v) : 0);
        if (taken >= v.job_count) return;
        const auto job_index = static_cast<std::uint32_t>(taken);
        // Nothing of the file counts any more if another job met a zero byte near its beginning.
        const std::uint64_t* const zero = &v.first_zero[v.jobs[job_index].file];
        const bool settled = g.broadcast(atomic_load<order::relaxed>(zero) < first_read_bytes);
        const int code = settled ? 0 : count(t, job_index);
        if (!g.is_leader()) continue;
        v.status[job_index] = code;
        if (concerns_runtime(code)) atomic_store<order::relaxed>(&v.shared->stop, 1u);
    }
}

}  // namespace penstock::grep
