// Opening and closing files.
//
// open:  The group finds the name. If its file is open, and was never closed since the name was
//        opened last, the group adds a reference, without a call of the host. Otherwise it owns the
//        name slot, asks the host, and ties the name to the file slot that the host names. The host
//        compares device, inode, size and times. An unchanged file gets its old slot, whose pages
//        are still cached. A changed file gets a fresh slot with a fresh table, so that no stale
//        page can be reached through it. An open for writing asks the host too, unless the file is
//        being written already.
// close: The group drops the reference. There is no host call, and the pages stay. For a file that
//        was written: engine/write.hpp.
//
// When the host has no slot (-ENFILE) or no table space (no_table_room) left, the opener takes down
// a closed file: its pages are evicted, its slot and table go back to the host, and the opener asks
// again.
//
// Progress: every loop is bounded by a deadline (`wait_deadline`). An opener that finds the name
// busy waits for the group that asks the host; if that fails, it gets the same error. An opener
// that finds all name slots within its reach busy waits for one of them.
#pragma once

#include "penstock/base/macros.hpp"
#include "penstock/base/standard.hpp"
#include "penstock/engine/load.hpp"
#include "penstock/engine/lost_open.hpp"
#include "penstock/engine/name_table.hpp"

namespace penstock::engine {

// Leader only; the caller owns the name slot, which is busy. Sends the name to the host. The name
// slot may still have an extent of the path arena, from its last name or from the last round. The
// extent goes back with the request; without a ring slot it stays.
template <typename Group>
PENSTOCK_HD inline std::int64_t ask_to_open(const Group& g, const cache_view& c,
                                            const name_key& key, name_slot& name,
                                            open_answer& out) {
    ring_ticket at{};
    if (const std::int64_t code = claim_slot(g, c, true, at); code != 0) return code;
    const ring_view& r = c.rings[at.ring];
    const std::uint32_t slot = slot_of(r, at.ticket);
    put_name(r.staging + r.staging_stride * slot, key);
    open_request request{};
    request.name_bytes = key.bytes;
    request.flags = key.flags;
    // An open file stays the file that it was when it was opened, also for callers that open it for
    // writing now.
    if (leads_to_open_file(c, name)) {
        request.known_slot = std::uint64_t{atomic_load<order::relaxed>(&name.file_slot)} + 1;
        request.known_generation = atomic_load<order::relaxed>(&name.generation);
    }
    request.old_extent = name.path_bytes == 0 ? 0 : std::uint64_t{name.path_at} + 1;
    request.old_units = (name.path_bytes + 7) / 8;
    atomic_store<order::relaxed>(&name.path_bytes, std::uint32_t{0});
    post(g, c, at, request.packed());
    count(g, c, count_open_requests);
    if (const std::int64_t code = await(g, c, at); code != 0) {
        orphan_slot(c, at);
        return code;
    }
    out = answer_of(r.replies[slot]);
    recycle_slot(c, at);
    return 0;
}

// A flag in the result of an open: the group that gets it with its descriptor has to cut the file
// to size 0 before other groups may use it.
inline constexpr std::int64_t yours_to_cut = std::int64_t{1} << 32;
// Another one: the open wanted the file cut, and another opener does that.
inline constexpr std::int64_t cut_by_another = std::int64_t{1} << 33;

// Leader only. Counts a writer that makes no cut; returns 0 or cut_by_another.
PENSTOCK_HD PENSTOCK_INLINE std::int64_t join_cut(const cache_view& c, std::uint32_t slot,
                                                  std::uint32_t flags) {
    const bool is_cut = (count_writers(c, slot, 1) & cut_due) != 0;
    return is_cut && (flags & flag_truncate) != 0 ? cut_by_another : 0;
}

// Leader only, with a reference to a file that the host opened with these flags. Counts a writer;
// returns 0 or a flag above, which the caller returns with its descriptor.
PENSTOCK_HD inline std::int64_t join_writers(const cache_view& c, std::uint32_t slot,
                                             std::uint32_t flags) {
    if ((flags & access_mask) == may_read) return 0;
    grant(c, slot);
    if ((flags & flag_truncate) != 0 && begin_cut(c, slot)) return yours_to_cut;
    return join_cut(c, slot, flags);
}

// Leader only, with a reference that passes to the descriptor.
PENSTOCK_HD inline int own_descriptor(const cache_view& c, std::uint32_t slot,
                                      std::uint32_t generation, std::uint32_t flags) {
    const int fd = make_descriptor(slot, generation, flags);
    return c.number_bits == 0 ? fd : with_number(c, fd, take_number(&c.file_words[slot]));
}

// Leader only. Takes a reference to the file that the host named, and writes the file's record if
// no group has done so yet. Returns 0; -EAGAIN if the answer is out of date because the slot was
// taken down meanwhile; or the code that ended the wait.
template <typename Group>
PENSTOCK_HD inline std::int64_t attach_file(const Group& g, const cache_view& c,
                                            const open_answer& answer, wait_deadline& deadline) {
    file_word* const word = &c.file_words[answer.file_slot];
    for (std::uint32_t round = 0;; ++round) {
        const file_word seen = look(word);
        const bool same = file_generation(seen) == answer.generation;
        if (file_state(seen) == file_live) {
            if (!same) return -EAGAIN;
            if (try_reopen(word, answer.generation, &c.openings[answer.file_slot])) return 0;
        } else if (file_state(seen) == file_vacant) {
            // Vacant with this generation or a later one: since the host answered, the slot was
            // filled, closed and taken down, maybe more than once. Filling it now would bring back
            // a file whose table belongs to another file by now.
            if (!is_later_generation(answer.generation, file_generation(seen))) return -EAGAIN;
            if (begin_fill(word, seen, answer.generation)) {
                fill_record(c, answer);
                count_opening(&c.openings[answer.file_slot]);
                end_fill(word, answer.generation);
                return 0;
            }
        }
        if (const std::int64_t code = deadline.check(g, c); code != 0)
            return code == -ETIME ? -ETIMEDOUT : code;
        g.pause(round);
    }
}

// Leader only; the caller owns the slot, which is busy.
PENSTOCK_HD inline void remember_path(const cache_view& c, name_slot& slot, const name_key& key,
                                      std::uint32_t extent) {
    if (extent == 0) return;
    PENSTOCK_ROLLED
    for (std::uint32_t i = 0; i < key.bytes; i += 8)
        atomic_store<order::relaxed>(c.paths + (extent - 1) + i / 8, path_chunk(key, i));
    atomic_store<order::relaxed>(&slot.path_at, extent - 1);
    atomic_store<order::relaxed>(&slot.path_bytes, key.bytes);
}

// Leader only; the caller owns the name slot, which is busy. Asks the host until it has an answer
// that holds, then settles the name.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t open_owned_name(const Group& g, const cache_view& c,
                                                           const name_key& key,
                                                           std::uint32_t slot_index,
                                                           wait_deadline& deadline) {
    name_slot& slot = c.names[slot_index];
    open_answer answer{};
    wait_deadline room(g, c.frame_wait_ns);  // for a slot or a table, as for a frame
    std::int64_t code = 0;
    name_key asked = key;
    for (std::uint32_t round = 0;; ++round) {
        code = ask_to_open(g, c, asked, slot, answer);
        if (code != 0) break;
        remember_path(c, slot, key, answer.path_extent);
        code = answer.result;
        // The host got as far as a slot, so it has created the file if it was missing. The file
        // belongs to this open, so the next attempt must accept that it exists.
        if (code == 0 || code == -ENFILE || code == no_table_room) asked.flags &= ~flag_exclusive;
        if (code == 0) code = attach_file(g, c, answer, deadline);
        if (code == -ENFILE || code == no_table_room) {
            const std::int64_t retired = retire_one(g, c);
            if (retired == -ENFILE && room.check(g, c) == -ETIME) {
                if (code == no_table_room) code = -ENOMEM;
                break;
            }
            code = retired == 0 || retired == -ENFILE ? -EAGAIN : retired;
        }
        if (code != -EAGAIN) break;
        if (const std::int64_t late = deadline.check(g, c); late != 0) {
            code = late == -ETIME ? -ETIMEDOUT : late;
            break;
        }
        g.pause(round);
    }
    std::int64_t result = code;
    if (code == 0) {
        if (c.writes != nullptr) count_answer(c, answer.file_slot);
        result = join_writers(c, answer.file_slot, key.flags) |
                 own_descriptor(c, answer.file_slot, answer.generation, key.flags);
        atomic_store<order::relaxed>(&slot.file_slot, answer.file_slot);
        atomic_store<order::relaxed>(&slot.generation, answer.generation);
        note_opening(&slot.opening, openings_of(&c.openings[answer.file_slot]));
    }
    atomic_store<order::relaxed>(&slot.error, code);
    atomic_store<order::relaxed>(&slot.flags, std::uint64_t{key.flags});
    settle_name(&slot.word, code == 0 ? name_ready : name_failed);
    return result;
}

