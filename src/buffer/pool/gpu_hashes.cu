#include "buffer/pool/gpu_hashes.cuh"

#include <algorithm>

#include "device/gpu_context.cuh"

namespace penstock::buffer {

namespace {

constexpr unsigned hashing_threads = 256, hashing_warps = hashing_threads / 32;
constexpr std::uint64_t most_thread_blocks = 1u << 16;

__device__ std::uint64_t number_of_warp() {
    return (std::uint64_t{blockIdx.x} * hashing_threads + threadIdx.x) / 32;
}
__device__ std::uint64_t number_of_warps() { return std::uint64_t{gridDim.x} * hashing_warps; }

__device__ std::uint64_t sum_of_warp(std::uint64_t value) {
    for (int other = 16; other > 0; other /= 2) value += __shfl_xor_sync(0xffffffffu, value, other);
    return value;
}

// Block i of the call: of those that lie one behind the other, or of a list of them.
__device__ const std::byte* block_at(const std::byte* blocks, const std::uint32_t* which,
                                     std::uint64_t i, std::uint64_t block_bytes) {
    return blocks + (which == nullptr ? i : which[i]) * block_bytes;
}

// A warp takes a block, a lane a strand.
__global__ void __launch_bounds__(hashing_threads)
    hash_quickly(const std::byte* blocks, const std::uint32_t* which, std::uint64_t count,
                 std::uint64_t block_bytes, content_hash* out) {
    for (std::uint64_t i = number_of_warp(); i < count; i += number_of_warps()) {
        const auto* const words =
            reinterpret_cast<const strand_word*>(block_at(blocks, which, i, block_bytes));
        content_hash part = strands_of<1>(words, block_bytes, threadIdx.x % 32);
        part = {sum_of_warp(part.low), sum_of_warp(part.high)};
        if (threadIdx.x % 32 == 0) out[i] = finished(part, block_bytes);
    }
}

// MD5 goes through a block from front to back, so a thread takes one. What 32 of them want next
// lies in 32 places: the warp fetches it together, four lanes 64 bytes of one block, and hands it
// over in shared memory. There the rows begin in different banks.
constexpr unsigned row_words = 17;
struct next_words {
    std::uint32_t of[hashing_warps][32][row_words];
};

__global__ void __launch_bounds__(hashing_threads)
    hash_by_md5(const std::byte* blocks, const std::uint32_t* which, std::uint64_t count,
                std::uint64_t block_bytes, content_hash* out) {
    __shared__ next_words next;
    auto& rows = next.of[threadIdx.x / 32];
    const unsigned lane = threadIdx.x % 32;
    for (std::uint64_t first = 32 * number_of_warp(); first < count;
         first += 32 * number_of_warps()) {
        md5_state state;
        for (std::uint64_t at = 0; at < block_bytes; at += hashed_bytes) {
            __syncwarp();  // all have used what was there
            for (unsigned row = lane / 4; row < 32; row += 8) {
                if (first + row >= count) continue;
                const uint4 part = reinterpret_cast<const uint4*>(
                    block_at(blocks, which, first + row, block_bytes) + at)[lane % 4];
                std::uint32_t* const to = &rows[row][4 * (lane % 4)];
                to[0] = part.x, to[1] = part.y, to[2] = part.z, to[3] = part.w;
            }
            __syncwarp();
            state.take(rows[lane]);
        }
        if (first + lane < count) out[first + lane] = state.end(block_bytes);
    }
}

}  // namespace

cudaError_t hash_blocks(signature_kind kind, const std::byte* blocks, std::uint64_t count,
                        std::uint64_t block_bytes, content_hash* out, cudaStream_t stream,
                        const std::uint32_t* which) {
    if (count == 0) return cudaSuccess;
    const bool quick = kind == signature_kind::quick;
    const std::uint64_t warps = quick ? count : (count + 31) / 32;
    const auto grid = static_cast<unsigned>(
        std::min((warps + hashing_warps - 1) / hashing_warps, most_thread_blocks));
    return host::launch_kernel(quick ? hash_quickly : hash_by_md5, grid, hashing_threads, stream,
                               blocks, which, count, block_bytes, out);
}

cudaError_t load_hash_kernels() {
    cudaFuncAttributes attributes;
    const cudaError_t code = cudaFuncGetAttributes(&attributes, hash_quickly);
    return code != cudaSuccess ? code : cudaFuncGetAttributes(&attributes, hash_by_md5);
}

}  // namespace penstock::buffer
