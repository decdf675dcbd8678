// What the agent of this node knows of files that rest (os/rested_files.hpp). It lives longer than
// the programs, so a program need not wait for a file that another one saw before it, or that the
// agent was told to look at.
//
// The agent gives a length of time, not a time: its clock may be another one in a container. An
// agent that fails, or answers late, is not asked for some seconds. Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include "os/rested_files.hpp"
#include "store/agent_store.hpp"

namespace penstock::host {

// 32 bytes that stand for the facts of a file on this machine: device and inode, and half a hash of
// the rest. An agent that is told two different halves for one file begins anew with the second.
block_key key_of_facts(const file_identity& facts);

class agent_rests final : public rest_memory {
public:
    explicit agent_rests(std::string socket_path, std::uint64_t wait_ns = 250'000'000)
        : store_(std::move(socket_path)), wait_ns_(wait_ns) {}

    std::int64_t known_since_ns(const file_identity& facts) noexcept override;

private:
    std::mutex mutex_;  // guards everything below
    agent_store store_;
    const std::uint64_t wait_ns_;
    std::int64_t left_alone_until_ns_ = 0;
};

// From now on this process asks that agent of files that are new to it. Once is enough for all
// runtimes; it ends with the process.
void ask_agent_about_rests(const std::string& socket_path);

}  // namespace penstock::host
