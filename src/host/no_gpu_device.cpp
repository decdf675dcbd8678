// Stands in for gpu_device.cu in a build without CUDA.
#include "host/device.hpp"

namespace penstock::host {

std::unique_ptr<cache_device> make_gpu_device(int, std::string& why) {
    why = "this build has no CUDA; configure with nvcc on PATH";
    return nullptr;
}

}  // namespace penstock::host
