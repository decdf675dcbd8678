// The state of each file of a buffer, and which session works in which file: one contract for all
// policies.
//
//   removed --open()--> open --shut()--> closing --remove()--> removed
//                         ^---reopen()---'
//
// open      sessions work in the file
// closing   one caller closes it. A call of a session that begins now, or that waits for a page,
//           ends with -EBADF. A page that is fixed stays fixed until its session unfixes it.
// removed   there is no such file: -EINVAL
//
// A file is closed in these steps, and each step that fails leaves the file as it was:
// (1) The closer flushes while the file is open. An error ends here. (Not to discard.)
// (2) shut(): the file is closing. The closer waits until no call of another session works in the
//     file and no session has a page of it fixed. Time-out: open again, nothing has changed.
// (3) The closer flushes again: this writes what sessions unfixed as changed since (1). Error:
//     reopen().
// (4) The pages leave. They are clean by (3), or given up by the caller of discard. Nothing but
//     moves and writes that are under way can stand in the way, so there is no time-out here.
// (5) remove(): the size is 0 and the words of the pages are freed. Only now the number is free:
//     whatever the closer keeps under it has gone before.
//
// A file that is cut (session::resize) has a second user of this: the resizer first says that pages
// behind the new end are gone, then calls await_fixed(), and only then drops them
// (file_changes.hpp).
//
// Orders: a session stores that it is in the file, then looks at the state or at the size; a closer
// or resizer stores the state or the size, then looks at the sessions. All four are sequentially
// consistent, so at least one of the two sees the other. A session leaves with release, and the
// closer's look is its partner (acquire): it then sees all that the session did, and may free
// memory.
#pragma once

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "buffer/core/types.hpp"
#include "os/process_owner.hpp"

namespace penstock::buffer {

using deadline = std::chrono::steady_clock::time_point;

// A short while without the processor, in which others can come to an end.
inline void pause_between_looks(std::uint32_t round) {
    if (round < 16) std::this_thread::yield();
    else std::this_thread::sleep_for(std::chrono::microseconds(50));
}

class file_states {
public:
    static constexpr std::uint32_t no_session = ~std::uint32_t{0};

    file_states(std::uint32_t files, std::uint32_t sessions, std::uint32_t fixed_pages)
        : states_(files),
          sessions_(sessions),
          lines_(fixed_pages / held_line::pages + 1),
          held_(sessions * lines_) {
        for (std::uint32_t number = 0; number < sessions; ++number)
            for (std::uint32_t i = fixed_pages; i-- > 0;) sessions_[number].free.push_back(i);
    }

    // False in a child of fork(), where nothing of the buffer may be used.
    [[nodiscard]] bool here() const { return owner_.here(); }

    void open(std::uint32_t file) { states_[file] = is_open; }
    void reopen(std::uint32_t file) { states_[file] = is_open; }
    void remove(std::uint32_t file) { states_[file] = is_removed; }

    // Step (2), for the session `by`, which goes on working in the file; no_session: for none. 0;
    // -EINVAL, no such file; -EBUSY, another closes it; -ETIMEDOUT, and the file is open again.
    int shut(std::uint32_t file, std::uint32_t by, deadline until) {
        std::uint32_t seen = is_open;
        if (file >= states_.size()) return -EINVAL;
        if (!states_[file].compare_exchange_strong(seen, closing_word(by)))
            return seen == is_removed ? -EINVAL : -EBUSY;
        for (std::uint32_t number = 0; number < sessions_.size(); ++number) {
            const auto has_left = [&] { return file_in(sessions_[number].word) != file + 1; };
            const auto holds_none = [&] { return !holds_any(number, file); };
            if ((number == by || await(has_left, until)) && await(holds_none, until)) continue;
            reopen(file);
            return -ETIMEDOUT;
        }
        return 0;
    }

    // Returns when no session has a page from `first` to before `end` fixed since before this call.
    // The caller's own pages count; its own call does not. 0 or -ETIMEDOUT.
    int await_fixed(std::uint32_t file, std::uint64_t first, std::uint64_t end, std::uint32_t by,
                    deadline until) const {
        for (std::uint32_t number = 0; number < sessions_.size(); ++number) {
            const std::uint64_t seen = sessions_[number].word;
            const bool fixes = number != by && (seen & fixing) != 0 && file_in(seen) == file + 1;
            const auto has_moved = [&] { return sessions_[number].word != seen; };
            if (fixes && !await(has_moved, until)) return -ETIMEDOUT;
        }
        for (const held_line& line : held_)
            for (const held_page& held : line.held) {
                const std::uint32_t turn = held.turn;
                const bool is_held = turn % 2 != 0 && held.file == file;
                if (!is_held || held.page < first || held.page >= end) continue;
                if (!await([&] { return held.turn != turn; }, until)) return -ETIMEDOUT;
            }
        return 0;
    }

