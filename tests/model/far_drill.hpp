// The drill through the host's calls, which work on every back end: a file that nothing is cached
// of is opened, with a window or without, the host changes it, and then its pages are read.
//
// Without a window every byte and every -ESTALE is known. With one no call may fail, and a byte is
// that of a version since the open, or a zero where one of them has none (shadow.hpp): which of
// them, is the operating system's to say. A file that was replaced must be wholly the old one.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>
#include <vector>

#include "model/coverage.hpp"
#include "model/drilled_file.hpp"
#include "model/host_files.hpp"
#include "penstock/penstock.hpp"

namespace penstock::model {

// To be compared with the runtime's statistics; and what the drills themselves found wrong.
struct drill_counts {
    std::uint64_t opens = 0, bytes_read = 0, errors = 0;
    std::uint64_t wrong_bytes = 0;
};

// How many of the bytes from `got` differ from those of `expected` from `at`.
inline std::uint64_t different_bytes(const std::vector<std::uint8_t>& expected, std::uint64_t at,
                                     const void* got, std::uint64_t length) {
    const auto* const bytes = static_cast<const std::uint8_t*>(got);
    std::uint64_t different = 0;
    for (std::uint64_t i = 0; i < length; ++i) different += bytes[i] != expected[at + i] ? 1 : 0;
    return different;
}

class far_drill {
public:
    // All outlive this.
    far_drill(runtime& rt, host_files& files, pinning_environment& env, const world& w,
              file_state* states, coverage& met, drill_counts& tally)
        : rt_(rt), files_(files), env_(env), w_(w), states_(states), met_(met), tally_(tally) {}

    // Runs while no actor uses the runtime. Returns what was wrong, or an empty string. `windowed`
    // is the descriptor if it has a window.
    std::string run(std::uint64_t h, int& windowed) {
        windowed = -1;
        file_ = static_cast<std::uint32_t>(h % w_.small_files);
        file_state& state = states_[file_];
        if (static_cast<std::uint32_t>(state.period) != 0)
            return {};  // a user holds it, with an older version
        do
            files_.change(
                file_);  // a new version has a table of its own, in which every page is absent
        while (!exists(w_, file_, state.done));
        enter_period(state);
        floor_ = state.done;
        char name[16];
        name_of_file(file_, static_cast<std::uint32_t>((h >> 16) % w_.names_per_file), name);
        fd_ = rt_.open(name);
        ++tally_.opens;
        if (fd_ < 0) return std::string(name) + ": open gave " + error_text(fd_);
        drilled_file model(w_, file_, floor_);
        using residency = pinning_environment::residency;
        env_.say_resident(h >> 20 & 1 ? residency::everything : residency::nothing);
        rt_.advise(fd_, advice::random);  // so that no page comes before its time
        const std::int64_t inside = rt_.open_windows(fd_);
        env_.say_resident(residency::by_chance);
        has_window_ = inside > 0;
        if (has_window_) windowed = fd_;
        if (inside > 0 ? inside != static_cast<std::int64_t>(model.size_bytes())
                       : inside != 0 && inside != -ENOSPC)
            complain("open_windows gave " + error_text(inside), 0);
        for (std::uint64_t i = 0; i <= (h >> 24) % 3; ++i) {
            files_.change(file_);
            model.changed_to(state.done, has_window_);
        }
        // Each page twice, the first time from where it lies.
        const std::uint64_t pages = model.pages(), first = mix64(h);
        for (std::uint64_t i = 0; i < 2 * pages && wrong_.empty(); ++i)
            read_page(model, (first + i) % pages, i < pages);
        if (rt_.close(fd_) != 0) complain("close failed", 0);
        leave_period(state);
        return wrong_;
    }

private:
    void complain(const std::string& complaint, std::uint64_t at) {
        if (!wrong_.empty()) return;
        wrong_ = "far drill: file " + std::to_string(file_) + (has_window_ ? " with" : " without") +
                 " a window, versions " + std::to_string(floor_) + " to " +
                 std::to_string(states_[file_].done) + ", from byte " + std::to_string(at) + ": " +
                 complaint;
    }

    void judge(std::uint64_t wrong, std::uint64_t at) {
        tally_.wrong_bytes += wrong;
        if (wrong != 0) complain("wrong bytes", at);
    }

    void read_page(drilled_file& model, std::uint64_t page, bool first_time) {
        const std::uint64_t begin = page * w_.page_bytes, bytes = model.end_of(page) - begin;
        std::vector<std::uint8_t> got(bytes);
        const std::int64_t count = rt_.read(fd_, got.data(), static_cast<std::int64_t>(bytes),
                                            static_cast<std::int64_t>(begin));
        if (count > 0) tally_.bytes_read += static_cast<std::uint64_t>(count);
        if (count < 0) ++tally_.errors;
        place from = place::cache;
        const auto known = model.expect(page, false, false, from);  // as a request gives it
        const std::int64_t wanted =
            known || has_window_ ? static_cast<std::int64_t>(bytes) : -ESTALE;
        ++(!first_time               ? met_.drill_cached
           : wanted < 0              ? met_.drill_stale
           : !has_window_            ? met_.drill_request
           : model.has_orphans(page) ? met_.drill_orphan
                                     : met_.drill_window);
        if (count != wanted)
            return complain(
                "read gave " + std::to_string(count) + " and not " + std::to_string(wanted), begin);
        if (wanted < 0) return;
        if (!has_window_) {
            judge(different_bytes(*known, 0, got.data(), bytes), begin);
            return;
        }
        std::uint64_t first_bad = ~std::uint64_t{0};
        const std::uint64_t wrong = wrong_bytes(w_, file_, {floor_, model.newest()}, begin,
                                                got.data(), bytes, 0, 1, first_bad);
        judge(wrong, first_bad);
    }

    runtime& rt_;
    host_files& files_;
    pinning_environment& env_;
    const world w_;
    file_state* const states_;
    coverage& met_;
    drill_counts& tally_;
    std::uint32_t file_ = 0;
    std::uint64_t floor_ = 0;
    int fd_ = -1;
    bool has_window_ = false;
    std::string wrong_;
};

}  // namespace penstock::model
