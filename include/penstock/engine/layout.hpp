// Defines every structure that groups share, with its memory, its writers and its scope.
//
//   device memory  page words and directories (one arena), frame words, frames, file words and
//                  records, name slots, path arena, ring tails and free marks, counters. Written by
//                  groups only. Window and chunk words lie there too; only the host writes them.
//   host memory    ring requests (engine/request.hpp; written by groups), ring replies and staging
//                  (written by service threads), control. On a GPU this memory is pinned and
//                  mapped. Each word has one writer; neither side does read-modify-write across
//                  the bus.
//
// On the cpu back end "device memory" is ordinary memory and nothing else differs.
#pragma once

#include "penstock/base/macros.hpp"
#include "penstock/base/standard.hpp"
#include "penstock/engine/file_word.hpp"
#include "penstock/engine/page_word.hpp"
#include "penstock/engine/request.hpp"

namespace penstock {
struct host_doorbell;
}

namespace penstock::engine {

// Frame word: bits 63..62 state, bit 61 replica, 60..40 file slot, 39..0 index of the page word
// that names the frame. The page of a replica was copied from a linked cache
// (engine/neighbour.hpp). Written by the group that owns the frame: from try_evict (or from free)
// until its page's last loader pin goes.
using frame_word = std::uint64_t;
inline constexpr frame_word frame_state_mask = frame_word{3} << 62, frame_free = 0,
                            frame_busy = frame_word{1} << 62, frame_owned = frame_word{2} << 62,
                            // Holds the copy of a page that is mapped for writing
                            // (engine/pristine.hpp).
    frame_copy = frame_word{3} << 62;
inline constexpr frame_word replica_bit = frame_word{1} << 61;
inline constexpr std::uint32_t word_index_bits = 40;
inline constexpr std::uint32_t descriptor_slot_bits = 19;
inline constexpr std::uint32_t max_file_slots = 1u << descriptor_slot_bits;

constexpr PENSTOCK_HD frame_word make_owned(std::uint32_t file_slot, std::uint64_t word_index) {
    return frame_owned | frame_word{file_slot} << word_index_bits | word_index;
}
constexpr PENSTOCK_HD std::uint64_t owner_word_index(frame_word w) {
    return w & ((frame_word{1} << word_index_bits) - 1);
}
constexpr PENSTOCK_HD std::uint32_t owner_file_slot(frame_word w) {
    return static_cast<std::uint32_t>((w & ~(frame_state_mask | replica_bit)) >> word_index_bits);
}

// The file that a descriptor stands for. Written while the file word is busy, and read only by
// holders of a reference. In a runtime that writes, size_bytes and growth change while the file is
// open (engine/write.hpp, engine/page_table.hpp).
struct alignas(64) file_record {
    std::uint64_t size_bytes;  // when it was opened, and as far as it was written since
    std::uint64_t page_count;  // pages that `table` has words for: those it had when it was opened
    std::uint64_t table;       // arena index of the first page word, or of the directory
    std::uint64_t inode;
    std::uint64_t device;
    std::int64_t modified_ns;  // modification time, nanoseconds since 1970
    std::uint32_t generation;  // repeats the file word's: a check can do without that word, which
                               // openers change
    std::uint32_t two_level;   // 0: table holds page words; 1: table holds directory entries, each
                               // leaf index + 1 or 0
    std::uint64_t growth;  // directory of the pages from page_count on: growth_none, growth_busy,
                           // or arena index + growth_first
};
static_assert(sizeof(file_record) == 64);

inline constexpr std::uint64_t growth_none = 0, growth_busy = 1, growth_first = 2;

// The pristine word of a frame: how many writable mappings hold its page, and the frame of the copy
// that shows which bytes they changed (engine/pristine.hpp).
using pristine_word = std::uint64_t;

// The further state of a file that is written, one per file slot; only in a runtime that writes.
// Device memory. Each new life of the slot begins with 0, and the sizes (reset_writes).
struct alignas(64) write_record {
    std::uint32_t granted;  // not 0: an open was for writing, so the host has a handle that writes,
                            // or had it. Stays until the slot's next life; a value below
    std::uint32_t cut_lock;  // 1: a group makes a cut, or takes one up
    std::uint32_t writers;   // descriptors open for writing, and cut_due
    std::uint32_t answers;   // to opens, that groups took: the host counts those that it gave
    std::uint64_t
        dirty_pages;  // of the file: how often a page turned dirty, less how often one turned clean
    std::int64_t error;  // 0, or the write-back error since a group was last told of one
    std::uint64_t error_offset;
    std::uint32_t mappings;    // writable mappings that are held: for them the host keeps the file
                               // open for writing
    std::uint32_t next_piece;  // which piece of the file the next group that closes it writes back
                               // (engine/close_share.hpp); counts on past the file's end
    std::uint64_t stored_bytes;  // the file itself has no bytes from here on that this runtime
                                 // knows of, so these pages need not be read
    std::uint64_t append_end;    // where the next appended record begins, if the file does not
                                 // reach further: behind the rooms of those that are under way

