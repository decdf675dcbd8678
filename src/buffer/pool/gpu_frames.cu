// Frames in the memory of a GPU. Each queue has a stream, and a list of moves that the kernel reads
// from the host's memory.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "buffer/pool/device_frames.hpp"
#include "buffer/pool/gpu_hashes.cuh"
#include "device/gpu_context.cuh"
#include "penstock/group/gpu_groups.cuh"

namespace penstock::buffer {

namespace {

constexpr unsigned threads_of_block = 64, warps_of_block = threads_of_block / 32;
constexpr auto longest_look = std::chrono::microseconds(
    400);  // for the end of a batch; then the thread sleeps, if the program has told the driver so

struct frames_on_device {
    std::byte *host, *device;
    std::uint64_t frame_bytes;
    std::uint32_t count;  // of what the call is about
};

__global__ void __launch_bounds__(threads_of_block)
    move_pages(frames_on_device f, const frame_move* moves) {
    const std::uint32_t i = (blockIdx.x * threads_of_block + threadIdx.x) / 32;
    if (i >= f.count) return;
    const frame_move m = moves[i];
    move_page(warp{}, f.host + m.host * f.frame_bytes, f.device + m.device * f.frame_bytes,
              f.frame_bytes, m.way);
}

// A pair a warp.
__global__ void __launch_bounds__(threads_of_block)
    compare_frames(frames_on_device f, const frame_pair* pairs, std::uint8_t* equal) {
    const std::uint32_t i = (blockIdx.x * threads_of_block + threadIdx.x) / 32;
    if (i >= f.count) return;
    const auto* const far = reinterpret_cast<const uint4*>(f.host + pairs[i].host * f.frame_bytes);
    const auto* const near =
        reinterpret_cast<const uint4*>(f.device + pairs[i].device * f.frame_bytes);
    bool same = true;
    for (std::uint64_t at = threadIdx.x % 32; at < f.frame_bytes / sizeof(uint4); at += 32) {
        const uint4 a = far[at], b = near[at];
        same = same && a.x == b.x && a.y == b.y && a.z == b.z && a.w == b.w;
    }
    same = __all_sync(0xffffffffu, same) != 0;
    if (threadIdx.x % 32 == 0) equal[i] = same ? 1 : 0;
}

// What the host tells a kernel and what it answers: pinned.
struct queue_room {
    cudaStream_t stream = nullptr;
    bool moving = false;  // a batch was begun, and no thread has waited for it
    frame_move* moves = nullptr;
    frame_pair* pairs = nullptr;
    std::uint8_t* equal = nullptr;
    std::uint32_t* which = nullptr;
    content_hash* hashes = nullptr;
};

class gpu_frames final : public device_frames {
public:
    gpu_frames(const host::gpu_context& context, const frames_shape& shape)
        : context_(context), shape_(shape), memory_(context.device) {}
    ~gpu_frames() override {
        const host::device_guard guard(context_);
        if (!guard) return;
        if (copying_ != nullptr) cudaStreamDestroy(copying_);
        for (const queue_room& room : rooms_)
            if (room.stream != nullptr) {
                cudaStreamSynchronize(room.stream);
                cudaStreamDestroy(room.stream);
            }
    }

    bool take(std::string& why) {
        const host::device_guard guard(context_);
        why = "the device was reset";
        if (!guard) return false;
        // A kernel's code is loaded at its first launch, which would wait for kernels that run.
        cudaFuncAttributes attributes;
        cudaError_t code = cudaFuncGetAttributes(&attributes, move_pages);
        if (code == cudaSuccess) code = cudaFuncGetAttributes(&attributes, compare_frames);
        if (code == cudaSuccess) code = load_hash_kernels();
        if (code != cudaSuccess)
            return refused(why, "the kernels of the buffer could not be loaded: ", code);
        host_ =
            static_cast<std::byte*>(memory_.shared_bytes(shape_.host_frames * shape_.frame_bytes));
        if (host_ == nullptr)
            return refused(why, std::to_string(shape_.host_frames) + " pinned frames");
        device_frames_ = static_cast<std::byte*>(memory_.device_bytes(
            std::max<std::uint64_t>(shape_.device_frames, 1) * shape_.frame_bytes));
        if (device_frames_ == nullptr)
            return refused(why, std::to_string(shape_.device_frames) + " frames of " +
                                    std::to_string(shape_.frame_bytes) + " bytes");
        code = cudaStreamCreateWithFlags(&copying_, cudaStreamNonBlocking);
        if (code != cudaSuccess)
            return refused(why, "a stream for copying pages was refused: ", code);
        rooms_.resize(shape_.queues);
        for (queue_room& room : rooms_) {
            code = cudaStreamCreateWithFlags(&room.stream, cudaStreamNonBlocking);
            if (code != cudaSuccess)
                return refused(why, "a stream for moving pages was refused: ", code);
            if (!share(room.moves) || !share(room.pairs) || !share(room.equal) ||
                !share(room.which) || !share(room.hashes))
                return refused(why, "moving pages");
        }
        return true;
    }

    // After take() failed: for lack of memory?
    [[nodiscard]] bool is_short() const { return is_short_; }
    [[nodiscard]] std::byte* host_frames() const override { return host_; }

