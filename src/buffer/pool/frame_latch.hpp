// The words that are looked at without a lock: the latch of a frame, and the entry of a page for
// each of the two managers. Both entries are found, and their latch is taken, in the same way.
#pragma once

#include <cstdint>

#include "penstock/base/atomic.hpp"
#include "penstock/buffer.hpp"

namespace penstock::buffer {

// The users of a frame of the host, and how a page that is in it is found and taken without a lock.
// Two words: the page's entry, which names the frame, and the frame's latch.
//
//   latch: closed --publish()--> free, shared or owned         by the manager, when the bytes are
//                                                              there
//          free --withdraw()--> closed                         by the manager, under its lock; not
//                                                              while anybody uses it
//          free or shared --begin_close()--> closed as soon as no reader is left; by a manager that
//              lends out nothing but short reads
//          free or shared --take()--> shared,  free --take()--> owned, and back by end(): by any
//                                                                                       thread
//          owned --withdraw_owned()--> closed                  by the owner, under the manager's
//                                                              lock: the frame never got the page's
//                                                              bytes
//   entry: 0 --publish()--> the frame's number and one --withdraw()--> 0
//
// (1) An entry is not 0 only while its frame is not closed and holds the page's bytes; between
//     withdraw() and publish() the manager alone uses the frame.
// (2) The thread that finds a frame by an entry and takes it looks at the entry again: it may have
//     been closed, filled with another page and opened in between. After that the frame stays, for
//     it is only closed when it is free.
// Orders: each step on a latch takes over what was done under the one before it (acquire, release;
// the manager's open() too), so the thread that takes a frame that was closed in between sees the
// entry that was cleared before, and the manager that closes it has the bytes that its last user
// left. An entry is published with release for the thread that finds it by acquire. Explored in
// tests/explore/buffer_test.cpp.
enum class found_by_entry : std::uint8_t { taken, busy, absent };

class frame_latch {
public:
    // taken: until end(). busy: another thread uses it in a way that does not go
    // together. absent: it is closed.
    found_by_entry take(use_kind kind) {
        for (;;) {
            const std::uint64_t seen = load();
            if ((seen & closed_bit) != 0) return found_by_entry::absent;
            if (kind == use_kind::write ? seen != 0 : (seen & owned_bit) != 0)
                return found_by_entry::busy;
            if (swap(seen, kind == use_kind::write ? owned_bit : seen + 1))
                return found_by_entry::taken;
        }
    }
    void end(use_kind kind) {
        if (kind == use_kind::write)
            store(0);  // no other thread changes the word of a frame that is owned
        else atomic_fetch_add<order::release>(&word_, ~std::uint64_t{0});
    }

    bool close() { return swap(0, closed_bit); }
    // By the manager: no thread takes the frame from here on, and it is closed when its readers
    // have ended. Only for a frame that no thread takes for writing. The caller must be in a place
    // where it may wait for readers.
    void begin_close() { atomic_fetch_or<order::acq_rel>(&word_, closed_bit); }
    // By the owner of the frame. Store with release, as open(): the next that opens it finds it as
    // it is.
    void close_owned() { store(closed_bit); }
    [[nodiscard]] bool is_closed() const { return load() == closed_bit; }
    void open() { store(0); }
    void open_for(use_kind kind) { store(kind == use_kind::write ? owned_bit : 1); }
    [[nodiscard]] bool is_idle() const { return load() == 0; }

private:
    static constexpr std::uint64_t closed_bit = 1ull << 63, owned_bit = 1ull << 62;

    [[nodiscard]] std::uint64_t load() const { return atomic_load<order::acquire>(&word_); }
    void store(std::uint64_t value) { atomic_store<order::release>(&word_, value); }
    bool swap(std::uint64_t seen, std::uint64_t next) {
        return atomic_compare_swap<order::acq_rel>(&word_, seen, next);
    }

    std::uint64_t word_ = closed_bit;
};

class page_entry {
public:
    [[nodiscard]] bool is_absent() const { return load() == 0; }
    // Which frame it names, if any.
    [[nodiscard]] bool names(std::uint32_t frame) const { return load() == frame + 1; }

