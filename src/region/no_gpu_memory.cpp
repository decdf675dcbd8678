// Of a build without CUDA: no runtime is on a GPU.
#include <cerrno>

#include "region/mapping_reader.hpp"
#include "region/piece_memory.hpp"
#include "region/region_memory.hpp"

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
