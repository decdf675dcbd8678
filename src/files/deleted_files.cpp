#include "files/deleted_files.hpp"

#include <algorithm>
#include <pthread.h>
#include <system_error>
#include <utility>

namespace penstock::host {

deleted_files::~deleted_files() {
    if (closer_.joinable()) closer_.join();
}

void deleted_files::look() {
    const auto now = std::chrono::steady_clock::now();
    // Acquire: pairs with the closer's release; it closes nothing any more.
    if (now < next_visit_ || is_closing_.load(std::memory_order_acquire)) return;
    next_visit_ = now + between_visits_;
    if (closer_.joinable()) closer_.join();
    std::erase_if(found_, [this](const auto& file) { return !is_closed_(file.of); });
    if (!found_.empty()) let_go(found_);
    found_.clear();
    find_more();
}

// Without a thread they are found again.
void deleted_files::let_go(std::vector<file_registry::held_handle>& closed) {
    is_closing_.store(true, std::memory_order_relaxed);
    try {
        closer_ = std::thread([this, files = std::move(closed)]() mutable {
            pthread_setname_np(pthread_self(), "penstock-close");
            for (const auto& file : files) files_.let_go(file.of, file.epoch);
            is_closing_.store(false, std::memory_order_release);
        });
    } catch (const std::system_error&) {
        is_closing_.store(false, std::memory_order_relaxed);
    }
}

// The handles are held for a moment only: a proof waits for the last of its file to be closed.
void deleted_files::find_more() {
    constexpr std::size_t at_a_time = 32;
    std::size_t left = std::min(handles_of_a_visit, files_.held_handles());
    while (left != 0 && found_.size() < most_found) {
        auto some = files_.some_handles(place_, std::min(at_a_time, left));
        left -= std::min(at_a_time, left);
        for (auto& file : some) {
            if (!env_.has_no_name(file.handle->fd())) continue;
            file.handle.reset();
            found_.push_back(std::move(file));
        }
    }
}

}  // namespace penstock::host