    // Apart from the rest, which linked neighbours read. Steps: engine/dirty.hpp.
    alignas(64) std::uint64_t gate;  // how many groups change the file; and whether a cut has it
    std::uint64_t left_cut;          // what is left to do of a cut that was left
    std::uint64_t cut_bytes;         // of that cut: the size that the file gets,
    std::uint64_t cut_end_bytes;     // and how far it may have cached pages
    std::int64_t opening_cut;        // how the last cut by an opener ended: 0 or a negative errno
};
static_assert(sizeof(write_record) == 128);
inline constexpr std::size_t words_before_gate = 8;
inline constexpr std::uint32_t granted_plainly = 1,
                               granted_with_guesses = 3;  // a page was mapped to write once

// One opened name. `word` guards the rest (engine/file_word.hpp).
struct alignas(64) name_slot {
    name_word word;
    std::uint64_t hash;
    std::uint32_t file_slot;
    std::uint32_t generation;
    std::uint32_t path_at;  // index into the path arena, in 8-byte units
    std::uint32_t path_bytes;
    std::int64_t error;     // failed: the error that the last opener got
    std::uint64_t flags;    // the flags of that opener's request
    opening_count opening;  // of the file, that the last open found or made
    std::uint32_t reserved[3];
};
static_assert(sizeof(name_slot) == 64);

// Counters. Sharded: a group adds to its own shard without waiting; the host sums them.
enum counter : std::uint32_t {
    count_hits,             // page accesses served from a valid page
    count_misses,           // pages loaded
    count_window_loads,     // of these, pages fetched through a window, without a request
    count_through_reads,    // absent pages of which bytes went straight from a window to a caller
    count_neighbour_reads,  // the same from a linked cache
    count_neighbour_loads,  // of the misses, pages copied from a linked cache
    count_neighbour_waits,  // loads that waited for one of a linked cache first
    count_tier_loads,       // of the misses, pages copied from the host tier
    count_tier_saves,       // pages that left the cache for the tier
    count_tier_evictions,   // pages dropped from the tier
    count_fill_pages,     // pages that the host was asked to read into the tier ahead of their use
    count_fill_failures,  // of these, pages that it could not read
    count_load_waits,     // page accesses that waited for another group's load
    count_evictions,      // valid pages dropped for their frame
    count_clock_steps,    // frames looked at to find victims
    count_frame_waits,    // times a group found no frame and had to look again
    count_ring_waits,     // times a group found the ring full
    count_requests,       // requests posted, all kinds
    count_bytes_loaded,   // bytes copied from host memory into frames
    count_bytes_read,     // bytes delivered by read
    count_opens,          // open calls
    count_open_requests,  // of these, calls that asked the host
    count_errors,         // verbs that returned a negative errno
    count_retries,        // copies rejected because the frame changed hands
    count_bytes_written,  // bytes taken by write
    count_write_backs,    // pages of which marked bytes were written to the file
    count_write_back_errors,  // of these, pages that the host could not write
    count_dirty_victims,   // of these, pages that had to be written because their frame was needed
    count_written_behind,  // of these, pages that were written because much of their file was
                           // dirty, or by a close before the last
    count_kinds
};
// Bucket i counts requests that took 2^i to 2^(i+1) ns from post to answer.
inline constexpr std::uint32_t latency_buckets = 32;

struct alignas(128) counter_shard {
    std::uint64_t count[count_kinds];
    std::uint64_t latency[latency_buckets];
};

// One ring with its service thread; a runtime has several so that no word is shared by all groups.
struct ring_view {
    ring_request* requests;      // host memory
    ring_reply* replies;         // host memory
    std::byte* staging;          // host memory, slots * staging_stride bytes
    std::uint64_t* tail;         // device memory: next ticket to hand out
    std::uint64_t* free_ticket;  // device memory, one per slot: see engine/ring.hpp
    host_doorbell* doorbell;     // cpu back end only, else null
    std::uint64_t staging_stride;
    std::uint32_t slots;  // a power of two
};

// The host tier: frames in host memory for pages that are not in the cache (engine/tier.hpp). The
// names are those of cache_view, so that the clock serves both. Host memory: frames, and
// done_marks, which the service threads write. The rest is device memory, written by groups.
struct tier_view {
    static constexpr counter evictions = count_tier_evictions;
    page_word* words;  // one for each word of the cache's arena; null: there is no tier
    frame_word* frame_words;
    std::byte* frames;
    std::uint64_t* fill_marks;  // per frame (engine/fill.hpp)
    const std::uint64_t* done_marks;
    std::uint32_t* clock_hands;
    std::uint32_t* fill_done;
    std::uint32_t frame_count;  // at least 1 where there is a tier
    std::uint32_t clock_shards;
};

// The first error of an element view or a gather (engine/counters.hpp). Device memory.
struct alignas(64) fault_record {
    std::uint32_t claimed;
    std::uint32_t slot;
    std::uint64_t generation;
    std::uint64_t offset;
    std::int64_t code;
    std::uint64_t row;     // of a gather
    std::uint64_t is_row;  // 1: of a gather
};
static_assert(sizeof(fault_record) == 64);

// A linked cache as the groups of this one see it (engine/neighbour.hpp). Device memory; the host
// writes it before any entry names it. Everything that it leads to is only read.
struct neighbour_view {
    // Addresses, as this device uses them.
    std::uint64_t words;       // its arena of page words
    std::uint64_t file_words;  // a file word for each of its file slots
    std::uint64_t writes;      // a write record for each; 0: its runtime does not write
    std::uint64_t frames;
    // Bounds of what lies there.
    std::uint64_t word_count;
    std::uint32_t frame_count;
    std::uint32_t file_slots;
    std::uint32_t leaf_shift;
    std::uint32_t distance;  // a neighbour_distance
    std::uint32_t rank;      // a load waits for one of a lower rank only
};

// What lies between a group and a neighbour's memory.
enum neighbour_distance : std::uint32_t { same_memory, by_nvlink, by_bus };

// Where a neighbour has the same version of a file, one for each file slot and neighbour. Device
// memory; only the host writes it, `table` before `life`. 0 in `life`: the neighbour does not have
// it. Bits 63..48 the own slot's generation, 47..24 the neighbour's slot, 23..8 its generation,
// bit 1: its table is a directory, bit 0: there is an entry.
struct alignas(16) neighbour_entry {
    std::uint64_t life;
    std::uint64_t table;  // index in the neighbour's arena
};

constexpr PENSTOCK_HD std::uint64_t make_entry_life(std::uint32_t own_generation,
                                                    std::uint32_t slot, std::uint32_t generation,
                                                    bool two_level) {
    return std::uint64_t{own_generation} << 48 | std::uint64_t{slot} << 24 |
           std::uint64_t{generation} << 8 | (two_level ? 2u : 0u) | 1u;
}
constexpr PENSTOCK_HD std::uint32_t own_generation_of(std::uint64_t life) {
    return static_cast<std::uint32_t>(life >> 48);
}
constexpr PENSTOCK_HD std::uint32_t neighbour_slot_of(std::uint64_t life) {
    return static_cast<std::uint32_t>(life >> 24) & 0xffffff;
}
constexpr PENSTOCK_HD std::uint32_t neighbour_generation_of(std::uint64_t life) {
    return static_cast<std::uint32_t>(life >> 8) & 0xffff;
}
constexpr PENSTOCK_HD bool has_neighbour_leaves(std::uint64_t life) { return (life & 2) != 0; }

// The most neighbours that a cache asks.
inline constexpr std::uint32_t most_neighbours = 8;

// How many readers are between look and check, so that the host can tell when the memory of a
// neighbour that left is no longer looked at (engine/neighbour.hpp). Device memory; readers add to
// `inside`, and the host writes `round`, whose lowest bit names the count that new readers use.
inline constexpr std::uint32_t visit_shards = 64;
struct alignas(32) visit_shard {
    std::uint64_t inside[2];
    std::uint64_t reserved[2];
};
struct neighbour_visits {
    alignas(32) std::uint64_t round;
    visit_shard shards[visit_shards];
};

// The words by which the host talks to every waiting group. Host memory, written by the host only.
struct alignas(64) control_block {
    std::int64_t abort_code;  // 0, or the negative errno that every wait returns from now on
    std::uint64_t heartbeat;  // grows while the host is alive
};

// Everything an engine verb needs; passed to kernels by value.
struct cache_view {
    static constexpr counter evictions = count_evictions;
    page_word* words;  // arena: page words and directories
    frame_word* frame_words;
    std::byte* frames;
    std::uint32_t* clock_hands;  // per shard, 32 bytes apart: [0] the hand, [1] how many of the
                                 // frames were used at least once
    std::uint32_t* fill_done;    // 1 once every frame was used
    std::uint64_t* drawn_pages;  // a table of hints, which pages were drawn to enter
                                 // (engine/through.hpp); null: pages that are drawn enter at once
    file_word* file_words;
    opening_count* openings;  // per file slot
    file_record* file_records;
    name_slot* names;
    std::uint32_t* name_locks;
    std::uint64_t* paths;  // path arena
    std::uint32_t* retire_hand;
    std::uint64_t*
        windows;  // per file slot, and the chunks they name (engine/window.hpp); null: no windows
    std::uint64_t* window_chunks;
    std::uint64_t*
        advice;  // per file slot: how it will be read (engine/read_ahead.hpp); null: no advice
    fault_record* fault;  // null: errors of views are dropped
    write_record*
        writes;  // per file slot; null: this runtime does not write, and the next five are null too
    std::uint64_t* dirty_bits;   // a bit per byte of every frame (engine/dirty.hpp)
    std::uint64_t* frame_pages;  // per frame: the number of the dirty page in it
    std::uint64_t* write_locks;  // per frame (engine/write_back.hpp)
    pristine_word* pristine;     // per frame (engine/pristine.hpp)
    std::uint64_t* offered_run;  // which pages to write back next; a hint (engine/dirty.hpp)
    counter_shard* counters;
    const control_block* control;
    const std::int64_t* stop;  // a copy of the abort word in device memory (engine/ring.hpp); null:
                               // nothing stops groups that do not wait
    ring_view* rings;          // device memory
    tier_view tier;
    neighbour_view* neighbours;          // one for each place of a neighbour; null: not linked
    neighbour_entry* neighbour_entries;  // per file slot, one for each place
    neighbour_visits* visits;            // null: no neighbour leaves before this cache goes
    std::uint64_t word_count;
    std::uint64_t frame_wait_ns;    // how long a group looks for a frame before -ENOBUFS
    std::uint64_t request_wait_ns;  // how long a group waits for an answer before -ETIMEDOUT
    std::uint64_t look_ns;  // how long a waiting group goes without looking at the control block
    std::uint64_t host_wait_ns;  // how long the heartbeat may stand still before -ETIMEDOUT
    std::uint32_t page_shift;
    std::uint32_t frame_count;
    std::uint32_t clock_shards;  // a power of two; frame_count is a multiple of it
    std::uint32_t file_slots;
    std::uint32_t name_slots;       // a power of two
    std::uint32_t name_lock_count;  // a power of two
    std::uint32_t ring_count;
    std::uint32_t write_behind_shift;  // 2^this pages, an aligned part of a file, are written back
                                       // together (engine/victim.hpp)
    std::uint32_t write_behind_pages;  // so many dirty pages of a file make its writers write back
                                       // the pages as far behind; 0: never
    std::uint32_t close_leaves_pages;  // so many dirty pages a close leaves to each close that is
                                       // to come (engine/close_share.hpp); 0: all of them
    std::uint32_t ring_threads;        // service threads; thread r % ring_threads serves ring r, so
                                       // ring_count is a multiple of it
    std::uint32_t counter_shards;      // a power of two
    std::uint32_t leaf_shift;          // a leaf of a two-level table has 2^leaf_shift page words
    std::uint32_t read_ahead_pages;    // most pages read ahead of a reader; 0: none
    std::uint32_t growth_entries;      // leaves by which a file may grow while it is open
    std::uint32_t admit_one_in;  // how seldom a page that is read through a window enters the cache
                                 // (engine/through.hpp); 0 or 1: always
    std::uint32_t drawn_places;  // of drawn_pages, a power of two
    std::uint32_t number_bits;   // descriptor_number_bits where descriptors have numbers, else 0
    std::uint32_t neighbour_places;  // 0: not linked; at most most_neighbours
    std::uint32_t link_rank;         // all linked caches have different ones

