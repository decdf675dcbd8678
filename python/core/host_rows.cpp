#include "core/host_rows.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#ifdef PENSTOCK_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

namespace penstock::python {

#ifdef PENSTOCK_WITH_CUDA

namespace {

// While it lives the thread's calls disturb no capture of another thread, and the device is the
// current one.
class device_use {
public:
    explicit device_use(int device) {
        cudaThreadExchangeStreamCaptureMode(&mode_);
        cudaGetDevice(&before_);
        if (device >= 0) cudaSetDevice(device);
    }
    ~device_use() {
        cudaSetDevice(before_);
        cudaThreadExchangeStreamCaptureMode(&mode_);
    }
    device_use(const device_use&) = delete;
    device_use& operator=(const device_use&) = delete;

private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
    int before_ = 0;
};

struct pinned_piece {
    explicit pinned_piece(std::uint64_t bytes) {
        if (cudaHostAlloc(&memory, bytes, cudaHostAllocDefault) != cudaSuccess) memory = nullptr;
        if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess)
            stream = nullptr;
    }
    ~pinned_piece() {
        if (stream != nullptr) cudaStreamDestroy(stream);
        if (memory != nullptr) cudaFreeHost(memory);
    }
    pinned_piece(const pinned_piece&) = delete;
    pinned_piece& operator=(const pinned_piece&) = delete;

    void* memory = nullptr;
    cudaStream_t stream = nullptr;
};

constexpr std::uint64_t piece_bytes = std::uint64_t{4} << 20;

}  // namespace

int run_through_pinned(int device, const host_list& list,
                       const std::function<int(const void*, std::uint64_t, void*, void*)>& call) {
    if (list.count == 0) return 0;
    const device_use use(device);
    // A row begins where a row of any type may; the numbers follow the rows.
    const std::uint64_t row = list.rows == nullptr ? 0 : list.row_bytes;
    const std::uint64_t most =
        std::clamp<std::uint64_t>(piece_bytes / (row + list.number_bytes), 1, list.count);
    const std::uint64_t rows_bytes = (most * row + 255) / 256 * 256;
    const pinned_piece piece(rows_bytes + most * list.number_bytes);
    if (piece.memory == nullptr || piece.stream == nullptr) return -ENOMEM;
    auto* const rows = static_cast<std::byte*>(piece.memory);
    std::byte* const numbers = rows + rows_bytes;
    const std::uint64_t stride = list.stride_bytes != 0 ? list.stride_bytes : row;
    for (std::uint64_t first = 0; first < list.count; first += most) {
        const std::uint64_t count = std::min(most, list.count - first);
        std::memcpy(numbers, list.numbers + first * list.number_bytes, count * list.number_bytes);
        for (std::uint64_t i = 0; row != 0 && !list.to_host && i < count; ++i)
            std::memcpy(rows + i * row, list.rows + (first + i) * stride, row);
        const int code = call(numbers, count, row != 0 ? rows : nullptr, piece.stream);
        if (cudaStreamSynchronize(piece.stream) != cudaSuccess) return -EIO;
        if (code != 0) return code;
        for (std::uint64_t i = 0; row != 0 && list.to_host && i < count; ++i)
            std::memcpy(list.rows + (first + i) * stride, rows + i * row, row);
    }
    return 0;
}

int wait_for_stream(void* stream) {
    const device_use use(-1);
    return cudaStreamSynchronize(static_cast<cudaStream_t>(stream)) == cudaSuccess ? 0 : -EIO;
}

#else

int run_through_pinned(int, const host_list&,
                       const std::function<int(const void*, std::uint64_t, void*, void*)>&) {
    return -ENODEV;
}

int wait_for_stream(void*) { return 0; }

#endif

}  // namespace penstock::python
