#include "methods.hpp"

#include <algorithm>
#include <thread>

#include "common/stopwatch.hpp"
#include "common/threads.hpp"
#include "common/whole_file.hpp"

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
    if (status s = job.left_maker->bring(job.tiles.file.path, range.offset, range.bytes, own_tiles);
        !s)
        return s;
    out.input = watch.lap();
    auto* const own_pixels = reinterpret_cast<std::uint16_t*>(own_image);
    if (status s = make_both(job,
                             {tiles_at(job, own_tiles, range.first),
                              {own_pixels, job.split},
                              &job.left,
                              job.convolutions},
                             {tiles_at(job, tiles.data() + job.tiles.first_tile(), 0),
                              {image.pixels(), job.tiles.image_width},
                              &job.right,
                              job.convolutions},
                             out);
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

status with_cpu(const stitch_job& job, image_file& image, phases& out) {
    apps::stopwatch watch;
    apps::mapped_file tiles;
    if (status s = image.extend(); !s) return s;
    if (status s = tiles.open(job.tiles.file.path, job.tiles.file_bytes()); !s) return s;
    out.map = watch.lap();
    if (status s = make_on_threads({tiles_at(job, tiles.data() + job.tiles.first_tile(), 0),
                                    {image.pixels(), job.tiles.image_width},
                                    &job.all,
                                    job.convolutions},
                                   job.all_threads);
        !s)
        return s;
    out.compute = out.right = watch.lap();
    image.unmap();
    out.end = watch.lap();
    return {};
}

}  // namespace penstock::stitch
