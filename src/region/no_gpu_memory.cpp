// Of a build without CUDA: no runtime is on a GPU.
#include "region/region_memory.hpp"

namespace penstock::region {

std::unique_ptr<region_memory> make_gpu_memory(int, const memory_shape&, std::string& why) {
    why = "Penstock was built without CUDA";
    return nullptr;
}

}  // namespace penstock::region
