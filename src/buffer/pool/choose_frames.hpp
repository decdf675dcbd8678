// Where the frames of a buffer lie: on a GPU, or in ordinary memory that stands for one.
#pragma once

#include <cstdint>
#include <memory>

#include "buffer/pool/device_frames.hpp"
#include "penstock/error.hpp"
#include "penstock/options.hpp"

namespace penstock::buffer {

// automatic: a GPU if there is one, and then one that has too little room is refused and not passed
// by. Without frames of a device all are ordinary memory. -ENODEV or -ENOMEM, with what there is;
// the caller adds which of its options is the cure.
status choose_frames(backend where, int device, const frames_shape& shape,
                     std::unique_ptr<device_frames>& out, bool& on_gpu);

std::uint64_t memory_of_machine();

}  // namespace penstock::buffer
