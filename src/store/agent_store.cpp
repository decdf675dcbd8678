#include "store/agent_store.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "os/link_socket.hpp"
#include "os/not_inherited.hpp"
#include "penstock/group/lane.hpp"

namespace penstock::host {

namespace {

using penstock::detail::host_now_ns;

constexpr std::uint64_t ns_per_ms = 1'000'000;

// 0: readable. -ETIMEDOUT.
int wait_for(int socket, std::uint64_t end_ns) {
    for (;;) {
        const std::uint64_t now = host_now_ns();
        const std::uint64_t left = now < end_ns ? end_ns - now : 0;
        const timespec longest{static_cast<time_t>(left / 1'000'000'000),
                               static_cast<long>(left % 1'000'000'000)};
        pollfd wanted{socket, POLLIN, 0};
        const int ready = ::ppoll(&wanted, 1, &longest, nullptr);
        if (ready > 0) return 0;
        if (ready == 0) return -ETIMEDOUT;
        if (errno != EINTR) return -errno;
    }
}

constexpr std::int64_t pause_ns = 10'000'000'000;

std::int64_t now_ns() { return static_cast<std::int64_t>(penstock::detail::host_now_ns()); }

struct asked_agents {
    std::mutex mutex;
    std::set<std::string> sockets;
};

}  // namespace

// A child of fork() has closed the socket: its number may be that of a file of the child's own.
agent_store::~agent_store() {
    if (owner_.here()) disconnect();
    else abandon(std::make_unique<owned_fd>(std::move(socket_)));
}

void agent_store::disconnect() {
    keep_in_children(socket_.get());
    socket_.reset();
    memory_.reset();
}

int agent_store::connect(std::uint64_t end_ns) {
    // What a child of fork() inherited belongs to the parent, whose answers it would take.
    if (!owner_.here()) return -ECHILD;
    if (socket_) return 0;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path_.size() >= sizeof address.sun_path) return -ENAMETOOLONG;
    std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
    socket_.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket_) return -errno;
    close_in_children(socket_.get());
    if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) !=
        0) {
        // -ENOENT is the word for a block that a store does not have, and -EAGAIN, where the agent
        // takes no more connections just now, that for a file which changes.
        const int code = errno == ENOENT ? ENOTCONN : errno == EAGAIN ? ETIMEDOUT : errno;
        disconnect();
        return -code;
    }
    // Its blocks are taken for those of files: only a process of this user, or of root, is
    // believed.
    link_peer peer;
    int code = peer_of(socket_.get(), peer);
    if (code == 0 && peer.user != ::geteuid() && peer.user != 0) code = -EPERM;
    memory_ = std::make_unique<shared_memory>();
    if (code == 0) code = memory_->make(block_object_bytes, "penstock-block", true);
    if (code != 0) {
        disconnect();
        return code;
    }
    agent_request hello;
    hello.bytes = memory_->bytes();
    const std::int64_t answer = ask(hello, end_ns, memory_->fd());
    if (answer == 0) return 0;
    disconnect();
    return answer == -ENOENT || answer > 0 ? -EPROTO : static_cast<int>(answer);
}

std::int64_t agent_store::ask(agent_request request, std::uint64_t end_ns, int passed_fd) {
    request.number = ++number_;
    const std::uint64_t now = host_now_ns();
    request.wait_ms = static_cast<std::uint32_t>((end_ns > now ? end_ns - now : 0) / ns_per_ms);
    int code = send_message(socket_.get(), &request, sizeof request,
                            passed_fd >= 0 ? &passed_fd : nullptr, passed_fd >= 0 ? 1 : 0);
    if (code == 0) code = wait_for(socket_.get(), end_ns);
    agent_answer answer;
    received_fds fds;
    if (code == 0) {
        const std::int64_t got = receive_message(socket_.get(), &answer, sizeof answer, fds);
        if (got < 0) code = static_cast<int>(got);
        else if (got == 0) code = -EPIPE;
        else if (got != sizeof answer || answer.magic != agent_answer::magic_number ||
                 answer.number != request.number)
            code = -EPROTO;
    }
    if (code == 0) return answer.result;
    disconnect();
    // The answer to this request came neither now nor will it be taken: as if late.
    return code == -EAGAIN ? -ETIMEDOUT : code;
}

