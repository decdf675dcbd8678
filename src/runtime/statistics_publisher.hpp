// Lets other programs read the statistics of one device of a runtime (os/statistics_page.hpp).
//
// The monitor looks with each beat whether a reader asked, which is a load. If so, a thread counts
// and publishes; it is made when the first reader asks. It is not the monitor itself: counting
// copies from the device and may wait there, and meanwhile the heartbeat would stand still.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "os/statistics_page.hpp"
#include "penstock/statistics.hpp"

namespace penstock::host {

// What a page tells of a device of a runtime.
struct published_statistics {
    statistics counted;
    std::uint64_t page_bytes = 0, cache_pages = 0;
    std::uint64_t cache_number =
        0;  // counts the caches of the process, in the order of their making
    std::uint64_t device_index = 0, device_number = 0, is_gpu = 0;
};

// The lines of the page's names, and the words in their order.
std::string published_names();
std::vector<std::uint64_t> published_words(const published_statistics& of);
// Of a page of any version: names that are not known here are passed over, and what the page does
// not have stays 0.
published_statistics published_from(const std::string& names, std::span<const std::uint64_t> words);

class statistics_publisher {
public:
    // False: it cannot be counted now, and the page stays as it is.
    using counting = std::function<bool(published_statistics&)>;

    statistics_publisher() = default;
    ~statistics_publisher();

    // Once. The first publication is in the page when it returns. 0 or a negative errno.
    int start(counting take);
    // By the monitor, with each beat.
    void look();
    [[nodiscard]] const statistics_page& page() const { return page_; }

private:
    void run();
    void count_and_publish(std::uint64_t answers);

    statistics_page page_;
    counting take_;
    std::uint64_t cache_number_ = 0;
    std::uint64_t seen_ = 0;  // of the monitor: the last number that it woke the thread for
    std::mutex mutex_;
    std::condition_variable wake_;
    bool wanted_ = false, stop_ = false;  // guarded by mutex_
    std::thread thread_;
};

}  // namespace penstock::host
