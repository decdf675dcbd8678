// The watch of a file registry over the files that it has open to be written: tells whether
// anything but the registry's own writers wrote to a file, or closed a handle that could
// (environment:: open_watch). docs/protocol/closed_files.md has the use.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "os/env.hpp"

namespace penstock::host {

class write_watch {
public:
    explicit write_watch(environment& env) : env_(env) {}
    ~write_watch();
    write_watch(const write_watch&) = delete;
    write_watch& operator=(const write_watch&) = delete;

    // A watched file, with the count of its events up to now. Handles of one file may share a
    // number; a number that is negative stands for no watch.
    struct mark {
        int number = -1;
        std::uint64_t events = 0;
    };
    // From when this returns on, events of the file of `fd` are later than the mark.
    mark begin(int fd);
    // How many events came for a file until now, whose watch has not ended.
    std::uint64_t events_of(int number);
    void end(int number);

private:
    struct watched {
        std::uint32_t holders = 0;
        std::uint64_t events = 0;
    };
    void take_events();  // with the lock

    environment& env_;
    std::mutex mutex_;  // guards everything below
    int watch_ = -1;
    bool refused_ = false;
    std::unordered_map<int, watched> files_;
    std::vector<int> told_;
};

// Holds a watch over one file; ends it when it goes.
class watch_hold {
public:
    watch_hold() = default;
    watch_hold(write_watch& watch, int fd) : watch_(&watch), mark_(watch.begin(fd)) {}
    watch_hold(watch_hold&& other) noexcept { *this = std::move(other); }
    watch_hold& operator=(watch_hold&& other) noexcept {
        std::swap(watch_, other.watch_);
        std::swap(mark_, other.mark_);
        return *this;
    }
    watch_hold(const watch_hold&) = delete;
    watch_hold& operator=(const watch_hold&) = delete;
    ~watch_hold() {
        if (is_held()) watch_->end(mark_.number);
    }

    [[nodiscard]] bool is_held() const { return mark_.number >= 0; }
    [[nodiscard]] const write_watch::mark& mark() const { return mark_; }
    // What happened up to `events` no longer counts.
    void pass_over(std::uint64_t events) { mark_.events = events; }

private:
    write_watch* watch_ = nullptr;
    write_watch::mark mark_;
};

}  // namespace penstock::host
