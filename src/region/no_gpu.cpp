// Stands in for the files of CUDA in a build without it: no device, frame or region is on a GPU.
#include <cerrno>

#include "buffer/pool/device_frames.hpp"
#include "device/device.hpp"
#include "penstock/launch.hpp"
#include "region/mapping_reader.hpp"
#include "region/piece_memory.hpp"
#include "region/region_memory.hpp"

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

namespace penstock::buffer {

std::unique_ptr<device_frames> make_gpu_frames(int, const frames_shape&, std::string& why, bool*) {
    why = "this program was built without CUDA";
    return nullptr;
}

}  // namespace penstock::buffer

namespace penstock::region {

std::unique_ptr<region_memory> make_gpu_memory(int, const memory_shape&, status& why) {
    why = {-ENODEV, "Penstock was built without CUDA"};
    return nullptr;
}
std::unique_ptr<piece_memory> make_gpu_pieces(int, const piece_shape&, status& why) {
    why = {-ENODEV, "Penstock was built without CUDA"};
    return nullptr;
}

std::unique_ptr<stream_turns> make_gpu_turns(int, int& code) {
    code = -ENODEV;
    return nullptr;
}

std::unique_ptr<mapping_reader> make_gpu_reader(int, bool, status& why) {
    reading_device none;
    why = look_at_gpu(0, none);
    return nullptr;
}

status look_at_gpu(int, reading_device&) { return {-ENODEV, "Penstock was built without CUDA"}; }

}  // namespace penstock::region
