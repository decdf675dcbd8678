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

// The legacy stream waits for a stream that another thread captures, and is of no use until that
// has ended.
bool is_legacy_stream_usable() {
    cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(cudaStreamLegacy, &state) == cudaSuccess;
}

// The stream comes behind the legacy one, on which frameworks have their work unless a program
// names another: so a row is read as the calls before left it.
struct pinned_piece {
    explicit pinned_piece(std::uint64_t bytes) {
        if (cudaHostAlloc(&memory, bytes, cudaHostAllocDefault) != cudaSuccess) memory = nullptr;
        const unsigned kind = is_legacy_stream_usable() ? cudaStreamDefault : cudaStreamNonBlocking;
        if (cudaStreamCreateWithFlags(&stream, kind) != cudaSuccess) stream = nullptr;
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

int run_pieces(const host_list& list, const piece_call& call) {
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

}  // namespace

int run_through_pinned(host::cache_device& device, const host_list& list, const piece_call& call) {
    if (list.count == 0) return 0;
    return device.while_current([&] { return run_pieces(list, call); });
}

int can_wait_for_stream(host::cache_device& device, void* stream) {
    return device.while_current([&] {
        cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
        const cudaError_t code = cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &state);
        const bool is_free = code == cudaSuccess && state == cudaStreamCaptureStatusNone;
        return is_free ? 0 : -EBUSY;
    });
}

int wait_for_stream(host::cache_device& device, void* stream) {
    return device.while_current([&] {
        return cudaStreamSynchronize(static_cast<cudaStream_t>(stream)) == cudaSuccess ? 0 : -EIO;
    });
}

#else

int run_through_pinned(host::cache_device&, const host_list&, const piece_call&) { return -ENODEV; }

int can_wait_for_stream(host::cache_device&, void*) { return 0; }

int wait_for_stream(host::cache_device&, void*) { return 0; }

#endif

}  // namespace penstock::python
