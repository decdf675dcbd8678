#include "common/threads.hpp"

#include <algorithm>
#include <cerrno>
#include <thread>
#include <vector>

#include "penstock/runtime.hpp"

namespace penstock::apps {

void on_threads(std::uint32_t count, const std::function<void(std::uint32_t)>& body) {
    std::vector<std::thread> threads;
    for (std::uint32_t i = 1; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
    body(0);
    for (std::thread& one : threads) one.join();
}

std::uint32_t thread_count(std::uint32_t wanted) {
    return wanted != 0 ? wanted : std::max(1u, std::thread::hardware_concurrency());
}

void first_error::note(status failed) {
    if (failed.ok()) return;
    std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = std::move(failed);
    failed_ = true;
}

bool first_error::stop() const { return failed_ || was_interrupted(); }

status first_error::get() const {
    std::lock_guard lock(mutex_);
    if (status_.ok() && was_interrupted()) return {-ECANCELED, "interrupted; nothing was written"};
    return status_;
}

}  // namespace penstock::apps
