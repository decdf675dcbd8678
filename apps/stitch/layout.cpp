#include "layout.hpp"

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "common/work_items.hpp"
#include "penstock/runtime.hpp"

namespace penstock::stitch {

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
    // Calls for each tile with a higher number that may overlap this one.
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
                    action(*later);
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
            for (const rectangle& one : own) subtract(one, area_of(later), rest);
            own.swap(rest);
        });
        const tile_place& at = tiles.places[i];
        for (const rectangle& one : own)
            out.push_back({i, one.left - at.x, one.top - at.y, one.right - one.left,
                           one.bottom - one.top, one.left, one.top});
    }
    return {};
}

std::vector<piece> within(const std::vector<piece>& pieces, std::uint32_t begin,
                          std::uint32_t end) {
    std::vector<piece> out;
    for (piece one : pieces) {
        const std::uint32_t left = std::max(one.x, begin), right = std::min(one.x + one.width, end);
        if (left >= right) continue;
        one.left += left - one.x;
        one.x = left;
        one.width = right - left;
        out.push_back(one);
    }
    return out;
}

std::vector<piece> cut(const std::vector<piece>& pieces, std::uint32_t columns,
                       std::uint32_t rows) {
    std::vector<piece> out;
    const auto part = [](std::uint64_t whole, std::uint64_t parts, std::uint64_t i) {
        return static_cast<std::uint32_t>(whole * i / parts);
    };
    for (const piece& one : pieces) {
        const std::uint64_t across = apps::pieces_of(one.width, columns),
                            down = apps::pieces_of(one.height, rows);
        for (std::uint64_t j = 0; j < down; ++j)
            for (std::uint64_t i = 0; i < across; ++i) {
                const std::uint32_t left = part(one.width, across, i),
                                    top = part(one.height, down, j);
                out.push_back({one.tile, one.left + left, one.top + top,
                               part(one.width, across, i + 1) - left,
                               part(one.height, down, j + 1) - top, one.x + left, one.y + top});
            }
    }
    return out;
}

std::uint64_t pixels_of(const std::vector<piece>& pieces) {
    std::uint64_t sum = 0;
    for (const piece& one : pieces) sum += std::uint64_t{one.width} * one.height;
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
