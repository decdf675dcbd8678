// cuBLAS: the library as the methods see it, and the baseline that reads and copies for it.
//
// The baseline brings B to the GPU, whole; then the rows of A go through pinned memory chunk by
// chunk (common/staged_pipeline.cuh), are multiplied when they are there, and the rows of the
// result come back and are written while the next ones are multiplied.
#include <algorithm>
#include <cerrno>
#include <functional>

#include "common/files.hpp"
#include "common/message.hpp"
#include "common/threads.hpp"
#include "common/work_items.hpp"
#include "methods.hpp"
#if defined(__CUDACC__) && defined(PENSTOCK_WITH_CUBLAS)
#include <cublas_v2.h>

#include "common/staged_pipeline.cuh"
#endif

namespace penstock::matrix {

#if defined(__CUDACC__) && defined(PENSTOCK_WITH_CUBLAS)

namespace {

using apps::pieces_of;

class cublas final : public blas {
public:
    cublas() = default;
    ~cublas() override {
        if (handle_ != nullptr) cublasDestroy(handle_);
    }
    bool create() { return cublasCreate(&handle_) == CUBLAS_STATUS_SUCCESS; }
    status use(cudaStream_t stream) { return status_of(cublasSetStream(handle_, stream)); }
    // cuBLAS takes matrices column by column: row by row they are their transposes, and C^T is
    // B^T A^T.
    status multiply(const matrix_sizes& size, const float* a, const float* b, float* c) override {
        const auto m = static_cast<std::int64_t>(size.m), n = static_cast<std::int64_t>(size.n),
                   k = static_cast<std::int64_t>(size.k);
        const float unit = 1, zero = 0;
        const cublasStatus_t done =
            n == 1 ? cublasSgemv_64(handle_, CUBLAS_OP_T, k, m, &unit, a, k, b, 1, &zero, c, 1)
                   : cublasSgemm_64(handle_, CUBLAS_OP_N, CUBLAS_OP_N, n, m, k, &unit, b, n, a, k,
                                    &zero, c, n);
        return status_of(done);
    }
    [[nodiscard]] std::string name() const override { return "cuBLAS"; }

private:
    static status status_of(cublasStatus_t code) {
        if (code == CUBLAS_STATUS_SUCCESS) return {};
        return {-EIO,
                std::string("cuBLAS: ") + cublasGetStatusString(code) + "; use --method penstock"};
    }

    cublasHandle_t handle_ = nullptr;
};

// A file from front to back, in chunks of so many bytes, with each of which the same is done.
class file_work final : public apps::staged_work {
public:
    struct part {
        std::uint64_t begin, bytes;
    };
    // As staged_work::start and finish.
    using starter =
        std::function<bool(const part&, std::uint32_t room, const std::byte* there, cudaStream_t)>;
    using finisher = std::function<status(const part&, std::uint32_t room)>;

    file_work(const apps::number_file& file, int fd, std::uint64_t chunk_bytes, starter on_start,
              finisher on_finish)
        : file_(file),
          fd_(fd),
          chunk_bytes_(chunk_bytes),
          on_start_(std::move(on_start)),
          on_finish_(std::move(on_finish)) {}

    [[nodiscard]] std::uint64_t chunks() const { return pieces_of(file_.bytes, chunk_bytes_); }
    [[nodiscard]] std::uint64_t slices(std::uint64_t chunk) const override {
        return pieces_of(part_of(chunk).bytes, apps::slice_bytes);
    }
    status read(std::uint64_t chunk, std::uint64_t slice, std::byte* room,
                apps::slice_place& out) override {
        const part whole = part_of(chunk);
        const std::uint64_t begin = slice * apps::slice_bytes;
        out = {begin, std::min(apps::slice_bytes, whole.bytes - begin)};
        return apps::read_exactly(file_.path, fd_, room + begin, out.bytes, whole.begin + begin);
    }
    bool start(std::uint64_t chunk, std::uint32_t room, const std::byte* there,
               cudaStream_t stream) override {
        return on_start_(part_of(chunk), room, there, stream);
    }
    status finish(std::uint64_t chunk, std::uint32_t room) override {
        return on_finish_ ? on_finish_(part_of(chunk), room) : status{};
    }

private:
    [[nodiscard]] part part_of(std::uint64_t chunk) const {
        const std::uint64_t begin = chunk * chunk_bytes_;
        return {begin, std::min(chunk_bytes_, file_.bytes - begin)};
    }
    const apps::number_file& file_;
    int fd_;
    std::uint64_t chunk_bytes_;
    starter on_start_;
    finisher on_finish_;
};

// Where the rows of the result that a chunk of A makes are, on their way back. A handle of its own,
// since products of several streams under one handle would share its memory.
struct result_room {
    apps::gpu_array<float> there;
    apps::pinned_array<float> pinned;
    cublas library;

    bool allocate(std::uint64_t bytes) {
        return cudaMalloc(&there, bytes) == cudaSuccess &&
               cudaMallocHost(&pinned, bytes) == cudaSuccess && library.create();
    }
};

class staged_product {
public:
    staged_product(const matrix_job& job, int device) : job_(job), pipeline_(device) {}

