#include "store/agent_rests.hpp"

#include <cerrno>
#include <cstring>
#include <memory>
#include <set>

#include "os/process_owner.hpp"
#include "penstock/group/lane.hpp"

namespace penstock::host {

namespace {

constexpr std::int64_t pause_ns = 10'000'000'000;

std::int64_t now_ns() { return static_cast<std::int64_t>(penstock::detail::host_now_ns()); }

struct asked_agents {
    std::mutex mutex;
    std::set<std::string> sockets;
};

}  // namespace

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
