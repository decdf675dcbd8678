// What every method places in the memory of the device that computes.
#pragma once

#include <memory>
#include <utility>

#include "common/device_memory.hpp"
#include "matvec_view.hpp"
#include "methods.hpp"

namespace penstock::matvec {

class matvec_memory {
public:
    // `memory` may be null: there is none of that kind, as in a program without CUDA.
    explicit matvec_memory(std::unique_ptr<apps::device_memory> memory)
        : memory_(std::move(memory)) {}

    // Room for the vector, the sums and the result.
    status place(const matvec_job& job);

    // Before each product, so that one may follow another.
    status reset();
    // What went wrong in the product, with a message that names the file.
    status outcome(const matvec_job& job);
    status upload_vector(const float* from);
    status download_result(float* to);

    [[nodiscard]] const matvec_view& view() const { return view_; }
    [[nodiscard]] float* x() const { return x_; }

private:
    std::unique_ptr<apps::device_memory> memory_;
    matvec_view view_{};
    float* x_ = nullptr;
};

}  // namespace penstock::matvec
