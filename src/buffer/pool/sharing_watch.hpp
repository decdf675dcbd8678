// Whether it pays to look for equal blocks in a file. Where hardly any are found, or the looking
// takes longer than the reads that it saves, the looking is only cost: then it is left out for a
// while, and tried again.
#pragma once

#include <algorithm>
#include <cstdint>

namespace penstock::buffer {

// By one thread at a time.
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
    // `look_ns`: by how much all took longer since its blocks were signed and looked for. `shared`:
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

}  // namespace penstock::buffer
