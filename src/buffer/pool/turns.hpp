// Turns on frames and on pages that are written back: the thread that moves bytes takes all it
// needs at once, under the manager's lock, and waits until those that were taken before are done.
// As they are taken all at once, no thread waits for one that came later, and so none for each
// other.
//
// All calls under the manager's lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "buffer/core/types.hpp"

namespace penstock::buffer {

class turns {
public:
    // What one request has taken.
    class taken {
        friend class turns;
        struct frame_turn {
            std::uint32_t frame, number;
        };
        std::vector<frame_turn> frames_;
        page_id page_{};
        std::uint32_t page_number_ = 0;
        bool has_page_ = false;
    };

    // `requests`: at a time, at most.
    turns(std::uint32_t host_frames, std::uint32_t device_frames, std::uint32_t requests)
        : host_frames_(host_frames), frames_(host_frames + device_frames) {
        pages_.reserve(requests);
    }

    // For these actions; of pages that are written back there is one at most.
    void take(const std::vector<action>& actions, taken& out) {
        out.frames_.clear();
        out.has_page_ = false;
        for (const action& one : actions) {
            if (one.host != nothing) take_frame(one.host, out);
            if (one.device != nothing) take_frame(host_frames_ + one.device, out);
            if (one.what != move::write_back) continue;
            out.page_ = one.page;
            if (find(one.page) == pages_.end()) pages_.push_back({one.page, {}});
            out.page_number_ = find(one.page)->second.next++;
            out.has_page_ = true;
        }
    }
    [[nodiscard]] bool have_come(const taken& mine) const {
        if (mine.has_page_ && find(mine.page_)->second.done != mine.page_number_) return false;
        return std::all_of(mine.frames_.begin(), mine.frames_.end(),
                           [&](const auto& one) { return frames_[one.frame].done == one.number; });
    }
    void end(const taken& mine) {
        for (const auto& one : mine.frames_) ++frames_[one.frame].done;
        if (!mine.has_page_) return;
        const auto at = find(mine.page_);
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
        for (const auto& [page, one] : pages_)
            if (page.file == file) out.emplace_back(page, one.next);
        return out;
    }
    [[nodiscard]] bool have_ended(const page_turns& some) const {
        return std::all_of(some.begin(), some.end(), [&](const auto& one) {
            const auto at = find(one.first);
            return at == pages_.end() || at->second.done >= one.second;
        });
    }
    // No thread took a turn on the device frame after this one.
    [[nodiscard]] bool is_last_on_device(std::uint32_t frame) const {
        const turn& one = frames_[host_frames_ + frame];
        return one.next == one.done + 1;
    }

private:
    struct turn {
        std::uint32_t next = 0, done = 0;
    };
    // A request writes one page at most, so there are as many as requests.
    using page_list = std::vector<std::pair<page_id, turn>>;
    page_list::iterator find(page_id page) {
        return std::find_if(pages_.begin(), pages_.end(),
                            [&](const auto& one) { return one.first == page; });
    }
    page_list::const_iterator find(page_id page) const {
        return std::find_if(pages_.begin(), pages_.end(),
                            [&](const auto& one) { return one.first == page; });
    }

    void take_frame(std::uint32_t frame, taken& out) {
        if (std::any_of(out.frames_.begin(), out.frames_.end(),
                        [&](const auto& one) { return one.frame == frame; }))
            return;
        out.frames_.push_back({frame, frames_[frame].next++});
    }

    const std::uint32_t host_frames_;
    std::vector<turn> frames_;
    page_list pages_;
};

}  // namespace penstock::buffer
