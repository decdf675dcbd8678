// The manager of an order (manager.hpp): what all sessions share.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "buffer/pool/begun_read.hpp"
#include "buffer/pool/combiner.hpp"
#include "buffer/core/core.hpp"
#include "buffer/pool/file_pages.hpp"
#include "buffer/pool/file_states.hpp"
#include "buffer/pool/frame_latch.hpp"
#include "buffer/pool/latched_order.hpp"
#include "buffer/pool/manager.hpp"
#include "buffer/pool/read_window.hpp"
#include "buffer/pool/turns.hpp"

namespace penstock::buffer {

// A move that goes with those of others.
struct move_request {
    frame_move what;
    int code = 0;
    bool done = false;  // the combiner's
};

// Sessions of one desk move pages together.
struct move_desk {
    move_desk(const manager_settings& how, combiner<move_request>::handler handle)
        : together(how.sessions, how.batch_pages, std::chrono::microseconds(how.batch_wait_us),
                   std::move(handle)) {}

    combiner<move_request> together;
    std::vector<frame_move> moves;  // of the thread that is at work
};

// What a page's bytes are to the thread that fixes it: they are read, or they are not. `fresh`:
// unfix may still leave the page as it was; `to_fill`: it will not.
enum class page_content : std::uint8_t { read, fresh, to_fill };

// A page that is fixed and was not read: its bytes before, or null where it was nowhere.
struct fresh_page {
    page_id id{};
    std::unique_ptr<std::byte[]> before;
};

// A session's own, used by its thread alone.
struct session_room {
    std::uint32_t number = 0, fixed = 0;
    // Told at once, if no thread has the lock just then.
    static constexpr std::size_t most_hits = 64;
    std::vector<page_id> hits;         // not told to the order yet
    std::size_t next_try = most_hits;  // to tell them
    void forget_hits() {
        hits.clear();
        next_try = most_hits;
    }
    std::vector<action> actions;  // of the request that is handled
    std::vector<frame_move> batch;
    move_request asked;
    enum class demotion : std::uint8_t {
        none,
        begun,
        postponed
    } victim = demotion::none;       // that goes from our own frame
    std::uint32_t victim_frame = 0;  // of the device
    turns::taken mine;
    read_window window;
    begun_read begun;                        // of the page that takes a victim's place
    const std::byte* filled_from = nullptr;  // the page of the request in the window, and how much
                                             // of it; null: it is read from its file
    std::uint64_t filled_bytes = 0;
    std::vector<fresh_page> fresh;       // of the pages that it has fixed
    std::unique_ptr<std::byte[]> spare;  // room for the bytes of one
};

template <typename Order>
class manager_state final : public manager {
public:
    // If others have the lock just then it may be some times as many uses that are told at once,
    // and what is more is counted and not told.
    static constexpr std::size_t most_hits = session_room::most_hits,
                                 most_untold_hits = 8 * most_hits;
    // Some threads can ask a GPU at a time before they keep each other waiting; more ask together.
    // Each desk has a queue of the device, behind those of the sessions.
    static constexpr std::uint32_t most_desks = 4;

    manager_state(const manager_settings& settings, device_frames& frames, host::environment& env)
        : settings_(settings),
          frames_(frames),
          env_(env),
          states_(settings.files, settings.sessions, settings.fixed_pages),
          latches_(settings.host_pages),
          changed_(settings.host_pages),
          files_(std::make_unique<file[]>(settings.files)),
          page_in_(settings.host_pages),
          turns_(settings.host_pages + settings.sessions, settings.device_pages, settings.sessions),
          room_in_use_(settings.sessions) {
        for (std::uint32_t i = 0; i < most_desks; ++i)
            desks_.push_back(std::make_unique<move_desk>(
                settings, [this, i](const auto& batch) { move_batch_of(i, batch); }));
    }
    int make();

    int add_file(int fd, std::uint64_t bytes, file_access access) override;
    std::unique_ptr<session> open_session() override;
    [[nodiscard]] manager_counts counts() const override;
    [[nodiscard]] manager_contents contents() const override;
    [[nodiscard]] const char* check() override;

    // For sessions.
    int fix(session_room& s, page_id id, use_kind kind, page_content content, fixed_page& out);
    void unfix(session_room& s, const fixed_page& page, bool changed);
    int flush(session_room& s, std::uint32_t file);
    int resize(session_room& s, std::uint32_t number, std::uint64_t bytes);
    int forget(session_room& s, std::uint32_t number, std::uint64_t first, std::uint64_t pages);
    int find_size(const session_room& s, std::uint32_t number, std::uint64_t& bytes);
    void prefetch(session_room& s, std::uint32_t number, std::uint64_t first, std::uint64_t pages);
    // Pages from `first` to before `end` are wanted one after the other: those at the beginning
    // that are nowhere are read into the session's window. Where to ask again.
    std::uint64_t look_ahead(session_room& s, page_id first, std::uint64_t end);
    void close_session(session_room& s);
    [[nodiscard]] const manager_settings& settings() const override { return settings_; }
    [[nodiscard]] file_states& states() override { return states_; }

protected:
    int drop_file(std::uint32_t number) override;

private:
    // How many of so many pages of a file that follow one another are in the core, so that what is
    // not need not be looked for page by page.
    struct page_group {
        static constexpr std::uint64_t pages = 1024;
        std::uint32_t in_core = 0;
    };
    // What a thread looks at without the lock is atomic: both grow behind what they count.
    struct file {
        std::atomic<bool> is_writable{true}, begins_reads{false};
        std::atomic<int> fd{-1};
        std::atomic<std::uint64_t> bytes{0}, pages{0};
        file_pages<page_entry> entries;
        std::mutex resizing;  // one at a time; taken before mutex_
        // Guarded by mutex_:
        bool in_use = false;    // the number is given
        bool has_lost = false;  // a changed page, by an error of the device: every flush says so
        std::uint64_t failures = 0;  // writes of its pages, and the last one's error
        int error = 0;
        std::uint64_t room = 0;     // pages with an entry
        std::uint64_t version = 0;  // grows with each write-back, forget and resize: what was read
                                    // before is not to be brought in (read_window.hpp)
        file_pages<page_group, 2> groups;
    };
    using lock = std::unique_lock<std::mutex>;

