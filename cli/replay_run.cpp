// Plays a trace through a buffer manager against its files, by several threads.
#include "replay_run.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <sys/stat.h>
#include <utility>

#include "buffer/pool/device_frames.hpp"
#include "buffer/pool/manager.hpp"
#include "common/files.hpp"
#include "common/message.hpp"
#include "common/process.hpp"
#include "common/threads.hpp"
#include "penstock/runtime.hpp"

namespace penstock::replay {

namespace {

using apps::unique_fd;
using buffer::page_id;
using buffer::use_kind;

constexpr std::size_t records_at_once = 64;

status refused(const std::string& path, int code, const std::string& cure) {
    return {code, apps::shown(path) + ": " + error_text(code) + "; " + apps::cure_for(code, cure)};
}

status open_files(const trace::trace_header& header, const run_settings& settings,
                  std::vector<unique_fd>& out) {
    for (const trace::file_entry& entry : header.files) {
        struct stat facts {};
        if (status s = apps::look_at_input(entry.path, "name a file in the trace that you may read",
                                           facts);
            !s)
            return s;
        const int flags = (settings.writes ? O_RDWR : O_RDONLY) | (settings.cached ? 0 : O_DIRECT) |
                          O_CLOEXEC | O_NOCTTY;
        const unique_fd& file = out.emplace_back(::open(entry.path.c_str(), flags));
        if (file < 0 && errno == EINVAL && !settings.cached)
            return refused(entry.path, -EINVAL,
                           "its file system cannot read past the page cache, give --cached");
        if (file < 0)
            return refused(entry.path, -errno,
                           settings.writes ? "name a file in the trace that you may read and write"
                                           : "name a file in the trace that you may read");
        if (::fstat(file, &facts) != 0)
            return refused(entry.path, -errno, "is the file still there?");
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
    file_player(std::unique_ptr<buffer::session> session, const trace::trace_header& header,
                bool verify)
        : session_(std::move(session)),
          header_(header),
          contents_(header),
          expected_(verify ? header.page_bytes : 0) {}

    status play(const trace::record& record) {
        if (record.kind == trace::operation::flush) {
            ++flushes;
            const int code = session_->flush(record.file);
            return code == 0 ? status{} : failed(record, code, "flushing");
        }
        for (std::uint32_t i = 0; i < record.pages; ++i)
            if (status s = record.kind == trace::operation::read
                               ? read({record.page + i, record.file})
                               : write({record.page + i, record.file}, record, i);
                !s)
                return s;
        return {};
    }
    std::uint64_t reads = 0, writes = 0, flushes = 0;

private:
    status failed(const trace::record& record, int code, const char* step) const {
        return {code, std::string(step) + " page " + std::to_string(record.page) + " of " +
                          apps::shown(header_.files[record.file].path) + ": " + error_text(code) +
                          "; is its disk in order, and has it room?"};
    }
    status read(page_id id) {
        buffer::fixed_page page;
        if (const int code = session_->fix(id, use_kind::read, page); code != 0)
            return failed({.page = id.page, .file = id.file}, code, "reading");
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
            record.has_content
                ? record.content + i
                : trace::most_content + mix64(record.time_ns ^ id.page << 20 ^ ++made_up_) / 4;
        buffer::fixed_page page;
        if (const int code = session_->fix_fresh(id, page); code != 0)
            return failed(record, code, "writing");
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

    std::unique_ptr<buffer::session> session_;
    const trace::trace_header& header_;
    page_contents contents_;
    std::vector<std::byte> expected_;  // room for a page; empty: nothing is compared
    std::uint64_t made_up_ = 0;
};

struct buffer_parts {
    std::vector<unique_fd> files;
    std::unique_ptr<buffer::device_frames> frames;
    std::unique_ptr<buffer::manager> all;
};

status make_buffer(const trace::trace_header& header, const buffer_shape& shape,
                   const run_settings& settings, buffer_parts& out, bool& on_gpu) {
    if (status s = open_files(header, settings, out.files); !s) return s;
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
                                          .dedu = settings.dedu};
    const bool chosen = settings.where != backend::automatic;
    if (status s = buffer::choose_frames(settings.where, 0, buffer::frames_for(wanted), out.frames,
                                         on_gpu);
        !s)
        return {s.code, (chosen ? std::string("--backend ") + name_of(settings.where) + ": " : "") +
                            s.message + "; give less with --ram and --gpu" +
                            (s.code == -ENODEV ? ", or --backend cpu" : "")};
    if (status s = buffer::manager::make(wanted, *out.frames, host::linux_environment(), out.all);
        !s)
        return {s.code, s.message + " (--ram, --threads)"};
    for (std::size_t i = 0; i < header.files.size(); ++i)
        if (const int code =
                out.all->add_file(out.files[i], header.files[i].pages * header.page_bytes);
            code < 0)
            return refused(header.files[i].path, code, "it is too long");
    return {};
}

status play_by_threads(trace::reader& from, const run_settings& settings, buffer::manager& all,
                       outcome& sum) {
    apps::first_error errors;
    std::mutex reading;  // guards `from` and `sum`
    apps::on_threads(settings.threads, [&](std::uint32_t) {
        file_player own_player(all.open_session(), from.header(), settings.verify);
        std::vector<trace::record> records;
        do {
            {
                const std::lock_guard hold(reading);
                errors.note(from.next(records, records_at_once));
            }
            for (std::size_t i = 0; i < records.size() && !errors.stop(); ++i)
                errors.note(own_player.play(records[i]));
            if (was_interrupted())
                errors.note({-ECANCELED, "interrupted; what was written so far is in the files"});
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
    status first;
    for (std::uint32_t file = 0; file < header.files.size(); ++file)
        if (const int code = session->flush(file); code != 0 && first.ok())
            first = refused(header.files[file].path, code, "not all that was written is in it");
    return first;
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
    if (status s = make_buffer(header, shape, settings, parts, out.on_gpu); !s) return s;
    apps::stopwatch watch;
    status ended = play_by_threads(from, settings, *parts.all, out);
    out.seconds = watch.lap();
    out.counts = parts.all->counts();
    out.held = parts.all->contents();
    const status flushed = settings.writes ? flush_all(header, *parts.all) : status{};
    out.flush_seconds = watch.lap();
    return ended.ok() ? flushed : ended;
}

}  // namespace penstock::replay
