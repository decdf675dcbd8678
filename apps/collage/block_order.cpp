// Blocks share candidates if they lie close together in the space that the hash functions project
// (docs/apps/collage.md). So the blocks are split there in two by two means, and again, and of two
// halves that one comes first which lies nearer to what comes before. A curve through the mean
// colours alone would load half as many pages again.
#include "picture.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <numeric>

#include "library.hpp"
#include "common/threads.hpp"

namespace penstock::collage {

namespace {

constexpr std::uint32_t values = 3 * knots_per_channel;
constexpr std::uint32_t samples_per_side = 8;  // of a block; every 4th pixel tells enough
constexpr std::uint32_t least_split = 4;       // blocks; of fewer, the order does not matter
constexpr std::uint32_t inline_blocks = 512;   // fewer are split by the thread that has them
constexpr std::uint32_t sampled_blocks = 256;  // from which a split finds its two means
constexpr std::uint32_t mean_rounds = 4;

// Counts of a block's colours at the knots of the hash functions. Whole numbers, so that every
// machine finds the same order.
using point = std::array<std::int32_t, values>;

struct block_point {
    std::array<std::int16_t, values> at;
    std::uint32_t block;
};

template <typename Number>
std::int32_t squared_distance(const std::array<Number, values>& a, const point& b) {
    std::int32_t sum = 0;
    for (std::uint32_t i = 0; i < values; ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sum;
}

point point_of(const block_point& from) {
    point out;
    std::copy(from.at.begin(), from.at.end(), out.begin());
    return out;
}

// A pixel counts at the two knots that its colour lies between, as its histogram's bin does in a
// projection.
block_point look_at(const picture& of, std::uint32_t block, std::uint32_t columns) {
    block_point out{{}, block};
    const std::uint32_t left = block % columns * tile_side, top = block / columns * tile_side;
    constexpr std::uint32_t step = tile_side / samples_per_side;
    for (std::uint32_t j = 0; j < samples_per_side; ++j) {
        const std::uint32_t y = std::min(of.height - 1, top + j * step + step / 2);
        const std::uint8_t* const row = of.rgb.data() + std::size_t{y} * of.width * 3;
        for (std::uint32_t i = 0; i < samples_per_side; ++i) {
            const std::uint8_t* const pixel =
                row + std::size_t{std::min(of.width - 1, left + i * step + step / 2)} * 3;
            for (std::uint32_t c = 0; c < 3; ++c) {
                const std::uint32_t feature = pixel[c] / bins_per_feature,
                                    behind = feature % features_per_knot;
                std::int16_t* const knot =
                    &out.at[c * knots_per_channel + feature / features_per_knot];
                knot[0] = static_cast<std::int16_t>(
                    knot[0] + static_cast<std::int16_t>(features_per_knot - behind));
                knot[1] = static_cast<std::int16_t>(knot[1] + static_cast<std::int16_t>(behind));
            }
        }
    }
    return out;
}

// Blocks that follow each other, and the means of what lies before and behind them.
struct range {
    std::size_t begin, end;
    point before, behind;
    bool has_before, has_behind;
};

// The means of the two parts that a sample of the range falls into; false if all of it is alike.
bool find_means(const std::vector<block_point>& points, const range& r, point& first,
                point& second) {
    const std::size_t step = std::max<std::size_t>(1, (r.end - r.begin) / sampled_blocks);
    first = point_of(points[r.begin]);
    std::int32_t farthest = 0;
    for (std::size_t i = r.begin; i < r.end; i += step)
        if (const std::int32_t d = squared_distance(points[i].at, first); d > farthest) {
            farthest = d;
            second = point_of(points[i]);
        }
    if (farthest == 0) return false;
    for (std::uint32_t round = 0; round < mean_rounds; ++round) {
        point sum[2] = {};
        std::int32_t count[2] = {};
        for (std::size_t i = r.begin; i < r.end; i += step) {
            const bool in_second =
                squared_distance(points[i].at, second) < squared_distance(points[i].at, first);
            ++count[in_second];
            for (std::uint32_t k = 0; k < values; ++k) sum[in_second][k] += points[i].at[k];
        }
        if (count[0] == 0 || count[1] == 0) break;
        for (std::uint32_t k = 0; k < values; ++k) {
            first[k] = sum[0][k] / count[0];
            second[k] = sum[1][k] / count[1];
        }
    }
    return true;
}

// Puts the range's blocks into two parts, which are returned; false if they stay as they are.
bool split(std::vector<block_point>& points, const range& r, range& left, range& right) {
    point first, second;
    if (r.end - r.begin < least_split || !find_means(points, r, first, second)) return false;
    const auto apart = [&](const point& p, const point& q) {
        return (r.has_before ? std::int64_t{squared_distance(r.before, p)} : 0) +
               (r.has_behind ? squared_distance(r.behind, q) : 0);
    };
    if (apart(second, first) < apart(first, second)) std::swap(first, second);
    const auto begin = points.begin();
    const auto middle =
        std::partition(begin + static_cast<std::ptrdiff_t>(r.begin),
                       begin + static_cast<std::ptrdiff_t>(r.end), [&](const block_point& p) {
                           return squared_distance(p.at, first) <= squared_distance(p.at, second);
                       });
    const auto at = static_cast<std::size_t>(middle - begin);
    if (at == r.begin || at == r.end) return false;
    left = {r.begin, at, r.before, second, r.has_before, true};
    right = {at, r.end, first, r.behind, true, r.has_behind};
    return true;
}

void split_all(std::vector<block_point>& points, const range& r) {
    range left, right;
    if (!split(points, r, left, right)) return;
    split_all(points, left);
    split_all(points, right);
}

// Ranges that wait to be split, for several threads.
class split_queue {
public:
    explicit split_queue(const range& whole) : waiting_{whole} {}

    // Called by each thread; returns when all ranges are split.
    void work(std::vector<block_point>& points) {
        range r, left, right;
        while (take(r)) {
            const bool is_large = r.end - r.begin >= inline_blocks;
            if (!is_large) split_all(points, r);
            if (is_large && split(points, r, left, right) && !put(left, right)) {
                split_all(points, left);
                split_all(points, right);
            }
            const std::lock_guard lock(mutex_);
            --working_;
            changed_.notify_all();
        }
    }

private:
    // False: there is no memory to leave them to other threads, which wait for this one.
    bool put(const range& left, const range& right) {
        try {
            const std::lock_guard lock(mutex_);
            waiting_.insert(waiting_.end(), {left, right});
            changed_.notify_all();
            return true;
        } catch (const std::bad_alloc&) {
            return false;
        }
    }
    bool take(range& out) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return !waiting_.empty() || working_ == 0; });
        if (waiting_.empty()) return false;
        out = waiting_.back();
        waiting_.pop_back();
        ++working_;
        return true;
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<range> waiting_;  // guarded by mutex_
    std::uint32_t working_ = 0;   // guarded by mutex_
};

}  // namespace

std::vector<std::uint32_t> block_order(const picture& of, std::uint32_t threads) {
    const std::uint32_t columns = (of.width + tile_side - 1) / tile_side,
                        rows = (of.height + tile_side - 1) / tile_side;
    std::vector<std::uint32_t> out(std::size_t{columns} * rows);
    std::iota(out.begin(), out.end(), 0u);
    if (out.size() < least_ordered_blocks) return out;
    std::vector<block_point> points(out.size());
    split_queue queue({0, points.size(), {}, {}, false, false});
    std::atomic<std::uint32_t> next_row{0}, rows_left{rows};
    apps::on_threads(threads, [&](std::uint32_t) {
        for (std::uint32_t row = next_row++; row < rows; row = next_row++) {
            for (std::uint32_t b = row * columns; b < (row + 1) * columns; ++b)
                points[b] = look_at(of, b, columns);
            if (--rows_left == 0) rows_left.notify_all();
        }
        for (std::uint32_t left = rows_left; left != 0; left = rows_left) rows_left.wait(left);
        queue.work(points);
    });
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = points[i].block;
    return out;
}

}  // namespace penstock::collage
