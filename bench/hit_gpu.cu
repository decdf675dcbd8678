// Cached pages on a GPU, each way against the same on plain memory. Hits: read() of random pieces
// of a file into shared memory; and map, look, unmap. Pieces are blocks of 4 KiB, read by warps,
// and whole pages, which blocks of threads read and warps map. Elements: v[i] by lane, at random
// and in order, and for_each by warps.
#include "cases.hpp"
#include "gpu.cuh"
#include "penstock/view.hpp"

namespace penstock::bench {

namespace {

// Everything resident, and an array of as many plain bytes.
struct resident_on_gpu : opened_file {
    memory plain, failures = memory::pinned(8);

    resident_on_gpu(context& here, std::uint64_t page, std::uint64_t cache_bytes)
        : opened_file(here.open({.page_bytes = page, .cache_bytes = cache_bytes})),
          plain(backend::gpu, bytes) {
        bring_into_cache(*this);
        plain.fill(1, bytes);
    }
};

constexpr std::uint32_t block_bytes = 4096, threads = 256;

// 4 KiB by a warp.
template <typename Group>
__device__ unsigned look(const Group& g, const std::byte* data) {
    unsigned sum = 0;
    uint4 v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = detail::load_frame_16(data + (g.rank() + 32 * i) * 16);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
    return sum;
}
template <typename Group>
__device__ unsigned look_at_all(const Group& g, const std::byte* data, std::uint32_t bytes) {
    unsigned sum = 0;
    for (std::uint32_t i = 0; i < bytes; i += block_bytes) sum += look(g, data + i);
    return sum;
}

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
            sum += look_at_all(g, plain + at, piece.bytes);
        } else {
            const mapping m = map(g, fs, fd, static_cast<std::int64_t>(at), piece.bytes);
            if (m.bytes == piece.bytes) sum += look_at_all(g, m.data, piece.bytes);
            else failed = 1;
            unmap(g, fs, m);
        }
    }
    // The second word keeps the sum alive; no code reads it.
    if (failed != 0) failures[0] = 1;
    if (sum == 0x12345678u) failures[1] = sum;
}

struct hit_run {
    const resident_on_gpu& file;
    piece_shape piece;

    // GB/s. As many blocks of threads as fit at a time, each kernel its own number, and the same
    // work for all: no kernel waits for a last few blocks.
    template <way What, typename Group>
    double rate(std::uint64_t seed) const {
        const std::uint32_t groups = std::is_same_v<Group, block> ? 1 : threads / 32;
        const std::uint32_t shared = copies(What) ? groups * piece.bytes : 0;
        const auto kernel = hit<What, Group>;
        if (shared != 0)
            require_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              static_cast<int>(shared)),
                         "shared memory");
        const std::uint32_t grid = full_grid(kernel, threads, shared);
        const std::uint64_t all_bytes = 132ull * 6 * 512 * 8 * block_bytes;
        const auto rounds = static_cast<std::uint32_t>(
            std::max<std::uint64_t>(all_bytes / piece.bytes / groups / grid, 1));
        const double seconds = kernel_seconds([&] {
            kernel<<<grid, threads, shared>>>(file.rt->ref(), file.fd, file.plain.as<std::byte>(),
                                              piece, rounds, seed, file.failures.as<unsigned>());
        });
        return 1e-9 * grid * groups * rounds * piece.bytes / seconds;
    }
};

