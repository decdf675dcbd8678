#include "region/home_writer.hpp"

#include <algorithm>
#include <cstring>

#include "files/marked_runs.hpp"
#include "os/file_kind.hpp"
#include "os/size_signal.hpp"

namespace penstock::region {

namespace {

// Of a page with more runs than this the whole is written, where no other program writes meanwhile.
constexpr unsigned most_runs = 8;
// So many runs are given to the environment at a time.
constexpr std::size_t most_pieces = 16384;

// Room of the calling thread, kept from release to release. Null: a region in a global variable
// closes at the end of the program, and what its thread kept has gone before.
std::vector<std::byte>* room_of_thread() {
    static thread_local bool is_gone = false;
    struct kept_room {
        std::vector<std::byte> bytes;
        ~kept_room() { is_gone = true; }
    };
    static thread_local kept_room kept;
    return is_gone ? nullptr : &kept.bytes;
}

class run_writer {
public:
    run_writer(host::environment& env, int fd) : env_(env), fd_(fd) {}

    // `staged`: where in the staged pages the bytes lie, or the changes that they have. Joined with
    // the run before, if it lies behind that in the file and in memory.
    bool put(const std::byte* from, std::uint64_t bytes, std::uint64_t offset,
             std::uint64_t staged) {
        if (bytes_ != 0 && offset == offset_ + bytes_ && from == from_ + bytes_) {
            bytes_ += bytes;
            return true;
        }
        if (!flush()) return false;
        from_ = from;
        bytes_ = bytes;
        offset_ = offset;
        out_.settled = staged;
        return true;
    }
    bool flush() {
        int again = 0;
        while (bytes_ != 0) {
            // A write behind the end would make the file as long again as it was before another
            // program cut it. So the end is looked at before each call: what is cut between the two
            // is the part that is left (docs/guide/limits.md).
            const std::int64_t size = env_.size_bytes(fd_);
            if (size < 0) return fail(static_cast<int>(size));
            if (offset_ + bytes_ > static_cast<std::uint64_t>(size)) return fail(-ESTALE);
            const host::memory_piece piece{from_, bytes_};
            const std::int64_t done = env_.write(fd_, &piece, 1, offset_);
            if ((done == -EINTR || done == -EAGAIN) && ++again < host::most_attempts) continue;
            if (done <= 0) return fail(done < 0 ? static_cast<int>(done) : -EIO);
            const auto count = static_cast<std::uint64_t>(done);
            out_.bytes += count;
            out_.settled += count;
            from_ += count;
            offset_ += count;
            bytes_ -= count;
        }
        return true;
    }
    // So many bytes are in the file already, and all that is marked before `staged`. Only where
    // nothing is left of an earlier put.
    void note_written(std::uint64_t bytes, std::uint64_t staged) {
        out_.bytes += bytes;
        out_.settled = staged;
    }
    bool fail(int code) {
        out_.code = code;
        bytes_ = 0;
        return false;
    }
    written_pages all_done(std::uint64_t staged) {
        out_.settled = staged;
        return out_;
    }
    [[nodiscard]] const written_pages& so_far() const { return out_; }

private:
    host::environment& env_;
    const int fd_;
    written_pages out_;
    const std::byte* from_ = nullptr;
    std::uint64_t bytes_ = 0, offset_ = 0;
};

// Makes the runs of pages, and writes them a few thousand at a time.
class page_writer {
public:
    page_writer(host::environment& env, int fd, const staged_pages& pages)
        : env_(env), fd_(fd), pages_(pages), out_(env, fd) {}

    written_pages write() {
        const std::size_t count = pages_.numbers.size();
        for (std::size_t i = 0; i < count && start_of(i) < pages_.end_bytes;) {
            std::size_t end = i;
            while (end < count &&
                   (end == i || pages_.numbers[end] == pages_.numbers[end - 1] + 1) &&
                   is_whole(end))
                ++end;
            const bool done = end == i ? add_runs(i) : add_whole(i, end);
            if (!done) return out_.so_far();
            i = std::max(end, i + 1);
        }
        if (!flush()) return out_.so_far();
        return out_.all_done(count * page_bytes);
    }

private:
    [[nodiscard]] std::uint64_t start_of(std::size_t i) const {
        return pages_.numbers[i] * page_bytes;
    }
    [[nodiscard]] std::uint64_t limit_of(std::size_t i) const {
        return start_of(i) >= pages_.end_bytes
                   ? 0
                   : std::min(page_bytes, pages_.end_bytes - start_of(i));
    }
    [[nodiscard]] bool is_whole(std::size_t i) const {
        if (pages_.exactly || limit_of(i) == 0) return false;
        unsigned runs = 0;
        return !for_runs_of(i, [&](std::uint64_t, std::uint64_t) { return ++runs <= most_runs; });
    }

