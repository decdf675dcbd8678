#include "device/gpu_table.cuh"

#include <algorithm>
#include <cerrno>

#include "penstock/group/gpu_groups.cuh"
#include "penstock/group/lane.hpp"

namespace penstock::host {

namespace {

constexpr std::uint32_t block_threads = 256, warps_per_block = block_threads / 32;

// A warp takes every so-many-th piece. There is no counter to draw pieces from: two launches may
// run at once, and a graph launches the same arguments again.
template <table_verb Verb, int BlocksPerMultiprocessor>
__global__ void __launch_bounds__(block_threads, BlocksPerMultiprocessor)
    take_rows(const __grid_constant__ runtime_ref fs, const __grid_constant__ table_job job,
              std::uint64_t piece_rows) {
    const warp g;
    const std::uint64_t pieces = std::uint64_t{gridDim.x} * warps_per_block * piece_rows;
    std::uint64_t first =
        (std::uint64_t{blockIdx.x} * warps_per_block + threadIdx.x / 32) * piece_rows;
    for (; first < job.count; first += pieces)
        run_part<Verb>(g, fs, job, first, min(first + piece_rows, job.count));
}

// The verb's kernel: the gather keeps many rows in flight, the others take row after row.
using table_kernel = void (*)(runtime_ref, table_job, std::uint64_t);
table_kernel kernel_of(table_verb verb) {
    switch (verb) {
        case table_verb::gather: return take_rows<table_verb::gather, 3>;
        case table_verb::scatter: return take_rows<table_verb::scatter, 2>;
        case table_verb::prefetch: return take_rows<table_verb::prefetch, 2>;
        default: return take_rows<table_verb::will_need, 2>;
    }
}

// All warps get equally many pieces, so that they end together. A piece is a few batches long: the
// pages that its rows let in enter the cache at its end.
std::uint64_t rows_of_a_warp(std::uint64_t count, std::uint64_t warps) {
    constexpr std::uint64_t most_rows = 4096, batch_rows = 32;
    const std::uint64_t rounds = (count + warps * most_rows - 1) / (warps * most_rows),
                        rows = (count + warps * rounds - 1) / (warps * rounds);
    return rows > batch_rows ? (rows + batch_rows - 1) / batch_rows * batch_rows : rows;
}

constexpr table_verb verbs[] = {table_verb::gather, table_verb::scatter, table_verb::prefetch,
                                table_verb::will_need};

}  // namespace

cudaError_t gpu_tables::load(const runtime_ref& fs, cudaStream_t stream) {
    table_job nothing{};
    for (const table_verb verb : verbs) {
        nothing.verb = verb;
        most_blocks_[static_cast<int>(verb)] = resident_blocks(kernel_of(verb), block_threads);
        const cudaError_t code =
            launch_kernel(kernel_of(verb), 1, block_threads, stream, fs, nothing, std::uint64_t{1});
        if (code != cudaSuccess) return code;
    }
    return cudaStreamSynchronize(stream);
}

int gpu_tables::launch(const runtime_ref& fs, const table_job& job, cudaStream_t stream) const {
    const auto serves = [stream](const void* memory, bool writes) {
        return is_reached(memory, writes) || may_come_with_graph(memory, stream);
    };
    if (!serves(job.list.numbers, false)) return -EFAULT;
    const bool writes = job.verb == table_verb::gather;
    if ((writes || job.verb == table_verb::scatter) && !serves(job.memory, writes)) return -EFAULT;
    const std::uint64_t most = most_blocks_[static_cast<int>(job.verb)];
    const std::uint64_t piece = rows_of_a_warp(job.count, most * warps_per_block);
    const std::uint64_t blocks = std::min<std::uint64_t>(
        most, (job.count + piece * warps_per_block - 1) / (piece * warps_per_block));
    return errno_of(launch_kernel(kernel_of(job.verb), static_cast<std::uint32_t>(blocks),
                                  block_threads, stream, fs, job, piece));
}

}  // namespace penstock::host