// Of read or map with its baseline, the same on plain memory.
template <way Ours, typename Group>
void compare(context& here, const resident_on_gpu& file, std::uint64_t page,
             std::uint64_t piece_bytes) {
    constexpr bool reads = Ours == way::read;
    constexpr way plain = reads ? way::copy_plain : way::look_plain;
    const std::string name =
        reads ? "hit, copying read into shared memory" : "hit, map, look, unmap";
    const hit_run runner{file, {static_cast<std::uint32_t>(piece_bytes), file.bytes / piece_bytes}};
    measured rates;
    for (std::uint64_t seed = 0; seed < here.repeats(11); ++seed) {
        rates.baseline.add(runner.rate<plain, Group>(seed));
        const stopwatch watch;
        rates.add(runner.rate<Ours, Group>(seed), watch);
    }
    expect(*file.failures.as<unsigned>() == 0, name + ": some calls failed");
    const bool whole = piece_bytes != block_bytes;
    here.add(reads ? "S1" : "S2", name + (whole ? ", whole pages" : ""), page, "GB/s", rates,
             reads ? "the same copy from plain memory" : "looking at plain memory",
             "random " + std::string(whole ? "pages" : "4 KiB blocks") +
                 (std::is_same_v<Group, block> ? " by blocks of 256 threads, " : " by warps, ") +
                 format_size(file.bytes) + " resident; misses " +
                 std::to_string(file.rt->stats().misses));
}

// Whole pages as well, where they are larger than the blocks and, if they are copied, fit the
// memory that threads share.
constexpr std::uint64_t largest_copied = 128 * kib;

}  // namespace

void hit_on_gpu(context& here) {
    here.use_file(here.file_bytes(2 * gib));
    for (const std::uint64_t page : here.pages({4 * kib, 64 * kib})) {
        const resident_on_gpu file(here, page, 2 * here.bytes());
        compare<way::read, warp>(here, file, page, block_bytes);
        if (page > largest_copied)
            here.leave_out("copies of whole pages of " + format_size(page),
                           "they go to shared memory, which has no room for that");
        else if (page > block_bytes) compare<way::read, block>(here, file, page, page);
    }
}

void map_on_gpu(context& here) {
    here.use_file(here.file_bytes(2 * gib));
    for (const std::uint64_t page : here.pages({4 * kib, 64 * kib})) {
        if (page < block_bytes) {
            here.leave_out("map with pages of " + format_size(page),
                           "a mapping ends with its page, and blocks of 4 KiB are looked at");
            continue;
        }
        const resident_on_gpu file(here, page, 2 * here.bytes());
        compare<way::map, warp>(here, file, page, block_bytes);
        if (page != block_bytes) compare<way::map, warp>(here, file, page, page);
    }
}

namespace {

constexpr std::uint32_t element_rounds = 256;

// Which element thread `thread` takes in its i-th round.
template <bool InOrder>
__device__ __forceinline__ std::uint64_t choose(std::uint64_t thread, std::uint64_t threads,
                                                std::uint32_t i, std::uint64_t seed,
                                                std::uint64_t elements) {
    return InOrder ? (threads * i + thread) % elements
                   : mix64(thread * element_rounds + i + seed * 0x9e3779b97f4a7c15ull) % elements;
}

template <bool InOrder>
__global__ void __launch_bounds__(256, 4)
    from_plain(const std::uint64_t* plain, std::uint64_t elements, std::uint64_t seed,
               std::uint64_t* sink) {
    const std::uint64_t thread = std::uint64_t{blockIdx.x} * 256 + threadIdx.x,
                        threads = std::uint64_t{gridDim.x} * 256;
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < element_rounds; ++i)
        sum += __ldcg(plain + choose<InOrder>(thread, threads, i, seed, elements));
    if (sum == 1) *sink = sum;
}

template <bool InOrder>
__global__ void __launch_bounds__(256, 4)
    from_view(const __grid_constant__ runtime_ref fs, int fd, std::uint64_t elements,
              std::uint64_t seed, std::uint64_t* sink) {
    const std::uint64_t thread = std::uint64_t{blockIdx.x} * 256 + threadIdx.x,
                        threads = std::uint64_t{gridDim.x} * 256;
    const view<std::uint64_t> v(fs, fd);
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < element_rounds; ++i)
        sum += v[choose<InOrder>(thread, threads, i, seed, elements)];
    if (sum == 1) *sink = sum;
}

