// Hits on a GPU: read() of random pieces of a file into shared memory against the same copy from a
// plain array; and map, look, unmap against looking at plain memory. Pieces are blocks of 4 KiB,
// read by warps, and whole pages, which blocks of threads read and warps map.
#include "cases.hpp"
#include "gpu.cuh"
#include "penstock/launch.hpp"

namespace penstock::bench {

namespace {

constexpr std::uint32_t block_bytes = 4096, threads = 256;

// 4 KiB by a warp.
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
    template <typename Group>
    static __device__ unsigned at_all(const Group& g, const std::byte* data, std::uint32_t bytes) {
        unsigned sum = 0;
        for (std::uint32_t i = 0; i < bytes; i += block_bytes) sum += at(g, data + i);
        return sum;
    }
};

__device__ __forceinline__ std::uint64_t random_piece(std::uint64_t group_number, std::uint32_t i,
                                                      std::uint64_t seed, std::uint64_t pieces) {
    return mix64((group_number << 20) + i + seed * 0x9e3779b97f4a7c15ull) % pieces;
}

enum class way { copy_plain, read, look_plain, map };

constexpr bool copies(way pair) { return pair == way::copy_plain || pair == way::read; }

// What each group does, again and again, with pieces of one size.
struct piece_shape {
    std::uint32_t bytes;
    std::uint64_t in_file;
};

template <way What, typename Group>
__global__ void __launch_bounds__(threads, std::is_same_v<Group, block> ? 3 : 4)
    hit(const __grid_constant__ runtime_ref fs, int fd, const std::byte* plain, piece_shape piece,
        std::uint32_t rounds, std::uint64_t seed, unsigned* failures) {
    extern __shared__ std::byte buffers[];
    const Group g;
    const std::uint32_t in_block = (threadIdx.x - g.rank()) / g.size();
    const std::uint64_t number = std::uint64_t{blockIdx.x} * (threads / g.size()) + in_block;
    std::byte* const own = buffers + (copies(What) ? in_block * piece.bytes : 0);
    unsigned sum = 0, failed = 0;
    for (std::uint32_t i = 0; i < rounds; ++i) {
        const std::uint64_t at = random_piece(number, i, seed, piece.in_file) * piece.bytes;
        if constexpr (What == way::copy_plain) {
            g.copy_out(own, plain + at, piece.bytes);
            g.sync();
        } else if constexpr (What == way::read) {
            if (read(g, fs, fd, own, piece.bytes, static_cast<std::int64_t>(at)) != piece.bytes)
                failed = 1;
        } else if constexpr (What == way::look_plain) {
            sum += look::at_all(g, plain + at, piece.bytes);
        } else {
            const mapping m = map(g, fs, fd, static_cast<std::int64_t>(at), piece.bytes);
            if (m.bytes == piece.bytes) sum += look::at_all(g, m.data, piece.bytes);
            else failed = 1;
            unmap(g, fs, m);
        }
    }
    // The second word keeps the sum alive; no code reads it.
    if (failed != 0) failures[0] = 1;
    if (sum == 0x12345678u) failures[1] = sum;
}

struct hit_run {
    const runtime& rt;
    int fd;
    const std::byte* plain;
    piece_shape piece;
    unsigned* failures;

    // Adds GB/s. As many blocks of threads as fit at a time, each kernel its own number, and the
    // same work for all: no kernel waits for a last few blocks.
    template <way What, typename Group>
    status run(std::uint64_t seed, series& out) const {
        const std::uint32_t groups = std::is_same_v<Group, block> ? 1 : threads / 32;
        const std::uint32_t shared = copies(What) ? groups * piece.bytes : 0;
        const auto kernel = hit<What, Group>;
        if (shared != 0)
            if (status s = cuda_status(
                    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                         static_cast<int>(shared)),
                    "shared memory");
                !s)
                return s;
        int resident = 0;
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, shared);
        const auto grid = static_cast<std::uint32_t>(std::max(resident * multiprocessors(), 1));
        const std::uint64_t all_bytes = 132ull * 6 * 512 * 8 * block_bytes;
        const auto rounds = static_cast<std::uint32_t>(
            std::max<std::uint64_t>(all_bytes / piece.bytes / groups / grid, 1));
        float ms = 0;
        if (status s = kernel_ms(
                [&] {
                    kernel<<<grid, threads, shared>>>(rt.ref(), fd, plain, piece, rounds, seed,
                                                      failures);
                },
                ms);
            !s)
            return s;
        out.add(1e-6 * grid * groups * rounds * piece.bytes / ms);
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
        if (status s = here.make_runtime(
                {.page_bytes = page, .cache_bytes = 2 * bytes, .file_bytes = bytes}, rt, fd);
            !s)
            return s;
        const auto wanted = static_cast<std::int64_t>(bytes);
        if (const std::int64_t got = rt->prefetch(fd, 0, wanted); got != wanted)
            return {-EIO, "prefetch brought " + std::to_string(got) + " of " +
                              std::to_string(bytes) + " bytes"};
        if (status s = plain.on_device(bytes); !s) return s;
        if (status s = failures.on_host(8); !s) return s;
        failures.as<unsigned>()[0] = 0;
        return cuda_status(cudaMemset(plain.as<void>(), 1, bytes), "memory");
    }
};

