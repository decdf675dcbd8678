#include "import.hpp"

#include <algorithm>
#include <sys/stat.h>

#include "common/message.hpp"
#include "common/process.hpp"
#include "trace_lines.hpp"

namespace penstock::trace {

namespace {

constexpr std::size_t records_at_once = 4096;

status check_input(const std::string& path) {
    struct stat facts {};
    if (::stat(path.c_str(), &facts) != 0 || S_ISREG(facts.st_mode) || S_ISDIR(facts.st_mode))
        return {};  // opening it tells
    return {-EINVAL, apps::shown(path) + ": is no regular file, and is read twice; copy it to one"};
}

// All lines of the input, once.
status read_all(const import_request& asked, import_report& report, writer* to,
                std::vector<file_entry>& files) {
    byte_source from;
    if (status s = from.open(
            asked.input, asked.from == recorder::fio ? "log of fio" : "text that blkparse printed",
            usual_piece_bytes, most_line_bytes + 1);
        !s)
        return s;
    line_source lines(from);
    import_sink sink(asked, report, to);
    const std::unique_ptr<importer> kind =
        asked.from == recorder::fio ? make_fio_importer(asked) : make_blkparse_importer(asked);
    for (std::string_view line; lines.next(line);) {
        if (const std::string wrong = kind->take(line, sink); !wrong.empty())
            return lines.wrong(wrong);
        if (status s = sink.drain(records_at_once); !s) return s;
    }
    if (!lines.status()) return lines.status();
    if (const std::string wrong = kind->finish(); !wrong.empty())
        return {-EINVAL, apps::shown(asked.input) + ": " + wrong};
    report.lines = lines.number();
    files = sink.files();
    return sink.drain(0);
}

status settle_files(const import_request& asked, import_report& report) {
    std::vector<file_entry>& files = report.header.files;
    if (!asked.file.empty()) {
        if (files.size() > 1)
            return {-EINVAL, apps::shown(asked.input) + ": has accesses to " +
                                 std::to_string(files.size()) +
                                 " files, so --file cannot name one; leave it out"};
        files[0].path = asked.file;
    }
    for (file_entry& file : files) {
        if (const std::string wrong = check_path(file.path); !wrong.empty())
            return {-EINVAL, "the file's name: " + wrong};
        file.pages = std::max<std::uint64_t>(file.pages, 1);
        if (asked.pages == 0) continue;
        if (file.pages > asked.pages)
            return {-EINVAL, "--pages: " + std::to_string(asked.pages) + " is too few, since " +
                                 apps::shown(file.path) + " is accessed up to page " +
                                 std::to_string(file.pages - 1) + "; give at least " +
                                 std::to_string(file.pages)};
        file.pages = asked.pages;
    }
    return {};
}

std::uint64_t records_of(const import_report& r) { return r.reads + r.writes + r.flushes; }

}  // namespace

std::uint32_t import_sink::file(const std::string& path) {
    files_.push_back({path, 0});
    return static_cast<std::uint32_t>(files_.size() - 1);
}

std::string import_sink::access(operation what, std::uint32_t file, std::uint64_t time_ns,
                                std::uint64_t offset, std::uint64_t bytes) {
    if (offset > most_file_bytes || bytes > most_file_bytes - offset)
        return "ends behind byte 2^62; no file is so long";
    const std::uint64_t first = offset / page_bytes_,
                        end = (offset + bytes + page_bytes_ - 1) / page_bytes_;
    if (end - first > UINT32_MAX)
        return "has " + apps::with_commas(end - first) + " pages; a record has at most " +
               apps::with_commas(UINT32_MAX);
    if ((offset | bytes) % page_bytes_ != 0) ++report_.widened;
    ++(what == operation::read ? report_.reads : report_.writes);
    files_[file].pages = std::max(files_[file].pages, end);
    put({time_ns, first, 0, file, static_cast<std::uint32_t>(end - first), what, false});
    return {};
}

void import_sink::flush(std::uint32_t file, std::uint64_t time_ns) {
    ++report_.flushes;
    put({time_ns, 0, 0, file, 0, operation::flush, false});
}

void import_sink::put(record r) {
    if (r.time_ns < last_ns_) ++report_.late;
    r.time_ns = last_ns_ = std::max(last_ns_, r.time_ns);
    if (to_ != nullptr) made_.push_back(r);
}

status import_sink::drain(std::size_t most_left) {
    if (made_.size() <= most_left) return {};
    status s = to_->add(made_);
    made_.clear();
    return s;
}

status import_trace(const import_request& asked, import_report& out) {
    apps::stopwatch watch;
    if (status s = check_input(asked.input); !s) return s;
    out.header.page_bytes = asked.page_bytes;
    if (status s = read_all(asked, out, nullptr, out.header.files); !s) return s;
    if (records_of(out) == 0) {
        const std::string more = asked.from == recorder::blkparse
                                     ? std::string(" with the action ") + asked.action +
                                           "; give the right --action, or another input"
                                     : "; give another input";
        return {-EINVAL, apps::shown(asked.input) + ": has no read, write or flush" + more};
    }
    if (status s = settle_files(asked, out); !s) return s;

    writer to;
    if (status s = to.open(asked.out, asked.input, out.header, asked.binary); !s) return s;
    import_report again;
    std::vector<file_entry> files;
    if (status s = read_all(asked, again, &to, files); !s) return s;
    bool same = records_of(again) == records_of(out) && files.size() == out.header.files.size();
    for (std::size_t f = 0; same && f < files.size(); ++f)
        same = files[f].pages <= out.header.files[f].pages;
    if (!same)
        return {-ESTALE, apps::shown(asked.input) +
                             ": changed while it was read; run again when no program writes to it"};
    if (status s = to.commit(); !s) return s;
    out.seconds = watch.lap();
    return {};
}

}  // namespace penstock::trace
