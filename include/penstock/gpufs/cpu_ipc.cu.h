// Header of the original GPUfs by its name: penstock/gpufs_host.cuh has what programs use of it.
#pragma once

#include "penstock/gpufs_host.cuh"
