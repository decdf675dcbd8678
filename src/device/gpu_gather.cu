// Random rows of host memory are bound by the GPU's address translation once they spread over more
// than 1 to 2 GiB. So the positions of the list are put in order by the span of the file that their
// rows lie in (a histogram, its prefix sums, and a scatter, each of one pass), and the warps take
// pieces of that order from one counter: at any time the device works in one span or two. Each row
// still goes to its own place in the output. At the end: the kernel that lends pages to reads of
// programs.
#include "device/gpu_gather.cuh"

#include <algorithm>
#include <cerrno>
#include <optional>

#include "penstock/engine/lend.hpp"
#include "penstock/group/lane.hpp"
#include "penstock/group/gpu_groups.cuh"

namespace penstock::host {

namespace {

constexpr std::uint32_t threads = 256, rows_per_thread = 16, tile_rows = threads * rows_per_thread;

__global__ void __launch_bounds__(threads)
    count_spans(const __grid_constant__ runtime_ref fs, const __grid_constant__ gather_job job,
                gather_control* control) {
    __shared__ std::uint32_t here[max_spans];
    for (std::uint32_t s = threadIdx.x; s < job.spans.spans; s += threads) here[s] = 0;
    __syncthreads();
    const row_view rows(fs, job.fd, job.shape);
    for (std::uint64_t i = std::uint64_t{blockIdx.x} * threads + threadIdx.x; i < job.count;
         i += std::uint64_t{gridDim.x} * threads)
        atomicAdd(&here[job.spans.span_of(rows.geometry(), job.indices[i])], 1u);
    __syncthreads();
    for (std::uint32_t s = threadIdx.x; s < job.spans.spans; s += threads)
        if (here[s] != 0) atomicAdd(&control->in_span[s], here[s]);
}

// One block of max_spans threads: the prefix sums of in_span to next_place.
__global__ void __launch_bounds__(max_spans) place_spans(gather_control* control) {
    __shared__ std::uint32_t sums[max_spans];
    const std::uint32_t me = threadIdx.x;
    sums[me] = control->in_span[me];
    for (std::uint32_t distance = 1; distance < max_spans; distance *= 2) {
        __syncthreads();  // the sums of the round before are there
        const std::uint32_t other = me >= distance ? sums[me - distance] : 0;
        __syncthreads();  // every thread has read them
        sums[me] += other;
    }
    control->next_place[me] = sums[me] - control->in_span[me];
}

__global__ void __launch_bounds__(threads)
    order_by_span(const __grid_constant__ runtime_ref fs, const __grid_constant__ gather_job job,
                  gather_control* control, std::uint32_t* order) {
    __shared__ std::uint32_t here[max_spans];
    const row_view rows(fs, job.fd, job.shape);
    for (std::uint64_t tile = std::uint64_t{blockIdx.x} * tile_rows; tile < job.count;
         tile += std::uint64_t{gridDim.x} * tile_rows) {
        for (std::uint32_t s = threadIdx.x; s < job.spans.spans; s += threads) here[s] = 0;
        __syncthreads();
        std::uint32_t span_and_rank[rows_per_thread];  // the rank in the tile's rows of that span,
                                                       // 16 bits each
#pragma unroll
        for (std::uint32_t k = 0; k < rows_per_thread; ++k) {
            const std::uint64_t i = tile + k * threads + threadIdx.x;
            if (i >= job.count) break;
            const std::uint32_t span = job.spans.span_of(rows.geometry(), job.indices[i]);
            span_and_rank[k] = span << 16 | atomicAdd(&here[span], 1u);
        }
        __syncthreads();
        for (std::uint32_t s = threadIdx.x; s < job.spans.spans; s += threads)
            if (here[s] != 0) here[s] = atomicAdd(&control->next_place[s], here[s]);
        __syncthreads();
#pragma unroll
        for (std::uint32_t k = 0; k < rows_per_thread; ++k) {
            const std::uint64_t i = tile + k * threads + threadIdx.x;
            if (i >= job.count) break;
            order[here[span_and_rank[k] >> 16] + (span_and_rank[k] & 0xffffu)] =
                static_cast<std::uint32_t>(i);
        }
        __syncthreads();  // `here` is read for the last time before the next tile clears it
    }
}

__device__ __forceinline__ std::int64_t gather_piece(const warp& g, const row_view& rows,
                                                     const gather_job& job,
                                                     engine::listed_rows list, std::uint64_t first,
                                                     std::uint64_t count) {
    return gather(g, rows, list.indices + first, count, job.out + first * job.shape.row_bytes);
}
__device__ __forceinline__ std::int64_t gather_piece(const warp& g, const row_view& rows,
                                                     const gather_job& job,
                                                     engine::ordered_rows list, std::uint64_t first,
                                                     std::uint64_t count) {
    return detail::gather_list(g, rows, engine::ordered_rows{list.indices, list.order + first},
                               count, job.out);
}

// Pieces are taken from one counter, so that no warp is far behind or ahead of the others.
template <typename List>
__global__ void __launch_bounds__(threads, 4)
    gather_pieces(const __grid_constant__ runtime_ref fs, const __grid_constant__ gather_job job,
                  const List list, std::uint64_t piece_rows, gather_control* control) {
    const warp g;
    const row_view rows(fs, job.fd, job.shape);
    for (;;) {
        std::uint64_t first = 0;
        if (g.is_leader()) {
            first = atomic_fetch_add<order::relaxed>(&control->next_piece, std::uint64_t{1}) *
                    piece_rows;
            if (atomic_load<order::relaxed>(&control->code) != 0) first = job.count;
        }
        first = g.broadcast(first);
        if (first >= job.count) return;
        const std::int64_t done =
            gather_piece(g, rows, job, list, first, min(piece_rows, job.count - first));
        if (done < 0 && g.is_leader())
            atomic_compare_swap<order::relaxed>(&control->code, std::int64_t{0}, done);
    }
}

template <typename List>
cudaError_t launch_gather(const runtime_ref& fs, const gather_job& job, const List& list,
                          gather_control* control, cudaStream_t stream) {
    const auto kernel = gather_pieces<List>;
    const std::uint64_t warps = std::uint64_t{resident_blocks(kernel, threads)} * (threads / 32);
    const std::uint64_t piece_rows =
        std::max<std::uint64_t>(1, rows_of_a_piece(job.count, job.shape.row_bytes, warps));
    const std::uint32_t blocks = grid_of(kernel, threads, job.count, piece_rows * (threads / 32));
    return launch_kernel(kernel, blocks, threads, stream, fs, job, list, piece_rows, control);
}

cudaError_t launch_ordered(const runtime_ref& fs, const gather_job& job, std::uint32_t* order,
                           gather_control* control, cudaStream_t stream) {
    const std::uint32_t counting = grid_of(count_spans, threads, job.count, tile_rows),
                        ordering = grid_of(order_by_span, threads, job.count, tile_rows);
    cudaError_t code = launch_kernel(count_spans, counting, threads, stream, fs, job, control);
    if (code == cudaSuccess) code = launch_kernel(place_spans, 1, max_spans, stream, control);
    if (code == cudaSuccess)
        code = launch_kernel(order_by_span, ordering, threads, stream, fs, job, control, order);
    return code == cudaSuccess
               ? launch_gather(fs, job, engine::ordered_rows{job.indices, order}, control, stream)
               : code;
}

}  // namespace

cudaError_t load_gather_kernels(const runtime_ref& fs, gather_control* control,
                                cudaStream_t stream) {
    gather_job nothing{};
    nothing.fd = -1;
    nothing.shape.row_bytes = 1;
    nothing.spans.spans = 1;
    cudaError_t code = cudaMemsetAsync(control, 0, sizeof *control, stream);
    if (code == cudaSuccess) code = launch_ordered(fs, nothing, nullptr, control, stream);
    if (code == cudaSuccess)
        code = launch_gather(fs, nothing, engine::listed_rows{nullptr}, control, stream);
    return code == cudaSuccess ? cudaStreamSynchronize(stream) : code;
}

std::int64_t gather_on_gpu(const runtime_ref& fs, const gather_job& whole, gather_control* control,
                           std::int64_t* code, gpu_memory& memory, cudaStream_t stream) {
    if (!is_reached(whole.indices, false) || !is_reached(whole.out, true)) return -EFAULT;
    const std::uint64_t at_once = std::min(whole.count, ordered_rows_at_once);
    std::optional<stream_memory> room;
    if (whole.spans.spans > 0) room.emplace(memory, at_once * sizeof(std::uint32_t), stream);
    auto* const order = room ? static_cast<std::uint32_t*>(room->data()) : nullptr;
    if (order == nullptr && whole.must_order) return -ENOMEM;
    gather_job job = whole;
    *code = 0;
    cudaError_t ran = cudaSuccess;
    for (std::uint64_t done = 0; done < whole.count && *code == 0 && ran == cudaSuccess;
         done += job.count) {
        job.indices = whole.indices + done;
        job.out = whole.out + done * whole.shape.row_bytes;
        job.count = order != nullptr ? std::min(whole.count - done, at_once) : whole.count;
        ran = cudaMemsetAsync(control, 0, sizeof *control, stream);
        if (ran == cudaSuccess)
            ran = order != nullptr
                      ? launch_ordered(fs, job, order, control, stream)
                      : launch_gather(fs, job, engine::listed_rows{job.indices}, control, stream);
        if (ran == cudaSuccess)
            ran =
                cudaMemcpyAsync(code, &control->code, sizeof *code, cudaMemcpyDeviceToHost, stream);
        // Also after an error: what was launched before it uses the caller's memory.
        if (const cudaError_t ended = cudaStreamSynchronize(stream); ran == cudaSuccess)
            ran = ended;
    }
    if (ran != cudaSuccess) return errno_of(ran);
    return *code != 0 ? *code : static_cast<std::int64_t>(whole.count);
}

namespace {

constexpr std::uint32_t lending_warps = 4;  // of a block

// A warp for each part.
__global__ void __launch_bounds__(32 * lending_warps)
    lend_parts(const __grid_constant__ runtime_ref fs,
               const __grid_constant__ engine::lend_order order) {
    const std::uint32_t part = blockIdx.x * lending_warps + threadIdx.x / 32;
    if (part < order.parts()) engine::lend_part(warp{}, fs.view, order, part);
}

cudaError_t launch_loan(const runtime_ref& fs, const engine::lend_order& order,
                        cudaStream_t stream) {
    const std::uint32_t blocks = std::max(1u, (order.parts() + lending_warps - 1) / lending_warps);
    return launch_kernel(lend_parts, blocks, 32 * lending_warps, stream, fs, order);
}

}  // namespace

gpu_loans::~gpu_loans() {
    const device_guard guard(context_);
    if (!guard) return;
    for (const cudaStream_t stream : streams_) {
        if (stream == nullptr) continue;
        cudaStreamSynchronize(stream);
        cudaStreamDestroy(stream);
    }
}

status gpu_loans::init(gpu_memory& memory) {
    int least = 0, greatest = 0;
    cudaError_t code = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    for (cudaStream_t& stream : streams_)
        if (code == cudaSuccess)
            code = cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest);
    if (code != cudaSuccess)
        return {errno_of(code), "for reads of programs, a stream was refused: " + cuda_text(code) +
                                    "; of the device " + room_text()};
    auto* const room =
        static_cast<std::byte*>(memory.shared_bytes(loan_desks::count * loan_desks::desk_bytes));
    if (room == nullptr) return {-ENOMEM, "for reads of programs, " + memory.shortage()};
    desks_.place(room);
    return {};
}

cudaError_t gpu_loans::load(const runtime_ref& fs) {
    const cudaError_t code = launch_loan(fs, {}, streams_[0]);
    return code == cudaSuccess ? cudaStreamSynchronize(streams_[0]) : code;
}

bool gpu_loans::begin_loan(const runtime_ref& fs, loan& peer_read) {
    const device_guard guard(context_);
    if (!guard) return false;
    loan_desk* const desk = desks_.take(peer_read, lane{}.now_ns());
    if (desk == nullptr) return false;
    peer_read.desk = desk;
    if (launch_loan(fs, peer_read.order, streams_[desk->number]) == cudaSuccess) return true;
    desks_.give_back(*desk, false, 0);
    return false;
}

void gpu_loans::end_loan(loan& peer_read) {
    desks_.give_back(*static_cast<loan_desk*>(peer_read.desk), true, lane{}.now_ns());
}

}  // namespace penstock::host
