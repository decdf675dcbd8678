#include "files/deleted_files.hpp"

#include <algorithm>
#include <exception>
#include <pthread.h>
#include <utility>

namespace penstock::host {

deleted_files::~deleted_files() {
    if (closer_.joinable()) closer_.join();
}

// Without memory or a thread the next visit goes on.
void deleted_files::look() try {
    const auto now = std::chrono::steady_clock::now();
    // Acquire: pairs with the closer's release; it closes nothing any more.
    if (now < next_visit_ || is_closing_.load(std::memory_order_acquire)) return;
    next_visit_ = now + between_visits_;
    if (closer_.joinable()) closer_.join();
    std::erase_if(found_, [this](const auto& file) { return !is_closed_(file.of); });
    if (!found_.empty() || !given_up_.empty()) let_go();
    found_.clear();
    find_more();
} catch (const std::exception&) {
    found_.clear();  // they are found again
}

// What the closer has stays here, since the handles would be closed with what has them: here, if
// the thread cannot be made.
void deleted_files::let_go() {
    closing_.swap(found_);
    closed_.swap(given_up_);
    is_closing_.store(true, std::memory_order_relaxed);
    try {
        closer_ = std::thread([this] {
            pthread_setname_np(pthread_self(), "penstock-close");
            try {
                for (const auto& file : closing_) files_.let_go(file.of, file.epoch);
            } catch (...) {  // without memory; the others are found again
            }
            closing_.clear();
            closed_.clear();
            is_closing_.store(false, std::memory_order_release);
        });
    } catch (const std::exception&) {
        closing_.clear();
        closed_.swap(given_up_);
        is_closing_.store(false, std::memory_order_relaxed);
    }
}

// The handles are held for a moment only: a proof waits for the last of its file to be closed.
// Nothing is thrown while they are.
void deleted_files::find_more() {
    constexpr std::size_t at_a_time = 32;
    files_.give_up_excess(given_up_, most_found);
    found_.reserve(most_found + at_a_time);
    std::size_t left = std::min(handles_of_a_visit, files_.held_handles());
    while (left != 0 && found_.size() < most_found) {
        given_up_.reserve(given_up_.size() + at_a_time);
        auto some = files_.some_handles(place_, std::min(at_a_time, left));
        left -= std::min(at_a_time, left);
        for (const auto& file : some)
            if (file.is_older || env_.has_no_name(file.handle->fd()))
                found_.push_back({file.of, file.epoch, {}, file.is_older});
        files_.give_back(some);
        for (auto& file : some) given_up_.push_back(std::move(file.handle));
    }
}

}  // namespace penstock::host
