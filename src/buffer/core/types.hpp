// The words of the buffer manager's core: what pages and contents are called, what moves, and how
// much there may be. docs/guide/buffer.md has the rules.
#pragma once

#include <bit>
#include <cerrno>
#include <cstdint>

#include "buffer/core/linked.hpp"
#include "penstock/buffer.hpp"

namespace penstock::buffer {

// Stands for the bytes of a block: equal if and only if these are equal. The thread that drives the
// core has compared the bytes.
struct content_id {
    std::uint64_t first = 0, second = 0;

    // Of a block that is shared with no other page, whatever its bytes are.
    static constexpr content_id alone() { return {~std::uint64_t{0}, ~std::uint64_t{0}}; }
    friend bool operator==(const content_id&, const content_id&) = default;
};

// absent: in neither part; places point at the block, and its bytes can be read from the files of
// their pages.
enum class side : std::uint8_t { host, device, absent };

enum class move : std::uint8_t {
    fill,  // host frame `host` gets the bytes of block `place` of `page`, which was just loaded or
           // is being written; `block` was absent or is new, and lies there by now
    demote,      // host frame `host` is copied to device frame `device`
    promote,     // device frame `device` is copied to host frame `host`
    exchange,    // the two frames swap their bytes: `block` comes to the host, `other` goes to the
                 // device
    write_back,  // block `place` of `page`, which lies in `host` or in `device`, goes to its file;
                 // one for each place of the page, in order
    drop,        // `page` is not in the buffer any more
    vanish,  // `block` leaves `host` or `device` and is absent: its pages, all of them clean, are
             // incomplete
};

// What must happen to bytes, in the order in which it is told: an action's frames hold then what
// the actions before have put there. `block` is the core's number of the block that moves, for
// core::each_page_of.
struct action {
    move what;
    std::uint32_t block = nothing, other = nothing;
    std::uint32_t host = nothing, device = nothing;
    std::uint32_t place = 0;
    page_id page{};
};

// Where the blocks of a page were when it was accessed; nowhere: also if one of them was absent.
enum class found : std::uint8_t { host, device, nowhere };

struct limits {
    std::uint32_t host_pages = 0,
                  device_pages = 0;     // as many pages' bytes; the device may have none
    std::uint32_t blocks_per_page = 1;  // a power of two
    std::uint32_t pages = 0;  // that may be in the table at once; one more than the frames hold,
                              // and it is never full without sharing
    std::uint32_t files = 1;  // page_id::file is below
    std::uint32_t absent_blocks = 0;  // that are known though they are in no frame, at most; 0: a
                                      // block that goes takes all its pages with it

    static constexpr std::uint32_t most_blocks_per_page = 64;

    [[nodiscard]] std::uint32_t host_frames() const { return host_pages * blocks_per_page; }
    [[nodiscard]] std::uint32_t device_frames() const { return device_pages * blocks_per_page; }

    [[nodiscard]] std::uint32_t blocks() const {
        return host_frames() + device_frames() + absent_blocks;
    }

    // 0, or -EINVAL: no page in the host or in the table, D no power of two or too large, or
    // numbers of blocks or places that no 32 bits have.
    [[nodiscard]] int check() const {
        constexpr std::uint64_t most = nothing - 1;
        if (host_pages == 0 || pages == 0 || files == 0) return -EINVAL;
        if (!std::has_single_bit(blocks_per_page) || blocks_per_page > most_blocks_per_page)
            return -EINVAL;
        const bool fits =
            (std::uint64_t{host_pages} + device_pages) * blocks_per_page + absent_blocks <= most &&
            std::uint64_t{pages} * blocks_per_page <= most;
        return fits ? 0 : -EINVAL;
    }
};

}  // namespace penstock::buffer
