// The left part by a GPU.
#include "part_maker.hpp"

#if defined(__CUDACC__)
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include "common/device_memory.hpp"
#include "common/gpu.cuh"
#include "common/message.hpp"
#include "common/process.hpp"
#include "common/threads.hpp"
#include "common/files.hpp"
#include "penstock/runtime.hpp"
#include "sharpen_kernel.cuh"
#endif

namespace penstock::stitch {

#if defined(__CUDACC__)

namespace {

constexpr std::uint64_t copy_bytes = 4u << 20;  // at a time, by each thread
static_assert(2 * std::uint64_t{most_image_side} <= copy_bytes, "a row goes in one piece");
constexpr std::uint64_t launch_pieces = 8192;  // then an interrupt is looked for

status cuda_failed(cudaError_t code, const char* step) {
    cudaGetLastError();
    return {code == cudaErrorMemoryAllocation ? -ENOMEM : -EIO,
            std::string(step) + ": " + cudaGetErrorString(code) +
                (code == cudaErrorMemoryAllocation ? "; use a smaller --split"
                                                   : "; is the GPU in order?")};
}

// What a launch or a copying thread has. Waiting by the event leaves the core to others.
struct lane_of_copies {
    apps::gpu_stream stream;
    apps::gpu_event done;
    apps::pinned_array<std::byte> pinned;

    cudaError_t make() {
        if (stream != nullptr) return cudaSuccess;
        const cudaError_t code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        return code == cudaSuccess
                   ? cudaEventCreateWithFlags(&done, cudaEventDisableTiming | cudaEventBlockingSync)
                   : code;
    }
    cudaError_t make_room() {
        const cudaError_t code = make();
        return code == cudaSuccess && pinned == nullptr ? cudaMallocHost(&pinned, copy_bytes)
                                                        : code;
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
        if (const cudaError_t code = cudaSetDevice(device_); code != cudaSuccess)
            return cuda_failed(code, "the GPU");
        std::uint32_t side = 0;
        if (const cudaError_t code = choose_side(work.convolutions, side); code != cudaSuccess)
            return cuda_failed(code, "shared memory of the GPU");
        const std::vector<piece> pieces = cut(*work.pieces, side, side);
        if (pieces.empty()) return {};
        apps::gpu_array<piece> on;
        cudaError_t code = launch_.make();
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
        if (code != cudaSuccess) return cuda_failed(code, "the kernel");
        return apps::not_interrupted();
    }

    status take(std::uint64_t tile_bytes, std::uint64_t image_bytes, std::byte*& tiles,
                std::byte*& image) override {
        if (const cudaError_t code = cudaSetDevice(device_); code != cudaSuccess)
            return cuda_failed(code, "the GPU");
        memory_ = apps::make_gpu_memory(device_);
        if (!memory_->allocate(tiles, tile_bytes) || !memory_->allocate(image, image_bytes)) {
            drop();
            return {-ENOMEM, format_size(tile_bytes + image_bytes) +
                                 " of the GPU's memory for tiles and image are not free; use a "
                                 "smaller --split or fewer tiles"};
        }
        for (lane_of_copies& copies : lanes_)
            if (const cudaError_t code = copies.make_room(); code != cudaSuccess)
                return cuda_failed(code, "memory to copy through");
        // The zeros are there before copies on other streams.
        const cudaError_t code = cudaDeviceSynchronize();
        return code == cudaSuccess ? status{} : cuda_failed(code, "clearing memory of the GPU");
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
        return for_steps(
            bytes, copy_bytes,
            [&](lane_of_copies& my, std::uint64_t at, std::uint64_t count) -> status {
                if (status s = apps::read_exactly(path, fd, my.pinned, count, offset + at); !s)
                    return s;
                cudaError_t code =
                    cudaMemcpyAsync(to + at, my.pinned, count, cudaMemcpyHostToDevice, my.stream);
                if (code == cudaSuccess) code = my.wait();
                return code == cudaSuccess ? status{}
                                           : cuda_failed(code, "copying tiles to the GPU");
            });
    }

    status send(const rows_in_memory& rows, const image_file& to) override {
        const std::uint64_t row_bytes = 2 * std::uint64_t{rows.width},
                            at_once = std::max<std::uint64_t>(copy_bytes / row_bytes, 1);
        return for_steps(
            rows.height, at_once,
            [&](lane_of_copies& my, std::uint64_t first, std::uint64_t count) -> status {
                cudaError_t code =
                    cudaMemcpyAsync(my.pinned, rows.pixels + first * rows.width, count * row_bytes,
                                    cudaMemcpyDeviceToHost, my.stream);
                if (code == cudaSuccess) code = my.wait();
                if (code != cudaSuccess) return cuda_failed(code, "copying rows from the GPU");
                for (std::uint64_t i = 0; i < count; ++i)
                    if (status s = to.write_at(my.pinned + i * row_bytes, row_bytes,
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

    template <typename Action>
    status for_steps(std::uint64_t whole, std::uint64_t step, const Action& action) {
        apps::first_error errors;
        std::atomic<std::uint64_t> next{0};
        apps::on_threads(static_cast<std::uint32_t>(lanes_.size()), [&](std::uint32_t thread) {
            if (const cudaError_t code = cudaSetDevice(device_); code != cudaSuccess)
                errors.note(cuda_failed(code, "the GPU"));
            for (std::uint64_t at = next.fetch_add(step); at < whole && !errors.stop();
                 at = next.fetch_add(step))
                errors.note(action(lanes_[thread], at, std::min(step, whole - at)));
        });
        return errors.get();
    }

    const int device_;
    lane_of_copies launch_;
    std::vector<lane_of_copies> lanes_;
    std::unique_ptr<apps::device_memory> memory_;
};

}  // namespace

std::unique_ptr<part_maker> make_gpu_maker(int device, std::uint32_t copiers) {
    return std::make_unique<gpu_maker>(device, copiers);
}

#else

std::unique_ptr<part_maker> make_gpu_maker(int, std::uint32_t) { return nullptr; }

#endif

}  // namespace penstock::stitch
