// Baseline: plain CUDA. One kernel counts and hashes all blocks; the CPU looks the candidates up,
// stages each once a batch and copies them; a second kernel compares. Two batches, so that
// gathering one overlaps with copying and comparing the other.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/threads.hpp"
#include "methods.hpp"
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

// An array in pinned memory and on the device.
template <typename T>
struct staged_array {
    apps::pinned_array<T> host;
    apps::gpu_array<T> there;

    bool allocate(std::uint64_t count) {
        return cudaMallocHost(&host, count * sizeof(T)) == cudaSuccess &&
               cudaMalloc(&there, count * sizeof(T)) == cudaSuccess;
    }
    bool send(std::uint64_t count, cudaStream_t stream) const {
        return cudaMemcpyAsync(there, host, count * sizeof(T), cudaMemcpyHostToDevice, stream) ==
               cudaSuccess;
    }
};

struct device_batch {
    apps::gpu_stream stream;
    staged_array<std::uint32_t> records, ids, references;
    staged_array<reference_range> ranges;
    staged_batch host;

    bool allocate(const batch_room& room) {
        if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess ||
            !records.allocate(std::uint64_t{room.records} * bins) || !ids.allocate(room.records) ||
            !references.allocate(room.references) || !ranges.allocate(room.blocks))
            return false;
        host = {records.host, ids.host, references.host, ranges.host};
        return true;
    }

    // Copies and compares; returns at once.
    bool send(const std::uint32_t* histograms, const std::uint32_t* order, std::uint64_t* best,
              unsigned grid) const {
        if (!records.send(std::uint64_t{host.record_count} * bins, stream) ||
            !ids.send(host.record_count, stream) ||
            !references.send(host.reference_count, stream) || !ranges.send(host.blocks, stream))
            return false;
        compare_staged<<<std::min(grid, host.blocks), threads_per_block, 0, stream>>>(
            host.first_block, host.blocks, histograms, records.there, ids.there, references.there,
            ranges.there, order, best);
        return cudaGetLastError() == cudaSuccess;
    }
};

// The winners' pixels, by all cores.
status place_tiles(const mapped_library& library, const std::vector<std::uint64_t>& best,
                   picture& out, const collage_view& v, std::uint32_t threads) {
    const auto place = [&](std::uint32_t, std::uint64_t b, std::uint64_t) -> status {
        const std::uint8_t* pixels = nullptr;
        library.tile(lane{}, static_cast<std::uint32_t>(best[b]), nullptr, pixels);
        const std::uint32_t left = static_cast<std::uint32_t>(b % v.columns) * tile_side,
                            top = static_cast<std::uint32_t>(b / v.columns) * tile_side;
        const std::size_t row_bytes = std::size_t{std::min(tile_side, v.width - left)} * 3;
        for (std::uint32_t y = 0; y < std::min(tile_side, v.height - top); ++y)
            std::memcpy(out.rgb.data() + (std::size_t{top + y} * v.width + left) * 3,
                        pixels + std::size_t{y} * tile_side * 3, row_bytes);
        return {};
    };
    return apps::on_pieces(threads, v.blocks(), 1, place);
}

struct cuda_collage {
    mapped_library library;
    std::vector<std::uint64_t> host_keys, host_best;
    collage_sides sides = collage_sides(1);
    apps::device_memory* memory = nullptr;  // of the only side, as is the view
    collage_view view{};
    std::uint32_t* histograms = nullptr;
    std::uint64_t* keys = nullptr;
    std::uint64_t* best = nullptr;
    device_batch batches[2];
    unsigned grid = 1;
    std::uint32_t threads = 1;

    status prepare(const collage_job& job, picture& out) {
        const int device = job.settings.device;
        if (status s = library.open(job.from); !s) return s;
        sides.front().memory = apps::make_gpu_memory(device);
        if (status s = place_collage(job, true, out, sides); !s) return s;
        memory = sides.front().memory.get();
        view = sides.front().view;
        threads = apps::thread_count(job.settings.worker_threads);
        const batch_room room = room_for(threads);
        if (!memory->allocate(histograms, view.blocks() * bins) ||
            !memory->allocate(keys, view.blocks() * tables) ||
            !memory->allocate(best, view.blocks()) || !batches[0].allocate(room) ||
            !batches[1].allocate(room))
            return apps::no_gpu_memory();
        host_keys.resize(view.blocks() * tables);
        host_best.assign(view.blocks(), no_score);
        grid = static_cast<unsigned>(
            std::min(apps::resident_blocks(device, hash_blocks, threads_per_block),
                     apps::resident_blocks(device, compare_staged, threads_per_block)));
        memory->pin(host_keys.data(), host_keys.size() * sizeof(std::uint64_t));
        return {};
    }

    status compute(const collage_job& job, const std::uint32_t* order, method_report& report) {
        if (!memory->upload(best, host_best.data(), host_best.size() * sizeof(std::uint64_t)))
            return apps::cuda_error();
        hash_blocks<<<static_cast<unsigned>(std::min<std::uint64_t>(grid, view.blocks())),
                      threads_per_block>>>(view, histograms, keys);
        if (cudaGetLastError() != cudaSuccess ||
            !memory->download(host_keys.data(), keys, host_keys.size() * sizeof(std::uint64_t)))
            return apps::cuda_error();
        gatherer gather(library, view, host_keys.data(), order, threads);
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
            !memory->download(host_best.data(), best, host_best.size() * sizeof(std::uint64_t)))
            return apps::cuda_error();
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
    if (status s = apps::use_gpu(job.settings.device); !s) return s;
    cuda_collage all;
    if (status s = all.prepare(job, out); !s) return s;
    report.backend = "gpu";
    report.note = "two kernels, " + std::to_string(all.threads) + " threads gather";
    report.blocks = all.view.blocks();
    report.start_seconds = watch.lap();
    const auto compute = [&](const std::vector<std::uint32_t>& order) {
        return all.compute(job, order.data(), report);
    };
    const auto fetch = [&] {
        return place_tiles(all.library, all.host_best, out, all.view, all.threads);
    };
    return timed_collage(job, all.sides, report, compute, fetch);
}

#else

status make_with_cuda(const collage_job&, picture&, method_report&) { return apps::no_cuda(); }

#endif

}  // namespace penstock::collage
