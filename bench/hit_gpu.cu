// Cached pages on a GPU, each way against the same on plain memory. Hits: read() of random pieces
// of a file into shared memory; and map, look, unmap. Pieces are blocks of 4 KiB, read by warps,
// and whole pages, which blocks of threads read and warps map. Elements: v[i] by lane, at random
// and in order, and for_each by warps.
#include "cases.hpp"
#include "gpu.cuh"
#include "penstock/view.hpp"

namespace penstock::bench {

namespace {

// Everything resident, and an array of the same words.
struct resident_on_gpu : opened_file {
    memory plain, failures = memory::pinned(8);

    resident_on_gpu(context& here, std::uint64_t page, std::uint64_t cache_bytes)
        : opened_file(here.open({.page_bytes = page, .cache_bytes = cache_bytes})),
          plain(backend::gpu, bytes) {
        bring_into_cache(*this);
        const std::uint64_t groups = static_cast<std::uint64_t>(multiprocessors()) * 32;
        run_kernel<width::warp>(*rt, groups, fill_words{plain.as(), bytes / 8, groups});
    }
};

// What becomes of the sum of all that a thread has seen: a kernel that is timed drops it, and one
// that is compared with another adds it up.
enum class sums { dropped, added };

template <sums Sums>
__device__ __forceinline__ void put_sum(unsigned long long sum, std::uint64_t* total) {
    // The store keeps the loads alive; no code reads it.
    if constexpr (Sums == sums::dropped) {
        if (sum == 1) *total = sum;
    } else {
        atomicAdd(reinterpret_cast<unsigned long long*>(total), sum);
    }
}

// What of(total) adds up.
template <typename Kernel>
std::uint64_t sum_of(const Kernel& of) {
    const memory total(backend::gpu, 8);
    of(total.as());
    require_cuda(cudaGetLastError(), "kernel");
    require_cuda(cudaDeviceSynchronize(), "kernel");
    return total.number();
}

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

// Words of a piece that was copied.
template <typename Group>
__device__ unsigned long long sum_of_copy(const Group& g, const std::byte* own,
                                          std::uint32_t bytes) {
    unsigned long long sum = 0;
    g.sync();
    for (std::uint32_t i = g.rank(); i < bytes / 8; i += g.size())
        sum += reinterpret_cast<const std::uint64_t*>(own)[i];
    g.sync();
    return sum;
}

template <way What, typename Group, sums Sums>
__global__ void __launch_bounds__(threads, std::is_same_v<Group, block> ? 3 : 4)
    hit(const __grid_constant__ runtime_ref fs, int fd, const std::byte* plain, piece_shape piece,
        std::uint32_t rounds, std::uint64_t seed, unsigned* failures,
        [[maybe_unused]] std::uint64_t* total) {
    extern __shared__ std::byte buffers[];
    const Group g;
    const std::uint32_t in_block = (threadIdx.x - g.rank()) / g.size();
    const std::uint64_t number = std::uint64_t{blockIdx.x} * (threads / g.size()) + in_block;
    std::byte* const own = buffers + (copies(What) ? in_block * piece.bytes : 0);
    [[maybe_unused]] unsigned long long copied = 0;
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
        if constexpr (Sums == sums::added && copies(What))
            copied += sum_of_copy(g, own, piece.bytes);
    }
    // The second word keeps the sum alive; no code reads it.
    if (failed != 0) failures[0] = 1;
    if (sum == 0x12345678u) failures[1] = sum;
    if constexpr (Sums == sums::added) put_sum<Sums>(copied + sum, total);
}

struct hit_run {
    const resident_on_gpu& file;
    piece_shape piece;

    template <way What, typename Group, sums Sums>
    [[nodiscard]] std::uint32_t shared_bytes() const {
        const std::uint32_t shared = copies(What) ? groups_a_block<Group>() * piece.bytes : 0;
        if (shared != 0)
            require_cuda(cudaFuncSetAttribute(hit<What, Group, Sums>,
                                              cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              static_cast<int>(shared)),
                         "shared memory");
        return shared;
    }
    template <typename Group>
    static constexpr std::uint32_t groups_a_block() {
        return std::is_same_v<Group, block> ? 1 : threads / 32;
    }

    // GB/s. As many blocks of threads as fit at a time, each kernel its own number, and the same
    // work for all: no kernel waits for a last few blocks.
    template <way What, typename Group>
    double rate(std::uint64_t seed) const {
        const std::uint32_t groups = groups_a_block<Group>(),
                            shared = shared_bytes<What, Group, sums::dropped>();
        const auto kernel = hit<What, Group, sums::dropped>;
        const std::uint32_t grid = full_grid(kernel, threads, shared);
        const std::uint64_t all_bytes = 132ull * 6 * 512 * 8 * block_bytes;
        const auto rounds = static_cast<std::uint32_t>(
            std::max<std::uint64_t>(all_bytes / piece.bytes / groups / grid, 1));
        const double seconds = kernel_seconds([&] {
            kernel<<<grid, threads, shared>>>(file.rt->ref(), file.fd, file.plain.as<std::byte>(),
                                              piece, rounds, seed, file.failures.as<unsigned>(),
                                              nullptr);
        });
        return 1e-9 * grid * groups * rounds * piece.bytes / seconds;
    }

