// The manager of an order (manager.hpp): what all sessions share.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "buffer/core.hpp"
#include "buffer/frame_latch.hpp"
#include "buffer/latched_order.hpp"
#include "buffer/manager.hpp"
#include "buffer/turns.hpp"

namespace penstock::buffer {

using deadline = std::chrono::steady_clock::time_point;

// A session's own, used by its thread alone.
struct session_room {
    std::uint32_t number = 0, fixed = 0;
    std::vector<page_id> hits;      // not told to the order yet
    std::vector<action> actions;    // of the request that is handled
    std::vector<frame_move> batch;
    turns::taken mine;
};

template <typename Order>
class manager_state final : public manager {
public:
    // As many uses are told at once; if others have the lock just then it may be some times as many.
    static constexpr std::size_t most_hits = 64, most_untold_hits = 8 * most_hits;

    manager_state(const manager_settings& settings, device_frames& frames, host::environment& env)
        : settings_(settings), frames_(frames), env_(env), latches_(settings.host_pages), changed_(settings.host_pages), page_in_(settings.host_pages),
          turns_(settings.host_pages + settings.sessions, settings.device_pages, settings.sessions), room_in_use_(settings.sessions) {
        files_.reserve(settings.files);
    }
    int make();

    int add_file(int fd, std::uint64_t bytes) override;
    std::unique_ptr<session> open_session() override;
    [[nodiscard]] manager_counts counts() const override;
    [[nodiscard]] const char* check() override;

    // For sessions. fix() without what is the session's own; `fresh`: the page need not be read.
    int fix(session_room& s, page_id id, use_kind kind, bool fresh, fixed_page& out);
    void unfix(session_room& s, const fixed_page& page, bool changed);
    int flush(session_room& s, std::uint32_t file);
    void close_session(session_room& s);
    [[nodiscard]] std::uint64_t bytes_of(std::uint32_t file) const { return file < file_count_ ? files_[file].bytes : 0; }
    [[nodiscard]] const manager_settings& settings() const { return settings_; }

private:
    struct file {
        int fd;
        std::uint64_t bytes, pages;
        std::uint64_t failures = 0;  // writes of its pages, and the last one's error; guarded by mutex_
        int error = 0;
        std::unique_ptr<page_entry[]> entries;
    };
    using lock = std::unique_lock<std::mutex>;

    page_entry& entry(page_id id) { return files_[id.file].entries[id.page]; }
    [[nodiscard]] std::byte* data_of(std::uint32_t frame) const { return frames_.host_frames() + frame * settings_.page_bytes; }
    [[nodiscard]] std::uint32_t own_frame(const session_room& s) const { return settings_.host_pages + s.number; }
    [[nodiscard]] std::uint64_t bytes_in_file(page_id id) const;

    int bring(session_room& s, page_id id, use_kind kind, bool fresh, fixed_page& out);
    void open_for(std::uint32_t frame, page_id id, use_kind kind);
    bool close_frame(std::uint32_t frame);
    void tell_hits(session_room& s);
    void tell_changes();
    void decide(session_room& s, page_id id);
    struct outcome {
        int code = 0, write_code = 0;  // of moves and the read; of a write
        page_id unwritten{};           // whose bytes lie at `bytes`
        const std::byte* bytes = nullptr;
        bool loaded = false;           // a page was read from its file
    };
    outcome carry_out(session_room& s, bool fresh);
    int move_bytes(session_room& s, const action& one);
    int read_page(page_id id, std::uint32_t frame);
    int write_page(page_id id, const std::byte* from);
    void keep_unwritten(const outcome& ended);
    int note_failure(page_id id, int code);
    void wait_for_writes(lock& hold, std::uint32_t file);
    int flush_one(session_room& s, page_id id, deadline until);
    int flush_in_host(session_room& s, lock& hold, page_id id, std::uint32_t frame);
    int flush_in_device(session_room& s, lock& hold, page_id id, std::uint32_t frame);

    const manager_settings settings_;
    device_frames& frames_;
    host::environment& env_;
    std::vector<frame_latch> latches_;
    std::vector<std::atomic<bool>> changed_;  // a frame's page was changed, and the core has not been told
    std::vector<file> files_;                 // never moves
    std::atomic<std::uint32_t> file_count_{0};
    std::atomic<bool> broken_{false};         // the device failed: what its frames hold is not known

    mutable std::mutex mutex_;
    std::condition_variable news_;  // turns have ended, or frames were opened
    // Guarded by mutex_:
    core<latched_order<Order>> core_;
    std::vector<page_id> page_in_;  // by host frame
    turns turns_;
    std::vector<bool> room_in_use_;
    manager_counts counts_;
};

}  // namespace penstock::buffer
