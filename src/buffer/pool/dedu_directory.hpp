// The page directory of a buffer of shared blocks: its files, where each of their pages is, and how
// a session copies a page that is in the host without asking.
//
// A page is published, that is readable without asking, only while all its blocks are in host
// frames with their bytes there. The batch makes it unreadable when the core says that one of them
// leaves, before anything moves, and publishes it when the batch ends. dedu_manager.hpp has the
// classes beside this one.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "buffer/core/movement.hpp"
#include "buffer/pool/page_io.hpp"
#include "buffer/pool/file_pages.hpp"
#include "buffer/pool/file_sync.hpp"
#include "buffer/pool/frame_latch.hpp"
#include "buffer/pool/manager.hpp"
#include "buffer/pool/content_hash.hpp"

namespace penstock::buffer {

// The content hashes of a file's pages, for those that were made: so that a page that is read again
// and again is hashed once. Room is taken for 256 pages at a time, when the first of them is
// hashed.
class remembered_hashes {
public:
    explicit remembered_hashes(std::uint32_t blocks_per_page) : blocks_(blocks_per_page) {}

    int grow(std::uint64_t pages) { return leaves_.grow((pages + leaf_pages - 1) / leaf_pages); }

    // All by the page's owner. Null: none are known, until they are changed next.
    [[nodiscard]] const content_hash* find(std::uint64_t page) const {
        const leaf* const found = leaves_[page / leaf_pages].made.load();
        return found != nullptr && found->known[page % leaf_pages] != 0
                   ? found->hashes.get() + page % leaf_pages * blocks_
                   : nullptr;
    }
    // Room for those of a page, to be written at once; null: there is no memory for it, or `left`,
    // how many pages' room may still be taken by all files, is used up.
    content_hash* note(std::uint64_t page, std::atomic<std::int64_t>& left) {
        leaf* found = leaves_[page / leaf_pages].made.load();
        if (found == nullptr) found = make(leaves_[page / leaf_pages], left);
        if (found == nullptr) return nullptr;
        found->known[page % leaf_pages] = 1;
        return found->hashes.get() + page % leaf_pages * blocks_;
    }
    void forget(std::uint64_t page) {
        if (leaf* const found = leaves_[page / leaf_pages].made.load(); found != nullptr)
            found->known[page % leaf_pages] = 0;
    }

private:
    static constexpr std::uint64_t leaf_pages = 256;
    struct leaf {
        std::uint8_t known[leaf_pages] = {};
        std::unique_ptr<content_hash[]> hashes;
    };
    struct place {
        std::atomic<leaf*> made{nullptr};
        ~place() { delete made.load(); }
    };

    leaf* make(place& at, std::atomic<std::int64_t>& left) {
        if (left.fetch_sub(leaf_pages) < static_cast<std::int64_t>(leaf_pages)) {
            left += leaf_pages;
            return nullptr;
        }
        std::unique_ptr<leaf> made(new (std::nothrow) leaf);
        if (made != nullptr)
            made->hashes.reset(new (std::nothrow) content_hash[leaf_pages * blocks_]);
        leaf* other = nullptr;
        if (made != nullptr && made->hashes != nullptr &&
            at.made.compare_exchange_strong(other, made.get()))
            return made.release();
        left += leaf_pages;
        return other;  // of the thread that was faster, if that is why
    }

    const std::uint32_t blocks_;
    file_pages<place> leaves_;
};

// Whether it pays to look for equal blocks in a file. Where hardly any are found, or the looking
// takes longer than the reads that it saves, the looking is only cost: then it is left out for a
// while, and tried again. By one thread at a time.
class sharing_watch {
public:
    // `frames`: of the whole buffer. A block that was never looked for is never found, so after a
    // rest, as at first, the buffer has to fill before what is found says anything.
    explicit sharing_watch(std::uint64_t frames) : window_(std::max(least_window, frames)) {}

    // While it rests no blocks are looked for; so many of them went by.
    [[nodiscard]] bool rests() const { return resting_ != 0; }
    void rested(std::uint32_t blocks) { resting_ -= std::min<std::uint64_t>(resting_, blocks); }

