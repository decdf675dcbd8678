// Tiles and image as regions: the left part is made from the one and into the other by plain
// pointers, while threads store the right part to a mapping of the same file. Where the line cuts a
// page both change it at the same time, and the release brings together what each has made.
#include "common/stopwatch.hpp"
#include "common/files.hpp"
#include "methods.hpp"
#include "penstock/region.hpp"

namespace penstock::stitch {

namespace {

struct regions {
    std::unique_ptr<file_region> tiles, image;
};

status failed(std::int64_t code, const std::string& what) {
    return {static_cast<int>(code), "--method penstock: " + what + ": " + error_text(code) +
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
    regions mine;
    if (status s = image.extend(); !s) return s;
    if (status s = tiles.open(job.tiles.file.path, job.tiles.file_bytes()); !s) return s;
    // Whole pages only since no thread stores to the image while the release reads and writes them
    // (docs/apps/stitch.md).
    const region_options how{.outside_writers = !job.whole_pages};
    if (!job.left.empty())
        if (status s =
                map_region(*job.rt, image.path(), 0, 0, protection::read_write, how, mine.image);
            !s)
            return s;
    out.map = watch.lap();
    const tile_range range = left_tiles(job);
    if (range.bytes != 0)
        if (status s = map_region(*job.rt, job.tiles.file.path, range.offset, range.bytes,
                                  protection::read, {}, mine.tiles);
            !s)
            return s;
    out.input = watch.lap();
    part_work left{{}, {}, &job.left, job.convolutions};
    if (!job.left.empty()) {
        left.tiles = tiles_at(job, mine.tiles->data(), range.first);
        left.image = {reinterpret_cast<std::uint16_t*>(static_cast<std::byte*>(mine.image->data()) +
                                                       image_header_bytes),
                      job.tiles.image_width};
    }
    if (status s = make_both(job, left,
                             {tiles_at(job, tiles.data() + job.tiles.first_tile(), 0),
                              {image.pixels(), job.tiles.image_width},
                              &job.right,
                              job.convolutions},
                             out);
        !s)
        return s;
    out.compute = watch.lap();
    if (mine.image != nullptr) {
        if (const std::int64_t code = mine.image->release(); code < 0)
            return failed(code, "releasing the region of the image");
        const region_traffic moved = mine.image->traffic();
        out.bytes_released = moved.bytes_written;
        out.pages_released = moved.pages_released;
        out.pages_fetched = moved.pages_fetched;
    }
    out.merge = watch.lap();
    if (status s = close_all(mine); !s) return s;
    image.unmap();
    out.end = watch.lap();
    return {};
}

}  // namespace penstock::stitch
