// Bytes of pages on their way, without the manager's lock: between host and device, from files and
// to them. The thread that moves them has the turns on their frames (locked_core.hpp).
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "buffer/pool/page_io.hpp"
#include "buffer/pool/combiner.hpp"
#include "buffer/pool/device_frames.hpp"
#include "buffer/pool/frame_directory.hpp"
#include "buffer/pool/locked_core.hpp"

namespace penstock::buffer {

// Bytes of pages that follow one another in a file, read at once by one session, for pages that it
// is about to bring in: the disk is asked once and not for each.
//
// The pages are not in the buffer by that, so no writer of the file knows of it. A span is
// good for a page only if, since before it was read, (1) the page was in the buffer or on its way
// to its file at no time, and (2) no thread had the file forgotten or resized. Both is told by the
// file's version, which counts write-backs and those calls, and by a look at the pages when the
// span begins: a page that was brought in since and changed nothing is as the span has it, and
// one that was changed was written back before it could leave. All of it under the manager's lock.
// A session's own.
class read_span {
public:
    static constexpr std::uint64_t most_bytes = 128u << 10;

    // Null: no memory. Aligned for reads past the operating system's page cache.
    std::byte* room() {
        if (bytes_ == nullptr)
            bytes_.reset(
                static_cast<std::byte*>(::operator new(most_bytes, alignment, std::nothrow)));
        return bytes_.get();
    }
    // So many bytes from this page on, read while the file had this version, or before it had
    // another.
    void set(page_id first, std::uint64_t version, std::uint64_t bytes) {
        first_ = first;
        version_ = version;
        there_ = bytes;
    }
    // The page's first `wanted` bytes, or null.
    [[nodiscard]] const std::byte* find(page_id id, std::uint64_t version, std::uint64_t page_bytes,
                                        std::uint64_t wanted) const {
        if (version != version_ || id.file != first_.file || id.page < first_.page ||
            id.page - first_.page >= most_bytes)
            return nullptr;
        const std::uint64_t at = (id.page - first_.page) * page_bytes;
        return at + wanted <= there_ ? bytes_.get() + at : nullptr;
    }

private:
    static constexpr std::align_val_t alignment{4096};
    struct free_it {
        void operator()(std::byte* at) const { ::operator delete(at, alignment); }
    };
    std::unique_ptr<std::byte, free_it> bytes_;
    page_id first_;
    std::uint64_t version_ = 0, there_ = 0;
};

// A move that goes with those of others.
struct move_request {
    frame_move transfer;
    int code = 0;
    bool done = false;  // the combiner's
};

// What one session's request moves, and with what. A session's own, used by its thread alone.
struct move_room {
    static constexpr std::size_t most_actions = 8;  // of a request; the core tells of fewer

    explicit move_room(std::uint32_t session) : number(session) {
        actions.reserve(most_actions);
        turns.make_room(most_actions);
        batch.reserve(1);
    }

    const std::uint32_t number;
    std::vector<action> actions;  // of the request that is handled
    frame_turns::taken turns;
    std::vector<frame_move> batch;
    move_request asked;
    enum class demotion : std::uint8_t {
        none,
        begun,
        postponed
    } victim = demotion::none;       // that goes from our own frame
    std::uint32_t victim_frame = 0;  // of the device
    read_span span;
    begun_read begun;                        // of the page that takes a victim's place
    const std::byte* filled_from = nullptr;  // the page of the request in the span, and how much
                                             // of it; null: it is read from its file
    std::uint64_t filled_bytes = 0;
    std::uint64_t begin_ns = 0;      // that beginning the read took, beside the device
    std::uint64_t device_ns = 0;     // that the request's moves took so far, as its thread waited
    std::uint64_t span_page_ns = 0;  // that reading the span took, for each of its pages
};

class page_mover {
public:
    // Some threads can ask a GPU at a time before they keep each other waiting; more ask together.
    // Each desk has a queue of the device, behind those of the sessions.
    static constexpr std::uint32_t most_desks = 4;

    struct outcome {
        int code = 0, write_code = 0;  // of moves and the read; of a write
        page_id unwritten{};           // whose bytes lie at `bytes`
        const std::byte* bytes = nullptr;
        bool loaded = false;  // a page was read from its file
        [[nodiscard]] int any() const { return code != 0 ? code : write_code; }
    };

    page_mover(const manager_settings& settings, device_frames& frames, host::environment& env,
               frame_directory& pages);

    // What the room's actions say. `fresh`: the page that comes in is not read.
    outcome carry_out(move_room& s, bool fresh);
    int write_page(page_id id, const std::byte* from);
    // Bytes of a file from `offset` on, for the room's span.
    std::int64_t read(std::uint32_t file, std::byte* to, std::uint64_t bytes,
                      std::uint64_t offset) {
        return env_.read(pages_.file_at(file).fd, to, bytes, offset);
    }
    int sync(std::uint32_t number) {
        frame_directory::file& file = pages_.file_at(number);
        return file.storage.run(env_, file.fd, file.is_writable);
    }
    [[nodiscard]] const last_failure& failures() const { return failures_; }
    // The device failed: what its frames hold is not known.
    [[nodiscard]] bool is_broken() const { return broken_; }
    // Nanoseconds that only grow.
    [[nodiscard]] std::uint64_t now() const {
        if (settings_.clock) return settings_.clock();
        return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                              std::chrono::steady_clock::now().time_since_epoch())
                                              .count());
    }

private:
    // While it lives, time is the device's.
    class device_time {
    public:
        device_time(const page_mover& mover, move_room& room)
            : mover_(mover), room_(room), begun_(mover.now()) {}
        ~device_time() { room_.device_ns += mover_.now() - begun_; }
        device_time(const device_time&) = delete;
        device_time& operator=(const device_time&) = delete;

    private:
        const page_mover& mover_;
        move_room& room_;
        const std::uint64_t begun_;
    };
    // Sessions of one desk move pages together.
    struct move_desk {
        move_desk(const manager_settings& settings, combiner<move_request>::handler handle)
            : together(settings.sessions, settings.batch_pages,
                       std::chrono::microseconds(settings.batch_wait_us), std::move(handle)) {
            moves.reserve(std::min(settings.sessions, settings.batch_pages));
        }

        combiner<move_request> together;
        std::vector<frame_move> moves;  // of the thread that is at work
    };

    [[nodiscard]] std::uint32_t own_frame(const move_room& s) const {
        return settings_.host_pages + s.number;
    }
    outcome carry_out_all(move_room& s, bool fresh);
    int move_bytes(move_room& s, const action& told);
    int move_together(move_room& s, const frame_move& transfer);
    void move_desk_batch(std::uint32_t desk, const combiner<move_request>::batch& batch);
    int begin_demotion(move_room& s, const action& told, const action* next_read);
    int end_demotion(move_room& s);
    int broken(int code);  // of the device: the same code
    void begin_read(move_room& s, const action& fill);
    int read_page(move_room& s, page_id id, std::uint32_t frame);

    const manager_settings settings_;
    device_frames& frames_;
    host::environment& env_;
    frame_directory& pages_;
    std::atomic<bool> broken_{false};
    last_failure failures_;
    std::vector<std::unique_ptr<move_desk>> desks_;
    std::atomic<std::uint32_t> demotions_{0};  // under way, each begun by a session alone
};

}  // namespace penstock::buffer
