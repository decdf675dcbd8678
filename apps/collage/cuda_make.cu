// Baseline: plain CUDA. One kernel counts and hashes all blocks; the CPU looks the candidates up,
// stages each once a batch and copies them; a second kernel compares. Two batches, so that
// gathering one overlaps with copying and comparing the other.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "methods.hpp"
#include "common/process.hpp"
#include "gather.hpp"
#include "make_block.hpp"
#if defined(__CUDACC__)
#include "common/gpu.cuh"
#endif

namespace penstock::collage {

#if defined(__CUDACC__)

namespace {

constexpr unsigned threads_per_block = 256;

__global__ void hash_blocks(const __grid_constant__ collage_view view, std::uint32_t* histograms,
                            std::uint64_t* keys) {
    __shared__ state_of<block> s;
    const block g = this_block();
    for (std::uint64_t b = blockIdx.x; b < view.blocks(); b += gridDim.x) {
        count_block(g, view, b, s);
        hash_block(g, view.lsh, s);
        for (std::uint32_t i = g.rank(); i < bins; i += g.size())
            histograms[b * bins + i] = s.histogram[i];
        for (std::uint32_t t = g.rank(); t < tables; t += g.size())
            keys[b * tables + t] = s.keys[t];
        g.sync();
    }
}

__global__ void compare_staged(std::uint64_t first_block, std::uint32_t blocks,
                               const std::uint32_t* histograms, const std::uint32_t* records,
                               const std::uint32_t* ids, const std::uint32_t* references,
                               const reference_range* ranges, const std::uint32_t* order,
                               std::uint64_t* best) {
    __shared__ alignas(16) std::uint32_t wanted[bins];
    const warp w = this_warp();
    for (std::uint32_t b = blockIdx.x; b < blocks; b += gridDim.x) {
        __syncthreads();  // all are done with the histogram of the block before
        for (std::uint32_t i = threadIdx.x; i < bins; i += blockDim.x)
            wanted[i] = histograms[std::uint64_t{order[first_block + b]} * bins + i];
        __syncthreads();
        const reference_range range = ranges[b];
        std::uint64_t least = no_score;
        for (std::uint32_t i = threadIdx.x / 32; i < range.count; i += blockDim.x / 32) {
            const std::uint32_t record = references[range.begin + i];
            const std::uint32_t part =
                partial_distance(w, records + std::uint64_t{record} * bins, wanted, bins);
            const std::uint64_t score = score_of(team<block>::sum(w, part), ids[record]);
            if (score < least) least = score;
        }
        if (w.is_leader())
            ::atomicMin(reinterpret_cast<unsigned long long*>(best + order[first_block + b]),
                        static_cast<unsigned long long>(least));
    }
}

// A batch in pinned memory and on the device. Everything is null after a failed allocation.
struct device_batch {
    staged_batch host;
    staged_batch there;
    cudaStream_t stream = nullptr;

    bool allocate(const batch_room& room) {
        return cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
               both(host.records, there.records, std::uint64_t{room.records} * bins) &&
               both(host.ids, there.ids, room.records) &&
               both(host.references, there.references, room.references) &&
               both(host.ranges, there.ranges, room.blocks);
    }
    device_batch() = default;
    ~device_batch() {
        for (void* const p : {static_cast<void*>(host.records), static_cast<void*>(host.ids),
                              static_cast<void*>(host.references), static_cast<void*>(host.ranges)})
            cudaFreeHost(p);
        for (void* const p :
             {static_cast<void*>(there.records), static_cast<void*>(there.ids),
              static_cast<void*>(there.references), static_cast<void*>(there.ranges)})
            cudaFree(p);
        if (stream != nullptr) cudaStreamDestroy(stream);
    }
    device_batch(const device_batch&) = delete;
    device_batch& operator=(const device_batch&) = delete;

    template <typename T>
    static bool both(T*& pinned, T*& on_device, std::uint64_t count) {
        return cudaMallocHost(&pinned, count * sizeof(T)) == cudaSuccess &&
               cudaMalloc(&on_device, count * sizeof(T)) == cudaSuccess;
    }

    template <typename T>
    bool copy(T* to, const T* from, std::uint64_t count) const {
        return cudaMemcpyAsync(to, from, count * sizeof(T), cudaMemcpyHostToDevice, stream) ==
               cudaSuccess;
    }

