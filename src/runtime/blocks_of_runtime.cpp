// How a runtime has blocks of a store between nodes.
#include "runtime/runtime_state.hpp"
#include "store/agent_rests.hpp"

namespace penstock::host {

// The first device, which ends last, has the threads and the blocks of all.
void runtime_state::build_blocks() {
    if (first_device != nullptr) blocks = first_device->blocks;
    if (blocks != nullptr || (settings.block_store.empty() && !hooks.make_store)) return;
    block_settings of_blocks;
    of_blocks.space = settings.block_store_namespace;
    of_blocks.wait_ns = std::uint64_t{settings.block_store_wait_ms} * 1'000'000;
    of_blocks.local_files = settings.block_store_local;
    of_blocks.trust = settings.trust_times;
    of_blocks.say = [this](const std::string& line) { say(line); };
    if (!settings.block_store.empty()) ask_agent_about_rests(settings.block_store);
    if (hooks.set_blocks) hooks.set_blocks(of_blocks);
    const auto make_agent = [this] { return std::make_unique<agent_store>(settings.block_store); };
    blocks = std::make_shared<block_reader>(
        *hooks.env, of_blocks,
        hooks.make_store ? hooks.make_store : block_reader::store_maker(make_agent));
}

}  // namespace penstock::host
