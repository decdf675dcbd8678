// Dirty marks: a bit for every byte of every frame, which says that the file does not have this
// byte yet; and the words that belong to the marks.
//
//   word                    where           steps (order)
//   dirty_bits[...]         64 bytes each   mark (relaxed or, after a fence), take (acquire
//                                           exchange), put_back (relaxed or)
//   page word, dirty bit    per page        join_dirty, mark_dirty, clear_dirty
//                                           (engine/page_word.hpp)
//   write_locks[frame]      per frame       try_lock_frame, take_over (acquire), unlock_frame,
//                                           leave_lock, offer_page (release), note_request,
//                                           keep_for_cut (relaxed, by the holder)
//   size_bytes              per file        size_of (relaxed), grow_to (release), cut_to (release)
//   append_end              per file        raise_room (acquire), take_room (acq_rel),
//                                           give_room_back (relaxed), cut_room (release)
//   gate                    per file        go_in (acquire), go_out (release), look_at_gate,
//                                           are_groups_in, close_gate (acquire), set_gate (release)
//   offered_run             one             show_run, next_offered (relaxed: a hint; take_over
//                                           decides)
//
// A write stores its bytes, fences, marks them, and marks the page dirty, all under a pin. A group
// that writes a page back locks its frame, takes the marks, fences, copies the page, and sends it.
// When the host has written it, the group clears the page's dirty bit, looks at the marks again,
// and marks the page dirty if it finds any.
//
// Invariants
//  (1) Bytes come before their marks. So the group that takes a mark copies bytes at least as new;
//      a byte that is stored again afterwards is marked again afterwards. Nothing is lost, and no
//      writer waits for a write-back, but for those of a cut (engine/cut.hpp).
//  (2) Only the holder of a frame's lock takes marks, so copies of one page reach the file one
//      after the other, in their order. The lock of a copy whose fate is unknown (the host did not
//      answer in time) is left to that request: the lock becomes free with its answer. A group that
//      offers a page takes it back itself if no other group does.
//  (3) A page with a mark is dirty, or pinned by a group that marks it dirty before it unpins. So a
//      page without pins that is not dirty has no marks, and its frame may be given to another
//      page. (A dirty page may have no marks.)
//  (4) A file's count of dirty pages is never less than it has. It is raised before a page turns
//      dirty, and lowered after the page is known to stay clean. Between the step in which a
//      write-back clears the dirty bit and its second look at the marks, the count still includes
//      the page, and the page keeps its pin. So a flusher does not pass the page by: it waits for
//      the lock and then looks.
//  (5) Marks name only bytes that were written (the last byte of a mapping that grew the file
//      counts as written), and a write-back sends only these bytes to the file. So writers of
//      different bytes of one page do not overwrite each other, wherever they are.
//
// Tests: tests/unit/write_test.cpp, tests/explore/write_test.cpp (every schedule of a writer, a
// write-back and an eviction), tests/model.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/layout.hpp"

