// A buffer of whole pages without bytes, whose requests take the time that a test says: what GRAM
// costs beside `native`, for many traces, disks and devices.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "buffer/core/core.hpp"
#include "buffer/core/watched_part.hpp"
#include "penstock/base/hash.hpp"

namespace penstock::test {

// Nanoseconds in the mean.
struct request_costs {
    double read = 36'000;    // a page from the disk
    double move = 6'000;     // by so much longer where a victim goes to the device
    double answer = 15'000;  // a page from the device, its victim there
    double hidden = 0;  // by so much longer again, of which the device's own time shows nothing
};

// Page numbers, by the number of the access.
using page_sequence = std::function<std::uint64_t(std::uint64_t)>;

// A time that varies as a disk's does: half of the mean at least, and a long tail.
inline double varied(double mean, std::uint64_t draw) {
    const double part = (static_cast<double>(mix64(draw + 1) >> 11) + 1) / 9007199254740993.0;
    return mean * (0.5 - 0.5 * std::log(part));
}

struct part_sizes {
    std::uint32_t host = 1024, device = 1024;
};

class simulated_part {
public:
    using state = buffer::device_watch::state;

    // `watched`: the buffer stands back where the device does not pay.
    explicit simulated_part(part_sizes sizes, bool watched = true)
        : part_(sizes.device), watched_(watched) {
        core_.make({sizes.host, sizes.device, 1, sizes.host + sizes.device + 1, 1, 0});
    }

    void access(std::uint64_t page, const request_costs& costs) {
        const buffer::page_id id{page, 0};
        const auto ignore = [](const buffer::action&) {};
        ++accesses_;
        const buffer::block* const known = core_.inside().block_of(id, 0);
        buffer::found at{};
        if (known != nullptr && known->where == buffer::side::host) {
            core_.touch(id, ignore, at);
            return;
        }
        bool moves = false;
        const auto note = [&](const buffer::action& told) {
            moves |= told.kind == buffer::move::demote;
        };
        buffer::watched_part::request asked;
        if (watched_) {
            at = part_.bring(core_, id, note, asked);
        } else {
            core_.touch(id, note, at);
            if (at == buffer::found::nowhere) core_.load(id, nullptr, note);
        }
        // What the disk would have taken is the same for every buffer that reads then.
        const double read = varied(costs.read, accesses_);
        const double device = at == buffer::found::device ? costs.answer : moves ? costs.move : 0;
        const double ns =
            at == buffer::found::device ? device : read + device + (moves ? costs.hidden : 0);
        asked.ns = static_cast<std::uint64_t>(ns);
        asked.device_ns = static_cast<std::uint64_t>(device);
        if (watched_) part_.ended(asked);
        spent_ += ns;
        native_ += read;  // every page that is not in the host is read
        ++requests_;
        answered_ += at == buffer::found::device;
        moved_ += moves;
    }
    void play(const page_sequence& pages, std::uint64_t count, const request_costs& costs) {
        for (std::uint64_t i = 0; i < count; ++i) access(pages(i), costs);
    }

    [[nodiscard]] state now() const { return part_.watch().now(); }
    [[nodiscard]] const buffer::device_watch& watch() const { return part_.watch(); }
    // Of the time of all requests so far.
    [[nodiscard]] double spent() const { return spent_; }
    [[nodiscard]] double native() const { return native_; }
    [[nodiscard]] double over_native() const { return native_ > 0 ? spent_ / native_ - 1 : 0; }
    [[nodiscard]] std::uint64_t requests() const { return requests_; }
    [[nodiscard]] std::uint64_t answered() const { return answered_; }
    [[nodiscard]] std::uint64_t moved() const { return moved_; }

private:
    buffer::core<buffer::lru_order> core_;
    buffer::watched_part part_;
    const bool watched_;
    double spent_ = 0, native_ = 0;
    std::uint64_t accesses_ = 0, requests_ = 0, answered_ = 0, moved_ = 0;
};

// Under LRU the host's part has the pages of a buffer of that part alone, so such a buffer reads
// whenever a page is not there: `native` needs no simulation of its own.

inline page_sequence uniform(std::uint64_t pages, std::uint64_t seed = 1) {
    return [=](std::uint64_t i) { return mix64(seed * 0x9e3779b97f4a7c15ull + i) % pages; };
}
inline page_sequence in_circles(std::uint64_t pages) {
    return [=](std::uint64_t i) { return i % pages; };
}
inline page_sequence onwards() {
    return [](std::uint64_t i) { return i; };
}
// The page with rank r is wanted about 1/r times as often as the first.
inline page_sequence skewed(std::uint64_t pages, std::uint64_t seed = 1) {
    return [=](std::uint64_t i) {
        const double part = static_cast<double>(mix64(seed * 77 + i) >> 11) / 9007199254740992.0;
        return mix64(static_cast<std::uint64_t>(std::pow(static_cast<double>(pages), part))) %
               (4 * pages);
    };
}

}  // namespace penstock::test
