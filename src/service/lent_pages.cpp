// A service thread and the buffers of its process (docs/protocol/frames.md): misses that are
// answered with pages of their frames.
#include <chrono>

#include "service/service.hpp"

namespace penstock::host {

namespace {

// For so long device frames are not asked after a copy that was late.
constexpr std::uint64_t no_copies_ns = 100'000'000;

std::uint64_t now_ns() {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                          std::chrono::steady_clock::now().time_since_epoch())
                                          .count());
}

}  // namespace

frame_wish service::wish_of(const flight& f) const {
    return {f.file->key(), env_, f.file->fd(), f.offset + f.done, f.wanted - f.done};
}

// What buffers of the process have of the page, from its beginning on; the file is read for the
// rest.
void service::start_at_frames(std::uint32_t number) {
    flight& f = flights_[number];
    if (!files_.shared().frames.known.may_have(f.file->key())) return start_flight(number);
    if (take_from_frames(number)) return;
    // Reads past the page cache begin where the disk lets them.
    constexpr std::uint32_t grain = 4096;
    f.done -= f.done % grain;
    start_flight(number);
}

// True: the page is answered, or waits for a copy. Otherwise what there was of it is there.
bool service::take_from_frames(std::uint32_t number) {
    flight& f = flights_[number];
    frame_sources& frames = files_.shared().frames;
    const frame_wish wanted = wish_of(f);
    const std::uint64_t got = frames.first_of(
        [&](frame_source& source) { return source.copy(wanted, staging_of(f.at) + f.done); });
    f.done += static_cast<std::uint32_t>(got);
    if (got != 0) counters_.buffer_loads.fetch_add(1, std::memory_order_relaxed);
    if (f.done == f.wanted) {
        --in_flight_;
        f.file.reset();
        answer_read(f);
        return true;
    }
    const std::uint64_t now = now_ns();
    if (now < no_copies_until_ns_) return false;
    const frame_wish rest = wish_of(f);
    f.copy = frames.first_of([&](frame_source& source) { return source.begin(rest); });
    if (f.copy == nullptr) return false;
    f.copy_begun_ns = now;
    copying_.push_back(number);
    return true;
}

// Each copy either has ended, and the rest of its page is looked for anew, or goes on, or is given
// up: then the file is read. A copy that is given up ends by itself, and writes to no memory of a
// ring.
void service::look_at_copies() {
    std::vector<std::uint32_t> all;
    all.swap(copying_);
    const std::uint64_t now = now_ns();
    for (const std::uint32_t number : all) {
        flight& f = flights_[number];
        if (!f.copy->has_ended() && now - f.copy_begun_ns < settings_.frame_copy_wait_ns) {
            copying_.push_back(number);
            continue;
        }
        const bool is_late = !f.copy->has_ended();
        if (is_late) no_copies_until_ns_ = now + no_copies_ns;
        const std::uint64_t got = is_late ? 0 : f.copy->take(wish_of(f), staging_of(f.at) + f.done);
        f.copy.reset();
        f.done += static_cast<std::uint32_t>(got);
        if (got != 0) counters_.buffer_device_loads.fetch_add(1, std::memory_order_relaxed);
        if (got != 0 && f.done < f.wanted) {
            start_at_frames(number);
        } else if (got == 0) {
            start_flight(number);
        } else {
            --in_flight_;
            f.file.reset();
            answer_read(f);
        }
    }
}

// The thread ends, and its kernels wait no more.
void service::give_up_copies() {
    for (const std::uint32_t number : copying_) {
        flights_[number].copy.reset();
        flights_[number].file.reset();
        --in_flight_;
    }
    copying_.clear();
}

}  // namespace penstock::host
