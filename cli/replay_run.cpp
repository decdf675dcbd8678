// Plays a trace through a buffer manager against its files, by several threads; or through the
// core of a buffer, which moves no bytes.
#include "replay_run.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <sys/stat.h>
#include <utility>

#include "buffer/core/check.hpp"
#include "buffer/core/core.hpp"
#include "buffer/core/movement.hpp"
#include "buffer/pool/device_frames.hpp"
#include "common/files.hpp"
#include "common/message.hpp"
#include "common/process.hpp"
#include "common/threads.hpp"
#include "penstock/runtime.hpp"

namespace penstock::replay {

namespace {

using apps::unique_fd;
using buffer::found;
using buffer::page_id;
using buffer::use_kind;

constexpr std::size_t records_at_once = 64;

status refused(const std::string& path, int code, const std::string& cure) {
    return {code, apps::shown(path) + ": " + error_text(code) + "; " + apps::cure_for(code, cure)};
}

// Writes to a file that is the trace would change what is still to be read.
status check_not_trace(const std::string& trace, const std::string& path,
                       const struct stat& facts) {
    struct stat of_trace {};
    if (::stat(trace.c_str(), &of_trace) != 0 || of_trace.st_dev != facts.st_dev ||
        of_trace.st_ino != facts.st_ino)
        return {};
    return {-EINVAL, apps::shown(path) +
                         " is the trace itself, which --writes would change; name another file in "
                         "the trace"};
}

status open_files(const std::string& trace, const trace::trace_header& header,
                  const run_settings& settings, std::vector<unique_fd>& out) {
    std::map<std::pair<dev_t, ino_t>, std::string> seen;
    for (const trace::file_entry& entry : header.files) {
        struct stat facts {};
        const char* const cure = settings.writes
                                     ? "name a file in the trace that you may read and write"
                                     : "name a file in the trace that you may read";
        if (status s = apps::look_at_input(entry.path, cure, facts); !s) return s;
        const int flags = (settings.writes ? O_RDWR : O_RDONLY) | (settings.cached ? 0 : O_DIRECT) |
                          O_CLOEXEC | O_NOCTTY;
        const unique_fd& file = out.emplace_back(::open(entry.path.c_str(), flags));
        if (file < 0 && errno == EINVAL && !settings.cached)
            return refused(entry.path, -EINVAL,
                           "its file system cannot read past the page cache, give --cached");
        if (file < 0) return refused(entry.path, -errno, cure);
        if (::fstat(file, &facts) != 0)
            return refused(entry.path, -errno, "is the file still there?");
        if (settings.writes)
            if (status s = check_not_trace(trace, entry.path, facts); !s) return s;
        const auto [known, is_new] = seen.try_emplace({facts.st_dev, facts.st_ino}, entry.path);
        if (!is_new)
            return {-EINVAL, apps::shown(entry.path) + " is the same file as " +
                                 apps::shown(known->second) +
                                 ", by a link or another name, and the trace has both; name a "
                                 "file of its own for each"};
        const std::uint64_t needed = entry.pages * header.page_bytes;
        if (static_cast<std::uint64_t>(facts.st_size) < needed)
            return {-EINVAL, apps::shown(entry.path) + " has " + std::to_string(facts.st_size) +
                                 " bytes, and the trace is of " + std::to_string(needed) +
                                 "; make it as long (penstock trace generate --data)"};
    }
    return {};
}

// A trace that writes changes its files: only where that was said. Read to its end before, which
// also finds what is wrong with it.
status check_trace(const std::string& path, const run_settings& settings) {
    struct stat facts {};
    if (::stat(path.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode))
        return {-EINVAL, apps::shown(path) + " is read twice; give a regular file"};
    trace::reader from;
    if (status s = from.open(path); !s) return s;
    std::vector<trace::record> records;
    do {
        if (status s = from.next(records, 4096); !s) return s;
        for (const trace::record& record : records)
            if (record.kind == trace::operation::write && !settings.writes)
                return {-EINVAL, apps::shown(path) +
                                     " has writes, which would change its files; give --writes if "
                                     "they may be changed"};
    } while (!records.empty());
    return {};
}

// One thread's part of the work.
class file_player {
public:
    // `made_up` counts the contents that writes without one got, of all threads: a page of each
    // number, so that no two are equal.
    file_player(buffer::manager& all, const trace::trace_header& header, bool verify,
                std::atomic<std::uint64_t>& made_up)
        : all_(all),
          session_(all.open_session()),
          header_(header),
          contents_(header),
          expected_(verify ? header.page_bytes : 0),
          made_up_(made_up) {}

