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

namespace {

// Tiles from number `first` on, which begin at `at`.
tiles_in_memory tiles_at(const stitch_job& job, const void* at, std::uint32_t first) {
    return {static_cast<const std::uint16_t*>(at), first,
            job.tiles.tile_stride() / sizeof(std::uint16_t), job.tiles.tile_width,
            job.tiles.tile_height};
}

// Work of threads: pieces from tiles in a map of their file to an image from `pixels` on.
part_work on_host(const stitch_job& job, const apps::mapped_file& tiles, std::uint16_t* pixels,
                  const std::vector<piece>& pieces) {
    return {tiles_at(job, tiles.data() + job.tiles.first_tile(), 0),
            {pixels, job.tiles.image_width},
            &pieces,
            job.convolutions};
}

// Both parts at the same time: the left one by its maker, the right one by threads.
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

status failed(std::int64_t code, const std::string& step) {
    return {static_cast<int>(code), "--method penstock: " + step + ": " + error_text(code) +
                                        "; nothing was written, make room and run again"};
}

}  // namespace

status with_own_memory(const stitch_job& job, part_memory& memory, bool has_both, image_file& image,
                       phases& out) {
    apps::stopwatch watch;
    apps::mapped_file tiles;
    if (status s = image.extend(); !s) return s;
    if (status s = tiles.open(job.tiles.file.path, job.tiles.file_bytes()); !s) return s;
    const tile_range range = left_tiles(job);
    const std::uint32_t columns = has_both ? job.tiles.image_width : job.split,
                        rows = job.tiles.image_height;
    const std::uint64_t image_bytes = 2 * std::uint64_t{columns} * rows;
    std::byte *own_tiles = nullptr, *own_image = nullptr;
    if (status s = memory.take(range.bytes, image_bytes, own_tiles, own_image); !s) return s;
    out.map = watch.lap();
    if (status s = memory.bring(job.tiles, range.offset, range.bytes, own_tiles); !s) return s;
    out.input = watch.lap();
    auto* const own_pixels = reinterpret_cast<std::uint16_t*>(own_image);
    const part_work left{
        tiles_at(job, own_tiles, range.first), {own_pixels, columns}, &job.left, job.convolutions},
        right = on_host(job, tiles, has_both ? own_pixels : image.pixels(), job.right);
    if (status s = make_both(job, left, right, out); !s) return s;
    out.compute = watch.lap();
    if (columns != 0)
        if (status s = memory.send({own_pixels, columns, rows, job.tiles.image_width}, image); !s)
            return s;
    out.merge = watch.lap();
    memory.drop();
    image.unmap();
    out.end = watch.lap();
    return {};
}

status with_private(const stitch_job& job, image_file& image, phases& out) {
    return with_own_memory(job, *job.left_maker, false, image, out);
}

// Tiles and image as regions: the left part is made from the one and into the other by plain
// pointers, while threads store the right part to a mapping of the same file. Where the line cuts a
// page both change it at the same time, and the release brings together what each has made.
status with_penstock(const stitch_job& job, image_file& image, phases& out) {
    apps::stopwatch watch;
    apps::mapped_file tiles;
    std::unique_ptr<file_region> own_tiles, own_image;
    const bool has_left = !job.left.empty();
    if (status s = image.extend(); !s) return s;
    if (status s = tiles.open(job.tiles.file.path, job.tiles.file_bytes()); !s) return s;
    // Whole pages only since no thread stores to the image while the release reads and writes them
    // (docs/apps/stitch.md).
    const region_options settings{.outside_writers = !job.whole_pages};
    if (has_left)
        if (status s = map_region(*job.rt, image.path(), 0, 0, protection::read_write, settings,
                                  own_image);
            !s)
            return s;
    out.map = watch.lap();
    const tile_range range = left_tiles(job);
    if (has_left)
        if (status s = map_region(*job.rt, job.tiles.file.path, range.offset, range.bytes,
                                  protection::read, {}, own_tiles);
            !s)
            return s;
    out.input = watch.lap();
    part_work left{{}, {}, &job.left, job.convolutions};
    if (has_left) {
        auto* const pixels = static_cast<std::byte*>(own_image->data()) + image_header_bytes;
        left.tiles = tiles_at(job, own_tiles->data(), range.first);
        left.image = {reinterpret_cast<std::uint16_t*>(pixels), job.tiles.image_width};
    }
    if (status s = make_both(job, left, on_host(job, tiles, image.pixels(), job.right), out); !s)
        return s;
    out.compute = watch.lap();
    if (has_left) {
        if (const std::int64_t code = own_image->release(); code < 0)
            return failed(code, "releasing the region of the image");
        const region_traffic moved = own_image->traffic();
        out.bytes_released = moved.bytes_written;
        out.pages_released = moved.pages_released;
        out.pages_fetched = moved.pages_fetched;
    }
    out.merge = watch.lap();
    if (has_left) {
        if (const int code = own_image->close(); code != 0)
            return failed(code, "closing the region of the image");
        if (const int code = own_tiles->close(); code != 0)
            return failed(code, "closing the region of the tiles");
    }
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
    const part_work whole = on_host(job, tiles, image.pixels(), job.all);
    if (status s = make_on_threads(whole, job.all_threads); !s) return s;
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
    const auto work_on = [&](const void* tiles, void* image) {
        return part_work{tiles_at(job, tiles, first),
                         {static_cast<std::uint16_t*>(image), job.tiles.tile_width},
                         &pieces,
                         job.convolutions};
    };
    apps::mapped_file tiles;
    if (status s = tiles.open(job.tiles.file.path, job.tiles.file_bytes()); !s) return s;
    const std::unique_ptr<apps::device_memory> scratch = apps::make_host_memory();
    void* const image = scratch->allocate(2 * pixels);
    if (image == nullptr)
        return {-ENOMEM, format_size(2 * pixels) + " of memory are not free; give --split"};
    // Once: memory is new to the threads then, as it will be.
    watch.lap();
    if (status s = make_on_threads(work_on(tiles.data() + offset, image), job.threads); !s)
        return s;
    out.right_rate = rate_of(pixels, watch.lap());

    std::byte *own_tiles = nullptr, *own_image = nullptr;
    if (status s = job.left_maker->take(bytes, 2 * pixels, own_tiles, own_image); !s) return s;
    if (status s = job.left_maker->bring(job.tiles, offset, bytes, own_tiles); !s) return s;
    // Twice: the first launch loads the kernel.
    for (int i = 0; i < 2; ++i) {
        watch.lap();
        if (status s = job.left_maker->make(work_on(own_tiles, own_image)); !s) return s;
        out.left_rate = rate_of(pixels, watch.lap());
    }
    job.left_maker->drop();
    out.share = out.left_rate / (out.left_rate + out.right_rate);
    out.seconds = all.lap();
    return {};
}

}  // namespace penstock::stitch
