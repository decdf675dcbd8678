// What one thread does with a buffer of shared blocks (dedu_manager.hpp).

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "buffer/pool/dedu_window.hpp"
#include "buffer/pool/page_io.hpp"
#include "buffer/pool/paged_session.hpp"

namespace penstock::buffer {

namespace {

class dedu_session final : public paged_session {
public:
    dedu_session(dedu_shared& all, std::uint32_t number)
        : all_(all),
          number_(number),
          asked_blocks_(all.dedu.blocks_per_page),
          posted_blocks_(all.dedu.blocks_per_page),
          window_(all, all.first_own_frame(number) +
                           (all.settings.fixed_pages + 1) * all.dedu.blocks_per_page) {
        for (std::vector<page_id>* const some : {&hits_, &posted_hits_})
            some->reserve(most_untold_hits + all.dedu.window_pages);
        for (std::uint32_t i = all.settings.fixed_pages + 1; i-- > 0;)
            free_.push_back(all.first_own_frame(number) + i * all.dedu.blocks_per_page);
    }
    ~dedu_session() override {
        if (all_.states.here()) {
            tell_hits();
            all_.sessions.give_back(number_);
        } else {
            begun_.abandon();
        }
    }

    int fix(page_id id, use_kind kind, fixed_page& out) override {
        return begin(id, kind, out, [&](std::byte* to, deadline until) {
            if (kind == use_kind::read) return bring(id, out.frame, to, false, until);
            if (const int code = own(id, until); code != 0) return code;
            const int code = bring(id, out.frame, to, true, until);
            if (code != 0) all_.pages.page(id).disown();
            return code;
        });
    }
    int fix_fresh(page_id id, fixed_page& out) override {
        return begin(id, use_kind::write, out, [&](std::byte*, deadline until) {
            if (const int code = rescue(); code != 0) return code;
            fresh_.push_back(id);
            const int code = own(id, until);
            if (code != 0) fresh_.pop_back();
            return code;
        });
    }
    void unfix(const fixed_page& page, bool changed) override {
        if (!all_.states.here()) return;
        if (page.kind == use_kind::write) {
            const auto was_fresh = std::find(fresh_.begin(), fresh_.end(), page.id);
            if (changed) replace(page, was_fresh != fresh_.end());
            if (was_fresh != fresh_.end()) fresh_.erase(was_fresh);
            all_.pages.page(page.id).disown();
        }
        // What is posted is copied from there, maybe later: so that frame is taken last, that is
        // never before it is done.
        free_.insert(has_posted_ && page.frame == posted_frame_ ? free_.begin() : free_.end(),
                     page.frame);
        all_.states.let_go(number_, page.place);
        tell_many();
    }
    // What can be copied at once; else a window at a time, and the pages that it left out one by
    // one. So is a single one that may be posted.
    std::int64_t read(std::uint32_t number, std::uint64_t offset, std::byte* to,
                      std::uint64_t bytes) override {
        const file_visit in(all_.states, number_, number);
        if (in.code() != 0) return in.code() == -EINVAL ? -EBADF : in.code();
        dedu_file* const file = all_.pages.file_at(number);
        const std::uint64_t end = end_of(*file), room = page_bytes();
        bytes = offset >= end ? 0 : std::min(bytes, end - offset);
        for (std::uint64_t done = 0; done < bytes;) {
            const page_id first{(offset + done) / room, number};
            if (const std::uint64_t in_page = (offset + done) % room,
                count = std::min(room - in_page, bytes - done);
                all_.pages.copy(first, to + done, in_page, count) == found_by_entry::taken) {
                hits_.push_back(first);
                tell_many();
                done += count;
                continue;
            }
            const std::uint64_t pages =
                std::min(window_.most_pages(), (offset + bytes - 1) / room - first.page + 1);
            const bool as_fixed = pages == 1 && has_free_frame() && may_post(*file);
            if (!as_fixed) window_.bring(*file, first, pages, hits_);
            for (std::uint64_t i = 0; i < pages; ++i) {
                const std::uint64_t at = offset + done, in_page = at % room,
                                    count = std::min(room - in_page, bytes - done);
                if (!as_fixed && window_.code_of(i) == 0) {
                    std::memcpy(to + done, window_.bytes_of(i) + in_page, count);
                } else if (const std::int64_t got =
                               paged_session::read(number, at, to + done, count);
                           got != static_cast<std::int64_t>(count)) {
                    return got < 0 && done == 0
                               ? got
                               : static_cast<std::int64_t>(done) + std::max<std::int64_t>(got, 0);
                }
                done += count;
            }
            tell_many();
        }
        return static_cast<std::int64_t>(bytes);
    }
    int flush(std::uint32_t file) override {
        const file_visit in(all_.states, number_, file);
        if (in.code() != 0) return in.code();
        flush_pages flush;
        do {
            if (const int code = ask({0, file}, flush); code != 0) return code;
            flush = std::get<flush_pages>(asked_.task);
        } while (flush.left > 0);
        return all_.pages.sync(file);
    }

