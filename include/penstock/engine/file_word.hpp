// The file word, and the words of the name table: the rights of a descriptor, and which name leads
// to it.
//
// File word, one per file slot:
//   bits 63..62  state       0 vacant, 1 busy (being filled in or taken down), 2 live
//        41..32  generation  of the slot; the host gives a slot out again with the next one
//        61..48  changes     of the references, modulo 16384: so that a group that looked at the
//                            word knows that no group opened and closed since
//        47..42  numbers     1 to 6, of open descriptors that have a number of their own
//        31..0   references  live only: 0 means closed, the pages stay
//
//   step           from            to              order     by
//   begin_fill     vacant          busy, new gen   acquire   the opener that the host gave
//                                                            (slot, generation), if that is later
//                                                            than the word's
//   end_fill       busy            live, 1 ref     release   the same, after it wrote the file
//                                                            record
//   try_reference  live, refs >= 1 refs + 1        acquire   a group that has a descriptor, or an
//                                                            opener that found the name
//                                                            (..._by_name)
//   try_reopen     live, refs >= 0 refs + 1        acquire   an opener that the host just told that
//                                                  release   the file is unchanged
//   try_release    live, refs >= 1 refs - 1        release   close
//   take_number    live, refs >= 1 a number more   acquire   an opener, with a reference, if no
//                                                            more than six are held
//   release_number live, the number refs - 1, and  release   close of a descriptor with a number
//                                  the number less
//   begin_retire   live, refs == 0 busy            acquire   a group that needs the slot or its
//                                                            table
//   end_retire     busy            vacant          release   the same, before the host hears of it
//                                                            and gives it out again
//   undo_retire    busy            live, 0 refs    release   the same, when a page is still pinned
//   end_adopt      busy            live, 0 refs    release   after begin_fill, for a file that
//                                                            no group waits for any more
//
// Invariants
//  (1) The file record changes only while the word is busy.
//  (2) Each life of a slot has the next generation (modulo 1024).
//  (3) The group that entered busy leaves it, after at most one wait for a slot of a ring.
//  (4) There are at least as many references as numbers; the rest belong to descriptors without a
//      number.
//
// Name word, one per name slot: state in bits 1..0 (0 never used, 1 busy, 2 ready, 3 failed), a
// sequence number above it that grows with every change. A reader that compared a name or read a
// slot checks that the word stayed the same.
#pragma once

#include "penstock/base/atomic.hpp"
#include "penstock/base/coalesced_lanes.hpp"
#include "penstock/base/standard.hpp"

