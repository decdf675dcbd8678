#include "gather.hpp"

#include <cstring>

#include "common/files.hpp"
#include "make_block.hpp"
#include "methods.hpp"

namespace penstock::collage {

namespace {

constexpr std::uint32_t batch_records = 1u << 16;  // 192 MiB of histograms
constexpr std::uint32_t batch_references = 1u << 22;
constexpr std::uint32_t batch_blocks = 1u << 14;

}  // namespace

batch_room room_for(std::uint32_t threads) {
    const std::uint32_t over = threads * most_candidates;
    return {batch_records + over, batch_references + over, batch_blocks};
}

gatherer::gatherer(const mapped_library& library, const collage_view& view,
                   const std::uint64_t* keys, const std::uint32_t* order, std::uint32_t threads)
    : library_(library),
      view_(view),
      keys_(keys),
      order_(order),
      threads_(threads),
      staged_(new std::atomic<std::uint64_t>[view.tile_count]()) {}

// The tile's record in this batch. Of threads that want the same tile at once, one reads it, the
// others only need to know where it will be; a place that was taken in vain stays empty.
int gatherer::stage(std::uint32_t id, staged_batch& out, std::uint32_t& record) {
    std::uint64_t known = staged_[id];
    if (known >> 32 != batch_) {
        const std::uint32_t own_record = used_records_++;
        if (staged_[id].compare_exchange_strong(known, batch_ << 32 | own_record)) {
            record = own_record;
            out.ids[own_record] = id;
            ++records_read_;
            if (known == 0) ++unique_tiles_;
            return apps::read_all(library_.histograms_fd(),
                                  out.records + std::uint64_t{own_record} * bins, record_bytes,
                                  std::uint64_t{id} * record_stride_bytes);
        }
        out.ids[own_record] = no_tile;
    }
    record = static_cast<std::uint32_t>(known);
    return 0;
}

// The block's references, most_candidates or fewer, from `references` on.
int gatherer::gather_block(std::uint64_t block, staged_batch& out, std::uint32_t& references) {
    const lane single{};
    state_of<lane> s;
    s.count = s.first = s.code = 0;
    for (std::uint32_t& place : s.set) place = no_tile;
    std::memcpy(s.keys, keys_ + std::uint64_t{order_[block]} * tables, sizeof s.keys);
    for (std::uint32_t t = 0; t < tables; ++t)
        if (const int code = gather_table(single, single, library_, view_, t, s); code != 0)
            return code;
    if (fall_back(single, view_.tile_count, s)) ++fallback_blocks_;
    evaluations_ += s.count;
    const std::uint32_t begin = std::atomic_ref(references).fetch_add(s.count);
    out.ranges[block - out.first_block] = {begin, s.count};
    for (std::uint32_t i = 0; i < s.count; ++i)
        if (const int code = stage(s.list[i], out, out.references[begin + i]); code != 0)
            return code;
    return 0;
}

status gatherer::gather(std::uint64_t first_block, staged_batch& out) {
    ++batch_;
    out.first_block = first_block;
    used_records_ = 0;
    std::uint32_t references = 0;
    std::atomic<std::uint64_t> next{first_block};
    std::atomic<int> code{0};
    apps::on_threads(threads_, [&](std::uint32_t) {
        while (code == 0 && !was_interrupted()) {
            if (used_records_ >= batch_records ||
                std::atomic_ref(references).load() >= batch_references)
                return;
            std::uint64_t block = next;
            // One at a time and never past the end, so that what was taken is a run of blocks
            // without a gap.
            do {
                if (block >= view_.blocks() || block - first_block >= batch_blocks) return;
            } while (!next.compare_exchange_weak(block, block + 1));
            if (const int failed = gather_block(block, out, references); failed != 0) code = failed;
        }
    });
    out.blocks = static_cast<std::uint32_t>(next - first_block);
    out.record_count = used_records_;
    out.reference_count = references;
    if (was_interrupted()) return {-ECANCELED, "interrupted; nothing was written"};
    return code == 0 ? status{} : status{code, ""};
}

}  // namespace penstock::collage
