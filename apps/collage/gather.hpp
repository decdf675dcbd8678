// The CPU's part of the CUDA baseline: collects the candidates of a run of blocks, each tile once,
// and reads their histograms into staging memory. All cores.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "library.hpp"
#include "make_block.hpp"

namespace penstock::collage {

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