namespace penstock::engine {

PENSTOCK_HD PENSTOCK_INLINE std::uint64_t mark_words(const cache_view& c) {
    return (c.page_bytes() + 63) / 64;
}  // only tests have pages so small
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t* marks_of(const cache_view& c, std::uint32_t frame) {
    return c.dirty_bits + frame * mark_words(c);
}

// The marks of word `number` for the bytes [begin, end) of a page.
constexpr PENSTOCK_HD std::uint64_t marks_within(std::uint64_t number, std::uint64_t begin,
                                                 std::uint64_t end) {
    const std::uint64_t first = number * 64;
    if (end <= first || begin >= first + 64) return 0;
    const std::uint64_t low = begin > first ? begin - first : 0,
                        high = end < first + 64 ? end - first : 64;
    return (~std::uint64_t{0} >> (64 - (high - low))) << low;
}

// Whole group, with a pin on the page, after the group stored the bytes [begin, end): marks them.
// Relaxed, since a fence of every thread comes first.
template <typename Group>
PENSTOCK_HD inline void mark(const Group& g, const cache_view& c, std::uint32_t frame,
                             std::uint64_t begin, std::uint64_t end) {
    atomic_fence();
    g.sync();  // every thread's bytes come before any thread's marks
    for (std::uint64_t i = begin / 64 + g.rank(); i <= (end - 1) / 64; i += g.size())
        atomic_or_relaxed(&marks_of(c, frame)[i], marks_within(i, begin, end));
    g.sync();  // every thread's marks come before the leader marks the page dirty
}

// Called by the holder of the frame's lock. The caller makes a fence before it copies anything.
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t take(std::uint64_t* marks) {
    return atomic_exchange<order::acquire>(marks, std::uint64_t{0});
}
PENSTOCK_HD PENSTOCK_INLINE void put_back(std::uint64_t* marks, std::uint64_t bits) {
    if (bits != 0) atomic_or_relaxed(marks, bits);
}
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t look_at_marks(const std::uint64_t* marks) {
    return atomic_load<order::relaxed>(marks);
}

// May the page have marks? If a page is clean and pinned, a write-back may have cleared the dirty
// bit without having looked for new marks yet (settle_page). A flusher has to wait until that
// write-back has looked.
PENSTOCK_HD PENSTOCK_INLINE bool may_have_marks(page_word seen) {
    return is_valid(seen) && (is_dirty(seen) || pins_of(seen) != 0);
}

// Frame locks. A lock is 0, which is free; or lock_held, with the request added once the page is
// copied; or a request alone, which its group gave up. A request has the ring in bits 63..56 and
// ticket + 2 below bit 53. Bit 54: the page's marks have to be put back after it. Bit 53: every
// byte of the copy is marked. 1 in place of a request: the lock is held, and any group may take it
// over. Bit 54 without a request: a cut of the file holds it (engine/cut.hpp).
inline constexpr std::uint64_t lock_free = 0, lock_held = std::uint64_t{1} << 55,
                               lock_keeps_marks = std::uint64_t{1} << 54;
inline constexpr std::uint64_t lock_sends_all = std::uint64_t{1} << 53,
                               lock_offered = lock_held | 1,
                               lock_of_cut = lock_held | lock_keeps_marks;
inline constexpr std::uint32_t lock_ring_shift = 56;

constexpr PENSTOCK_HD std::uint64_t lock_request(std::uint32_t ring, std::uint64_t ticket) {
    return std::uint64_t{ring} << lock_ring_shift | (ticket + 2);
}
constexpr PENSTOCK_HD std::uint32_t lock_ring(std::uint64_t lock) {
    return static_cast<std::uint32_t>(lock >> lock_ring_shift);
}
constexpr PENSTOCK_HD std::uint64_t lock_ticket(std::uint64_t lock) {
    return (lock & (lock_sends_all - 1)) - 2;
}

// Has the host answered a request that its group gave up? Acquire: pairs with the answer, which
// comes after all that the host did.
PENSTOCK_HD inline bool is_left_request_done(const cache_view& c, std::uint64_t request) {
    const ring_view& r = c.rings[lock_ring(request)];
    const std::uint64_t* const completed =
        &r.replies[lock_ticket(request) & (r.slots - 1)].completed;
    return (atomic_load<order::acquire, scope::system>(completed) & ~whole_bit) >
           lock_ticket(request);
}
// Leader only, pinned. Acquire: pairs with unlock_frame, and with the service thread's answer to a
// request that was given up.
PENSTOCK_HD inline bool try_lock_frame(const cache_view& c, std::uint32_t frame) {
    std::uint64_t* const lock = &c.write_locks[frame];
    const std::uint64_t seen = atomic_load<order::relaxed>(lock);
    if ((seen & lock_held) != 0 || (seen != lock_free && !is_left_request_done(c, seen)))
        return false;
    return atomic_compare_swap<order::acquire>(lock, seen, lock_held);
}
PENSTOCK_HD PENSTOCK_INLINE void unlock_frame(const cache_view& c, std::uint32_t frame) {
    atomic_store<order::release>(&c.write_locks[frame], lock_free);
}
// Called by the holder, which alone reads these notes; other groups only see that the lock is held.
PENSTOCK_HD PENSTOCK_INLINE void note_request(const cache_view& c, std::uint32_t frame,
                                              std::uint32_t ring, std::uint64_t ticket,
                                              bool keeps_marks, bool sends_all) {
    atomic_store<order::relaxed>(&c.write_locks[frame],
                                 lock_held | (keeps_marks ? lock_keeps_marks : 0) |
                                     (sends_all ? lock_sends_all : 0) | lock_request(ring, ticket));
}
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t noted_request(const cache_view& c, std::uint32_t frame) {
    return atomic_load<order::relaxed>(&c.write_locks[frame]);
}
// In place of unlock_frame: the host may still carry the request out.
PENSTOCK_HD PENSTOCK_INLINE void leave_lock(const cache_view& c, std::uint32_t frame,
                                            std::uint32_t ring, std::uint64_t ticket) {
    atomic_store<order::release>(&c.write_locks[frame], lock_request(ring, ticket));
}

// Called by the holder, which cuts the page's file and later asks which locks it has, with a pin on
// the page. One cut of a file goes on at a time, so such a lock on a page of the file is its own.
PENSTOCK_HD PENSTOCK_INLINE void keep_for_cut(const cache_view& c, std::uint32_t frame) {
    atomic_store<order::relaxed>(&c.write_locks[frame], lock_of_cut);
}
PENSTOCK_HD PENSTOCK_INLINE bool is_kept_for_cut(const cache_view& c, std::uint32_t frame) {
    return atomic_load<order::relaxed>(&c.write_locks[frame]) == lock_of_cut;
}

// How many groups are writing pages back for a frame. A hint.
PENSTOCK_HD PENSTOCK_INLINE std::uint32_t victim_writers(const cache_view& c) {
    return atomic_load<order::relaxed>(&c.clock_hands[victim_writers_place]);
}
PENSTOCK_HD PENSTOCK_INLINE void count_victim_writers(const cache_view& c, std::uint32_t change) {
    atomic_fetch_add<order::relaxed>(&c.clock_hands[victim_writers_place], change);
}

// How many groups write behind, or the share of a close. A hint that keeps their number low.
PENSTOCK_HD PENSTOCK_INLINE std::uint32_t write_behind_writers(const cache_view& c) {
    return atomic_load<order::relaxed>(&c.clock_hands[write_behind_writers_place]);
}
PENSTOCK_HD PENSTOCK_INLINE void count_write_behind_writers(const cache_view& c,
                                                            std::uint32_t change) {
    atomic_fetch_add<order::relaxed>(&c.clock_hands[write_behind_writers_place], change);
}
// Counts the caller too, unless there are `most` already. Relaxed: it orders nothing.
PENSTOCK_HD inline bool join_write_behind_writers(const cache_view& c, std::uint32_t most) {
    if (write_behind_writers(c) >= most) return false;
    if (atomic_fetch_add<order::relaxed>(&c.clock_hands[write_behind_writers_place],
                                         std::uint32_t{1}) < most)
        return true;
    count_write_behind_writers(c, ~std::uint32_t{0});
    return false;
}

// Did a write-back fail, and has no write-back of a victim succeeded since? A hint: while it is
// set, groups that make pages dirty leave clean frames to readers (engine/clock.hpp, writes_first).
PENSTOCK_HD PENSTOCK_INLINE bool writes_fail(const cache_view& c) {
    return atomic_load<order::relaxed>(&c.clock_hands[failing_place]) != 0;
}
PENSTOCK_HD PENSTOCK_INLINE void note_writes(const cache_view& c, bool fail) {
    if (writes_fail(c) != fail)
        atomic_store<order::relaxed>(&c.clock_hands[failing_place], std::uint32_t{fail ? 1u : 0u});
}

// Handed-over pages: a group holds neighbours (pin and lock) and lets other groups write them back,
// each group one page. The lock word says that a page is offered. A group that turns the word into
// held has taken the page over, with its pin and lock. Release here, acquire in take_over: the
// holder's pin and lock become the taker's.
PENSTOCK_HD PENSTOCK_INLINE void offer_page(const cache_view& c, std::uint32_t frame) {
    atomic_store<order::release>(&c.write_locks[frame], lock_offered);
}
PENSTOCK_HD PENSTOCK_INLINE bool take_over(const cache_view& c, std::uint32_t frame) {
    std::uint64_t* const lock = &c.write_locks[frame];
    return atomic_load<order::relaxed>(lock) == lock_offered &&
           atomic_compare_swap<order::acquire>(lock, lock_offered, lock_held);
}
// One group at a time offers pages; it waits for nothing until it has offered them. Acquire and
// release, so that the next group sees which pages are offered already.
PENSTOCK_HD PENSTOCK_INLINE bool begin_offering(const cache_view& c) {
    std::uint32_t* const lock = &c.clock_hands[offering_place];
    return atomic_load<order::relaxed>(lock) == 0 &&
           atomic_compare_swap<order::acquire>(lock, std::uint32_t{0}, std::uint32_t{1});
}
PENSTOCK_HD PENSTOCK_INLINE void end_offering(const cache_view& c) {
    atomic_store<order::release>(&c.clock_hands[offering_place], std::uint32_t{0});
}

// The run of offered pages. Bits 63..50: how many pages of the run were given out; 49..40: how many
// it has; 39..0: the first page word. A hint that spreads the groups over the pages: not every page
// of a run is offered, and a page that is given out late may be gone. So the count may wrap round
// without harm.
inline constexpr std::uint32_t given_out_shift = 50;
inline constexpr std::uint64_t most_run_pages = (1u << (given_out_shift - word_index_bits)) - 1;
PENSTOCK_HD PENSTOCK_INLINE void show_run(const cache_view& c, std::uint64_t word_index,
                                          std::uint64_t pages) {
    atomic_store<order::relaxed>(c.offered_run, pages << word_index_bits | word_index);
}
constexpr PENSTOCK_HD bool is_given_out(std::uint64_t run) {
    return run >> given_out_shift >= (run >> word_index_bits & most_run_pages);
}
PENSTOCK_HD PENSTOCK_INLINE bool all_given_out(const cache_view& c) {
    return is_given_out(atomic_load<order::relaxed>(c.offered_run));
}
PENSTOCK_HD inline bool next_offered(const cache_view& c, std::uint64_t& word_index) {
    if (all_given_out(c)) return false;
    const std::uint64_t run =
        atomic_fetch_add<order::relaxed>(c.offered_run, std::uint64_t{1} << given_out_shift);
    word_index = (run & ((std::uint64_t{1} << word_index_bits) - 1)) + (run >> given_out_shift);
    return !is_given_out(run);
}
// Acquire: pairs with the release that made the frame free.
PENSTOCK_HD PENSTOCK_INLINE bool take_given_frame(const cache_view& c, std::uint32_t frame) {
    return atomic_compare_swap<order::acquire>(&c.frame_words[frame], frame_free, frame_busy);
}

// Steps of the pristine words (engine/pristine.hpp has their states). Acquire where a holder joins,
// release where a holder leaves.
inline constexpr pristine_word pristine_none = 0;
constexpr PENSTOCK_HD bool is_copy(pristine_word w) { return w >> 32 != 0; }
PENSTOCK_HD PENSTOCK_INLINE pristine_word load_pristine_relaxed(const pristine_word* word) {
    return atomic_load<order::relaxed>(word);
}
PENSTOCK_HD PENSTOCK_INLINE void make_pristine(pristine_word* word, pristine_word copy) {
    atomic_store<order::release>(word, copy);
}
PENSTOCK_HD PENSTOCK_INLINE bool join_pristine(pristine_word* word, pristine_word seen) {
    return atomic_compare_swap<order::acquire>(word, seen, seen + 1);
}
// Acquire too: the last holder gives the frame away, which must come after the comparisons of the
// other holders.
PENSTOCK_HD PENSTOCK_INLINE bool leave_pristine_from(pristine_word* word, pristine_word seen,
                                                     pristine_word next) {
    return atomic_compare_swap<order::acq_rel>(word, seen, next);
}
// Called by the holder of the frame's lock. Acquire: pairs with leave_pristine_from, so a group
// that finds no copy sees all marks that were made by comparison with the copy.
PENSTOCK_HD PENSTOCK_INLINE bool has_copy(const cache_view& c, std::uint32_t frame) {
    return is_copy(atomic_load<order::acquire>(&c.pristine[frame]));
}

// Which page the frame holds. Each group that marks bytes in the page stores it, and the holder of
// the frame's lock reads it; both have a pin.
PENSTOCK_HD PENSTOCK_INLINE void name_page(const cache_view& c, std::uint32_t frame,
                                           std::uint64_t page) {
    atomic_store<order::relaxed>(&c.frame_pages[frame], page);
}
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t page_in_frame(const cache_view& c, std::uint32_t frame) {
    return atomic_load<order::relaxed>(&c.frame_pages[frame]);
}
// A hint unless the caller has a pin on the frame's page.
PENSTOCK_HD PENSTOCK_INLINE frame_word look_at_frame(const cache_view& c, std::uint32_t frame) {
    return atomic_load<order::relaxed>(&c.frame_words[frame]);
}

// The size of the file. Relaxed: a group that must see another group's write is ordered after it by
// other means, as with the bytes themselves.
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t size_of(const cache_view& c, std::uint32_t slot) {
    return atomic_load<order::relaxed>(&c.file_records[slot].size_bytes);
}
// Release: the bytes up to that size come first.
PENSTOCK_HD PENSTOCK_INLINE void grow_to(const cache_view& c, std::uint32_t slot,
                                         std::uint64_t size_bytes) {
    if (size_of(c, slot) < size_bytes)
        atomic_raise<order::release>(&c.file_records[slot].size_bytes, size_bytes);
}
// Release as above. What a cut clears behind the new end it clears after a fence
// (begin_overwrite). Partner: begin_recheck of a reader of rows, which then looks at the size
// (is_cut_off); so zeros of a cut do not pass for bytes of the file.
PENSTOCK_HD PENSTOCK_INLINE void cut_to(const cache_view& c, std::uint32_t slot,
                                        std::uint64_t size_bytes) {
    atomic_store<order::release>(&c.file_records[slot].size_bytes, size_bytes);
}
// Rooms for appended records begin at `append_end`. The file does not grow by a room: the write of
// the record does that, so a record that fails leaves the size alone.
//
// Raises it to the file's end, which other writes have moved, and returns it. Acquire: pairs with
// cut_room; a group that finds the rooms cut does not raise them to the size before the cut.
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t raise_room(const cache_view& c, std::uint32_t slot) {
    std::uint64_t* const end = &c.writes[slot].append_end;
    const std::uint64_t seen = atomic_load<order::acquire>(end), size = size_of(c, slot);
    if (seen >= size) return seen;
    atomic_raise<order::relaxed>(end, size);
    return size;
}
// Takes room for an appended record, at the offset that is returned; after raise_room. Acquire and
// release: the record comes after the records before it.
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t take_room(const cache_view& c, std::uint32_t slot,
                                                    std::uint64_t bytes) {
    return atomic_fetch_add<order::acq_rel>(&c.writes[slot].append_end, bytes);
}
// Of a record of which no byte was written. If another record took room behind it, the room stays,
// and reads as zeros once the file reaches behind it. Relaxed: nothing was written there.
PENSTOCK_HD PENSTOCK_INLINE void give_room_back(const cache_view& c, std::uint32_t slot,
                                                std::uint64_t at, std::uint64_t bytes) {
    atomic_compare_swap<order::relaxed>(&c.writes[slot].append_end, at + bytes, at);
}
// After cut_to. Release: the file's new size comes first.
PENSTOCK_HD PENSTOCK_INLINE void cut_room(const cache_view& c, std::uint32_t slot,
                                          std::uint64_t size_bytes) {
    atomic_store<order::release>(&c.writes[slot].append_end, size_bytes);
}

// Words of the write record. Counting is relaxed. `granted` is set before a descriptor that may
// write is handed out. A group that loads a page that was written back comes after that, since the
// eviction in the page word lies between; so `granted` is relaxed as well.
PENSTOCK_HD PENSTOCK_INLINE bool is_granted(const cache_view& c, std::uint32_t slot) {
    return c.writes != nullptr && atomic_load<order::relaxed>(&c.writes[slot].granted) != 0;
}
PENSTOCK_HD PENSTOCK_INLINE void grant(const cache_view& c, std::uint32_t slot) {
    std::uint32_t* const word = &c.writes[slot].granted;
    if (atomic_load<order::relaxed>(word) == 0)
        atomic_compare_swap<order::relaxed>(word, std::uint32_t{0}, granted_plainly);
    // Neighbours on other devices look at it after they copied bytes (is_granted_there): one that
    // has a byte that this group stores finds it granted.
    if (c.neighbour_places != 0) system_fence();
}
// Before a page of the file is mapped to be compared with zeros: from now on the cache may have
// zeros where the file has something else. The group has the file open for writing, so the word is
// granted, and no grant() changes it any more.
PENSTOCK_HD PENSTOCK_INLINE void note_guess(const cache_view& c, std::uint32_t slot) {
    atomic_store<order::relaxed>(&c.writes[slot].granted, granted_with_guesses);
}
PENSTOCK_HD PENSTOCK_INLINE bool has_guesses(const cache_view& c, std::uint32_t slot) {
    return atomic_load<order::relaxed>(&c.writes[slot].granted) == granted_with_guesses;
}
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t dirty_pages_of(const cache_view& c, std::uint32_t slot) {
    return atomic_load<order::relaxed>(&c.writes[slot].dirty_pages);
}
PENSTOCK_HD PENSTOCK_INLINE void count_dirty(const cache_view& c, std::uint32_t slot,
                                             std::uint64_t change) {
    atomic_add_relaxed(&c.writes[slot].dirty_pages, change);
}
// Leader only; the page is pinned and has new marks. The file's count goes up before the page turns
// dirty, for other groups may rely on the dirty bit at once: a group that finds the count 0 knows
// that the file has all bytes written before. True if the page was clean.
PENSTOCK_HD PENSTOCK_INLINE bool mark_page_dirty(const cache_view& c, std::uint32_t slot,
                                                 page_word* word) {
    if (is_dirty(load_relaxed(word)) && join_dirty(word)) return false;
    count_dirty(c, slot, 1);
    if (mark_dirty(word)) return true;
    count_dirty(c, slot, ~std::uint64_t{0});
    return false;
}
// Beside the count: the opener that has to cut the file has not done so yet.
inline constexpr std::uint32_t cut_due = std::uint32_t{1} << 31;
// Release: pairs with writers_of, so that a closer that sees a writer counted also sees the
// reference that it took before.
PENSTOCK_HD PENSTOCK_INLINE std::uint32_t count_writers(const cache_view& c, std::uint32_t slot,
                                                        std::uint32_t change) {
    return atomic_fetch_add<order::release>(&c.writes[slot].writers, change);
}
// Acquire: pairs with count_writers; the file word that the closer loads next is no older.
PENSTOCK_HD PENSTOCK_INLINE std::uint32_t writers_of(const cache_view& c, std::uint32_t slot) {
    return atomic_load<order::acquire>(&c.writes[slot].writers) & ~cut_due;
}
// By a group that took an answer to an open, and has its reference by now. Relaxed: a closer that
// finds the reference given back, by an acquire of the file word, finds the answer counted. And one
// that finds the answer counted finds the reference in the word that it releases from, or before
// it: a reference taken from a later word comes after that release, by an acquire.
PENSTOCK_HD PENSTOCK_INLINE void count_answer(const cache_view& c, std::uint32_t slot) {
    atomic_fetch_add<order::relaxed>(&c.writes[slot].answers, std::uint32_t{1});
}
// The size of the file itself, as far as this runtime knows. Raised before a write-back is sent, so
// that a page that was evicted is read again.
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t stored_bytes_of(const cache_view& c, std::uint32_t slot) {
    return atomic_load<order::relaxed>(&c.writes[slot].stored_bytes);
}
PENSTOCK_HD PENSTOCK_INLINE void raise_stored(const cache_view& c, std::uint32_t slot,
                                              std::uint64_t bytes) {
    if (stored_bytes_of(c, slot) < bytes)
        atomic_raise<order::relaxed>(&c.writes[slot].stored_bytes, bytes);
}
PENSTOCK_HD PENSTOCK_INLINE void cut_stored(const cache_view& c, std::uint32_t slot,
                                            std::uint64_t bytes) {
    if (bytes < stored_bytes_of(c, slot))
        atomic_store<order::relaxed>(&c.writes[slot].stored_bytes, bytes);
}
// Gives each caller another piece of the file. Relaxed: a hint that keeps closers apart; the lock
// of each page's frame decides.
PENSTOCK_HD PENSTOCK_INLINE std::uint32_t take_piece(const cache_view& c, std::uint32_t slot) {
    return atomic_fetch_add<order::relaxed>(&c.writes[slot].next_piece, std::uint32_t{1});
}
PENSTOCK_HD PENSTOCK_INLINE std::uint32_t answers_of(const cache_view& c, std::uint32_t slot) {
    return atomic_load<order::relaxed>(&c.writes[slot].answers);
}

// The count of writable mappings of the file. A group that maps has the file open, so counting is
// relaxed. The last close and an unmap that comes after it decide by this word which of them writes
// the rest back (engine/write.hpp): each changes the file word or its page first, then this word.
// Acquire and release: the later of the two sees all that the earlier one did.
PENSTOCK_HD PENSTOCK_INLINE void count_mappings(const cache_view& c, std::uint32_t slot,
                                                std::uint32_t more) {
    atomic_add_relaxed(&c.writes[slot].mappings, more);
}
// Acquire: pairs with drop_mapping; a closer that finds no mapping sees which pages the mappings
// made dirty.
PENSTOCK_HD PENSTOCK_INLINE std::uint32_t mappings_of(const cache_view& c, std::uint32_t slot) {
    return atomic_load<order::acquire>(&c.writes[slot].mappings);
}
PENSTOCK_HD PENSTOCK_INLINE void drop_mapping(const cache_view& c, std::uint32_t slot) {
    atomic_fetch_add<order::acq_rel>(&c.writes[slot].mappings, ~std::uint32_t{0});
}
PENSTOCK_HD PENSTOCK_INLINE std::uint32_t mappings_after_close(const cache_view& c,
                                                               std::uint32_t slot) {
    return atomic_fetch_add<order::acq_rel>(&c.writes[slot].mappings, std::uint32_t{0});
}

// Steps of the opener that has to cut the file, and of openers that wait for it. The mark stands in
// the count of writers: a group that finds a writer counted, and so opens beside it, finds the
// mark. is_being_cut: acquire, pairs with end_cut.
PENSTOCK_HD PENSTOCK_INLINE bool begin_cut(const cache_view& c, std::uint32_t slot) {
    return atomic_compare_swap<order::release>(&c.writes[slot].writers, std::uint32_t{0},
                                               cut_due + 1);
}
// `code`: 0, or the error with which the cut ended, for openers that wait for it. One opener at a
// time has the cut. Relaxed: the release behind it and the acquire of is_being_cut order the code.
PENSTOCK_HD PENSTOCK_INLINE void end_cut(const cache_view& c, std::uint32_t slot,
                                         std::int64_t code) {
    atomic_store<order::relaxed>(&c.writes[slot].opening_cut, code);
    atomic_fetch_add<order::release>(&c.writes[slot].writers, std::uint32_t{0} - cut_due);
}
// After is_being_cut was false, by an opener that was counted beside the mark.
PENSTOCK_HD PENSTOCK_INLINE std::int64_t code_of_cut(const cache_view& c, std::uint32_t slot) {
    return atomic_load<order::relaxed>(&c.writes[slot].opening_cut);
}
PENSTOCK_HD PENSTOCK_INLINE bool is_being_cut(const cache_view& c, std::uint32_t slot) {
    return (atomic_load<order::acquire>(&c.writes[slot].writers) & cut_due) != 0;
}

// Steps of the gate (engine/cut.hpp). One word counts the groups that change the file and says that
// a cut has it: of a group that goes in and a cut that closes the gate, one sees the other.
inline constexpr std::uint64_t gate_groups = UINT32_MAX, gate_closed = std::uint64_t{1} << 32,
                               gate_left = std::uint64_t{1} << 33;
// Acquire: pairs with set_gate; a group that comes in after a cut finds its size and its pages.
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t go_in(const cache_view& c, std::uint32_t slot) {
    return atomic_fetch_add<order::acquire>(&c.writes[slot].gate, std::uint64_t{1});
}
// Release: pairs with are_groups_in; a cut that finds no group in finds what they wrote.
PENSTOCK_HD PENSTOCK_INLINE void go_out(const cache_view& c, std::uint32_t slot) {
    atomic_fetch_add<order::release>(&c.writes[slot].gate, ~std::uint64_t{0});
}
// Relaxed: groups that wait look again and again; what they do next acquires.
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t look_at_gate(const cache_view& c, std::uint32_t slot) {
    return atomic_load<order::relaxed>(&c.writes[slot].gate);
}
// Acquire: pairs with go_out.
PENSTOCK_HD PENSTOCK_INLINE bool are_groups_in(const cache_view& c, std::uint32_t slot) {
    return (atomic_load<order::acquire>(&c.writes[slot].gate) & gate_groups) != 0;
}
// The right to close the gate. Acquire: pairs with drop_cut_lock, so that the next cut finds what
// the one before left.
PENSTOCK_HD PENSTOCK_INLINE bool try_cut_lock(const cache_view& c, std::uint32_t slot) {
    std::uint32_t* const lock = &c.writes[slot].cut_lock;
    return atomic_load<order::relaxed>(lock) == 0 &&
           atomic_compare_swap<order::acquire>(lock, std::uint32_t{0}, std::uint32_t{1});
}
PENSTOCK_HD PENSTOCK_INLINE void drop_cut_lock(const cache_view& c, std::uint32_t slot) {
    atomic_store<order::release>(&c.writes[slot].cut_lock, std::uint32_t{0});
}
// The next two by the holder of that lock. An addition, for it has to succeed beside any number of
// groups that go in and out. Acquire: what it looks at next is no older.
PENSTOCK_HD PENSTOCK_INLINE void close_gate(const cache_view& c, std::uint32_t slot) {
    atomic_fetch_add<order::acquire>(&c.writes[slot].gate, gate_closed);
}
// Release: what the cut did comes first. In a loop, for groups that find the gate closed go in and
// out again; each does so once.
PENSTOCK_HD inline void set_gate(const cache_view& c, std::uint32_t slot, std::uint64_t state) {
    std::uint64_t* const gate = &c.writes[slot].gate;
    for (;;) {
        const std::uint64_t seen = atomic_load<order::relaxed>(gate);
        if (atomic_compare_swap<order::release>(gate, seen, (seen & gate_groups) | state)) return;
    }
}
// What is left to do of a cut: a request that the host may still carry out, as in a frame lock; or
// to ask the host once more; or the device's part alone.
struct cut_order {
    std::uint64_t left, size_bytes, end_bytes;
};
inline constexpr std::uint64_t cut_is_made = 0, cut_is_to_ask = 1;
// By the holder of the lock; set_gate or drop_cut_lock release it.
PENSTOCK_HD inline void note_cut(const cache_view& c, std::uint32_t slot, const cut_order& cut) {
    atomic_store<order::relaxed>(&c.writes[slot].left_cut, cut.left);
    atomic_store<order::relaxed>(&c.writes[slot].cut_bytes, cut.size_bytes);
    atomic_store<order::relaxed>(&c.writes[slot].cut_end_bytes, cut.end_bytes);
}
PENSTOCK_HD inline cut_order noted_cut(const cache_view& c, std::uint32_t slot) {
    return {atomic_load<order::relaxed>(&c.writes[slot].left_cut),
            atomic_load<order::relaxed>(&c.writes[slot].cut_bytes),
            atomic_load<order::relaxed>(&c.writes[slot].cut_end_bytes)};
}

// May the host still make a cut of the file, whose group gave up? A hint without the lock, or an
// acquire that comes after its note: a group that finds the file closed has that by the file word,
// and lets the slot keep the file.
PENSTOCK_HD inline bool may_be_cut_yet(const cache_view& c, std::uint32_t slot) {
    if (c.writes == nullptr || (look_at_gate(c, slot) & gate_left) == 0) return false;
    const std::uint64_t left = noted_cut(c, slot).left;
    return left > cut_is_to_ask && !is_left_request_done(c, left);
}
// Called between two lives of a slot. Openers that still have the name of the slot's last file load
// these words before they find that the file is gone.
PENSTOCK_HD inline void reset_writes(const cache_view& c, std::uint32_t slot,
                                     std::uint64_t size_bytes) {
    auto* const words = reinterpret_cast<std::uint64_t*>(&c.writes[slot]);
    for (std::size_t i = 0; i < words_before_gate; ++i)
        atomic_store<order::relaxed>(&words[i], std::uint64_t{0});
    // A group that went in by a descriptor of the slot's last life may still go out.
    set_gate(c, slot, 0);
    raise_stored(c, slot, size_bytes);
}

// Notes the first error since a group was last told of an error. The offset is of that error, or of
// an older one if a group asks just now: a hint for a message.
PENSTOCK_HD inline void note_write_error(const cache_view& c, std::uint32_t slot, std::int64_t code,
                                         std::uint64_t offset) {
    write_record& w = c.writes[slot];
    if (atomic_compare_swap<order::acq_rel>(&w.error, std::int64_t{0}, code))
        atomic_store<order::relaxed>(&w.error_offset, offset);
}
// A hint: the error that no group was told of yet, or 0.
PENSTOCK_HD PENSTOCK_INLINE std::int64_t write_error_of(const cache_view& c, std::uint32_t slot) {
    return atomic_load<order::relaxed>(&c.writes[slot].error);
}
PENSTOCK_HD PENSTOCK_INLINE bool has_write_error(const cache_view& c, std::uint32_t slot) {
    return write_error_of(c, slot) != 0;
}
PENSTOCK_HD inline std::int64_t take_write_error(const cache_view& c, std::uint32_t slot) {
    write_record& w = c.writes[slot];
    if (atomic_load<order::relaxed>(&w.error) == 0) return 0;
    return atomic_exchange<order::acq_rel>(&w.error, std::int64_t{0});
}

// The directory of the pages by which the file grows. The group that turns growth_none into
// growth_busy asks the host for it, clears it and enters it (release); other groups see its entries
// cleared (acquire).
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t growth_of(const cache_view& c, std::uint32_t slot) {
    return atomic_load<order::acquire>(&c.file_records[slot].growth);
}
PENSTOCK_HD PENSTOCK_INLINE bool begin_growth(const cache_view& c, std::uint32_t slot) {
    return atomic_compare_swap<order::acquire>(&c.file_records[slot].growth, growth_none,
                                               growth_busy);
}
PENSTOCK_HD PENSTOCK_INLINE void end_growth(const cache_view& c, std::uint32_t slot,
                                            std::uint64_t value) {
    atomic_store<order::release>(&c.file_records[slot].growth, value);
}

}  // namespace penstock::engine
