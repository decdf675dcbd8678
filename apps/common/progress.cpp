#include "common/progress.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <system_error>
#include <unistd.h>

namespace penstock::apps {

namespace {

std::atomic<bool> bar_stands{false};

void draw(const std::string& label, std::uint64_t done, std::uint64_t total) {
    constexpr int width = 40;
    const std::uint64_t shown = std::min(done, total);
    const int filled =
        total == 0
            ? width
            : static_cast<int>(static_cast<double>(shown) / static_cast<double>(total) * width);
    const std::string bar = std::string(static_cast<std::size_t>(filled), '#') +
                            std::string(static_cast<std::size_t>(width - filled), '.');
    std::fprintf(stderr, "\r%s [%s] %3d%%", label.c_str(), bar.c_str(),
                 total == 0 ? 100
                            : static_cast<int>(static_cast<double>(shown) /
                                               static_cast<double>(total) * 100));
    std::fflush(stderr);
    bar_stands = true;
}

}  // namespace

void clear_progress() {
    if (!bar_stands.exchange(false)) return;
    std::fputs("\r\033[K", stderr);
    std::fflush(stderr);
}

progress::progress(std::string label, std::uint64_t total, std::function<std::uint64_t()> done,
                   bool wanted)
    : label_(std::move(label)), total_(total), done_(std::move(done)) {
    if (!wanted || ::isatty(STDERR_FILENO) != 1) return;
    try {
        thread_ = std::thread([this] { loop(); });
    } catch (const std::system_error&) {
        return;  // no thread, no bar; the work has its own to ask for
    }
}

progress::~progress() {
    if (!thread_.joinable()) return;
    {
        std::lock_guard lock(mutex_);
        stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
    clear_progress();
}

void progress::loop() {
    std::unique_lock lock(mutex_);
    // Work that ends within the first moments needs no bar.
    while (!wake_.wait_for(lock, std::chrono::milliseconds(250), [this] { return stop_; })) {
        lock.unlock();
        draw(label_, done_(), total_);
        lock.lock();
    }
}

}  // namespace penstock::apps
