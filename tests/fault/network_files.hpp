// The files of a folder as a network file system has them, with clocks that a test moves: the
// server dates changes by its own clock, this machine has another, and both keep attributes for a
// while. Nothing here waits, and nothing depends on the time of day.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "fault/plain_environment.hpp"
#include "os/env.hpp"
#include "os/rested_files.hpp"

namespace penstock::fault {

struct network_shape {
    std::int64_t grain_ns = 1'000'000'000;  // of the times that the server keeps
    std::int64_t server_ahead_ns = 0;       // the server's clock, before the clock of this machine
    std::int64_t attributes_ns = 0;         // how long this machine believes attributes
    bool asks_server = true;                // facts() asks the server, whatever is believed
    // For how long a server that is asked answers from attributes of its own, until an open.
    std::int64_t server_keeps_ns = 0;
    // The rule before this file system was known to be no local one: its times are compared with
    // the clock of this machine.
    bool seems_local = false;
    host::file_times times = host::file_times::server;
    bool seems_rested = false;  // the first look counts as proof
};

class network_files final : public plain_files {
public:
    explicit network_files(const network_shape& shape) : shape_(shape) {}

    // Time goes by, for every clock.
    void wait(std::int64_t ns) { now_ns_ += ns; }

    // This machine's clock that only moves forward.
    [[nodiscard]] std::int64_t now_ns() const { return now_ns_; }

    // From now on as in a process that begins: it knows of no file how long it has rested, and asks
    // the other one.
    void begin_anew(const std::shared_ptr<host::rest_memory>& other) {
        const std::lock_guard lock(mutex_);
        rested_ = std::make_unique<host::rested_files>();
        rested_->ask_also(other);
    }

    // Another machine wrote to the file and closed it. The bytes are the test's to change.
    void changed_elsewhere(const std::string& path) { date(-1, path); }

    int rename(int from, const std::string& name, int to, const std::string& new_name) override {
        const int code = real_.rename(from, name, to, new_name);
        if (code == 0) date(to, new_name);
        return code;
    }

    int facts(int handle, host::file_facts& out) override {
        const int code = real_.facts(handle, out);
        if (code != 0 || !out.is_regular) return code;
        const std::lock_guard lock(mutex_);
        const std::uint64_t inode = out.identity.inode;
        answer& kept = kept_[inode];
        const bool is_believed = now_ns_ < kept.until_ns;
        if (!is_believed || shape_.asks_server) {
            answer& at_server = server_kept_[inode];
            if (now_ns_ >= at_server.until_ns)
                at_server = {changes_[inode], now_ns_ + shape_.server_keeps_ns};
            kept = {at_server.changed_ns, now_ns_ + shape_.attributes_ns};
        }
        out.identity.modified_ns = out.identity.changed_ns = kept.changed_ns;
        out.exact_times = false;
        out.now_ns = now_ns_;
        // A lease of this machine tells nothing of writers on others.
        out.writing = shape_.seems_local ? host::writers::none : host::writers::unknown;
        out.times = shape_.seems_local ? host::file_times::local : shape_.times;
        out.rested_ns =
            shape_.seems_rested ? INT64_MAX : rested_->note(out.identity, now_ns_, now_ns_);
        return 0;
    }

    int open_found(int handle) override { return opened(real_.open_found(handle)); }
    int open_plain(int start, const std::string& path) override {
        return opened(real_.open_plain(start, path));
    }
    bool changes_elsewhere(int) override { return !shape_.seems_local; }

private:
    struct answer {
        std::int64_t changed_ns = 0;
        std::int64_t until_ns = 0;
    };

    // The server dates a change.
    void date(int start, const std::string& path) {
        host::file_facts facts;
        const int handle = real_.find(start, path);
        real_.facts(handle, facts);
        real_.close(handle);
        const std::lock_guard lock(mutex_);
        const std::int64_t server_ns = now_ns_ + shape_.server_ahead_ns;
        changes_[facts.identity.inode] = server_ns / shape_.grain_ns * shape_.grain_ns;
    }

    // At an open the server looks for changes.
    int opened(int fd) {
        host::file_facts facts;
        if (fd < 0 || real_.facts(fd, facts) != 0) return fd;
        const std::lock_guard lock(mutex_);
        server_kept_.erase(facts.identity.inode);
        return fd;
    }

    const network_shape shape_;
    std::unique_ptr<host::rested_files> rested_ = std::make_unique<host::rested_files>();
    std::atomic<std::int64_t> now_ns_{1'000'000'000'000};
    std::mutex mutex_;
    std::map<std::uint64_t, std::int64_t> changes_;  // by inode
    std::map<std::uint64_t, answer> kept_, server_kept_;
};

}  // namespace penstock::fault