    [[nodiscard]] bool has_session() const { return session_ != nullptr; }

    status play(const trace::record& record) {
        if (record.kind == trace::operation::flush) {
            ++flushes;
            const int code = session_->flush(record.file);
            if (code == 0) return {};
            return failed("flushing " + apps::shown(header_.files[record.file].path), {}, code);
        }
        status ended;
        for (std::uint32_t i = 0; i < record.pages && ended.ok(); ++i) {
            // A record may be of millions of pages.
            if (was_interrupted()) return {-ECANCELED, "interrupted"};
            const page_id id{record.page + i, record.file};
            ended = record.kind == trace::operation::read ? read(id) : write(id, record, i);
        }
        return ended;
    }
    std::uint64_t reads = 0, writes = 0, flushes = 0;

private:
    [[nodiscard]] std::string name_of(page_id id) const {
        return "page " + std::to_string(id.page) + " of " +
               apps::shown(header_.files[id.file].path);
    }
    // The page that was asked for, if one was, may have been kept out by another one that had to
    // leave and could not be written to its own file.
    [[nodiscard]] status failed(std::string step, std::optional<page_id> asked, int code) const {
        const std::optional<buffer::failed_write> blamed = all_.last_failed_write();
        const std::string cure = apps::cure_for(
            code, code == -ESTALE
                      ? "the file became shorter; run again when no program writes to it"
                      : "look after the disk that it is on");
        if (blamed && blamed->code == code && blamed->page != asked)
            step += ": " + name_of(blamed->page) + " had to be written back";
        return {code, step + ": " + error_text(code) + "; " + cure};
    }
    status read(page_id id) {
        buffer::fixed_page page;
        if (const int code = session_->fix(id, use_kind::read, page); code != 0)
            return failed("reading " + name_of(id), id, code);
        const bool right = is_right(id, page.data);
        session_->unfix(page, false);
        ++reads;
        if (right) return {};
        return {-EILSEQ, "page " + std::to_string(id.page) + " of " +
                             apps::shown(header_.files[id.file].path) +
                             " does not hold what the trace says; was the file made for this "
                             "trace, and not changed since?"};
    }
    status write(page_id id, const trace::record& record, std::uint32_t i) {
        const std::uint64_t content =
            record.has_content ? record.content + i : trace::most_content + made_up_.fetch_add(1);
        buffer::fixed_page page;
        if (const int code = session_->fix_fresh(id, page); code != 0)
            return failed("writing " + name_of(id), id, code);
        trace::fill_page(content, page.data, header_.page_bytes);
        session_->unfix(page, true);
        ++writes;
        if (!expected_.empty()) contents_.write(id, content);
        return {};
    }
    bool is_right(page_id id, const std::byte* bytes) {
        if (expected_.empty()) return true;
        trace::fill_page(contents_.of(id), expected_.data(), header_.page_bytes);
        return std::memcmp(expected_.data(), bytes, header_.page_bytes) == 0;
    }

