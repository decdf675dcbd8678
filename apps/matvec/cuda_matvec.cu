// Baseline: plain CUDA. The matrix goes through pinned memory chunk by chunk
// (common/staged_pipeline.cuh), and the sums of a chunk are made when it is there, by the code of
// the method penstock.
#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>
#include <vector>

#include "common/message.hpp"
#include "common/report_text.hpp"
#include "common/threads.hpp"
#include "common/files.hpp"
#include "methods.hpp"
#include "sum_items.hpp"
#if defined(__CUDACC__)
#include "common/resident_blocks.cuh"
#include "common/staged_pipeline.cuh"
#endif

namespace penstock::matvec {

#if defined(__CUDACC__)

namespace {

constexpr int block_threads = 256;

__global__ void sum_chunk(const __grid_constant__ matvec_view view, numbers_in_memory numbers,
                          std::uint64_t first, std::uint64_t end) {
    const warp g = this_warp();
    for (std::uint64_t item = first + (std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32;
         item < end; item += std::uint64_t{gridDim.x} * blockDim.x / 32)
        sum_item(g, numbers, view, place_of(view, item));
}

__global__ void sum_segments(const __grid_constant__ matvec_view view) {
    const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x / 32;
    for (std::uint64_t row = (std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32;
         row < view.rows; row += step)
        add_segments(this_warp(), view, {row, row + 1});
}

class cuda_product final : public apps::staged_work {
public:
    cuda_product(const matvec_job& job, int device)
        : job_(job), device_(device), memory_(apps::make_gpu_memory(device)), pipeline_(device) {}
    ~cuda_product() override {
        if (file_ >= 0) ::close(file_);
    }
    cuda_product(const cuda_product&) = delete;
    cuda_product& operator=(const cuda_product&) = delete;

    status prepare() {
        if (status s = memory_.place(job_); !s) return s;
        const matvec_view& v = memory_.view();
        const std::uint64_t item = v.segments == 1 ? v.item_rows * v.columns : segment_columns;
        chunk_items_ = std::max<std::uint64_t>(apps::chunk_bytes / sizeof(float) / item, 1);
        // Numbers lie in a room as in the file, modulo 512 bytes.
        const std::uint64_t room_bytes =
            std::min(chunk_items_ * item, v.rows * v.columns) * sizeof(float) + phase_bytes;
        if (status s =
                pipeline_.allocate(room_bytes, apps::thread_count(job_.settings.worker_threads));
            !s)
            return s;
        most_blocks_ = apps::resident_blocks(device_, sum_chunk, block_threads);
        x_.resize(v.columns);
        y_.resize(v.rows);
        file_ = ::open(job_.matrix.path.c_str(), O_RDONLY | O_CLOEXEC);
        return file_ >= 0
                   ? status{}
                   : status{-errno, apps::shown(job_.matrix.path) + ": " + error_text(-errno) +
                                        "; name a file of numbers that can be read"};
    }

    status run() {
        const int vector = ::open(job_.vector.path.c_str(), O_RDONLY | O_CLOEXEC);
        if (vector < 0)
            return {-errno, apps::shown(job_.vector.path) + ": " + error_text(-errno) +
                                "; name a file of numbers that can be read"};
        const status read =
            apps::read_exactly(job_.vector.path, vector, x_.data(), job_.vector.bytes, 0);
        ::close(vector);
        if (!read) return read;
        if (status s = memory_.upload_vector(x_.data()); !s) return s;
        if (status s = pipeline_.run(*this, chunk_count()); !s) return s;
        return write_result();
    }

    [[nodiscard]] std::uint64_t slices(std::uint64_t chunk) const override {
        const chunk_place at = place_of_chunk(chunk);
        return pieces_of(at.end_byte - at.begin_byte, apps::slice_bytes);
    }
    status read(std::uint64_t chunk, std::uint64_t slice, std::byte* room,
                apps::slice_place& out) override {
        const chunk_place at = place_of_chunk(chunk);
        const std::uint64_t begin = slice * apps::slice_bytes;
        out = {at.phase() + begin,
               std::min(apps::slice_bytes, at.end_byte - at.begin_byte - begin)};
        return apps::read_exactly(job_.matrix.path, file_, room + out.offset, out.bytes,
                                  at.begin_byte + begin);
    }
    bool start(std::uint64_t chunk, std::uint32_t, const std::byte* there,
               cudaStream_t stream) override {
        const chunk_place at = place_of_chunk(chunk);
        const numbers_in_memory numbers{reinterpret_cast<const float*>(there + at.phase()),
                                        at.begin_byte / sizeof(float)};
        sum_chunk<<<blocks_for(at.end - at.first), block_threads, 0, stream>>>(
            memory_.view(), numbers, at.first, at.end);
        return cudaGetLastError() == cudaSuccess;
    }

    [[nodiscard]] std::string note() const {
        return std::to_string(pipeline_.threads()) + " threads read " +
               std::to_string(chunk_count()) + " chunks of up to " + format_size(apps::chunk_bytes);
    }

private:
    static constexpr std::uint64_t phase_bytes = part_count * sizeof(float);

    // Items [first, end) and their bytes of the file.
    struct chunk_place {
        std::uint64_t first, end, begin_byte, end_byte;

        // Where the first byte lies in the room.
        [[nodiscard]] std::uint64_t phase() const { return begin_byte % phase_bytes; }
    };
    [[nodiscard]] chunk_place place_of_chunk(std::uint64_t chunk) const {
        const matvec_view& v = memory_.view();
        const std::uint64_t first = chunk * chunk_items_,
                            end = std::min(first + chunk_items_, v.item_count());
        return {first, end, place_of(v, first).elements(v.columns).begin * sizeof(float),
                place_of(v, end - 1).elements(v.columns).end * sizeof(float)};
    }
    [[nodiscard]] std::uint64_t chunk_count() const {
        return pieces_of(memory_.view().item_count(), chunk_items_);
    }
    // A warp for each, as far as they fit on the GPU at once.
    [[nodiscard]] unsigned blocks_for(std::uint64_t warps) const {
        return static_cast<unsigned>(std::min(pieces_of(warps, block_threads / 32), most_blocks_));
    }

    // Sums of segments, and the result to its file.
    status write_result() {
        const matvec_view& v = memory_.view();
        if (v.segments != 1) {
            sum_segments<<<blocks_for(v.rows), block_threads>>>(v);
            if (cudaGetLastError() != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess)
                return apps::cuda_error();
        }
        if (status s = memory_.download_result(y_.data()); !s) return s;
        apps::first_error errors;
        const std::uint64_t bytes = v.rows * sizeof(float),
                            part = pieces_of(pieces_of(bytes, pipeline_.threads()),
                                             apps::slice_bytes) *
                                   apps::slice_bytes;
        apps::on_threads(static_cast<std::uint32_t>(pieces_of(bytes, part)), [&](std::uint32_t i) {
            errors.note(job_.result->write_at(reinterpret_cast<const char*>(y_.data()) + i * part,
                                              std::min(part, bytes - i * part), i * part));
        });
        return errors.get();
    }

    const matvec_job& job_;
    int device_;
    matvec_memory memory_;
    apps::staged_pipeline pipeline_;
    std::vector<float> x_, y_;
    std::uint64_t chunk_items_ = 1, most_blocks_ = 1;
    int file_ = -1;
};

}  // namespace

status multiply_with_cuda(const matvec_job& job, method_report& report) {
    apps::stopwatch watch;
    const int device = job.settings.device;
    if (status s = apps::use_gpu(device); !s) return s;
    cuda_product all(job, device);
    if (status s = all.prepare(); !s) return s;
    report.backend = "gpu";
    report.note = all.note();
    report.start_seconds = watch.lap();
    report.bytes_read = job.repeats * job.matrix.bytes;
    return apps::repeat_timed(job.repeats, report, [&] { return all.run(); });
}

#else

status multiply_with_cuda(const matvec_job&, method_report&) { return apps::no_cuda(); }

#endif

}  // namespace penstock::matvec
