// Files of a buffer of whole pages that change: pages that leave without being written, and files
// that grow, shrink and go.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>

#include "buffer/pool/file_states.hpp"
#include "buffer/pool/locked_core.hpp"
#include "buffer/pool/page_flusher.hpp"

namespace penstock::buffer {

template <typename Order>
class file_changes {
public:
    using lock = typename locked_core<Order>::lock;

    file_changes(const manager_settings& settings, file_states& states, locked_core<Order>& shared,
                 frame_directory& pages, page_flusher<Order>& flusher)
        : page_bytes_(settings.page_bytes),
          wait_(settings.wait_ms),
          states_(states),
          shared_(shared),
          pages_(pages),
          flusher_(flusher) {}

    // Pages from `first` to before `end` leave, and nothing of them is written. 0 or -ETIMEDOUT.
    //
    // A page that was dropped and could not be written comes back (page_loader::keep_unwritten), so
    // after a wait for such a write all is looked at again.
    int forget(std::uint32_t number, std::uint64_t first, std::uint64_t end, deadline until) {
        {
            const lock hold(shared_.mutex);
            ++pages_.file_at(number).version;
        }
        for (;;) {
            if (const int code = forget_once(number, first, end, until); code != 0) return code;
            lock hold(shared_.mutex);
            if (!flusher_.wait_for_writes(hold, number, first, end)) return 0;
            if (std::chrono::steady_clock::now() > until) return -ETIMEDOUT;
        }
    }
    // The call of session `by`, whose number is `session`, in a file.
    int resize(session& by, std::uint32_t session, std::uint32_t number, std::uint64_t bytes) {
        if (bytes >> 52 != 0) return -EINVAL;
        frame_directory::file& file = pages_.file_at(number);
        const std::lock_guard alone(file.resizing);
        const std::uint64_t before = file.bytes;
        if (bytes < before) return cut(by, session, number, bytes);
        // No caller was told what a page holds behind the end, so it must not become bytes of the
        // file.
        const int code =
            clear_rest(by, {before / page_bytes_, number}, before % page_bytes_, [] {});
        if (code != 0) return code;
        const lock hold(shared_.mutex);
        return pages_.grow(file, bytes);
    }

private:
    int forget_once(std::uint32_t number, std::uint64_t first, std::uint64_t end, deadline until) {
        std::uint32_t round = 0;
        for (std::uint64_t at = first;;) {
            lock hold(shared_.mutex);
            const std::uint64_t before = at;
            at = forget_some(number, at, end);
            if (at >= std::min(end, pages_.file_at(number).room)) return 0;
            if (at != before) {
                round = 0;
                continue;
            }
            if (std::chrono::steady_clock::now() > until) return -ETIMEDOUT;
            if (shared_.is_coming_or_written({at, number}))
                shared_.news.wait_for(hold, std::chrono::milliseconds(10));
            hold.unlock();
            pause_between_looks(round++);
        }
    }
    // How far it came: to `end`, to a page that another thread is at, or as far as one look under
    // the lock may take.
    std::uint64_t forget_some(std::uint32_t number, std::uint64_t at, std::uint64_t end) {
        constexpr int most_looks = 1024;
        end = std::min(end, pages_.file_at(number).room);
        for (int looks = 0; at < end && looks < most_looks; ++looks) {
            const std::uint64_t next = pages_.pass_empty_group(number, at, end);
            if (next != at) at = next;
            else if (forget_page({at, number})) ++at;
            else break;
        }
        return at;
    }
    // False: another thread is at it. In the device it may be on its way still; the thread that
    // gets its frame takes its turn behind that.
    bool forget_page(page_id id) {
        if (shared_.is_coming_or_written(id)) return false;
        const block* const known = shared_.find(id);
        if (known == nullptr) return true;
        page_id there{};
        bool was_changed = false;
        if (known->where == side::host && !pages_.close(known->frame, there, was_changed))
            return false;
        shared_.leave(id);
        return true;
    }

    // All or nothing. Pages behind the new end can be fixed no more (1); when nothing can fail or
    // time out any more the size changes (2), and then the pages leave (3): none of them is fixed,
    // and none can be.
    int cut(session& by, std::uint32_t session, std::uint32_t number, std::uint64_t bytes) {
        constexpr std::uint64_t all = ~std::uint64_t{0};
        frame_directory::file& file = pages_.file_at(number);
        const std::uint64_t pages_before = file.pages;
        const page_id last{bytes / page_bytes_, number};
        file.pages = pages_.pages_for(bytes);  // (1)
        int code = states_.await_fixed(number, last.page, all, session,
                                       std::chrono::steady_clock::now() + wait_);
        if (code == 0)
            code = clear_rest(by, last, bytes % page_bytes_, [&] { file.bytes = bytes; });  // (2)
        if (code != 0) {
            file.pages = pages_before;
            return code;
        }
        return forget(number, pages_.pages_for(bytes), all, deadline::max());  // (3)
    }
    // The page has zeros from there on, and `done` is called before any thread can look at it. A
    // page that is nowhere is read so from its file. No session changes a page of a file that is
    // only read, so there the page leaves.
    template <typename Done>
    int clear_rest(session& by, page_id last, std::uint64_t from, const Done& done) {
        if (from != 0 && !pages_.file_at(last.file).is_writable) {
            const int code = forget(last.file, last.page, last.page + 1,
                                    std::chrono::steady_clock::now() + wait_);
            if (code == 0) done();
            return code;
        }
        {
            const lock hold(shared_.mutex);
            if (from == 0 || shared_.is_nowhere(last)) {
                done();
                return 0;
            }
        }
        fixed_page page;
        if (const int code = by.fix(last, use_kind::write, page); code != 0) return code;
        std::memset(page.data + from, 0, page_bytes_ - from);
        done();
        by.unfix(page, false);
        return 0;
    }

    const std::uint64_t page_bytes_;
    const std::chrono::milliseconds wait_;
    file_states& states_;
    locked_core<Order>& shared_;
    frame_directory& pages_;
    page_flusher<Order>& flusher_;
};

}  // namespace penstock::buffer
