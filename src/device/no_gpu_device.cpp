// Stands in for gpu_device.cu in a build without CUDA.
#include <cerrno>

#include "device/device.hpp"
#include "penstock/launch.hpp"

namespace penstock::host {

std::unique_ptr<cache_device> make_gpu_device(int, status& why) {
    why = {-ENODEV, "this build has no CUDA; configure with nvcc on PATH"};
    return nullptr;
}

int gpu_of_memory(const void*) { return -1; }
int wait_for_gpu(int) { return 0; }

}  // namespace penstock::host

namespace penstock::detail {

bool enter_device(int) { return false; }
void leave_device() {}

}  // namespace penstock::detail
