// Images through Penstock's page cache.
#pragma once

#include <cerrno>
#include <cstdint>

#include "match_view.hpp"
#include "penstock/file.hpp"
#if defined(__CUDACC__)
#include "block_compare.cuh"
#endif

namespace penstock::match {

class page_source {
public:
    PENSTOCK_HD explicit page_source(const runtime_ref& fs) : fs_(fs) {}

    // On a CPU thread: pins one page at a time.
    template <typename Visit>
    int visit(const tile_place& at, std::uint64_t first_byte, std::uint64_t bytes,
              const Visit& visit) const {
        for (std::uint64_t done = 0; done < bytes;) {
            const mapping piece =
                map(lane{}, fs_, at.from.fd, static_cast<std::int64_t>(first_byte + done),
                    static_cast<std::int64_t>(bytes - done));
            if (piece.bytes <= 0) return failure(piece);
            const auto here = static_cast<std::uint64_t>(piece.bytes);
            visit(reinterpret_cast<const float*>(piece.data), done / sizeof(float),
                  here / sizeof(float));
            unmap(lane{}, fs_, piece);
            done += here;
        }
        return 0;
    }

#if defined(__CUDACC__)
    PENSTOCK_D std::uint32_t page_shift() const { return fs_.view.page_shift; }
    PENSTOCK_D std::uint32_t in_page(std::uint64_t byte) const {
        return static_cast<std::uint32_t>(byte & (fs_.view.page_bytes() - 1));
    }

    // Whole block: pins the pages of a slab of each image. Each warp has images of its own, side by
    // side, and begins with another one in each group, so that blocks that want the same tile do
    // not wait for the same pages but bring different ones.
    PENSTOCK_D bool pin(const block& g, const match_view& v, const tile_place& at,
                        std::uint32_t slab, std::uint32_t floats, block_state& s) const {
        const warp w = this_warp();
        constexpr std::uint32_t rows = block_images / (block_threads / 32);
        const std::uint32_t turn =
            static_cast<std::uint32_t>(at.query_begin / v.group_queries) * rows / v.group_count;
        for (std::uint32_t i = 0; i < rows; ++i) {
            const std::uint32_t row = threadIdx.x / 32 * rows + (i + turn) % rows;
            const std::int32_t code = row < at.images ? pin_row(w, at, row, slab, floats, s) : 0;
            if (code != 0 && w.is_leader()) s.code = code;  // of several any one will do
            if (code != 0) break;
        }
        g.sync();
        return s.code == 0;
    }

    // Whole block: gives them back. What every thread has read of them comes before, by the barrier
    // and the release of the pin.
    PENSTOCK_D void unpin(const block& g, block_state& s) const {
        g.sync();
        if (threadIdx.x < block_images) {
            for (std::uint32_t i = 0; i < s.pieces[threadIdx.x]; ++i)
                unmap(lane{}, fs_,
                      mapping{fs_.view.frame_address(s.frame[threadIdx.x][i]), 0,
                              s.word[threadIdx.x][i], s.frame[threadIdx.x][i]});
            s.pieces[threadIdx.x] = 0;
        }
        g.sync();
    }

private:
    PENSTOCK_D std::int32_t pin_row(const warp& w, const tile_place& at, std::uint32_t row,
                                    std::uint32_t slab, std::uint32_t floats,
                                    block_state& s) const {
        const std::uint64_t begin = at.byte_of(row) + std::uint64_t{slab} * sizeof(float);
        const std::uint32_t bytes = floats * sizeof(float);
        std::uint32_t count = 0;
        for (std::uint32_t done = 0; done < bytes; ++count) {
            const mapping piece =
                map(w, fs_, at.from.fd, static_cast<std::int64_t>(begin + done), bytes - done);
            if (piece.bytes <= 0) return failure(piece);
            if (w.is_leader()) {
                s.piece[row][count] = reinterpret_cast<std::uint64_t>(piece.data) - done;
                s.word[row][count] = piece.word_index;
                s.frame[row][count] = piece.frame;
                s.pieces[row] = count + 1;
            }
            done += static_cast<std::uint32_t>(piece.bytes);
        }
        return 0;
    }
#endif

private:
    // A page that has no bytes where there should be some: the file was checked when it was opened,
    // so it shrank.
    static PENSTOCK_HD std::int32_t failure(const mapping& piece) {
        return piece.bytes < 0 ? static_cast<std::int32_t>(piece.bytes) : -ESTALE;
    }

    const runtime_ref& fs_;
};

}  // namespace penstock::match
