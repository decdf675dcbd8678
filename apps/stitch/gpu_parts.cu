// The left part by a GPU, and the baseline on managed memory of CUDA: both processors write one
// buffer at the same time, and pages that both have parts of move between them.
#include <algorithm>
#include <cerrno>
#include <optional>

#include "methods.hpp"
#if defined(__CUDACC__)
#include "common/device_memory.hpp"
#include "common/gpu.cuh"
#include "common/process.hpp"
#include "common/threads.hpp"
#include "sharpen_kernel.cuh"
#endif

namespace penstock::stitch {

#if defined(__CUDACC__)

namespace {

constexpr std::uint64_t copy_bytes = 4u << 20;  // at a time, by each thread
static_assert(2 * std::uint64_t{most_image_side} <= copy_bytes, "a row goes in one piece");
constexpr std::uint64_t launch_pieces = 8192;  // then an interrupt is looked for

status gpu_status(cudaError_t code, const char* step) {
    return apps::cuda_status(code, step, "use a smaller --split");
}

// What a launch or a copying thread has. Waiting by the event leaves the core to others.
struct lane_of_copies {
    apps::gpu_stream stream;
    apps::gpu_event done;
    apps::pinned_array<std::byte> pinned;

    // `room`: bytes to copy through.
    cudaError_t make(std::uint64_t room) {
        cudaError_t code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        if (code == cudaSuccess)
            code = cudaEventCreateWithFlags(&done, cudaEventDisableTiming | cudaEventBlockingSync);
        if (code == cudaSuccess && room != 0) code = cudaMallocHost(&pinned, room);
        return code;
    }
    cudaError_t wait() const {
        const cudaError_t code = cudaEventRecord(done, stream);
        return code == cudaSuccess ? cudaEventSynchronize(done) : code;
    }
};

class gpu_maker final : public part_maker {
public:
    gpu_maker(int device, std::uint32_t copiers) : device_(device), lanes_(copiers) {}
    ~gpu_maker() override { cudaSetDevice(device_); }

    status make(const part_work& work) override {
        if (status s = gpu_status(cudaSetDevice(device_), "the GPU"); !s) return s;
        std::uint32_t side = 0;
        cudaError_t code = choose_side(work.convolutions, side);
        if (code != cudaSuccess) return gpu_status(code, "shared memory of the GPU");
        const std::vector<piece> pieces = cut(*work.pieces, side, side);
        if (pieces.empty()) return {};
        apps::gpu_array<piece> on;
        code = launch_.stream != nullptr ? cudaSuccess : launch_.make(0);
        if (code == cudaSuccess) code = cudaMalloc(&on, pieces.size() * sizeof(piece));
        if (code == cudaSuccess)
            code = cudaMemcpyAsync(on, pieces.data(), pieces.size() * sizeof(piece),
                                   cudaMemcpyHostToDevice, launch_.stream);
        const auto shared = static_cast<std::size_t>(shared_bytes_for(side, work.convolutions));
        for (std::uint64_t first = 0;
             first < pieces.size() && code == cudaSuccess && !was_interrupted();
             first += launch_pieces) {
            const auto count = static_cast<unsigned>(
                std::min<std::uint64_t>(launch_pieces, pieces.size() - first));
            // The event lies before the last launch, so this waits for the one before that: two are
            // under way at most.
            if (first != 0) code = cudaEventSynchronize(launch_.done);
            if (code == cudaSuccess) code = cudaEventRecord(launch_.done, launch_.stream);
            if (code != cudaSuccess) break;
            sharpen_pieces<<<count, kernel_threads, shared, launch_.stream>>>(
                work.tiles, work.image, on + first, work.convolutions);
            code = cudaGetLastError();
        }
        const cudaError_t ran = launch_.wait();
        if (code == cudaSuccess) code = ran;
        return code == cudaSuccess ? apps::not_interrupted() : gpu_status(code, "the kernel");
    }