namespace penstock::engine {

using file_word = std::uint64_t;

inline constexpr file_word file_state_mask = file_word{3} << 62, file_vacant = 0,
                           file_busy = file_word{1} << 62, file_live = file_word{2} << 62;
inline constexpr std::uint32_t file_generation_bits = 10;  // as many as a descriptor carries
inline constexpr std::uint32_t file_generation_mask = (1u << file_generation_bits) - 1;

constexpr PENSTOCK_HD file_word make_file_word(file_word state, std::uint32_t generation,
                                               std::uint32_t references) {
    return state | file_word{generation} << 32 | references;
}
constexpr PENSTOCK_HD file_word file_state(file_word w) { return w & file_state_mask; }
constexpr PENSTOCK_HD std::uint32_t file_generation(file_word w) {
    return static_cast<std::uint32_t>(w >> 32) & file_generation_mask;
}
// Generations go round, so "later" means by less than half the way.
constexpr PENSTOCK_HD bool is_later_generation(std::uint32_t generation, std::uint32_t than) {
    const std::uint32_t ahead = (generation - than) & file_generation_mask;
    return ahead != 0 && ahead <= file_generation_mask / 2;
}
// The word with `more` references added, and one change.
constexpr PENSTOCK_HD file_word with_references(file_word w, std::uint64_t more) {
    constexpr file_word one_change = file_word{1} << 48, changes = ((file_word{1} << 14) - 1) << 48;
    return (w & ~changes & ~file_word{0xffffffff}) | ((w + one_change) & changes) |
           ((w + more) & 0xffffffff);
}
constexpr PENSTOCK_HD std::uint32_t references_of(file_word w) {
    return static_cast<std::uint32_t>(w);
}
constexpr PENSTOCK_HD bool is_closed(file_word w) {
    return file_state(w) == file_live && references_of(w) == 0;
}
constexpr PENSTOCK_HD bool is_open(file_word w, std::uint32_t generation) {
    return file_state(w) == file_live && file_generation(w) == generation && references_of(w) > 0;
}

// A descriptor with a number belongs to its opener alone: a second close finds the number gone,
// unless it was given out again. Descriptors without a number share the remaining references.
inline constexpr std::uint32_t most_numbers = 6;
constexpr PENSTOCK_HD std::uint32_t numbers_of(file_word w) {
    return static_cast<std::uint32_t>(w >> 41) & 0x7e;
}  // bit n for number n
constexpr PENSTOCK_HD file_word number_bit(std::uint32_t number) {
    return file_word{1} << (41 + number);
}
constexpr PENSTOCK_HD bool has_number(file_word w, std::uint32_t number) {
    return ((numbers_of(w) | 1) >> number & 1) != 0;
}
constexpr PENSTOCK_HD std::uint32_t shared_references_of(file_word w) {
    const std::uint32_t numbers = numbers_of(w), pairs = numbers - (numbers >> 1 & 0x55),
                        fours = (pairs & 0x33) + (pairs >> 2 & 0x33);
    return references_of(w) - ((fours + (fours >> 4)) & 0x0f);
}
// May a descriptor with this number, 0 for none, be closed?
constexpr PENSTOCK_HD bool is_closable(file_word w, std::uint32_t generation,
                                       std::uint32_t number) {
    return is_open(w, generation) &&
           (number == 0 ? shared_references_of(w) > 0 : has_number(w, number));
}

PENSTOCK_HD PENSTOCK_INLINE file_word look(const file_word* word) {
    return atomic_load<order::acquire>(word);
}

// Serves to refuse a wrong descriptor. Relaxed: a group that holds an open descriptor is already
// ordered after its end_fill.
PENSTOCK_HD PENSTOCK_INLINE file_word load_file_relaxed(const file_word* word) {
    return atomic_load<order::relaxed>(word);
}

// Acquire: pairs with end_retire of the slot's last life, so the old record was read for the last
// time.
PENSTOCK_HD PENSTOCK_INLINE bool begin_fill(file_word* word, file_word seen,
                                            std::uint32_t generation) {
    return atomic_compare_swap<order::acquire>(word, seen,
                                               make_file_word(file_busy, generation, 0));
}
// Release: pairs with try_reference and try_reopen; a group that holds a reference reads a complete
// record.
PENSTOCK_HD PENSTOCK_INLINE void end_fill(file_word* word, std::uint32_t generation) {
    atomic_store<order::release>(word, make_file_word(file_live, generation, 1));
}

// The lanes that may act together: they agree in the word (an address has at most 56 bits), the
// generation, and one more value.
PENSTOCK_HD PENSTOCK_INLINE coalesced_lanes lanes_at(const file_word* word,
                                                     std::uint32_t generation,
                                                     std::uint32_t least) {
    const auto place =
        static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(word)) / sizeof(file_word);
    return coalesced_lanes(
        (place << file_generation_bits | (generation & file_generation_mask)) << 1 | least);
}

// Takes references for `us` in one step from a word for which may_take(seen) holds. What may_take
// looks at beside the word is as it was then when the exchange succeeds: else the word had changed.
template <order Order, typename MayTake>
PENSTOCK_HD PENSTOCK_INLINE bool try_add_reference(file_word* word, const coalesced_lanes& us,
                                                   const MayTake& may_take) {
    std::uint32_t taken = 0;
    if (us.acts()) {
        file_word seen = look(word);
        for (std::uint32_t round = 0; may_take(seen); ++round) {
            if (atomic_compare_swap<Order>(word, seen, with_references(seen, us.size()))) {
                taken = us.size();
                break;
            }
            let_others_first(
                round);  // another opener or closer won; each round one of them makes progress
            seen = look(word);
        }
    }
    return us.share(taken);
}

// One more reference of an open file. Lanes of a warp that want the same file take theirs in one
// step, as in what follows.
PENSTOCK_HD inline bool try_reference(file_word* word, std::uint32_t generation) {
    return try_add_reference<order::acquire>(
        word, lanes_at(word, generation, 1),
        [&](file_word seen) { return is_open(seen, generation); });
}

// How often a file slot was opened that was vacant or closed; one count for each slot. A name knows
// the count of its last open. While the slot has the same count it was not closed since, so the
// name still leads to the file, whatever became of the name on disk. Else the host has to be asked.
using opening_count = std::uint32_t;