// A comparison: the goal it serves, its name, and the baseline.
struct comparison {
    const char* goal;
    const char* name;
    const char* baseline;
};
constexpr comparison by_read{"S1", "hit, copying read into shared memory",
                             "the same copy from plain memory"};
constexpr comparison by_map{"S2", "hit, map, look, unmap", "looking at plain memory"};

template <way Ours, way Plain, typename Group>
status compare(context& here, const comparison& pair, const resident_on_gpu& file,
               std::uint64_t page, std::uint32_t piece_bytes) {
    const hit_run runner{*file.rt,
                         file.fd,
                         file.plain.as<std::byte>(),
                         {piece_bytes, file.bytes / piece_bytes},
                         file.failures.as<unsigned>()};
    series ours, plain, cores;
    for (std::uint64_t seed = 0; seed < here.repeats(11); ++seed) {
        if (status s = runner.run<Plain, Group>(seed, plain); !s) return s;
        const stopwatch watch;
        if (status s = runner.run<Ours, Group>(seed, ours); !s) return s;
        cores.add(watch.cores(watch.seconds()));
    }
    if (*file.failures.as<unsigned>() != 0)
        return {-EIO, std::string(pair.name) + ": some calls failed"};
    const bool whole = piece_bytes != block_bytes;
    return here.add(
        {pair.goal, std::string(pair.name) + (whole ? ", whole pages" : ""), "", page, ours, "GB/s",
         pair.baseline, plain, cores,
         "random " + std::string(whole ? "pages" : "4 KiB blocks") +
             (std::is_same_v<Group, block> ? " by blocks of 256 threads, " : " by warps, ") +
             format_size(file.bytes) + " resident; misses " +
             std::to_string(file.rt->stats().misses)});
}

// Whole pages as well, where they are larger than the blocks and, if they are copied, fit the
// memory that threads share.
constexpr std::uint64_t largest_copied = 128 * kib;

}  // namespace

status hit_on_gpu(context& here) {
    for (const std::uint64_t page : here.pages({4 * kib, 64 * kib})) {
        resident_on_gpu file;
        if (status s = file.make(here, page); !s) return s;
        if (status s =
                compare<way::read, way::copy_plain, warp>(here, by_read, file, page, block_bytes);
            !s)
            return s;
        if (page <= block_bytes) continue;
        if (page > largest_copied) {
            here.leave_out("copies of whole pages of " + format_size(page),
                           "they go to shared memory, which has no room for that");
            continue;
        }
        if (status s = compare<way::read, way::copy_plain, block>(here, by_read, file, page,
                                                                  static_cast<std::uint32_t>(page));
            !s)
            return s;
    }
    return {};
}

status map_on_gpu(context& here) {
    for (const std::uint64_t page : here.pages({4 * kib, 64 * kib})) {
        if (page < block_bytes) {
            here.leave_out("map with pages of " + format_size(page),
                           "a mapping ends with its page, and blocks of 4 KiB are looked at");
            continue;
        }
        resident_on_gpu file;
        if (status s = file.make(here, page); !s) return s;
        if (status s =
                compare<way::map, way::look_plain, warp>(here, by_map, file, page, block_bytes);
            !s)
            return s;
        if (page == block_bytes) continue;
        if (status s = compare<way::map, way::look_plain, warp>(here, by_map, file, page,
                                                                static_cast<std::uint32_t>(page));
            !s)
            return s;
    }
    return {};
}

}  // namespace penstock::bench
