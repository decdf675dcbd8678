// Which runtime the kernels of each source file use: a constant in each of them, and one list of
// all of them.
//
// The original kept its state in device globals, so its kernels are not handed a runtime. Every
// source file that includes penstock/gpufs.cuh has a constant of its own, because without -rdc=true
// no symbol of the GPU is shared between source files. Each file puts itself on the list before
// main begins, and gpufs_attach fills all of them.
#pragma once

#include <cerrno>
#include <mutex>

#include <cuda_runtime.h>

#include "penstock/penstock.hpp"

namespace penstock::gpufs {

// The runtime of this source file's kernels. All zero until gpufs_attach.
static __constant__ runtime_ref attached;

// Before gpufs_attach a call gives an error and reads no address.
PENSTOCK_D inline bool is_attached() { return attached.view.file_slots != 0; }

// Host: fills the constant of the source file that it belongs to, on the current device.
using fill_constant = cudaError_t (*)(const runtime_ref&, cudaStream_t);

class source_file;

// Every source file of the process.
struct source_list {
    std::mutex lock;
    source_file* first = nullptr;
};
inline source_list& source_files() {
    static source_list all;
    return all;
}

// One source file on the list, from its static initialisation until the program, or the library it
// is in, is unloaded.
class source_file {
public:
    explicit source_file(fill_constant fill) : fill_(fill) {
        source_list& all = source_files();
        const std::lock_guard hold(all.lock);
        next_ = all.first;
        all.first = this;
    }
    ~source_file() {
        source_list& all = source_files();
        const std::lock_guard hold(all.lock);
        source_file** at = &all.first;
        while (*at != nullptr && *at != this) at = &(*at)->next_;
        if (*at != nullptr) *at = next_;
    }
    source_file(const source_file&) = delete;
    source_file& operator=(const source_file&) = delete;

    // The first error; the files after it keep what they had.
    static cudaError_t fill_all(const runtime_ref& ref, cudaStream_t stream) {
        source_list& all = source_files();
        const std::lock_guard hold(all.lock);
        cudaError_t code = cudaSuccess;
        for (const source_file* file = all.first; file != nullptr && code == cudaSuccess;
             file = file->next_)
            code = file->fill_(ref, stream);
        return code;
    }

private:
    fill_constant fill_;
    source_file* next_ = nullptr;
};

// Internal linkage in every source file: the address it takes is that of the file's own constant.
static inline cudaError_t fill_this_file(const runtime_ref& ref, cudaStream_t stream) {
    return cudaMemcpyToSymbolAsync(attached, &ref, sizeof ref, 0, cudaMemcpyHostToDevice, stream);
}
static const source_file this_file{&fill_this_file};

// FS_BLOCKSIZE of the calling source file, whose kernels step through files by it.
inline int attach_all(const runtime& rt, std::uint64_t block_bytes) {
    if (rt.where() != backend::gpu) return -EOPNOTSUPP;
    if (rt.settings().page_bytes % block_bytes != 0) return -EINVAL;
    const detail::device_scope here(rt.settings().device);
    if (!here) return -ENODEV;
    cudaStream_t stream = nullptr;
    if (cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess) return -EIO;
    const runtime_ref ref = rt.ref();
    const bool filled = source_file::fill_all(ref, stream) == cudaSuccess;
    const bool ended = cudaStreamSynchronize(stream) == cudaSuccess;
    cudaStreamDestroy(stream);
    return filled && ended ? 0 : -EIO;
}

}  // namespace penstock::gpufs
