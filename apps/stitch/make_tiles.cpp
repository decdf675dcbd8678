// The command make: tiles of a made scene.
#include "session.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "common/message.hpp"
#include "common/files.hpp"
#include "common/numbers.hpp"
#include "common/process.hpp"
#include "common/threads.hpp"
#include "penstock/base/hash.hpp"

namespace penstock::stitch {

namespace {

// The scene: whole numbers, so that every machine makes the same. docs/apps/stitch.md has the
// formula.

// From 0 up to a quarter of period² and down again.
constexpr std::uint32_t wave(std::uint64_t t, std::uint32_t period) {
    const auto u = static_cast<std::uint32_t>(t % period);
    return u * (period - u);
}

constexpr std::uint32_t scene_dark = 400;

// Noise of four neighbouring pixels, 6 bits each, the lowest first; `place`: number of the first in
// its tile, divided by 4.
constexpr std::uint64_t noise_of(std::uint64_t start, std::uint64_t place) {
    return mix64(start + place);
}

// What does not change along a row or column, and what lies along diagonals, so that a pixel takes
// three additions and a product.
struct scene_tables {
    std::vector<std::uint16_t> across, down, along;

    explicit scene_tables(const tile_set& tiles)
        : across(waves(tiles.image_width, 509, 8)),                                      // to 253
          down(waves(tiles.image_height, 383, 7)),                                       // to 286
          along(waves(std::uint64_t{tiles.image_width} + tiles.image_height, 97, 0)) {}  // to 2352

private:
    static std::vector<std::uint16_t> waves(std::uint64_t count, std::uint32_t period, int less) {
        std::vector<std::uint16_t> out(count);
        for (std::uint64_t i = 0; i < count; ++i)
            out[i] = static_cast<std::uint16_t>(wave(i, period) >> less);
        return out;
    }
};

void fill_tile(const tile_set& tiles, const scene_tables& scene, std::uint32_t tile,
               std::uint64_t seed, std::uint16_t* out) {
    const tile_place& at = tiles.places[tile];
    const std::uint64_t start = apps::random_start(seed, tile);
    std::uint64_t place = 0, noise = 0;
    for (std::uint32_t row = 0; row < tiles.tile_height; ++row) {
        const std::uint32_t down = scene.down[at.y + row];
        const std::uint16_t* const across = scene.across.data() + at.x;
        const std::uint16_t* const along = scene.along.data() + at.x + at.y + row;
        for (std::uint32_t column = 0; column < tiles.tile_width; ++column, ++place) {
            if (place % 4 == 0) noise = noise_of(start, place / 4);
            out[place] =
                static_cast<std::uint16_t>(scene_dark + (across[column] * down >> 2) +
                                           along[column] + (noise >> (place % 4 * 6) & 63));
        }
    }
}

status write_tiles(const tile_set& tiles, const make_session& m, const apps::output_file& out) {
    const tile_header header = header_of(tiles);
    if (status s = out.write_at(&header, sizeof header, 0); !s) return s;
    const std::uint64_t table_bytes = tiles.places.size() * sizeof(tile_place);
    if (status s = out.write_at(tiles.places.data(), table_bytes, page_bytes); !s) return s;
    const scene_tables scene(tiles);
    std::vector<std::vector<std::uint16_t>> rooms(m.threads);
    std::atomic<std::uint64_t> done{0};
    const apps::progress bar(
        "tiles", tiles.places.size(), [&] { return done.load(); }, !m.common.quiet);
    return apps::on_pieces(m.threads, tiles.places.size(), 1,
                           [&](std::uint32_t thread, std::uint64_t i, std::uint64_t) {
                               std::vector<std::uint16_t>& room = rooms[thread];
                               room.resize(tiles.tile_stride() / sizeof(std::uint16_t));
                               fill_tile(tiles, scene, static_cast<std::uint32_t>(i), m.seed,
                                         room.data());
                               ++done;
                               return out.write_at(room.data(), tiles.tile_stride(),
                                                   tiles.first_tile() + i * tiles.tile_stride());
                           });
}

// Places column by column, so that the left part of an image has the first part of the file.
// -EINVAL and a message if the image would be too large.
status place_tiles(const make_session& m, tile_set& out) {
    out.tile_width = m.tile_width;
    out.tile_height = m.tile_height;
    const auto step = [&](std::uint32_t side) {
        return std::max<std::uint64_t>(std::uint64_t{side} * (100 - m.overlap_percent) / 100, 1);
    };
    const std::uint64_t across = step(m.tile_width), down = step(m.tile_height);
    const std::uint64_t width = (m.columns - 1) * across + m.tile_width + 2 * m.jitter,
                        height = (m.rows - 1) * down + m.tile_height + 2 * m.jitter;
    if (width > most_image_side || height > most_image_side)
        return apps::failure(-EINVAL, "the image would have ", width, " by ", height,
                             " pixels, and a side has ", most_image_side,
                             " at most; give fewer --rows or --columns");
    out.image_width = static_cast<std::uint32_t>(width);
    out.image_height = static_cast<std::uint32_t>(height);
    const std::uint64_t start = apps::random_start(m.seed, UINT64_MAX),
                        choices = 2 * std::uint64_t{m.jitter} + 1;
    out.places.clear();
    for (std::uint64_t column = 0; column < m.columns; ++column)
        for (std::uint64_t row = 0; row < m.rows; ++row) {
            const std::uint64_t dice = mix64(start + out.places.size());
            out.places.push_back(
                {static_cast<std::uint32_t>(column * across + (dice & UINT32_MAX) % choices),
                 static_cast<std::uint32_t>(row * down + (dice >> 32) % choices)});
        }
    return {};
}

}  // namespace

status make_session::run() {
    apps::stopwatch watch;
    if (status s = place_tiles(*this, tiles); !s) return s;
    threads = apps::thread_count(settings.worker_threads);
    if (status s =
            apps::check_room(out, tiles.file_bytes(), "give a smaller image, or another place");
        !s)
        return s;
    apps::output_file file;
    if (status s = file.open_named(out); !s) return s;
    if (status s = write_tiles(tiles, *this, file); !s) return s;
    if (status s = file.commit(); !s) return s;
    seconds = watch.lap();
    return {};
}

}  // namespace penstock::stitch
