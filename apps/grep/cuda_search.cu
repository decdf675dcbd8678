// Baseline: the GPU counts, the host reads. Text goes through two pinned buffers, so that reading
// and copying one batch overlaps with counting the other.
#include <algorithm>
#include <cerrno>

#include "common/report_text.hpp"
#include "common/threads.hpp"
#include "count_job.hpp"
#include "search.hpp"

#if defined(__CUDACC__)
#include "common/gpu.cuh"
#include "penstock/group/gpu_groups.cuh"
#endif

namespace penstock::grep {

#if defined(__CUDACC__)

namespace {

constexpr std::uint64_t batch_bytes = std::uint64_t{64} << 20;
constexpr std::uint32_t batch_jobs = 1u << 16;
constexpr unsigned threads_per_block = 256;

// Bytes [begin, end) of a job's file, at `text_at` in the batch; code is 0 or why they are not
// there.
struct staged_piece {
    std::uint64_t text_at;
    std::uint64_t begin;
    std::uint64_t end;
    std::uint64_t file_bytes;
    std::int64_t code;
};

struct staged_source {
    const staged_piece& piece;
    const unsigned char* text;

    template <typename Group, typename Body>
    PENSTOCK_HD int for_each_window(const Group& g, std::uint64_t from, std::uint64_t to,
                                    const Body& body) const {
        // A chain leads out of the staged text; the host stages the job again, with more behind it.
        if (piece.end < piece.file_bytes && piece.end < to + window_margin) return needs_more_text;
        body(text_window{text + piece.text_at, piece.begin, piece.end}, from, to);
        g.sync();
        return 0;
    }
};

__global__ void count_staged(const __grid_constant__ search_view view, std::uint32_t groups,
                             std::uint32_t first, std::uint32_t count, const staged_piece* pieces,
                             const unsigned char* text) {
    const warp g = this_warp();
    const std::uint32_t me = blockIdx.x * (threads_per_block / 32) + threadIdx.x / 32;
    if (me >= groups) return;  // there is scratch for `groups` only
    const tally t(view, me);
    for (std::uint32_t i = me; i < count; i += groups) {
        const staged_piece& piece = pieces[i];
        staged_source source{piece, text};
        const int code = piece.code != 0 ? static_cast<int>(piece.code)
                                         : count_job(g, view, t, source, first + i);
        if (g.is_leader()) view.status[first + i] = code;
    }
}

// One of the two batches. Everything is null after a failed allocation.
struct batch {
    apps::pinned_array<unsigned char> host_text;
    apps::pinned_array<staged_piece> host_pieces;
    apps::gpu_array<unsigned char> text;
    apps::gpu_array<staged_piece> pieces;
    apps::gpu_event copied, counted;

    bool allocate() {
        return cudaMallocHost(&host_text, batch_bytes) == cudaSuccess &&
               cudaMallocHost(&host_pieces, batch_jobs * sizeof(staged_piece)) == cudaSuccess &&
               cudaMalloc(&text, batch_bytes) == cudaSuccess &&
               cudaMalloc(&pieces, batch_jobs * sizeof(staged_piece)) == cudaSuccess &&
               cudaEventCreateWithFlags(&copied, cudaEventDisableTiming) == cudaSuccess &&
               cudaEventCreateWithFlags(&counted, cudaEventDisableTiming) == cudaSuccess;
    }
};

class staged_search {
public:
    staged_search(int device, std::uint32_t threads, const file_list& files)
        : device_(device), threads_(threads), files_(files.files) {}

    ~staged_search() { cudaSetDevice(device_); }

    status allocate() {
        if (cudaStreamCreateWithFlags(&copy_stream_, cudaStreamNonBlocking) == cudaSuccess &&
            cudaStreamCreateWithFlags(&count_stream_, cudaStreamNonBlocking) == cudaSuccess &&
            batches_[0].allocate() && batches_[1].allocate())
            return {};
        return {-ENOMEM, std::string("--method cuda: ") + cudaGetErrorString(cudaGetLastError()) +
                             "; free some memory of the GPU"};
    }

    status launch(const search_view& view, const std::vector<job>& jobs, std::uint64_t groups) {
        bool good = true;
        std::uint32_t first = 0;
        for (std::uint32_t turn = 0; good && first < jobs.size() && !was_interrupted(); ++turn)
            good = send(batches_[turn % 2], view, jobs, groups, first);
        const bool ended = cudaStreamSynchronize(count_stream_) == cudaSuccess;
        return good && ended ? status{} : apps::cuda_error();
    }

