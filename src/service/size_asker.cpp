#include "service/size_asker.hpp"

#include <algorithm>
#include <pthread.h>

#include "penstock/base/macros.hpp"

namespace penstock::host {

size_asker::~size_asker() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    wake_.notify_one();
    if (thread_.joinable()) thread_.join();
    for (const file& each : files_) env_.close(each.fd);
}

void size_asker::add(int fd, std::uint64_t size_bytes) {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable())
        thread_ = std::thread([this] {
            pthread_setname_np(pthread_self(), "penstock-sizes");
            run();
        });
    files_.push_back({fd, size_bytes});
}

void size_asker::ask() {
    const std::lock_guard lock(mutex_);
    if (files_.empty()) return;
    asked_ = true;
    wake_.notify_one();
}

size_asker::file& size_asker::find(int fd) {
    const auto found = std::find_if(files_.begin(), files_.end(),
                                    [&](const file& f) { return f.fd == fd && !f.ends; });
    PENSTOCK_ASSERT(found != files_.end());
    return *found;
}

bool size_asker::is_shorter(int fd) {
    const std::lock_guard lock(mutex_);
    return find(fd).is_shorter;
}

void size_asker::close(int fd) {
    const std::lock_guard lock(mutex_);
    find(fd).ends = true;
    asked_ = true;
    wake_.notify_one();
}

// A handle is closed when its file is gone from the list: its number may be that of the next file
// at once.
void size_asker::run() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
        wake_.wait(lock, [this] { return asked_ || stop_; });
        asked_ = false;
        for (std::size_t i = 0; i < files_.size() && !stop_;) {
            const int fd = files_[i].fd;
            if (files_[i].ends) {
                files_[i] = files_.back();
                files_.pop_back();
                lock.unlock();
                env_.close(fd);
                lock.lock();
                continue;
            }
            lock.unlock();
            const std::int64_t size = env_.size_bytes(fd);
            lock.lock();
            file& asked = files_[i++];
            asked.is_shorter = size >= 0 && static_cast<std::uint64_t>(size) < asked.size_bytes;
        }
    }
}

}  // namespace penstock::host