// Leader only. Takes a reference by a name whose file is open, if that needs no answer of the host:
// for reading always; for writing if another descriptor is open for writing. `joined`: 0 or a flag
// above.
PENSTOCK_HD inline bool try_open_beside(const cache_view& c, const name_match& found,
                                        std::uint32_t flags, std::int64_t& joined) {
    const std::uint32_t slot = found.file_slot;
    const bool reads = (flags & access_mask) == may_read;
    if (!reads && ((flags & flag_exclusive) != 0 || !is_granted(c, slot))) return false;
    if (!try_reference_by_name(&c.file_words[slot], found.generation, &c.openings[slot],
                               found.opening, reads ? nullptr : &c.writes[slot].writers))
        return false;
    if (reads) return true;
    joined = join_cut(c, slot, flags);
    return true;
}

// Leader only. A descriptor, maybe with one of the flags above, or a negative errno.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t open_name(const Group g, const cache_view& c,
                                                     const name_key key) {
    if (const std::int64_t code = stop_code(c); code != 0) return code;
    wait_deadline deadline(g, c.request_wait_ns);
    // The busy word, and the slot it was seen in: words of different slots may be equal.
    name_word waited_for = 0;
    std::uint32_t waited_at = 0;
    for (std::uint32_t round = 0;; ++round) {
        name_match found{};
        std::uint32_t slot = 0;
        bool owned = false;
        if (find_name(c, key, found)) {
            slot = found.slot;
            const name_word state = name_state(found.word);
            std::int64_t joined = 0;
            if (state == name_ready && try_open_beside(c, found, key.flags, joined))
                return joined | own_descriptor(c, found.file_slot, found.generation, key.flags);
            if (state == name_busy) {
                waited_for = found.word;
                waited_at = slot;
            } else if (state == name_failed && waited_for != 0 && waited_at == slot &&
                       found.word == next_name_word(waited_for, name_failed) &&
                       found.flags == key.flags) {
                return found.error;  // the error of the group that it waited for
            } else {
                owned = try_own_name(&c.names[slot].word, found.word);
            }
        } else {
            owned = try_enter_name(c, key, slot);
        }
        if (owned) return open_owned_name(g, c, key, slot, deadline);
        if (const std::int64_t code = round % 16 == 15 ? deadline.check(g, c) : 0; code != 0)
            return code == -ETIME ? -ETIMEDOUT : code;
        g.pause(round);
    }
}