// Before the step that opens the file. Relaxed: that step is a release.
PENSTOCK_HD PENSTOCK_INLINE void count_opening(opening_count* openings) {
    atomic_fetch_add<order::relaxed>(openings, opening_count{1});
}
// Of a file, with a reference, or after a look that found the file open. Relaxed: either was an
// acquire, which pairs with the step that opened the file. So the count is no older than that
// step's. Of a name, as its other fields.
PENSTOCK_HD PENSTOCK_INLINE opening_count openings_of(const opening_count* openings) {
    return atomic_load<order::relaxed>(openings);
}

// Of a name, which is busy. Relaxed: settle_name publishes it.
PENSTOCK_HD PENSTOCK_INLINE void note_opening(opening_count* of_name, opening_count found) {
    atomic_store<order::relaxed>(of_name, found);
}

// A reference also of a closed file. It is counted first, after each look that finds it closed: a
// count of before an exchange that failed may be known to a name by now. Acquire as in
// try_reference. Release: pairs with a look that finds the file open (openings_of).
PENSTOCK_HD inline bool try_reopen(file_word* word, std::uint32_t generation,
                                   opening_count* openings) {
    return try_add_reference<order::acq_rel>(
        word, lanes_at(word, generation, 0), [&](file_word seen) {
            if (file_state(seen) != file_live || file_generation(seen) != generation) return false;
            if (references_of(seen) == 0) count_opening(openings);
            return true;
        });
}

// As try_reference, by a name that knows the count of an opening; with `writers` only beside a
// writer. Both are looked at between the look at the word and the exchange. A look before would not
// do, for the file may have been closed, settled, and opened by another name, or to read, since. A
// writer is counted while it has a reference. Acquire: pairs with count_writers; that count is no
// older than the word.
PENSTOCK_HD inline bool try_reference_by_name(file_word* word, std::uint32_t generation,
                                              const opening_count* openings, opening_count known,
                                              const std::uint32_t* writers) {
    return try_add_reference<order::acquire>(
        word, lanes_at(word, generation, 1).those_with(known), [&](file_word seen) {
            return is_open(seen, generation) && openings_of(openings) == known &&
                   (writers == nullptr || atomic_load<order::acquire>(writers) != 0);
        });
}

// Gives one reference back if the word is still `seen`, the word of an open file, so that no group
// opened or closed the file meanwhile. Release: pairs with begin_retire, and with the look of a
// group that closes later.
PENSTOCK_HD PENSTOCK_INLINE bool try_release_from(file_word* word, file_word seen) {
    return atomic_compare_swap<order::release>(word, seen,
                                               with_references(seen, ~std::uint64_t{0}));
}
// The same for all lanes of a warp that saw the same word and call together. There may be more
// lanes than references. False: try again.
PENSTOCK_HD inline bool try_release_together(file_word* word, file_word seen) {
    const coalesced_lanes same_word(reinterpret_cast<std::uintptr_t>(word));
    const coalesced_lanes us = same_word.those_with(seen);
    std::uint32_t given_back =
        us.size() < shared_references_of(seen) ? us.size() : shared_references_of(seen);
    if (us.acts() && !atomic_compare_swap<order::release>(
                         word, seen, with_references(seen, -std::uint64_t{given_back})))
        given_back = 0;
    return us.share(given_back);
}
// The same, from any value of the word. False: the descriptor was not open.
PENSTOCK_HD inline bool try_release(file_word* word, std::uint32_t generation) {
    const coalesced_lanes us = lanes_at(word, generation, 0);
    std::uint32_t given_back = 0;
    if (us.acts()) {
        file_word seen = look(word);
        for (std::uint32_t round = 0; is_closable(seen, generation, 0); ++round) {
            given_back =
                us.size() < shared_references_of(seen) ? us.size() : shared_references_of(seen);
            if (atomic_compare_swap<order::release>(
                    word, seen, with_references(seen, -std::uint64_t{given_back})))
                break;
            given_back = 0;
            let_others_first(round);
            seen = look(word);
        }
    }
    return us.share(given_back);
}

