// The loader of a buffer of whole pages: brings a page to the host, and lets another go for it if
// there is no free frame.
//
// A load has three steps. (1) Under the lock the core decides what moves, and the load takes its
// turns. (2) Without the lock the mover moves it. (3) Under the lock the page is opened; or it
// leaves again, and a page that could not be written for it comes back, dirty, in its frame.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "buffer/pool/locked_core.hpp"
#include "buffer/pool/page_flusher.hpp"
#include "buffer/pool/page_mover.hpp"

namespace penstock::buffer {

// What a page's bytes are to the thread that fixes it: they are read, or they are not. `fresh`:
// unfix may still leave the page as it was; `to_fill`: it will not.
enum class page_content : std::uint8_t { read, fresh, to_fill };

template <typename Order>
class page_loader {
public:
    using lock = typename locked_core<Order>::lock;

    page_loader(const manager_settings& settings, locked_core<Order>& shared,
                frame_directory& pages, page_mover& mover, page_flusher<Order>& flusher)
        : page_bytes_(settings.page_bytes),
          shared_(shared),
          pages_(pages),
          mover_(mover),
          flusher_(flusher) {}

    // A page that was not in the host when its entry was looked at: taken by `kind` when it is.
    // `was_nowhere`: a frame was filled for it. -EAGAIN: to be looked at again.
    int bring(move_room& s, untold_hits& hits, page_id id, use_kind kind, page_content content,
              fixed_page& out, bool& was_nowhere) {
        lock hold(shared_.mutex);
        shared_.tell(hits);
        if (mover_.is_broken()) return -EIO;
        if (id.page >= pages_.file_at(id.file).pages) return -EINVAL;  // the file is shorter now
        const block* const known = shared_.find(id);
        if ((known != nullptr && known->where == side::host) || shared_.turns.is_written(id)) {
            // It is here by now, or another thread is at it: brings it, or writes to the file what
            // the file does not have yet.
            if (pages_.is_absent(id)) shared_.news.wait_for(hold, std::chrono::milliseconds(10));
            return -EAGAIN;
        }
        const wish purpose = content == page_content::read ? wish::page : wish::fresh_page;
        const int code = bring_in(s, hold, id, purpose, [&](std::uint32_t frame) {
            pages_.open_for(frame, id, kind);
            out = {pages_.data_of(frame), id, frame, kind};
        });
        const auto fills = [](const action& told) { return told.kind == move::fill; };
        was_nowhere = std::any_of(s.actions.begin(), s.actions.end(), fills);
        return code;
    }
    // By the owner of a page whose frame never got its bytes: the page leaves.
    void leave_unfilled(const fixed_page& page) {
        {
            const lock hold(shared_.mutex);
            pages_.close_owned(page.frame, page.id);
            shared_.leave(page.id);
        }
        shared_.news.notify_all();
    }

    // Pages from `first` on, read ahead; `end`: of those that are wanted.
    void prefetch(move_room& s, untold_hits& hits, page_id first, std::uint64_t end) {
        const frame_directory::file& file = pages_.file_at(first.file);
        std::uint64_t ask = first.page;
        for (page_id id = first; id.page < end && id.page < file.pages; ++id.page) {
            if (id.page >= ask) ask = look_ahead(s, id, end);
            if (pages_.is_absent(id) && !bring_ahead(s, hits, id)) return;
        }
    }
    // Pages from `first` to before `end` are wanted one after the other: those at the beginning
    // that are nowhere are read into the session's span. Where to ask again.
    std::uint64_t look_ahead(move_room& s, page_id first, std::uint64_t end) {
        const std::uint64_t most = read_span::most_bytes / page_bytes_;
        const frame_directory::file& file = pages_.file_at(first.file);
        end = std::min({end, first.page + most, file.pages.load()});
        if (end <= first.page + 1 || !pages_.is_absent(first)) return first.page + 1;
        std::uint64_t at = first.page, version = 0;
        {
            const lock hold(shared_.mutex);
            version = file.version;
            if (s.span.find(first, version, page_bytes_, 1) != nullptr) return first.page + 1;
            while (at < end && shared_.is_nowhere({at, first.file})) ++at;
            if (at == first.page) {
                while (at < end && !shared_.is_nowhere({at, first.file})) ++at;
                return at;
            }
        }
        std::byte* const room = at > first.page + 1 ? s.span.room() : nullptr;
        if (room == nullptr) return at;
        const std::uint64_t begun = mover_.now();
        const std::int64_t got = mover_.read(first.file, room, (at - first.page) * page_bytes_,
                                             first.page * page_bytes_);
        s.span_page_ns = (mover_.now() - begun) / (at - first.page);
        s.span.set(first, version, static_cast<std::uint64_t>(std::max<std::int64_t>(got, 0)));
        return at;
    }

private:
    // What a request is for: the asker waits for the page, or it is read ahead.
    enum class wish : std::uint8_t { page, fresh_page, ahead };

