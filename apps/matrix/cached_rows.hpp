// Numbers in the page cache: those of a row that stay pinned where they lie, parts of matrices that
// are copied from there, and those of the result.
#pragma once

#include <cerrno>
#include <cstdint>

#include "common/whole_write.hpp"
#include "penstock/file.hpp"
#include "penstock/gather.hpp"
#include "views.hpp"

namespace penstock::matrix {

// Where a number lies in its file.
constexpr PENSTOCK_HD std::int64_t byte_of(std::uint64_t place) {
    return static_cast<std::int64_t>(place * sizeof(float));
}

// Whole group: numbers to a file, from place `first` on. 0 or a negative errno.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t write_numbers(const Group& g, const runtime_ref& fs,
                                                       int fd, const float* from,
                                                       std::uint64_t count, std::uint64_t first) {
    return apps::write_whole(g, fs, fd, from, byte_of(count), byte_of(first));
}

// Where numbers of a row lie: side by side in at most two places. The i-th is front[i] if i <
// split, else back[i].
struct row_run {
    static constexpr std::uint16_t no_split = 0xffff;
    const float* front;
    const float* back;
    std::uint16_t split;
};

// Of one group; a stretch of numbers after the other. At most two pages are pinned at a time.
class held_row {
public:
    // Whole group. `count` numbers of the file from place `first` on, no more than a page has, lie
    // in `out` until the next call. A page that has all of them is held from one call to the next,
    // and its bytes up to place `end` are no reason to ask again. 0, or a negative errno; then
    // nothing is held.
    template <typename Group>
    PENSTOCK_HD std::int64_t move(const Group& g, const runtime_ref& fs, int fd,
                                  std::uint64_t first, std::uint64_t count, std::uint64_t end,
                                  row_run& out) {
        if (!covers(first, count)) {
            release(g, fs);
            front_ = map(g, fs, fd, byte_of(first), byte_of(end - first));
            begin_ = first;
            if (!has_numbers(front_)) return give_up(g, fs, front_.bytes);
        }
        const std::uint64_t in_front = numbers_of(front_) - (first - begin_);
        out = {reinterpret_cast<const float*>(front_.data) + (first - begin_), nullptr,
               row_run::no_split};
        if (in_front >= count) return 0;
        back_ = map(g, fs, fd, byte_of(first + in_front), byte_of(count - in_front));
        if (!has_numbers(back_) || numbers_of(back_) < count - in_front)
            return give_up(g, fs, back_.bytes);
        out.back = reinterpret_cast<const float*>(back_.data) - in_front;
        out.split = static_cast<std::uint16_t>(in_front);
        return 0;
    }

    // Whole group.
    template <typename Group>
    PENSTOCK_HD void release(const Group& g, const runtime_ref& fs) {
        unmap(g, fs, front_);
        unmap(g, fs, back_);
        front_ = back_ = mapping{};
    }

private:
    PENSTOCK_HD static std::uint64_t numbers_of(const mapping& m) {
        return static_cast<std::uint64_t>(m.bytes) / sizeof(float);
    }
    PENSTOCK_HD static bool has_numbers(const mapping& m) {
        return m.bytes >= static_cast<std::int64_t>(sizeof(float));
    }

    PENSTOCK_HD bool covers(std::uint64_t first, std::uint64_t count) const {
        return front_.data != nullptr && first >= begin_ &&
               first + count <= begin_ + numbers_of(front_);
    }
    // Fewer bytes than there were when the file was opened: it was cut short.
    template <typename Group>
    PENSTOCK_HD std::int64_t give_up(const Group& g, const runtime_ref& fs, std::int64_t code) {
        release(g, fs);
        return code < 0 ? code : -ESTALE;
    }

    mapping front_{}, back_{};
    std::uint64_t begin_ = 0;  // place of the first number of front_
};

// The matrices as rows that are gathered: of what is there nothing is locked, and missing pages are
// loaded together.
struct cached_matrices {
    const runtime_ref& fs;
    const product_view& view;
    int a, b;

    PENSTOCK_HD int file_of(bad_file which) const { return which == bad_file::a ? a : b; }
    PENSTOCK_HD std::uint64_t columns_of(bad_file which) const {
        return which == bad_file::a ? view.k : view.n;
    }

    // Whole group: `columns` numbers of each of some rows, one behind the other to `to`. 0 or a
    // negative errno.
    template <typename Group>
    PENSTOCK_HD PENSTOCK_INLINE std::int64_t fetch(const Group& g, bad_file which,
                                                   std::uint64_t row, std::uint64_t rows,
                                                   std::uint64_t column, std::uint64_t columns,
                                                   float* to) const {
        const row_view from(
            fs, file_of(which),
            {columns * sizeof(float), columns_of(which) * sizeof(float), column * sizeof(float)});
        const std::int64_t done = gather(g, from, view.numbers + row, rows, to);
        return done < 0 ? done : 0;
    }
};

}  // namespace penstock::matrix
