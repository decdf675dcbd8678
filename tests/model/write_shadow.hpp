// What the files of the model test of writes must hold: a version for every byte, and from it the
// byte.
//
// A byte is written by one owner at a time, so its owner knows it exactly; the others know that it
// is not older than what they saw finished before they looked, and not newer than the write that
// may be under way.
#pragma once

#include <cstdint>

#include "penstock/base/atomic.hpp"
#include "penstock/base/hash.hpp"

namespace penstock::model {

// How often a byte was written, and whether it reads as zero all the same, because the file was
// made, cut or grown since.
using version = std::uint32_t;
inline constexpr version hole = version{1} << 31;
constexpr PENSTOCK_HD version next_version(version v) { return (v & ~hole) + 1; }

// Two versions that follow each other never look alike, and none looks like a hole.
constexpr PENSTOCK_HD std::uint8_t written_byte(std::uint64_t seed, std::uint32_t file,
                                                std::uint64_t offset, version v) {
    if ((v & hole) != 0) return 0;
    const std::uint64_t place =
        (offset + seed + (std::uint64_t{file} << 40)) * 0x9e3779b97f4a7c15ull >> 40;
    return static_cast<std::uint8_t>(1 + (place + std::uint64_t{v} * 101) % 255);
}

enum class use : std::uint32_t {
    idle,    // no actor opens it
    shared,  // the bytes are dealt out to owners, stride by stride; all of them read all
    alone,   // one actor only, which also cuts and grows it
    log      // all actors append records
};

// What a file is used for in a round. The owners of a shared file: actors first, then those of the
// second runtime, then maybe one for an ordinary program.
struct file_plan {
    use usage;
    std::uint32_t actors, second, ordinary;  // owners of each kind
    std::uint32_t owner;                     // alone: the actor
    std::uint32_t absent;                    // it is not there when the round begins
    std::uint64_t stride;
    std::uint64_t reach;  // no writer writes behind it

    constexpr PENSTOCK_HD std::uint32_t owners() const { return actors + second + ordinary; }
    constexpr PENSTOCK_HD std::uint32_t owner_of(std::uint64_t offset) const {
        return usage == use::alone ? owner : static_cast<std::uint32_t>(offset / stride % owners());
    }
};

inline constexpr std::uint32_t touched_pages = 256;

// In memory that all actors reach. A version is stored by its owner after the write has returned.
struct file_shadow {
    version* versions;  // `capacity` of them; the bytes behind the end are holes
    std::uint64_t capacity;
    std::uint64_t size_begun, size_done;  // sizes that writes have begun to make, and have made
    std::uint64_t there;                  // the file exists
    std::uint32_t* touched;  // writes begun and done, two words for each of touched_pages pages
                             // (others share them); or null

    PENSTOCK_HD version at(std::uint64_t offset) const {
        return offset < capacity ? atomic_load<order::relaxed>(&versions[offset]) : hole;
    }
};

struct write_world {
    std::uint64_t seed, page_bytes, round;
    std::uint32_t files;
    std::uint32_t actors;  // of this launch, for the tables of records
    file_plan* plans;
    file_shadow* shadows;
    std::uint32_t* records;  // appended so far: [file][actor]

    PENSTOCK_HD std::uint32_t& records_of(std::uint32_t file, std::uint64_t actor) const {
        return records[std::uint64_t{file} * actors + actor];
    }
};

constexpr PENSTOCK_HD std::uint64_t mixed(std::uint64_t a, std::uint64_t b, std::uint64_t c = 0) {
    return mix64(mix64(mix64(a) + b * 0x9e3779b97f4a7c15ull) + c);
}

// A record of a log: its actor, its number, and so which bytes.
inline constexpr std::uint32_t record_head_bytes = 16, most_record_bytes = 700;
struct record_head {
    std::uint32_t length, check;
    std::uint32_t actor, number;
};
constexpr PENSTOCK_HD record_head head_of(std::uint64_t seed, std::uint64_t round,
                                          std::uint32_t actor, std::uint32_t number) {
    const std::uint64_t h = mixed(seed ^ round, actor, number);
    return {
        record_head_bytes + static_cast<std::uint32_t>(h % (most_record_bytes - record_head_bytes)),
        static_cast<std::uint32_t>(h >> 32), actor, number};
}
// Byte `i` of the record's rest.
constexpr PENSTOCK_HD std::uint8_t record_byte(const record_head& head, std::uint32_t i) {
    return written_byte(head.check, head.actor, i, head.number & ~hole);
}

// "f7", with a zero byte after it. Names lie below the runtime's root.
inline PENSTOCK_HD void name_of_written(std::uint32_t file, char* out) {
    *out++ = 'f';
    if (file >= 10) *out++ = static_cast<char>('0' + file / 10);
    *out++ = static_cast<char>('0' + file % 10);
    *out = '\0';
}

// Reads and writes are at most so long; several pages, where pages are not huge.
constexpr PENSTOCK_HD std::uint64_t longest_write(std::uint64_t page_bytes) {
    if (page_bytes >= 16384) return 2 * page_bytes;
    return 6 * page_bytes > 8192 ? 6 * page_bytes : 8192;
}

}  // namespace penstock::model
