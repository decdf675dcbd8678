// A file in a buffer that keeps equal blocks once, with whatever a test wants of both, and a disk
// that may fail.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <memory>
#include <random>

#include "buffer/buffered_file.hpp"
#include "buffer/pool/manager.hpp"

namespace penstock::test {

// A device that may say of blocks that they are equal though they are not, once in a while: the
// canary. It calls `before_move`, if a test has set it, before each batch of moves.
class watched_frames final : public buffer::device_frames {
public:
    watched_frames(std::unique_ptr<device_frames> real, bool credulous)
        : real_(std::move(real)), credulous_(credulous) {}
    [[nodiscard]] std::byte* host_frames() const override { return real_->host_frames(); }
    int begin(unsigned queue, const std::vector<buffer::frame_move>& batch) override {
        if (before_move) before_move();
        return real_->begin(queue, batch);
    }
    int end(unsigned queue) override { return real_->end(queue); }
    int compare(unsigned queue, const std::vector<buffer::frame_pair>& pairs,
                std::vector<std::uint8_t>& equal) override {
        const int code = real_->compare(queue, pairs, equal);
        for (std::uint8_t& answer : equal)
            if (++answers_ % 10 == 0 && credulous_) answer = 1;
        return code;
    }
    int hash(unsigned queue, buffer::signature_kind kind, const std::vector<std::uint32_t>& host,
             std::vector<buffer::content_hash>& out) override {
        return real_->hash(queue, kind, host, out);
    }

    std::function<void()> before_move;

private:
    std::unique_ptr<device_frames> real_;
    const bool credulous_;
    std::uint64_t answers_ = 0;
};

// What a test is about. `duplicates` of a hundred blocks are of 16 kinds, the others random;
// `page_of_file` pages.
struct shape {
    std::uint32_t host = 6, device = 20, blocks = 4;
    unsigned duplicates = 50;
    std::uint64_t mask = ~std::uint64_t{0};
    bool on_device = false, md5 = false, adaptive = false;
    buffer::order_kind order = buffer::order_kind::lru;
    std::uint32_t sessions = 2;
    std::optional<std::uint32_t> table = std::nullopt, absent = std::nullopt;
    std::uint64_t page_bytes = 512;
    std::uint32_t batch_wait_us = 0;
};

inline buffer::manager_settings settings_of(const shape& s) {
    const buffer::dedu_settings dedu{
        .blocks_per_page = s.blocks,
        .table_pages = s.table,
        .absent_blocks = s.absent,
        .signature = s.md5 ? buffer::signature_kind::md5 : buffer::signature_kind::quick,
        .sign_on_device = s.on_device,
        .adaptive = s.adaptive};
    return {.page_bytes = s.page_bytes,
            .host_pages = s.host,
            .device_pages = s.device,
            .sessions = s.sessions,
            .fixed_pages = 2,
            .files = 2,
            .wait_ms = 10'000,
            .order = s.order,
            .policy = buffer::policy_kind::dedu,
            .batch_wait_us = s.batch_wait_us,
            .dedu = dedu,
            .hash_mask = s.mask};
}

// Blocks as a file may have them: many of a few kinds.
inline void fill_blocks(std::mt19937_64& random, const shape& s, std::uint8_t* to,
                        std::uint64_t count) {
    const std::uint64_t block = s.page_bytes / s.blocks;
    for (std::uint64_t at = 0; at < count; at += block) {
        const bool common = random() % 100 < s.duplicates;
        std::mt19937_64 from(common ? random() % 16 : random());
        for (std::uint64_t i = at; i < std::min(at + block, count); ++i)
            to[i] = static_cast<std::uint8_t>(from());
    }
}
inline bytes blocks_of(std::uint64_t seed, const shape& s, std::uint64_t count) {
    bytes out(count);
    std::mt19937_64 random(seed);
    fill_blocks(random, s, out.data(), count);
    return out;
}

struct shared_file : buffered_file {
    shared_file(const shape& s, const bytes& content, backend where, bool credulous = false)
        : buffered_file(settings_of(s), content, where,
                        [&](auto real) {
                            return std::make_unique<watched_frames>(std::move(real), credulous);
                        }),
          watched(static_cast<watched_frames&>(*frames)) {}

    watched_frames& watched;
};

}  // namespace penstock::test