    int begin(unsigned queue, const std::vector<frame_move>& batch) override {
        if (queue >= rooms_.size() || !are_frames_of(shape_, batch)) return -EINVAL;
        if (batch.empty()) return 0;
        if (const int code = end(queue); code != 0)
            return code;  // the list of moves is the queue's
        const host::device_guard guard(context_);
        if (!guard) return host::context_is_gone;
        queue_room& room = rooms_[queue];
        std::copy(batch.begin(), batch.end(), room.moves);
        const cudaError_t code =
            host::launch_kernel(move_pages, blocks_for(batch.size()), threads_of_block, room.stream,
                                of(batch.size()), room.moves);
        room.moving = true;
        return host::errno_of(code);
    }
    int end(unsigned queue) override {
        if (queue >= rooms_.size()) return -EINVAL;
        queue_room& room = rooms_[queue];
        if (!std::exchange(room.moving, false)) return 0;
        const host::device_guard guard(context_);
        return guard ? end_of(room.stream, cudaSuccess) : host::context_is_gone;
    }

    // The host's frames are pinned, so each is a copy of the copy engines.
    int copy_out(const std::vector<frame_move>& batch) override {
        const host::device_guard guard(context_);
        if (!guard) return host::context_is_gone;
        cudaError_t code = cudaSuccess;
        for (const frame_move& moved : batch)
            if (code == cudaSuccess)
                code = cudaMemcpyAsync(host_ + moved.host * shape_.frame_bytes,
                                       device_frames_ + moved.device * shape_.frame_bytes,
                                       shape_.frame_bytes, cudaMemcpyDeviceToHost, copying_);
        // Those that were begun write to frames of the host, whatever became of the others.
        const int ended = end_of(copying_, cudaSuccess);
        return code != cudaSuccess ? host::errno_of(code) : ended;
    }

    int compare(unsigned queue, const std::vector<frame_pair>& pairs,
                std::vector<std::uint8_t>& equal) override {
        if (queue >= rooms_.size() || !are_frames_of(shape_, pairs)) return -EINVAL;
        equal.resize(pairs.size());
        if (pairs.empty()) return 0;
        const host::device_guard guard(context_);
        if (!guard) return host::context_is_gone;
        const queue_room& room = rooms_[queue];
        std::copy(pairs.begin(), pairs.end(), room.pairs);
        const cudaError_t launched =
            host::launch_kernel(compare_frames, blocks_for(pairs.size()), threads_of_block,
                                room.stream, of(pairs.size()), room.pairs, room.equal);
        const int code = end_of(room.stream, launched);
        std::copy_n(room.equal, pairs.size(), equal.begin());
        return code;
    }

    int hash(unsigned queue, signature_kind kind, const std::vector<std::uint32_t>& host,
             std::vector<content_hash>& out) override {
        if (queue >= rooms_.size() || !are_frames_of(shape_, host)) return -EINVAL;
        out.resize(host.size());
        if (host.empty()) return 0;
        const host::device_guard guard(context_);
        if (!guard) return host::context_is_gone;
        const queue_room& room = rooms_[queue];
        std::copy(host.begin(), host.end(), room.which);
        const int code =
            end_of(room.stream, hash_blocks(kind, host_, host.size(), shape_.frame_bytes,
                                            room.hashes, room.stream, room.which));
        std::copy_n(room.hashes, host.size(), out.begin());
        return code;
    }

private:
    template <typename T>
    bool share(T*& array) {
        array = static_cast<T*>(memory_.shared_bytes(shape_.most_moves * sizeof(T)));
        return array != nullptr;
    }
    [[nodiscard]] frames_on_device of(std::size_t count) const {
        return {host_, device_frames_, shape_.frame_bytes, static_cast<std::uint32_t>(count)};
    }
    static unsigned blocks_for(std::size_t warps) {
        return static_cast<unsigned>((warps + warps_of_block - 1) / warps_of_block);
    }

    bool refused(std::string& why, const std::string& message, cudaError_t code) {
        is_short_ = host::is_shortage(code);
        why = message + host::cuda_text(code) + "; of the device " + host::room_text();
        return false;
    }
    bool refused(std::string& why, const std::string& purpose) {
        is_short_ = true;
        why = "for " + purpose + ", " + memory_.shortage();
        return false;
    }

    static int end_of(cudaStream_t stream, cudaError_t code) {
        // A thread that sleeps until it is told takes longer to wake up than a batch takes.
        if (code == cudaSuccess) code = cudaStreamQuery(stream);
        for (const auto begun = std::chrono::steady_clock::now(); code == cudaErrorNotReady;)
            code = std::chrono::steady_clock::now() - begun < longest_look
                       ? cudaStreamQuery(stream)
                       : cudaStreamSynchronize(stream);
        return host::errno_of(code);
    }

    const host::gpu_context context_;
    const frames_shape shape_;
    host::gpu_memory memory_;
    std::byte *host_ = nullptr, *device_frames_ = nullptr;
    std::vector<queue_room> rooms_;
    cudaStream_t copying_ = nullptr;  // copy_out's
    bool is_short_ = false;
};

}  // namespace

std::unique_ptr<device_frames> make_gpu_frames(int device, const frames_shape& shape,
                                               std::string& why, bool* short_of_memory) {
    bool is_short = false;
    const host::gpu_context context = host::gpu_context::of(device, why, is_short);
    std::unique_ptr<gpu_frames> out;
    if (context.handle != nullptr) out = std::make_unique<gpu_frames>(context, shape);
    const bool all = out != nullptr && shape.host_frames != 0 && out->take(why);
    if (short_of_memory != nullptr)
        *short_of_memory = is_short || (out != nullptr && out->is_short());
    return all ? std::move(out) : nullptr;
}

}  // namespace penstock::buffer