    // Takes the frame that the page is in, if it is in one.
    template <bool LooksAgain = true>
    found_by_entry take(frame_latch* latches, use_kind kind, std::uint32_t& frame) const {
        const std::uint32_t seen = load();
        if (seen == 0) return found_by_entry::absent;
        frame = seen - 1;
        const found_by_entry answer = latches[frame].take(kind);
        if (answer != found_by_entry::taken || !LooksAgain || load() == seen) return answer;
        latches[frame].end(kind);
        return found_by_entry::absent;
    }
    // By the manager. False: another thread uses the frame.
    bool withdraw(frame_latch& latch) {
        if (!latch.close()) return false;
        store(0);
        return true;
    }
    // By the owner of the frame, under the manager's lock. In the order of withdraw(): latch, then
    // entry.
    void withdraw_owned(frame_latch& latch) {
        latch.close_owned();
        store(0);
    }
    void publish(std::uint32_t frame) { store(frame + 1); }

private:
    [[nodiscard]] std::uint32_t load() const { return atomic_load<order::acquire>(&frame_); }
    void store(std::uint32_t value) { atomic_store<order::release>(&frame_, value); }

    std::uint32_t frame_ = 0;
};

// The word of a page of a file in a buffer that shares blocks: where the page is, and whether
// a thread has it for itself.
//
//   nowhere     not in the buffer
//   incomplete  in the table, and some of its blocks are absent: read from its file as a page that
//               is nowhere is
//   elsewhere   all of it in the buffer, but not all of it where a reader could copy it from: the
//               manager has to be asked
//   unwritten   not in the buffer, and not in its file as it is either: the manager keeps its bytes
//               until they can be written
//   readable    every block in a host frame; the word names the page's slot, whose latch a reader
//               takes while it copies
//
// (1) Where a page is, the manager alone says (set_where). Any thread may become its owner:
//     the owner changes the page, from fix to unfix, or reads it from its file; it may leave it to
//     the manager, which disowns it when it has brought the page. So no page is read from its file
//     while its bytes are on their way there through the buffer, and no two change it at once.
// (2) A readable page is read, whichever thread owns it: it is as it was before the owner's change,
//     which comes to all at once, by the manager.
// (3) The look again after the latch was taken is that of frame_latch.hpp (2): a slot may have got
//     another page in between.
// Orders: own() takes over (acquire) what the owner before it left (release of disown());
// set_where() releases what the manager made to the thread that looks (acquire).
class owned_entry {
public:
    static constexpr std::uint32_t nowhere = 0, elsewhere = 1, unwritten = 2, incomplete = 3,
                                   first_slot = 4;

    // The thread that owns the page reads it from its file. It stays so until it brings it, unless
    // others bring what it lacks.
    static bool is_in_its_file(std::uint32_t where) {
        return where == nowhere || where == incomplete;
    }

    [[nodiscard]] std::uint32_t where() const { return load() & ~owned_bit; }
    [[nodiscard]] bool is_owned() const { return (load() & owned_bit) != 0; }

    // False: another thread owns it. `where`: as it was at that moment.
    bool own(std::uint32_t& where) {
        for (;;) {
            const std::uint32_t seen = load();
            if ((seen & owned_bit) != 0) return false;
            where = seen;
            if (atomic_compare_swap<order::acq_rel>(&word_, seen, seen | owned_bit)) return true;
        }
    }
    void disown() { atomic_fetch_and<order::release>(&word_, ~owned_bit); }

    void set_where(std::uint32_t where) {
        for (;;) {
            const std::uint32_t seen = load();
            if (atomic_compare_swap<order::acq_rel>(&word_, seen, (seen & owned_bit) | where))
                return;
        }
    }

    // taken: the page lies in the blocks of `slot` until the slot's latch is ended. absent: it is
    // not readable.
    found_by_entry take(frame_latch* latches, std::uint32_t& slot) const {
        const std::uint32_t seen = where();
        if (seen < first_slot) return found_by_entry::absent;
        slot = seen - first_slot;
        const found_by_entry answer = latches[slot].take(use_kind::read);
        if (answer != found_by_entry::taken || where() == seen) return answer;
        latches[slot].end(use_kind::read);
        return found_by_entry::absent;
    }

private:
    static constexpr std::uint32_t owned_bit = 1u << 31;

    [[nodiscard]] std::uint32_t load() const { return atomic_load<order::acquire>(&word_); }

    std::uint32_t word_ = nowhere;
};

}  // namespace penstock::buffer
