#include "buffer/pool/device_frames.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "os/anonymous_memory.hpp"
#include "penstock/group/lane.hpp"

namespace penstock::buffer {

namespace {

// Frames of a device that is not there: ordinary memory, and the thread that calls moves.
class cpu_frames final : public device_frames {
public:
    explicit cpu_frames(const frames_shape& shape) : shape_(shape) {}
    bool take() {
        return host_.take(shape_.host_frames * shape_.frame_bytes) &&
               (shape_.device_frames == 0 ||
                device_.take(shape_.device_frames * shape_.frame_bytes));
    }

    [[nodiscard]] std::byte* host_frames() const override { return host_.at(0); }
    int begin(unsigned queue, const std::vector<frame_move>& batch) override {
        if (queue >= shape_.queues || !are_frames_of(shape_, batch)) return -EINVAL;
        for (const frame_move& moved : batch)
            move_page(lane{}, host_.at(0) + moved.host * shape_.frame_bytes,
                      device_.at(0) + moved.device * shape_.frame_bytes, shape_.frame_bytes,
                      moved.way);
        return 0;
    }
    int end(unsigned queue) override { return queue < shape_.queues ? 0 : -EINVAL; }
    int copy_out(const std::vector<frame_move>& batch) override {
        for (const frame_move& moved : batch)
            std::memcpy(host_.at(0) + moved.host * shape_.frame_bytes,
                        device_.at(0) + moved.device * shape_.frame_bytes, shape_.frame_bytes);
        return 0;
    }
    int compare(unsigned queue, const std::vector<frame_pair>& pairs,
                std::vector<std::uint8_t>& equal) override {
        if (queue >= shape_.queues || !are_frames_of(shape_, pairs)) return -EINVAL;
        equal.resize(pairs.size());
        for (std::size_t i = 0; i < pairs.size(); ++i)
            equal[i] = std::memcmp(host_.at(0) + pairs[i].host * shape_.frame_bytes,
                                   device_.at(0) + pairs[i].device * shape_.frame_bytes,
                                   shape_.frame_bytes) == 0
                           ? 1
                           : 0;
        return 0;
    }
    int hash(unsigned queue, signature_kind kind, const std::vector<std::uint32_t>& host,
             std::vector<content_hash>& out) override {
        if (queue >= shape_.queues || !are_frames_of(shape_, host)) return -EINVAL;
        out.resize(host.size());
        for (std::size_t i = 0; i < host.size(); ++i)
            out[i] = hash_of(kind, host_.at(0) + host[i] * shape_.frame_bytes, shape_.frame_bytes);
        return 0;
    }

private:
    const frames_shape shape_;
    host::anonymous_memory host_, device_;
};

}  // namespace

std::unique_ptr<device_frames> make_cpu_frames(const frames_shape& shape, std::string& why) {
    auto out = std::make_unique<cpu_frames>(shape);
    if (shape.host_frames != 0 && out->take()) return out;
    why = "the host has no room for " + std::to_string(shape.host_frames) +
          " frames of its own and " + std::to_string(shape.device_frames) +
          " that stand for a device's";
    return nullptr;
}

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
