// What a programmer writes to bring a file to a GPU: all cores read pieces into pinned buffers, two
// each, and copy them on streams of their own.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <vector>

#include "common/threads.hpp"
#include "context.hpp"
#include "gpu.cuh"
#include "workload.hpp"

namespace penstock::bench {

struct streams {
    std::vector<cudaStream_t> all;
    std::vector<cudaEvent_t> copied;

    status make(std::uint64_t threads) {
        all.resize(threads);
        copied.resize(2 * threads);
        for (auto& s : all)
            if (status bad =
                    cuda_status(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "stream");
                !bad)
                return bad;
        for (auto& e : copied)
            if (status bad =
                    cuda_status(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "event");
                !bad)
                return bad;
        return {};
    }
    ~streams() {
        for (auto& s : all)
            if (s != nullptr) cudaStreamDestroy(s);
        for (auto& e : copied)
            if (e != nullptr) cudaEventDestroy(e);
    }
};

struct pipeline {
    int file;
    std::uint64_t bytes, piece, threads;
    std::byte* pinned;
    std::byte* device;
    streams& on;
    int number;  // of the device

    // 0, a negative errno, or a positive CUDA error.
    int part(std::uint64_t t, std::atomic<std::uint64_t>& next) const {
        if (const cudaError_t code = cudaSetDevice(number); code != cudaSuccess)
            return code;  // a new thread begins with device 0
        for (unsigned turn = 0;; turn ^= 1) {
            const std::uint64_t at = next.fetch_add(piece);
            if (at >= bytes) break;
            std::byte* const buffer = pinned + (2 * t + turn) * piece;
            if (const cudaError_t code = cudaEventSynchronize(on.copied[2 * t + turn]);
                code != cudaSuccess)
                return code;
            const std::uint64_t length = std::min(piece, bytes - at);
            for (std::uint64_t done = 0; done < length;) {
                const ssize_t got =
                    ::pread(file, buffer + done, length - done, static_cast<off_t>(at + done));
                if (got <= 0) return got < 0 ? -errno : -EIO;
                done += static_cast<std::uint64_t>(got);
            }
            cudaError_t code =
                cudaMemcpyAsync(device + at, buffer, length, cudaMemcpyHostToDevice, on.all[t]);
            if (code == cudaSuccess) code = cudaEventRecord(on.copied[2 * t + turn], on.all[t]);
            if (code != cudaSuccess) return code;
        }
        return cudaStreamSynchronize(on.all[t]);
    }

    status run(series& rate) const {
        std::atomic<std::uint64_t> next{0};
        std::atomic<int> code{0};
        const stopwatch watch;
        apps::on_new_threads(static_cast<std::uint32_t>(threads), [&](std::uint32_t t) {
            if (const int failed = part(t, next); failed != 0) code = failed;
        });
        rate.add(gigabytes_a_second(bytes, watch.seconds()));
        if (code < 0) return {code, "pread: " + error_text(code)};
        return cuda_status(static_cast<cudaError_t>(code.load()), "pipeline");
    }
};

inline constexpr std::uint64_t piece_bytes = 4 * mib, engine_piece_bytes = 64 * mib;

struct by_hand {
    streams on;
    gpu_memory device, pinned;
    int file = -1, number = 0;
    std::uint64_t bytes = 0, threads = 0, pinned_bytes = 0;

    ~by_hand() {
        if (file >= 0) ::close(file);
    }
    status make(const context& here) {
        pinned_bytes = std::max(host_threads(here) * 2 * piece_bytes, engine_piece_bytes);
        cudaGetDevice(&number);
        bytes = here.file().bytes();
        threads = host_threads(here);
        if (status s = on.make(threads); !s) return s;
        if (status s = device.on_device(bytes); !s) return s;
        if (status s = pinned.on_host(pinned_bytes); !s) return s;
        std::memset(pinned.as<void>(), 1, pinned_bytes);
        file = ::open(here.file().path().c_str(), O_RDONLY | O_CLOEXEC);
        return file >= 0 ? status{} : status{-errno, "the file: " + error_text(-errno)};
    }
    status run(std::uint64_t piece, series& rate) {
        return pipeline{file, bytes, piece, threads, pinned.as<std::byte>(), device.as<std::byte>(),
                        on,   number}
            .run(rate);
    }

    // The copy engine alone, over and over the same pinned bytes.
    status copy_engine(std::uint64_t piece, series& rate) {
        const stopwatch watch;
        for (std::uint64_t at = 0; at < bytes; at += piece)
            if (status s = cuda_status(
                    cudaMemcpyAsync(device.as<std::byte>() + at, pinned.as<std::byte>(),
                                    std::min(piece, bytes - at), cudaMemcpyHostToDevice, on.all[0]),
                    "copy");
                !s)
                return s;
        if (status s = cuda_status(cudaStreamSynchronize(on.all[0]), "copy"); !s) return s;
        rate.add(gigabytes_a_second(bytes, watch.seconds()));
        return {};
    }
};

}  // namespace penstock::bench
