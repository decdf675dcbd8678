// What the lock of the manager of whole pages guards: the core, the turns on frames that bytes move
// through, and the counts.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "buffer/core/core.hpp"
#include "buffer/core/watched_part.hpp"
#include "buffer/pool/frame_directory.hpp"

namespace penstock::buffer {

// An order whose victim is a block in a frame that no thread uses: that is closed when it is found,
// so that no thread comes to use it. The thread that drives the core sees to it that there always
// is one.
template <typename Order>
class latched_order : public Order {
public:
    using Order::Order;

    // `idle`: no thread uses the frame just now. `close`: closes it, unless another thread came to
    // use it.
    void close_by(std::function<bool(std::uint32_t)> idle,
                  std::function<bool(std::uint32_t)> close) {
        idle_ = std::move(idle);
        close_ = std::move(close);
    }

    template <typename MayGo>
    std::uint32_t victim(block_table& blocks, const MayGo& may_go) {
        for (;;) {
            // CLOCK gives up after two rounds, in which others may have come and gone wherever its
            // hand was.
            const std::uint32_t out = Order::victim(blocks, [&](std::uint32_t number) {
                return may_go(number) && idle_(blocks[number].frame);
            });
            if (out != nothing && close_(blocks[out].frame)) return out;
        }
    }

private:
    std::function<bool(std::uint32_t)> idle_, close_;
};

// Turns on frames and on pages that are written back: the thread that moves bytes takes all it
// needs at once, under the manager's lock, and waits until those that were taken before are done.
// As they are taken all at once, no thread waits for one that came later, and so none for each
// other.
//
// All calls under the manager's lock.
class frame_turns {
public:
    // What one request has taken.
    class taken {
    public:
        // Up to so many actions take turns without asking for memory.
        void make_room(std::size_t actions) { frames_.reserve(2 * actions); }

    private:
        friend class frame_turns;
        struct frame_turn {
            std::uint32_t frame, number;
        };
        std::vector<frame_turn> frames_;
        page_id page_{};
        std::uint32_t page_number_ = 0;
        bool has_page_ = false;
    };

    // `requests`: at a time, at most.
    frame_turns(std::uint32_t host_frames, std::uint32_t device_frames, std::uint32_t requests)
        : host_frames_(host_frames), frames_(host_frames + device_frames) {
        pages_.reserve(requests);
    }

    // For these actions; of pages that are written back there is one at most.
    void take(const std::vector<action>& actions, taken& out) {
        out.frames_.clear();
        out.has_page_ = false;
        // A turn that is counted and not noted would never end, so nothing may throw from here on.
        out.make_room(actions.size());
        pages_.reserve(pages_.size() + 1);
        for (const action& told : actions) {
            if (told.host != nothing) take_frame(told.host, out);
            if (told.device != nothing) take_frame(host_frames_ + told.device, out);
            if (told.kind != move::write_back) continue;
            out.page_ = told.page;
            if (find(told.page) == pages_.end()) pages_.push_back({told.page, {}});
            out.page_number_ = find(told.page)->second.next++;
            out.has_page_ = true;
        }
    }
    [[nodiscard]] bool have_come(const taken& turns) const {
        if (turns.has_page_ && find(turns.page_)->second.done != turns.page_number_) return false;
        return std::all_of(turns.frames_.begin(), turns.frames_.end(), [&](const auto& ticket) {
            return frames_[ticket.frame].done == ticket.number;
        });
    }
    void end(const taken& turns) {
        for (const auto& ticket : turns.frames_) ++frames_[ticket.frame].done;
        if (!turns.has_page_) return;
        const auto at = find(turns.page_);
        if (++at->second.done != at->second.next) return;
        *at = pages_.back();
        pages_.pop_back();
    }
    // Bytes of the page are on their way to its file: what the file has is old.
    [[nodiscard]] bool is_written(page_id page) const { return find(page) != pages_.end(); }
    // The turns on pages of a file that are taken now, and whether those have ended.
    using page_turns = std::vector<std::pair<page_id, std::uint32_t>>;
    [[nodiscard]] page_turns written_of(std::uint32_t file) const {
        page_turns out;
        for (const auto& [page, counter] : pages_)
            if (page.file == file) out.emplace_back(page, counter.next);
        return out;
    }
    [[nodiscard]] bool have_ended(const page_turns& some) const {
        return std::all_of(some.begin(), some.end(), [&](const auto& ticket) {
            const auto at = find(ticket.first);
            return at == pages_.end() || at->second.done >= ticket.second;
        });
    }
    // No thread has a turn on the device frame, or waits for one.
    [[nodiscard]] bool is_idle_on_device(std::uint32_t frame) const {
        const turn& counter = frames_[host_frames_ + frame];
        return counter.next == counter.done;
    }
    // No thread took a turn on the device frame after this one.
    [[nodiscard]] bool is_last_on_device(std::uint32_t frame) const {
        const turn& counter = frames_[host_frames_ + frame];
        return counter.next == counter.done + 1;
    }

private:
    struct turn {
        std::uint32_t next = 0, done = 0;
    };
    // A request writes one page at most, so there are as many as requests.
    using page_list = std::vector<std::pair<page_id, turn>>;
    page_list::iterator find(page_id page) {
        return std::find_if(pages_.begin(), pages_.end(),
                            [&](const auto& entry) { return entry.first == page; });
    }
    page_list::const_iterator find(page_id page) const {
        return std::find_if(pages_.begin(), pages_.end(),
                            [&](const auto& entry) { return entry.first == page; });
    }

