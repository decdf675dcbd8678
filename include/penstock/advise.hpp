// Advice: a program tells the cache how a file will be read.
//
// Advice is a hint: no result of a read depends on it, only its time. Thread safety: as file.hpp.
#pragma once

#include "penstock/base/macros.hpp"
#include "penstock/base/standard.hpp"
#include "penstock/engine/advise.hpp"
#include "penstock/file.hpp"

namespace penstock {

enum class advice : std::int32_t {
    normal = 0,      // whole file: read ahead where reads come in order (the state after open)
    sequential = 1,  // whole file: read ahead from the first miss on
    random = 2,      // whole file: never read ahead
    will_need = 3,   // the range: bring to the host tier what is not nearer, without waiting
    done_with = 4    // the range: drop its pages, except pages mapped or being loaded
};

// Whole group. `normal`, `sequential` and `random` ignore the range; they hold for the file, for
// every opener, until it changes on the host. Returns 0; for will_need, how many bytes of the
// range, from its beginning, are in cache, tier or window, in a linked cache, or on their way. That
// is less than asked if tier or ring have no room now, and 0 if there is no tier
// (options::tier_bytes). Errors: -EBADF; -EINVAL for a negative range or an unknown kind. Never
// waits for bytes of the file. Cost: for will_need a request for each 32 pages, and in a linked
// cache a look at the neighbours for each page; for done_with a look at each page of the range.
template <group Group>
PENSTOCK_HD std::int64_t advise(const Group& g, const runtime_ref& fs, int fd, advice kind,
                                std::int64_t offset = 0, std::int64_t bytes = INT64_MAX) {
    engine::file_handle file{};
    if (!engine::find_file(g, fs.view, fd, file)) return detail::counted(g, fs, -EBADF);
    if (offset < 0 || bytes < 0 || kind < advice::normal || kind > advice::done_with)
        return detail::counted(g, fs, -EINVAL);
    const engine::cache_view& c = fs.view;
    std::int64_t result = 0;
    if (g.is_leader()) {
        const auto begin = static_cast<std::uint64_t>(offset);
        const std::uint64_t left = begin < file.size_bytes ? file.size_bytes - begin : 0;
        const std::uint64_t end =
            begin +
            (static_cast<std::uint64_t>(bytes) < left ? static_cast<std::uint64_t>(bytes) : left);
        if (kind == advice::will_need && end > begin) {
            const std::uint64_t first = begin >> c.page_shift;
            const std::uint64_t pages = by_address(&engine::want_pages<Group>)(
                g, c, file, first, ((end - 1) >> c.page_shift) + 1);
            const std::uint64_t reached = (first + pages) << c.page_shift;
            result = reached > begin
                         ? static_cast<std::int64_t>((reached < end ? reached : end) - begin)
                         : 0;
        } else if (kind == advice::done_with && end > begin) {
            // Drops only whole pages: another group may use the rest of a page. The last page ends
            // with the file.
            const std::uint64_t until =
                end == file.size_bytes ? engine::pages_of(c, end) : end >> c.page_shift;
            by_address (&engine::drop_pages)(c, file, (begin + c.page_bytes() - 1) >> c.page_shift,
                                             until);
        } else if (kind <= advice::random) {
            engine::set_advice(c, file, static_cast<engine::advice_kind>(kind));
        }
    }
    return g.broadcast(result);
}

}  // namespace penstock