    // Copies and compares; returns at once.
    bool send(const std::uint32_t* histograms, const std::uint32_t* order, std::uint64_t* best,
              unsigned grid) const {
        if (!copy(there.records, host.records, std::uint64_t{host.record_count} * bins) ||
            !copy(there.ids, host.ids, host.record_count) ||
            !copy(there.references, host.references, host.reference_count) ||
            !copy(there.ranges, host.ranges, host.blocks))
            return false;
        compare_staged<<<std::min(grid, host.blocks), threads_per_block, 0, stream>>>(
            host.first_block, host.blocks, histograms, there.records, there.ids, there.references,
            there.ranges, order, best);
        return cudaGetLastError() == cudaSuccess;
    }
};

// The winners' pixels, by all cores.
void place_tiles(const mapped_library& library, const std::vector<std::uint64_t>& best,
                 picture& out, const collage_view& v, std::uint32_t threads) {
    std::atomic<std::uint64_t> next{0};
    apps::on_threads(threads, [&](std::uint32_t) {
        for (std::uint64_t b = next++; b < v.blocks(); b = next++) {
            const std::uint8_t* pixels = nullptr;
            library.tile(lane{}, static_cast<std::uint32_t>(best[b]), nullptr, pixels);
            const std::uint32_t left = static_cast<std::uint32_t>(b % v.columns) * tile_side,
                                top = static_cast<std::uint32_t>(b / v.columns) * tile_side;
            const std::size_t row_bytes = std::size_t{std::min(tile_side, v.width - left)} * 3;
            for (std::uint32_t y = 0; y < std::min(tile_side, v.height - top); ++y)
                std::memcpy(out.rgb.data() + (std::size_t{top + y} * v.width + left) * 3,
                            pixels + std::size_t{y} * tile_side * 3, row_bytes);
        }
    });
}

struct cuda_collage {
    mapped_library library;
    collage_memory memory;
    collage_view view{};
    std::uint32_t* histograms = nullptr;
    std::uint64_t* keys = nullptr;
    std::uint64_t* best = nullptr;
    device_batch batches[2];
    std::vector<std::uint64_t> host_keys;
    std::vector<std::uint64_t> host_best;
    unsigned grid = 1;
    std::uint32_t threads = 1;

    explicit cuda_collage(int device) : memory(device) {}

    status prepare(const collage_job& job, picture& out) {
        if (status s = library.open(job.from); !s) return s;
        if (status s = place_collage(memory, true, job.from.header, job.in, out, view); !s)
            return s;
        threads = apps::thread_count(job.settings.worker_threads);
        const batch_room room = room_for(threads);
        if (!memory.allocate(histograms, view.blocks() * bins) ||
            !memory.allocate(keys, view.blocks() * tables) ||
            !memory.allocate(best, view.blocks()) || !batches[0].allocate(room) ||
            !batches[1].allocate(room))
            return {-ENOMEM, std::string("--method cuda: ") +
                                 cudaGetErrorString(cudaGetLastError()) +
                                 "; free some memory of the GPU"};
        host_keys.resize(view.blocks() * tables);
        host_best.assign(view.blocks(), no_score);
        const int device = job.settings.device;
        grid = static_cast<unsigned>(
            std::min(apps::resident_blocks(device, hash_blocks, threads_per_block),
                     apps::resident_blocks(device, compare_staged, threads_per_block)));
        memory.pin(host_keys.data(), host_keys.size() * sizeof(std::uint64_t));
        return {};
    }

    status run(const collage_job& job, picture& out, method_report& report) {
        std::vector<std::uint32_t> order;
        if (status s = prepare_input(memory, job.in, view, threads, order, report); !s) return s;
        apps::stopwatch part;
        if (!memory.upload(best, host_best.data(), host_best.size() * sizeof(std::uint64_t)))
            return apps::cuda_error();
        hash_blocks<<<static_cast<unsigned>(std::min<std::uint64_t>(grid, view.blocks())),
                      threads_per_block>>>(view, histograms, keys);
        if (cudaGetLastError() != cudaSuccess ||
            !memory.download(host_keys.data(), keys, host_keys.size() * sizeof(std::uint64_t)))
            return apps::cuda_error();
        gatherer gather(library, view, host_keys.data(), order.data(), threads);
        for (std::uint64_t first = 0; first < view.blocks(); ++report.batches) {
            device_batch& b = batches[report.batches % 2];
            if (cudaStreamSynchronize(b.stream) != cudaSuccess)
                return apps::cuda_error();  // done with what it holds
            if (status s = gather.gather(first, b.host); !s)
                return s.message.empty() ? block_error(job.from, s.code) : s;
            if (!b.send(histograms, view.order, best, grid)) return apps::cuda_error();
            first += b.host.blocks;
        }
        if (cudaStreamSynchronize(batches[0].stream) != cudaSuccess ||
            cudaStreamSynchronize(batches[1].stream) != cudaSuccess ||
            !memory.download(host_best.data(), best, host_best.size() * sizeof(std::uint64_t)))
            return apps::cuda_error();
        report.compute_seconds = part.lap();
        place_tiles(library, host_best, out, view, threads);
        report.download_seconds = part.lap();
        report.evaluations = gather.evaluations();
        report.unique_tiles = gather.unique_tiles();
        report.fallback_blocks = gather.fallback_blocks();
        report.pages_read = gather.records_read();
        return {};
    }
};

}  // namespace

status make_with_cuda(const collage_job& job, picture& out, method_report& report) {
    apps::stopwatch watch;
    const int device = job.settings.device;
    if (status s = apps::use_gpu(device); !s) return s;
    cuda_collage all(device);
    if (status s = all.prepare(job, out); !s) return s;
    report.backend = "gpu";
    report.note = "two kernels, " + std::to_string(all.threads) + " threads gather";
    report.blocks = all.view.blocks();
    report.start_seconds = watch.lap();
    const double cpu_before = apps::cpu_seconds();
    const status ended = all.run(job, out, report);
    report.seconds = {watch.lap()};
    report.cpu_seconds = apps::cpu_seconds() - cpu_before;
    return ended;
}

#else

status make_with_cuda(const collage_job&, picture&, method_report&) { return apps::no_cuda(); }

#endif

}  // namespace penstock::collage
