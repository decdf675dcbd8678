// The ways to make a collage, and what they share.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "common/device_memory.hpp"
#include "common/report_text.hpp"
#include "library.hpp"
#include "make_block.hpp"
#include "picture.hpp"

namespace penstock::collage {

// What one method did. Its one time goes from the picture in host memory to the collage there.
struct method_report : apps::method_report {
    // Of that time, in seconds:
    //   order     in which the blocks are made; the picture goes to the device meanwhile
    //   upload    what of that was left, and the order
    //   compute   kernels, and the work of CPU threads
    //   download  the collage from the device; cuda: the winners' pixels put in place
    std::vector<std::pair<const char*, double>> parts;
    std::uint64_t blocks = 0;
    std::uint64_t evaluations = 0;   // candidates compared
    std::uint64_t unique_tiles = 0;  // of these, different tiles
    std::uint64_t fallback_blocks = 0;
    // Pages of the library that were loaded (penstock), touched (cpu), staged (cuda), in regions
    // (regions)
    std::uint64_t pages_read = 0;
    std::uint64_t batches = 0;  // cuda only
    std::vector<std::uint64_t> evaluations_by_device;
};

// The collage on one device: its memory, and what kernels need there.
struct collage_side {
    std::unique_ptr<apps::device_memory> memory;
    collage_view view{};
};
using collage_sides = std::vector<collage_side>;

struct collage_job {
    const library& from;
    const picture& in;
    const options& settings;
    bool quiet;
    bool windows;       // penstock on a GPU
    bool cached;        // penstock: the library is brought into the cache before the time
    bool whole_blocks;  // penstock on a GPU: a thread block reads a record, and not a warp
    bool in_place;      // regions: in the operating system's page cache
};

// One kernel that reads the library through Penstock.
status make_with_penstock(const collage_job& job, picture& out, method_report& report);

// Threads of a thread block that makes blocks of the picture. A small picture has fewer blocks than
// fit on the devices; larger thread blocks then keep them busy.
std::uint32_t threads_for(const runtime& rt, std::uint64_t blocks);

// One kernel that reads the library by plain pointers, from regions of its files.
status make_with_regions(const collage_job& job, picture& out, method_report& report);

// Baseline: the same on CPU threads, from memory maps of the library.
status make_with_cpu(const collage_job& job, picture& out, method_report& report);

// Baseline: two kernels, the CPU gathers in between. -ENODEV and a message without a GPU.
status make_with_cuda(const collage_job& job, picture& out, method_report& report);

// What an error code of a block means for the user.
status block_error(const library& from, int code);

// Room on each side for the pictures, the hash functions and the totals. On a CPU the views lead to
// the pictures themselves; several GPUs write straight to the collage in host memory, which all of
// them reach.
status place_collage(const collage_job& job, bool on_gpu, picture& out, collage_sides& sides);

// Finds the order of the blocks while the picture goes to the devices, then calls `compute(order)`
// and `fetch()`, which brings the collage back. Fills in how long each part took.
status timed_collage(const collage_job& job, const collage_sides& sides, method_report& report,
                     const std::function<status(const std::vector<std::uint32_t>&)>& compute,
                     const std::function<status()>& fetch);

// The collage, where it is not in host memory yet, and the totals of each device.
status download_result(const collage_sides& sides, picture& out,
                       std::vector<collage_totals>& totals);

// Fills in what was compared, after the clock stopped. The first error of a block.
status note_counts(const collage_job& job, const collage_sides& sides,
                   const std::vector<collage_totals>& totals, method_report& report);

// Which part of a batch's references belongs to a block.
struct reference_range {
    std::uint32_t begin;
    std::uint32_t count;
};

// Staging memory of one batch, in memory that the caller owns (pinned, for a GPU).
struct staged_batch {
    std::uint32_t* records = nullptr;  // [record_room][bins]
    std::uint32_t* ids = nullptr;      // [record_room]: which tile a record is of
    // [reference_room]: the records that a block is compared with.
    std::uint32_t* references = nullptr;
    reference_range* ranges = nullptr;  // [block_room]
    // Filled in by gather():
    std::uint64_t first_block = 0;  // in the order; its blocks are so numbered too
    std::uint32_t blocks = 0;
    std::uint32_t record_count = 0;
    std::uint32_t reference_count = 0;
};

inline constexpr std::uint32_t batch_records = 1u << 16;  // 192 MiB of histograms
inline constexpr std::uint32_t batch_references = 1u << 22;
inline constexpr std::uint32_t batch_blocks = 1u << 14;

// Sizes of a batch's memory for so many threads. Each thread may overshoot by one block.
struct batch_room {
    std::uint32_t records;
    std::uint32_t references;
    std::uint32_t blocks;
};

inline batch_room room_for(std::uint32_t threads) {
    const std::uint32_t over = threads * most_candidates;
    return {batch_records + over, batch_references + over, batch_blocks};
}

// The CPU's part of the CUDA baseline: collects the candidates of a run of blocks, each tile once,
// and reads their histograms into staging memory. All cores.
class gatherer {
public:
    // `keys`: those of all blocks, tables of them a block. `order`: of the blocks, in host memory.
    // All must outlive the gatherer.
    gatherer(const mapped_library& library, const collage_view& view, const std::uint64_t* keys,
             const std::uint32_t* order, std::uint32_t threads)
        : library_(library),
          view_(view),
          keys_(keys),
          order_(order),
          threads_(threads),
          staged_(new std::atomic<std::uint64_t>[view.tile_count]()) {}

    // Takes blocks from number `first_block` of the order on until the batch is full or the picture
    // ends.
    status gather(std::uint64_t first_block, staged_batch& out);

    [[nodiscard]] std::uint64_t records_read() const { return records_read_; }
    [[nodiscard]] std::uint64_t unique_tiles() const { return unique_tiles_; }
    [[nodiscard]] std::uint64_t evaluations() const { return evaluations_; }
    [[nodiscard]] std::uint64_t fallback_blocks() const { return fallback_blocks_; }

private:
    int gather_block(std::uint64_t block, staged_batch& out,
                     std::atomic<std::uint32_t>& references);
    int stage(std::uint32_t id, staged_batch& out, std::uint32_t& record);

    const mapped_library& library_;
    const collage_view& view_;
    const std::uint64_t* keys_;
    const std::uint32_t* order_;
    std::uint32_t threads_;
    std::uint64_t batch_ = 0;
    std::atomic<std::uint32_t> used_records_{0};
    // For each tile, the batch that staged it last (from 1 on; 0: none), and its record there.
    std::unique_ptr<std::atomic<std::uint64_t>[]> staged_;
    std::atomic<std::uint64_t> records_read_{0}, unique_tiles_{0}, evaluations_{0},
        fallback_blocks_{0};
};

}  // namespace penstock::collage
