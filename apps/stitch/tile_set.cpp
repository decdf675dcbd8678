#include "tile_set.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <sys/stat.h>
#include <utility>

#include "common/files.hpp"
#include "common/message.hpp"
#include "common/threads.hpp"
#include "common/work_items.hpp"
#include "penstock/runtime.hpp"

namespace penstock::stitch {

namespace {

constexpr std::uint64_t read_bytes = 4u << 20;  // at a time, by each thread
constexpr const char* again = "; copy it again or make it again";

template <typename... Parts>
status wrong(const std::string& path, const Parts&... defect) {
    return apps::failure(-EINVAL, apps::shown(path), ": ", defect...);
}

// A header that passes gives sizes with which nothing overflows.
status check_header(const std::string& path, const tile_header& h) {
    if (std::memcmp(h.magic, tile_magic, sizeof h.magic) != 0)
        return wrong(path, "is no file of tiles; make one with penstock-stitch make");
    if (h.version != tile_version)
        return wrong(path, "has version ", std::to_string(h.version),
                     " of the format, and this program reads ", tile_version, "; make it again");
    const struct {
        const char* name;
        std::uint32_t value, most;
    } sizes[] = {{"tile width", h.tile_width, most_tile_side},
                 {"tile height", h.tile_height, most_tile_side},
                 {"number of tiles", h.tile_count, most_tiles},
                 {"image width", h.image_width, most_image_side},
                 {"image height", h.image_height, most_image_side}};
    for (const auto& [name, value, most] : sizes)
        if (value < 1 || value > most)
            return wrong(path, "its ", name, " of ", value, " is not from 1 to ", most, again);
    return {};
}

status check_sizes(const std::string& path, const tile_header& h, const tile_set& tiles) {
    const tile_header should = header_of(tiles);
    if (h.first_tile != should.first_tile || h.tile_stride != should.tile_stride ||
        h.file_bytes != should.file_bytes)
        return wrong(path, "its header says that tiles begin at ", h.first_tile, ", ",
                     h.tile_stride, " apart, and end at ", h.file_bytes, ", which should be ",
                     should.first_tile, ", ", should.tile_stride, " and ", should.file_bytes,
                     again);
    if (tiles.file.bytes == should.file_bytes) return {};
    return wrong(path, "has ", tiles.file.bytes, " bytes and should have ", should.file_bytes,
                 again);
}

status check_places(const tile_set& tiles) {
    for (std::size_t i = 0; i < tiles.places.size(); ++i) {
        const tile_place& at = tiles.places[i];
        if (std::uint64_t{at.x} + tiles.tile_width > tiles.image_width ||
            std::uint64_t{at.y} + tiles.tile_height > tiles.image_height)
            return wrong(tiles.file.path, "tile ", std::to_string(i), " at ", at.x, ", ", at.y,
                         " does not lie in the image of ", tiles.image_width, " by ",
                         tiles.image_height, "; correct its place, or make the file again");
    }
    return {};
}

status read_head(int fd, tile_set& out) {
    const std::string& path = out.file.path;
    struct stat info {};
    if (::fstat(fd, &info) != 0)
        return {-errno, apps::shown(path) + ": " + error_text(-errno) + "; name a file of tiles"};
    out.file.bytes = static_cast<std::uint64_t>(info.st_size);
    if (out.file.bytes < page_bytes)
        return wrong(path, "has ", out.file.bytes, " bytes, which is too short for a file of tiles",
                     again);
    tile_header h;
    if (status s = apps::read_exactly(path, fd, &h, sizeof h, 0); !s) return s;
    if (status s = check_header(path, h); !s) return s;
    out.tile_width = h.tile_width;
    out.tile_height = h.tile_height;
    out.image_width = h.image_width;
    out.image_height = h.image_height;
    const std::uint64_t table_bytes = h.tile_count * sizeof(tile_place);
    if (out.file.bytes < page_bytes + table_bytes)
        return wrong(path, "has ", out.file.bytes, " bytes, too few for the places of ",
                     h.tile_count, " tiles", again);
    out.places.resize(h.tile_count);
    if (status s = check_sizes(path, h, out); !s) return s;
    if (status s = apps::read_exactly(path, fd, out.places.data(), table_bytes, page_bytes); !s)
        return s;
    return check_places(out);
}

}  // namespace

tile_header header_of(const tile_set& tiles) {
    tile_header out{{},
                    tile_version,
                    tiles.tile_width,
                    tiles.tile_height,
                    static_cast<std::uint32_t>(tiles.places.size()),
                    tiles.image_width,
                    tiles.image_height,
                    tiles.first_tile(),
                    tiles.tile_stride(),
                    tiles.file_bytes()};
    std::memcpy(out.magic, tile_magic, sizeof out.magic);
    return out;
}

status open_tiles(const std::string& path, tile_set& out) {
    out.file.path = path;
    struct stat info {};
    if (status s = apps::look_at_input(path, "name a file of tiles that can be read", info); !s)
        return s;
    apps::unique_fd fd;
    if (status s = apps::open_to_read(path, "a file of tiles", fd, O_NONBLOCK); !s) return s;
    return read_head(fd, out);
}

status read_tiles(const tile_set& tiles, std::uint64_t offset, std::uint64_t bytes, std::byte* to,
                  std::uint32_t threads) {
    const std::string& path = tiles.file.path;
    apps::unique_fd fd;
    if (status s = apps::open_to_read(path, "a file of tiles", fd); !s) return s;
    return apps::on_pieces(threads, bytes, read_bytes,
                           [&](std::uint32_t, std::uint64_t at, std::uint64_t count) {
                               return apps::read_exactly(path, fd, to + at, count, offset + at);
                           });
}

namespace {

// Half open, in the image.
struct rectangle {
    std::uint32_t left, top, right, bottom;
};

// `from` without `hole`, appended: what is above and below in full width, then what is beside.
void subtract(const rectangle& from, const rectangle& hole, std::vector<rectangle>& out) {
    const rectangle common{std::max(from.left, hole.left), std::max(from.top, hole.top),
                           std::min(from.right, hole.right), std::min(from.bottom, hole.bottom)};
    if (common.left >= common.right || common.top >= common.bottom) {
        out.push_back(from);
        return;
    }
    const auto keep = [&](std::uint32_t left, std::uint32_t top, std::uint32_t right,
                          std::uint32_t bottom) {
        if (left < right && top < bottom) out.push_back({left, top, right, bottom});
    };
    keep(from.left, from.top, from.right, common.top);
    keep(from.left, common.top, common.left, common.bottom);
    keep(common.right, common.top, from.right, common.bottom);
    keep(from.left, common.bottom, from.right, from.bottom);
}

// Tiles by cells of a tile's size: those that overlap one lie in its cell or one of the eight
// around it.
class cells {
public:
    explicit cells(const tile_set& tiles) : tiles_(tiles) {
        for (std::uint32_t i = 0; i < tiles.places.size(); ++i)
            numbers_[cell_of(tiles.places[i])].push_back(i);
    }
    // Calls for each tile with a higher number that may overlap this one, until a call gives false.
    template <typename Action>
    void for_later(std::uint32_t tile, const Action& action) const {
        const auto [column, row] = cell_of(tiles_.places[tile]);
        for (std::int64_t c = column - 1; c <= column + 1; ++c)
            for (std::int64_t r = row - 1; r <= row + 1; ++r) {
                const auto found = numbers_.find({c, r});
                if (found == numbers_.end()) continue;
                for (auto later =
                         std::upper_bound(found->second.begin(), found->second.end(), tile);
                     later != found->second.end(); ++later)
                    if (!action(*later)) return;
            }
    }

private:
    using cell = std::pair<std::int64_t, std::int64_t>;
    [[nodiscard]] cell cell_of(const tile_place& at) const {
        return {at.x / tiles_.tile_width, at.y / tiles_.tile_height};
    }

