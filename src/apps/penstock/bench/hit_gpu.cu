// Hits on a GPU, by warps: read() of random 4 KiB blocks into shared memory against the same copy from a plain array; and map,
// look, unmap against looking at plain memory.
#include "cases.hpp"
#include "gpu.cuh"
#include "penstock/launch.hpp"

namespace penstock::bench {

namespace {

constexpr std::uint32_t block_bytes = 4096;

struct look {
    template <typename Group>
    static __device__ unsigned at(const Group& g, const std::byte* data) {
        unsigned sum = 0;
        uint4 v[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) v[i] = detail::load_frame_16(data + (g.rank() + 32 * i) * 16);
#pragma unroll
        for (int i = 0; i < 8; ++i) sum += v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
        return sum;
    }
};

__device__ __forceinline__ std::uint64_t random_block(std::uint64_t warp_number, std::uint32_t i, std::uint64_t seed, std::uint64_t blocks) {
    return mix64((warp_number << 20) + i + seed * 0x9e3779b97f4a7c15ull) % blocks;
}

enum class way { copy_plain, read, look_plain, map };

template <way What>
__global__ void __launch_bounds__(256, 4) hit(const __grid_constant__ runtime_ref fs, int fd, const std::byte* plain,
                                              std::uint64_t blocks, std::uint32_t rounds, std::uint64_t seed, unsigned* failures) {
    extern __shared__ std::byte buffers[];
    const warp g;
    const std::uint64_t number = std::uint64_t{blockIdx.x} * 8 + threadIdx.x / 32;
    std::byte* const mine = buffers + (What == way::copy_plain || What == way::read ? (threadIdx.x / 32) * block_bytes : 0);
    unsigned sum = 0, failed = 0;
    for (std::uint32_t i = 0; i < rounds; ++i) {
        const std::uint64_t at = random_block(number, i, seed, blocks) * block_bytes;
        if constexpr (What == way::copy_plain) {
            g.copy_out(mine, plain + at, block_bytes);
            g.sync();
        } else if constexpr (What == way::read) {
            if (read(g, fs, fd, mine, block_bytes, static_cast<std::int64_t>(at)) != block_bytes) failed = 1;
        } else if constexpr (What == way::look_plain) {
            sum += look::at(g, plain + at);
        } else {
            const mapping m = map(g, fs, fd, static_cast<std::int64_t>(at), block_bytes);
            if (m.bytes == block_bytes) sum += look::at(g, m.data);
            else failed = 1;
            unmap(g, fs, m);
        }
    }
    // The second word keeps the sum alive; nobody reads it.
    if (failed != 0) failures[0] = 1;
    if (sum == 0x12345678u) failures[1] = sum;
}

struct hit_run {
    const runtime& rt;
    int fd;
    const std::byte* plain;
    std::uint64_t blocks;
    unsigned* failures;

    // Adds GB/s. As many blocks of threads as fit at a time, each kernel its own number, and the same work for all: no kernel
    // waits for a last few blocks.
    template <way What>
    status run(std::uint64_t seed, series& out) const {
        const std::uint32_t shared = What == way::copy_plain || What == way::read ? 8 * block_bytes : 0;
        if (shared != 0) cudaFuncSetAttribute(hit<What>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
        int resident = 0;
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, hit<What>, 256, shared);
        const auto grid = static_cast<std::uint32_t>(std::max(resident * multiprocessors(), 1));
        const std::uint32_t rounds = std::max(132u * 6 * 512 / grid, 1u);
        float ms = 0;
        if (status s = kernel_ms([&] { hit<What><<<grid, 256, shared>>>(rt.ref(), fd, plain, blocks, rounds, seed, failures); }, ms); !s) return s;
        out.add(1e-6 * grid * 8 * rounds * block_bytes / ms);
        return {};
    }
};

// Everything resident, and an array of as many plain bytes.
struct resident_on_gpu {
    std::unique_ptr<runtime> rt;
    int fd = -1;
    gpu_memory plain, failures;
    std::uint64_t bytes = 0;

    status make(context& here, std::uint64_t page) {
        bytes = here.file_bytes(2 * gib);
        if (status s = here.use_file(bytes); !s) return s;
        if (status s = here.make_runtime({.page_bytes = page, .cache_bytes = 2 * bytes, .file_bytes = bytes}, rt, fd); !s) return s;
        const auto wanted = static_cast<std::int64_t>(bytes);
        if (const std::int64_t got = rt->prefetch(fd, 0, wanted); got != wanted)
            return {-EIO, "prefetch brought " + std::to_string(got) + " of " + std::to_string(bytes) + " bytes"};
        if (status s = plain.on_device(bytes); !s) return s;
        if (status s = failures.on_host(8); !s) return s;
        failures.as<unsigned>()[0] = 0;
        return cuda_status(cudaMemset(plain.as<void>(), 1, bytes), "memory");
    }
};

template <way Ours, way Plain>
status compare(context& here, const char* goal, const char* name, const char* baseline, std::uint64_t page) {
    resident_on_gpu file;
    if (status s = file.make(here, page); !s) return s;
    const hit_run one{*file.rt, file.fd, file.plain.as<std::byte>(), file.bytes / block_bytes, file.failures.as<unsigned>()};
    series ours, plain, cores;
    for (std::uint64_t seed = 0; seed < here.repeats(11); ++seed) {
        if (status s = one.run<Plain>(seed, plain); !s) return s;
        const stopwatch watch;
        if (status s = one.run<Ours>(seed, ours); !s) return s;
        cores.add(watch.cores(watch.seconds()));
    }
    if (*file.failures.as<unsigned>() != 0) return {-EIO, std::string(name) + ": some calls failed"};
    return here.add({goal, name, "", page, ours, "GB/s", baseline, plain, cores,
                     "random 4 KiB blocks, " + format_size(file.bytes) + " resident; misses " + std::to_string(file.rt->stats().misses)});
}

}  // namespace

status hit_on_gpu(context& here) {
    for (const std::uint64_t page : here.pages({4 * kib, 64 * kib}))
        if (status s = compare<way::read, way::copy_plain>(here, "S1", "hit, copying read into shared memory", "the same copy from plain memory", page); !s)
            return s;
    return {};
}

status map_on_gpu(context& here) {
    for (const std::uint64_t page : here.pages({4 * kib, 64 * kib})) {
        if (page < block_bytes) {
            here.leave_out("map with pages of " + format_size(page), "a mapping ends with its page, and blocks of 4 KiB are looked at");
            continue;
        }
        if (status s = compare<way::map, way::look_plain>(here, "S2", "hit, map, look, unmap", "looking at plain memory", page); !s) return s;
    }
    return {};
}

}  // namespace penstock::bench
