// Baseline: managed memory of CUDA. Both processors write one buffer at the same time, and pages
// that both have parts of move between them.
#include <cerrno>

#include "methods.hpp"

#if defined(__CUDACC__)
#include "common/gpu.cuh"
#include "common/process.hpp"
#include "common/threads.hpp"
#include "common/files.hpp"
#endif

namespace penstock::stitch {

#if defined(__CUDACC__)

namespace {

constexpr std::uint64_t managed_copy_bytes = 4u << 20;
constexpr std::uint64_t spare_bytes = 1ull << 30;

std::uint64_t image_bytes(const stitch_job& job) {
    return 2 * std::uint64_t{job.tiles.image_width} * job.tiles.image_height;
}

status managed_failed(cudaError_t code, const char* step) {
    cudaGetLastError();
    return {code == cudaErrorMemoryAllocation ? -ENOMEM : -EIO,
            std::string("--method managed: ") + step + ": " + cudaGetErrorString(code) +
                "; is the GPU in order?"};
}

struct managed_memory {
    std::byte *tiles = nullptr, *image = nullptr;
    managed_memory() = default;
    managed_memory(const managed_memory&) = delete;
    managed_memory& operator=(const managed_memory&) = delete;
    ~managed_memory() { drop(); }
    void drop() {
        cudaFree(tiles);
        cudaFree(image);
        tiles = image = nullptr;
    }
};

status write_image(const stitch_job& job, const std::byte* from, const image_file& image) {
    return apps::on_pieces(job.all_threads, image_bytes(job), managed_copy_bytes,
                           [&](std::uint32_t, std::uint64_t at, std::uint64_t count) {
                               return image.write_at(from + at, count, image_header_bytes + at);
                           });
}

}  // namespace

status check_managed(const stitch_job& job) {
    if (job.rt == nullptr || job.rt->where() != backend::gpu)
        return {-ENODEV, "--method managed: needs a GPU; use --method penstock, private or cpu"};
    const int device = job.rt->settings().device;
    int concurrent = 0;
    if (cudaSetDevice(device) != cudaSuccess ||
        cudaDeviceGetAttribute(&concurrent, cudaDevAttrConcurrentManagedAccess, device) !=
            cudaSuccess ||
        concurrent == 0) {
        cudaGetLastError();
        return {-ENODEV,
                "--method managed: this GPU and the CPU cannot use managed memory at the same "
                "time; use --method penstock, private or cpu"};
    }
    std::size_t free = 0, total = 0;
    const std::uint64_t needed = left_tiles(job).bytes + image_bytes(job) + spare_bytes;
    if (const cudaError_t code = cudaMemGetInfo(&free, &total); code != cudaSuccess)
        return managed_failed(code, "asking for free memory");
    if (needed <= free) return {};
    return {-ENOMEM, "--method managed: needs " + format_size(needed) +
                         " of the GPU's memory, of which " + format_size(free) +
                         " are free; use fewer tiles or a smaller --split"};
}

status with_managed(const stitch_job& job, image_file& image, phases& out) {
    if (status s = check_managed(job); !s) return s;
    const int device = job.rt->settings().device;
    const tile_range range = left_tiles(job);
    apps::stopwatch watch;
    apps::mapped_file tiles;
    managed_memory memory;
    if (status s = image.extend(); !s) return s;
    if (status s = tiles.open(job.tiles.file.path, job.tiles.file_bytes()); !s) return s;
    cudaError_t code = cudaMallocManaged(&memory.image, image_bytes(job));
    if (code == cudaSuccess && range.bytes != 0)
        code = cudaMallocManaged(&memory.tiles, range.bytes);
    if (code == cudaSuccess) code = cudaMemset(memory.image, 0, image_bytes(job));
    if (code == cudaSuccess) code = cudaDeviceSynchronize();
    if (code != cudaSuccess) return managed_failed(code, "allocating");
    out.map = watch.lap();
    if (status s = read_tiles(job.tiles, range.offset, range.bytes, memory.tiles, job.all_threads);
        !s)
        return s;
    if (range.bytes != 0) code = apps::prefetch(memory.tiles, range.bytes, false, device);
    if (code != cudaSuccess) return managed_failed(code, "bringing the tiles to the GPU");
    out.input = watch.lap();
    const image_in_memory both{reinterpret_cast<std::uint16_t*>(memory.image),
                               job.tiles.image_width};
    if (status s = make_both(
            job, {tiles_at(job, memory.tiles, range.first), both, &job.left, job.convolutions},
            on_host(job, tiles, both.pixels, job.right), out);
        !s)
        return s;
    out.compute = watch.lap();
    code = apps::prefetch(memory.image, image_bytes(job), true, device);
    if (code != cudaSuccess) return managed_failed(code, "bringing the image to the host");
    if (status s = write_image(job, memory.image, image); !s) return s;
    out.merge = watch.lap();
    memory.drop();
    image.unmap();
    out.end = watch.lap();
    return {};
}

#else

status check_managed(const stitch_job&) {
    return {-ENODEV,
            "--method managed: this program was built without CUDA; use --method penstock, private "
            "or cpu"};
}
status with_managed(const stitch_job& job, image_file&, phases&) { return check_managed(job); }

#endif

}  // namespace penstock::stitch
