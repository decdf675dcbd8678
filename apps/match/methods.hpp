// The ways to search, and the memory that each method needs on the device that compares. All find
// the same matches with the same distances, bit by bit.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/device_memory.hpp"
#include "common/report_text.hpp"
#include "image_file.hpp"
#include "match_view.hpp"
#include "penstock/runtime.hpp"

namespace penstock::match {

struct match_job {
    image_file queries;
    std::vector<image_file> databases;
    float threshold = 0;
    bool whole = false;    // compare to the end what cannot match any more
    bool windows = false;  // penstock on a GPU
    bool quiet = false;
    options settings;

    [[nodiscard]] std::uint32_t floats() const { return padded_floats(queries.header.floats()); }
    [[nodiscard]] std::uint64_t image_count() const {
        std::uint64_t images = 0;
        for (const image_file& database : databases) images += database.header.image_count;
        return images;
    }
};

// What one method did: its seconds are from the queries in their file to all matches in host
// memory.
struct match_report : apps::method_report {
    match_totals totals{};
    std::vector<std::uint64_t> best;  // of each query, as in match_view
};

// One kernel that reads queries and databases through Penstock.
status match_with_penstock(const match_job& job, match_report& report);

// Baseline: the same comparisons on CPU threads, from memory maps of the databases.
status match_with_cpu(const match_job& job, match_report& report);

// Baseline: the CPU reads the databases into pinned memory, chunk by chunk, and copies and
// comparisons overlap. -ENODEV and a message without a GPU.
status match_with_cuda(const match_job& job, match_report& report);

// What an error code of a search means for the user.
status match_error(const match_job& job, std::uint32_t database, int code);

// What every method places in the memory of the device that compares, and takes from it at the end.

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

    // The databases' places, results that say that nothing is matched yet, and room for the
    // queries.
    status place(const match_job& job, const match_cut& cut, const std::vector<int>& fds);
    status upload_queries(const std::vector<float>& queries);
    status download(match_report& report);

    [[nodiscard]] const match_view& view() const { return view_; }
    [[nodiscard]] float* queries() const { return queries_; }

private:
    std::unique_ptr<apps::device_memory> memory_;
    match_view view_{};
    float* queries_ = nullptr;
};

// The queries, padded and without gaps, into host memory.
status read_queries(const match_job& job, float* to);

}  // namespace penstock::match
