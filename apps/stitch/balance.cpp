#include "balance.hpp"

#include <algorithm>
#include <cerrno>

#include "common/device_memory.hpp"
#include "common/stopwatch.hpp"
#include "common/whole_file.hpp"

namespace penstock::stitch {

namespace {

constexpr std::uint64_t probe_pixels = 16u << 20;

double rate_of(std::uint64_t pixels, double seconds) {
    return static_cast<double>(pixels) / std::max(seconds, 1e-9);
}

// Tiles from the middle of the file, one below the other.
std::vector<piece> probed_pieces(const tile_set& tiles) {
    const auto wanted = static_cast<std::uint32_t>(
        std::max<std::uint64_t>(probe_pixels / tiles.pixels_of_tile(), 1));
    const auto count = static_cast<std::uint32_t>(tiles.places.size()),
               taken = std::min(wanted, count), first = (count - taken) / 2;
    std::vector<piece> out;
    for (std::uint32_t i = 0; i < taken; ++i)
        out.push_back(
            {first + i, 0, 0, tiles.tile_width, tiles.tile_height, 0, i * tiles.tile_height});
    return out;
}

}  // namespace

status measure_balance(const stitch_job& job, balance& out) {
    apps::stopwatch all, watch;
    const std::vector<piece> pieces = probed_pieces(job.tiles);
    const std::uint32_t first = pieces.front().tile;
    const std::uint64_t pixels = pixels_of(pieces),
                        offset = job.tiles.first_tile() + first * job.tiles.tile_stride(),
                        bytes = pieces.size() * job.tiles.tile_stride();
    apps::mapped_file tiles;
    if (status s = tiles.open(job.tiles.file.path, job.tiles.file_bytes()); !s) return s;
    const std::unique_ptr<apps::device_memory> scratch = apps::make_host_memory();
    std::uint16_t* image = nullptr;
    if (!scratch->allocate(image, pixels))
        return {-ENOMEM, format_size(2 * pixels) + " of memory are not free; give --split"};
    // Once: memory is new to the threads then, as it will be.
    watch.lap();
    if (status s = make_on_threads({tiles_at(job, tiles.data() + offset, first),
                                    {image, job.tiles.tile_width},
                                    &pieces,
                                    job.convolutions},
                                   job.threads);
        !s)
        return s;
    out.right_rate = rate_of(pixels, watch.lap());

    std::byte *own_tiles = nullptr, *own_image = nullptr;
    if (status s = job.left_maker->take(bytes, 2 * pixels, own_tiles, own_image); !s) return s;
    if (status s = job.left_maker->bring(job.tiles.file.path, offset, bytes, own_tiles); !s)
        return s;
    // Twice: the first launch loads the kernel.
    for (int i = 0; i < 2; ++i) {
        watch.lap();
        const part_work work{tiles_at(job, own_tiles, first),
                             {reinterpret_cast<std::uint16_t*>(own_image), job.tiles.tile_width},
                             &pieces,
                             job.convolutions};
        if (status s = job.left_maker->make(work); !s) return s;
        out.left_rate = rate_of(pixels, watch.lap());
    }
    job.left_maker->drop();
    out.share = out.left_rate / (out.left_rate + out.right_rate);
    out.seconds = all.lap();
    return {};
}

}  // namespace penstock::stitch
