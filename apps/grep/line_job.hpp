// Lines that hold a word: what a group does with a piece of a file, from its text to the output
// that it appends, and what it shares with the host.
//
// A job prints the lines that begin in its piece, to their ends, wherever those lie; so every line
// belongs to one job. Output goes through a buffer of the group into blocks at the end of one file,
// which all groups share, so no output is too long. A block begins with a header that names the
// block before it of the same job, and the job's result names the last. The host follows the blocks
// and puts jobs in order. Blocks of a job that failed and is run again are named by no result.
#pragma once

#include <cerrno>
#include <cstdint>

#include "common/work_items.hpp"
#include "count_job.hpp"
#include "penstock/text.hpp"
#include "penstock/write.hpp"

namespace penstock::grep {

struct block_header {
    std::uint64_t before;  // where the block before it begins, plus 1; 0: it is the first
    std::uint64_t bytes;   // of output behind the header
};

// Of a job, by its group.
struct line_result {
    std::uint64_t newlines;    // in the piece: of a pass that counts
    std::uint64_t last_block;  // where it begins, plus 1; 0: no output
    std::uint64_t lines;       // printed
    std::int64_t output_code;  // not 0: the output failed, and not the file that was read
};

// A group's scratch: text, a bit for each place where a word begins and where a line ends, digits,
// output.
struct line_scratch {
    static constexpr std::uint64_t positions = 16384;  // of a window, scanned at once
    static constexpr std::uint64_t output_bytes = 32768;

    std::uint64_t words[positions / 64];
    std::uint64_t ends[positions / 64];
    // Words are loaded whole, eight bytes from a multiple of eight.
    alignas(16) unsigned char text[positions + window_margin + 16];
    alignas(16) char digits[32];
    alignas(16) block_header header;
    char output[output_bytes];
};

struct line_view {
    dictionary_ref plain;
    dictionary_ref chained;
    bool has_chained;
    bool counts;       // a pass that counts line ends and prints nothing
    char behind_path;  // ':' or a zero byte
    int output;        // a descriptor of the file that blocks are appended to
    const job* jobs;
    std::uint64_t job_count;
    const std::uint64_t* lines_before;  // per job: line ends of its file before its piece
    const char* paths;                  // each ends with a zero byte
    const std::uint64_t* path_at;
    const std::uint64_t* file_bytes;
    line_result* results;  // per job, zero at first
    std::int32_t* status;  // per job
    shared_words* shared;
    line_scratch* scratch;  // per group
};

// Marks places where any word begins. Every thread has words of bits of its own.
struct place_sink {
    std::uint64_t* bits;
    std::uint64_t begin;

    PENSTOCK_HD PENSTOCK_INLINE void found(std::uint32_t, std::uint64_t position) const {
        const std::uint64_t at = position - begin;
        bits[at / 64] |= std::uint64_t{1} << (at % 64);
    }
    PENSTOCK_HD PENSTOCK_INLINE void zero_byte(std::uint64_t) const {}
};

// Where lines end among the `count` (1 to 64) bytes at `at`, a bit for each; `room` as in
// load_bytes.
PENSTOCK_HD inline std::uint64_t line_ends(const unsigned char* at, std::uint32_t count,
                                           std::uint64_t room) {
    std::uint64_t ends = 0;
    for (std::uint32_t i = 0; i < count; i += 8) {
        const std::uint64_t bytes = load_bytes(at + i, count - i < 8 ? count - i : 8, room - i);
        ends |= detail::zeros(bytes ^ detail::each_byte * '\n') << i;
    }
    return ends & low_bits(count);
}

// One job of one group. All threads have equal values and take equal ways; they share what lies in
// the scratch.
template <typename Group>
class line_job {
public:
    PENSTOCK_HD line_job(const Group& g, const runtime_ref& fs, const line_view& v,
                         line_scratch& scratch, std::uint64_t index)
        : g_(g), fs_(fs), v_(v), s_(scratch), index_(index), piece_(v.jobs[index]) {}

    // 0 or a negative errno. If the job fails, its result names no output.
    PENSTOCK_HD PENSTOCK_NOINLINE int run() {
        const char* const path = v_.paths + v_.path_at[piece_.file];
        fd_ = open(g_, fs_, path);
        if (fd_ < 0) return fd_;
        int code = check_size();
        if (code == 0) code = v_.counts ? count_ends() : print(path);
        close(g_, fs_, fd_);
        return code;
    }

private:
    PENSTOCK_HD int check_size() {
        auto* const about = reinterpret_cast<file_stat*>(s_.text);
        g_.sync();  // no thread still reads the text of the last job
        const int code = stat(g_, fs_, fd_, about);
        bytes_ = v_.file_bytes[piece_.file];
        const bool same = code != 0 || about->size_bytes == bytes_;
        g_.sync();  // every thread has read it before text takes its place
        return same ? code : -ESTALE;
    }

