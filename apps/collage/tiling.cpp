// Finds the pictures of a folder, plans how each is cut into tiles and made smaller, and cuts them.
#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <sys/stat.h>

#include "common/message.hpp"
#include "common/threads.hpp"
#include "index_library.hpp"
#include "penstock/runtime.hpp"
#include "picture.hpp"

namespace penstock::collage {

namespace {

constexpr std::uint32_t kept_rows = 2 * tile_side;  // of each scale

std::uint32_t steps(std::uint32_t length, std::uint32_t stride) {
    return (length - tile_side) / stride + 1;
}

tiling lay_out(const std::vector<source_picture>& pictures, std::uint32_t scales,
               std::uint32_t stride) {
    tiling out;
    out.stride = stride;
    for (const source_picture& source : pictures) {
        picture_plan plan{source, {}};
        for (std::uint32_t level = 0; level < scales; ++level) {
            const std::uint32_t width = source.width >> level, height = source.height >> level;
            if (width < tile_side || height < tile_side) break;
            plan.levels.push_back(
                {width, height, steps(width, stride), steps(height, stride), out.places});
            out.places += std::uint64_t{plan.levels.back().columns} * plan.levels.back().rows;
        }
        if (!plan.levels.empty()) out.pictures.push_back(std::move(plan));
    }
    return out;
}

}  // namespace

status plan_tiles(const std::vector<source_picture>& pictures, std::uint32_t scales,
                  std::uint32_t stride, std::uint64_t tiles, tiling& out) {
    const std::uint32_t least = stride != 0 ? stride : tiles == 0 ? tile_side : 1;
    std::uint32_t use = stride != 0 ? stride : tile_side;
    out = lay_out(pictures, scales, use);
    while (out.places < tiles && use > least) out = lay_out(pictures, scales, --use);
    if (out.places == 0)
        return {-ERANGE, "no picture has 32 by 32 pixels or more; give larger pictures"};
    if (out.places < tiles)
        return {-ERANGE, "--tiles: the pictures give " + apps::with_commas(out.places) +
                             " tiles at a stride of " + std::to_string(use) + ", fewer than " +
                             apps::with_commas(tiles) +
                             "; ask for fewer, or give more pictures or a smaller --stride"};
    out.tiles = tiles != 0 ? tiles : out.places;
    if (out.tiles > most_tiles)
        return {-ERANGE, "the pictures give " + apps::with_commas(out.tiles) +
                             " tiles, more than " + apps::with_commas(most_tiles) +
                             "; give --tiles, or a larger --stride"};
    return {};
}

pyramid::pyramid(const picture_plan& plan, std::uint32_t stride, emitter emit)
    : stride_(stride), emit_(std::move(emit)) {
    for (const level_plan& planned : plan.levels) {
        // The full scale may be wider by what halving leaves out, so each level keeps its own
        // width.
        levels_.push_back({planned.width, planned.height, 0, 0,
                           std::vector<std::uint8_t>(std::size_t{kept_rows} * planned.width * 3)});
    }
}

std::uint8_t* pyramid::row_for(level& l) {
    const std::size_t stride_bytes = std::size_t{l.width} * 3;
    if (l.filled == kept_rows) {
        // Only the last 31 rows can still be part of a band.
        std::memmove(l.rows.data(), l.rows.data() + stride_bytes * (kept_rows - tile_side + 1),
                     stride_bytes * (tile_side - 1));
        l.filled = tile_side - 1;
    }
    return l.rows.data() + stride_bytes * l.filled;
}

void pyramid::pushed(std::uint32_t number) {
    level& l = levels_[number];
    ++l.filled;
    ++l.seen;
    const std::size_t stride_bytes = std::size_t{l.width} * 3;
    if (l.seen >= tile_side && (l.seen - tile_side) % stride_ == 0)
        emit_(number, (l.seen - tile_side) / stride_,
              l.rows.data() + stride_bytes * (l.filled - tile_side));
    if (number + 1 == levels_.size() || l.seen % 2 != 0) return;
    level& next = levels_[number + 1];
    if (next.seen == next.height) return;
    const std::uint8_t* const below = l.rows.data() + stride_bytes * (l.filled - 1);
    halve_rows(below - stride_bytes, below, next.width, row_for(next));
    pushed(number + 1);
}

void halve_rows(const std::uint8_t* above, const std::uint8_t* below, std::uint32_t out_width,
                std::uint8_t* out) {
    for (std::uint32_t x = 0; x < out_width; ++x)
        for (std::uint32_t c = 0; c < 3; ++c) {
            const std::uint32_t at = 6 * x + c;
            out[3 * x + c] = static_cast<std::uint8_t>(
                (above[at] + above[at + 3] + below[at] + below[at + 3] + 2) / 4);
        }
}

namespace {

void complain(found_pictures& out, const std::string& path, int error, const char* end) {
    out.complaints.push_back(apps::shown(path) + ": " + error_text(-error) + "; " + end);
}

// Regular files of one folder, and its folders for later. Everything is named from the folder's own
// descriptor, so that paths may be longer than one call takes.
void list_one(const std::string& folder, std::vector<std::string>& folders,
              std::vector<std::string>& files, found_pictures& out) {
    apps::unique_fd opened(apps::open_long(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const std::unique_ptr<DIR, int (*)(DIR*)> directory(opened >= 0 ? ::fdopendir(opened) : nullptr,
                                                        ::closedir);
    if (directory == nullptr)
        return complain(out, folder, errno, "the pictures in it are left out");
    const int fd = opened.release();  // now the directory's
    const std::string start = folder.back() == '/' ? folder : folder + "/";
    errno = 0;
    while (const dirent* const entry = ::readdir(directory.get())) {
        const std::string name = entry->d_name;
        struct stat info {};
        if (name != "." && name != "..") {
            if (::fstatat(fd, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0)
                complain(out, start + name, errno, "left out");
            else if (S_ISDIR(info.st_mode)) folders.push_back(start + name);
            else if (S_ISREG(info.st_mode)) files.push_back(start + name);
        }
        errno = 0;
    }
    if (errno != 0) complain(out, folder, errno, "some of the pictures in it are left out");
}

status list(const std::string& top, std::vector<std::string>& files, found_pictures& out) {
    std::vector<std::string> folders{top};
    while (!folders.empty()) {
        if (status s = apps::not_interrupted(); !s) return s;
        const std::string folder = std::move(folders.back());
        folders.pop_back();
        list_one(folder, folders, files, out);
    }
    std::sort(files.begin(), files.end());
    return {};
}

status read_to_the_end(const std::string& path, picture_reader& of) {
    std::vector<std::uint8_t> row(std::size_t{of.width()} * 3);
    for (std::uint32_t y = 0; y < of.height() && !was_interrupted(); ++y)
        if (status s = of.read_row(row.data()); !s)
            return {s.code, apps::shown(path) + ": " + s.message};
    return {};
}

// -ECANCELED after an interrupt; else 0, and what is wrong becomes a complaint.
status look_at(const std::string& path, found_pictures& out) {
    if (status s = apps::not_interrupted(); !s) return s;
    std::unique_ptr<picture_reader> reader;
    status opened = open_picture(path, reader);
    if (opened.ok() && reader->needs_proof()) opened = read_to_the_end(path, *reader);
    if (opened.code == -EMEDIUMTYPE) ++out.other_files;
    else if (!opened.ok()) out.complaints.push_back(opened.message + "; left out");
    else if (reader->width() < tile_side || reader->height() < tile_side) ++out.too_small;
    else out.pictures.push_back({path, reader->width(), reader->height()});
    return {};
}

}  // namespace

status find_pictures(const std::string& folder, found_pictures& out) {
    struct stat info {};
    const apps::unique_fd fd(apps::open_long(folder, O_PATH | O_CLOEXEC));
    const int code = fd < 0 || ::fstat(fd, &info) != 0 ? -errno
                     : S_ISDIR(info.st_mode)           ? 0
                                                       : -ENOTDIR;
    if (code != 0)
        return {code,
                apps::shown(folder) + ": " + error_text(code) + "; name a folder of pictures"};
    std::vector<std::string> files;
    if (status s = list(folder, files, out); !s) return s;
    for (const std::string& path : files)
        if (status s = look_at(path, out); !s) return s;
    if (!out.pictures.empty()) return {};
    return {-ENOENT, apps::shown(folder) + ": no picture in it that can be used (" +
                         std::to_string(out.other_files) + " other files, " +
                         std::to_string(out.too_small) + " too small, " +
                         std::to_string(out.complaints.size()) +
                         " unreadable); name a folder with JPEG, PNG or PPM pictures of 32 by 32 "
                         "pixels or more"};
}

namespace {

constexpr std::uint64_t queued_bytes = std::uint64_t{64} << 20;
constexpr std::uint32_t tiles_per_write = 256;

// 32 rows, from which one row of tiles is cut.
struct band {
    std::vector<std::uint8_t> rgb;
    std::uint64_t first;  // place of the leftmost tile
    std::uint32_t columns;
};

// Room for the tiles of one write to each file. One for each thread.
struct write_buffer {
    std::array<std::uint8_t, tile_bytes> tiles[tiles_per_write];
    std::array<std::uint32_t, record_stride_bytes / 4> histograms[tiles_per_write];
    std::array<std::uint16_t, features> features_of[tiles_per_write];
    std::uint64_t first;
    std::uint32_t count;
};

class cutter {
public:
    cutter(const tiling& plan, const tile_files& files, std::atomic<std::uint64_t>& done,
           std::map<std::string, std::string>& damaged)
        : plan_(plan), files_(files), done_(done), damaged_(damaged) {}

    void work() {
        const auto room = std::make_unique<write_buffer>();
        write_buffer& buffer = *room;
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
            else read(plan_.pictures[picture], buffer);
        }
        wake_.notify_all();
    }

    [[nodiscard]] status end() const { return errors_.get(); }

private:
    void read(const picture_plan& of, write_buffer& buffer) {
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
            damaged_[of.source.path] = ended.message;
        }
        ++done_;
        std::lock_guard lock(mutex_);
        --readers_;
        wake_.notify_all();
    }

    status read_rows(const picture_plan& of, write_buffer& buffer) {
        std::unique_ptr<picture_reader> reader;
        if (status s = open_picture(of.source.path, reader); !s) return s;
        if (reader->width() != of.source.width || reader->height() != of.source.height)
            return {-ESTALE,
                    apps::shown(of.source.path) + ": it changed while the library was made"};
        pyramid scales(of, plan_.stride,
                       [&](std::uint32_t level, std::uint32_t row, const std::uint8_t* pixels) {
                           const level_plan& l = of.levels[level];
                           emit({{pixels, pixels + std::size_t{l.width} * 3 * tile_side},
                                 l.first + std::uint64_t{row} * l.columns,
                                 l.columns},
                                buffer);
                       });
        for (std::uint32_t y = 0; y < of.source.height && !errors_.stop(); ++y) {
            if (status s = reader->read_row(scales.next_row()); !s)
                return {s.code, apps::shown(of.source.path) + ": " + s.message};
            scales.push();
        }
        return {};
    }

    // Puts the band into the queue. If the queue is full, the thread that read the band also cuts
    // it, and so waits for no other thread.
    void emit(band&& from, write_buffer& buffer) {
        {
            std::lock_guard lock(mutex_);
            if (!damaged_.empty()) return;  // nothing of this round will be kept
            if (held_bytes_ < queued_bytes) {
                held_bytes_ += from.rgb.size();
                bands_.push_back(std::move(from));
                wake_.notify_one();
                return;
            }
        }
        cut(from, buffer);
    }

    void cut(const band& from, write_buffer& buffer) {
        for (std::uint32_t column = 0; column < from.columns; ++column) {
            const std::uint64_t id = plan_.tiles_before(from.first + column);
            if (plan_.tiles_before(from.first + column + 1) == id)
                continue;  // not one of those that are kept
            if (buffer.count == 0) buffer.first = id;
            add(from.rgb.data() + std::uint64_t{column} * plan_.stride * 3,
                from.rgb.size() / tile_side, buffer);
            if (buffer.count == tiles_per_write) flush(buffer);
        }
        flush(buffer);
    }

    static void add(const std::uint8_t* rgb, std::uint64_t stride_bytes, write_buffer& buffer) {
        const std::uint32_t at = buffer.count++;
        std::uint8_t* const tile = buffer.tiles[at].data();
        for (std::uint32_t y = 0; y < tile_side; ++y)
            std::memcpy(tile + y * tile_side * 3, rgb + y * stride_bytes, tile_side * 3);
        std::uint32_t* const histogram = buffer.histograms[at].data();
        count_tile(tile, tile_side * 3, histogram);
        for (std::uint32_t f = 0; f < features; ++f)
            buffer.features_of[at][f] = feature_of(histogram, f);
    }

    void flush(write_buffer& b) {
        const auto write = [&](const staged_file& to, const void* from, std::uint64_t tile) {
            if (b.count != 0) errors_.note(to.write(from, b.count * tile, b.first * tile));
        };
        write(files_.tiles, b.tiles, tile_bytes);
        write(files_.histograms, b.histograms, record_stride_bytes);
        write(files_.features, b.features_of, feature_bytes);
        b.count = 0;
    }

    const tiling& plan_;
    const tile_files& files_;
    std::atomic<std::uint64_t>& done_;
    std::map<std::string, std::string>& damaged_;  // guarded by mutex_
    apps::first_error errors_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<band> bands_;  // guarded by mutex_, as are those below
    std::uint64_t held_bytes_ = 0;
    std::size_t next_ = 0;       // picture to be read next
    std::uint32_t readers_ = 0;  // threads that read one
};

}  // namespace

status cut_tiles(const tiling& plan, const tile_files& files, std::uint32_t threads,
                 std::atomic<std::uint64_t>& done, std::map<std::string, std::string>& damaged) {
    cutter all(plan, files, done, damaged);
    apps::on_threads(threads, [&](std::uint32_t) { all.work(); });
    return all.end();
}

}  // namespace penstock::collage