    int resize(std::uint32_t number, std::uint64_t bytes) override {
        const file_visit in(all_.states, number_, number);
        if (in.code() != 0) return in.code();
        if (bytes >> 52 != 0) return -EINVAL;
        all_.lender.files.end_version(number);
        dedu_file* const file = all_.pages.file_at(number);
        const std::lock_guard alone(file->resizing);
        const std::uint64_t before = file->bytes, room = page_bytes();
        if (bytes < before) return cut(*file, number, bytes);
        // No caller was told what a page holds behind the end, so it must not become bytes of the
        // file.
        const auto nothing_more = [] {};
        const page_id last{before / room, number};
        if (const int code = clear_rest(last, before % room, nothing_more); code != 0) return code;
        return file->grow(bytes, room);
    }
    int forget(std::uint32_t number, std::uint64_t first_page, std::uint64_t pages) override {
        const file_visit in(all_.states, number_, number);
        if (in.code() != 0) return in.code();
        const std::uint64_t end = pages > ~first_page ? ~std::uint64_t{0} : first_page + pages;
        const deadline until = all_.wait_until();
        const int fd = all_.pages.file_at(number)->fd;
        return forget_lent(all_.lender.files, number, fd, first_page, end, [&](std::uint64_t) {
            const int code = all_.forget(asked_, number, first_page, end, until);
            if (code != 0) return code;
            return all_.states.await_fixed(number, first_page, end, number_,
                                           until);  // copies from before
        });
    }
    void prefetch(std::uint32_t number, std::uint64_t first_page, std::uint64_t pages) override {
        const file_visit in(all_.states, number_, number);
        if (in.code() != 0 || rescue() != 0) return;
        dedu_file* const file = all_.pages.file_at(number);
        pages = std::min(pages, most_ahead(all_.settings));
        for (std::uint64_t done = 0; done < pages && first_page + done < file->pages;) {
            const std::uint64_t count =
                std::min({window_.most_pages(), pages - done, file->pages - first_page - done});
            if (!window_.bring_ahead(*file, {first_page + done, number}, count, hits_)) return;
            done += count;
        }
    }

    [[nodiscard]] std::uint32_t number() const override { return number_; }
    void tell_hits() final {
        if (!hits_.empty() || has_posted_) ask({}, buffer::tell_hits{});
    }

protected:
    [[nodiscard]] std::uint64_t page_bytes() const override { return all_.settings.page_bytes; }
    [[nodiscard]] int find_size(std::uint32_t file, std::uint64_t& bytes) const override {
        const file_visit in(all_.states, number_, file);
        if (in.code() != 0) return in.code() == -EINVAL ? -EBADF : in.code();
        bytes = end_of(*all_.pages.file_at(file));
        return 0;
    }

private:
    // As many uses are told at once, if no thread is at work just then; else it may be some times
    // as many.
    static constexpr std::size_t most_hits = 64, most_untold_hits = 8 * most_hits;
    static constexpr int posted = 1;  // the page is here, and its load is the buffer's

    // Pages behind a new end go before the size does (cut).
    [[nodiscard]] std::uint64_t end_of(const dedu_file& file) const {
        return std::min<std::uint64_t>(file.bytes, file.pages * page_bytes());
    }
    template <typename Bring>
    int begin(page_id id, use_kind kind, fixed_page& out, const Bring& bring) {
        const file_visit in(all_.states, number_, id.file, file_visit::purpose::fix);
        if (in.code() != 0) return in.code();
        const dedu_file* const file = all_.pages.file_at(id.file);
        if (id.page >= file->pages) return -EINVAL;
        if (kind == use_kind::write && !file->is_writable) return -EACCES;
        if (!has_free_frame()) return -EBUSY;
        out = {all_.pages.frame_at(free_.back()), id, free_.back(), kind};
        if (const int code = bring(out.data, all_.wait_until()); code != 0) return code;
        free_.pop_back();
        out.place = all_.states.hold(number_, id);
        return 0;
    }
    // While a call waits the file may be closed, or cut before the page.
    int look_again(page_id id) {
        if (const int code = all_.states.renew(number_, id.file); code != 0) return code;
        return id.page < all_.pages.file_at(id.file)->pages ? 0 : -EINVAL;
    }

