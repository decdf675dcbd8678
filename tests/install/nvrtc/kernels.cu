// Kernels as a program compiles them at run time: with Penstock's headers and no others. Each call
// of the public headers for kernels stands here, so that a header that needs a host compiler shows.
#include "penstock/advise.hpp"
#include "penstock/file.hpp"
#include "penstock/gather.hpp"
#include "penstock/table.hpp"
#include "penstock/view.hpp"
#include "penstock/write.hpp"
#include "penstock/write_view.hpp"

extern "C" __global__ void read_rows(const __grid_constant__ penstock::runtime_ref fs,
                                     const __grid_constant__ penstock::table_ref table,
                                     const std::int64_t* numbers, std::uint64_t count, char* out,
                                     std::uint64_t* failed) {
    const auto warp = penstock::this_warp();
    const std::uint64_t at = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (at >= count) return;
    const std::uint64_t missed =
        penstock::gather(warp, fs, table, numbers + at, 1, out + at * table.row_bytes());
    if (warp.is_leader()) atomicAdd(reinterpret_cast<unsigned long long*>(failed), missed);
}

extern "C" __global__ void add_rows(const __grid_constant__ penstock::runtime_ref fs,
                                    const __grid_constant__ penstock::table_ref table,
                                    const int* numbers, std::uint64_t count, char* rows) {
    penstock::scatter(penstock::this_block(), fs, table, numbers, count, rows);
}

extern "C" __global__ void read_file(const __grid_constant__ penstock::runtime_ref fs,
                                     const char* path, char* to, std::int64_t bytes,
                                     std::int64_t* result) {
    const auto warp = penstock::this_warp();
    const int fd = penstock::open(warp, fs, path);
    std::int64_t got = fd;
    if (fd >= 0) got = penstock::read(warp, fs, fd, to, bytes, 0);
    if (warp.is_leader()) *result = got;
    if (fd >= 0) penstock::close(warp, fs, fd);
}

extern "C" __global__ void sum_elements(const __grid_constant__ penstock::runtime_ref fs, int fd,
                                        float* sum) {
    const penstock::view<float> elements(fs, fd);
    float part = 0;
    for (std::uint64_t i = threadIdx.x; i < elements.size(); i += blockDim.x) part += elements[i];
    atomicAdd(sum, part);
}

extern "C" __global__ void gather_elements(const __grid_constant__ penstock::runtime_ref fs, int fd,
                                           const std::uint64_t* numbers, std::uint64_t count,
                                           char* out) {
    const penstock::row_view rows(fs, fd, {.row_bytes = 256});
    penstock::gather(penstock::this_warp(), rows, numbers, count, out);
}

extern "C" __global__ void write_file(const __grid_constant__ penstock::runtime_ref fs, int fd,
                                      const char* from, std::int64_t bytes) {
    const auto warp = penstock::this_warp();
    penstock::write(warp, fs, fd, from, bytes, 0);
    penstock::prefetch(penstock::lane{}, fs, fd, 0, bytes);
}
