// The page directory of a buffer of whole pages: its files, which page is in which frame of the
// host, and how a session finds and takes that frame without a lock.
//
// What a thread looks at without the manager's lock is atomic. All calls but those that say so are
// under that lock (locked_core.hpp).
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "buffer/core/movement.hpp"
#include "buffer/pool/file_pages.hpp"
#include "buffer/pool/file_sync.hpp"
#include "buffer/pool/frame_latch.hpp"
#include "buffer/pool/manager.hpp"

namespace penstock::buffer {

class frame_directory {
public:
    // How many of so many pages of a file that follow one another are in the core, so that what is
    // not need not be looked for page by page.
    struct page_group {
        static constexpr std::uint64_t pages = 1024;
        std::uint32_t in_core = 0;
    };
    // What is atomic grows behind what it counts.
    struct file {
        std::atomic<bool> is_writable{true}, begins_reads{false};
        std::atomic<int> fd{-1};
        std::atomic<std::uint64_t> bytes{0}, pages{0};
        file_pages<page_entry> entries;
        std::mutex resizing;  // one resize at a time; taken before the manager's lock
        file_sync storage;
        // Under the manager's lock:
        bool in_use = false;        // the number is given
        std::uint64_t room = 0;     // pages with an entry
        std::uint64_t version = 0;  // grows with each write-back, forget and resize: what was read
                                    // before is not to be brought in (read_span)
        file_pages<page_group, 2> groups;
    };

    frame_directory(const manager_settings& settings, std::byte* host_frames)
        : page_bytes_(settings.page_bytes),
          host_frames_(host_frames),
          most_files_(settings.files),
          files_(std::make_unique<file[]>(settings.files)),
          latches_(settings.host_pages),
          changed_(settings.host_pages),
          page_in_(settings.host_pages) {}

    // Without the lock, in a visit of the file (file_states.hpp).
    [[nodiscard]] file& file_at(std::uint32_t number) const { return files_[number]; }
    [[nodiscard]] std::byte* data_of(std::uint32_t frame) const {
        return host_frames_ + frame * page_bytes_;
    }
    [[nodiscard]] std::uint64_t bytes_in_file(page_id id) const {
        const std::uint64_t end = files_[id.file].bytes, first = id.page * page_bytes_;
        return first >= end ? 0 : std::min(page_bytes_, end - first);
    }
    [[nodiscard]] std::uint64_t pages_for(std::uint64_t bytes) const {
        return (bytes + page_bytes_ - 1) / page_bytes_;
    }
    [[nodiscard]] bool is_absent(page_id id) const { return entry(id).is_absent(); }
    // The frame that the page is in is taken, until end().
    found_by_entry take(page_id id, use_kind kind, std::uint32_t& frame) {
        return entry(id).take(latches_.data(), kind, frame);
    }
    void end(std::uint32_t frame, use_kind kind) { latches_[frame].end(kind); }
    // By the owner of the frame, before another thread can close it.
    void note_changed(std::uint32_t frame) { changed_[frame] = true; }

    // Under the lock, from here on. A page that is in the frame, for the thread that flushes it.
    found_by_entry take_to_flush(std::uint32_t frame) {
        return latches_[frame].take(use_kind::read);
    }
    void clear_changed(std::uint32_t frame) { changed_[frame] = false; }
    // Calls with each page that was changed since the core was told last.
    template <typename Call>
    void take_changes(const Call& call) {
        for (std::uint32_t frame = 0; frame < changed_.size(); ++frame)
            if (changed_[frame].load() && changed_[frame].exchange(false)) call(page_in_[frame]);
    }

