// Baseline: plain CUDA. A panel of B's columns goes to the GPU, as wide as there is room; then the
// rows of A go through pinned memory chunk by chunk (common/staged_pipeline.cuh), are multiplied
// when they are there, by the code of the method penstock, and the rows of the result come back and
// are written while the next ones are multiplied.
#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include "common/message.hpp"
#include "common/report_text.hpp"
#include "common/threads.hpp"
#include "common/files.hpp"
#include "methods.hpp"
#if defined(__CUDACC__)
#include "block_multiply.cuh"
#include "common/resident_blocks.cuh"
#include "common/staged_pipeline.cuh"
#endif

namespace penstock::matmul {

#if defined(__CUDACC__)

namespace {

using apps::cuda_error;

// Matrices in device memory, one row behind the other.
struct staged_matrices {
    const float* a;
    const float* b;
    std::uint64_t a_columns, b_columns;

    struct held {};

    PENSTOCK_D PENSTOCK_INLINE bool find(const block& g, const tile_place& at, std::uint64_t first,
                                         std::uint32_t, held&) const {
        for (std::uint32_t i = threadIdx.x; i < table_rows; i += block_threads) {
            const float* const row =
                i < block_tile.rows ? a + (at.row + i) * a_columns + first
                                    : b + (first + (i - block_tile.rows)) * b_columns + at.column;
            shared_state().set(i, {row, nullptr, row_run::no_split});
        }
        g.sync();  // the table is there
        return true;
    }
    PENSTOCK_D PENSTOCK_INLINE void release(held&) const {}
};

__global__ void multiply_chunk(const __grid_constant__ matmul_view view, staged_matrices matrices,
                               float* to) {
    const auto write = [&](const tile_place& at, const float* totals) {
        for (std::uint32_t i = 0; i < 64; ++i) {
            const std::uint32_t row = place_of_sum(thread_down(), i / 8),
                                column = place_of_sum(thread_across(), i % 8);
            if (row < at.rows && column < at.columns)
                to[(at.row + row) * view.n + at.column + column] = totals[i];
        }
    };
    multiply_tiles_on_block(
        this_block(), matrices, view, [] { return false; }, write);
}

// An open file, closed at the end.
struct input {
    int fd = -1;

    input() = default;
    input(const input&) = delete;
    input& operator=(const input&) = delete;
    ~input() {
        if (fd >= 0) ::close(fd);
    }
    status open(const apps::number_file& file) {
        fd = ::open(file.path.c_str(), O_RDONLY | O_CLOEXEC);
        return fd >= 0 ? status{}
                       : status{-errno, apps::shown(file.path) + ": " + error_text(-errno) +
                                            "; name a file of numbers that can be read"};
    }
};

// Columns of the result that are made at a time.
struct panel {
    std::uint64_t first, columns;
};

// B's part of a panel to device memory.
class b_work final : public apps::staged_work {
public:
    b_work(const matmul_job& job, int fd, const panel& at, float* to)
        : job_(job), fd_(fd), at_(at), to_(to) {}

    static std::uint64_t rows_in(std::uint64_t bytes, std::uint64_t columns) {
        return std::max<std::uint64_t>(bytes / (columns * sizeof(float)), 1);
    }
    static std::uint64_t chunk_rows(const matmul_job& job, std::uint64_t columns) {
        return std::min(rows_in(apps::chunk_bytes, columns), job.k);
    }
    [[nodiscard]] std::uint64_t chunks() const {
        return pieces_of(job_.k, chunk_rows(job_, at_.columns));
    }