// A connection that an agent of earlier left behind costs one attempt more: the next agent may be
// there by now.
template <typename Fill>
std::int64_t agent_store::run(agent_request request, std::uint64_t wait_ns, const Fill& fill) {
    const std::uint64_t end_ns = host_now_ns() + wait_ns;
    for (;;) {
        const bool is_fresh = !socket_;
        if (const int code = connect(end_ns); code < 0) return code;
        request.bytes = std::min(request.bytes, memory_->bytes());
        fill(memory_->data());
        const std::int64_t result = ask(request, end_ns);
        const bool was_left = !socket_ && (result == -EPIPE || result == -ECONNRESET);
        if (!was_left || is_fresh) return result;
    }
}

std::int64_t agent_store::get(const block_key& key, std::span<std::byte> to, std::uint64_t wait_ns,
                              bool reads_file) {
    agent_request request;
    request.op = agent_op::get;
    request.key = key;
    request.bytes = to.size();
    request.flag = reads_file ? 1 : 0;
    const std::int64_t got = run(request, wait_ns, [](std::byte*) {});
    if (got <= 0) return got == 0 ? -EPROTO : got;
    if (static_cast<std::uint64_t>(got) > std::min<std::uint64_t>(to.size(), memory_->bytes())) {
        disconnect();
        return -EPROTO;
    }
    // Copied before it is checked: the agent could change the memory afterwards.
    std::memcpy(to.data(), memory_->data(), static_cast<std::size_t>(got));
    return got;
}

int agent_store::put(const block_key& key, std::span<const std::byte> from, bool replaces,
                     std::uint64_t wait_ns) {
    if (from.size() > block_object_bytes) return -EMSGSIZE;
    agent_request request;
    request.op = agent_op::put;
    request.key = key;
    request.bytes = from.size();
    request.flag = replaces ? 1 : 0;
    const std::int64_t result = run(request, wait_ns, [from](std::byte* memory) {
        std::memcpy(memory, from.data(), from.size());
    });
    return static_cast<int>(std::min<std::int64_t>(result, 0));
}

std::int64_t agent_store::known_for_ns(const block_key& facts, std::uint64_t wait_ns) {
    agent_request request;
    request.op = agent_op::rest;
    request.key = facts;
    return run(request, wait_ns, [](std::byte*) {});
}

block_key key_of_facts(const file_identity& facts) {
    const std::uint64_t file[2] = {facts.device, facts.inode};
    const std::uint64_t version[3] = {facts.size_bytes,
                                      static_cast<std::uint64_t>(facts.modified_ns),
                                      static_cast<std::uint64_t>(facts.changed_ns)};
    block_key key = sha256(std::as_bytes(std::span(version)));
    std::memmove(key.data() + sizeof file, key.data(), key.size() - sizeof file);
    std::memcpy(key.data(), file, sizeof file);
    return key;
}

// The facts were known when the answer was given, which was before it came: so its time counts from
// then.
std::int64_t agent_rests::known_since_ns(const file_identity& facts) noexcept try {
    const block_key key = key_of_facts(facts);
    const std::lock_guard lock(mutex_);
    if (now_ns() < left_alone_until_ns_) return not_known;
    const std::int64_t known_ns = store_.known_for_ns(key, wait_ns_);
    const std::int64_t answered_ns = now_ns();
    if (known_ns >= 0) return answered_ns - known_ns;
    left_alone_until_ns_ = answered_ns + pause_ns;
    return not_known;
} catch (...) {
    return not_known;
}

void ask_agent_about_rests(const std::string& socket_path) {
    auto& asked = one_of_process<asked_agents>();
    const std::lock_guard lock(asked.mutex);
    if (asked.sockets.insert(socket_path).second)
        one_of_process<rested_files>().ask_also(std::make_shared<agent_rests>(socket_path));
}

}  // namespace penstock::host
