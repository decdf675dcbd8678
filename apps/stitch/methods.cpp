// The methods that need no CUDA, and how the work is best shared between two processors.
#include "methods.hpp"

#include <algorithm>
#include <cerrno>
#include <thread>

#include "common/device_memory.hpp"
#include "common/process.hpp"
#include "common/threads.hpp"
#include "common/files.hpp"
#include "penstock/region.hpp"

namespace penstock::stitch {

tile_range left_tiles(const stitch_job& job) {
    if (job.left.empty()) return {};
    const auto [first, last] =
        std::minmax_element(job.left.begin(), job.left.end(),
                            [](const piece& a, const piece& b) { return a.tile < b.tile; });
    return {first->tile, job.tiles.first_tile() + first->tile * job.tiles.tile_stride(),
            (last->tile - first->tile + 1) * job.tiles.tile_stride()};
}

tiles_in_memory tiles_at(const stitch_job& job, const void* at, std::uint32_t first) {
    return {static_cast<const std::uint16_t*>(at), first,
            job.tiles.tile_stride() / sizeof(std::uint16_t), job.tiles.tile_width,
            job.tiles.tile_height};
}

part_work on_host(const stitch_job& job, const apps::mapped_file& tiles, std::uint16_t* pixels,
                  const std::vector<piece>& pieces) {
    return {tiles_at(job, tiles.data() + job.tiles.first_tile(), 0),
            {pixels, job.tiles.image_width},
            &pieces,
            job.convolutions};
}

status make_both(const stitch_job& job, const part_work& left, const part_work& right,
                 phases& out) {
    apps::first_error errors;
    std::jthread other([&] {
        apps::stopwatch watch;
        if (!left.pieces->empty()) errors.note(job.left_maker->make(left));
        out.left = watch.lap();
    });
    apps::stopwatch watch;
    errors.note(make_on_threads(right, job.threads));
    out.right = watch.lap();
    other.join();
    return errors.get();
}

status with_private(const stitch_job& job, image_file& image, phases& out) {
    apps::stopwatch watch;
    apps::mapped_file tiles;
    if (status s = image.extend(); !s) return s;
    if (status s = tiles.open(job.tiles.file.path, job.tiles.file_bytes()); !s) return s;
    const tile_range range = left_tiles(job);
    std::byte *own_tiles = nullptr, *own_image = nullptr;
    if (status s =
            job.left_maker->take(range.bytes, 2 * std::uint64_t{job.split} * job.tiles.image_height,
                                 own_tiles, own_image);
        !s)
        return s;
    out.map = watch.lap();
    if (status s = job.left_maker->bring(job.tiles, range.offset, range.bytes, own_tiles); !s)
        return s;
    out.input = watch.lap();
    auto* const own_pixels = reinterpret_cast<std::uint16_t*>(own_image);
    if (status s = make_both(job,
                             {tiles_at(job, own_tiles, range.first),
                              {own_pixels, job.split},
                              &job.left,
                              job.convolutions},
                             on_host(job, tiles, image.pixels(), job.right), out);
        !s)
        return s;
    out.compute = watch.lap();
    if (job.split != 0)
        if (status s = job.left_maker->send(
                {own_pixels, job.split, job.tiles.image_height, job.tiles.image_width}, image);
            !s)
            return s;
    out.merge = watch.lap();
    job.left_maker->drop();
    image.unmap();
    out.end = watch.lap();
    return {};
}

// Tiles and image as regions: the left part is made from the one and into the other by plain
// pointers, while threads store the right part to a mapping of the same file. Where the line cuts a
// page both change it at the same time, and the release brings together what each has made.

namespace {

struct regions {
    std::unique_ptr<file_region> tiles, image;
};

status failed(std::int64_t code, const std::string& step) {
    return {static_cast<int>(code), "--method penstock: " + step + ": " + error_text(code) +
                                        "; nothing was written, make room and run again"};
}

status close_all(regions& of) {
    if (of.image == nullptr) return {};
    if (const int code = of.image->close(); code != 0)
        return failed(code, "closing the region of the image");
    if (const int code = of.tiles->close(); code != 0)
        return failed(code, "closing the region of the tiles");
    return {};
}

}  // namespace

status with_penstock(const stitch_job& job, image_file& image, phases& out) {
    apps::stopwatch watch;
    apps::mapped_file tiles;
    regions open;
    if (status s = image.extend(); !s) return s;
    if (status s = tiles.open(job.tiles.file.path, job.tiles.file_bytes()); !s) return s;
    // Whole pages only since no thread stores to the image while the release reads and writes them
    // (docs/apps/stitch.md).
    const region_options settings{.outside_writers = !job.whole_pages};
    if (!job.left.empty())
        if (status s = map_region(*job.rt, image.path(), 0, 0, protection::read_write, settings,
                                  open.image);
            !s)
            return s;
    out.map = watch.lap();
    const tile_range range = left_tiles(job);
    if (range.bytes != 0)
        if (status s = map_region(*job.rt, job.tiles.file.path, range.offset, range.bytes,
                                  protection::read, {}, open.tiles);
            !s)
            return s;
    out.input = watch.lap();
    part_work left{{}, {}, &job.left, job.convolutions};
    if (!job.left.empty()) {
        left.tiles = tiles_at(job, open.tiles->data(), range.first);
        left.image = {reinterpret_cast<std::uint16_t*>(static_cast<std::byte*>(open.image->data()) +
                                                       image_header_bytes),
                      job.tiles.image_width};
    }
    if (status s = make_both(job, left, on_host(job, tiles, image.pixels(), job.right), out); !s)
        return s;
    out.compute = watch.lap();
    if (open.image != nullptr) {
        if (const std::int64_t code = open.image->release(); code < 0)
            return failed(code, "releasing the region of the image");
        const region_traffic moved = open.image->traffic();
        out.bytes_released = moved.bytes_written;
        out.pages_released = moved.pages_released;
        out.pages_fetched = moved.pages_fetched;
    }
    out.merge = watch.lap();
    if (status s = close_all(open); !s) return s;
    image.unmap();
    out.end = watch.lap();
    return {};
}

status with_cpu(const stitch_job& job, image_file& image, phases& out) {
    apps::stopwatch watch;
    apps::mapped_file tiles;
    if (status s = image.extend(); !s) return s;
    if (status s = tiles.open(job.tiles.file.path, job.tiles.file_bytes()); !s) return s;
    out.map = watch.lap();
    if (status s = make_on_threads(on_host(job, tiles, image.pixels(), job.all), job.all_threads);
        !s)
        return s;
    out.compute = out.right = watch.lap();
    image.unmap();
    out.end = watch.lap();
    return {};
}

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
    if (status s = job.left_maker->bring(job.tiles, offset, bytes, own_tiles); !s) return s;
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
