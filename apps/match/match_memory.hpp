// What every method places in the memory of the device that compares, and takes from it at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/device_memory.hpp"
#include "match_view.hpp"
#include "methods.hpp"

namespace penstock::match {

// How the work is cut.
struct match_cut {
    std::uint32_t tile_images;
    std::uint32_t query_unit;    // queries of a group are a multiple of it
    std::uint64_t items_wanted;  // at least, if there is so much work: so that a group that ends
                                 // first finds more to do
    std::uint32_t slab_floats;
};

class match_memory {
public:
    // `memory` may be null: there is none of that kind, as in a program without CUDA.
    explicit match_memory(std::unique_ptr<apps::device_memory> memory)
        : memory_(std::move(memory)) {}

    // Room for the queries, the databases' places and the results. The view's queries are not read
    // yet.
    status place(const match_job& job, const match_cut& cut, const std::vector<int>& fds);

    // Before each search, so that one may follow another.
    status reset();
    status upload_queries(const std::vector<float>& queries);
    status download(method_report& report);

    [[nodiscard]] const match_view& view() const { return view_; }
    [[nodiscard]] float* queries() const { return queries_; }
    apps::device_memory& memory() { return *memory_; }

private:
    std::unique_ptr<apps::device_memory> memory_;
    match_view view_{};
    float* queries_ = nullptr;
};

// The queries, padded and without gaps.
status read_queries(const match_job& job, std::vector<float>& out);

}  // namespace penstock::match
