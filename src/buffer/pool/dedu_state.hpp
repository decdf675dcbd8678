// The manager of shared blocks (dedu_manager.hpp): what all sessions share, and which thread may
// touch it.
//
// Sessions touch entries, latches, the pages' places in the host behind a latch that they hold, the
// signatures of pages that they own, and frames of their own. All else is touched by the thread
// that does a batch, one thread at a time (`combined_`).
//
// A page is published, that is readable without asking, only while all its blocks are in host
// frames with their bytes there: it is made unreadable when the core says that one of them leaves,
// before anything moves, and published at the end of a batch.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "buffer/pool/begun_read.hpp"
#include "buffer/pool/combiner.hpp"
#include "buffer/core/core.hpp"
#include "buffer/pool/dedu_manager.hpp"
#include "buffer/pool/dedu_request.hpp"
#include "buffer/pool/file_pages.hpp"
#include "buffer/pool/file_states.hpp"
#include "buffer/pool/frame_latch.hpp"
#include "buffer/pool/owned_entry.hpp"
#include "buffer/pool/page_io.hpp"
#include "buffer/pool/remembered_signatures.hpp"
#include "buffer/pool/sharing_watch.hpp"
#include "buffer/pool/stopwatch.hpp"
#include "buffer/pool/wave.hpp"

namespace penstock::buffer {

// What sessions look at is atomic: entries and signatures grow before the size, and the size before
// a page goes.
struct dedu_file {
    dedu_file(std::uint32_t blocks_per_page, std::uint64_t frames)
        : signs(blocks_per_page), watch(frames) {}

    int grow(std::uint64_t new_bytes, std::uint64_t page_bytes) {
        const std::uint64_t all = (new_bytes + page_bytes - 1) / page_bytes;
        if (const int code = entries.grow(all); code != 0) return code;
        if (const int code = signs.grow(all); code != 0) return code;
        room = std::max(room.load(), all);
        bytes = new_bytes;
        pages = all;
        return 0;
    }

    int fd = -1;
    bool is_writable = true, begins_reads = false;
    std::atomic<std::uint64_t> bytes{0}, pages{0}, room{0};  // room: pages with an entry
    std::mutex resizing;                                     // one at a time
    file_pages<owned_entry> entries;
    remembered_signatures
        signs;            // of blocks as they are, or will be, in the file; each page's owner's
    sharing_watch watch;  // of the thread that does a batch, and what it says, for all
    std::atomic<bool> rests{false};
    bool has_lost = false;  // a page that could not be written, nor kept
};

// A page that had to go and could not be written.
struct unwritten_page {
    page_id id{};
    std::unique_ptr<std::byte[]> bytes;
};

// Of the host's frames, pages for what one session has fixed and brings, and one for what it has
// posted.
inline std::uint32_t own_pages_of(const manager_settings& how) {
    return how.fixed_pages + 1 + how.dedu.window_pages;
}

template <typename Order>
class dedu_state final : public manager {
public:
    // As many uses are told at once, if no thread is at work just then; else it may be some times
    // as many.
    static constexpr std::size_t most_hits = 64, most_untold_hits = 8 * most_hits;

    dedu_state(const manager_settings& settings, device_frames& frames, host::environment& env);
    int make();

    int add_file(int fd, std::uint64_t bytes, file_access access) override;
    std::unique_ptr<session> open_session() override;
    [[nodiscard]] manager_counts counts() const override;
    [[nodiscard]] manager_contents contents() const override;
    [[nodiscard]] const char* check() override;

