// Baseline: the GPU counts, the host reads. Text goes through two pinned buffers, so that reading
// and copying one batch overlaps with counting the other.
#include <algorithm>
#include <atomic>
#include <cerrno>

#include "common/threads.hpp"
#include "count_job.hpp"
#include "pread_source.hpp"
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
        // -EAGAIN: a chain leads out of the staged text; the host stages the job again, with more
        // behind it.
        if (piece.end < piece.file_bytes && piece.end < to + window_margin) return -EAGAIN;
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

class cuda_search final : public search_method {
public:
    cuda_search(int device, std::uint32_t threads)
        : search_method(apps::make_gpu_memory(device)), device_(device), threads_(threads) {}

    ~cuda_search() override { cudaSetDevice(device_); }

    status set_up(const file_list* files) {
        files_ = files;
        if (cudaSetDevice(device_) != cudaSuccess)
            return {-ENODEV, "--method cuda: no usable GPU; use --method cpu"};
        if (cudaStreamCreateWithFlags(&copy_stream_, cudaStreamNonBlocking) == cudaSuccess &&
            cudaStreamCreateWithFlags(&count_stream_, cudaStreamNonBlocking) == cudaSuccess &&
            batches_[0].allocate() && batches_[1].allocate())
            return {};
        return {-ENOMEM, std::string("--method cuda: ") + cudaGetErrorString(cudaGetLastError()) +
                             "; free some memory of the GPU"};
    }

private:
    status launch(const search_view& view, const std::vector<job>& jobs,
                  std::uint64_t groups) override {
        // A launch after the first may be for jobs that need more text behind them.
        if (launched_ && view.chained_count != 0)
            look_ahead_ = std::min(look_ahead_ * 4, batch_bytes / 2);
        launched_ = true;
        const auto blocks =
            static_cast<unsigned>((groups * 32 + threads_per_block - 1) / threads_per_block);
        cudaError_t code = cudaSuccess;
        std::uint32_t turn = 0;
        for (std::uint32_t first = 0;
             first < jobs.size() && code == cudaSuccess && !was_interrupted(); ++turn) {
            batch& b = batches_[turn % 2];
            code = cudaEventSynchronize(b.counted);
            const std::uint32_t count = fill(b, view, jobs, first);
            const std::uint64_t bytes = filled_bytes_;
            if (code == cudaSuccess)
                code = cudaMemcpyAsync(b.text, b.host_text, bytes, cudaMemcpyHostToDevice,
                                       copy_stream_);
            if (code == cudaSuccess)
                code = cudaMemcpyAsync(b.pieces, b.host_pieces, count * sizeof(staged_piece),
                                       cudaMemcpyHostToDevice, copy_stream_);
            if (code == cudaSuccess) code = cudaEventRecord(b.copied, copy_stream_);
            if (code == cudaSuccess) code = cudaStreamWaitEvent(count_stream_, b.copied, 0);
            if (code != cudaSuccess) break;
            count_staged<<<blocks, threads_per_block, 0, count_stream_>>>(
                view, static_cast<std::uint32_t>(groups), first, count, b.pieces, b.text);
            code = cudaGetLastError();
            if (code == cudaSuccess) code = cudaEventRecord(b.counted, count_stream_);
            first += count;
        }
        const cudaError_t ended = cudaStreamSynchronize(count_stream_);
        if (code == cudaSuccess) code = ended;
        if (was_interrupted()) return {-ECANCELED, error_text(-ECANCELED)};
        return code == cudaSuccess
                   ? status{}
                   : status{-EIO, std::string("--method cuda: ") + cudaGetErrorString(code)};
    }

    // Lays jobs from `first` on out in the batch until it is full, and reads their text. Returns
    // how many.
    std::uint32_t fill(batch& b, const search_view& view, const std::vector<job>& jobs,
                       std::uint32_t first) {
        std::uint32_t count = 0;
        filled_bytes_ = 0;
        for (; first + count < jobs.size() && count < batch_jobs; ++count) {
            const job& j = jobs[first + count];
            const std::uint64_t size = files_->files[j.file].bytes;
            const std::uint64_t behind = view.longest_chained + 1,
                                ahead = window_margin + look_ahead_;
            const std::uint64_t begin = j.begin > behind ? j.begin - behind : 0;
            const std::uint64_t end =
                std::min(size, j.end + std::min(ahead, batch_bytes - (j.end - begin)));
            if (filled_bytes_ + (end - begin) > batch_bytes) break;
            b.host_pieces[count] = {filled_bytes_, begin, end, size, 0};
            filled_bytes_ += end - begin;
        }
        std::atomic<std::uint32_t> next{0};
        const auto read_pieces = [&](std::uint32_t) {
            for (std::uint32_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) {
                staged_piece& piece = b.host_pieces[i];
                const plain_file file(files_->files[jobs[first + i].file].path.c_str(),
                                      piece.file_bytes);
                piece.code = file.code() != 0 ? file.code()
                                              : file.read(b.host_text + piece.text_at,
                                                          piece.end - piece.begin, piece.begin);
            }
        };
        apps::on_threads(threads_, read_pieces);
        return count;
    }

    int device_;
    std::uint32_t threads_;
    const file_list* files_ = nullptr;
    std::uint64_t look_ahead_ = 4096;
    bool launched_ = false;
    std::uint64_t filled_bytes_ = 0;
    batch batches_[2];
    apps::gpu_stream copy_stream_, count_stream_;
};

}  // namespace

status make_cuda_search(int device, std::uint32_t threads, const file_list& files,
                        std::unique_ptr<search_method>& out, search_limits& limits) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || device >= devices ||
        cudaSetDevice(device) != cudaSuccess) {
        cudaGetLastError();
        return {-ENODEV, "--method cuda: there is no GPU " + std::to_string(device) +
                             " here; use --method cpu"};
    }
    auto search = std::make_unique<cuda_search>(device, threads);
    if (status s = search->set_up(&files); !s) return s;
    limits = {};
    limits.groups =
        apps::resident_blocks(device, count_staged, threads_per_block) * (threads_per_block / 32);
    limits.text_bytes = 0;  // text is scanned where it was staged
    out = std::move(search);
    return {};
}

#else

status make_cuda_search(int, std::uint32_t, const file_list&, std::unique_ptr<search_method>&,
                        search_limits&) {
    return {-ENODEV,
            "--method cuda: this program was built without CUDA; use --method penstock or cpu"};
}

#endif

}  // namespace penstock::grep