    // False: reading further ahead makes no sense.
    bool bring_ahead(move_room& s, untold_hits& hits, page_id id) {
        lock hold(shared_.mutex);
        shared_.tell(hits);
        if (mover_.is_broken() || id.page >= pages_.file_at(id.file).pages) return false;
        if (!shared_.is_nowhere(id)) return true;
        const auto opened = [&](std::uint32_t frame) { pages_.open(frame, id); };
        return bring_in(s, hold, id, wish::ahead, opened) == 0;
    }

    // A page that is not in the host, and on its way neither there nor to its file. `opened` is
    // called with its frame, under the lock.
    template <typename Opened>
    int bring_in(move_room& s, lock& hold, page_id id, wish purpose, const Opened& opened) {
        s.filled_bytes = pages_.bytes_in_file(id);
        // Before the version grows by a page that has to go for it.
        s.filled_from =
            s.span.find(id, pages_.file_at(id.file).version, page_bytes_, s.filled_bytes);
        watched_part::request asked = decide(s, id, purpose == wish::ahead);
        const std::uint32_t frame = shared_.find(id)->frame;
        pages_.expect(frame, id);
        const std::uint64_t begun = mover_.now();
        s.device_ns = s.begin_ns = 0;
        shared_.wait_turns(hold, s.actions, s.turns);
        hold.unlock();
        const page_mover::outcome ended = mover_.carry_out(s, purpose == wish::fresh_page);
        const std::uint64_t own_ns = mover_.now() - begun;
        hold.lock();
        shared_.turns.end(s.turns);
        note_time(s, asked, own_ns, ended.any() == 0);
        (purpose == wish::ahead ? shared_.counts.prefetched : shared_.counts.loads) += ended.loaded;
        if (ended.any() == 0) {
            opened(frame);
        } else {
            // Only in the device it was changed, and the device does not give it back.
            if (shared_.core.is_dirty(id)) flusher_.note_lost(id.file);
            shared_.leave(id);
            if (ended.write_code != 0) keep_unwritten(ended);
        }
        hold.unlock();
        shared_.news.notify_all();
        return ended.any();
    }

    // What has to be done that the page is in the host. Nothing is pinned in the core, since the
    // threads that use a frame keep it from being closed; so there is always room.
    watched_part::request decide(move_room& s, page_id id, bool ahead) {
        manager_counts& counts = shared_.counts;
        s.actions.clear();
        const auto note = [&](const action& told) {
            s.actions.push_back(told);
            if (told.kind == move::drop) pages_.count_page(told.page, false);
            if (told.kind == move::write_back)
                ++counts.write_backs, ++pages_.file_at(told.page.file).version;
            if (told.kind == move::write_back && told.device != nothing)
                ++counts.device_write_backs;
            if (told.kind == move::demote || told.kind == move::exchange) ++counts.demotions;
            if (told.kind == move::promote || told.kind == move::exchange) ++counts.promotions;
        };
        found at{};
        watched_part::request asked;
        if (shared_.part) {
            at = shared_.part->bring(shared_.core, id, note, asked);
            counts.kept_back += is_kept_back(s.actions) ? 1 : 0;
        } else {
            shared_.core.touch(id, note, at);
            if (at == found::nowhere) shared_.core.load(id, nullptr, note);
        }
        if (at == found::device) ++counts.device_hits;
        if (at == found::nowhere) {
            counts.misses += ahead ? 0 : 1;
            pages_.count_page(id, true);
        }
        return asked;
    }
    // A page left, and it did not go to the device.
    static bool is_kept_back(const std::vector<action>& actions) {
        return std::none_of(actions.begin(), actions.end(),
                            [](const action& told) {
                                return told.kind == move::demote || told.kind == move::exchange;
                            }) &&
               std::any_of(actions.begin(), actions.end(),
                           [](const action& told) { return told.kind == move::drop; });
    }

    // A request that failed says nothing of what requests take. A page from the session's span had
    // its part of one read.
    void note_time(move_room& s, watched_part::request& asked, std::uint64_t own_ns,
                   bool went_well) {
        asked.ns = own_ns + (s.filled_from != nullptr ? s.span_page_ns : 0);
        // A read that is begun while the device is told is part of what a move costs.
        asked.device_ns = s.device_ns + s.begin_ns;
        shared_.counts.request_ns += asked.ns;
        shared_.counts.device_ns += s.device_ns;
        if (shared_.part && went_well) shared_.part->ended(asked);
    }

    // The frame that the other page was to have is free, and the page that must not go has left a
    // frame: it gets this frame.
    void keep_unwritten(const page_mover::outcome& ended) {
        const page_id id = ended.unwritten;
        flusher_.note_failure(id, ended.write_code);
        std::uint32_t frame = nothing;
        shared_.core.load(id, nullptr, [&](const action& told) {
            if (told.kind == move::fill) frame = told.host;
        });
        pages_.count_page(id, true);
        shared_.core.mark_dirty(id);
        if (pages_.data_of(frame) != ended.bytes)
            std::memcpy(pages_.data_of(frame), ended.bytes, page_bytes_);
        pages_.open(frame, id);
    }

    const std::uint64_t page_bytes_;
    locked_core<Order>& shared_;
    frame_directory& pages_;
    page_mover& mover_;
    page_flusher<Order>& flusher_;
};

}  // namespace penstock::buffer
