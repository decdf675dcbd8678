#include "host/shared_handle.hpp"

#include <cerrno>

namespace penstock::host {

read_way shared_handle::choose(read_operation& operation, const io_engine& io) {
    if (io.reads_at_once() && !at_once_refused_.load(std::memory_order_relaxed) && choice_.likely_cached()) {
        operation.fd = fd_;
        operation.at_once = true;
        return read_way::at_once;
    }
    return choose_other(operation);
}

read_way shared_handle::choose_other(read_operation& operation) const {
    operation.fd = fd_;
    operation.at_once = false;
    return read_way::queued;
}

bool shared_handle::must_go_another_way(read_way way, std::int64_t result) {
    if (way != read_way::at_once) return false;
    if (result >= 0) {
        choice_.found_cached();
        return false;
    }
    if (result == -EAGAIN) choice_.found_absent();
    // Not every file system and kernel can say what is in memory.
    else if (result == -EOPNOTSUPP || result == -EINVAL || result == -ENOSYS) at_once_refused_.store(true, std::memory_order_relaxed);
    else return false;
    return true;
}

}  // namespace penstock::host
