#include "runtime/device_links.hpp"

namespace penstock::host {

namespace {

// True if the reader's groups may look at the owner's cache from now on.
bool link_pair(links& linked, runtime_state& reader, const runtime_state& owner) {
    const device_link link = reader.device->link_to(*owner.device);
    std::string why = link.reason;
    if (link.kind != link_kind::none && reader.device->reach(*owner.device, why)) {
        const int code =
            linked.connect(reader.device_index, owner.device_index, distance_of(link.kind));
        if (code == 0) return true;
        why = error_text(code);
    }
    reader.say("does not read the cache of " + owner.label() + why);
    return false;
}

// They were told to stop, so those that cannot be waited for end soon after.
void await_groups(const runtime_state& state) {
    if (const int code = state.device->wait_for_groups(); code != 0)
        state.say("the end of its kernels could not be waited for (" + error_text(code) +
                  "), and the memory that they look at goes now; end a runtime after its kernels");
}

}  // namespace

std::unique_ptr<links> link_caches(const std::vector<std::unique_ptr<runtime_state>>& states) {
    const options& settings = states.front()->settings;
    if (states.size() < 2 || !settings.links || !settings.share.empty()) return nullptr;
    std::vector<links::member> members;
    for (const auto& state : states) members.push_back({state->device.get(), state->ref.view});
    auto linked = std::make_unique<links>(std::move(members));
    bool any = false;
    for (const auto& reader : states)
        for (const auto& owner : states)
            if (reader != owner) any = link_pair(*linked, *reader, *owner) || any;
    for (const auto& state : states) {
        if (any) state->files->tell(linked->observer(state->device_index));
        else state->ref.view.neighbour_places = 0;
    }
    return any ? std::move(linked) : nullptr;
}

void unlink_caches(links& linked, const std::vector<std::unique_ptr<runtime_state>>& states) {
    for (const auto& state : states) {
        if (state->control == nullptr) continue;
        state->set_abort(-ECANCELED);
        state->tell_stop();
    }
    linked.withdraw_all();
    for (const auto& state : states) await_groups(*state);
}

void share_cache(runtime_state& state) {
    if (state.settings.share.empty()) return;
    process_link_settings of_links;
    of_links.name = state.settings.share;
    of_links.beat_ns = state.hooks.beat_ns;
    of_links.wait_ns = std::uint64_t{state.settings.host_wait_ms} * 1'000'000;
    of_links.say = [&state](const std::string& line) { state.say(line); };
    auto made = std::make_unique<process_links>(*state.device, state.ref.view, of_links);
    const auto exchange_share = [&] {
        const std::unique_lock lock = between_forks();
        made.swap(state.share);
    };
    exchange_share();
    if (const status s = state.share->start(); !s) {
        state.say(s.message + "; the cache is shared with no process");
        exchange_share();
        state.ref.view.neighbour_places = 0;
        return;
    }
    state.files->tell(*state.share);
}

void end_sharing(runtime_state& state) {
    if (state.share == nullptr) return;
    state.set_abort(-ECANCELED);
    state.tell_stop();
    state.share->leave();
    await_groups(state);
    state.share->end();
}

}  // namespace penstock::host
