#include "cut_tiles.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <optional>

#include "common/message.hpp"
#include "library.hpp"
#include "picture_reader.hpp"
#include "tiling.hpp"
#include "common/threads.hpp"

namespace penstock::collage {

namespace {

constexpr std::uint64_t queued_bytes = std::uint64_t{64} << 20;
constexpr std::uint32_t tiles_per_write = 256;

// 32 rows, from which one row of tiles is cut.
struct band {
    std::vector<std::uint8_t> rgb;
    std::uint64_t stride_bytes;
    std::uint64_t first;  // place of the leftmost tile
    std::uint32_t columns;
};

// Room for the tiles of one write to each file. One for each thread.
struct write_buffer {
    std::vector<std::uint8_t> tiles =
        std::vector<std::uint8_t>(std::size_t{tiles_per_write} * tile_bytes);
    std::vector<std::uint32_t> histograms =
        std::vector<std::uint32_t>(std::size_t{tiles_per_write} * record_stride_bytes / 4);
    std::vector<std::uint16_t> features_of =
        std::vector<std::uint16_t>(std::size_t{tiles_per_write} * features);
    std::uint64_t first = 0;
    std::uint32_t count = 0;
};

class cutter {
public:
    cutter(const tiling& plan, const tile_files& files, std::atomic<std::uint64_t>& done)
        : plan_(plan), files_(files), done_(done) {}

    void work() {
        write_buffer buffer;
        while (true) {
            std::optional<band> taken;
            std::size_t picture = 0;
            {
                std::unique_lock lock(mutex_);
                // Counting goes before reading, so that what was read does not pile up.
                wake_.wait(lock, [this] {
                    return !bands_.empty() || next_ < plan_.pictures.size() || readers_ == 0 ||
                           errors_.stop();
                });
                if (errors_.stop()) break;
                if (!bands_.empty()) {
                    taken = std::move(bands_.front());
                    bands_.pop_front();
                    held_bytes_ -= taken->rgb.size();
                } else if (next_ < plan_.pictures.size()) {
                    picture = next_++;
                    ++readers_;
                } else {
                    break;
                }
            }
            if (taken) cut(*taken, buffer);
            else read(picture, buffer);
        }
        wake_.notify_all();
    }

    status end(std::vector<damaged_picture>& damaged) {
        damaged = std::move(damaged_);
        return errors_.get();
    }

private:
    void read(std::size_t number, write_buffer& buffer) {
        const picture_plan& of = plan_.pictures[number];
        status ended;
        try {
            ended = read_rows(of, buffer);
        } catch (const std::bad_alloc&) {  // other threads wait for this one to be done
            ended = {-ENOMEM, apps::shown(of.source.path) +
                                  ": out of memory; free some, or give fewer --workers"};
        }
        if (ended.code == -ENOMEM) {
            errors_.note(ended);
        } else if (!ended.ok()) {
            std::lock_guard lock(mutex_);
            damaged_.push_back({number, ended.message});
        }
        ++done_;
        std::lock_guard lock(mutex_);
        --readers_;
        wake_.notify_all();
    }

    status read_rows(const picture_plan& of, write_buffer& buffer) {
        std::unique_ptr<picture_reader> reader;
        if (status failed = open_picture(of.source.path, reader); !failed) return failed;
        if (reader->width() != of.source.width || reader->height() != of.source.height)
            return {-ESTALE,
                    apps::shown(of.source.path) + ": it changed while the library was made"};
        pyramid scales(of, plan_.stride,
                       [&](std::uint32_t level, std::uint32_t row, const std::uint8_t* pixels) {
                           const level_plan& l = of.levels[level];
                           const std::uint64_t stride_bytes = std::uint64_t{l.width} * 3;
                           emit({{pixels, pixels + stride_bytes * tile_side},
                                 stride_bytes,
                                 l.first + std::uint64_t{row} * l.columns,
                                 l.columns},
                                buffer);
                       });
        for (std::uint32_t y = 0; y < of.source.height && !errors_.stop(); ++y) {
            if (status failed = reader->read_row(scales.next_row()); !failed)
                return {failed.code, apps::shown(of.source.path) + ": " + failed.message};
            scales.push();
        }
        return {};
    }

    // Puts the band into the queue. If the queue is full, the thread that read the band also cuts
    // it, and so waits for no other thread.
    void emit(band&& one, write_buffer& buffer) {
        {
            std::lock_guard lock(mutex_);
            if (!damaged_.empty()) return;  // nothing of this round will be kept
            if (held_bytes_ < queued_bytes) {
                held_bytes_ += one.rgb.size();
                bands_.push_back(std::move(one));
                wake_.notify_one();
                return;
            }
        }
        cut(one, buffer);
    }

    void cut(const band& from, write_buffer& buffer) {
        for (std::uint32_t column = 0; column < from.columns; ++column) {
            const std::uint64_t id = plan_.tiles_before(from.first + column);
            if (plan_.tiles_before(from.first + column + 1) == id)
                continue;  // not one of those that are kept
            if (buffer.count == 0) buffer.first = id;
            add(from.rgb.data() + std::uint64_t{column} * plan_.stride * 3, from.stride_bytes,
                buffer);
            if (buffer.count == tiles_per_write) flush(buffer);
        }
        flush(buffer);
    }

    static void add(const std::uint8_t* rgb, std::uint64_t stride_bytes, write_buffer& buffer) {
        const std::uint32_t at = buffer.count++;
        std::uint8_t* const tile = buffer.tiles.data() + std::size_t{at} * tile_bytes;
        for (std::uint32_t y = 0; y < tile_side; ++y)
            std::memcpy(tile + y * tile_side * 3, rgb + y * stride_bytes, tile_side * 3);
        std::uint32_t* const histogram =
            buffer.histograms.data() + std::size_t{at} * (record_stride_bytes / 4);
        count_tile(tile, tile_side * 3, histogram);
        for (std::uint32_t f = 0; f < features; ++f)
            buffer.features_of[std::size_t{at} * features + f] = feature_of(histogram, f);
    }

    void flush(write_buffer& b) {
        if (b.count == 0) return;
        const std::uint64_t feature_bytes = features * sizeof(std::uint16_t);
        errors_.note(files_.tiles.write(b.tiles.data(), std::uint64_t{b.count} * tile_bytes,
                                        b.first * tile_bytes));
        errors_.note(files_.histograms.write(b.histograms.data(),
                                             std::uint64_t{b.count} * record_stride_bytes,
                                             b.first * record_stride_bytes));
        errors_.note(files_.features.write(b.features_of.data(), b.count * feature_bytes,
                                           b.first * feature_bytes));
        b.count = 0;
    }

    const tiling& plan_;
    const tile_files& files_;
    std::atomic<std::uint64_t>& done_;
    apps::first_error errors_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<band> bands_;  // guarded by mutex_, as are those below
    std::uint64_t held_bytes_ = 0;
    std::size_t next_ = 0;       // picture to be read next
    std::uint32_t readers_ = 0;  // threads that read one
    std::vector<damaged_picture> damaged_;
};

}  // namespace

status cut_tiles(const tiling& plan, const tile_files& files, std::uint32_t threads,
                 std::atomic<std::uint64_t>& done, std::vector<damaged_picture>& damaged) {
    cutter all(plan, files, done);
    apps::on_threads(threads, [&](std::uint32_t) { all.work(); });
    return all.end(damaged);
}

}  // namespace penstock::collage
