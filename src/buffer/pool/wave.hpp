// Moves of blocks that go together. The core tells what moves one after the other; as long as no
// two touch one frame in a way in which the order matters they wait here and are carried out at
// once, the moves between host and device by one call: a wave. Within a wave moves come first, then
// fills of host frames, then copies out of them. What does not fit into that order begins a new
// wave.
//
// A few blocks that only go to the device are copied first, to frames of the wave's own, and then
// no thread waits for the device: whatever it is asked next comes after that.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "buffer/pool/device_frames.hpp"

namespace penstock::buffer {

class wave {
public:
    // `copies`: that wait at a time, at most; as fills and moves they are then carried out before
    // more come. The last own_frames(shape.frame_bytes) frames of the host are the wave's.
    wave(device_frames& frames, const frames_shape& shape, std::size_t copies)
        : frames_(frames),
          block_bytes_(shape.frame_bytes),
          most_moves_(shape.most_moves),
          most_copies_(copies),
          first_own_(static_cast<std::uint32_t>(shape.host_frames - own_frames(shape.frame_bytes))),
          host_(shape.host_frames),
          device_(shape.device_frames) {
        moves_.reserve(most_moves_);
        fills_.reserve(most_copies_);
        copies_.reserve(most_copies_);
    }

    // `from` and `to` stay as they are until the next run(). 0, or the error of a wave that had to
    // go before.
    int move(std::uint32_t host, std::uint32_t device, direction way) {
        if (host_[host] != 0 || device_[device] != 0 || moves_.size() == most_moves_)
            if (const int code = run(); code != 0) return code;
        host_[host] = way == direction::to_device ? left : arrived;
        device_[device] = 1;
        moves_.push_back({host, device, way});
        return 0;
    }
    int fill(std::uint32_t host, const std::byte* from) {
        if ((host_[host] & ~left) != 0 || fills_.size() == most_copies_)
            if (const int code = run(); code != 0) return code;
        host_[host] |= filled;
        fills_.push_back({host, from});
        return 0;
    }
    int copy_out(std::uint32_t host, std::byte* to) {
        if (copies_.size() == most_copies_)
            if (const int code = run(); code != 0) return code;
        host_[host] |= copied;
        copies_.push_back({host, to});
        return 0;
    }

    // All that waits. 0, or the device's error, and then what its frames hold is not known.
    int run() {
        const int code = moves_.empty() ? 0 : go_ahead() ? begin_copied() : frames_.move(0, moves_);
        for (const from_outside& one : fills_) std::memcpy(at(one.host), one.from, block_bytes_);
        for (const to_outside& one : copies_) std::memcpy(one.to, at(one.host), block_bytes_);
        for (const frame_move& one : moves_) host_[one.host] = 0, device_[one.device] = 0;
        for (const from_outside& one : fills_) host_[one.host] = 0;
        for (const to_outside& one : copies_) host_[one.host] = 0;
        moves_.clear();
        fills_.clear();
        copies_.clear();
        return code;
    }

    static constexpr std::uint64_t own_frames(std::uint64_t block_bytes) {
        return most_copied_bytes / block_bytes;
    }

    [[nodiscard]] std::byte* at(std::uint32_t host) const {
        return frames_.host_frames() + host * block_bytes_;
    }

private:
    // What waits for a frame of the host.
    static constexpr std::uint8_t left = 1, arrived = 2, filled = 4, copied = 8;
    struct from_outside {
        std::uint32_t host;
        const std::byte* from;
    };
    struct to_outside {
        std::uint32_t host;
        std::byte* to;
    };

    [[nodiscard]] bool go_ahead() const {
        return moves_.size() <= own_frames(block_bytes_) &&
               std::all_of(moves_.begin(), moves_.end(),
                           [](const frame_move& one) { return one.way == direction::to_device; });
    }
    // 0, or the device's error, of these moves or of those that no thread waited for. The device
    // may still be at those of the wave before: they are of our own frames.
    int begin_copied() {
        if (const int code = frames_.end(0); code != 0) return code;
        copied_ = moves_;
        for (std::size_t i = 0; i < moves_.size(); ++i) {
            copied_[i].host = first_own_ + static_cast<std::uint32_t>(i);
            std::memcpy(at(copied_[i].host), at(moves_[i].host), block_bytes_);
        }
        return frames_.begin(0, copied_);
    }

    device_frames& frames_;
    const std::uint64_t block_bytes_;
    const std::size_t most_moves_, most_copies_;
    const std::uint32_t first_own_;
    std::vector<std::uint8_t> host_, device_;
    std::vector<frame_move> moves_, copied_;
    std::vector<from_outside> fills_;
    std::vector<to_outside> copies_;
};

}  // namespace penstock::buffer
