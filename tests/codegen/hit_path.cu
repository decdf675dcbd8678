// Kernels whose machine code check_hit_path.py judges: one read each, by a warp and by a block, and
// a map.
#include "penstock/file.hpp"
#include "penstock/group/gpu_groups.cuh"

__global__ void __launch_bounds__(256)
    read_by_warp(const __grid_constant__ penstock::runtime_ref fs, int fd, void* buffer,
                 std::int64_t* result) {
    *result = penstock::read(penstock::this_warp(), fs, fd, buffer, 4096, blockIdx.x * 4096ll);
}

__global__ void __launch_bounds__(256)
    read_by_block(const __grid_constant__ penstock::runtime_ref fs, int fd, void* buffer,
                  std::int64_t* result) {
    *result = penstock::read(penstock::this_block(), fs, fd, buffer, 65536, blockIdx.x * 65536ll);
}

__global__ void __launch_bounds__(256)
    map_by_warp(const __grid_constant__ penstock::runtime_ref fs, int fd, unsigned* result) {
    const penstock::warp g;
    const penstock::mapping m = penstock::map(g, fs, fd, blockIdx.x * 4096ll, 4096);
    if (m.bytes > 0) *result = static_cast<unsigned>(m.data[g.rank()]);
    penstock::unmap(g, fs, m);
}
