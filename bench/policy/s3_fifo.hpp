// S3-FIFO (Yang and others, SOSP 2023): a small queue, a tenth of the frames, for new pages; a main
// queue for those that were used twice meanwhile or came back soon after they were dropped; and a
// queue of names only, as long as the main one, that remembers what was dropped. A hit counts up to
// three in two bits.
#pragma once

#include <algorithm>

#include "buffer/core/linked.hpp"
#include "fifo.hpp"

namespace penstock::bench::policy {

using buffer::linked;
using buffer::list_ends;

class s3_fifo {
public:
    s3_fifo(std::uint32_t frames, std::uint32_t pages)
        : frames_(frames),
          small_frames_(std::max(frames / 10, 1u)),
          names_(std::max(frames - frames / 10, 1u)),
          links_(pages),
          where_(pages),
          count_(pages) {}

    bool access(std::uint32_t page) {
        if (where_[page] == place::small || where_[page] == place::main) {
            count_[page] = static_cast<std::uint8_t>(std::min(count_[page] + 1, 3));
            return true;
        }
        const bool remembered = where_[page] == place::name;
        // Out of the way first: making room may push it out of the queue of names.
        if (remembered) move(page, place::none);
        while (small_.size + main_.size >= frames_) evict();
        count_[page] = 0;
        move(page, remembered ? place::main : place::small);
        return false;
    }

private:
    enum class place : std::uint8_t { none, small, main, name };

    void evict() {
        if (small_.size >= small_frames_ || main_.size == 0) evict_small();
        else evict_main();
    }
    void evict_small() {
        while (small_.size > 0) {
            const std::uint32_t oldest = small_.oldest;
            if (count_[oldest] > 1) {
                count_[oldest] = 0;
                move(oldest, place::main);
                continue;
            }
            if (remembered_.size == names_) move(remembered_.oldest, place::none);
            move(oldest, place::name);
            return;
        }
    }
    void evict_main() {
        for (;;) {
            const std::uint32_t oldest = main_.oldest;
            if (count_[oldest] == 0) return move(oldest, place::none);
            --count_[oldest];
            move(oldest, place::main);
        }
    }
    void move(std::uint32_t page, place to) {
        if (where_[page] != place::none) links_.remove(ends(where_[page]), page);
        where_[page] = to;
        if (to != place::none) links_.push_newest(ends(to), page);
    }
    list_ends& ends(place of) {
        return of == place::small ? small_ : of == place::main ? main_ : remembered_;
    }

    std::uint32_t frames_, small_frames_, names_;
    linked links_;
    list_ends small_, main_, remembered_;
    std::vector<place> where_;
    std::vector<std::uint8_t> count_;
};

}  // namespace penstock::bench::policy