    const tile_set& tiles_;
    std::map<cell, std::vector<std::uint32_t>> numbers_;
};

}  // namespace

status owned_pieces(const tile_set& tiles, std::vector<piece>& out) {
    out.clear();
    const cells all(tiles);
    const auto area_of = [&](std::uint32_t i) {
        const tile_place& at = tiles.places[i];
        return rectangle{at.x, at.y, at.x + tiles.tile_width, at.y + tiles.tile_height};
    };
    std::vector<rectangle> own, rest;
    for (std::uint32_t i = 0; i < tiles.places.size(); ++i) {
        if (was_interrupted()) return {-ECANCELED, "interrupted; nothing was written"};
        own.assign(1, area_of(i));
        all.for_later(i, [&](std::uint32_t later) {
            rest.clear();
            for (const rectangle& area : own) subtract(area, area_of(later), rest);
            own.swap(rest);
            return !own.empty();
        });
        const tile_place& at = tiles.places[i];
        for (const rectangle& area : own)
            out.push_back({i, area.left - at.x, area.top - at.y, area.right - area.left,
                           area.bottom - area.top, area.left, area.top});
    }
    return {};
}

std::vector<piece> within(const std::vector<piece>& pieces, std::uint32_t begin,
                          std::uint32_t end) {
    std::vector<piece> out;
    for (piece clipped : pieces) {
        const std::uint32_t left = std::max(clipped.x, begin),
                            right = std::min(clipped.x + clipped.width, end);
        if (left >= right) continue;
        clipped.left += left - clipped.x;
        clipped.x = left;
        clipped.width = right - left;
        out.push_back(clipped);
    }
    return out;
}

std::vector<piece> cut(const std::vector<piece>& pieces, std::uint32_t columns,
                       std::uint32_t rows) {
    std::vector<piece> out;
    const auto part = [](std::uint64_t whole, std::uint64_t parts, std::uint64_t i) {
        return static_cast<std::uint32_t>(whole * i / parts);
    };
    for (const piece& whole : pieces) {
        const std::uint64_t across = apps::pieces_of(whole.width, columns),
                            down = apps::pieces_of(whole.height, rows);
        for (std::uint64_t j = 0; j < down; ++j)
            for (std::uint64_t i = 0; i < across; ++i) {
                const std::uint32_t left = part(whole.width, across, i),
                                    top = part(whole.height, down, j);
                out.push_back({whole.tile, whole.left + left, whole.top + top,
                               part(whole.width, across, i + 1) - left,
                               part(whole.height, down, j + 1) - top, whole.x + left,
                               whole.y + top});
            }
    }
    return out;
}

std::uint64_t pixels_of(const std::vector<piece>& pieces) {
    std::uint64_t sum = 0;
    for (const piece& part : pieces) sum += std::uint64_t{part.width} * part.height;
    return sum;
}

// Sides change at the line of each row and at the end of all rows but the last. A page is shared if
// one of these places lies inside it.
std::uint64_t shared_pages(std::uint32_t width, std::uint32_t height, std::uint32_t split,
                           std::uint64_t first_byte) {
    if (split == 0 || split >= width) return 0;
    std::uint64_t count = 0, last_page = UINT64_MAX;
    const auto change_at = [&](std::uint64_t byte) {
        if (byte % page_bytes == 0 || byte / page_bytes == last_page) return;
        last_page = byte / page_bytes;
        ++count;
    };
    for (std::uint64_t row = 0; row < height; ++row) {
        const std::uint64_t begin = first_byte + 2 * row * width;
        change_at(begin + 2 * std::uint64_t{split});
        if (row + 1 < height) change_at(begin + 2 * std::uint64_t{width});
    }
    return count;
}

}  // namespace penstock::stitch