    // The page's bytes come to `to`, which is frame `frame`. The thread that owns it does so
    // afterwards.
    int bring(page_id id, std::uint32_t frame, std::byte* to, bool is_owned, deadline until) {
        for (std::uint32_t round = 0;; ++round) {
            const found_by_entry answer = all_.pages.copy(id, to, 0, page_bytes());
            if (answer == found_by_entry::taken) {
                hits_.push_back(id);
                return 0;
            }
            const int code =
                answer == found_by_entry::absent ? bring_absent(id, frame, to, is_owned) : -EAGAIN;
            if (code != -EAGAIN) return code;
            if (std::chrono::steady_clock::now() > until) return -ETIMEDOUT;
            pause_between_looks(round);
            if (const int gone = look_again(id); gone != 0) return gone;
        }
    }
    // -EAGAIN: something has changed meanwhile, or another thread is at it.
    int bring_absent(page_id id, std::uint32_t frame, std::byte* to, bool is_owned) {
        owned_entry& page = all_.pages.page(id);
        std::uint32_t where = page.where();
        if (where >= owned_entry::first_slot) return -EAGAIN;
        if (where == owned_entry::elsewhere) return ask(id, touch_page{to});
        if (where == owned_entry::unwritten) return ask(id, rescue_pages{to});
        if (const int code = rescue(); code != 0) return code;
        if (!is_owned && !page.own(where)) {
            all_.requests.help();
            return -EAGAIN;
        }
        const int code = owned_entry::is_in_its_file(where)
                             ? load(id, frame, to, where == owned_entry::incomplete, is_owned)
                             : -EAGAIN;
        if (code == posted) return 0;
        if (!is_owned) page.disown();
        return code;
    }
    // The owner of the page looks again whether the file has it: resize() says first that it has
    // not, and then waits for owners.
    int load(page_id id, std::uint32_t frame, std::byte* to, bool is_known, bool stays_owned) {
        const dedu_file& file = *all_.pages.file_at(id.file);
        if (id.page >= file.pages) return -EINVAL;
        stopwatch watch;
        const bool has_begun = may_post(file) && all_.pages.begin_read(begun_, id, to),
                   was_kept = has_begun && finish();
        if (const int code = all_.pages.read_page(id, to, &begun_); code != 0) return code;
        const bool posts = has_begun && !stays_owned;
        hashed_blocks& blocks = posts ? posted_blocks_ : asked_blocks_;
        load_page request{.bytes = to, .blocks = &blocks, .disowns = posts};
        request.read_ns = was_kept ? 0 : watch.ns();
        watch = {};
        blocks.name(to, frame, all_.shape.frame_bytes);
        all_.search.hash(id, blocks, is_known);  // content_search (3)
        request.look_ns = watch.ns() + std::exchange(late_ns_, 0);
        if (!posts) return ask(id, request);
        post(id, frame, request);
        return posted;
    }
    // What was posted before is done.
    void post(page_id id, std::uint32_t frame, const load_page& request) {
        posted_.id = id;
        posted_.task = request;
        posted_.hits = &posted_hits_;
        posted_hits_.swap(hits_);
        posted_frame_ = frame;
        has_posted_ = true;
        all_.requests.post(posted_);
    }
    // True: it took longer than the read that was begun before.
    bool finish() {
        if (!std::exchange(has_posted_, false)) return false;
        const stopwatch watch;
        all_.requests.finish(posted_);
        if (!begun_.has_ended()) return false;
        late_ns_ += std::min(watch.ns(), posted_blocks_.search_ns);
        return true;
    }
    // All or nothing, as file_changes::cut.
    int cut(dedu_file& file, std::uint32_t number, std::uint64_t bytes) {
        const std::uint64_t room = page_bytes(), pages_before = file.pages;
        const std::uint64_t first = (bytes + room - 1) / room, all = ~std::uint64_t{0};
        const auto set_end = [&] { file.bytes = bytes; };
        file.pages = first;
        int code = all_.states.await_fixed(number, bytes / room, all, number_, all_.wait_until());
        if (code == 0) code = clear_rest({bytes / room, number}, bytes % room, set_end);
        if (code != 0) {
            file.pages = pages_before;
            return code;
        }
        return all_.forget(asked_, number, first, file.room, deadline::max());
    }
    // The page has zeros from there on, and then `done` is called. One that is nowhere is read so
    // from its file; so is one that holds what the file has. It is owned before that is looked at:
    // the thread that loads it may have asked for the size before.
    template <typename Done>
    int clear_rest(page_id last, std::uint64_t from, const Done& done) {
        if (from == 0) {
            done();
            return 0;
        }
        if (!has_free_frame()) return -EBUSY;
        const deadline until = all_.wait_until();
        if (const int code = own(last, until); code != 0) return code;
        int code = ask(last, forget_page{.spares_dirty = true});
        const fixed_page whole{all_.pages.frame_at(free_.back()), last, free_.back(),
                               use_kind::write};
        if (code == -EBUSY && (code = bring(last, whole.frame, whole.data, true, until)) == 0) {
            std::memset(whole.data + from, 0, page_bytes() - from);
            replace(whole, false);
        }
        if (code == 0) done();
        all_.pages.page(last).disown();
        return code;
    }
    void replace(const fixed_page& page, bool counts) {
        asked_blocks_.name(page.data, page.frame, all_.shape.frame_bytes);
        all_.search.hash(page.id, asked_blocks_, true);
        ask(page.id, replace_page{page.data, &asked_blocks_, counts});
    }
    int own(page_id id, deadline until) {
        std::uint32_t where = 0;
        for (std::uint32_t round = 0; !all_.pages.page(id).own(where); ++round) {
            if (std::chrono::steady_clock::now() > until) return -ETIMEDOUT;
            all_.requests.help();
            pause_between_looks(round);
            if (const int gone = look_again(id); gone != 0) return gone;
        }
        if (id.page < all_.pages.file_at(id.file)->pages) return 0;  // still: see load()
        all_.pages.page(id).disown();
        return -EINVAL;
    }
    // What could not be written is, before anything else may have to go: so it does not become more
    // and more.
    int rescue() { return all_.unwritten.has_any() ? ask({}, rescue_pages{nullptr}) : 0; }

