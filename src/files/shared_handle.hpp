// An open file of the host, and which way its reads go. Closes its handles with the last holder, so
// that a read in flight keeps the file it started on. Thread-safe.
#pragma once

#include <functional>

#include "os/env.hpp"
#include "files/read_choice.hpp"
#include "penstock/options.hpp"

namespace penstock::host {

// The same for all files of a runtime, and outlives them.
struct read_settings {
    direct_mode direct = direct_mode::off;
    std::uint64_t page_bytes = 65536;
    std::function<void(const std::string&)> say;  // a line for the log, at most once
    std::atomic<bool> said{false};
};

class shared_handle {
public:
    shared_handle(environment& env, int fd, read_settings* settings = nullptr)
        : env_(env), fd_(fd), settings_(settings) {}
    ~shared_handle();
    shared_handle(const shared_handle&) = delete;
    shared_handle& operator=(const shared_handle&) = delete;
    [[nodiscard]] int fd() const { return fd_; }

    // Makes the operation ready to start. A direct one is as long as it must be, which may be more
    // than was asked for; the rest of the page at its address is then written to as well.
    read_way choose(read_operation& operation, const io_engine& io);
    // Must be told how it went. True: the way was wrong and the file has not answered yet; start
    // again as choose_other says.
    [[nodiscard]] bool must_go_another_way(read_way way, std::int64_t result);
    read_way choose_other(read_operation& operation) const;

private:
    [[nodiscard]] direct_mode mode() const {
        return settings_ != nullptr ? settings_->direct : direct_mode::off;
    }
    [[nodiscard]] bool make_direct(read_operation& operation);
    int direct_fd();
    void refuse_direct(int code);

    // In place of a handle for direct reads. `opening`: another thread is at it, and reads go the
    // other way meanwhile.
    static constexpr int not_yet = -1, opening = -2, refused = -3;

    environment& env_;
    const int fd_;
    read_settings* const settings_;
    std::atomic<bool> at_once_refused_{false}, direct_refused_{false};
    std::atomic<int> direct_fd_{not_yet};
    std::uint32_t grain_bytes_ = 0;  // written before direct_fd_ is
    read_choice choice_;
};

}  // namespace penstock::host