    status take(std::uint64_t tile_bytes, std::uint64_t image_bytes, std::byte*& tiles,
                std::byte*& image) override {
        if (status s = gpu_status(cudaSetDevice(device_), "the GPU"); !s) return s;
        memory_ = apps::make_gpu_memory(device_);
        if (!memory_->allocate(tiles, tile_bytes) || !memory_->allocate(image, image_bytes)) {
            drop();
            return {-ENOMEM, format_size(tile_bytes + image_bytes) +
                                 " of the GPU's memory for tiles and image are not free; use a "
                                 "smaller --split or fewer tiles"};
        }
        for (lane_of_copies& copies : lanes_)
            if (status s = gpu_status(copies.make(copy_bytes), "memory to copy through"); !s)
                return s;
        // The zeros are there before copies on other streams.
        return gpu_status(cudaDeviceSynchronize(), "clearing memory of the GPU");
    }
    void drop() override {
        memory_.reset();
        lanes_ = std::vector<lane_of_copies>(lanes_.size());
    }

    status bring(const tile_set& tiles, std::uint64_t offset, std::uint64_t bytes,
                 std::byte* to) override {
        const std::string& path = tiles.file.path;
        apps::unique_fd fd;
        if (status s = apps::open_to_read(path, "a file of tiles", fd); !s) return s;
        return on_lanes(
            bytes, copy_bytes,
            [&](lane_of_copies& own, std::uint64_t at, std::uint64_t count) -> status {
                if (status s = apps::read_exactly(path, fd, own.pinned, count, offset + at); !s)
                    return s;
                cudaError_t code =
                    cudaMemcpyAsync(to + at, own.pinned, count, cudaMemcpyHostToDevice, own.stream);
                if (code == cudaSuccess) code = own.wait();
                return gpu_status(code, "copying tiles to the GPU");
            });
    }

    status send(const rows_in_memory& rows, const image_file& to) override {
        const std::uint64_t row_bytes = 2 * std::uint64_t{rows.width},
                            at_once = std::max<std::uint64_t>(copy_bytes / row_bytes, 1);
        return on_lanes(
            rows.height, at_once,
            [&](lane_of_copies& own, std::uint64_t first, std::uint64_t count) -> status {
                cudaError_t code =
                    cudaMemcpyAsync(own.pinned, rows.pixels + first * rows.width, count * row_bytes,
                                    cudaMemcpyDeviceToHost, own.stream);
                if (code == cudaSuccess) code = own.wait();
                if (code != cudaSuccess) return gpu_status(code, "copying rows from the GPU");
                for (std::uint64_t i = 0; i < count; ++i)
                    if (status s = to.write_at(own.pinned + i * row_bytes, row_bytes,
                                               image_header_bytes + 2 * (first + i) * rows.stride);
                        !s)
                        return s;
                return {};
            });
    }

private:
    // Larger pieces have less margin; small ones start more quickly where there is little to
    // compute.
    cudaError_t choose_side(std::uint32_t convolutions, std::uint32_t& side) const {
        int most = 0;
        cudaError_t code =
            cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device_);
        if (code != cudaSuccess) return code;
        side = convolutions <= 4 ? 64 : 128;
        while (side > 8 && shared_bytes_for(side, convolutions) > static_cast<std::uint64_t>(most))
            side /= 2;
        return cudaFuncSetAttribute(sharpen_pieces, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared_bytes_for(side, convolutions)));
    }

    // action(lane, first, count): a status.
    template <typename Action>
    status on_lanes(std::uint64_t whole, std::uint64_t step, const Action& action) {
        return apps::on_pieces(
            static_cast<std::uint32_t>(lanes_.size()), whole, step,
            [&](std::uint32_t thread, std::uint64_t first, std::uint64_t count) -> status {
                // A new thread begins with device 0.
                if (status s = gpu_status(cudaSetDevice(device_), "the GPU"); !s) return s;
                return action(lanes_[thread], first, count);
            });
    }

