// A store behind an agent: another process of this machine, which a user starts beside the
// programs (`penstock-agent`). The two talk over a Unix socket, and blocks pass in memory that this
// side made and the agent maps (docs/protocol/block_store.md).
//
// One object is one connection with memory for one object, and has one request under way. An answer
// that is late ends the connection: the agent may still write to the memory, so neither is used
// again. Nothing else has to be remembered about requests, and a program with several threads has
// as many connections.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "os/process_owner.hpp"
#include "os/rested_files.hpp"
#include "os/shared_memory.hpp"
#include "store/block_object.hpp"

namespace penstock::host {

// What goes over the socket, in the machine's byte order: messages of one size.
enum class agent_op : std::uint32_t { hello = 1, get = 2, put = 3, rest = 4 };

struct agent_request {
    static constexpr std::uint32_t magic_number = 0x31425350;  // "PSB1"
    std::uint32_t magic = magic_number;
    agent_op op = agent_op::hello;
    std::uint64_t number = 0;  // comes back in the answer
    block_key key{};
    std::uint64_t bytes = 0;    // hello: of the memory; get: room; put: of the object
    std::uint32_t wait_ms = 0;  // how long this side waits for the answer
    // get: 1, it reads the file if there is no object; put: 1, the object of this key was bad
    std::uint32_t flag = 0;
};
static_assert(sizeof(agent_request) == 64);

struct agent_answer {
    static constexpr std::uint32_t magic_number = 0x32425350;  // "PSB2"
    std::uint32_t magic = magic_number;
    std::uint32_t unused = 0;
    std::uint64_t number = 0;
    std::int64_t result = 0;  // get: bytes of the object; rest: ns; else 0; or a negative errno
};
static_assert(sizeof(agent_answer) == 24);

class agent_store final : public block_store {
public:
    explicit agent_store(std::string socket_path) : path_(std::move(socket_path)) {}
    ~agent_store() override;
    agent_store(const agent_store&) = delete;
    agent_store& operator=(const agent_store&) = delete;

    std::int64_t get(const block_key& key, std::span<std::byte> to, std::uint64_t wait_ns,
                     bool reads_file) override;
    int put(const block_key& key, std::span<const std::byte> from, bool replaces,
            std::uint64_t wait_ns) override;
    // For how many ns the agent has known these facts of a file, when it answers; or a negative
    // errno. If it did not, it knows them from now on.
    std::int64_t known_for_ns(const block_key& facts, std::uint64_t wait_ns);

private:
    int connect(std::uint64_t end_ns);
    // Asks and waits. Whatever goes wrong on the way ends the connection.
    std::int64_t ask(agent_request request, std::uint64_t end_ns, int passed_fd = -1);
    template <typename Fill>
    std::int64_t run(agent_request request, std::uint64_t wait_ns, const Fill& fill);
    void disconnect();

    const std::string path_;
    const process_owner owner_{};
    owned_fd socket_;
    std::unique_ptr<shared_memory> memory_;
    std::uint64_t number_ = 0;
};

// 32 bytes that stand for the facts of a file on this machine: device and inode, and half a hash of
// the rest. An agent that is told two different halves for one file begins anew with the second.
block_key key_of_facts(const file_identity& facts);

// What the agent of this node knows of files that rest (os/rested_files.hpp). It lives longer than
// the programs, so a program need not wait for a file that another one saw before it, or that the
// agent was told to look at.
//
// The agent gives a length of time, not a time: its clock may be another one in a container. An
// agent that fails, or answers late, is not asked for some seconds. Thread-safe.
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
