// The flusher of a buffer of whole pages: dirty pages on their way to their file, while they stay
// where they are, and which writes failed.
//
// A page that goes meanwhile is written by the thread that needs its frame; a flush waits for that,
// and if it fails it is an error of the flush too.
#pragma once

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <vector>

#include "buffer/pool/file_states.hpp"
#include "buffer/pool/locked_core.hpp"
#include "buffer/pool/page_mover.hpp"

namespace penstock::buffer {

template <typename Order>
class page_flusher {
public:
    using lock = typename locked_core<Order>::lock;

    page_flusher(const manager_settings& settings, locked_core<Order>& shared,
                 frame_directory& pages, page_mover& mover)
        : shared_(shared), pages_(pages), mover_(mover), losses_(settings.files) {}

    // Under the lock: of a page that could not be written; the same code. And of a changed page
    // that is lost by an error of the device: every flush of its file says so.
    int note_failure(page_id id, int code) {
        ++losses_[id.file].failures;
        losses_[id.file].error = code;
        return code;
    }
    void note_lost(std::uint32_t file) { losses_[file].has_lost = true; }
    void forget_losses(std::uint32_t file) { losses_[file] = {}; }

    // Write-backs that are under way now, of pages that had to go, from `first` to before `end`.
    // False: there was none.
    bool wait_for_writes(lock& hold, std::uint32_t file, std::uint64_t first = 0,
                         std::uint64_t end = ~std::uint64_t{0}) {
        frame_turns::page_turns under_way = shared_.turns.written_of(file);
        std::erase_if(under_way, [&](const auto& each) {
            return each.first.page < first || each.first.page >= end;
        });
        shared_.news.wait(hold, [&] { return shared_.turns.have_ended(under_way); });
        return !under_way.empty();
    }

    // As many pages as are dirty at the beginning, the first first: what becomes dirty later comes
    // behind them. 0, or the error of a write.
    int flush(move_room& s, untold_hits& hits, std::uint32_t file, deadline until) {
        lock hold(shared_.mutex);
        shared_.tell(hits);
        const std::uint64_t failures = losses_[file].failures;
        wait_for_writes(hold, file);
        shared_.tell_changes();
        for (std::uint32_t left = shared_.core.dirty_pages(file); left > 0; --left) {
            page_id id;
            if (!shared_.core.first_dirty(file, id)) break;
            hold.unlock();
            const int code = flush_page(s, id, until);
            hold.lock();
            if (code != 0) return code;
        }
        wait_for_writes(hold, file);
        if (losses_[file].failures != failures) return losses_[file].error;
        return losses_[file].has_lost ? -EIO : 0;
    }

private:
    // Of a file, under the lock.
    struct file_losses {
        bool has_lost = false;
        std::uint64_t failures = 0;  // writes of its pages, and the last one's error
        int error = 0;
    };

    int flush_page(move_room& s, page_id id, deadline until) {
        for (std::uint32_t round = 0;; ++round) {
            lock hold(shared_.mutex);
            if (!shared_.core.is_dirty(id)) return 0;  // another thread has, or has it on its way
            if (mover_.is_broken()) return -EIO;
            const block& known = *shared_.find(id);
            if (known.where == side::device) return flush_in_device(s, hold, id, known.frame);
            const found_by_entry answer = pages_.take_to_flush(known.frame);
            if (answer == found_by_entry::taken) return flush_in_host(s, hold, id, known.frame);
            if (std::chrono::steady_clock::now() > until) return -ETIMEDOUT;
            if (answer == found_by_entry::absent)
                shared_.news.wait_for(hold, std::chrono::milliseconds(10));
            hold.unlock();
            pause_between_looks(round);
        }
    }

    // The frame is shared by us: no thread changes the page, and it does not go.
    int flush_in_host(move_room& s, lock& hold, page_id id, std::uint32_t frame) {
        wait_turn(s, hold, id, frame, nothing);
        pages_.clear_changed(frame);
        hold.unlock();
        const int code = mover_.write_page(id, pages_.data_of(frame));
        hold.lock();
        shared_.turns.end(s.turns);
        if (code == 0) {
            shared_.core.mark_clean(id);
            ++shared_.counts.write_backs;
        } else {
            note_failure(id, code);
        }
        pages_.end(frame, use_kind::read);
        hold.unlock();
        shared_.news.notify_all();
        return code;
    }

    // It may go to the host meanwhile and be changed there, or be written by the thread that needs
    // the device frame; those take their turns behind this one. Then it stays dirty if it was,
    // behind the others.
    int flush_in_device(move_room& s, lock& hold, page_id id, std::uint32_t frame) {
        wait_turn(s, hold, id, nothing, frame);
        hold.unlock();
        const int code = mover_.carry_out(s, false).any();
        hold.lock();
        const bool stays = shared_.turns.is_last_on_device(frame);
        shared_.turns.end(s.turns);
        if (code == 0) {
            ++shared_.counts.write_backs;
            ++shared_.counts.device_write_backs;
            if (shared_.core.is_dirty(id)) {
                shared_.core.mark_clean(id);
                if (!stays) shared_.core.mark_dirty(id);
            }
        } else {
            note_failure(id, code);
        }
        hold.unlock();
        shared_.news.notify_all();
        return code;
    }
    void wait_turn(move_room& s, lock& hold, page_id id, std::uint32_t in_host,
                   std::uint32_t in_device) {
        ++pages_.file_at(id.file).version;
        s.actions.assign(1, {move::write_back, nothing, nothing, in_host, in_device, 0, id});
        shared_.wait_turns(hold, s.actions, s.turns);
    }

    locked_core<Order>& shared_;
    frame_directory& pages_;
    page_mover& mover_;
    std::vector<file_losses> losses_;
};

}  // namespace penstock::buffer