    page_entry& entry(page_id id) { return files_[id.file].entries[id.page]; }
    [[nodiscard]] std::byte* data_of(std::uint32_t frame) const {
        return frames_.host_frames() + frame * settings_.page_bytes;
    }
    [[nodiscard]] std::uint32_t own_frame(const session_room& s) const {
        return settings_.host_pages + s.number;
    }
    [[nodiscard]] std::uint64_t bytes_in_file(page_id id) const;
    [[nodiscard]] std::uint64_t pages_for(std::uint64_t bytes) const {
        return (bytes + settings_.page_bytes - 1) / settings_.page_bytes;
    }
    // The page has come to the core, or goes.
    void count_page(page_id id, bool comes) {
        files_[id.file].groups[id.page / page_group::pages].in_core += comes ? 1u : ~0u;
    }
    void leave_core(page_id id);
    int grow(file& one, std::uint64_t bytes);

    int look_again(const session_room& s, page_id id);
    int note_fresh(session_room& s, page_id id, bool was_nowhere, const fixed_page& page);
    bool end_fresh(session_room& s, const fixed_page& page, bool changed);
    void leave_unfilled(const fixed_page& page);
    int bring(session_room& s, page_id id, use_kind kind, page_content content, fixed_page& out);
    // What a request is for: the asker waits for the page, or it is read ahead.
    enum class wish : std::uint8_t { page, fresh_page, ahead };
    template <typename Opened>
    int bring_in(session_room& s, lock& hold, page_id id, wish what, const Opened& opened);
    bool bring_ahead(session_room& s, page_id id);
    int forget_pages(std::uint32_t number, std::uint64_t first, std::uint64_t end, deadline until);
    std::uint64_t forget_some(std::uint32_t number, std::uint64_t at, std::uint64_t end);
    bool forget_one(page_id id);
    bool is_coming_or_written(page_id id);
    bool is_nowhere(page_id id) {
        return core_.inside().block_of(id, 0) == nullptr && !turns_.is_written(id);
    }
    int clear_rest(session_room& s, page_id last, std::uint64_t from);
    int cut(session_room& s, std::uint32_t number, std::uint64_t bytes);
    int set_end(session_room& s, std::uint32_t number, std::uint64_t bytes);
    [[nodiscard]] deadline wait_until() const {
        return std::chrono::steady_clock::now() + std::chrono::milliseconds(settings_.wait_ms);
    }
    void open_for(std::uint32_t frame, page_id id, use_kind kind);
    bool close_frame(std::uint32_t frame);
    void tell_hits(session_room& s);
    void tell_changes();
    void decide(session_room& s, page_id id, bool ahead);
    struct outcome {
        int code = 0, write_code = 0;  // of moves and the read; of a write
        page_id unwritten{};           // whose bytes lie at `bytes`
        const std::byte* bytes = nullptr;
        bool loaded = false;  // a page was read from its file
    };
    outcome carry_out(session_room& s, bool fresh);
    outcome carry_out_all(session_room& s, bool fresh);
    int move_bytes(session_room& s, const action& one);
    int move_together(session_room& s, const frame_move& what);
    void move_batch_of(std::uint32_t number, const std::vector<move_request*>& batch);
    int begin_demotion(session_room& s, const action& one, const action* next_read);
    int end_demotion(session_room& s);
    int broken(int code);  // of the device: the same code
    void begin_read(session_room& s, const action& fill);
    int read_page(session_room& s, page_id id, std::uint32_t frame);
    int write_page(page_id id, const std::byte* from);
    void keep_unwritten(const outcome& ended);
    int note_failure(page_id id, int code);
    // Of pages from `first` to before `end`. False: there was none.
    bool wait_for_writes(lock& hold, std::uint32_t file, std::uint64_t first = 0,
                         std::uint64_t end = ~std::uint64_t{0});
    int flush_one(session_room& s, page_id id, deadline until);
    int flush_in_host(session_room& s, lock& hold, page_id id, std::uint32_t frame);
    int flush_in_device(session_room& s, lock& hold, page_id id, std::uint32_t frame);

    const manager_settings settings_;
    device_frames& frames_;
    host::environment& env_;
    file_states states_;
    std::vector<frame_latch> latches_;
    std::vector<std::atomic<bool>>
        changed_;  // a frame's page was changed, and the core has not been told
    const std::unique_ptr<file[]> files_;
    std::atomic<bool> broken_{false};  // the device failed: what its frames hold is not known
    std::vector<std::unique_ptr<move_desk>> desks_;
    std::atomic<std::uint64_t> untold_hits_{0};
    std::atomic<std::uint32_t> demotions_{0};  // under way, each begun by a session alone

    // On a cache line of its own: what is above is looked at without it all the time.
    alignas(64) mutable std::mutex mutex_;
    std::condition_variable news_;  // turns have ended, or frames were opened
    // Guarded by mutex_:
    core<latched_order<Order>> core_;
    std::vector<page_id> page_in_;  // by host frame
    turns turns_;
    std::vector<bool> room_in_use_;
    manager_counts counts_;
};

}  // namespace penstock::buffer
