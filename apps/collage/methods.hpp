// The ways to make a collage, and what they share.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "common/device_memory.hpp"
#include "common/report_text.hpp"
#include "library.hpp"
#include "make_block.hpp"
#include "picture.hpp"

namespace penstock::collage {

// What one method did. Its one time goes from the picture in host memory to the collage there, and
// is that of four parts.
struct method_report : apps::method_report {
    // In which order the blocks are made; the picture goes to the device meanwhile.
    double order_seconds = 0;
    double upload_seconds = 0;   // what of that was left, and the order
    double compute_seconds = 0;  // kernels, and the work of CPU threads
    // The collage from the device; cuda: the winners' pixels put in place.
    double download_seconds = 0;
    std::uint64_t blocks = 0;
    std::uint64_t evaluations = 0;   // candidates compared
    std::uint64_t unique_tiles = 0;  // of these, different tiles
    std::uint64_t fallback_blocks = 0;
    // Pages of the library that were loaded (penstock), touched (cpu), staged (cuda)
    std::uint64_t pages_read = 0;
    std::uint64_t batches = 0;  // cuda only
};

struct collage_job {
    const library& from;
    const picture& in;
    const options& settings;
    bool quiet;
};

// One kernel that reads the library through Penstock.
status make_with_penstock(const collage_job& job, picture& out, method_report& report);

// Baseline: the same on CPU threads, from memory maps of the library.
status make_with_cpu(const collage_job& job, picture& out, method_report& report);

// Baseline: two kernels, the CPU gathers in between. -ENODEV and a message without a GPU.
status make_with_cuda(const collage_job& job, picture& out, method_report& report);

// What an error code of a block means for the user.
status block_error(const library& from, int code);

// Room for both pictures, the hash functions and the totals. On a CPU the view leads to the
// pictures themselves.
status place_collage(apps::device_memory& memory, bool on_gpu, const library_header& h,
                     const picture& in, picture& out, collage_view& v);

// Finds the order of the blocks while the picture goes to the device, then calls `compute(order)`
// and `fetch()`, which brings the collage back. Fills in how long each part took.
status timed_collage(const collage_job& job, apps::device_memory& memory, const collage_view& v,
                     method_report& report,
                     const std::function<status(const std::vector<std::uint32_t>&)>& compute,
                     const std::function<status()>& fetch);

// The collage and the totals from the device.
status download_result(apps::device_memory& memory, const collage_view& v, picture& out,
                       collage_totals& totals);

// Fills in what was compared, after the clock stopped. The first error of a block.
status note_counts(const collage_job& job, apps::device_memory& memory, const collage_view& v,
                   const collage_totals& totals, method_report& report);

}  // namespace penstock::collage