    // A page that was not known: of its blocks so many were there.
    void looked(std::uint32_t blocks, std::uint32_t found) {
        looked_ += blocks;
        if (looked_ > window_ / 2) found_ += found;
        if (looked_ < window_) return;
        if (found_ * worth < window_ / 2) rest();
        looked_ = found_ = 0;
    }

    // A page of the file was found in the buffer.
    void hit() { hits_ += rests() ? 0 : 1; }
    // A page was loaded, known or not. `read_ns`: what its read took, 0 if that is not known;
    // `look_ns`: by how much all took longer since its blocks were hashed and looked for. `shared`:
    // which part of what the buffer holds it has no frames for, as it has equal blocks once. That
    // part of the hits would have been reads where each page is as likely as every other, and less
    // of them where some are more likely: so it rests late rather than early.
    void loaded(std::uint32_t blocks, std::uint64_t read_ns, std::uint64_t look_ns, double shared) {
        loaded_ += blocks;
        look_ns_ += look_ns;
        if (read_ns != 0) ++reads_, read_ns_ += read_ns;
        if (loaded_ < time_windows * window_) return;
        if (reads_ != 0 && static_cast<double>(hits_) * shared * static_cast<double>(read_ns_) /
                                   static_cast<double>(reads_) <
                               static_cast<double>(look_ns_))
            rest();
        loaded_ = hits_ = reads_ = read_ns_ = look_ns_ = 0;
    }

private:
    static constexpr std::uint64_t least_window = 1024;
    // Of the blocks in the second half of a window one in `worth` must have been there.
    static constexpr std::uint64_t worth = 50, rest_windows = 32;
    // A file is known only after several fillings of the buffer; before that there are fewer hits
    // than there will be.
    static constexpr std::uint64_t time_windows = 8;

    void rest() {
        resting_ = rest_windows * window_;
        looked_ = found_ = loaded_ = hits_ = reads_ = read_ns_ = look_ns_ = 0;
    }

    const std::uint64_t window_;
    std::uint64_t looked_ = 0, found_ = 0, resting_ = 0;
    std::uint64_t loaded_ = 0, hits_ = 0, reads_ = 0, read_ns_ = 0, look_ns_ = 0;
};

// What sessions look at is atomic: entries and content hashes grow before the size, and the size
// before a page goes.
struct dedu_file {
    dedu_file(std::uint32_t blocks_per_page, std::uint64_t frames)
        : hashes(blocks_per_page), watch(frames) {}

    int grow(std::uint64_t new_bytes, std::uint64_t page_bytes) {
        const std::uint64_t all = (new_bytes + page_bytes - 1) / page_bytes;
        if (const int code = entries.grow(all); code != 0) return code;
        if (const int code = hashes.grow(all); code != 0) return code;
        room = std::max(room.load(), all);
        bytes = new_bytes;
        pages = all;
        return 0;
    }

    int fd = -1;
    bool is_writable = true, begins_reads = false;
    std::atomic<std::uint64_t> bytes{0}, pages{0}, room{0};  // room: pages with an entry
    std::mutex resizing;                                     // one at a time
    file_sync storage;
    file_pages<owned_entry> entries;
    remembered_hashes hashes;  // of blocks as they are, or will be, in the file; each page's
                               // owner's
    sharing_watch watch;       // of the thread that does a batch, and what it says, for all
    std::atomic<bool> rests{false};
    bool has_lost = false;  // a page that could not be written, nor kept; the batch's
};

class dedu_directory {
public:
    dedu_directory(const manager_settings& settings, const frames_shape& shape, std::uint32_t slots,
                   std::byte* host_frames, host::environment& env, const core_tables& known)
        : page_bytes_(settings.page_bytes),
          block_bytes_(shape.frame_bytes),
          blocks_per_page_(settings.dedu.blocks_per_page),
          host_frames_(host_frames),
          env_(env),
          known_(known),
          latches_(slots),
          host_places_(std::size_t{slots} * blocks_per_page_),
          published_(slots),
          files_(settings.files) {}