// Warps take one stretch after the other until all elements were visited; a launch is long enough
// that its beginning and end do not count.
constexpr std::uint64_t stretch = 32 * element_rounds;

__global__ void __launch_bounds__(256, 4)
    from_plain_stretches(const std::uint64_t* plain, std::uint64_t elements, std::uint64_t,
                         std::uint64_t* sink) {
    const std::uint64_t warps = std::uint64_t{gridDim.x} * 8,
                        warp_number = (std::uint64_t{blockIdx.x} * 256 + threadIdx.x) / 32;
    std::uint64_t sum = 0;
    for (std::uint64_t s = warp_number; s < elements / stretch; s += warps) {
        const std::uint64_t* const from = plain + s * stretch + threadIdx.x % 32;
#pragma unroll 8
        for (std::uint32_t i = 0; i < element_rounds; ++i) sum += __ldcg(from + 32 * i);
    }
    if (sum == 1) *sink = sum;
}

__global__ void __launch_bounds__(256, 4)
    from_view_stretches(const __grid_constant__ runtime_ref fs, int fd, std::uint64_t elements,
                        std::uint64_t, std::uint64_t* sink) {
    const std::uint64_t warps = std::uint64_t{gridDim.x} * 8,
                        warp_number = (std::uint64_t{blockIdx.x} * 256 + threadIdx.x) / 32;
    const view<std::uint64_t> v(fs, fd);
    std::uint64_t sum = 0;
    for (std::uint64_t s = warp_number; s < elements / stretch; s += warps)
        v.for_each(this_warp(), s * stretch, stretch,
                   [&](std::uint64_t, std::uint64_t element) { sum += element; });
    if (sum == 1) *sink = sum;
}

// Billions of elements a second. `visited`: how many the kernel takes; 0: `element_rounds` for each
// thread.
template <typename Kernel, typename... Arguments>
double elements_a_second(std::uint64_t visited, Kernel* kernel, Arguments... arguments) {
    const std::uint32_t grid = full_grid(kernel);
    const double seconds = kernel_seconds([&] { kernel<<<grid, 256>>>(arguments...); });
    return 1e-9 * (visited != 0 ? visited : grid * 256ull * element_rounds) / seconds;
}

struct element_run {
    context& here;
    const resident_on_gpu& file;
    std::uint64_t* sink;
    std::uint64_t elements, page;

    template <typename Plain, typename View>
    void compare(const char* name, Plain* plain_kernel, View* view_kernel,
                 std::uint64_t visited = 0) const {
        measured rates;
        for (std::uint64_t seed = 0; seed < here.repeats(11); ++seed) {
            rates.baseline.add(elements_a_second(
                visited, plain_kernel, file.plain.as<const std::uint64_t>(), elements, seed, sink));
            const stopwatch watch;
            rates.add(elements_a_second(visited, view_kernel, file.rt->ref(), file.fd, elements,
                                        seed, sink),
                      watch);
        }
        here.add("S3", name, page, "billion/s", rates, "the same loads from plain memory",
                 text_of("%.3f times slower; ", rates.baseline.median() / rates.ours.median()) +
                     format_size(elements * 8) + " resident");
    }
};

}  // namespace

void element_on_gpu(context& here) {
    const std::uint64_t bytes = here.use_file(here.file_bytes(2 * gib));
    const memory sink(backend::gpu, 8);
    for (const std::uint64_t page : here.pages({4 * kib, 64 * kib})) {
        const resident_on_gpu file(here, page, bytes + bytes / 8);
        const element_run run{here, file, sink.as(), bytes / 8, page};
        run.compare("random 8-byte elements", from_plain<false>, from_view<false>);
        run.compare("8-byte elements in order, v[i]", from_plain<true>, from_view<true>);
        run.compare("8-byte elements in order, for_each by warps", from_plain_stretches,
                    from_view_stretches, bytes / 8 / stretch * stretch);
        require(file.rt->view_status());
    }
}

}  // namespace penstock::bench