    [[nodiscard]] std::uint64_t slices(std::uint64_t chunk) const override {
        return pieces_of(rows_of(chunk), rows_in(apps::slice_bytes, at_.columns));
    }
    status read(std::uint64_t chunk, std::uint64_t slice, std::byte* room,
                apps::slice_place& out) override {
        const std::uint64_t step = rows_in(apps::slice_bytes, at_.columns), begin = slice * step,
                            rows = std::min(step, rows_of(chunk) - begin);
        const std::uint64_t row_bytes = at_.columns * sizeof(float),
                            first = chunk * chunk_rows(job_, at_.columns) + begin;
        out = {begin * row_bytes, rows * row_bytes};
        const bool whole = at_.columns == job_.n;  // then rows follow each other
        for (std::uint64_t i = 0; i < rows; i += whole ? rows : 1)
            if (status s = apps::read_exactly(job_.b.path, fd_, room + out.offset + i * row_bytes,
                                              whole ? out.bytes : row_bytes,
                                              ((first + i) * job_.n + at_.first) * sizeof(float));
                !s)
                return s;
        return {};
    }
    bool start(std::uint64_t chunk, std::uint32_t, const std::byte* there,
               cudaStream_t stream) override {
        return cudaMemcpyAsync(to_ + chunk * chunk_rows(job_, at_.columns) * at_.columns, there,
                               rows_of(chunk) * at_.columns * sizeof(float),
                               cudaMemcpyDeviceToDevice, stream) == cudaSuccess;
    }

private:
    [[nodiscard]] std::uint64_t rows_of(std::uint64_t chunk) const {
        const std::uint64_t step = chunk_rows(job_, at_.columns);
        return std::min(step, job_.k - chunk * step);
    }
    const matmul_job& job_;
    int fd_;
    panel at_;
    float* to_;
};

// Where the rows of the result that a chunk of A makes are, on their way back.
struct result_room {
    float* there = nullptr;
    float* pinned = nullptr;
    apps::work_totals* totals = nullptr;

    result_room() = default;
    result_room(const result_room&) = delete;
    result_room& operator=(const result_room&) = delete;
    ~result_room() {
        cudaFree(there);
        cudaFree(totals);
        cudaFreeHost(pinned);
    }
    bool allocate(std::uint64_t bytes) {
        return cudaMalloc(&there, bytes) == cudaSuccess &&
               cudaMalloc(&totals, sizeof *totals) == cudaSuccess &&
               cudaMallocHost(&pinned, bytes) == cudaSuccess;
    }
};

// All rows of A with a panel.
class a_work final : public apps::staged_work {
public:
    a_work(const matmul_job& job, int fd, const panel& at, const float* b, std::uint64_t chunk_rows,
           unsigned blocks, result_room* rooms)
        : job_(job),
          fd_(fd),
          at_(at),
          b_(b),
          chunk_rows_(chunk_rows),
          blocks_(blocks),
          rooms_(rooms) {}

    [[nodiscard]] std::uint64_t chunks() const { return pieces_of(job_.m, chunk_rows_); }
    [[nodiscard]] std::uint64_t slices(std::uint64_t chunk) const override {
        return pieces_of(rows_of(chunk) * job_.k * sizeof(float), apps::slice_bytes);
    }
    status read(std::uint64_t chunk, std::uint64_t slice, std::byte* room,
                apps::slice_place& out) override {
        const std::uint64_t begin = slice * apps::slice_bytes;
        out = {begin, std::min(apps::slice_bytes, rows_of(chunk) * job_.k * sizeof(float) - begin)};
        return apps::read_exactly(job_.a.path, fd_, room + begin, out.bytes,
                                  chunk * chunk_rows_ * job_.k * sizeof(float) + begin);
    }
    bool start(std::uint64_t chunk, std::uint32_t number, const std::byte* there,
               cudaStream_t stream) override {
        const result_room& room = rooms_[number];
        const matmul_view view{rows_of(chunk), at_.columns, job_.k, nullptr, room.totals};
        if (cudaMemsetAsync(room.totals, 0, sizeof *room.totals, stream) != cudaSuccess)
            return false;
        const auto blocks =
            static_cast<unsigned>(std::min<std::uint64_t>(view.tile_count(block_tile), blocks_));
        multiply_chunk<<<blocks, block_threads, 0, stream>>>(
            view, staged_matrices{reinterpret_cast<const float*>(there), b_, job_.k, at_.columns},
            room.there);
        return cudaGetLastError() == cudaSuccess &&
               cudaMemcpyAsync(room.pinned, room.there, view.m * view.n * sizeof(float),
                               cudaMemcpyDeviceToHost, stream) == cudaSuccess;
    }
    status finish(std::uint64_t chunk, std::uint32_t number) override {
        const std::uint64_t rows = rows_of(chunk), first = chunk * chunk_rows_;
        const float* const from = rooms_[number].pinned;
        if (at_.columns == job_.n)
            return job_.result->write_at(from, rows * job_.n * sizeof(float),
                                         first * job_.n * sizeof(float));
        for (std::uint64_t i = 0; i < rows; ++i)
            if (status s =
                    job_.result->write_at(from + i * at_.columns, at_.columns * sizeof(float),
                                          ((first + i) * job_.n + at_.first) * sizeof(float));
                !s)
                return s;
        return {};
    }

private:
    [[nodiscard]] std::uint64_t rows_of(std::uint64_t chunk) const {
        return std::min(chunk_rows_, job_.m - chunk * chunk_rows_);
    }
    const matmul_job& job_;
    int fd_;
    panel at_;
    const float* b_;
    std::uint64_t chunk_rows_;
    unsigned blocks_;
    result_room* rooms_;
};

class cuda_product {
public:
    cuda_product(const matmul_job& job, int device)
        : job_(job), device_(device), memory_(apps::make_gpu_memory(device)), pipeline_(device) {}