    // each(begin, end) for each run of the page, until it returns false; returns that.
    template <typename Each>
    bool for_runs_of(std::size_t i, const Each& each) const {
        return host::for_marked_runs(pages_.marks + i * mark_bytes, limit_of(i), each);
    }
    bool add_runs(std::size_t i) {
        return for_runs_of(i, [&](std::uint64_t begin, std::uint64_t end) {
            return add(pages_.bytes + i * page_bytes + begin, end - begin, start_of(i) + begin,
                       i * page_bytes + begin);
        });
    }
    // Pages that follow each other: what the file has, and the changes in it.
    bool add_whole(std::size_t first, std::size_t end) {
        std::vector<std::byte>* const kept = room_of_thread();
        std::vector<std::byte>& merged = kept != nullptr ? *kept : own_room_;
        merged.resize(std::max<std::size_t>(merged.size(), pages_.numbers.size() * page_bytes));
        std::byte* const room = merged.data() + first * page_bytes;
        const std::uint64_t bytes = (end - 1 - first) * page_bytes + limit_of(end - 1);
        const std::int64_t there = host::read_all(env_, fd_, room, bytes, start_of(first));
        if (there != static_cast<std::int64_t>(bytes))
            return flush() && out_.fail(there < 0 ? static_cast<int>(there) : -ESTALE);
        for (std::size_t i = first; i < end; ++i)
            for_runs_of(i, [&](std::uint64_t begin, std::uint64_t last) {
                std::memcpy(room + (i - first) * page_bytes + begin,
                            pages_.bytes + i * page_bytes + begin, last - begin);
                return true;
            });
        return add(room, bytes, start_of(first), first * page_bytes);
    }
    bool add(const std::byte* from, std::uint64_t bytes, std::uint64_t offset,
             std::uint64_t staged) {
        if (!runs_.empty()) {
            host::placed_piece& last = runs_.back();
            if (offset == last.offset + last.bytes && from == last.from + last.bytes) {
                last.bytes += bytes;
                bytes_ += bytes;
                return true;
            }
        }
        if (runs_.size() == most_pieces && !flush()) return false;
        runs_.push_back({from, bytes, offset});
        bytes_ += bytes;
        staged_.push_back(staged);
        return true;
    }
    // First by a mapping, which never makes the file longer; what that does not write, by calls,
    // which also tell why not.
    bool flush() {
        if (runs_.empty()) return true;
        const std::int64_t scattered =
            pages_.by_calls ? 0 : env_.write_scattered(fd_, runs_.data(), runs_.size());
        if (scattered == static_cast<std::int64_t>(bytes_)) {
            out_.note_written(bytes_, staged_.back() + runs_.back().bytes);
            forget_runs();
            return true;
        }
        std::uint64_t left =
            scattered < 0 ? 0
                          : static_cast<std::uint64_t>(scattered);  // of what is written already
        bool well = true;
        for (std::size_t i = 0; well && i < runs_.size(); ++i) {
            const auto& [from, bytes, offset] = runs_[i];
            const std::uint64_t written = std::min(left, bytes);
            left -= written;
            if (written != 0) out_.note_written(written, staged_[i] + written);
            if (written != bytes)
                well = out_.put(from + written, bytes - written, offset + written,
                                staged_[i] + written);
        }
        forget_runs();
        return well && out_.flush();
    }
    void forget_runs() {
        runs_.clear();
        staged_.clear();
        bytes_ = 0;
    }

    host::environment& env_;
    const int fd_;
    const staged_pages& pages_;
    run_writer out_;
    std::vector<std::byte> own_room_;
    std::vector<host::placed_piece> runs_;
    std::vector<std::uint64_t> staged_;  // of each run: where in the staged pages the bytes lie, or
                                         // the changes that they have
    std::uint64_t bytes_ = 0;            // of all runs
};

}  // namespace

written_pages write_marked(host::environment& env, int fd, const staged_pages& pages) {
    const host::without_size_signal guard;
    return page_writer(env, fd, pages).write();
}

}  // namespace penstock::region
