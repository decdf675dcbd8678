// Makers on CPU threads: of the right part, and of the left one where there is no GPU. They make
// blocks of pieces that fit a core's own cache, row by row.
#include <cerrno>
#include <utility>

#include "common/device_memory.hpp"
#include "common/threads.hpp"
#include "common/vectors.hpp"
#include "methods.hpp"
#include "penstock/options.hpp"
#include "sharpen.hpp"

namespace penstock::stitch {

PENSTOCK_CLONES("avx2", "default")
void sharpen_row(const std::uint16_t* above, const std::uint16_t* at, const std::uint16_t* below,
                 std::uint16_t* out, std::uint32_t count, bool left, bool right) {
    sharpen_row_inline(above, at, below, out, count, left, right);
}

PENSTOCK_CLONES("avx2", "default")
void store_row(const std::uint16_t* from, std::uint16_t* to, std::uint32_t count) {
    store_row_inline(from, to, count);
}

const char* row_code_name() {
    return apps::vectors_here() != apps::vectors::none ? "AVX2" : "plain code";
}

namespace {

// With the margins of all convolutions two blocks lie in a cache of 1 MiB.
constexpr std::uint32_t block_columns = 512, block_rows = 256;
static_assert(block_columns + 2 * most_convolutions <= most_columns);

struct rows_of {
    const std::uint16_t* first;  // pixel 0, 0 of the tile would be here
    std::uint64_t stride;
    [[nodiscard]] const std::uint16_t* at(std::uint32_t x, std::uint32_t y) const {
        return first + static_cast<std::ptrdiff_t>(y * stride + x);
    }
};

// One convolution of an area, from pixels that go one further wherever the tile does.
void sharpen_area(const rows_of& from, std::uint16_t* to, std::uint64_t stride, const area& a,
                  const tiles_in_memory& t) {
    for (std::uint32_t y = a.top; y < a.bottom; ++y) {
        const std::uint32_t above = y == 0 ? 0 : y - 1, below = y + 1 == t.height ? y : y + 1;
        sharpen_row(from.at(a.left, above), from.at(a.left, y), from.at(a.left, below),
                    to + (y - a.top) * stride, a.width(), a.left > 0, a.right < t.width);
    }
}

// `to`, `other`: room for the block with its margins.
void make_piece(const part_work& work, const piece& p, std::uint16_t* to, std::uint16_t* other) {
    const tiles_in_memory& t = work.tiles;
    rows_of source{t.pixels + (p.tile - t.first) * t.stride, t.width};
    const std::uint64_t stride = area_of(p, work.convolutions, t.width, t.height).width();
    for (std::uint32_t left = work.convolutions; left > 0; --left) {
        const area a = area_of(p, left - 1, t.width, t.height);
        sharpen_area(source, to, stride, a, t);
        source = {to - static_cast<std::ptrdiff_t>(a.top * stride + a.left), stride};
        std::swap(to, other);
    }
    for (std::uint32_t row = 0; row < p.height; ++row)
        store_row(source.at(p.left, p.top + row),
                  work.image.pixels + std::uint64_t{p.y + row} * work.image.stride + p.x, p.width);
}

}  // namespace

status make_on_threads(const part_work& work, std::uint32_t threads) {
    const std::vector<piece> blocks = cut(*work.pieces, block_columns, block_rows);
    if (blocks.empty()) return {};
    constexpr std::uint64_t room =
        (block_columns + 2 * most_convolutions) * (block_rows + 2 * most_convolutions);
    apps::thread_scratch scratch;  // of 4 bytes a number: two pixels
    if (status s = scratch.allocate(threads, room); !s) return s;
    return apps::on_pieces(
        threads, blocks.size(), 1, [&](std::uint32_t thread, std::uint64_t i, std::uint64_t) {
            auto* const here = reinterpret_cast<std::uint16_t*>(scratch.pointers()[thread]);
            make_piece(work, blocks[i], here, here + room);
            return status{};
        });
}

// The part of a GPU where there is none: threads, and memory of the host.

namespace {

class thread_maker final : public part_maker {
public:
    thread_maker(std::uint32_t threads, std::uint32_t copiers)
        : threads_(threads), copiers_(copiers) {}
    status make(const part_work& work) override { return make_on_threads(work, threads_); }

    status take(std::uint64_t tile_bytes, std::uint64_t image_bytes, std::byte*& tiles,
                std::byte*& image) override {
        memory_ = apps::make_host_memory();
        if (memory_->allocate(tiles, tile_bytes) && memory_->allocate(image, image_bytes))
            return {};
        drop();
        return {-ENOMEM, format_size(tile_bytes + image_bytes) +
                             " of memory for tiles and image are not free; use a smaller --split "
                             "or fewer tiles"};
    }
    void drop() override { memory_.reset(); }

    status bring(const tile_set& tiles, std::uint64_t offset, std::uint64_t bytes,
                 std::byte* to) override {
        return read_tiles(tiles, offset, bytes, to, copiers_);
    }

    status send(const rows_in_memory& rows, const image_file& to) override {
        return apps::on_pieces(
            copiers_, rows.height, 1, [&](std::uint32_t, std::uint64_t row, std::uint64_t) {
                return to.write_at(rows.pixels + row * rows.width, 2 * std::uint64_t{rows.width},
                                   image_header_bytes + 2 * row * rows.stride);
            });
    }

private:
    const std::uint32_t threads_, copiers_;
    std::unique_ptr<apps::device_memory> memory_;
};

}  // namespace

std::unique_ptr<part_maker> make_thread_maker(std::uint32_t threads, std::uint32_t copiers) {
    return std::make_unique<thread_maker>(threads, copiers);
}

}  // namespace penstock::stitch
