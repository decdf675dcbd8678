// Dirty pages on their way to their file, while they stay where they are (manager_state.hpp).
#pragma once

#include <cerrno>
#include <vector>

#include "buffer/pool/manager_bring.hpp"

namespace penstock::buffer {

template <typename Order>
int manager_state<Order>::note_failure(page_id id, int code) {
    ++files_[id.file].failures;
    files_[id.file].error = code;
    return code;
}

// What was changed since the core was told last.
template <typename Order>
void manager_state<Order>::tell_changes() {
    for (std::uint32_t frame = 0; frame < settings_.host_pages; ++frame)
        if (changed_[frame].load() && changed_[frame].exchange(false))
            core_.mark_dirty(page_in_[frame]);
}

// Write-backs that are under way now, of pages that had to go.
template <typename Order>
bool manager_state<Order>::wait_for_writes(lock& hold, std::uint32_t file, std::uint64_t first,
                                           std::uint64_t end) {
    turns::page_turns under_way = turns_.written_of(file);
    std::erase_if(under_way,
                  [&](const auto& one) { return one.first.page < first || one.first.page >= end; });
    news_.wait(hold, [&] { return turns_.have_ended(under_way); });
    return !under_way.empty();
}

// As many pages as are dirty at the beginning, the first first: what becomes dirty later comes
// behind them. One that goes meanwhile is written by the thread that needs its frame; that is
// waited for, and if it fails it is an error here too.
template <typename Order>
int manager_state<Order>::flush(session_room& s, std::uint32_t file) {
    const file_visit in(states_, s.number, file);
    if (in.code() != 0) return in.code();
    const deadline until = wait_until();
    lock hold(mutex_);
    tell_hits(s);
    const std::uint64_t failures = files_[file].failures;
    wait_for_writes(hold, file);
    tell_changes();
    for (std::uint32_t left = core_.dirty_pages(file); left > 0; --left) {
        page_id id;
        if (!core_.first_dirty(file, id)) break;
        hold.unlock();
        const int code = flush_one(s, id, until);
        hold.lock();
        if (code != 0) return code;
    }
    wait_for_writes(hold, file);
    if (files_[file].failures != failures) return files_[file].error;
    if (files_[file].has_lost) return -EIO;
    hold.unlock();
    return sync_file(env_, files_[file].fd);
}

template <typename Order>
int manager_state<Order>::flush_one(session_room& s, page_id id, deadline until) {
    for (std::uint32_t round = 0;; ++round) {
        lock hold(mutex_);
        if (!core_.is_dirty(id)) return 0;  // another thread has, or has it on its way
        if (broken_) return -EIO;
        const block& known = *core_.inside().block_of(id, 0);
        if (known.where == side::device) return flush_in_device(s, hold, id, known.frame);
        const found_by_entry answer = latches_[known.frame].take(use_kind::read);
        if (answer == found_by_entry::taken) return flush_in_host(s, hold, id, known.frame);
        if (std::chrono::steady_clock::now() > until) return -ETIMEDOUT;
        if (answer == found_by_entry::absent) news_.wait_for(hold, std::chrono::milliseconds(10));
        hold.unlock();
        pause_between_looks(round);
    }
}

// The frame is shared by us: no thread changes the page, and it does not go.
template <typename Order>
int manager_state<Order>::flush_in_host(session_room& s, lock& hold, page_id id,
                                        std::uint32_t frame) {
    ++files_[id.file].version;
    s.actions.assign(1, {move::write_back, nothing, nothing, frame, nothing, 0, id});
    turns_.take(s.actions, s.mine);
    news_.wait(hold, [&] { return turns_.have_come(s.mine); });
    changed_[frame] = false;
    hold.unlock();
    const int code = write_page(id, data_of(frame));
    hold.lock();
    turns_.end(s.mine);
    if (code == 0) {
        core_.mark_clean(id);
        ++counts_.write_backs;
    } else {
        note_failure(id, code);
    }
    latches_[frame].end(use_kind::read);
    hold.unlock();
    news_.notify_all();
    return code;
}

// It may go to the host meanwhile and be changed there, or be written by the thread that needs the
// device frame; those take their turns behind this one. Then it stays dirty if it was, behind the
// others.
template <typename Order>
int manager_state<Order>::flush_in_device(session_room& s, lock& hold, page_id id,
                                          std::uint32_t frame) {
    ++files_[id.file].version;
    s.actions.assign(1, {move::write_back, nothing, nothing, nothing, frame, 0, id});
    turns_.take(s.actions, s.mine);
    news_.wait(hold, [&] { return turns_.have_come(s.mine); });
    hold.unlock();
    const outcome ended = carry_out(s, false);
    hold.lock();
    const bool stays = turns_.is_last_on_device(frame);
    turns_.end(s.mine);
    const int code = ended.code != 0 ? ended.code : ended.write_code;
    if (code == 0) {
        ++counts_.write_backs;
        ++counts_.device_write_backs;
        if (core_.is_dirty(id)) {
            core_.mark_clean(id);
            if (!stays) core_.mark_dirty(id);
        }
    } else {
        note_failure(id, code);
    }
    hold.unlock();
    news_.notify_all();
    return code;
}

}  // namespace penstock::buffer