// Leader only, with a reference. Waits until the opener that has to cut the file has done it.
// Returns 0, or the code that ended the wait.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t wait_for_cut(const Group& g, const cache_view& c,
                                                        std::uint32_t slot) {
    wait_deadline waiting(g, 3 * c.request_wait_ns);
    for (std::uint32_t round = 0; is_being_cut(c, slot); ++round) {
        if (const std::int64_t code = round % 16 == 15 ? waiting.check(g, c) : 0; code != 0)
            return code == -ETIME ? -ETIMEDOUT : code;
        g.pause(round);
    }
    return 0;
}

// Whole group. A descriptor, maybe with one of the flags above, or a negative errno.
template <typename Group>
PENSTOCK_HD inline std::int64_t open_file(const Group& g, const cache_view& c, const char* path,
                                          std::uint32_t flags = 0) {
    std::int64_t result = 0;
    if (g.is_leader()) {
        name_key key{};
        result = make_key(path, flags, key);
        if (result == 0) result = by_address(&open_name<Group>)(g, c, key);
        count(g, c, count_opens);
        if (result < 0) count(g, c, count_errors);
    }
    result = g.broadcast(result);
    g.sync();  // the leader's acquire of the file word comes before every thread's reads of the
               // record
    return result;
}

// Whole group. Adds a reference to an open file. Returns a descriptor to read, without a number of
// its own, or -EBADF. Not one to write: opens count writers, and each close of one takes one off.
template <typename Group>
PENSTOCK_HD inline int add_reference(const Group& g, const cache_view& c, int fd) {
    bool added = false;
    const std::uint32_t slot = descriptor_slot(c, fd);
    if (g.is_leader() && fd >= 0 && slot < c.file_slots)
        added = has_number(look(&c.file_words[slot]), descriptor_number(c, fd)) &&
                try_reference(&c.file_words[slot], descriptor_generation(fd));
    return g.broadcast(added) ? make_descriptor(slot, descriptor_generation(fd)) : -EBADF;
}

}  // namespace penstock::engine
