// The words of the buffer manager's core: lists of numbers, what pages and contents are called,
// what moves, how much there may be, and how moves are counted. docs/guide/buffer.md has the rules.
#pragma once

#include <bit>
#include <cerrno>
#include <cstdint>
#include <vector>

#include "penstock/buffer.hpp"

// Stands before every function that does nothing else. gcc takes such a function for one without
// effect and leaves out the calls of it, unless its body was put in their place before that is
// looked at.
#define PENSTOCK_FETCHING [[gnu::always_inline]] inline

namespace penstock::buffer {

// Fetching memory into the processor's caches ahead of use.
PENSTOCK_FETCHING void fetch(const void* from) { __builtin_prefetch(from); }

// Doubly linked lists over numbers below a limit, each number in at most one of them. The links may
// lie inside whatever has the numbers, so that one look into memory finds both.
inline constexpr std::uint32_t nothing = ~std::uint32_t{0};

struct neighbours {
    std::uint32_t newer = nothing, older = nothing;
};

struct list_ends {
    std::uint32_t newest = nothing, oldest = nothing;
    std::uint32_t size = 0;
};

// links(n) is a reference to the neighbours of number n.
template <typename Links>
void push_newest(list_ends& ends, std::uint32_t number, const Links& links) {
    links(number) = {nothing, ends.newest};
    (ends.newest == nothing ? ends.oldest : links(ends.newest).newer) = number;
    ends.newest = number;
    ++ends.size;
}
template <typename Links>
void take_out(list_ends& ends, std::uint32_t number, const Links& links) {
    const neighbours at = links(number);
    (at.newer == nothing ? ends.newest : links(at.newer).older) = at.older;
    (at.older == nothing ? ends.oldest : links(at.older).newer) = at.newer;
    --ends.size;
}

// The same with links of their own.
class linked {
public:
    explicit linked(std::uint32_t limit) : links_(limit) {}

    [[nodiscard]] std::uint32_t newer(std::uint32_t number) const { return links_[number].newer; }
    void push_newest(list_ends& ends, std::uint32_t number) {
        buffer::push_newest(ends, number,
                            [&](std::uint32_t n) -> neighbours& { return links_[n]; });
    }
    void remove(list_ends& ends, std::uint32_t number) {
        take_out(ends, number, [&](std::uint32_t n) -> neighbours& { return links_[n]; });
    }

private:
    std::vector<neighbours> links_;
};

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
// core_tables::each_page_of.
struct action {
    move kind;
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

// A sink that counts what moves, and nothing else.

// In blocks, but for the pages that are written back or dropped.
struct counts {
    std::uint64_t filled = 0, demoted = 0, promoted = 0, vanished = 0;
    std::uint64_t written_pages = 0, written_from_device = 0, dropped_pages = 0;

    void operator()(const action& told) {
        switch (told.kind) {
            case move::fill: ++filled; break;
            case move::demote: ++demoted; break;
            case move::promote: ++promoted; break;
            case move::exchange: ++demoted, ++promoted; break;
            case move::write_back:
                written_pages += told.place == 0;
                written_from_device += told.device != nothing;
                break;
            case move::drop: ++dropped_pages; break;
            case move::vanish: ++vanished; break;
        }
    }
    // Blocks over the bus, to the device and from it.
    [[nodiscard]] std::uint64_t to_device() const { return demoted; }
    [[nodiscard]] std::uint64_t from_device() const { return promoted + written_from_device; }
};

}  // namespace penstock::buffer