    // Files: the caller is in a visit of the file (file_states.hpp), or runs the batch.
    [[nodiscard]] dedu_file* file_at(std::uint32_t number) { return files_[number].get(); }
    [[nodiscard]] owned_entry& page(page_id id) { return files_[id.file]->entries[id.page]; }
    [[nodiscard]] std::byte* frame_at(std::uint32_t frame) const {
        return host_frames_ + frame * block_bytes_;
    }
    [[nodiscard]] std::uint64_t page_bytes() const { return page_bytes_; }
    [[nodiscard]] std::uint64_t bytes_in_file(page_id id) const {
        return std::min(page_bytes_, files_[id.file]->bytes - id.page * page_bytes_);
    }
    // Under the manager's lock of files. The number, -EMFILE, -EINVAL or -ENOMEM.
    int add(int fd, std::uint64_t bytes, bool is_writable, bool begins_reads) {
        if (bytes >> 52 != 0) return -EINVAL;
        const auto free = std::find(files_.begin(), files_.end(), nullptr);
        if (free == files_.end()) return -EMFILE;
        std::unique_ptr<dedu_file> added(new (std::nothrow) dedu_file(
            blocks_per_page_, std::uint64_t{known_.host.size()} + known_.device.size()));
        if (added == nullptr) return -ENOMEM;
        added->fd = fd;
        added->is_writable = is_writable;
        added->begins_reads = begins_reads;
        if (const int code = added->grow(bytes, page_bytes_); code != 0) return code;
        *free = std::move(added);
        return static_cast<int>(free - files_.begin());
    }
    void remove(std::uint32_t number) { files_[number] = nullptr; }

    // So many bytes of the page, from the host without asking; or busy or absent.
    found_by_entry copy(page_id id, std::byte* to, std::uint64_t from, std::uint64_t bytes) {
        std::uint32_t slot = 0;
        const found_by_entry answer = page(id).take(latches_.data(), slot);
        if (answer != found_by_entry::taken) return answer;
        const std::uint32_t* place = &host_places_[slot * blocks_per_page_ + from / block_bytes_];
        for (std::uint64_t done = 0, in_block = from % block_bytes_; done < bytes;
             ++place, in_block = 0) {
            const std::uint64_t count = std::min(block_bytes_ - in_block, bytes - done);
            std::memcpy(to + done, frame_at(*place) + in_block, count);
            done += count;
        }
        latches_[slot].end(use_kind::read);
        return answer;
    }

    // Of the page in its file. `begun`: what may have been begun of it, or null.
    int read_page(page_id id, std::byte* to, begun_read* begun = nullptr) {
        const std::uint64_t wanted = bytes_in_file(id), offset = id.page * page_bytes_;
        const int fd = files_[id.file]->fd;
        const int code = begun != nullptr
                             ? end_whole(*begun, env_, fd, to, wanted, page_bytes_, offset)
                             : read_whole(env_, fd, to, wanted, page_bytes_, offset);
        if (code != 0) return code;
        clear_behind(to, wanted, page_bytes_);
        return 0;
    }
    bool begin_read(begun_read& begun, page_id id, std::byte* to) {
        return begun.begin(env_, files_[id.file]->fd, to, page_bytes_, id.page * page_bytes_);
    }
    int write_page(page_id id, const std::byte* from) {
        return failures_.note(id, write_whole(env_, files_[id.file]->fd, from, bytes_in_file(id),
                                              id.page * page_bytes_));
    }
    [[nodiscard]] const last_failure& failures() const { return failures_; }
    // `room` bytes from `offset` on, of which the file has `bytes`.
    int read(const dedu_file& file, std::byte* to, std::uint64_t bytes, std::uint64_t room,
             std::uint64_t offset) {
        return read_whole(env_, file.fd, to, bytes, room, offset);
    }
    int sync(std::uint32_t number) {
        dedu_file& file = *files_[number];
        return file.storage.run(env_, file.fd, file.is_writable);
    }

