// What the cases on several GPUs share: a runtime that may have several, and where its reads came
// from.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "context.hpp"
#include "gpu.cuh"

namespace penstock::bench {

// Not by the frame of programs, which use one device.
inline std::unique_ptr<runtime> make_on_gpus(const options& o) {
    std::unique_ptr<runtime> out;
    require(runtime::make(o, out));
    return out;
}

// Of `reads` pages or rows: where they came from.
inline std::string sources(const statistics& before, const statistics& now, std::uint64_t reads) {
    const auto share = [&](std::uint64_t statistics::*count) {
        return static_cast<double>(now.*count - before.*count) / static_cast<double>(reads);
    };
    return text_of(
        "of a read %.3f own, %.3f read through the neighbour, %.3f copied from it, %.3f "
        "through windows, %.4f loaded from them",
        share(&statistics::hits), share(&statistics::neighbour_reads),
        share(&statistics::neighbour_loads), share(&statistics::through_reads),
        share(&statistics::window_loads));
}

}  // namespace penstock::bench