    // For sessions.
    [[nodiscard]] const manager_settings& settings() const override { return settings_; }
    [[nodiscard]] file_states& states() override { return states_; }
    [[nodiscard]] const dedu_settings& how() const { return settings_.dedu; }
    [[nodiscard]] std::uint64_t block_bytes() const { return shape_.frame_bytes; }
    [[nodiscard]] std::uint32_t first_own_frame(std::uint32_t session) const {
        return (settings_.host_pages + session * own_pages_of(settings_)) * how_.blocks_per_page;
    }
    [[nodiscard]] std::byte* frame_at(std::uint32_t frame) const {
        return frames_.host_frames() + frame * shape_.frame_bytes;
    }
    // Of a file in which the caller's session works.
    [[nodiscard]] dedu_file* file_at(std::uint32_t number) { return files_[number].get(); }
    [[nodiscard]] owned_entry& page(page_id id) { return files_[id.file]->entries[id.page]; }
    [[nodiscard]] std::uint64_t bytes_in_file(page_id id) const {
        return std::min(settings_.page_bytes,
                        files_[id.file]->bytes - id.page * settings_.page_bytes);
    }
    // So many bytes of the page, from the host without asking anybody; or busy or absent.
    found_by_entry copy(page_id id, std::byte* to, std::uint64_t from, std::uint64_t bytes);
    int read_page(page_id id, std::byte* to, begun_read* begun = nullptr);
    // Whether a reader of a page of the file posts its load, and does not wait for it. Not where
    // one thread has to hit exactly where the core would.
    [[nodiscard]] bool may_post(const dedu_file& file) const {
        return file.begins_reads && how_.adaptive;
    }
    bool begin_read(begun_read& begun, page_id id, std::byte* to) {
        return begun.begin(env_, files_[id.file]->fd, to, settings_.page_bytes,
                           id.page * settings_.page_bytes);
    }
    int sync(std::uint32_t file) { return sync_file(env_, files_[file]->fd); }
    void sign(dedu_request& one, bool is_new);
    int read(dedu_file& file, std::byte* to, std::uint64_t bytes, std::uint64_t room,
             std::uint64_t offset) {
        return read_whole(env_, file.fd, to, bytes, room, offset);
    }
    int ask(dedu_request& one);
    void ask(const std::vector<dedu_request*>& some);
    void post(dedu_request& one) { combined_.post(one); }
    void finish(dedu_request& one);
    // For the thread that finds a page owned: it may be by no thread but a load that was posted.
    void help();
    int forget(dedu_request& one, dedu_file& file, std::uint32_t number, std::uint64_t first,
               std::uint64_t end, deadline until);
    [[nodiscard]] deadline wait_until() const {
        return std::chrono::steady_clock::now() + std::chrono::milliseconds(settings_.wait_ms);
    }
    [[nodiscard]] bool is_idle() const { return combined_.is_idle(); }
    [[nodiscard]] bool has_unwritten() const { return has_unwritten_; }
    void close_session(std::uint32_t number);

protected:
    int drop_file(std::uint32_t number) override;

private:
    using batch = std::vector<dedu_request*>;

    // Of a batch, by one thread at a time (dedu_batch.hpp).
    void handle(const batch& all);
    void tell_hits(std::vector<page_id>& hits);
    int prepare(const batch& all);
    int sign_on_device(const batch& all);
    [[nodiscard]] signature masked(const signature& one) const {
        return {one.low & settings_.signature_mask, one.high & settings_.signature_mask};
    }
    void remember(dedu_request& one);
    void perform(dedu_request& one);
    void touch(dedu_request& one);
    void load(dedu_request& one);
    void replace(dedu_request& one);
    const content_id* contents_for(dedu_request& one);
    void forget_page(dedu_request& one);
    void publish(page_id id);
    bool note_places(std::uint32_t slot, page_id id);
    void unpublish(page_id id, std::uint32_t where);
    void unpublish_all_of(std::uint32_t block);
    void leave(page_id id, std::uint32_t where);
    void note(int code);
    // What the core tells while `from` comes in.
    void move_bytes(const action& one, const std::byte* from);
    // Of pages with absent blocks (dedu_absent.hpp).
    bool load_known(dedu_request& one);
    void note_load(const dedu_request& one);
    [[nodiscard]] bool holds_what_is_absent(const dedu_request& one) const;
    int look_for(dedu_request& one);
    const std::byte* read_absent(std::uint32_t block);
    void complete_others(const action& filled);
    void drop_unwritten();
    // And of pages that cannot be written (dedu_flush.hpp).
    std::byte* gather(page_id id);
    int write_page(page_id id, const std::byte* from);
    void write_victim(const action& one);
    void keep_unwritten(page_id id, const std::byte* bytes);
    int rescue_all(std::uint32_t file);
    void rescue(dedu_request& one);
    void flush(dedu_request& one);
    int flush_page(page_id id);
    unwritten_page* find_unwritten(page_id id);
    void forget_unwritten(page_id id);

    const manager_settings settings_;
    const dedu_settings& how_ = settings_.dedu;
    const frames_shape shape_;
    device_frames& frames_;
    host::environment& env_;
    file_states states_;
    std::vector<frame_latch> latches_;  // by slot of the page table
    std::vector<std::uint32_t>
        host_places_;  // by slot and block: the host frame of each, while the page is published
    std::vector<std::unique_ptr<dedu_file>> files_;
    std::atomic<bool> broken_{false};  // the device failed: what its frames hold is not known
    std::atomic<bool> has_unwritten_{false};
    combiner<dedu_request> combined_;
    mutable std::mutex sessions_;
    std::vector<bool> room_in_use_;  // guarded by sessions_; files come and go under it too
    std::atomic<std::int64_t> remembered_left_;

    // Of the thread that does a batch:
    core<Order> core_;
    wave wave_;
    content_finder finder_;
    std::vector<bool> published_;  // by slot
    std::vector<unwritten_page> unwritten_;
    std::vector<page_id> failed_;  // of this request's pages on their way to their files, those
                                   // that could not be written
    page_id compared_{};           // whose bytes read_absent() has read, while has_compared_
    bool has_compared_ = false;
    std::vector<std::uint32_t> to_sign_;
    std::vector<signature> signs_;
    int wave_code_ = 0;  // the batch's first error of the device
    mutable std::mutex counting_;
    manager_counts counts_;  // guarded by counting_
};

}  // namespace penstock::buffer