    buffer::manager& all_;
    std::unique_ptr<buffer::session> session_;
    const trace::trace_header& header_;
    page_contents contents_;
    std::vector<std::byte> expected_;  // room for a page; empty: nothing is compared
    std::atomic<std::uint64_t>& made_up_;
};

struct buffer_parts {
    std::vector<unique_fd> files;
    std::unique_ptr<buffer::device_frames> frames;
    std::unique_ptr<buffer::manager> all;
};

status make_buffer(const std::string& trace, const trace::trace_header& header,
                   const buffer_shape& shape, const run_settings& settings, buffer_parts& out,
                   bool& on_gpu) {
    if (status s = open_files(trace, header, settings, out.files); !s) return s;
    const buffer::manager_settings wanted{.page_bytes = header.page_bytes,
                                          .host_pages = shape.limits.host_pages,
                                          .device_pages = shape.limits.device_pages,
                                          .sessions = settings.threads,
                                          .fixed_pages = 1,
                                          .files = shape.limits.files,
                                          .order = shape.order,
                                          .policy = shape.policy == buffer::policy_kind::dedu
                                                        ? buffer::policy_kind::dedu
                                                        : buffer::policy_kind::gram,
                                          .batch_pages = settings.batch_pages,
                                          .batch_wait_us = settings.batch_wait_us,
                                          .dedu = settings.dedu,
                                          .stands_back = settings.stands_back};
    const bool chosen = settings.where != backend::automatic;
    status s =
        buffer::choose_frames(settings.where, 0, buffer::frames_for(wanted), out.frames, on_gpu);
    if (!s)
        return {
            s.code,
            (chosen ? std::string("--backend ") + name_of(settings.where) + ": " : "") + s.message +
                (s.code == -ENODEV ? "; give --backend cpu" : "; give less with --ram and --gpu")};
    s = buffer::manager::make(wanted, *out.frames, host::linux_environment(), out.all);
    if (!s) return {s.code, s.message + " (--ram, --threads)"};
    for (std::size_t i = 0; i < header.files.size(); ++i)
        if (const int code =
                out.all->add_file(out.files[i], header.files[i].pages * header.page_bytes);
            code < 0)
            return refused(header.files[i].path, code, "it is too long");
    return {};
}

status no_session() {
    return {-ENOMEM, "no memory for another thread's session; give fewer --threads"};
}

status play_by_threads(trace::reader& from, const run_settings& settings, buffer::manager& all,
                       outcome& sum) {
    apps::first_error errors;
    std::mutex reading;  // guards `from` and `sum`
    std::atomic<std::uint64_t> made_up{0};
    apps::on_threads(settings.threads, [&](std::uint32_t) {
        file_player own_player(all, from.header(), settings.verify, made_up);
        if (!own_player.has_session()) {
            errors.note(no_session());
            return;
        }
        std::vector<trace::record> records;
        do {
            {
                const std::lock_guard hold(reading);
                errors.note(from.next(records, records_at_once));
            }
            for (std::size_t i = 0; i < records.size() && !errors.stop(); ++i)
                errors.note(own_player.play(records[i]));
            if (was_interrupted()) errors.note({-ECANCELED, "interrupted"});
        } while (!records.empty() && !errors.stop());
        const std::lock_guard hold(reading);
        sum.reads += own_player.reads;
        sum.writes += own_player.writes;
        sum.flushes += own_player.flushes;
    });
    return errors.get();
}

status flush_all(const trace::trace_header& header, buffer::manager& all) {
    const auto session = all.open_session();
    if (session == nullptr) return no_session();
    status first;
    for (std::uint32_t file = 0; file < header.files.size(); ++file)
        if (const int code = session->flush(file); code != 0 && first.ok())
            first = refused(header.files[file].path, code, "look after the disk that it is on");
    return first;
}

// However the replay ended, what it wrote is in the files, or the message says that it is not.
status end_of(const run_settings& settings, const status& played, const status& flushed) {
    if (!flushed.ok()) {
        const std::string lost = "not all that was written is in the files: " + flushed.message;
        return {flushed.code, played.ok() ? lost : played.message + "; " + lost};
    }
    if (played.code != -ECANCELED) return played;
    return {played.code, settings.writes ? "interrupted; what was written so far is in the files"
                                         : "interrupted; nothing was written"};
}

// The simulation.

constexpr std::size_t simulated_at_once = 4096, step = 4;

// Nothing is ever pinned here, so no access fails.
template <typename Order>
class player {
public:
    player(const trace::trace_header& header, const buffer_shape& shape, outcome& out)
        : contents_(header),
          dedu_(shape.policy == buffer::policy_kind::dedu),
          blocks_(shape.limits.blocks_per_page),
          out_(out) {}

    int make(const buffer::limits& limits) { return core_.make(limits); }

    // The core waits for little else than memory; what is to come is known here.
    PENSTOCK_FETCHING void look_ahead(const std::vector<trace::record>& records,
                                      std::size_t at) const {
        if (at + 3 * step >= records.size()) return;
        const auto first_page = [&](std::size_t i) {
            return page_id{records[i].page, records[i].file};
        };
        core_.expect_first(first_page(at + 3 * step));
        core_.expect_second(first_page(at + 2 * step));
        core_.expect_third(first_page(at + step));
    }

    // Memory goes by the number of records: one of 32 bytes may claim to write billions of pages.
    bool has_room(const trace::record& record) {
        constexpr std::uint64_t first_pages = 1u << 24, pages_of_a_record = 4096;
        room_ += pages_of_a_record;
        return !dedu_ || record.kind != trace::operation::write ||
               contents_.written_pages() + record.pages <= first_pages + room_;
    }

    void play(const trace::record& record) {
        if (record.kind == trace::operation::flush) {
            ++out_.flushes;
            core_.flush(record.file, moved_);
            return;
        }
        for (std::uint32_t i = 0; i < record.pages; ++i) {
            const page_id id{record.page + i, record.file};
            const found at = record.kind == trace::operation::read
                                 ? read(id)
                                 : write(id, record.has_content ? record.content + i
                                                                : page_contents::unlike_others);
            ++(at == found::host     ? out_.counts.host_hits
               : at == found::device ? out_.counts.device_hits
                                     : out_.counts.misses);
        }
    }