    status prepare() {
        const std::uint64_t budget = job_.settings.cache_bytes.value_or(memory_->free_bytes() / 2);
        const std::uint64_t fit =
            budget / (job_.k * sizeof(float)) / block_tile.columns * block_tile.columns;
        panel_columns_ = std::min(std::max<std::uint64_t>(fit, block_tile.columns), job_.n);
        // Of A and of the result a chunk each.
        const std::uint64_t row_bytes = std::max(job_.k, panel_columns_) * sizeof(float);
        chunk_rows_ = std::min(
            std::max<std::uint64_t>(
                apps::chunk_bytes / row_bytes / block_tile.rows * block_tile.rows, block_tile.rows),
            job_.m);
        const std::uint64_t room_floats = std::max(
            chunk_rows_ * job_.k, b_work::chunk_rows(job_, panel_columns_) * panel_columns_);
        if (status s = pipeline_.allocate(room_floats * sizeof(float),
                                          apps::thread_count(job_.settings.worker_threads));
            !s)
            return s;
        bool fits = memory_->allocate(b_, job_.k * panel_columns_);
        for (result_room& room : rooms_)
            fits = fits && room.allocate(chunk_rows_ * panel_columns_ * sizeof(float));
        if (!fits)
            return {-ENOMEM, std::string("--method cuda: ") +
                                 cudaGetErrorString(cudaGetLastError()) +
                                 "; free some memory of the GPU, or give a smaller --cache"};
        blocks_ =
            static_cast<unsigned>(apps::resident_blocks(device_, multiply_chunk, block_threads));
        if (status s = a_file_.open(job_.a); !s) return s;
        return b_file_.open(job_.b);
    }

    status run() {
        for (std::uint64_t first = 0; first < job_.n; first += panel_columns_) {
            const panel at{first, std::min(panel_columns_, job_.n - first)};
            b_work b(job_, b_file_.fd, at, b_);
            if (status s = pipeline_.run(b, b.chunks()); !s) return s;
            a_work a(job_, a_file_.fd, at, b_, chunk_rows_, blocks_, rooms_);
            if (status s = pipeline_.run(a, a.chunks()); !s) return s;
        }
        return {};
    }

    [[nodiscard]] std::uint64_t panels() const { return pieces_of(job_.n, panel_columns_); }
    [[nodiscard]] std::string note() const {
        return std::to_string(pipeline_.threads()) + " threads read; " + std::to_string(panels()) +
               " panels of B of up to " + format_size(job_.k * panel_columns_ * sizeof(float)) +
               ", chunks of " + std::to_string(chunk_rows_) + " rows of A";
    }

private:
    const matmul_job& job_;
    int device_;
    std::unique_ptr<apps::device_memory> memory_;
    apps::staged_pipeline pipeline_;
    result_room rooms_[apps::chunks_under_way];
    input a_file_, b_file_;
    float* b_ = nullptr;
    std::uint64_t panel_columns_ = 1, chunk_rows_ = 1;
    unsigned blocks_ = 1;
};

}  // namespace

status multiply_with_cuda(const matmul_job& job, method_report& report) {
    apps::stopwatch watch;
    const int device = job.settings.device;
    if (status s = apps::use_gpu(device); !s) return s;
    cuda_product all(job, device);
    if (status s = all.prepare(); !s) return s;
    report.backend = "gpu";
    report.note = all.note();
    report.start_seconds = watch.lap();
    report.bytes_read = job.repeats * (job.b.bytes + all.panels() * job.a.bytes);
    return apps::repeat_timed(job.repeats, report, [&] { return all.run(); });
}

#else

status multiply_with_cuda(const matmul_job&, method_report&) { return apps::no_cuda(); }

#endif

}  // namespace penstock::matmul
