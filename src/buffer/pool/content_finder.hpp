// Which content a block has: finds the block of the buffer with the same bytes. By signature first,
// and then always byte for byte.
//
// Blocks of one signature and different bytes are told apart by two bits of their content_id that
// are taken from the signature: up to four of them are in the buffer as four contents, and what
// comes on top is alone.
//
// A batch goes in two steps. ask() and compare() find what was in the buffer before the batch,
// whose bytes lie still: with those in the host at once, with those in the device by one call.
// choose(), in the order of the batch, takes what came and went meanwhile into account:
// (1) A content that is made in a batch is remembered with its bytes until the batch ends; the
//     thread that wants to share it compares with these.
// (2) A content that was found equal before the batch stands for these bytes unless it is one of
//     (1). If it went meanwhile it is made again, and is one of (1) from its choice on: other
//     blocks of the page, whose contents are chosen before the core hears of any, must not take it
//     for free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "buffer/core/tables.hpp"
#include "buffer/pool/device_frames.hpp"
#include "buffer/pool/signature.hpp"

namespace penstock::buffer {

class content_finder {
public:
    static constexpr std::uint8_t variants = 4, none = variants;

    struct counts {
        std::uint64_t compared = 0, differed = 0;  // blocks of one signature
    };

    // A block whose content is wanted. Its bytes, in a host frame, lie still until the batch ends.
    struct wanted {
        signature sign;
        const std::byte* bytes = nullptr;
        std::uint32_t frame = 0;
        std::uint8_t equal = none;  // which variant it was found equal to
    };

    // `blocks`: that are made in one batch, at most.
    content_finder(device_frames& frames, const frames_shape& shape, std::uint32_t blocks)
        : frames_(frames),
          block_bytes_(shape.frame_bytes),
          most_pairs_(shape.most_moves),
          by_content_(blocks) {
        made_.reserve(blocks);
        pairs_.reserve(most_pairs_);
        asked_.reserve(most_pairs_);
    }

    // 0, or the device's error. read_absent(number): the bytes of a block that is absent, or null.
    template <typename ReadAbsent>
    int ask(const block_table& blocks, wanted& one, const ReadAbsent& read_absent) {
        one.equal = none;
        for (std::uint8_t k = 0; k < variants && one.equal == none; ++k) {
            const std::uint32_t number = blocks.find(content_of(one.sign, k));
            if (number == nothing) continue;
            const std::uint32_t frame = blocks[number].frame;
            if (blocks[number].where == side::host) {
                if (same(frames_.host_frames() + frame * block_bytes_, one.bytes)) one.equal = k;
            } else if (blocks[number].where == side::absent) {
                if (const std::byte* const bytes = read_absent(number);
                    bytes != nullptr && same(bytes, one.bytes))
                    one.equal = k;
            } else {
                pairs_.push_back({one.frame, frame});
                asked_.push_back({&one, k});
                if (pairs_.size() == most_pairs_)
                    if (const int code = compare(); code != 0) return code;
            }
        }
        return 0;
    }
    // Whether a block with this signature may have the content.
    static bool is_of(const content_id& content, const signature& sign) {
        const content_id other = content_of(sign, 0);
        return content.first == other.first &&
               (content.second & ~std::uint64_t{variants - 1}) == other.second;
    }
    // What ask() has left.
    int compare() {
        if (pairs_.empty()) return 0;
        const int code = frames_.compare(0, pairs_, equal_);
        for (std::size_t i = 0; code == 0 && i < pairs_.size(); ++i) {
            note(equal_[i] != 0);
            if (equal_[i] != 0) asked_[i].first->equal = asked_[i].second;
        }
        pairs_.clear();
        asked_.clear();
        return code;
    }

    // `found`: a block with these bytes is in the buffer, or was made in this batch.
    content_id choose(const block_table& blocks, const wanted& one, bool& found) {
        found = true;
        std::uint8_t free = none;
        for (std::uint8_t k = 0; k < variants; ++k) {
            const content_id content = content_of(one.sign, k);
            const bool is_here = blocks.find(content) != nothing;
            if (const std::uint32_t number = made(content); number != nothing) {
                if (same(made_[number].bytes, one.bytes)) return content;
            } else if (k == one.equal) {
                found = is_here;
                if (!is_here) make(content, one.bytes);
                return content;
            } else if (!is_here && free == none) {
                free = k;
            }
        }
        found = false;
        if (free == none) return content_id::alone();
        make(content_of(one.sign, free), one.bytes);
        return content_of(one.sign, free);
    }
    void end_batch() {
        for (std::uint32_t number = 0; number < made_.size(); ++number)
            by_content_.remove(hash(made_[number].content), number);
        made_.clear();
    }
    [[nodiscard]] const counts& counted() const { return counts_; }

private:
    struct made_block {
        content_id content;
        const std::byte* bytes;
    };

    static content_id content_of(const signature& sign, std::uint8_t k) {
        return {sign.low, (sign.high & ~std::uint64_t{variants - 1}) | k};
    }
    static std::uint64_t hash(const content_id& content) {
        return mix64(content.first + mix64(content.second));
    }
    [[nodiscard]] std::uint32_t made(const content_id& content) const {
        return by_content_.find(
            hash(content), [&](std::uint32_t number) { return made_[number].content == content; });
    }
    void make(const content_id& content, const std::byte* bytes) {
        by_content_.add(hash(content), static_cast<std::uint32_t>(made_.size()));
        made_.push_back({content, bytes});
    }
    bool same(const std::byte* a, const std::byte* b) {
        const bool equal = std::memcmp(a, b, block_bytes_) == 0;
        note(equal);
        return equal;
    }
    void note(bool equal) {
        ++counts_.compared;
        if (!equal) ++counts_.differed;
    }

    device_frames& frames_;
    const std::uint64_t block_bytes_;
    const std::size_t most_pairs_;
    std::vector<made_block> made_;
    number_index by_content_;
    std::vector<frame_pair> pairs_;
    std::vector<std::pair<wanted*, std::uint8_t>> asked_;
    std::vector<std::uint8_t> equal_;
    counts counts_;
};

}  // namespace penstock::buffer
