// What one thread does with a buffer of whole pages: it fixes pages where they lie.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "buffer/pool/device_lender.hpp"
#include "buffer/pool/file_changes.hpp"
#include "buffer/pool/file_states.hpp"
#include "buffer/pool/frame_directory.hpp"
#include "buffer/pool/locked_core.hpp"
#include "buffer/pool/page_flusher.hpp"
#include "buffer/pool/page_loader.hpp"
#include "buffer/pool/page_mover.hpp"
#include "buffer/pool/paged_session.hpp"

namespace penstock::buffer {

// What sessions use of the manager; manager.hpp says what each part is for, and in which order
// locks are taken.
template <typename Order>
struct page_shared {
    page_shared(const manager_settings& wanted, device_frames& frames, host::environment& env)
        : settings(wanted),
          states(wanted.files, wanted.sessions, wanted.fixed_pages),
          sessions(wanted.sessions),
          pages(wanted, frames.host_frames()),
          mover(wanted, frames, env, pages),
          locked(wanted, pages),
          flusher(wanted, locked, pages, mover),
          loader(wanted, locked, pages, mover, flusher),
          changes(wanted, states, locked, pages, flusher),
          lender(wanted, env, frames, locked, pages) {}

    const manager_settings settings;
    file_states states;
    session_numbers sessions;
    frame_directory pages;
    page_mover mover;
    std::atomic<std::uint64_t> uncounted_hits{0};  // that are not told to the order
    locked_core<Order> locked;
    page_flusher<Order> flusher;
    page_loader<Order> loader;
    file_changes<Order> changes;
    device_lender<Order> lender;
};

template <typename Order>
class page_session final : public paged_session {
public:
    page_session(page_shared<Order>& all, std::uint32_t number) : all_(all), room_(number) {
        hits_.pages.reserve(most_untold_hits + all.settings.fixed_pages);
        fresh_.reserve(all.settings.fixed_pages);
    }
    ~page_session() override {
        if (!all_.states.here()) {
            room_.begun.abandon();
            return;
        }
        tell_hits();
        all_.sessions.give_back(room_.number);
    }

    int fix(page_id id, use_kind kind, fixed_page& out) override {
        return fix(id, kind, page_content::read, out);
    }
    int fix_fresh(page_id id, fixed_page& out) override {
        return fix(id, use_kind::write, page_content::fresh, out);
    }
    void unfix(const fixed_page& page, bool changed) override {
        if (!all_.states.here()) return;
        const bool writes = page.kind == use_kind::write;
        const bool is_filled = !writes || fresh_.empty() || end_fresh(page, changed);
        if (changed && writes) all_.pages.note_changed(page.frame);
        if (is_filled) all_.pages.end(page.frame, page.kind);
        else all_.loader.leave_unfilled(page);
        --fixed_;
        all_.states.let_go(room_.number, page.place);
        if (hits_.pages.size() >= hits_.next_try) tell_many();
    }
    int flush(std::uint32_t file) override {
        const file_visit in(all_.states, room_.number, file);
        if (in.code() != 0) return in.code();
        const int code = all_.flusher.flush(room_, hits_, file, wait_until());
        return code != 0 ? code : all_.mover.sync(file);
    }
    int resize(std::uint32_t file, std::uint64_t bytes) override {
        const file_visit in(all_.states, room_.number, file);
        if (in.code() != 0) return in.code();
        all_.lender.files.end_version(file);
        return all_.changes.resize(*this, room_.number, file, bytes);
    }
    int forget(std::uint32_t file, std::uint64_t first_page, std::uint64_t pages) override {
        const file_visit in(all_.states, room_.number, file);
        if (in.code() != 0) return in.code();
        return forget_lent(all_.lender.files, file, all_.pages.file_at(file).fd, first_page,
                           end_of(first_page, pages), [&](std::uint64_t end) {
                               return all_.changes.forget(file, first_page, end, wait_until());
                           });
    }
    void prefetch(std::uint32_t file, std::uint64_t first_page, std::uint64_t pages) override {
        const file_visit in(all_.states, room_.number, file);
        if (in.code() != 0) return;
        pages = std::min(pages, most_ahead(all_.settings));
        all_.loader.prefetch(room_, hits_, {first_page, file}, end_of(first_page, pages));
    }
    [[nodiscard]] std::uint32_t number() const override { return room_.number; }
    void tell_hits() final {
        const lock hold(all_.locked.mutex);
        all_.locked.tell(hits_);
    }

protected:
    int fix_to_fill(page_id id, fixed_page& out) override {
        return fix(id, use_kind::write, page_content::to_fill, out);
    }
    std::uint64_t look_ahead(page_id first, std::uint64_t end) override {
        const file_visit in(all_.states, room_.number, first.file);
        return in.code() != 0 ? end : all_.loader.look_ahead(room_, first, end);
    }
    [[nodiscard]] std::uint64_t page_bytes() const override { return all_.settings.page_bytes; }
    [[nodiscard]] int find_size(std::uint32_t number, std::uint64_t& bytes) const override {
        const file_visit in(all_.states, room_.number, number);
        if (in.code() != 0) return in.code() == -EINVAL ? -EBADF : in.code();
        // Pages behind a new end go before the size does (file_changes::cut).
        const frame_directory::file& file = all_.pages.file_at(number);
        bytes = std::min<std::uint64_t>(file.bytes, file.pages * page_bytes());
        return 0;
    }

private:
    using lock = typename locked_core<Order>::lock;
    // If others have the lock just then it may be some times as many uses that are told at once,
    // and what is more is counted and not told.
    static constexpr std::size_t most_untold_hits = 8 * untold_hits::most_at_once;

