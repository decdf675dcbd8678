// Brings a file into the caches of all devices, each byte over the bus once.
//
// Each device has a share of the range. It loads its share in chunks, and at the same time copies
// the chunks that others have loaded, over their links. So bus and links are busy together. Devices
// that are not linked load those chunks from the host too.
#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "penstock/runtime.hpp"
#include "runtime/runtime_state.hpp"

namespace penstock {

namespace {

// Large beside what a launch costs, small beside a share: the last chunk of a share is copied when
// nothing is loaded any more.
constexpr std::uint64_t chunk_bytes = std::uint64_t{64} << 20;

struct byte_range {
    std::uint64_t begin = 0, end = 0;
};

// How many chunks of each share are loaded, and the first error of any. Thread-safe.
class share_progress {
public:
    explicit share_progress(std::uint32_t shares) : done_(shares) {}

    void note(std::uint32_t share, std::int64_t code) {
        {
            const std::lock_guard lock(mutex_);
            ++done_[share];
            if (code < 0 && first_error_ == 0) first_error_ = code;
        }
        advanced_.notify_all();
    }
    void note_error(std::int64_t code) {
        const std::lock_guard lock(mutex_);
        if (code < 0 && first_error_ == 0) first_error_ = code;
    }
    // Returns when that chunk was loaded, or has failed: every load ends.
    void wait_for(std::uint32_t share, std::uint64_t chunk) {
        std::unique_lock lock(mutex_);
        advanced_.wait(lock, [&] { return done_[share] > chunk; });
    }
    [[nodiscard]] std::int64_t first_error() {
        const std::lock_guard lock(mutex_);
        return first_error_;
    }

private:
    std::mutex mutex_;  // guards the rest
    std::condition_variable advanced_;
    std::vector<std::uint64_t> done_;
    std::int64_t first_error_ = 0;
};

// The shares of a range, and their chunks.
class shares_of {
public:
    shares_of(byte_range whole, std::uint32_t shares) {
        const std::uint64_t bytes = whole.end - whole.begin,
                            step = (bytes / shares + chunk_bytes - 1) / chunk_bytes * chunk_bytes;
        for (std::uint32_t i = 0; i < shares; ++i) {
            const std::uint64_t begin = std::min(whole.begin + i * step, whole.end),
                                end =
                                    i + 1 == shares ? whole.end : std::min(begin + step, whole.end);
            ranges_.push_back({begin, end});
        }
    }
    [[nodiscard]] std::uint64_t chunks(std::uint32_t share) const {
        return (ranges_[share].end - ranges_[share].begin + chunk_bytes - 1) / chunk_bytes;
    }
    [[nodiscard]] std::uint64_t most_chunks() const {
        std::uint64_t most = 0;
        for (std::uint32_t i = 0; i < ranges_.size(); ++i) most = std::max(most, chunks(i));
        return most;
    }
    [[nodiscard]] byte_range chunk(std::uint32_t share, std::uint64_t number) const {
        const std::uint64_t begin = ranges_[share].begin + number * chunk_bytes;
        return {begin, std::min(begin + chunk_bytes, ranges_[share].end)};
    }

private:
    std::vector<byte_range> ranges_;
};

// Runs all bodies at a time and waits. A body without a thread runs on the caller's, after those
// before it, so bodies wait only for bodies that stand before them.
void run_together(const std::vector<std::function<void()>>& bodies) {
    std::vector<std::thread> threads;
    std::size_t made = 0;
    try {
        threads.reserve(bodies.size());
        for (; made < bodies.size(); ++made) threads.emplace_back(bodies[made]);
    } catch (const std::exception&) {  // no more threads or memory
    }
    for (std::size_t i = made; i < bodies.size(); ++i) bodies[i]();
    for (std::thread& thread : threads) thread.join();
}

}  // namespace

std::int64_t runtime::prefetch(const shared_file& file, std::int64_t offset, std::int64_t bytes) {
    if (offset < 0 || bytes < 0) return -EINVAL;
    if (file.code() != 0) return -EBADF;
    file_stat facts{};
    if (const int code = stat(file.fds[0], &facts); code != 0) return code;
    const std::uint64_t begin = static_cast<std::uint64_t>(offset);
    if (begin >= facts.size_bytes || bytes == 0) return 0;
    const byte_range whole{
        begin, begin + std::min(static_cast<std::uint64_t>(bytes), facts.size_bytes - begin)};
    // 0 once the part is there, or the error that keeps the rest of it away: the call behind the
    // one that came to an end within the part tells.
    const auto bring = [&](std::uint32_t device, byte_range part) {
        return host::checked(state(device), [&] {
            std::int64_t got = 0;
            do {
                got = state(device).device->prefetch(
                    state(device).ref, file.fds[device], static_cast<std::int64_t>(part.begin),
                    static_cast<std::int64_t>(part.end - part.begin));
                part.begin += static_cast<std::uint64_t>(std::max<std::int64_t>(got, 0));
            } while (got > 0 && part.begin < part.end);
            return std::min<std::int64_t>(got, 0);
        });
    };
    return host::checked(state(), [&]() -> std::int64_t {
        const std::uint32_t devices = device_count();
        const shares_of shares(whole, devices);
        share_progress progress(devices);
        std::vector<std::function<void()>> bodies;
        for (std::uint32_t own = 0; own < devices; ++own)
            bodies.emplace_back([&, own] {
                for (std::uint64_t k = 0; k < shares.chunks(own); ++k)
                    progress.note(own, bring(own, shares.chunk(own, k)));
            });
        for (std::uint32_t own = 0; own < devices && devices > 1; ++own)
            bodies.emplace_back([&, own] {
                for (std::uint64_t k = 0; k < shares.most_chunks(); ++k)
                    for (std::uint32_t i = 1; i < devices; ++i) {
                        const std::uint32_t other = (own + i) % devices;
                        if (k >= shares.chunks(other)) continue;
                        progress.wait_for(other, k);
                        progress.note_error(bring(own, shares.chunk(other, k)));
                    }
            });
        run_together(bodies);
        const std::int64_t error = progress.first_error();
        return error != 0 ? error : static_cast<std::int64_t>(whole.end - whole.begin);
    });
}

}  // namespace penstock
