// Opens and closes windows between the rounds of a model run, and judges what the runtime says
// about them.
//
// Half of the files that got a window stay open until a later round: so their window serves the
// actors while the host shrinks, grows and replaces them. The others are closed again. An
// actor that opens them finds the window only if they have not changed.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "model/coverage.hpp"
#include "model/shadow.hpp"
#include "penstock/penstock.hpp"

namespace penstock::model {

// Descriptors with windows and files held open, at a time; each keeps a file slot from the others.
inline constexpr std::uint32_t most_windowed = 12, most_held = 4;

class window_keeper {
public:
    // All outlive this; the states are those that the host itself changes.
    window_keeper(runtime& rt, const world& w, file_state* states, coverage& met)
        : rt_(rt), w_(w), states_(states), met_(met) {}

    // Runs while no actor uses the runtime. `h` decides what is done. Returns what was wrong, or an
    // empty string.
    std::string between_rounds(std::uint64_t h) {
        for (std::size_t i = held_.size(); i-- > 0;)
            if (mix64(h + i) % 2 == 0) let_go(i);
        if (mix64(h ^ 1) % 4 == 0 || windowed_.size() + 7 > most_windowed) close_all();
        for (std::uint64_t i = 0; i < 1 + mix64(h ^ 2) % 3 && wrong_.empty(); ++i)
            open_some(mix64(h ^ (i + 3)));
        return wrong_;
    }

    void close_all() {
        rt_.close_windows();
        ++met_.windows_closed;
        windowed_.clear();
        if (rt_.stats().window_bytes != 0)
            complain("bytes are open in windows after all were closed");
    }
    void let_go_of_all() {
        while (!held_.empty()) let_go(held_.size() - 1);
    }

    [[nodiscard]] std::uint64_t references() const { return held_.size(); }
    [[nodiscard]] std::uint64_t opens() const { return opens_; }
    // Another part of the run gave this descriptor a window.
    void has_window_too(int fd) { windowed_.insert(fd); }

private:
    struct held {
        std::uint32_t file;
        int fd;
    };

    void complain(const std::string& complaint) {
        if (wrong_.empty()) wrong_ = "windows: " + complaint;
    }

    void let_go(std::size_t index) {
        if (rt_.close(held_[index].fd) != 0) complain("a held descriptor could not be closed");
        leave_period(states_[held_[index].file]);
        held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(index));
    }

    void open_some(std::uint64_t h) {
        const std::uint32_t file = file_for(w_, h, h >> 40);
        const std::uint64_t floor = enter_period(states_[file]), now = states_[file].done;
        char name[16];
        name_of_file(file, static_cast<std::uint32_t>((h >> 16) % w_.names_per_file), name);
        int fd = -ENOENT;
        // A removed file that is still open may be found again only by its name; it is left alone.
        if (exists(w_, file, now)) {
            fd = rt_.open(name);
            ++opens_;
            if (fd < 0) complain(std::string(name) + ": open gave " + error_text(fd));
        }
        const bool opened = fd >= 0 && open_windows_of(file, fd, floor, now, mix64(h ^ 5));
        const bool stays = opened && held_.size() < most_held && mix64(h ^ 6) % 2 == 0;
        if (stays) {
            held_.push_back({file, fd});
            return;
        }
        if (fd >= 0 && rt_.close(fd) != 0) complain("a descriptor could not be closed");
        leave_period(states_[file]);
    }

    // True if some of the range lies in a window now.
    bool open_windows_of(std::uint32_t file, int fd, std::uint64_t floor, std::uint64_t now,
                         std::uint64_t h) {
        file_stat facts{};
        if (rt_.stat(fd, &facts) != 0) complain("a stat failed");
        const std::uint64_t size = facts.size_bytes;
        const std::uint64_t offset =
            h % 2 == 0 || size == 0 ? 0 : offset_for(w_, file, size, mix64(h)) % size;
        const std::uint64_t length = h % 3 == 0 ? size : length_for(w_, size, mix64(h ^ 1)),
                            inside = std::min(length, size - offset);
        const std::int64_t got = rt_.open_windows(fd, static_cast<std::int64_t>(offset),
                                                  static_cast<std::int64_t>(length));
        const std::uint64_t open_bytes = rt_.stats().window_bytes,
                            budget = *rt_.settings().window_bytes -
                                     rt_.settings().tier_bytes * rt_.device_count();
        if (open_bytes > budget) complain("the budget is overdrawn");
        if (got > 0) {
            windowed_.insert(fd);
            ++met_.windows_opened;
            // A small file has one chunk, which is there or not.
            if (static_cast<std::uint64_t>(got) > inside ||
                (!w_.is_big(file) && static_cast<std::uint64_t>(got) != inside))
                complain("open_windows gave " + std::to_string(got) + " for a range of " +
                         std::to_string(inside));
        } else if (got == -ENOSPC && open_bytes + engine::window_chunk_bytes > budget) {
            ++met_.windows_refused;
        } else if (got != 0 && !(got == -ESTALE && floor != now)) {
            complain("open_windows gave " + error_text(got));
        }
        return got > 0;
    }

    runtime& rt_;
    const world w_;
    file_state* const states_;
    coverage& met_;
    std::vector<held> held_;
    std::set<int> windowed_;
    std::uint64_t opens_ = 0;
    std::string wrong_;
};

}  // namespace penstock::model
