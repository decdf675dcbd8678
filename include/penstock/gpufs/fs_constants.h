// Header of the original GPUfs by its name: penstock/gpufs_compat.cuh has what it had.
#pragma once

#include "penstock/gpufs_compat.cuh"