    // By the batch, from here on.
    void publish(page_id id) {
        const std::uint32_t slot = known_.pages.find(id);
        if (slot == nothing || published_[slot] || !note_places(slot)) return;
        published_[slot] = true;
        latches_[slot].open();
        page(id).set_where(owned_entry::first_slot + slot);
    }
    // A thread that copies it just now is waited for: that is a copy of a page and nothing else.
    void unpublish(page_id id, std::uint32_t where) {
        const std::uint32_t slot = known_.pages.find(id);
        if (published_[slot]) {
            latches_[slot].begin_close();
            while (!latches_[slot].is_closed()) std::this_thread::yield();
            published_[slot] = false;
        }
        page(id).set_where(where);
    }
    void unpublish_all_of(std::uint32_t block) {
        known_.each_page_of(block, [&](page_id id, std::uint32_t) {
            if (page(id).where() >= owned_entry::first_slot) unpublish(id, owned_entry::elsewhere);
        });
    }
    // A block that was absent, or is new, has come to a frame: other pages that lacked it and
    // nothing else can be had from now on.
    void complete_others(const action& filled) {
        known_.each_page_of(filled.block, [&](page_id id, std::uint32_t) {
            if (page(id).where() == owned_entry::incomplete && id != filled.page &&
                known_.is_complete(id))
                page(id).set_where(owned_entry::elsewhere);
        });
    }

    // Null, or what does not agree, while no thread uses it.
    template <typename IsUnwritten>
    [[nodiscard]] const char* check(const IsUnwritten& is_unwritten) {
        for (std::uint32_t number = 0; number < files_.size(); ++number)
            for (std::uint64_t at = 0; files_[number] != nullptr && at < files_[number]->room; ++at)
                if (const char* const wrong =
                        check_page({at, number}, is_unwritten(page_id{at, number}));
                    wrong != nullptr)
                    return wrong;
        return nullptr;
    }

private:
    // Where a page that is about to be readable is in the host, if all of it is.
    bool note_places(std::uint32_t slot) {
        for (std::uint32_t i = 0; i < blocks_per_page_; ++i) {
            const block& part = known_.blocks[known_.number_at(slot, i)];
            if (part.where != side::host) return false;
            host_places_[slot * blocks_per_page_ + i] = part.frame;
        }
        return true;
    }
    const char* check_page(page_id id, bool is_unwritten) {
        const std::uint32_t where = page(id).where(), slot = known_.pages.find(id);
        const bool is_readable = where >= owned_entry::first_slot;
        if (id.page >= files_[id.file]->pages && where != owned_entry::nowhere)
            return "a page is in the buffer that its file does not have";
        if (page(id).is_owned()) return "a page has an owner, and no session uses it";
        if ((where == owned_entry::incomplete) != (slot != nothing && !known_.is_complete(id)))
            return "an entry and the core disagree on whether all of a page is in the buffer";
        if ((where == owned_entry::incomplete || where == owned_entry::elsewhere || is_readable) !=
            (slot != nothing))
            return "an entry and the core disagree on whether a page is in the buffer";
        if (slot != nothing && published_[slot] != is_readable)
            return "an entry and the page's slot disagree on whether it can be read";
        if ((where == owned_entry::unwritten) != is_unwritten)
            return "an entry does not tell of a page that could not be written";
        if (is_readable && (where - owned_entry::first_slot != slot || !published_[slot] ||
                            !latches_[slot].is_idle()))
            return "a page can be read in a slot that it does not have";
        for (std::uint32_t i = 0; is_readable && i < blocks_per_page_; ++i)
            if (const block& part = *known_.block_of(id, i);
                part.where != side::host || part.frame != host_places_[slot * blocks_per_page_ + i])
                return "a page can be read where its blocks are not";
        return nullptr;
    }

    const std::uint64_t page_bytes_, block_bytes_;
    const std::uint32_t blocks_per_page_;
    std::byte* const host_frames_;
    host::environment& env_;
    const core_tables& known_;
    std::vector<frame_latch> latches_;  // by slot of the page table
    // By slot and block: the host frame of each, while the page is published. Written while the
    // slot's latch is closed, read by a session that has taken it.
    std::vector<std::uint32_t> host_places_;
    std::vector<bool> published_;  // by slot; the batch's
    std::vector<std::unique_ptr<dedu_file>> files_;
    last_failure failures_;
};

}  // namespace penstock::buffer