    void take_frame(std::uint32_t frame, taken& out) {
        if (std::any_of(out.frames_.begin(), out.frames_.end(),
                        [&](const auto& ticket) { return ticket.frame == frame; }))
            return;
        out.frames_.push_back({frame, frames_[frame].next++});
    }

    const std::uint32_t host_frames_;
    std::vector<turn> frames_;
    page_list pages_;
};

// Uses of pages that one session has not told to the order yet.
struct untold_hits {
    // Told at once, if no thread has the lock just then.
    static constexpr std::size_t most_at_once = 64;

    void forget() {
        pages.clear();
        next_try = most_at_once;
    }

    std::vector<page_id> pages;
    std::size_t next_try = most_at_once;  // to tell them
};

// The lock is held to decide and not while bytes move. A session that has decided takes its turns
// under it (wait_turns), moves bytes without it, and ends its turns under it; `news` tells the
// threads that wait for a turn, a frame or a page.
//
// In a line of the processor's cache of its own: what lies before it is looked at without the lock
// all the time.
template <typename Order>
struct alignas(64) locked_core {
    using lock = std::unique_lock<std::mutex>;

    locked_core(const manager_settings& settings, frame_directory& directory)
        : turns(settings.host_pages + settings.sessions, settings.device_pages, settings.sessions),
          pages(directory) {}

    int make(const manager_settings& settings) {
        const std::uint32_t all = settings.host_pages + settings.device_pages;
        if (const int code =
                core.make({settings.host_pages, settings.device_pages, 1, all + 1, settings.files});
            code != 0)
            return code;
        if (settings.stands_back && settings.policy == policy_kind::gram &&
            settings.device_pages != 0)
            part.emplace(settings.device_pages);
        core.order().close_by([this](std::uint32_t frame) { return pages.is_idle(frame); },
                              [this](std::uint32_t frame) {
                                  page_id id{};
                                  bool was_changed = false;
                                  if (!pages.close(frame, id, was_changed)) return false;
                                  if (was_changed) core.mark_dirty(id);
                                  return true;
                              });
        return 0;
    }

    // All under the lock.
    [[nodiscard]] const block* find(page_id id) const { return core.inside().block_of(id, 0); }
    // Neither in the buffer nor on its way to its file.
    [[nodiscard]] bool is_nowhere(page_id id) const {
        return find(id) == nullptr && !turns.is_written(id);
    }
    // On its way to the host, or bytes of it to its file.
    [[nodiscard]] bool is_coming_or_written(page_id id) const {
        const block* const known = find(id);
        return turns.is_written(id) ||
               (known != nullptr && known->where == side::host && pages.is_absent(id));
    }
    // The page leaves, and nothing of it is written.
    void leave(page_id id) {
        if (core.forget(id, [](const action&) {}) == 0) pages.count_page(id, false);
    }
    void tell(untold_hits& hits) {
        const auto ignore = [](const action&) {};
        counts.host_hits += hits.pages.size();
        for (const page_id id : hits.pages) {
            const block* const known = find(id);
            found at{};
            if (known != nullptr && known->where == side::host) core.touch(id, ignore, at);
        }
        hits.forget();
    }
    void tell_changes() {
        pages.take_changes([this](page_id id) { core.mark_dirty(id); });
    }
    // The actions' turns, when those before them have ended.
    void wait_turns(lock& hold, const std::vector<action>& actions, frame_turns::taken& taken) {
        turns.take(actions, taken);
        news.wait(hold, [&] { return turns.have_come(taken); });
    }

    mutable std::mutex mutex;
    std::condition_variable news;  // turns have ended, or frames were opened
    // Guarded by mutex:
    buffer::core<latched_order<Order>> core;
    frame_turns turns;
    manager_counts counts;
    std::optional<watched_part> part;  // empty: the device's part is always used
    frame_directory& pages;
};

}  // namespace penstock::buffer
