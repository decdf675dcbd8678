// Header of the original GPUfs by its name: penstock/gpufs_host.cuh has what programs use of it.
#pragma once

// Programs of the original count on these through it.
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <iomanip>
#include <iostream>

#include "penstock/gpufs_host.cuh"
