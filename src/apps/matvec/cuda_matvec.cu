// Baseline: plain CUDA. Threads read slices of a chunk of the matrix into pinned memory and copy each as soon as it is read; who
// copied the last slice starts the sums of the chunk. Chunks have streams of their own, so reading, copying and sums overlap. The sums are
// those of the method penstock.
#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <unistd.h>
#include <vector>

#include "common/message.hpp"
#include "common/stopwatch.hpp"
#include "common/threads.hpp"
#include "common/whole_file.hpp"
#include "matvec_memory.hpp"
#include "methods.hpp"
#include "sum_items.hpp"

namespace penstock::matvec {

#if defined(__CUDACC__)

namespace {

constexpr std::uint64_t chunk_bytes = 64u << 20;
constexpr std::uint64_t slice_bytes = 4u << 20;
constexpr std::uint32_t rooms = 4;  // chunks under way: some are read, one is copied, one summed
constexpr int block_threads = 256;

__global__ void sum_chunk(const __grid_constant__ matvec_view view, numbers_in_memory numbers, std::uint64_t first, std::uint64_t end) {
    const warp g = this_warp();
    for (std::uint64_t item = first + (std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32; item < end; item += std::uint64_t{gridDim.x} * blockDim.x / 32)
        sum_item(g, numbers, view, place_of(view, item));
}

__global__ void sum_segments(const __grid_constant__ matvec_view view) {
    const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x / 32;
    for (std::uint64_t row = (std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32; row < view.rows; row += step)
        add_segments(this_warp(), view, {row, row + 1});
}

status broken() { return {-EIO, std::string("--method cuda: ") + cudaGetErrorString(cudaGetLastError()) + "; is the GPU in order?"}; }

// A place for a chunk, in pinned and in device memory.
struct chunk_room {
    std::byte* pinned = nullptr;
    std::byte* there = nullptr;
    cudaStream_t stream = nullptr;
    cudaEvent_t summed = nullptr;
    std::uint64_t started = 0;      // 1 + number of the last chunk whose sums were started; guarded by the pipeline's mutex
    std::uint64_t chunk = 0;        // 1 + number of the one that is in it; guarded too
    std::uint64_t slices_left = 0;  // of it

    chunk_room() = default;
    chunk_room(const chunk_room&) = delete;
    chunk_room& operator=(const chunk_room&) = delete;
    ~chunk_room() {
        cudaFreeHost(pinned);
        cudaFree(there);
        if (summed != nullptr) cudaEventDestroy(summed);
        if (stream != nullptr) cudaStreamDestroy(stream);
    }
    bool allocate(std::uint64_t bytes) {
        return cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess &&
               cudaEventCreateWithFlags(&summed, cudaEventDisableTiming) == cudaSuccess && cudaMallocHost(&pinned, bytes) == cudaSuccess &&
               cudaMalloc(&there, bytes) == cudaSuccess;
    }
};

// Items [first, end) and their bytes of the file.
struct chunk_place {
    std::uint64_t first, end, begin_byte, end_byte;

    [[nodiscard]] std::uint64_t slices() const { return pieces_of(end_byte - begin_byte, slice_bytes); }
};

class pipeline {
public:
    explicit pipeline(int device) : device_(device), memory_(apps::make_gpu_memory(device)) {}
    ~pipeline() {
        if (file_ >= 0) ::close(file_);
    }
    pipeline(const pipeline&) = delete;
    pipeline& operator=(const pipeline&) = delete;

    status prepare(const matvec_job& job) {
        threads_ = apps::thread_count(job.settings.worker_threads);
        if (status s = memory_.place(job); !s) return s;
        const matvec_view& v = memory_.view();
        const std::uint64_t item = v.segments == 1 ? v.item_rows * v.columns : segment_columns;
        chunk_items_ = std::max<std::uint64_t>(chunk_bytes / sizeof(float) / item, 1);
        // Numbers lie in a room as in the file, modulo 512 bytes.
        const std::uint64_t room_bytes = std::min(chunk_items_ * item, v.rows * v.columns) * sizeof(float) + part_count * sizeof(float);
        for (chunk_room& room : rooms_)
            if (!room.allocate(room_bytes))
                return {-ENOMEM, std::string("--method cuda: ") + cudaGetErrorString(cudaGetLastError()) + "; free some memory of the GPU"};
        int multiprocessors = 1, resident = 1;
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device_);
        // Asking how many fit also loads the kernel, before the clock runs.
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, sum_chunk, block_threads, 0);
        most_blocks_ = static_cast<std::uint64_t>(multiprocessors * std::max(1, resident));
        x_.resize(v.columns);
        y_.resize(v.rows);
        file_ = ::open(job.matrix.path.c_str(), O_RDONLY | O_CLOEXEC);
        return file_ >= 0 ? status{} : status{-errno, apps::shown(job.matrix.path) + ": " + error_text(-errno) + "; name a file of numbers that can be read"};
    }

    status run(const matvec_job& job) {
        const int vector = ::open(job.vector.path.c_str(), O_RDONLY | O_CLOEXEC);
        if (vector < 0) return {-errno, apps::shown(job.vector.path) + ": " + error_text(-errno) + "; name a file of numbers that can be read"};
        status read = apps::read_exactly(job.vector.path, vector, x_.data(), job.vector.bytes, 0);
        ::close(vector);
        if (!read) return read;
        if (status s = memory_.upload_vector(x_.data()); !s) return s;
        // No thread runs yet.
        next_slice_ = next_chunk_ = 0;
        failed_ = {};
        for (chunk_room& room : rooms_) room.started = room.chunk = 0;
        apps::on_threads(threads_, [&](std::uint32_t) { read_slices(job); });
        for (const chunk_room& room : rooms_)
            if (cudaStreamSynchronize(room.stream) != cudaSuccess) return broken();
        if (was_interrupted()) return {-ECANCELED, "interrupted; nothing was written"};
        return failed_.ok() ? finish(job) : failed_;
    }

    [[nodiscard]] std::uint32_t threads() const { return threads_; }
    [[nodiscard]] std::uint64_t chunk_count() const { return pieces_of(memory_.view().item_count(), chunk_items_); }

private:
    [[nodiscard]] chunk_place place_of_chunk(std::uint64_t chunk) const {
        const matvec_view& v = memory_.view();
        const std::uint64_t first = chunk * chunk_items_, end = std::min(first + chunk_items_, v.item_count());
        return {first, end, place_of(v, first).elements(v.columns).begin * sizeof(float), place_of(v, end - 1).elements(v.columns).end * sizeof(float)};
    }
    // Where the chunk's first byte lies in its room.
    static std::uint64_t phase_of(const chunk_place& at) { return at.begin_byte % (part_count * sizeof(float)); }

    // The next slice that nobody has; waits until its room is free. False if none is left, or something failed.
    bool take_slice(chunk_place& at, std::uint64_t& chunk, std::uint64_t& slice) {
        std::unique_lock lock(mutex_);
        if (!failed_.ok() || was_interrupted() || next_chunk_ == chunk_count()) return false;
        chunk = next_chunk_;
        slice = next_slice_++;
        at = place_of_chunk(chunk);
        if (next_slice_ == at.slices()) next_slice_ = 0, ++next_chunk_;
        chunk_room& room = rooms_[chunk % rooms];
        const std::uint64_t before = chunk < rooms ? 0 : chunk - rooms + 1;  // as `started` is when the chunk before it is on its way
        started_.wait(lock, [&] { return room.started >= before || !failed_.ok(); });
        if (!failed_.ok()) return false;
        // Whoever comes first, be it with another slice than the first.
        if (room.chunk != chunk + 1) {
            room.chunk = chunk + 1;
            room.slices_left = at.slices();
        }
        return true;
    }

    void read_slices(const matvec_job& job) {
        cudaSetDevice(device_);  // a new thread begins with device 0
        chunk_place at{};
        std::uint64_t chunk = 0, slice = 0;
        while (take_slice(at, chunk, slice)) {
            const status done = read_slice(job, at, chunk, slice);
            if (done.ok()) continue;
            std::lock_guard lock(mutex_);
            if (failed_.ok()) failed_ = done;
            started_.notify_all();
        }
    }

    status read_slice(const matvec_job& job, const chunk_place& at, std::uint64_t chunk, std::uint64_t slice) {
        chunk_room& room = rooms_[chunk % rooms];
        if (cudaEventSynchronize(room.summed) != cudaSuccess) return broken();  // done with what it held
        const std::uint64_t begin = slice * slice_bytes, bytes = std::min(slice_bytes, at.end_byte - at.begin_byte - begin), offset = phase_of(at) + begin;
        if (status s = apps::read_exactly(job.matrix.path, file_, room.pinned + offset, bytes, at.begin_byte + begin); !s) return s;
        if (cudaMemcpyAsync(room.there + offset, room.pinned + offset, bytes, cudaMemcpyHostToDevice, room.stream) != cudaSuccess) return broken();
        std::lock_guard lock(mutex_);
        if (--room.slices_left != 0) return {};
        // All copies are in the stream before the sums.
        const numbers_in_memory numbers{reinterpret_cast<const float*>(room.there + phase_of(at)), at.begin_byte / sizeof(float)};
        const std::uint64_t blocks = pieces_of(at.end - at.first, block_threads / 32);
        sum_chunk<<<static_cast<unsigned>(std::min(blocks, most_blocks_)), block_threads, 0, room.stream>>>(memory_.view(), numbers, at.first, at.end);
        if (cudaGetLastError() != cudaSuccess || cudaEventRecord(room.summed, room.stream) != cudaSuccess) return broken();
        room.started = chunk + 1;
        started_.notify_all();
        return {};
    }

    // Sums of segments, and the result to its file.
    status finish(const matvec_job& job) {
        const matvec_view& v = memory_.view();
        if (v.segments != 1) {
            sum_segments<<<static_cast<unsigned>(std::min(pieces_of(v.rows, block_threads / 32), most_blocks_)), block_threads, 0, rooms_[0].stream>>>(v);
            if (cudaGetLastError() != cudaSuccess || cudaStreamSynchronize(rooms_[0].stream) != cudaSuccess) return broken();
        }
        if (status s = memory_.download_result(y_.data()); !s) return s;
        apps::first_error errors;
        const std::uint64_t bytes = v.rows * sizeof(float), part = pieces_of(pieces_of(bytes, threads_), slice_bytes) * slice_bytes;
        apps::on_threads(static_cast<std::uint32_t>(pieces_of(bytes, part)), [&](std::uint32_t i) {
            errors.note(job.result->write_at(reinterpret_cast<const char*>(y_.data()) + i * part, std::min(part, bytes - i * part), i * part));
        });
        return errors.get();
    }

    int device_;
    matvec_memory memory_;
    chunk_room rooms_[rooms];
    std::vector<float> x_, y_;
    std::uint32_t threads_ = 1;
    std::uint64_t chunk_items_ = 1, most_blocks_ = 1;
    int file_ = -1;
    std::mutex mutex_;                 // guards everything below
    std::condition_variable started_;  // sums of a chunk were started, or something failed
    std::uint64_t next_chunk_ = 0, next_slice_ = 0;
    status failed_;
};

}  // namespace

status multiply_with_cuda(const matvec_job& job, method_report& report) {
    apps::stopwatch watch;
    const int device = job.settings.device;
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || device >= devices || cudaSetDevice(device) != cudaSuccess) {
        cudaGetLastError();
        return {-ENODEV, "--method cuda: there is no GPU " + std::to_string(device) + " here; use --method penstock or cpu"};
    }
    pipeline all(device);
    if (status s = all.prepare(job); !s) return s;
    report.backend = "gpu";
    report.note = std::to_string(all.threads()) + " threads read " + std::to_string(all.chunk_count()) + " chunks of up to " + format_size(chunk_bytes);
    report.start_seconds = watch.lap();
    const double cpu_before = apps::cpu_seconds();
    for (std::uint32_t i = 0; i < job.repeats; ++i) {
        watch.lap();
        if (status s = all.run(job); !s) return s;
        report.seconds.push_back(watch.lap());
        report.bytes_read += job.matrix.bytes;
    }
    report.cpu_seconds = apps::cpu_seconds() - cpu_before;
    return {};
}

#else

status multiply_with_cuda(const matvec_job&, method_report&) {
    return {-ENODEV, "--method cuda: this program was built without CUDA; use --method penstock or cpu"};
}

#endif

}  // namespace penstock::matvec
