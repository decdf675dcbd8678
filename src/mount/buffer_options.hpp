// Which buffer a mount reads files through, and the memory of one (docs/guide/buffer.md).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "buffer/pool/manager.hpp"
#include "penstock/error.hpp"
#include "penstock/options.hpp"

namespace penstock::mount {

struct buffer_options {
    buffer::policy_kind policy = buffer::policy_kind::gram;
    std::uint64_t ram_bytes = 0, gpu_bytes = 0;  // whole pages of them are used
    std::uint32_t page_bytes = 4096;             // a power of two, 4 KiB to 1 MiB
    backend where = backend::automatic;          // of the device's part
};

// mount_options::threads, or one for each processor, at least 4.
unsigned serving_threads(std::optional<std::uint32_t> wanted);

// Pages, sessions and files of a buffer that so many threads use.
buffer::manager_settings settings_of(const buffer_options& wanted, unsigned threads);

// What cannot be, with the option that says so and the cure.
status check(const buffer_options& wanted, unsigned threads);

// After the check. A device that has less than was asked for is refused, with its size.
status make_frames(const buffer_options& wanted, const buffer::frames_shape& shape,
                   std::unique_ptr<buffer::device_frames>& out, bool& on_gpu);

}  // namespace penstock::mount
