// Fills in a file slot from the host's answer to an open, and settles answers that no group waited
// for.
//
// A group that gives up on an open (time-out, interrupt) orphans its ring slot. The host answers
// all the same: it has given a file slot and a table to that file, and relies on the device to take
// them down later. Only the next owner of the ring slot may read the old answer. It enters the file
// as closed, so that the file is taken down like any closed file when its slot or table is needed.
// The answer also came with room for the name, which goes back with the next owner's own request.
// That also says that no group has the file by this answer: the host would count on a writer that
// is none (docs/protocol/closed_files.md).
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/dirty.hpp"
#include "penstock/engine/layout.hpp"

namespace penstock::engine {

// The host's answer to an open request.
struct open_answer {
    std::int64_t result;
    std::uint32_t file_slot;
    std::uint32_t generation;
    std::uint64_t size_bytes;
    std::uint64_t table;
    std::uint32_t
        path_extent;  // where the name may be stored, + 1; 0: no room, the name is not remembered
    bool two_level;
    std::uint32_t epoch;
    std::uint64_t inode;
    std::int64_t modified_ns;
};

PENSTOCK_HD inline open_answer answer_of(const ring_reply& reply) {
    open_answer out{};
    out.result = reply.result;
    out.file_slot = static_cast<std::uint32_t>(reply.words[reply_slot_and_generation]);
    out.generation = static_cast<std::uint32_t>(reply.words[reply_slot_and_generation] >> 32);
    out.size_bytes = reply.words[reply_size_bytes];
    out.table = reply.words[reply_table];
    out.path_extent = static_cast<std::uint32_t>(reply.words[reply_path_and_flags]);
    out.two_level = (reply.words[reply_path_and_flags] >> 32 & 1) != 0;
    out.epoch = static_cast<std::uint32_t>(reply.words[reply_path_and_flags] >> 33);
    out.inode = reply.words[reply_inode];
    out.modified_ns = static_cast<std::int64_t>(reply.words[reply_modified_ns]);
    return out;
}

// Makes `count` words absent that no group can reach (reset).
PENSTOCK_HD PENSTOCK_NOINLINE inline void reset_words(const cache_view& c, std::uint64_t first,
                                                      std::uint64_t count) {
    PENSTOCK_ROLLED
    for (std::uint64_t i = 0; i < count; ++i) reset(&c.words[first + i]);
}

// Leader only, between begin_fill and the word that makes the file live.
PENSTOCK_HD inline void fill_record(const cache_view& c, const open_answer& answer) {
    if (answer.two_level)
        reset_words(c, answer.table, directory_entries(c, pages_of(c, answer.size_bytes)));
    c.file_records[answer.file_slot] = {answer.size_bytes,
                                        pages_of(c, answer.size_bytes),
                                        answer.table,
                                        answer.inode,
                                        0,
                                        answer.modified_ns,
                                        answer.generation,
                                        answer.two_level ? 1u : 0u,
                                        growth_none};
    if (c.writes != nullptr) reset_writes(c, answer.file_slot, answer.size_bytes);
}

// Beside the extent: the host had opened the file, and to write.
inline constexpr std::uint64_t lost_open_bit = std::uint64_t{1} << 63,
                               lost_write_bit = std::uint64_t{1} << 62;

// Packs a path extent + 1 into the low half and its length in 8-byte units into the high half; 0:
// none.
constexpr PENSTOCK_HD std::uint64_t pack_lost_extent(std::uint32_t path_extent,
                                                     std::uint32_t path_bytes) {
    return path_extent == 0 ? 0 : std::uint64_t{(path_bytes + 7) / 8} << 32 | path_extent;
}

// Leader only. Enters the file of an answered open as closed, if it has not been entered since.
PENSTOCK_HD inline void enter_as_closed(const cache_view& c, const open_answer& answer) {
    file_word* const word = &c.file_words[answer.file_slot];
    const file_word seen = look(word);
    // Live: a group opened the same file since. Busy: a group is working on the slot. Not later:
    // this life of the slot came and went meanwhile.
    if (file_state(seen) != file_vacant ||
        !is_later_generation(answer.generation, file_generation(seen)))
        return;
    if (!begin_fill(word, seen, answer.generation)) return;
    fill_record(c, answer);
    end_adopt(word, answer.generation);
}

// Leader only; the caller owns the ring slot, which its last owner gave up and the host has
// answered. Returns what the host has to hear of that: the path extent that came with the answer,
// packed, to be given back, and lost_open_bit.
PENSTOCK_HD PENSTOCK_NOINLINE inline std::uint64_t adopt_lost_open(const cache_view& c,
                                                                   const ring_request& request,
                                                                   const ring_reply& reply) {
    if (request.operation != op::open) return 0;
    const open_answer answer = answer_of(reply);
    const std::uint64_t extent = pack_lost_extent(answer.path_extent, request.bytes);
    if (answer.result != 0) return extent;
    enter_as_closed(c, answer);
    const bool writes = (open_request::of(request).flags & access_mask) != may_read;
    return extent | lost_open_bit | (writes ? lost_write_bit : 0);
}

}  // namespace penstock::engine
