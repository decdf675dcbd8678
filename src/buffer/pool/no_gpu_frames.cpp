// A build without CUDA has no frames on a GPU.
#include "buffer/pool/device_frames.hpp"

namespace penstock::buffer {

std::unique_ptr<device_frames> make_gpu_frames(int, const frames_shape&, std::string& why, bool*) {
    why = "this program was built without CUDA";
    return nullptr;
}

}  // namespace penstock::buffer
