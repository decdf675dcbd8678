#include "buffer/pool/choose_frames.hpp"

#include <unistd.h>

#include <cerrno>
#include <string>

namespace penstock::buffer {

std::uint64_t memory_of_machine() {
    return static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
           static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

status choose_frames(backend where, int device, const frames_shape& shape,
                     std::unique_ptr<device_frames>& out, bool& on_gpu) {
    std::string why;
    on_gpu = false;
    if (where != backend::cpu && shape.device_frames != 0) {
        bool is_short = false;
        const bool is_there = where == backend::gpu ||
                              make_gpu_frames(device, {.host_frames = 1, .device_frames = 1}, why,
                                              &is_short) != nullptr ||
                              is_short;
        if (is_there) {
            out = make_gpu_frames(device, shape, why, &is_short);
            on_gpu = out != nullptr;
            return on_gpu ? status{}
                          : status{is_short ? -ENOMEM : -ENODEV, "the buffer on the GPU: " + why};
        }
    }
    const std::uint64_t there = memory_of_machine(), host = shape.frame_bytes * shape.host_frames,
                        instead = shape.frame_bytes * shape.device_frames;
    if (host + instead > there)
        return {-ENOMEM,
                "a buffer of " + format_size(host) +
                    (instead == 0 ? "" : " and, in place of a device's, " + format_size(instead)) +
                    " is more than this machine's memory, " + format_size(there)};
    out = make_cpu_frames(shape, why);
    return out != nullptr ? status{} : status{-ENOMEM, why};
}

}  // namespace penstock::buffer
