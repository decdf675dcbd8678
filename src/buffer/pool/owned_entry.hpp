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
#pragma once

#include <cstdint>

#include "buffer/pool/frame_latch.hpp"
#include "penstock/base/atomic.hpp"

namespace penstock::buffer {

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