    // The frame is closed, and gets the page.
    void expect(std::uint32_t frame, page_id id) { page_in_[frame] = id; }
    // The page's bytes are in the frame: for a first user, or for none.
    void open_for(std::uint32_t frame, page_id id, use_kind kind) {
        page_in_[frame] = id;
        latches_[frame].open_for(kind);
        entry(id).publish(frame);
    }
    void open(std::uint32_t frame, page_id id) {
        page_in_[frame] = id;
        latches_[frame].open();
        entry(id).publish(frame);
    }
    [[nodiscard]] bool is_idle(std::uint32_t frame) const { return latches_[frame].is_idle(); }
    // The frame is closed, unless a thread uses it. `was_changed`: `page` was, since the core was
    // told last.
    bool close(std::uint32_t frame, page_id& page, bool& was_changed) {
        page = page_in_[frame];
        if (!entry(page).withdraw(latches_[frame])) return false;
        was_changed = changed_[frame].exchange(false);
        return true;
    }
    // By the owner of the frame, which never got the page's bytes.
    void close_owned(std::uint32_t frame, page_id id) { entry(id).withdraw_owned(latches_[frame]); }

    // The page has come to the core, or goes.
    void count_page(page_id id, bool comes) {
        files_[id.file].groups[id.page / page_group::pages].in_core += comes ? 1u : ~0u;
    }
    // The first page from `at` on that may be in the core, or `end`: whole groups are passed by.
    [[nodiscard]] std::uint64_t pass_empty_group(std::uint32_t number, std::uint64_t at,
                                                 std::uint64_t end) const {
        const std::uint64_t group = at / page_group::pages;
        return files_[number].groups[group].in_core != 0
                   ? at
                   : std::min(end, (group + 1) * page_group::pages);
    }

    // A number that is not given, or -EMFILE.
    [[nodiscard]] int free_number() const {
        for (std::uint32_t number = 0; number < most_files_; ++number)
            if (!files_[number].in_use) return static_cast<int>(number);
        return -EMFILE;
    }
    // Room before the size, and the size before its pages: the thread that finds a page to be there
    // finds its entry.
    int grow(file& grown, std::uint64_t bytes) {
        if (bytes >> 52 != 0) return -EINVAL;
        const std::uint64_t pages = pages_for(bytes);
        if (const int code = grown.entries.grow(pages); code != 0) return code;
        if (const int code = grown.groups.grow(pages / page_group::pages + 1); code != 0)
            return code;
        grown.room = std::max(grown.room, pages);
        ++grown.version;
        grown.bytes = bytes;
        grown.pages = pages;
        return 0;
    }
    void clear(file& closed) {
        closed.pages = 0;
        closed.bytes = 0;
        closed.entries = {};
        closed.groups = {};
        closed.room = 0;
        closed.fd = -1;
    }

    // Null, or what does not agree, while no thread uses it.
    [[nodiscard]] const char* check(const core_tables& known) const {
        for (std::uint32_t number = 0; number < most_files_; ++number) {
            std::uint64_t in_core = 0, counted = 0;
            for (std::uint64_t page = 0; page < files_[number].room; ++page) {
                const page_id id{page, number};
                const block* const found = known.block_of(id, 0);
                if (const char* const wrong = check_page(id, found); wrong != nullptr) return wrong;
                in_core += found != nullptr;
                if (page % page_group::pages == 0)
                    counted += files_[number].groups[page / page_group::pages].in_core;
            }
            if (in_core != counted) return "other pages of a file are in the buffer than counted";
        }
        return nullptr;
    }

private:
    [[nodiscard]] page_entry& entry(page_id id) const { return files_[id.file].entries[id.page]; }
    [[nodiscard]] const char* check_page(page_id id, const block* known) const {
        const bool in_host = known != nullptr && known->where == side::host;
        if (known != nullptr && id.page >= files_[id.file].pages)
            return "a page is in the buffer that its file does not have";
        if (entry(id).is_absent() == in_host)
            return "an entry and the core disagree on whether a page is in the host";
        if (in_host && (!entry(id).names(known->frame) || page_in_[known->frame] != id))
            return "a page has another frame than its entry says";
        if (in_host && !latches_[known->frame].is_idle())
            return "a frame is in use, and no session uses it";
        return nullptr;
    }

    const std::uint64_t page_bytes_;
    std::byte* const host_frames_;
    const std::uint32_t most_files_;
    const std::unique_ptr<file[]> files_;
    std::vector<frame_latch> latches_;        // by host frame, as the rest
    std::vector<std::atomic<bool>> changed_;  // the page was, and the core has not been told
    std::vector<page_id> page_in_;            // under the lock
};

}  // namespace penstock::buffer
