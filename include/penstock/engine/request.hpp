// Requests: what a group asks of the host, as one struct for each operation, and the 64 bytes in
// which they cross the bus.
//
// A struct has the fields of its operation, each under its name. packed() lays it out as a
// ring_request, of() reads it back; no other code knows which word of the wire has which field. The
// host copies a request before it calls of(), since the device could change it meanwhile, and takes
// no field at its word (service/service.cpp).
#pragma once

#include "penstock/base/macros.hpp"
#include "penstock/base/standard.hpp"

namespace penstock::engine {

enum class op : std::uint32_t {
    none = 0,
    open = 1,
    read = 2,
    retire = 3,
    leaf = 4,
    ping = 5,
    fill = 6,
    write = 7,
    sync = 8,
    truncate = 9,
    settle = 10,
    unlink = 11,
    wish = 12
};

// The wire. A request, written by one group and then read by one service thread. 64 bytes: one
// write burst over the bus.
struct alignas(64) ring_request {
    std::uint64_t published;  // ticket + 1, stored last
    op operation;
    std::uint32_t bytes;
    std::uint32_t file_slot;
    std::uint32_t generation;
    std::uint64_t offset;
    std::uint64_t argument;
    std::uint64_t lost_extent;  // any: what the slot's last owner left (engine/lost_open.hpp), or 0
    std::uint64_t open_slot;
    std::uint64_t reserved;
};
#if !defined(__CUDACC_RTC__)  // has no offsetof
static_assert(sizeof(ring_request) == 64 && offsetof(ring_request, bytes) == 12 &&
              offsetof(ring_request, offset) == 24 && offsetof(ring_request, argument) == 32 &&
              offsetof(ring_request, open_slot) == 48);
#endif

// The words that operations have; the others are 0.
constexpr PENSTOCK_HD ring_request request_of(op operation, std::uint32_t bytes,
                                              std::uint32_t file_slot = 0,
                                              std::uint32_t generation = 0,
                                              std::uint64_t offset = 0,
                                              std::uint64_t argument = 0) {
    return {0, operation, bytes, file_slot, generation, offset, argument, 0, 0, 0};
}

// Opens the file whose name is in the staging area.
struct open_request {
    std::uint32_t name_bytes, flags;
    std::uint32_t known_generation;
    // A path extent to give back: its place + 1, or 0 for none; and its length in 8-byte units.
    std::uint64_t old_extent, old_units;
    // The file that is open by this name now, in its life `known_generation`: its slot + 1, or 0
    // for none.
    std::uint64_t known_slot;

    constexpr PENSTOCK_HD ring_request packed() const {
        ring_request out =
            request_of(op::open, name_bytes, flags, known_generation, old_extent, old_units);
        out.open_slot = known_slot;
        return out;
    }
    static constexpr PENSTOCK_HD open_request of(const ring_request& in) {
        return {in.bytes, in.file_slot, in.generation, in.offset, in.argument, in.open_slot};
    }
};

// Takes the name in the staging area away from its file.
struct unlink_request {
    std::uint32_t name_bytes;

    constexpr PENSTOCK_HD ring_request packed() const { return request_of(op::unlink, name_bytes); }
    static constexpr PENSTOCK_HD unlink_request of(const ring_request& in) { return {in.bytes}; }
};

// Reads a page into the staging area.
struct read_request {
    std::uint32_t file_slot, generation, bytes;
    std::uint64_t offset;
    bool pads;  // bytes that the file does not have yet read as zeros

    constexpr PENSTOCK_HD ring_request packed() const {
        return request_of(op::read, bytes, file_slot, generation, offset, pads ? 1 : 0);
    }
    static constexpr PENSTOCK_HD read_request of(const ring_request& in) {
        return {in.file_slot, in.generation, in.bytes, in.offset, in.argument == 1};
    }
};

// Reads pages into frames of the host tier, which the staging area lists (engine/fill.hpp).
struct fill_request {
    std::uint32_t file_slot, generation, bytes;
    std::uint64_t offset, stamp;

