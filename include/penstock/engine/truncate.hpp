// Changes the size of an open file.
//
// A cut writes back the pages behind the cut first. Then the host cuts the file, then the size goes
// down, and in the end the pages behind the cut are dropped. So if the host refuses, nothing is
// lost. Groups that write the file come before or after it, and no write-back makes the file longer
// again (engine/cut.hpp). A group that reads behind the cut at the same time comes before or after
// it, byte by byte: in a page of which a part is kept the rest turns to zeros in place.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/file_table.hpp"
#include "penstock/engine/write.hpp"

namespace penstock::engine {

// Whole group. Makes the file end at `size_bytes`; new bytes read as zeros. Returns 0 or a negative
// errno; -EFBIG if the file could not be read or written up to there.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t truncate_file(const Group g, const cache_view& c,
                                                         std::uint32_t slot,
                                                         std::uint64_t size_bytes) {
    const std::uint64_t first = size_bytes >> c.page_shift;
    std::int64_t code = 0;
    if (g.is_leader() && !can_grow_to(c, slot, size_bytes)) code = -EFBIG;
    code = share_code(g, code);
    if (code != 0) return code;
    // Twice: what takes long, while other groups go on; what they wrote meanwhile, without them.
    if (has_dirty_pages(g, c, slot)) code = flush_pages(g, c, slot, first, ~std::uint64_t{0});
    if (code != 0) return code;
    if (g.is_leader()) code = begin_cutting(g, c, slot);
    code = share_code(g, code);
    if (code != 0) return code;
    if (has_dirty_pages(g, c, slot)) code = flush_pages(g, c, slot, first, ~std::uint64_t{0});
    if (g.is_leader()) {
        if (code == 0) code = make_cut(g, c, slot, size_bytes);
        else end_or_leave_cut(c, slot, {}, false);
    }
    return share_code(g, code);
}

// Whole group. Opens a file with flags that may be for writing. Returns a descriptor or a negative
// errno.
template <typename Group>
PENSTOCK_HD inline std::int64_t open_written(const Group& g, const cache_view& c, const char* path,
                                             std::uint32_t flags) {
    const std::int64_t opened = open_file(g, c, path, flags);
    if (opened < 0) return opened;
    const int fd = static_cast<int>(opened & (yours_to_cut - 1));
    const std::uint32_t slot = descriptor_slot(c, fd);
    std::int64_t code = 0;
    if ((opened & yours_to_cut) != 0) {
        code = by_address(&truncate_file<Group>)(g, c, slot, 0);
        if (g.is_leader()) end_cut(c, slot, code);
    } else {
        if (g.is_leader()) {
            code = wait_for_cut(g, c, slot);
            // A file that no group cut is not what this one asked for.
            if (code == 0 && (opened & cut_by_another) != 0) code = code_of_cut(c, slot);
        }
        code = share_code(g, code);
    }
    if (code == 0) return fd;
    by_address (&close_written<Group>)(g, c, fd);
    return code;
}

}  // namespace penstock::engine