    // By a session, for itself: a call in the file begins. 0; -EINVAL, -EBADF (above) or -ECHILD.
    // Where it is 0 the call ends with end(). A call within a call of the same file is let in
    // always.
    int begin(std::uint32_t number, std::uint32_t file, bool fixes, std::uint64_t& before) {
        if (!here()) return -ECHILD;
        if (file >= states_.size()) return -EINVAL;
        std::atomic<std::uint64_t>& word = sessions_[number].word;
        before = word.load(std::memory_order_relaxed);  // its own
        word = next(before) | (fixes ? fixing : before & fixing) | (file + std::uint64_t{1});
        if (file_in(before) == file + 1) return 0;
        const int code = may_work(number, file);
        if (code != 0) end(number, before);
        return code;
    }
    void end(std::uint32_t number, std::uint64_t before) {
        std::atomic<std::uint64_t>& word = sessions_[number].word;
        const std::uint64_t now = word.load(std::memory_order_relaxed);
        word.store(next(now) | (before & (fixing | file_bits)), std::memory_order_release);
    }
    // By a session whose call waits: what it saw of the file's size before is void. As begin().
    int renew(std::uint32_t number, std::uint32_t file) {
        std::atomic<std::uint64_t>& word = sessions_[number].word;
        const std::uint64_t now = word.load(std::memory_order_relaxed);
        word = next(now) | (now & (fixing | file_bits));
        return may_work(number, file);
    }

    // By a session, in a call that fixes: it has the page from here on; at most fixed_pages at a
    // time.
    std::uint32_t hold(std::uint32_t number, page_id id) {
        std::vector<std::uint32_t>& free = sessions_[number].free;
        const std::uint32_t place = free.back();
        free.pop_back();
        held_page& held = held_by(number, place);
        held.file.store(id.file, std::memory_order_relaxed);
        held.page.store(id.page, std::memory_order_relaxed);
        // Release: a thread that sees the turn sees the page.
        held.turn.store(held.turn.load(std::memory_order_relaxed) + 1, std::memory_order_release);
        return place;
    }
    // When the page's latch or owner has been released, as the last step.
    void let_go(std::uint32_t number, std::uint32_t place) {
        held_page& held = held_by(number, place);
        // Release: the closer that sees this finds all that was changed noted (acquire in
        // holds_any).
        held.turn.store(held.turn.load(std::memory_order_relaxed) + 1, std::memory_order_release);
        sessions_[number].free.push_back(place);
    }

private:
    static constexpr std::uint32_t is_removed = 0, is_open = 1;
    // A session's word: the file's number and one, whether the call leaves a page fixed, and a turn
    // that is another after each step.
    static constexpr std::uint64_t file_bits = 0xffffffffull;
    static constexpr std::uint64_t fixing = 1ull << 32, one_turn = 1ull << 33;

    struct alignas(64) session_word {
        std::atomic<std::uint64_t> word{0};
        std::vector<std::uint32_t> free;  // places among its held pages; its own
    };
    struct held_page {
        std::atomic<std::uint32_t> turn{0};  // odd: held
        std::atomic<std::uint32_t> file{0};
        std::atomic<std::uint64_t> page{0};
    };
    // No two sessions write to one line of the processor's cache.
    struct alignas(64) held_line {
        static constexpr std::size_t pages = 4;
        held_page held[pages];
    };
    [[nodiscard]] held_page& held_by(std::uint32_t number, std::uint32_t place) {
        return held_[number * lines_ + place / held_line::pages].held[place % held_line::pages];
    }

    static std::uint32_t closing_word(std::uint32_t by) { return by == no_session ? ~0u : by + 2; }
    static std::uint64_t file_in(std::uint64_t word) { return word & file_bits; }
    static std::uint64_t next(std::uint64_t word) { return (word & ~(one_turn - 1)) + one_turn; }

    [[nodiscard]] int may_work(std::uint32_t number, std::uint32_t file) const {
        const std::uint32_t state = states_[file];
        if (state == is_open || state == closing_word(number)) return 0;
        return state == is_removed ? -EINVAL : -EBADF;
    }
    [[nodiscard]] bool holds_any(std::uint32_t number, std::uint32_t file) const {
        for (std::size_t i = 0; i < lines_; ++i)
            for (const held_page& held : held_[number * lines_ + i].held)
                if (held.turn % 2 != 0 && held.file == file) return true;
        return false;
    }
    template <typename Over>
    static bool await(const Over& is_over, deadline until) {
        for (std::uint32_t round = 0; !is_over(); pause_between_looks(round++))
            if (std::chrono::steady_clock::now() > until) return false;
        return true;
    }

    const host::process_owner owner_;
    std::vector<std::atomic<std::uint32_t>> states_;
    std::vector<session_word> sessions_;
    const std::size_t lines_;  // of a session
    std::vector<held_line> held_;
};

// A call of a session in a file, from its beginning to its end.
class file_visit {
public:
    enum class purpose : std::uint8_t { work, fix };  // fix: it may leave a page fixed

    file_visit(file_states& all, std::uint32_t session, std::uint32_t file,
               purpose intent = purpose::work)
        : all_(all),
          session_(session),
          code_(all.begin(session, file, intent == purpose::fix, before_)) {}
    ~file_visit() {
        if (code_ == 0) all_.end(session_, before_);
    }
    file_visit(const file_visit&) = delete;
    file_visit& operator=(const file_visit&) = delete;

    [[nodiscard]] int code() const { return code_; }

private:
    file_states& all_;
    const std::uint32_t session_;
    std::uint64_t before_ = 0;
    const int code_;
};

}  // namespace penstock::buffer
