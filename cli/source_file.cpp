#include "source_file.hpp"

#include <algorithm>
#include <cerrno>
#include <new>

#include "common/message.hpp"
#include "os/file_kind.hpp"

namespace penstock::apps {

std::string cure_of_reading(std::int64_t code, const char* instead) {
    switch (-code) {
        case ENOENT: return "name a file that exists";
        case ENOTDIR: return "a part of the name is a file and not a directory; correct it";
        case EACCES:
        case EPERM: return "change its permissions, or run as a user that may read it";
        case EISDIR: return "name a file in it";
        case EOPNOTSUPP: return std::string("use ") + instead + " for this one";
        case ESTALE: return "it changed while it was read; run again";
        case ENFILE: return "give fewer files, or set PENSTOCK_MAX_FILES higher";
        case ENOMEM: return "set PENSTOCK_TABLE higher";
        case ENOBUFS: return "give a larger --cache";
        case EMFILE: return "raise the limit on open files (ulimit -n)";
        default: return "nothing more is known; run penstock info";
    }
}

status about_source(const std::string& name, std::int64_t code, const char* instead) {
    return {static_cast<int>(code),
            shown(name) + ": " + error_text(code) + "; " + cure_of_reading(code, instead)};
}

status look_at_source(const std::string& name, const char* instead, struct stat& facts) {
    host::file_kind kind = host::file_kind::regular;
    if (const int code = host::look_at_file(name, facts, kind); code != 0)
        return about_source(name, code, instead);
    if (kind == host::file_kind::regular) return {};
    if (kind == host::file_kind::directory) return about_source(name, -EISDIR, instead);
    if (kind == host::file_kind::special) return about_source(name, -EOPNOTSUPP, instead);
    return {-EOPNOTSUPP, shown(name) + ": " + host::why_not_by_size(kind) + ", or use " + instead +
                             " for this one"};
}

}  // namespace penstock::apps

namespace penstock::cat {

ordered_reader::ordered_reader(runtime& rt, const std::vector<open_file>& files,
                               std::uint64_t piece_bytes, std::uint32_t readers)
    : rt_(rt), files_(files), piece_bytes_(piece_bytes) {
    for (const open_file& file : files_) total_ += pieces_of(file);
    const auto threads = static_cast<std::uint32_t>(std::min<std::uint64_t>(readers, total_));
    slots_.resize(std::size_t{threads} * 2);
    threads_.reserve(threads);
    try {
        for (std::uint32_t i = 0; i < threads; ++i)
            threads_.emplace_back([this] { read_pieces(); });
    } catch (...) {
        stop();
        throw;
    }
}

ordered_reader::~ordered_reader() { stop(); }

void ordered_reader::stop() {
    {
        std::lock_guard lock(mutex_);
        stop_ = true;
    }
    room_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

std::uint64_t ordered_reader::pieces_of(const open_file& file) const {
    return file.size_bytes / piece_bytes_ + (file.size_bytes % piece_bytes_ != 0 ? 1 : 0);
}

bool ordered_reader::next(piece& out) {
    std::unique_lock lock(mutex_);
    if (handed_out_ == total_) return false;
    slot& from = slots_[handed_out_ % slots_.size()];
    arrived_.wait(lock, [&] { return from.ready; });
    std::swap(out, from.content);
    from.ready = false;
    ++handed_out_;
    lock.unlock();
    room_.notify_one();
    return true;
}

void ordered_reader::read_pieces() {
    std::unique_lock lock(mutex_);
    for (;;) {
        room_.wait(lock, [&] {
            return stop_ || started_ == total_ || started_ < handed_out_ + slots_.size();
        });
        if (stop_ || started_ == total_) return;
        slot& to = slots_[started_++ % slots_.size()];
        while (number_in_file_ == pieces_of(files_[file_])) {
            ++file_;
            number_in_file_ = 0;
        }
        to.content.file = file_;
        const std::uint64_t number = number_in_file_++;
        lock.unlock();
        fill(to.content, number);
        lock.lock();
        to.ready = true;
        arrived_.notify_one();
    }
}

void ordered_reader::fill(piece& out, std::uint64_t number_in_file) {
    const open_file& file = files_[out.file];
    const std::uint64_t begin = number_in_file * piece_bytes_;
    const std::uint64_t wanted = std::min(piece_bytes_, file.size_bytes - begin);
    out.error = 0;
    try {
        out.bytes.resize(wanted);
    } catch (const std::bad_alloc&) {
        out.error = -ENOMEM;
        out.bytes.clear();
        return;
    }
    for (std::uint64_t done = 0; done < wanted;) {
        const std::int64_t got =
            rt_.read(file.fd, out.bytes.data() + done, static_cast<std::int64_t>(wanted - done),
                     static_cast<std::int64_t>(begin + done));
        // A read that stops early is asked again and then says why; 0 would mean that the file
        // ended before its size.
        if (got <= 0) {
            out.error = got < 0 ? got : -ESTALE;
            out.bytes.clear();
            return;
        }
        done += static_cast<std::uint64_t>(got);
    }
}

}  // namespace penstock::cat
