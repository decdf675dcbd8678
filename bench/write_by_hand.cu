#include "kernel_output.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <memory>
#include <unistd.h>
#include <vector>

#include "together.hpp"
#include "workload.hpp"

#if defined(__CUDACC__)
#include "gpu.cuh"
#endif

namespace penstock::bench {

namespace {

constexpr std::uint64_t piece_bytes = 4 * mib;

int write_all(int file, const std::byte* from, std::uint64_t bytes, std::uint64_t offset) {
    while (bytes > 0) {
        const ssize_t done = ::pwrite(file, from, bytes, static_cast<off_t>(offset));
        if (done <= 0) return done < 0 ? -errno : -EIO;
        from += done;
        bytes -= static_cast<std::uint64_t>(done);
        offset += static_cast<std::uint64_t>(done);
    }
    return 0;
}

#if defined(__CUDACC__)
// Streams and pinned buffers are made before the clock starts.
struct hand_of_gpu {
    std::vector<cudaStream_t> streams;
    gpu_memory pinned;
    int device = 0;

    ~hand_of_gpu() {
        for (cudaStream_t one : streams) cudaStreamDestroy(one);
    }
    status make(std::uint64_t threads) {
        cudaGetDevice(&device);
        streams.resize(2 * threads);
        for (cudaStream_t& one : streams)
            if (status s =
                    cuda_status(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking), "stream");
                !s)
                return s;
        return pinned.on_host(2 * threads * piece_bytes);
    }
    // 0, a negative errno, or a positive CUDA error.
    int part(std::uint64_t thread, int file, const std::byte* output, std::uint64_t bytes,
             std::atomic<std::uint64_t>& next) const {
        if (const cudaError_t code = cudaSetDevice(device); code != cudaSuccess) return code;
        std::uint64_t at[2] = {bytes, bytes};
        const auto begin = [&](unsigned turn) -> int {
            at[turn] = next.fetch_add(piece_bytes);
            if (at[turn] >= bytes) return 0;
            return cudaMemcpyAsync(buffer(thread, turn), output + at[turn],
                                   std::min(piece_bytes, bytes - at[turn]), cudaMemcpyDeviceToHost,
                                   streams[2 * thread + turn]);
        };
        if (const int code = begin(0); code != 0) return code;
        for (unsigned turn = 0; at[turn] < bytes; turn ^= 1) {
            if (const int code = begin(turn ^ 1); code != 0) return code;
            if (const cudaError_t code = cudaStreamSynchronize(streams[2 * thread + turn]);
                code != cudaSuccess)
                return code;
            if (const int code = write_all(file, buffer(thread, turn),
                                           std::min(piece_bytes, bytes - at[turn]), at[turn]);
                code != 0)
                return code;
        }
        return 0;
    }
    [[nodiscard]] std::byte* buffer(std::uint64_t thread, unsigned turn) const {
        return pinned.as<std::byte>() + (2 * thread + turn) * piece_bytes;
    }
};
#endif

}  // namespace

std::string write_by_hand_name(const context& here) {
    return here.on_gpu() ? "all cores: cudaMemcpyAsync to pinned buffers, two a core, and pwrite"
                         : "all cores: pwrite";
}

status write_by_hand(const context& here, backend where, const std::byte* output, series& rate) {
    const std::uint64_t bytes = here.file().bytes(), threads = host_threads(here);
    const int file = ::open(here.file().path().c_str(), O_WRONLY | O_CLOEXEC);
    if (file < 0) return {-errno, "the file: " + error_text(-errno)};
    std::atomic<std::uint64_t> next{0};
    std::atomic<int> code{0};
    double seconds = 0;
    status made;
    if (where == backend::cpu) {
        seconds = seconds_together(threads, [&](std::uint64_t) {
            for (std::uint64_t at = next.fetch_add(piece_bytes); at < bytes;
                 at = next.fetch_add(piece_bytes))
                if (const int failed =
                        write_all(file, output + at, std::min(piece_bytes, bytes - at), at);
                    failed != 0)
                    code = failed;
        });
    } else {
#if defined(__CUDACC__)
        hand_of_gpu hand;
        made = hand.make(threads);
        if (made.ok())
            seconds = seconds_together(threads, [&](std::uint64_t thread) {
                if (const int failed = hand.part(thread, file, output, bytes, next); failed != 0)
                    code = failed;
            });
#endif
    }
    ::close(file);
    if (!made.ok()) return made;
    if (code != 0)
        return {code < 0 ? code.load() : -EIO,
                "writing by hand: " +
                    (code < 0 ? error_text(code) : "CUDA error " + std::to_string(code))};
    rate.add(gigabytes_a_second(bytes, seconds));
    return {};
}

}  // namespace penstock::bench
