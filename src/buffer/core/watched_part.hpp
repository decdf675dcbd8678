// The device's part of a buffer of whole pages, used as far as it pays: what device_watch.hpp
// answers, carried out in the core. Guarded by the manager's lock.
#pragma once

#include <cstdint>

#include "buffer/core/device_watch.hpp"
#include "buffer/core/shadow_list.hpp"
#include "buffer/core/types.hpp"

namespace penstock::buffer {

class watched_part {
public:
    using request = device_watch::request;

    // Throws std::bad_alloc.
    explicit watched_part(std::uint32_t device_pages)
        : watch_(device_pages), shadow_(device_pages) {}

    // As touch() and, if the page is nowhere, load() of the core, for a page that is not in the
    // host. A clean page that the disk delivers faster leaves the device first and is nowhere then;
    // a dirty one always comes from the device. The request's times are for the caller to add.
    template <typename Core, typename Sink>
    found bring(Core& core, page_id id, const Sink& sink, request& out) {
        out = {};
        out.shadow = shadow_.want(id);
        const auto note = [&](const action& told) {
            note_victim(core.inside(), told, out);
            sink(told);
        };
        bool demotes = watch_.demotes(core.inside().device.full());
        const block* const known = core.inside().block_of(id, 0);
        if (known != nullptr && known->where == side::device && !core.is_dirty(id) &&
            !watch_.answers()) {
            core.forget(id, note);
            demotes = false;  // so that its time is that of a plain request
        }
        core.set_demotes(demotes);
        found at{};
        core.touch(id, note, at);
        if (at == found::device) out.kind = device_watch::request_kind::answered;
        else core.load(id, nullptr, note);
        return at;
    }
    void ended(const request& done) { watch_.ended(done); }
    [[nodiscard]] const device_watch& watch() const { return watch_; }

private:
    template <typename Tables>
    void note_victim(const Tables& known, const action& told, request& out) {
        const auto left = [&](std::uint32_t block) {
            known.each_page_of(block, [&](page_id id, std::uint32_t) { shadow_.left_host(id); });
        };
        switch (told.kind) {
            case move::demote:
                out.kind = device_watch::request_kind::demoting;
                return left(told.block);
            case move::exchange: return left(told.other);
            case move::drop:
                if (const std::uint32_t block = known.number_of(told.page, 0);
                    known.blocks[block].where == side::host)
                    left(block);
                return;
            default: return;
        }
    }

    device_watch watch_;
    shadow_list shadow_;
};

}  // namespace penstock::buffer
