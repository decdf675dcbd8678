#include "region/home_writer.hpp"

#include <algorithm>
#include <cstring>

#include "host/marked_runs.hpp"
#include "region/read_all.hpp"

namespace penstock::region {

namespace {

// Of a page with more runs than this, each of which costs a call, the whole is written, where nobody else writes meanwhile.
constexpr unsigned most_runs = 8;

class run_writer {
public:
    run_writer(host::environment& env, int fd) : env_(env), fd_(fd) {}

    // `staged`: where in the staged pages the bytes lie, or the changes that they have. Joined with the run before, if it lies behind that in the file and in memory.
    bool put(const std::byte* from, std::uint64_t bytes, std::uint64_t offset, std::uint64_t staged) {
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
        while (bytes_ != 0) {
            const host::memory_piece piece{from_, bytes_};
            const std::int64_t done = env_.write(fd_, &piece, 1, offset_);
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

unsigned count_runs(const host::marked_runs& runs, std::uint64_t limit) {
    unsigned count = 0;
    for (std::uint64_t at = 0, begin = 0; runs.next(at, begin, at) && begin < limit; ++count) {}
    return count;
}

}  // namespace

written_pages write_marked(host::environment& env, int fd, const staged_pages& pages) {
    run_writer out(env, fd);
    std::vector<std::byte> whole(page_bytes);
    for (std::size_t i = 0; i < pages.numbers.size(); ++i) {
        const std::uint64_t start = pages.numbers[i] * page_bytes, staged = i * page_bytes;
        if (start >= pages.end_bytes) break;
        const std::uint64_t limit = std::min(page_bytes, pages.end_bytes - start);
        const host::marked_runs runs(pages.marks + i * mark_bytes, page_bytes, false);
        const std::byte* const from = pages.bytes + staged;
        const bool as_a_whole = !pages.exactly && count_runs(runs, limit) > most_runs;
        if (as_a_whole) {
            if (!out.flush()) return out.so_far();
            const std::int64_t there = read_all(env, fd, whole.data(), limit, start);
            if (there != static_cast<std::int64_t>(limit)) {
                out.fail(there < 0 ? static_cast<int>(there) : -ESTALE);
                return out.so_far();
            }
        }
        for (std::uint64_t at = 0, begin = 0, end = 0; runs.next(at, begin, end) && begin < limit; at = end) {
            end = std::min(end, limit);
            if (as_a_whole) std::memcpy(whole.data() + begin, from + begin, end - begin);
            else if (!out.put(from + begin, end - begin, start + begin, staged + begin)) return out.so_far();
        }
        if (as_a_whole && !(out.put(whole.data(), limit, start, staged) && out.flush())) return out.so_far();
    }
    if (!out.flush()) return out.so_far();
    return out.all_done(pages.numbers.size() * page_bytes);
}

}  // namespace penstock::region