    void tell_many() {
        if (hits_.size() >= most_untold_hits ||
            (hits_.size() >= most_hits && all_.requests.is_idle()))
            tell_hits();
    }
    int ask(page_id id, const dedu_request::operation& task) {
        asked_.id = id;
        asked_.task = task;
        asked_.hits = &hits_;
        all_.requests.submit(asked_);
        if (std::exchange(has_posted_, false))
            late_ns_ += posted_blocks_.search_ns;  // it came before
        return asked_.code;
    }
    // Whether a reader of a page of the file posts its load, and does not wait for it. Not where
    // one thread has to hit exactly where the core would.
    [[nodiscard]] bool may_post(const dedu_file& file) const {
        return file.begins_reads && all_.dedu.adaptive;
    }
    // One of them stays: what is posted may lie there.
    [[nodiscard]] bool has_free_frame() const { return free_.size() > 1; }

    dedu_shared& all_;
    const std::uint32_t number_;
    dedu_request asked_;
    hashed_blocks asked_blocks_, posted_blocks_;
    dedu_window window_;
    begun_read begun_;
    dedu_request posted_;  // the load of a page that it has read last, and that is the buffer's for
                           // the thread that comes first to do it
    std::vector<page_id> posted_hits_;  // from before that
    std::uint32_t posted_frame_ = 0;    // where the page's bytes are
    bool has_posted_ = false;           // and it may not be done yet
    // By which it was kept waiting since blocks of posted pages were looked for.
    std::uint64_t late_ns_ = 0;
    std::vector<page_id> hits_;  // not told to the order yet
    std::vector<std::uint32_t>
        free_;  // first frames of pages of its own; what is posted lies in the first or in none
    std::vector<page_id> fresh_;  // of the pages it has fixed, those that were not read
};

}  // namespace

std::unique_ptr<session> make_dedu_session(dedu_shared& all, std::uint32_t number) {
    return std::make_unique<dedu_session>(all, number);
}

}  // namespace penstock::buffer