    // A page that is fixed and was not read: its bytes before, or null where it was nowhere.
    struct fresh_page {
        page_id id{};
        std::unique_ptr<std::byte[]> before;
    };

    static std::uint64_t end_of(std::uint64_t first, std::uint64_t pages) {
        return pages > ~first ? ~std::uint64_t{0} : first + pages;
    }
    [[nodiscard]] deadline wait_until() const {
        return std::chrono::steady_clock::now() + std::chrono::milliseconds(all_.settings.wait_ms);
    }

    int fix(page_id id, use_kind kind, page_content content, fixed_page& out) {
        const file_visit in(all_.states, room_.number, id.file, file_visit::purpose::fix);
        if (in.code() != 0) return in.code();
        const frame_directory::file& file = all_.pages.file_at(id.file);
        if (id.page >= file.pages) return -EINVAL;
        if (kind == use_kind::write && !file.is_writable) return -EACCES;
        if (fixed_ == all_.settings.fixed_pages) return -EBUSY;
        deadline until{};
        for (std::uint32_t round = 0;; ++round) {
            std::uint32_t frame = 0;
            int code = -EAGAIN;
            switch (all_.pages.take(id, kind, frame)) {
                case found_by_entry::taken:
                    out = {all_.pages.data_of(frame), id, frame, kind};
                    hits_.pages.push_back(id);
                    code = content == page_content::fresh ? note_fresh(id, false, out) : 0;
                    break;
                case found_by_entry::busy: pause_between_looks(round); break;
                case found_by_entry::absent: code = bring(id, kind, content, out);
            }
            if (code == 0) {
                ++fixed_;
                out.place = all_.states.hold(room_.number, id);
            }
            if (code != -EAGAIN) return code;
            const deadline now = std::chrono::steady_clock::now();
            if (round == 0) until = now + std::chrono::milliseconds(all_.settings.wait_ms);
            if (now > until) return -ETIMEDOUT;
            if (const int gone = look_again(id); gone != 0) return gone;
        }
    }
    int bring(page_id id, use_kind kind, page_content content, fixed_page& out) {
        bool was_nowhere = false;
        const int code = all_.loader.bring(room_, hits_, id, kind, content, out, was_nowhere);
        if (code != 0 || content != page_content::fresh) return code;
        return note_fresh(id, was_nowhere, out);
    }
    // While a call waits the file may be closed, or cut before the page.
    int look_again(page_id id) {
        if (const int code = all_.states.renew(room_.number, id.file); code != 0) return code;
        return id.page < all_.pages.file_at(id.file).pages ? 0 : -EINVAL;
    }

    // The page is owned. What unfix needs to leave it as it was: a page that was nowhere leaves
    // again, of another the bytes are kept. -ENOMEM, and the page is owned no more.
    int note_fresh(page_id id, bool was_nowhere, const fixed_page& page) {
        fresh_page noted{id, nullptr};
        if (!was_nowhere) {
            noted.before = std::move(spare_);
            if (noted.before == nullptr)
                noted.before.reset(new (std::nothrow) std::byte[page_bytes()]);
            if (noted.before == nullptr) {
                all_.pages.end(page.frame, use_kind::write);
                return -ENOMEM;
            }
            std::memcpy(noted.before.get(), page.data, page_bytes());
        }
        fresh_.push_back(std::move(noted));  // there is room for as many as may be fixed
        return 0;
    }
    // False: the page's frame never got its bytes, and the page has to leave.
    bool end_fresh(const fixed_page& page, bool changed) {
        const auto is_it = [&](const fresh_page& noted) { return noted.id == page.id; };
        const auto found = std::find_if(fresh_.begin(), fresh_.end(), is_it);
        if (found == fresh_.end()) return true;
        std::unique_ptr<std::byte[]> before = std::move(found->before);
        fresh_.erase(found);
        if (before == nullptr) return changed;
        if (!changed) std::memcpy(page.data, before.get(), page_bytes());
        spare_ = std::move(before);
        return true;
    }

    void tell_many() {
        if (const lock hold(all_.locked.mutex, std::try_to_lock); hold.owns_lock()) {
            all_.locked.tell(hits_);
        } else if (hits_.pages.size() < most_untold_hits) {
            // A thread that asks for a lock that is not free keeps others waiting all the same.
            hits_.next_try = hits_.pages.size() + untold_hits::most_at_once;
        } else {
            // Where the lock is never free when it is asked for, so many hits are told by others
            // that the order knows the hot pages without these.
            all_.uncounted_hits += hits_.pages.size();
            hits_.forget();
        }
    }

    page_shared<Order>& all_;
    move_room room_;
    untold_hits hits_;
    std::uint32_t fixed_ = 0;
    std::vector<fresh_page> fresh_;       // of the pages that it has fixed
    std::unique_ptr<std::byte[]> spare_;  // room for the bytes of one
};

}  // namespace penstock::buffer
