// What a programmer writes to bring a file to a GPU: threads read pieces into pinned buffers, two
// each, and copy them on streams of their own. All cores are not always the best: on a host with 32
// fewer threads are faster. Or the copy engine reads the file's pages where they lie in the page
// cache, once their memory is registered.
#pragma once

#include <fcntl.h>

#include "gpu.cuh"
#include "workload.hpp"

namespace penstock::bench {

inline constexpr std::uint64_t piece_bytes = 4 * mib, engine_piece_bytes = 64 * mib;

// Streams, events and buffers are made before the clock starts.
struct by_hand {
    const std::uint64_t bytes, threads;
    memory device, pinned;
    const apps::unique_fd file;
    std::vector<apps::gpu_stream> streams;  // of each thread
    std::vector<apps::gpu_event> copied;    // of each buffer
    int number = 0;                         // of the device

    explicit by_hand(const context& here)
        : bytes(here.file().bytes()),
          threads(here.host_threads()),
          device(backend::gpu, bytes),
          pinned(memory::pinned(std::max(threads * 2 * piece_bytes, engine_piece_bytes))),
          file(here.file().open(O_RDONLY)),
          streams(threads),
          copied(2 * threads) {
        cudaGetDevice(&number);
        for (apps::gpu_stream& stream : streams)
            require_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
        for (apps::gpu_event& event : copied)
            require_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "event");
    }

    // Numbers of threads, and sizes of pieces, of which the best counts.
    [[nodiscard]] by_threads tried() const {
        return {{8, 16}, threads, {512 * kib, mib, piece_bytes}};
    }
    // Of the whole file in pieces, by so many threads.
    [[nodiscard]] timed_run run(std::uint64_t piece, std::uint64_t readers) const {
        const stopwatch watch;
        const double took = seconds_by(readers, piece, pinned.as<std::byte>());
        return {took, watch.cores(took)};
    }
    // So that bytes which do not come show.
    void clear() const { device.fill(0, bytes); }
    // The device has the file's words, which are those of the scratch file: looks at the first and
    // the last of each 4 KiB.
    void expect_right() const {
        constexpr std::uint64_t page = 4096;
        for (std::uint64_t at = 0; at < bytes; at += engine_piece_bytes) {
            const std::uint64_t length = std::min(engine_piece_bytes, bytes - at);
            require_cuda(cudaMemcpy(pinned.as<void>(), device.as<std::byte>() + at, length,
                                    cudaMemcpyDeviceToHost),
                         "copy from the device");
            for (std::uint64_t i = 0; i < length / 8; i += page / 8)
                for (const std::uint64_t word : {i, i + page / 8 - 1})
                    expect(pinned.as()[word] == mix64(at / 8 + word),
                           "the pipeline by hand brought other bytes");
        }
    }
    // One thread reads the file as a whole and copies it as a whole: what GPU programs often do.
    [[nodiscard]] double seconds_in_one_piece(const memory& whole) const {
        return seconds_by(1, bytes, whole.as<std::byte>());
    }
    // Of the copy engine alone, over and over the same pinned bytes.
    [[nodiscard]] double engine_seconds() const {
        return engine_seconds([&](std::uint64_t) { return pinned.as<std::byte>(); });
    }
    // Of the copy engine that reads the file's pages in the page cache.
    struct registered_seconds {
        double copying, with_registering;  // registered before; registered and given back in it
    };
    [[nodiscard]] registered_seconds from_page_cache() const {
        const stopwatch watch;
        double copying = 0;
        {
            const mapped_memory mapped(bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, file);
            const registered_memory ready(mapped.as<void>(), bytes, cudaHostRegisterReadOnly);
            copying = engine_seconds([&](std::uint64_t at) { return mapped.as<std::byte>() + at; });
        }
        return {copying, watch.seconds()};
    }

private:
    template <typename From>
    [[nodiscard]] double engine_seconds(const From& from) const {
        const stopwatch watch;
        for (std::uint64_t at = 0; at < bytes; at += engine_piece_bytes)
            require_cuda(cudaMemcpyAsync(device.as<std::byte>() + at, from(at),
                                         std::min(engine_piece_bytes, bytes - at),
                                         cudaMemcpyHostToDevice, streams[0]),
                         "copy");
        require_cuda(cudaStreamSynchronize(streams[0]), "copy");
        return watch.seconds();
    }
    void part(std::uint64_t t, std::uint64_t piece, std::byte* buffers,
              std::atomic<std::uint64_t>& next) const {
        for (unsigned turn = 0;; turn ^= 1) {
            const std::uint64_t at = next.fetch_add(piece);
            if (at >= bytes) break;
            std::byte* const buffer = buffers + (2 * t + turn) * piece;
            const cudaEvent_t done = copied[2 * t + turn];
            require_cuda(cudaEventSynchronize(done), "pipeline");
            const std::uint64_t length = std::min(piece, bytes - at);
            require(apps::read_all(file, buffer, length, at), "pread");
            require_cuda(cudaMemcpyAsync(device.as<std::byte>() + at, buffer, length,
                                         cudaMemcpyHostToDevice, streams[t]),
                         "pipeline");
            require_cuda(cudaEventRecord(done, streams[t]), "pipeline");
        }
        require_cuda(cudaStreamSynchronize(streams[t]), "pipeline");
    }
    [[nodiscard]] double seconds_by(std::uint64_t readers, std::uint64_t piece,
                                    std::byte* buffers) const {
        std::atomic<std::uint64_t> next{0};
        // A new thread begins with device 0.
        return seconds_of_threads(
            readers, [&](std::uint32_t) { cudaSetDevice(number); },
            [&](std::uint64_t t) { part(t, piece, buffers, next); });
    }
};

inline std::string pipeline_name(const by_threads& by) {
    return "pread into pinned buffers, two a thread, and cudaMemcpyAsync, " + by.name();
}

}  // namespace penstock::bench
