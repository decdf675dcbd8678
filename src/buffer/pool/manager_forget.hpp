// Files that change: pages that leave without being written, files that grow, shrink and go, and
// pages that are read ahead (manager_state.hpp).
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "buffer/pool/manager_bring.hpp"
#include "buffer/pool/paged_session.hpp"

namespace penstock::buffer {

// A page that is on its way to the host, or bytes of it to its file.
template <typename Order>
bool manager_state<Order>::is_coming_or_written(page_id id) {
    const block* const known = core_.inside().block_of(id, 0);
    return turns_.is_written(id) ||
           (known != nullptr && known->where == side::host && entry(id).is_absent());
}

// False: another thread is at it. In the device it may be on its way still; the thread that gets
// its frame takes its turn behind that.
template <typename Order>
bool manager_state<Order>::forget_one(page_id id) {
    if (is_coming_or_written(id)) return false;
    const block* const known = core_.inside().block_of(id, 0);
    if (known == nullptr) return true;
    if (known->where == side::host) {
        if (!entry(id).withdraw(latches_[known->frame])) return false;
        changed_[known->frame] = false;
    }
    leave_core(id);
    return true;
}

// How far it came: to `end`, to a page that another thread is at, or as far as one look under the
// lock may take.
template <typename Order>
std::uint64_t manager_state<Order>::forget_some(std::uint32_t number, std::uint64_t at,
                                                std::uint64_t end) {
    constexpr int most_looks = 1024;
    const file& one = files_[number];
    end = std::min(end, one.room);
    for (int looks = 0; at < end && looks < most_looks; ++looks) {
        const std::uint64_t group = at / page_group::pages;
        if (one.groups[group].in_core == 0) at = std::min(end, (group + 1) * page_group::pages);
        else if (forget_one({at, number})) ++at;
        else break;
    }
    return at;
}

// A page that was dropped and could not be written comes back (keep_unwritten), so after a wait for
// such a write all is looked at again.
template <typename Order>
int manager_state<Order>::forget_pages(std::uint32_t number, std::uint64_t first, std::uint64_t end,
                                       deadline until) {
    {
        const lock hold(mutex_);
        ++files_[number].version;
    }
    for (;;) {
        std::uint32_t round = 0;
        for (std::uint64_t at = first;;) {
            lock hold(mutex_);
            const std::uint64_t before = at;
            at = forget_some(number, at, end);
            if (at >= std::min(end, files_[number].room)) break;
            if (at != before) {
                round = 0;
                continue;
            }
            if (std::chrono::steady_clock::now() > until) return -ETIMEDOUT;
            if (is_coming_or_written({at, number}))
                news_.wait_for(hold, std::chrono::milliseconds(10));
            hold.unlock();
            pause_between_looks(round++);
        }
        lock hold(mutex_);
        if (!wait_for_writes(hold, number, first, end)) return 0;
        if (std::chrono::steady_clock::now() > until) return -ETIMEDOUT;
    }
}

template <typename Order>
int manager_state<Order>::forget(session_room& s, std::uint32_t number, std::uint64_t first,
                                 std::uint64_t pages) {
    const file_visit in(states_, s.number, number);
    if (in.code() != 0) return in.code();
    const std::uint64_t end = pages > ~first ? ~std::uint64_t{0} : first + pages;
    return forget_pages(number, first, end, wait_until());
}

// Room before the size, and the size before its pages: the thread that finds a page to be there
// finds its entry.
template <typename Order>
int manager_state<Order>::grow(file& one, std::uint64_t bytes) {
    if (bytes >> 52 != 0) return -EINVAL;
    const std::uint64_t pages = pages_for(bytes);
    if (const int code = one.entries.grow(pages); code != 0) return code;
    if (const int code = one.groups.grow(pages / page_group::pages + 1); code != 0) return code;
    one.room = std::max(one.room, pages);
    ++one.version;
    one.bytes = bytes;
    one.pages = pages;
    return 0;
}

// The page has zeros from there on. One that is not in the buffer is read so from its file.
template <typename Order>
int manager_state<Order>::clear_rest(session_room& s, page_id last, std::uint64_t from) {
    if (from == 0) return 0;
    {
        const lock hold(mutex_);
        if (is_nowhere(last)) return 0;
    }
    fixed_page page;
    if (const int code = fix(s, last, use_kind::write, page_content::read, page); code != 0)
        return code;
    std::memset(page.data + from, 0, settings_.page_bytes - from);
    unfix(s, page, false);
    return 0;
}

template <typename Order>
int manager_state<Order>::resize(session_room& s, std::uint32_t number, std::uint64_t bytes) {
    const file_visit in(states_, s.number, number);
    if (in.code() != 0) return in.code();
    if (bytes >> 52 != 0) return -EINVAL;
    file& one = files_[number];
    const std::lock_guard alone(one.resizing);
    const std::uint64_t before = one.bytes;
    if (bytes < before) return cut(s, number, bytes);
    // No caller was told what a page holds behind the end, so it must not become bytes of the file.
    const page_id last{before / settings_.page_bytes, number};
    const int code = clear_rest(s, last, before % settings_.page_bytes);
    if (code != 0) return code;
    const lock hold(mutex_);
    return grow(one, bytes);
}

// All or nothing. Pages behind the new end can be fixed no more (1); when nothing can fail or time
// out any more the size changes (2), and then the pages leave (3): none of them is fixed, and none
// can be.
template <typename Order>
int manager_state<Order>::cut(session_room& s, std::uint32_t number, std::uint64_t bytes) {
    file& one = files_[number];
    const std::uint64_t pages_before = one.pages;
    one.pages = pages_for(bytes);  // (1)
    int code = states_.await_fixed(number, bytes / settings_.page_bytes, ~std::uint64_t{0},
                                   s.number, wait_until());
    if (code == 0) code = set_end(s, number, bytes);  // (2)
    if (code != 0) {
        one.pages = pages_before;
        return code;
    }
    return forget_pages(number, pages_for(bytes), ~std::uint64_t{0}, deadline::max());  // (3)
}

// The file ends there, and what its last page has behind that is zero. A page that is nowhere is
// read so.
template <typename Order>
int manager_state<Order>::set_end(session_room& s, std::uint32_t number, std::uint64_t bytes) {
    const std::uint64_t from = bytes % settings_.page_bytes;
    const page_id last{bytes / settings_.page_bytes, number};
    {
        const lock hold(mutex_);
        if (from == 0 || is_nowhere(last)) {
            files_[number].bytes = bytes;
            return 0;
        }
    }
    fixed_page page;
    if (const int code = fix(s, last, use_kind::write, page_content::read, page); code != 0)
        return code;
    std::memset(page.data + from, 0, settings_.page_bytes - from);
    files_[number].bytes = bytes;
    unfix(s, page, false);
    return 0;
}

template <typename Order>
int manager_state<Order>::drop_file(std::uint32_t number) {
    file& one = files_[number];
    if (const int code = forget_pages(number, 0, ~std::uint64_t{0}, deadline::max()); code != 0)
        return code;
    const lock hold(mutex_);
    one.pages = 0;
    one.bytes = 0;
    one.entries = {};
    one.groups = {};
    one.room = 0;
    one.fd = -1;
    states_.remove(number);  // before the number may be another file's
    one.in_use = false;
    return 0;
}

// False: reading further ahead makes no sense.
template <typename Order>
bool manager_state<Order>::bring_ahead(session_room& s, page_id id) {
    lock hold(mutex_);
    tell_hits(s);
    if (broken_ || id.page >= files_[id.file].pages) return false;
    if (!is_nowhere(id)) return true;
    const auto opened = [&](std::uint32_t frame) {
        latches_[frame].open();
        entry(id).publish(frame);
    };
    return bring_in(s, hold, id, wish::ahead, opened) == 0;
}

template <typename Order>
void manager_state<Order>::prefetch(session_room& s, std::uint32_t number, std::uint64_t first,
                                    std::uint64_t pages) {
    const file_visit in(states_, s.number, number);
    if (in.code() != 0) return;
    pages = std::min(pages, most_ahead(settings_));
    const std::uint64_t end = pages > ~first ? ~std::uint64_t{0} : first + pages;
    std::uint64_t ask = first;
    for (std::uint64_t page = first; page < end && page < files_[number].pages; ++page) {
        if (page >= ask) ask = look_ahead(s, {page, number}, end);
        if (entry({page, number}).is_absent() && !bring_ahead(s, {page, number})) return;
    }
}

template <typename Order>
std::uint64_t manager_state<Order>::look_ahead(session_room& s, page_id first, std::uint64_t end) {
    const std::uint64_t most = read_window::most_bytes / settings_.page_bytes;
    const file_visit in(states_, s.number, first.file);
    if (in.code() != 0) return end;
    end = std::min({end, first.page + most, files_[first.file].pages.load()});
    if (end <= first.page + 1 || !entry(first).is_absent()) return first.page + 1;
    std::uint64_t at = first.page, version = 0;
    {
        const lock hold(mutex_);
        version = files_[first.file].version;
        if (s.window.find(first, version, settings_.page_bytes, 1) != nullptr)
            return first.page + 1;
        while (at < end && is_nowhere({at, first.file})) ++at;
        if (at == first.page) {
            while (at < end && !is_nowhere({at, first.file})) ++at;
            return at;
        }
    }
    std::byte* const room = at > first.page + 1 ? s.window.room() : nullptr;
    if (room == nullptr) return at;
    const std::int64_t got =
        env_.read(files_[first.file].fd, room, (at - first.page) * settings_.page_bytes,
                  first.page * settings_.page_bytes);
    s.window.set(first, version, static_cast<std::uint64_t>(std::max<std::int64_t>(got, 0)));
    return at;
}

}  // namespace penstock::buffer