    // Whether jobs that need more text behind them get more by the next launch.
    bool look_further() {
        if (look_ahead_ == most_ahead) return false;
        look_ahead_ = std::min(look_ahead_ * 4, most_ahead);
        return true;
    }

private:
    static constexpr std::uint64_t most_ahead = batch_bytes / 2;

    // Reads a batch of the jobs from `first` on, which moves behind it, and leaves copy and count
    // to the streams. False: CUDA has an error.
    bool send(batch& b, const search_view& view, const std::vector<job>& jobs, std::uint64_t groups,
              std::uint32_t& first) {
        if (cudaEventSynchronize(b.counted) != cudaSuccess) return false;
        const std::uint32_t count = fill(b, view, jobs, first);
        if (cudaMemcpyAsync(b.text, b.host_text, filled_bytes_, cudaMemcpyHostToDevice,
                            copy_stream_) != cudaSuccess ||
            cudaMemcpyAsync(b.pieces, b.host_pieces, count * sizeof(staged_piece),
                            cudaMemcpyHostToDevice, copy_stream_) != cudaSuccess ||
            cudaEventRecord(b.copied, copy_stream_) != cudaSuccess ||
            cudaStreamWaitEvent(count_stream_, b.copied, 0) != cudaSuccess)
            return false;
        const auto blocks =
            static_cast<unsigned>((groups * 32 + threads_per_block - 1) / threads_per_block);
        count_staged<<<blocks, threads_per_block, 0, count_stream_>>>(
            view, static_cast<std::uint32_t>(groups), first, count, b.pieces, b.text);
        first += count;
        return cudaPeekAtLastError() == cudaSuccess &&
               cudaEventRecord(b.counted, count_stream_) == cudaSuccess;
    }

    // Lays jobs from `first` on out in the batch until it is full, and reads their text. Returns
    // how many.
    std::uint32_t fill(batch& b, const search_view& view, const std::vector<job>& jobs,
                       std::uint32_t first) {
        std::uint32_t count = 0;
        filled_bytes_ = 0;
        for (; first + count < jobs.size() && count < batch_jobs; ++count) {
            const job& j = jobs[first + count];
            const std::uint64_t size = files_[j.file].bytes;
            const std::uint64_t behind = view.longest_chained + 1,
                                ahead = window_margin + look_ahead_;
            const std::uint64_t begin = j.begin > behind ? j.begin - behind : 0;
            const std::uint64_t end =
                std::min(size, j.end + std::min(ahead, batch_bytes - (j.end - begin)));
            if (filled_bytes_ + (end - begin) > batch_bytes) break;
            b.host_pieces[count] = {filled_bytes_, begin, end, size, 0};
            filled_bytes_ += end - begin;
        }
        apps::on_pieces(threads_, count, 1, [&](std::uint32_t, std::uint64_t i, std::uint64_t) {
            staged_piece& piece = b.host_pieces[i];
            apps::unique_fd fd;
            const std::string& path = files_[jobs[first + i].file].path;
            piece.code = open_of_size(path.c_str(), piece.file_bytes, fd);
            if (piece.code == 0)
                piece.code = apps::read_all(fd, b.host_text + piece.text_at,
                                            piece.end - piece.begin, piece.begin);
            return status{};
        });
        return count;
    }

    int device_;
    std::uint32_t threads_;
    const std::vector<input_file>& files_;
    std::uint64_t look_ahead_ = 4096;
    std::uint64_t filled_bytes_ = 0;
    batch batches_[2];
    apps::gpu_stream copy_stream_, count_stream_;
};

}  // namespace

status make_cuda_search(int device, std::uint32_t threads, const file_list& files,
                        search_method& out) {
    if (status s = apps::use_gpu(device); !s) return s;
    const auto search = std::make_shared<staged_search>(device, threads, files);
    if (status s = search->allocate(); !s) return s;
    out.memory = apps::make_gpu_memory(device);
    out.groups =
        apps::resident_blocks(device, count_staged, threads_per_block) * (threads_per_block / 32);
    out.text_bytes = 0;  // text is scanned where it was staged
    out.least_piece = least_gpu_piece;
    out.launch = [search](const search_view& view, const std::vector<job>& jobs,
                          std::uint64_t groups) { return search->launch(view, jobs, groups); };
    out.look_further = [search] { return search->look_further(); };
    return {};
}

#else

status make_cuda_search(int, std::uint32_t, const file_list&, search_method&) {
    return apps::no_cuda();
}

#endif

}  // namespace penstock::grep