    // What moved, and what the core has in the end.
    void report() const {
        out_.counts.write_backs = moved_.written_pages;
        out_.counts.device_write_backs = moved_.written_from_device;
        out_.counts.demotions = moved_.demoted;
        out_.counts.promotions = moved_.promoted;
        out_.fills = moved_.filled;
        out_.dropped_pages = moved_.dropped_pages;
        const auto& end = core_.inside();
        out_.held.pages = end.pages.in_use();
        out_.held.blocks = end.blocks.in_use() - end.absent.size;
        out_.held.absent_blocks = end.absent.size;
        out_.held.pages_with_sharing = buffer::pages_with_sharing(end);
        out_.held.block_references = out_.held.pages * end.most.blocks_per_page;
        for (std::uint32_t file = 0; file < end.most.files; ++file)
            out_.dirty_pages += end.pages.dirty_pages(file);
    }

private:
    found read(page_id id) {
        found at;
        core_.touch(id, moved_, at);
        if (at == found::nowhere) {
            ++out_.counts.loads;
            core_.load(id, blocks_of(id), moved_);
        }
        ++out_.reads;
        return at;
    }
    found write(page_id id, std::uint64_t content) {
        found at = found::nowhere;
        ++out_.writes;
        if (dedu_) {
            contents_.write(id, content);
            core_.replace(id, blocks_of(id), moved_, at);
            return at;
        }
        core_.touch(id, moved_, at);
        found before;
        if (at != found::nowhere) core_.mark_dirty(id);
        else core_.replace(id, nullptr, moved_, before);
        return at;
    }

    // The contents of the page's blocks, good until the next call. Null: all alone.
    const buffer::content_id* blocks_of(page_id id) {
        const std::uint64_t content = dedu_ ? contents_.of(id) : page_contents::unlike_others;
        if (content == page_contents::unlike_others) return nullptr;
        for (std::uint32_t i = 0; i < blocks_; ++i) ids_[i] = {content, i};
        return ids_.data();
    }

    buffer::core<Order> core_;
    page_contents contents_;
    const bool dedu_;  // else every block is alone
    const std::uint32_t blocks_;
    outcome& out_;
    buffer::counts moved_;
    std::uint64_t room_ = 0;
    std::array<buffer::content_id, buffer::limits::most_blocks_per_page> ids_;
};

template <typename Order>
status play_all(trace::reader& from, const buffer_shape& shape, outcome& out) {
    player<Order> plays(from.header(), shape, out);
    if (plays.make(shape.limits) != 0)
        return {-ENOMEM, "there is no memory for the tables of " +
                             std::to_string(std::uint64_t{shape.limits.host_pages} +
                                            shape.limits.device_pages) +
                             " pages; give less with --ram and --gpu, or --table and --absent"};
    apps::stopwatch watch;
    std::vector<trace::record> records;
    do {
        if (status s = from.next(records, simulated_at_once); !s) return s;
        for (std::size_t i = 0; i < records.size(); ++i) {
            plays.look_ahead(records, i);
            if (!plays.has_room(records[i]))
                return {-EFBIG,
                        "a record that writes " + std::to_string(records[i].pages) +
                            " pages is more than so few records "
                            "may make dedu remember; write less at a time, or give --policy gram"};
            plays.play(records[i]);
        }
    } while (!records.empty());
    out.seconds = watch.lap();
    plays.report();
    return {};
}

}  // namespace

status run_against_files(const std::string& trace, const buffer_shape& shape,
                         const run_settings& settings, outcome& out) {
    if (status s = check_trace(trace, settings); !s) return s;
    trace::reader from;
    if (status s = from.open(trace); !s) return s;
    const trace::trace_header& header = from.header();
    if (settings.verify && !header.contents)
        return {-EINVAL, "--verify: the trace does not say what its pages hold; leave it out"};
    buffer_parts parts;
    if (status s = make_buffer(trace, header, shape, settings, parts, out.on_gpu); !s) return s;
    apps::stopwatch watch;
    const status played = play_by_threads(from, settings, *parts.all, out);
    out.seconds = watch.lap();
    out.counts = parts.all->counts();
    out.held = parts.all->contents();
    const status flushed = settings.writes ? flush_all(header, *parts.all) : status{};
    out.flush_seconds = watch.lap();
    return end_of(settings, played, flushed);
}

status simulate(trace::reader& from, const buffer_shape& shape, outcome& out) {
    return shape.order == buffer::order_kind::lru ? play_all<buffer::lru_order>(from, shape, out)
                                                  : play_all<buffer::clock_order>(from, shape, out);
}

}  // namespace penstock::replay
