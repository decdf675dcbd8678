// The host side of the original GPUfs, for programs that are written to it: a runtime, its stream,
// and a wait.
//
// The original's programs make a GPUGlobals with initializer, launch a kernel on its stream, serve
// the kernel's requests in a loop until it ends, and delete the GPUGlobals. Here threads of the
// runtime serve the kernel, so the loops only wait.
//
//   initializer(&globals)                a runtime on the current device, attached to all source
//                                        files; or the program ends
//   globals->streamMgr->kernelStream     where kernels are launched
//   run_gpufs_handler(globals, gpu)      waits for the stream
//   open_loop rw_loop async_close_loop   for loops that ask the stream themselves: a short sleep,
//                                        or nothing
//
// Options come from PENSTOCK_* variables (penstock/options.hpp). Without them the page size is
// FS_BLOCKSIZE, the cache has PPOOL_SIZE bytes or half of the GPU's free memory, and kernels may
// open what the process may: relative names from the working directory. Files may be written. One
// GPUGlobals at a time for each device.
#pragma once

#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "penstock/gpufs_compat.cuh"

struct GPUStreamManager {
    cudaStream_t kernelStream = nullptr;
};

struct GPUGlobals {
    GPUStreamManager* streamMgr = nullptr;
    std::unique_ptr<penstock::runtime> runtime;

    GPUGlobals() = default;
    GPUGlobals(const GPUGlobals&) = delete;
    GPUGlobals& operator=(const GPUGlobals&) = delete;
    // Kernels on the stream have ended.
    ~GPUGlobals() {
        if (streamMgr != nullptr && streamMgr->kernelStream != nullptr)
            cudaStreamDestroy(streamMgr->kernelStream);
        delete streamMgr;
    }
};

// Programs of the original declare these themselves, for its library to fill. They are not used.
struct CPU_IPC_OPEN_Queue;
struct CPU_IPC_RW_Queue;
struct GPU_IPC_RW_Manager;
struct OTable;
struct PPool;
struct FTable;
struct preclose_table;
struct async_close_rb_t;
struct rt_mempool {};
struct hash_table {};

namespace penstock::gpufs {

// What the variables do not say.
inline status options_of_original(std::uint64_t block_bytes, options& out) {
    if (status read = options::from_environment(out); !read.ok()) return read;
    out.where = backend::gpu;
    out.writable = true;
    if (cudaGetDevice(&out.device) != cudaSuccess) return {-ENODEV, "no CUDA device is usable"};
    if (std::getenv("PENSTOCK_PAGE") == nullptr) out.page_bytes = block_bytes;
    std::size_t free_bytes = 0, all_bytes = 0;
    if (!out.cache_bytes && cudaMemGetInfo(&free_bytes, &all_bytes) == cudaSuccess) {
        const std::uint64_t wanted = free_bytes / 2 < PPOOL_SIZE ? free_bytes / 2 : PPOOL_SIZE;
        out.cache_bytes = wanted / out.page_bytes * out.page_bytes;
    }
    char folder[4096];
    if (out.roots.empty() && getcwd(folder, sizeof folder) != nullptr) out.roots = {folder, "/"};
    return {};
}

inline status start(std::uint64_t block_bytes, GPUGlobals& globals) {
    options settings;
    if (status read = options_of_original(block_bytes, settings); !read.ok()) return read;
    if (status made = runtime::make(settings, globals.runtime); !made.ok()) return made;
    if (const int code = attach_all(*globals.runtime, block_bytes); code != 0)
        return {code, "the kernels could not be told of the runtime, pages of " +
                          format_size(globals.runtime->settings().page_bytes) + ", FS_BLOCKSIZE " +
                          std::to_string(block_bytes) +
                          " (PENSTOCK_PAGE must be a multiple): " + error_text(code)};
    globals.streamMgr = new GPUStreamManager;
    if (cudaStreamCreate(&globals.streamMgr->kernelStream) != cudaSuccess)
        return {-EIO, "no stream could be made"};
    return {};
}

}  // namespace penstock::gpufs

typedef volatile GPUGlobals* GPUGlobals_ptr;

inline void initializer(GPUGlobals_ptr* globals, std::uint64_t block_bytes = FS_BLOCKSIZE) {
    auto made = std::make_unique<GPUGlobals>();
    if (const penstock::status started = penstock::gpufs::start(block_bytes, *made);
        !started.ok()) {
        std::fprintf(stderr, "penstock: initializer: %s\n", started.message.c_str());
        std::exit(-1);
    }
    *globals = made.release();
}

inline void run_gpufs_handler(GPUGlobals_ptr globals, int) {
    cudaStreamSynchronize(globals->streamMgr->kernelStream);
}
inline void open_loop(GPUGlobals_ptr, int) {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
}
inline void rw_loop(GPUGlobals_ptr) {}
inline void async_close_loop(GPUGlobals_ptr) {}

// Microseconds since 1970.
inline double _timestamp() {
    timeval now{};
    gettimeofday(&now, nullptr);
    return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_usec);
}

// What the original's loops count.
inline int max_req = 0;
inline double transfer_time = 0, total_stat = 0, total_stat1 = 0;