    status prepare() {
        // A product of matrices needs many rows at a time to keep all of the GPU at work.
        constexpr std::uint64_t product_chunk_bytes = 4 * apps::chunk_bytes;
        const std::uint64_t most =
            job_.shape == product_shape::vector ? apps::chunk_bytes : product_chunk_bytes;
        chunk_rows_ = rows_within(job_.size, most, most);
        const std::uint64_t room_bytes =
            std::max(chunk_rows_ * job_.size.k * sizeof(float),
                     std::min<std::uint64_t>(apps::chunk_bytes, job_.b.bytes));
        if (status s =
                pipeline_.allocate(room_bytes, apps::thread_count(job_.settings.worker_threads));
            !s)
            return s;
        bool fits = cudaMalloc(&b_, job_.b.bytes) == cudaSuccess;
        for (result_room& room : rooms_)
            fits = fits && room.allocate(chunk_rows_ * job_.size.n * sizeof(float));
        if (!fits) {
            cudaGetLastError();
            return apps::failure(-ENOMEM, "--method cuda: the GPU has no room for B, ",
                                 format_size(job_.b.bytes),
                                 ", and some rows of A and of the result; free some memory of the "
                                 "GPU, or use --method penstock");
        }
        if (status s = apps::open_to_read(job_.a.path, "a file of numbers", a_file_); !s) return s;
        return apps::open_to_read(job_.b.path, "a file of numbers", b_file_);
    }

    status run() {
        using part = file_work::part;
        const auto to_b = [&](const part& of, std::uint32_t, const std::byte* there,
                              cudaStream_t stream) {
            return cudaMemcpyAsync(b_ + of.begin, there, of.bytes, cudaMemcpyDeviceToDevice,
                                   stream) == cudaSuccess;
        };
        file_work b(job_.b, b_file_, apps::chunk_bytes, to_b, {});
        if (status s = pipeline_.run(b, b.chunks()); !s) return s;
        const auto& [m, n, k] = job_.size;
        const std::uint64_t a_row = k * sizeof(float), c_row = n * sizeof(float);
        status refused;  // by cuBLAS, of whose errors CUDA knows nothing; one start() at a time
        const auto multiply = [&](const part& of, std::uint32_t number, const std::byte* there,
                                  cudaStream_t stream) {
            result_room& room = rooms_[number];
            const std::uint64_t rows = of.bytes / a_row;
            status done = room.library.use(stream);
            if (done)
                done = room.library.multiply({rows, n, k}, reinterpret_cast<const float*>(there),
                                             reinterpret_cast<const float*>(b_ + 0), room.there);
            if (refused.ok()) refused = done;
            return done.ok() && cudaMemcpyAsync(room.pinned, room.there, rows * c_row,
                                                cudaMemcpyDeviceToHost, stream) == cudaSuccess;
        };
        const auto write = [&](const part& of, std::uint32_t number) {
            return job_.result->write_at(rooms_[number].pinned, of.bytes / a_row * c_row,
                                         of.begin / a_row * c_row);
        };
        file_work a(job_.a, a_file_, chunk_rows_ * a_row, multiply, write);
        const status ended = pipeline_.run(a, a.chunks());
        return ended.ok() || refused.ok() ? ended : refused;
    }

    [[nodiscard]] std::string note() const {
        return apps::words("cuBLAS, ", std::to_string(pipeline_.threads()),
                           " threads read chunks of ", chunk_rows_, " rows of A");
    }

private:
    const matrix_job& job_;
    apps::staged_pipeline pipeline_;
    result_room rooms_[apps::chunks_under_way];
    apps::unique_fd a_file_, b_file_;
    apps::gpu_array<std::byte> b_;
    std::uint64_t chunk_rows_ = 1;
};

}  // namespace

status make_cublas(const std::string& asked_by, int device, std::unique_ptr<blas>& out) {
    auto made = std::make_unique<cublas>();
    if (cudaSetDevice(device) != cudaSuccess || !made->create()) {
        cudaGetLastError();
        return {-ENODEV, asked_by + ": cuBLAS does not start on GPU " + std::to_string(device) +
                             "; free some memory of the GPU, or use --method penstock"};
    }
    out = std::move(made);
    return {};
}

status multiply_with_cuda(const matrix_job& job, method_report& report) {
    apps::stopwatch watch;
    const int device = job.settings.device;
    if (status s = apps::use_gpu(device); !s) return s;
    staged_product all(job, device);
    if (status s = all.prepare(); !s) return s;
    report.backend = "gpu";
    report.note = all.note();
    report.start_seconds = watch.lap();
    report.bytes_read = job.repeats * (job.a.bytes + job.b.bytes);
    return apps::repeat_timed(job.repeats, report, [&] { return all.run(); });
}

#else

status make_cublas(const std::string& asked_by, int, std::unique_ptr<blas>&) {
    return {-ENODEV, asked_by +
                         ": this program was built without cuBLAS, a part of CUDA; use "
                         "--method penstock or cpu"};
}

status multiply_with_cuda(const matrix_job&, method_report&) {
    std::unique_ptr<blas> none;
    return make_cublas("--method cuda", 0, none);
}

#endif

}  // namespace penstock::matrix