    constexpr PENSTOCK_HD ring_request packed() const {
        return request_of(op::fill, bytes, file_slot, generation, offset, stamp);
    }
    static constexpr PENSTOCK_HD fill_request of(const ring_request& in) {
        return {in.file_slot, in.generation, in.bytes, in.offset, in.argument};
    }
};

// Says which pages will be wanted: the staging area lists so many runs of them (engine/wish.hpp).
struct wish_request {
    std::uint32_t runs;

    constexpr PENSTOCK_HD ring_request packed() const { return request_of(op::wish, runs); }
    static constexpr PENSTOCK_HD wish_request of(const ring_request& in) { return {in.bytes}; }
};

// Writes the marked bytes of the page in the staging area (engine/write_back.hpp).
struct write_request {
    std::uint32_t file_slot, generation, bytes;
    std::uint64_t offset;
    std::uint64_t is_whole;  // 1: every byte is marked, whatever the marks say

    constexpr PENSTOCK_HD ring_request packed() const {
        return request_of(op::write, bytes, file_slot, generation, offset, is_whole);
    }
    static constexpr PENSTOCK_HD write_request of(const ring_request& in) {
        return {in.file_slot, in.generation, in.bytes, in.offset, in.argument};
    }
};

enum leaf_kind : std::uint64_t { leaf_of_table = 0, leaf_of_growth = 1, growth_directory = 2 };

// Asks for a piece of the arena of page words: leaf `number` of a file, or its growth directory.
struct leaf_request {
    std::uint32_t file_slot, generation;
    leaf_kind kind;
    std::uint64_t number;

    constexpr PENSTOCK_HD ring_request packed() const {
        return request_of(op::leaf, 0, file_slot, generation, number, kind);
    }
    static constexpr PENSTOCK_HD leaf_request of(const ring_request& in) {
        return {in.file_slot, in.generation, static_cast<leaf_kind>(in.argument), in.offset};
    }
};

// A truncate beside which no group writes; and a settle of a file that the cache does not have as
// it is.
inline constexpr std::uint64_t cut_alone = 1, unknown_size = INT64_MAX;

// About a file as a whole: sync brings its written bytes to storage, truncate sets its size, settle
// says that the last descriptor of a written file was closed and how many answers to opens of the
// file groups had taken, and retire that its slot is vacant.
struct file_request {
    op operation;
    std::uint32_t file_slot, generation;
    std::uint64_t size_bytes = 0;  // truncate: to be; settle: as the device has it, or unknown_size
    std::uint64_t answers = 0;     // settle; truncate: 0 or cut_alone

    constexpr PENSTOCK_HD ring_request packed() const {
        return request_of(operation, 0, file_slot, generation, size_bytes, answers);
    }
    static constexpr PENSTOCK_HD file_request of(const ring_request& in) {
        return {in.operation, in.file_slot, in.generation, in.offset, in.argument};
    }
};

// The answer to an open if the arena has no room for the file's page table: taking down a closed
// file may help. No file system returns this code; -ENOSPC is the error of an open that creates a
// file on a full disk.
inline constexpr int no_table_room = -EXFULL;

// In the word that says that an answer is there: the result is the count of bytes that a read asked
// for, so that the group need not load it, which is a trip over the bus.
inline constexpr std::uint64_t whole_bit = std::uint64_t{1} << 63;

// The answer, written by the service thread. 64 bytes.
struct alignas(64) ring_reply {
    std::uint64_t completed;  // ticket + 1, and perhaps whole_bit; stored last
    std::int64_t result;      // bytes read, 0, or a negative errno
    std::uint64_t words[6];   // open: see reply_* below; leaf: words[0] = arena index
};
static_assert(sizeof(ring_reply) == 64);

// Words of the reply to open. slot_and_generation: slot in the low half, generation in the high
// half. path_and_flags: path extent + 1 in the low half, 0 for none; bit 32: two-level table; from
// bit 33 on: the epoch, which is the number of this answer among those to opens of the file.
enum reply_index : std::uint32_t {
    reply_slot_and_generation = 0,
    reply_size_bytes = 1,
    reply_table = 2,
    reply_path_and_flags = 3,
    reply_inode = 4,
    reply_modified_ns = 5
};

}  // namespace penstock::engine
