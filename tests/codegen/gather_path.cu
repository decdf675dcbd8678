// Gathers whose machine code check_hit_path.py judges. In a file of their own: a kernel without
// launch bounds is given the registers of every function of its file that is called by address.
#include "penstock/gather.hpp"
#include "penstock/group/gpu_groups.cuh"

__global__ void __launch_bounds__(256, 3)
    gather_by_warp(const __grid_constant__ penstock::runtime_ref fs, int fd,
                   const __grid_constant__ penstock::row_shape shape, const std::uint64_t* indices,
                   std::uint64_t count, void* out, std::int64_t* result) {
    *result = penstock::gather(penstock::this_warp(), penstock::row_view(fs, fd, shape), indices,
                               count, out);
}

__global__ void __launch_bounds__(256, 4)
    gather_elements(const __grid_constant__ penstock::runtime_ref fs, int fd,
                    const std::uint64_t* indices, std::uint64_t count, double* out,
                    std::int64_t* result) {
    *result = penstock::gather(penstock::this_warp(), penstock::view<double>(fs, fd), indices,
                               count, out);
}
