// What a search needs, as the code that runs on a GPU or on CPU threads sees it: pointers into that
// device's memory.
//
// The databases, one behind the other, are cut into tiles of images; queries into groups. An item
// is one tile and one group, and items are numbered so that earlier images come first. The
// group that compares an item tells which of its queries have a match already.
#pragma once

#include <cstdint>

#include "common/work_items.hpp"
#include "penstock/base/atomic.hpp"

namespace penstock::match {

// The best match of a query: number of the image among all databases, then the distance's bits. The
// least such word is the first match, for a distance that is not negative is ordered as its bits
// are.
inline constexpr std::uint64_t no_match = ~std::uint64_t{0};

PENSTOCK_HD PENSTOCK_INLINE std::uint64_t match_key(std::uint64_t image,
                                                    std::uint32_t distance_bits) {
    return image << 32 | distance_bits;
}

struct database_view {
    int fd = -1;  // penstock only
    std::uint64_t first_byte = 0;
    std::uint64_t stride_bytes = 0;
    std::uint64_t image_count = 0;
    std::uint64_t first_image = 0;  // of those of all databases
    std::uint64_t first_tile = 0;
};

struct match_totals : apps::work_totals {  // `failed` is a database
    std::uint64_t pairs;    // of a query and an image of which the comparison was begun
    std::uint64_t numbers;  // of images that were compared with numbers of queries
    std::uint32_t matched;  // queries that have a match
};

struct match_view {
    const float* queries;  // of `floats` numbers each, without gaps
    const database_view* databases;
    std::uint64_t* best;  // of each query
    match_totals* totals;
    std::uint64_t query_count;
    std::uint64_t tile_count;
    std::uint64_t group_queries;  // queries of a group; the last one may have fewer
    std::uint32_t group_count;
    std::uint32_t database_count;
    std::uint32_t tile_images;
    std::uint32_t floats;       // padded
    std::uint32_t slab_floats;  // as much of each image is held at a time
    std::uint32_t whole;        // compare to the end what cannot match any more
    float threshold;

    PENSTOCK_HD std::uint64_t item_count() const { return tile_count * group_count; }
};

// One item.
struct tile_place {
    database_view from;
    std::uint32_t database;
    std::uint32_t images;  // in the tile
    std::uint64_t first;   // image of the database
    std::uint64_t query_begin, query_end;

    PENSTOCK_HD std::uint64_t number(std::uint32_t image) const {
        return from.first_image + first + image;
    }
    PENSTOCK_HD std::uint64_t byte_of(std::uint32_t image) const {
        return from.first_byte + (first + image) * from.stride_bytes;
    }
};

// Tile `tile` of the database and group `group`.
PENSTOCK_HD PENSTOCK_INLINE tile_place place_in(const match_view& v, const database_view& from,
                                                std::uint32_t database, std::uint64_t tile,
                                                std::uint64_t group) {
    tile_place out{};
    out.from = from;
    out.database = database;
    out.first = tile * v.tile_images;
    out.images = static_cast<std::uint32_t>(
        apps::lesser<std::uint64_t>(from.image_count - out.first, v.tile_images));
    out.query_begin = group * v.group_queries;
    out.query_end = apps::lesser(out.query_begin + v.group_queries, v.query_count);
    return out;
}

PENSTOCK_HD PENSTOCK_INLINE tile_place place_of(const match_view& v, std::uint64_t item) {
    const std::uint64_t tile = item / v.group_count;
    // The last database that does not begin behind the tile; of those that begin with one tile, all
    // others are empty.
    std::uint32_t database = 0, end = v.database_count;
    while (end - database > 1) {
        const std::uint32_t middle = database + (end - database) / 2;
        if (v.databases[middle].first_tile <= tile) database = middle;
        else end = middle;
    }
    const database_view& from = v.databases[database];
    return place_in(v, from, database, tile - from.first_tile, item % v.group_count);
}

// True if an image of the tile could still be the query's first match.
PENSTOCK_HD PENSTOCK_INLINE bool is_live(const match_view& v, const tile_place& at,
                                         std::uint64_t query) {
    return atomic_load<order::relaxed>(v.best + query) > match_key(at.number(0), 0);
}

// A distance below the threshold. No order is needed: the words are read again when everything has
// ended.
PENSTOCK_HD PENSTOCK_INLINE void note_match(const match_view& v, std::uint64_t query,
                                            std::uint64_t image, std::uint32_t distance_bits) {
    const std::uint64_t key = match_key(image, distance_bits);
    std::uint64_t known = atomic_load<order::relaxed>(v.best + query);
    while (key < known) {
        if (atomic_compare_swap<order::relaxed>(v.best + query, known, key)) {
            if (known == no_match) atomic_add_relaxed(&v.totals->matched, 1u);
            return;
        }
        known = atomic_load<order::relaxed>(v.best + query);
    }
}

PENSTOCK_HD PENSTOCK_INLINE void note_error(const match_view& v, const tile_place& at,
                                            std::int32_t code) {
    apps::note_error(v.totals, at.database, code);
}

// Whole group. The next item, or item_count() when no more is to be done: after an error, when
// `stop()` says that the user interrupted, or when every query has a match. (Items are taken in
// order, so what has not been taken holds no earlier image for any of them; items that were taken
// are still finished.)
template <typename Group, typename Stop>
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t take_item(const Group& g, const match_view& v,
                                                    const Stop& stop) {
    return apps::take_item(g, v.totals, v.item_count(), [&] {
        return stop() || atomic_load<order::relaxed>(&v.totals->matched) == v.query_count;
    });
}

}  // namespace penstock::match