    constexpr PENSTOCK_HD std::uint64_t page_bytes() const {
        return std::uint64_t{1} << page_shift;
    }
    PENSTOCK_HD std::byte* frame_address(std::uint32_t frame) const {
        return frames + (std::uint64_t{frame} << page_shift);
    }
    PENSTOCK_HD std::byte* tier_address(std::uint32_t frame) const {
        return tier.frames + (std::uint64_t{frame} << page_shift);
    }
};

constexpr PENSTOCK_HD std::uint64_t pages_of(const cache_view& c, std::uint64_t size_bytes) {
    return (size_bytes >> c.page_shift) + ((size_bytes & (c.page_bytes() - 1)) != 0 ? 1 : 0);
}

// The directory entries of a two-level table for this many pages.
constexpr PENSTOCK_HD std::uint64_t directory_entries(const cache_view& c, std::uint64_t pages) {
    return (pages + (std::uint64_t{1} << c.leaf_shift) - 1) >> c.leaf_shift;
}

// A window is cut into chunks of this size, a multiple of every page size; each chunk is there or
// not.
inline constexpr std::uint32_t window_chunk_shift = 21;
inline constexpr std::uint64_t window_chunk_bytes = std::uint64_t{1} << window_chunk_shift;

// In 4-byte words: each hand has a sector, so that no two shards share one.
inline constexpr std::uint32_t clock_hand_stride = 8;
// Further words in the first sector: how many groups write back victims, the lock of the group that
// offers pages (engine/victim.hpp), how many groups write behind, and whether the last write-back
// of some group failed.
inline constexpr std::uint32_t victim_writers_place = 2, offering_place = 3,
                               write_behind_writers_place = 4, failing_place = 5;
inline constexpr std::uint32_t no_frame = ~0u;

// The access that a descriptor permits; the access mode of the flags it was opened with.
inline constexpr std::uint32_t may_read = 0, may_write = 1, may_read_write = 2, may_write_once = 3,
                               access_mask = 3;
inline constexpr std::uint32_t nothing_unwanted = access_mask + 1;  // for find_file: any access

// The other flags of an open. The values are Linux's.
inline constexpr std::uint32_t flag_create = 0100, flag_exclusive = 0200, flag_truncate = 01000;

// Is this a combination of flags that an open supports?
constexpr PENSTOCK_HD bool sound_flags(std::uint32_t flags) {
    const std::uint32_t access = flags & access_mask;
    if ((flags & ~(access_mask | flag_create | flag_exclusive | flag_truncate)) != 0) return false;
    if ((flags & flag_exclusive) != 0 && (flags & flag_create) == 0) return false;
    return access != may_read || (flags & (flag_create | flag_truncate)) == 0;
}

// Descriptors: slot in bits 18..0 (or its number in 18..16 and slot in 15..0), access in
// bits 20..19, generation in bits 30..21; never negative.
constexpr PENSTOCK_HD int make_descriptor(std::uint32_t slot, std::uint32_t generation,
                                          std::uint32_t access = may_read) {
    return static_cast<int>((generation & file_generation_mask) << (descriptor_slot_bits + 2) |
                            (access & access_mask) << descriptor_slot_bits | slot);
}
constexpr PENSTOCK_HD std::uint32_t descriptor_slot(int fd) {
    return static_cast<std::uint32_t>(fd) & (max_file_slots - 1);
}
// If the slots leave the upper number_bits of their field free, these bits have the descriptor's
// number (engine/file_word.hpp). 0: a descriptor that openers may share.
inline constexpr std::uint32_t descriptor_number_bits = 3;
PENSTOCK_HD PENSTOCK_INLINE std::uint32_t descriptor_slot(const cache_view& c, int fd) {
    return static_cast<std::uint32_t>(fd) & (max_file_slots - 1) >> c.number_bits;
}
PENSTOCK_HD PENSTOCK_INLINE std::uint32_t descriptor_number(const cache_view& c, int fd) {
    return (static_cast<std::uint32_t>(fd) & (max_file_slots - 1)) >>
           (descriptor_slot_bits - c.number_bits);
}
PENSTOCK_HD PENSTOCK_INLINE int with_number(const cache_view& c, int fd, std::uint32_t number) {
    const int others =
        fd & ~static_cast<int>((max_file_slots - 1) & ~((max_file_slots - 1) >> c.number_bits));
    return others | static_cast<int>(number << (descriptor_slot_bits - c.number_bits));
}
constexpr PENSTOCK_HD std::uint32_t descriptor_access(int fd) {
    return static_cast<std::uint32_t>(fd) >> descriptor_slot_bits & access_mask;
}
constexpr PENSTOCK_HD std::uint32_t descriptor_generation(int fd) {
    return static_cast<std::uint32_t>(fd) >> (descriptor_slot_bits + 2);
}

}  // namespace penstock::engine
