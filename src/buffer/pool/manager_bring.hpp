// Pages that come to the host, and those that go for them (manager_state.hpp).
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "buffer/pool/manager_moves.hpp"
#include "buffer/pool/manager_state.hpp"
#include "buffer/pool/pause.hpp"

namespace penstock::buffer {

template <typename Order>
int manager_state<Order>::find_size(const session_room& s, std::uint32_t number,
                                    std::uint64_t& bytes) {
    const file_visit in(states_, s.number, number);
    if (in.code() != 0) return in.code() == -EINVAL ? -EBADF : in.code();
    // Pages behind a new end go before the size does (cut).
    bytes =
        std::min<std::uint64_t>(files_[number].bytes, files_[number].pages * settings_.page_bytes);
    return 0;
}

template <typename Order>
int manager_state<Order>::fix(session_room& s, page_id id, use_kind kind, page_content content,
                              fixed_page& out) {
    const file_visit in(states_, s.number, id.file, file_visit::purpose::fix);
    if (in.code() != 0) return in.code();
    if (id.page >= files_[id.file].pages) return -EINVAL;
    if (kind == use_kind::write && !files_[id.file].is_writable) return -EACCES;
    if (s.fixed == settings_.fixed_pages) return -EBUSY;
    deadline until{};
    for (std::uint32_t round = 0;; ++round) {
        std::uint32_t frame = 0;
        int code = -EAGAIN;
        switch (entry(id).take(latches_.data(), kind, frame)) {
            case found_by_entry::taken:
                out = {data_of(frame), id, frame, kind};
                s.hits.push_back(id);
                code = content == page_content::fresh ? note_fresh(s, id, false, out) : 0;
                break;
            case found_by_entry::busy: pause_between_looks(round); break;
            case found_by_entry::absent: code = bring(s, id, kind, content, out);
        }
        if (code == 0) {
            ++s.fixed;
            out.place = states_.hold(s.number, id);
        }
        if (code != -EAGAIN) return code;
        const deadline now = std::chrono::steady_clock::now();
        if (round == 0) until = now + std::chrono::milliseconds(settings_.wait_ms);
        if (now > until) return -ETIMEDOUT;
        if (const int gone = look_again(s, id); gone != 0) return gone;
    }
}

// While a call waits the file may be closed, or cut before the page.
template <typename Order>
int manager_state<Order>::look_again(const session_room& s, page_id id) {
    if (const int code = states_.renew(s.number, id.file); code != 0) return code;
    return id.page < files_[id.file].pages ? 0 : -EINVAL;
}

// The page is owned. What unfix needs to leave it as it was: a page that was nowhere leaves again,
// of another the bytes are kept. -ENOMEM, and the page is owned no more.
template <typename Order>
int manager_state<Order>::note_fresh(session_room& s, page_id id, bool was_nowhere,
                                     const fixed_page& page) {
    fresh_page one{id, nullptr};
    if (!was_nowhere) {
        one.before = std::move(s.spare);
        if (one.before == nullptr)
            one.before.reset(new (std::nothrow) std::byte[settings_.page_bytes]);
        if (one.before == nullptr) {
            latches_[page.frame].end(use_kind::write);
            return -ENOMEM;
        }
        std::memcpy(one.before.get(), page.data, settings_.page_bytes);
    }
    s.fresh.push_back(std::move(one));  // there is room for as many as may be fixed
    return 0;
}

// False: the page's frame never got its bytes, and the page has to leave.
template <typename Order>
bool manager_state<Order>::end_fresh(session_room& s, const fixed_page& page, bool changed) {
    const auto is_it = [&](const fresh_page& one) { return one.id == page.id; };
    const auto found = std::find_if(s.fresh.begin(), s.fresh.end(), is_it);
    if (found == s.fresh.end()) return true;
    std::unique_ptr<std::byte[]> before = std::move(found->before);
    s.fresh.erase(found);
    if (before == nullptr) return changed;
    if (!changed) std::memcpy(page.data, before.get(), settings_.page_bytes);
    s.spare = std::move(before);
    return true;
}

template <typename Order>
void manager_state<Order>::leave_unfilled(const fixed_page& page) {
    {
        const lock hold(mutex_);
        entry(page.id).withdraw_owned(latches_[page.frame]);
        leave_core(page.id);
    }
    news_.notify_all();
}

template <typename Order>
void manager_state<Order>::unfix(session_room& s, const fixed_page& page, bool changed) {
    if (!states_.here()) return;
    const bool writes = page.kind == use_kind::write;
    const bool is_filled = !writes || s.fresh.empty() || end_fresh(s, page, changed);
    if (changed && writes) changed_[page.frame] = true;  // before anybody else can close the frame
    if (is_filled) latches_[page.frame].end(page.kind);
    else leave_unfilled(page);
    --s.fixed;
    states_.let_go(s.number, page.place);
    if (s.hits.size() < s.next_try) return;
    if (const lock hold(mutex_, std::try_to_lock); hold.owns_lock()) {
        tell_hits(s);
    } else if (s.hits.size() < most_untold_hits) {
        s.next_try = s.hits.size() + most_hits;  // a thread that asks for a lock that is not free
                                                 // keeps others waiting all the same
    } else {
        // Where the lock is never free when it is asked for, so many hits are told by others that
        // the order knows the hot pages without these.
        untold_hits_ += s.hits.size();
        s.forget_hits();
    }
}

template <typename Order>
void manager_state<Order>::tell_hits(session_room& s) {
    const auto ignore = [](const action&) {};
    counts_.host_hits += s.hits.size();
    for (const page_id id : s.hits) {
        const block* const known = core_.inside().block_of(id, 0);
        found at{};
        if (known != nullptr && known->where == side::host) core_.touch(id, ignore, at);
    }
    s.forget_hits();
}

template <typename Order>
bool manager_state<Order>::close_frame(std::uint32_t frame) {
    const page_id id = page_in_[frame];
    if (!entry(id).withdraw(latches_[frame])) return false;
    if (changed_[frame].exchange(false)) core_.mark_dirty(id);
    return true;
}

template <typename Order>
void manager_state<Order>::open_for(std::uint32_t frame, page_id id, use_kind kind) {
    page_in_[frame] = id;
    latches_[frame].open_for(kind);
    entry(id).publish(frame);
}

// What has to be done that the page is in the host. Nothing is pinned in the core, since the
// threads that use a frame keep it from being closed; so there is always room.
template <typename Order>
void manager_state<Order>::decide(session_room& s, page_id id, bool ahead) {
    s.actions.clear();
    const auto note = [&](const action& one) {
        s.actions.push_back(one);
        if (one.what == move::drop) count_page(one.page, false);
        if (one.what == move::write_back) ++counts_.write_backs, ++files_[one.page.file].version;
        if (one.what == move::write_back && one.device != nothing) ++counts_.device_write_backs;
        if (one.what == move::demote || one.what == move::exchange) ++counts_.demotions;
        if (one.what == move::promote || one.what == move::exchange) ++counts_.promotions;
    };
    found at{};
    core_.touch(id, note, at);
    if (at == found::device) ++counts_.device_hits;
    if (at != found::nowhere) return;
    counts_.misses += ahead ? 0 : 1;
    core_.load(id, nullptr, note);
    count_page(id, true);
}

// The page leaves, and nothing of it is written.
template <typename Order>
void manager_state<Order>::leave_core(page_id id) {
    if (core_.forget(id, [](const action&) {}) == 0) count_page(id, false);
}

template <typename Order>
int manager_state<Order>::bring(session_room& s, page_id id, use_kind kind, page_content content,
                                fixed_page& out) {
    lock hold(mutex_);
    tell_hits(s);
    if (broken_) return -EIO;
    if (id.page >= files_[id.file].pages) return -EINVAL;  // the file has become shorter
    const block* const known = core_.inside().block_of(id, 0);
    if ((known != nullptr && known->where == side::host) || turns_.is_written(id)) {
        // It is here by now, or another thread is at it: brings it, or writes to the file what the
        // file does not have yet.
        if (entry(id).is_absent()) news_.wait_for(hold, std::chrono::milliseconds(10));
        return -EAGAIN;
    }
    const wish what = content == page_content::read ? wish::page : wish::fresh_page;
    const int code = bring_in(s, hold, id, what, [&](std::uint32_t frame) {
        open_for(frame, id, kind);
        out = {data_of(frame), id, frame, kind};
    });
    if (code != 0 || content != page_content::fresh) return code;
    const auto fills = [](const action& one) { return one.what == move::fill; };
    return note_fresh(s, id, std::any_of(s.actions.begin(), s.actions.end(), fills), out);
}

// A page that is not in the host, and on its way neither there nor to its file. `opened` is called
// with its frame, under the lock.
template <typename Order>
template <typename Opened>
int manager_state<Order>::bring_in(session_room& s, lock& hold, page_id id, wish what,
                                   const Opened& opened) {
    s.filled_bytes = bytes_in_file(id);
    s.filled_from =
        s.window.find(id, files_[id.file].version, settings_.page_bytes,
                      s.filled_bytes);  // before the version grows by a page that has to go for it
    decide(s, id, what == wish::ahead);
    const std::uint32_t frame = core_.inside().block_of(id, 0)->frame;
    page_in_[frame] = id;
    turns_.take(s.actions, s.mine);
    news_.wait(hold, [&] { return turns_.have_come(s.mine); });
    hold.unlock();
    const outcome ended = carry_out(s, what == wish::fresh_page);
    hold.lock();
    turns_.end(s.mine);
    (what == wish::ahead ? counts_.prefetched : counts_.loads) += ended.loaded;
    if (ended.code == 0 && ended.write_code == 0) {
        opened(frame);
    } else {
        // Only in the device it was changed, and the device does not give it back.
        if (core_.is_dirty(id)) files_[id.file].has_lost = true;
        leave_core(id);
        if (ended.write_code != 0) keep_unwritten(ended);
    }
    hold.unlock();
    news_.notify_all();
    return ended.code != 0 ? ended.code : ended.write_code;
}

}  // namespace penstock::buffer