    const int device_;
    lane_of_copies launch_;
    std::vector<lane_of_copies> lanes_;
    std::unique_ptr<apps::device_memory> memory_;
};

constexpr std::uint64_t spare_bytes = 1ull << 30;

// The pixels of both parts.
class managed_memory final : public part_memory {
public:
    managed_memory(int device, std::uint32_t copiers) : device_(device), copiers_(copiers) {}

    status take(std::uint64_t tile_bytes, std::uint64_t image_bytes, std::byte*& tiles,
                std::byte*& image) override {
        owned_.emplace();
        cudaError_t code = cudaMallocManaged(&owned_->image, image_bytes);
        if (code == cudaSuccess && tile_bytes != 0)
            code = cudaMallocManaged(&owned_->tiles, tile_bytes);
        image = owned_->image;
        tiles = owned_->tiles;
        if (code == cudaSuccess) code = cudaMemset(image, 0, image_bytes);
        if (code == cudaSuccess) code = cudaDeviceSynchronize();
        return apps::cuda_status(code, "--method managed: allocating");
    }
    void drop() override { owned_.reset(); }
    status bring(const tile_set& tiles, std::uint64_t offset, std::uint64_t bytes,
                 std::byte* to) override {
        if (status s = read_tiles(tiles, offset, bytes, to, copiers_); !s) return s;
        return apps::cuda_status(
            bytes == 0 ? cudaSuccess : apps::prefetch(to, bytes, false, device_),
            "--method managed: bringing the tiles to the GPU");
    }
    // As wide as the image.
    status send(const rows_in_memory& rows, const image_file& to) override {
        const std::uint64_t bytes = 2 * std::uint64_t{rows.width} * rows.height;
        const auto* const from = reinterpret_cast<const std::byte*>(rows.pixels);
        if (status s = apps::cuda_status(apps::prefetch(from, bytes, true, device_),
                                         "--method managed: bringing the image to the host");
            !s)
            return s;
        return apps::on_pieces(copiers_, bytes, copy_bytes,
                               [&](std::uint32_t, std::uint64_t at, std::uint64_t count) {
                                   return to.write_at(from + at, count, image_header_bytes + at);
                               });
    }

private:
    struct arrays {
        apps::gpu_array<std::byte> tiles, image;
    };
    const int device_;
    const std::uint32_t copiers_;
    std::optional<arrays> owned_;
};

}  // namespace

std::unique_ptr<part_maker> make_gpu_maker(int device, std::uint32_t copiers) {
    return std::make_unique<gpu_maker>(device, copiers);
}

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
    const std::uint64_t needed = left_tiles(job).bytes +
                                 2 * std::uint64_t{job.tiles.image_width} * job.tiles.image_height +
                                 spare_bytes;
    if (const cudaError_t code = cudaMemGetInfo(&free, &total); code != cudaSuccess)
        return apps::cuda_status(code, "--method managed: asking for free memory");
    if (needed <= free) return {};
    return {-ENOMEM, "--method managed: needs " + format_size(needed) +
                         " of the GPU's memory, of which " + format_size(free) +
                         " are free; use fewer tiles or a smaller --split"};
}

status with_managed(const stitch_job& job, image_file& image, phases& out) {
    if (status s = check_managed(job); !s) return s;
    managed_memory memory(job.rt->settings().device, job.all_threads);
    return with_own_memory(job, memory, true, image, out);
}

#else

std::unique_ptr<part_maker> make_gpu_maker(int, std::uint32_t) { return nullptr; }

status check_managed(const stitch_job&) {
    return {-ENODEV,
            "--method managed: this program was built without CUDA; use --method penstock, private "
            "or cpu"};
}
status with_managed(const stitch_job& job, image_file&, phases&) { return check_managed(job); }

#endif

}  // namespace penstock::stitch