    // Text around the positions [at, until), as scan() wants it.
    PENSTOCK_HD PENSTOCK_NOINLINE int load(std::uint64_t at, std::uint64_t until) {
        window_ = {s_.text, at > 0 ? at - 1 : 0, apps::lesser(bytes_, until + window_margin)};
        g_.sync();  // no thread still reads the text before
        const std::int64_t got =
            read(g_, fs_, fd_, s_.text, static_cast<std::int64_t>(window_.size()),
                 static_cast<std::int64_t>(window_.begin));
        g_.sync();  // all of it is there for every thread
        if (got < 0) return static_cast<int>(got);
        return static_cast<std::uint64_t>(got) == window_.size() ? 0 : -ESTALE;
    }

    PENSTOCK_HD int count_ends() {
        std::uint64_t ends = 0;
        for (std::uint64_t at = piece_.begin; at < piece_.end;) {
            const std::uint64_t until = apps::lesser(piece_.end, at + line_scratch::positions);
            if (const int code = load(at, until); code != 0) return code;
            for (std::uint64_t i = at + g_.rank() * 64; i < until; i += g_.size() * 64)
                for (std::uint64_t bits = ends_at(i, until); bits != 0; bits &= bits - 1) ++ends;
            at = until;
        }
        // Relaxed: the host reads the sum after the launch.
        atomic_fetch_add<order::relaxed>(&v_.results[index_].newlines, ends);
        return 0;
    }

    PENSTOCK_HD std::uint64_t ends_at(std::uint64_t at, std::uint64_t until) const {
        const std::uint64_t in_window = at - window_.begin;
        const auto count = static_cast<std::uint32_t>(until - at < 64 ? until - at : 64);
        return line_ends(window_.bytes + in_window, count, window_.size() - in_window);
    }

    PENSTOCK_HD int print(const char* path) {
        path_ = {path, text::length(lane{}, path, INT64_MAX)};
        number_ = v_.lines_before[index_] + 1;
        for (std::uint64_t at = piece_.begin; at < bytes_ && !done_;) {
            // A job that has no line yet looks no further than its piece.
            const std::uint64_t last = in_line_ || at == piece_.begin ? bytes_ : piece_.end;
            const std::uint64_t until = apps::lesser(last, at + line_scratch::positions);
            if (at >= until) break;
            if (const int code = load(at, until); code != 0) return code;
            if (at == piece_.begin) {
                in_line_ = at == 0 || window_.bytes[0] == '\n';
                begin_ = at;
            }
            mark(at, until);
            for (std::uint64_t i = at; i < until && !done_; i += 64)
                if (const int code = take(i, (i - at) / 64); code != 0) return code;
            at = until;
        }
        if (!done_ && in_line_ && begin_ < bytes_ && has_word_)
            if (const int code = print_line(bytes_); code != 0) return code;
        if (const int code = flush(); code != 0) return code;
        if (g_.is_leader()) v_.results[index_] = {0, last_block_, lines_, 0};
        return 0;
    }

    // Fills the bits of [at, until).
    PENSTOCK_HD PENSTOCK_NOINLINE void mark(std::uint64_t at, std::uint64_t until) {
        const place_sink places{s_.words, at};
        for (std::uint64_t from = at + g_.rank() * stretch_bytes; from < until;
             from += g_.size() * stretch_bytes) {
            const std::uint64_t to = apps::lesser(until, from + stretch_bytes);
            for (std::uint64_t i = from; i < to; i += 64) {
                s_.words[(i - at) / 64] = 0;
                s_.ends[(i - at) / 64] = ends_at(i, to);
            }
            place_sink sink = places;
            scan(v_.plain, window_, from, to, sink);
            if (v_.has_chained) scan(v_.chained, window_, from, to, sink);
        }
        g_.sync();  // the bits of all threads are there
    }

    // Takes the lines that end among the 64 positions at `at`, of which the bits are word `i`.
    PENSTOCK_HD int take(std::uint64_t at, std::uint64_t i) {
        std::uint64_t words = s_.words[i];
        for (std::uint64_t ends = s_.ends[i]; ends != 0; ends &= ends - 1) {
            const std::uint32_t end = lowest_bit(ends);
            has_word_ = has_word_ || (words & low_bits(end)) != 0;
            words &= ~low_bits(end);
            if (in_line_ && has_word_)
                if (const int code = print_line(at + end); code != 0) return code;
            in_line_ = true;
            has_word_ = false;
            begin_ = at + end + 1;
            ++number_;
            done_ = begin_ >= piece_.end;
            if (done_) return 0;
        }
        has_word_ = has_word_ || words != 0;
        return 0;
    }

