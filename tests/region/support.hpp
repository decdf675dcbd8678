// What the tests of regions share: a runtime of either kind, and how a program of the host gets at
// a region's bytes.
#pragma once

#include <cstring>

#if defined(PENSTOCK_WITH_CUDA)
#include <cuda_runtime.h>
#endif

#include "unit/support.hpp"

namespace penstock::test {

inline int gpu_count() {
#if defined(PENSTOCK_WITH_CUDA)
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
    cudaGetLastError();
#endif
    return 0;
}
inline bool gpu_is_there() { return gpu_count() > 0; }

inline options region_runtime(const temporary_folder& folder, backend where) {
    options o = small_options(folder);
    o.where = where;
    o.writable = true;
    o.host_wait_ms = 5000;
    return o;
}

inline void copy_bytes(void* to, const void* from, std::uint64_t bytes,
                       [[maybe_unused]] backend where) {
#if defined(PENSTOCK_WITH_CUDA)
    if (where == backend::gpu) {
        // By the device whose memory it is: others have no access to a region's.
        int before = 0;
        cudaGetDevice(&before);
        for (const void* const end : {static_cast<const void*>(to), from}) {
            cudaPointerAttributes of{};
            if (cudaPointerGetAttributes(&of, end) == cudaSuccess &&
                of.type == cudaMemoryTypeDevice)
                cudaSetDevice(of.device);
        }
        EXPECT_EQ(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), cudaSuccess);
        cudaSetDevice(before);
        return;
    }
#endif
    if (bytes != 0) std::memcpy(to, from, bytes);  // an empty vector has no place
}

// Stand for a kernel that writes, and for one that reads.
inline void poke(file_region& r, backend where, std::uint64_t at,
                 const std::vector<std::uint8_t>& bytes) {
    copy_bytes(static_cast<std::byte*>(r.data()) + at, bytes.data(), bytes.size(), where);
}
inline std::vector<std::uint8_t> peek(file_region& r, backend where, std::uint64_t at,
                                      std::uint64_t bytes) {
    std::vector<std::uint8_t> out(bytes);
    copy_bytes(out.data(), static_cast<const std::byte*>(r.data()) + at, bytes, where);
    return out;
}

inline std::vector<std::uint8_t> read_file(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
}

// As an ordinary program does, in place.
inline void patch_file(const std::string& path, std::uint64_t at,
                       const std::vector<std::uint8_t>& bytes) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(at));
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    ASSERT_TRUE(file.good()) << path;
}

inline std::unique_ptr<file_region> map_whole(runtime& rt, const std::string& path,
                                              protection access,
                                              const region_options& settings = {}) {
    std::unique_ptr<file_region> out;
    const status s = map_region(rt, path, 0, 0, access, settings, out);
    EXPECT_TRUE(s.ok()) << s.message;
    return out;
}

}  // namespace penstock::test