    // Of what a block of threads for each multiprocessor sees in 64 rounds.
    template <way What, typename Group>
    [[nodiscard]] std::uint64_t sum() const {
        const std::uint32_t shared = shared_bytes<What, Group, sums::added>();
        const auto grid = static_cast<std::uint32_t>(multiprocessors());
        return sum_of([&](std::uint64_t* total) {
            hit<What, Group, sums::added>
                <<<grid, threads, shared>>>(file.rt->ref(), file.fd, file.plain.as<std::byte>(),
                                            piece, 64, 1, file.failures.as<unsigned>(), total);
        });
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
    expect(runner.sum<Ours, Group>() == runner.sum<plain, Group>(),
           name + ": the bytes are not those of plain memory");
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
                 format_size(file.bytes) + " resident, sums of a run compared; misses " +
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

template <bool InOrder, sums Sums>
__global__ void __launch_bounds__(256, 4)
    from_plain(const std::uint64_t* plain, std::uint64_t elements, std::uint64_t seed,
               std::uint64_t* sink) {
    const std::uint64_t thread = std::uint64_t{blockIdx.x} * 256 + threadIdx.x,
                        threads = std::uint64_t{gridDim.x} * 256;
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < element_rounds; ++i)
        sum += __ldcg(plain + choose<InOrder>(thread, threads, i, seed, elements));
    put_sum<Sums>(sum, sink);
}

template <bool InOrder, sums Sums>
__global__ void __launch_bounds__(256, 4)
    from_view(const __grid_constant__ runtime_ref fs, int fd, std::uint64_t elements,
              std::uint64_t seed, std::uint64_t* sink) {
    const std::uint64_t thread = std::uint64_t{blockIdx.x} * 256 + threadIdx.x,
                        threads = std::uint64_t{gridDim.x} * 256;
    const view<std::uint64_t> v(fs, fd);
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < element_rounds; ++i)
        sum += v[choose<InOrder>(thread, threads, i, seed, elements)];
    put_sum<Sums>(sum, sink);
}

// Warps take one stretch after the other until all elements were visited; a launch is long enough
// that its beginning and end do not count.
constexpr std::uint64_t stretch = 32 * element_rounds;

template <sums Sums>
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
    put_sum<Sums>(sum, sink);
}

template <sums Sums>
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
    put_sum<Sums>(sum, sink);
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

    // Kernels that are timed, and the same with their sums added up.
    template <typename Plain, typename View>
    void compare(const char* name, Plain* plain_kernel, View* view_kernel, Plain* plain_sum,
                 View* view_sum, std::uint64_t visited = 0) const {
        const auto grid = static_cast<std::uint32_t>(multiprocessors());
        const std::uint64_t right = sum_of([&](std::uint64_t* total) {
            plain_sum<<<grid, 256>>>(file.plain.as<const std::uint64_t>(), elements, 1, total);
        });
        const std::uint64_t got = sum_of([&](std::uint64_t* total) {
            view_sum<<<grid, 256>>>(file.rt->ref(), file.fd, elements, 1, total);
        });
        expect(got == right, std::string(name) + ": the sum is not that of plain memory");
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
                 text_of("%.3f times as long; ", rates.baseline.median() / rates.ours.median()) +
                     format_size(elements * 8) + " resident, sums of a run compared");
    }
};

}  // namespace

void element_on_gpu(context& here) {
    const std::uint64_t bytes = here.use_file(here.file_bytes(2 * gib));
    const memory sink(backend::gpu, 8);
    for (const std::uint64_t page : here.pages({4 * kib, 64 * kib})) {
        const resident_on_gpu file(here, page, bytes + bytes / 8);
        const element_run run{here, file, sink.as(), bytes / 8, page};
        constexpr sums dropped = sums::dropped, added = sums::added;
        run.compare("random 8-byte elements", from_plain<false, dropped>, from_view<false, dropped>,
                    from_plain<false, added>, from_view<false, added>);
        run.compare("8-byte elements in order, v[i]", from_plain<true, dropped>,
                    from_view<true, dropped>, from_plain<true, added>, from_view<true, added>);
        run.compare("8-byte elements in order, for_each by warps", from_plain_stretches<dropped>,
                    from_view_stretches<dropped>, from_plain_stretches<added>,
                    from_view_stretches<added>, bytes / 8 / stretch * stretch);
        require(file.rt->view_status());
    }
}

}  // namespace penstock::bench