    PENSTOCK_HD PENSTOCK_NOINLINE int print_line(std::uint64_t end) {
        int code = put(path_.bytes, static_cast<std::uint64_t>(path_.size));
        const std::int64_t digits =
            text::format(g_, s_.digits, sizeof s_.digits, v_.behind_path, number_, ':');
        if (code == 0) code = put(s_.digits, static_cast<std::uint64_t>(digits));
        const bool in_window = begin_ >= window_.begin && end <= window_.end;
        if (code == 0 && in_window)
            code = put(reinterpret_cast<const char*>(window_.bytes) + (begin_ - window_.begin),
                       end - begin_);
        else if (code == 0) code = put_from_file(begin_, end);
        ++lines_;
        return code != 0 ? code : put("\n", 1);
    }

    // Appends bytes that every thread reaches.
    PENSTOCK_HD int put(const char* from, std::uint64_t bytes) {
        while (bytes > 0) {
            const std::uint64_t part = apps::lesser(bytes, line_scratch::output_bytes - used_);
            for (std::uint64_t i = g_.rank(); i < part; i += g_.size())
                s_.output[used_ + i] = from[i];
            if (const int code = used(part); code != 0) return code;
            from += part;
            bytes -= part;
        }
        return 0;
    }

    // A line that began in a window before.
    PENSTOCK_HD int put_from_file(std::uint64_t at, std::uint64_t end) {
        while (at < end) {
            const std::uint64_t part = apps::lesser(end - at, line_scratch::output_bytes - used_);
            const std::int64_t got =
                read(g_, fs_, fd_, s_.output + used_, static_cast<std::int64_t>(part),
                     static_cast<std::int64_t>(at));
            if (got < 0) return static_cast<int>(got);
            if (static_cast<std::uint64_t>(got) != part) return -ESTALE;
            if (const int code = used(part); code != 0) return code;
            at += part;
        }
        return 0;
    }

    PENSTOCK_HD int used(std::uint64_t bytes) {
        used_ += bytes;
        return used_ == line_scratch::output_bytes ? flush() : 0;
    }

    // Appends the buffer as a block. append begins and ends with a meeting of the threads.
    PENSTOCK_HD PENSTOCK_NOINLINE int flush() {
        if (used_ == 0) return 0;
        if (g_.is_leader()) s_.header = {last_block_, used_};
        const auto bytes = static_cast<std::int64_t>(sizeof(block_header) + used_);
        std::int64_t at = append(g_, fs_, v_.output, &s_.header, bytes);
        // A part of it has been written, and the next bytes find out why not all of it. No result
        // names the block that stays behind.
        if (at == -EIO) at = append(g_, fs_, v_.output, &s_.header, bytes);
        g_.sync();  // the buffer may be filled again
        if (at < 0 && g_.is_leader()) v_.results[index_].output_code = at;
        if (at < 0) return static_cast<int>(at);
        last_block_ = static_cast<std::uint64_t>(at) + 1;
        used_ = 0;
        return 0;
    }

    const Group& g_;
    const runtime_ref& fs_;
    const line_view& v_;
    line_scratch& s_;
    const std::uint64_t index_;
    const job piece_;
    int fd_ = -1;
    std::uint64_t bytes_ = 0;
    text_window window_{};
    text::part path_{};
    bool in_line_ = false;   // begin_ and number_ are those of a line of this job
    bool has_word_ = false;  // a word was seen since begin_
    bool done_ = false;
    std::uint64_t begin_ = 0;
    std::uint64_t number_ = 0;
    std::uint64_t used_ = 0;  // bytes of the buffer
    std::uint64_t last_block_ = 0;
    std::uint64_t lines_ = 0;
};

// Groups are numbered by their scratch.
struct print_lines {
    line_view view;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref& fs, std::uint64_t group) const {
        for (;;) {
            std::uint64_t taken = view.job_count;
            // Relaxed: the counter hands out numbers and nothing else.
            if (g.is_leader() && atomic_load<order::relaxed>(&view.shared->stop) == 0)
                taken = atomic_fetch_add<order::relaxed>(&view.shared->next_job, std::uint64_t{1});
            taken = g.broadcast(taken);
            if (taken >= view.job_count) return;
            line_job<Group> work(g, fs, view, view.scratch[group], taken);
            const int code = work.run();
            if (!g.is_leader()) continue;
            view.status[taken] = code;
            if (concerns_runtime(code)) atomic_store<order::relaxed>(&view.shared->stop, 1u);
        }
    }
};

}  // namespace penstock::grep