// Takes a number for a descriptor whose reference the caller holds. Returns 0 if the file has many
// references, for then most callers find no free number.
PENSTOCK_HD inline std::uint32_t take_number(file_word* word) {
    file_word seen = look(word);
    for (std::uint32_t round = 0;
         references_of(seen) <= most_numbers && shared_references_of(seen) > 0; ++round) {
        std::uint32_t number = 1;
        while (has_number(seen, number))
            ++number;  // a number is free: five other descriptors cannot take all six
        if (atomic_compare_swap<order::acquire>(word, seen,
                                                with_references(seen | number_bit(number), 0)))
            return number;
        let_others_first(round);
        seen = look(word);
    }
    return 0;
}
// Gives back the reference and the number of a descriptor, if the word is still `seen`, which has
// that number. Release: as in try_release_from.
PENSTOCK_HD PENSTOCK_INLINE bool release_number_from(file_word* word, file_word seen,
                                                     std::uint32_t number) {
    return atomic_compare_swap<order::release>(
        word, seen, with_references(seen & ~number_bit(number), ~std::uint64_t{0}));
}
// The same, from any value of the word. False: the descriptor was not open.
PENSTOCK_HD inline bool release_number(file_word* word, std::uint32_t generation,
                                       std::uint32_t number) {
    file_word seen = look(word);
    for (std::uint32_t round = 0; is_closable(seen, generation, number); ++round) {
        if (release_number_from(word, seen, number)) return true;
        let_others_first(round);
        seen = look(word);
    }
    return false;
}

PENSTOCK_HD PENSTOCK_INLINE bool begin_retire(file_word* word, file_word seen) {
    return is_closed(seen) && atomic_compare_swap<order::acquire>(
                                  word, seen, make_file_word(file_busy, file_generation(seen), 0));
}
PENSTOCK_HD PENSTOCK_INLINE void end_retire(file_word* word, std::uint32_t generation) {
    atomic_store<order::release>(word, make_file_word(file_vacant, generation, 0));
}
PENSTOCK_HD PENSTOCK_INLINE void undo_retire(file_word* word, std::uint32_t generation) {
    atomic_store<order::release>(word, make_file_word(file_live, generation, 0));
}

PENSTOCK_HD PENSTOCK_INLINE void end_adopt(file_word* word, std::uint32_t generation) {
    atomic_store<order::release>(word, make_file_word(file_live, generation, 0));
}

using name_word = std::uint64_t;

inline constexpr name_word name_state_mask = 3, name_unused = 0, name_busy = 1, name_ready = 2,
                           name_failed = 3;

constexpr PENSTOCK_HD name_word name_state(name_word w) { return w & name_state_mask; }
constexpr PENSTOCK_HD name_word next_name_word(name_word w, name_word state) {
    return (w & ~name_state_mask) + 4 + state;
}

// Acquire: the hash, name and target in the slot are at least as new as the word.
PENSTOCK_HD PENSTOCK_INLINE name_word load_name_for_read(const name_word* word) {
    return atomic_load<order::acquire>(word);
}

// Any settled state -> busy: the caller alone may change the slot until settle_name.
PENSTOCK_HD PENSTOCK_INLINE bool try_own_name(name_word* word, name_word seen) {
    const bool owned =
        atomic_compare_swap<order::acq_rel>(word, seen, next_name_word(seen, name_busy));
    if (owned)
        atomic_fence();  // pairs with name_unchanged: a reader of the new fields sees that the slot
                         // turned busy
    return owned;
}
// Release: pairs with load_name_for_read.
PENSTOCK_HD PENSTOCK_INLINE void settle_name(name_word* word, name_word state) {
    const name_word busy = atomic_load<order::relaxed>(word);
    PENSTOCK_ASSERT(name_state(busy) == name_busy);
    atomic_store<order::release>(word, next_name_word(busy, state));
}
// The caller owns the slot, which is busy. No file has generation 0, so the name leads nowhere.
// Relaxed: settle_name publishes it.
PENSTOCK_HD PENSTOCK_INLINE void forget_target(std::uint32_t* generation) {
    atomic_store<order::relaxed>(generation, std::uint32_t{0});
}
PENSTOCK_HD PENSTOCK_INLINE bool name_unchanged(const name_word* word, name_word seen) {
    atomic_fence();
    return atomic_load<order::relaxed>(word) == seen;
}

// The short lock that keeps two openers of one new name from taking two slots. Held for one probe
// of the table, never while waiting for the host.
PENSTOCK_HD PENSTOCK_INLINE bool try_lock(std::uint32_t* lock) {
    return atomic_compare_swap<order::acquire>(lock, std::uint32_t{0}, std::uint32_t{1});
}
PENSTOCK_HD PENSTOCK_INLINE void unlock(std::uint32_t* lock) {
    atomic_store<order::release>(lock, std::uint32_t{0});
}

}  // namespace penstock::engine
