// An open file of the host, and which way its reads go. Closes its handle with the last holder, so that a read in flight keeps the
// file it started on. Thread-safe.
#pragma once

#include "host/env.hpp"
#include "host/read_choice.hpp"

namespace penstock::host {

class shared_handle {
public:
    shared_handle(environment& env, int fd) : env_(env), fd_(fd) {}
    ~shared_handle() { env_.close(fd_); }
    shared_handle(const shared_handle&) = delete;
    shared_handle& operator=(const shared_handle&) = delete;
    [[nodiscard]] int fd() const { return fd_; }

    // Makes the operation ready to start.
    read_way choose(read_operation& operation, const io_engine& io);
    // Must be told how it went. True: the way was wrong and the file has not answered yet; start again as choose_other says.
    [[nodiscard]] bool must_go_another_way(read_way way, std::int64_t result);
    read_way choose_other(read_operation& operation) const;

private:
    environment& env_;
    const int fd_;
    std::atomic<bool> at_once_refused_{false};
    read_choice choice_;
};

}  // namespace penstock::host
