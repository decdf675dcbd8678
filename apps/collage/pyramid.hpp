// A picture that comes row by row, at all its scales at once: keeps the last rows of each scale and
// hands out bands of 32. Memory: 64 rows a scale, whatever the picture's height.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tiling.hpp"

namespace penstock::collage {

class pyramid {
public:
    // emit(level, row, pixels): `pixels` are the 32 rows of a band, whose tiles are row number
    // `row` of that level's plan.
    using emitter = std::function<void(std::uint32_t, std::uint32_t, const std::uint8_t*)>;
    pyramid(const picture_plan& plan, std::uint32_t stride, emitter emit);

    // Where the next row of the full scale belongs; valid until the next push().
    std::uint8_t* next_row() { return row_for(levels_.front()); }
    // That row is there.
    void push() { pushed(0); }

private:
    struct level {
        std::uint32_t width;
        std::uint32_t height;
        std::uint32_t seen = 0;    // rows so far
        std::uint32_t filled = 0;  // rows in the buffer
        std::vector<std::uint8_t> rows;
    };
    static std::uint8_t* row_for(level& l);
    void pushed(std::uint32_t number);

    std::uint32_t stride_;
    emitter emit_;
    std::vector<level> levels_;
};

// Each pixel of `out` is the mean of four, rounded to nearest: two of `above` and the two below
// them.
void halve_rows(const std::uint8_t* above, const std::uint8_t* below, std::uint32_t out_width,
                std::uint8_t* out);

}  // namespace penstock::collage
