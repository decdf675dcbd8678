// An agent for tests, by threads of this process: keeps blocks in memory, and lies, tears blocks,
// is silent or ends when it is told to.
#pragma once

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "os/link_socket.hpp"
#include "store/agent_store.hpp"

namespace penstock::test {

enum class manner {
    honest,
    flips,        // one byte of each block that it hands out is wrong
    tears,        // the second half of what it hands out is of nothing
    other_block,  // hands out the whole object of another key
    silent,       // answers no get
    late,         // answers the first get when release() is called
    misnumbers,   // answers every get and put as if it were the one before
    fails         // answers every get and put with an error
};

class test_agent {
public:
    explicit test_agent(std::string path) : path_(std::move(path)) { start(); }
    ~test_agent() { kill(); }
    test_agent(const test_agent&) = delete;
    test_agent& operator=(const test_agent&) = delete;

    void start() {
        stop_ = false;
        ::unlink(path_.c_str());
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
        listener_.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
        ASSERT_EQ(
            ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
            0);
        ASSERT_EQ(::listen(listener_.get(), 64), 0);
        accepting_ = std::thread([this] { accept_all(); });
    }

    // As a signal does: connections end, nothing is answered, the socket stays; objects are kept
    // for the next start, as another node would.
    void kill() {
        stop_ = true;
        if (accepting_.joinable()) accepting_.join();
        for (std::thread& thread : connections_) thread.join();
        connections_.clear();
        listener_.reset();
    }

    void behave(manner m) { manner_ = m; }
    // Its answer to questions about rests.
    void say_known_for(std::int64_t ns) { known_for_ns_ = ns; }
    void release() { released_ = true; }
    [[nodiscard]] int waiting() const { return waiting_; }
    void forget() {
        const std::lock_guard lock(mutex_);
        objects_.clear();
    }
    [[nodiscard]] std::size_t objects() {
        const std::lock_guard lock(mutex_);
        return objects_.size();
    }
    [[nodiscard]] std::uint64_t gets() const { return gets_; }
    [[nodiscard]] std::uint64_t replaced() const { return replaced_; }

private:
    // False: it is stopping, or nothing came.
    bool wait(int fd) {
        pollfd wanted{fd, POLLIN, 0};
        while (!stop_)
            if (::poll(&wanted, 1, 5) > 0) return true;
        return false;
    }

    void accept_all() {
        while (wait(listener_.get())) {
            const int fd =
                ::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
            if (fd >= 0) connections_.emplace_back([this, fd] { serve(host::owned_fd(fd)); });
        }
    }

    void serve(const host::owned_fd& socket) {
        std::byte* memory = nullptr;
        std::uint64_t bytes = 0;
        while (wait(socket.get())) {
            host::agent_request request;
            host::received_fds fds;
            if (host::receive_message(socket.get(), &request, sizeof request, fds) !=
                sizeof request)
                break;
            host::agent_answer answer;
            answer.number = request.number;
            if (manner_ == manner::misnumbers && request.op != host::agent_op::hello)
                --answer.number;
            if (request.op == host::agent_op::hello) {
                bytes = request.bytes;
                memory = static_cast<std::byte*>(
                    ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds.fd[0].get(), 0));
            } else if (manner_ == manner::silent) {
                continue;
            } else if (manner_ == manner::fails) {
                answer.result = -EIO;
            } else if (request.op == host::agent_op::rest) {
                answer.result = known_for_ns_;
            } else if (request.op == host::agent_op::get) {
                if (manner_ == manner::late && waiting_.fetch_add(1) == 0)
                    while (!released_ && !stop_) std::this_thread::yield();
                answer.result = get(request.key, memory);
            } else {
                const std::lock_guard lock(mutex_);
                replaced_ += request.flag;
                objects_[request.key].assign(memory, memory + request.bytes);
            }
            if (host::send_message(socket.get(), &answer, sizeof answer) != 0) break;
        }
        if (memory != nullptr) ::munmap(memory, bytes);
    }

    std::int64_t get(const host::block_key& key, std::byte* to) {
        const std::lock_guard lock(mutex_);
        ++gets_;
        auto found = objects_.find(key);
        if (found == objects_.end()) return -ENOENT;
        if (manner_ == manner::other_block)
            for (auto at = objects_.begin(); at != objects_.end(); ++at)
                if (at != found && at->second.size() == found->second.size()) {
                    found = at;
                    break;
                }
        std::vector<std::byte> object = found->second;
        if (manner_ == manner::flips) object[object.size() / 3] ^= std::byte{1};
        if (manner_ == manner::tears)
            std::memset(object.data() + object.size() / 2, 0,
                        object.size() - object.size() / 2 - host::block_tail_bytes);
        std::memcpy(to, object.data(), object.size());
        return static_cast<std::int64_t>(object.size());
    }

    const std::string path_;
    host::owned_fd listener_;
    std::atomic<bool> stop_{false};
    std::atomic<manner> manner_{manner::honest};
    std::atomic<std::int64_t> known_for_ns_{0};
    std::atomic<bool> released_{false};
    std::atomic<int> waiting_{0};
    std::atomic<std::uint64_t> gets_{0}, replaced_{0};
    std::thread accepting_;
    std::vector<std::thread> connections_;  // of accepting_, and of kill() after it
    std::mutex mutex_;                      // guards objects_
    std::map<host::block_key, std::vector<std::byte>> objects_;
};

}  // namespace penstock::test
