// Moves of a batch of the buffer of shared blocks: what the core says moves is gathered into move
// batches and carried out, and the page directory and the files are told.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "buffer/core/movement.hpp"
#include "buffer/pool/dedu_directory.hpp"
#include "buffer/pool/device_frames.hpp"
#include "buffer/pool/unwritten_pages.hpp"

namespace penstock::buffer {

// Moves of blocks that go together. The core tells what moves one after the other; as long as no
// two touch one frame in a way in which the order matters they wait here and are carried out at
// once, the moves between host and device by one call: a move batch. Within a batch moves come
// first, then fills of host frames, then copies out of them. What does not fit into that order
// begins a new batch.
//
// A few blocks that only go to the device are copied first, to frames of the batch's own, and then
// no thread waits for the device: whatever it is asked next comes after that.
class move_batch {
public:
    // `copies`: that wait at a time, at most; as fills and moves they are then carried out before
    // more come. The last own_frames(shape.frame_bytes) frames of the host are its own.
    move_batch(device_frames& frames, const frames_shape& shape, std::size_t copies)
        : frames_(frames),
          block_bytes_(shape.frame_bytes),
          most_moves_(shape.most_moves),
          most_copies_(copies),
          first_own_(static_cast<std::uint32_t>(shape.host_frames - own_frames(shape.frame_bytes))),
          host_(shape.host_frames),
          device_(shape.device_frames) {
        moves_.reserve(most_moves_);
        copied_.reserve(most_moves_);
        fills_.reserve(most_copies_);
        copies_.reserve(most_copies_);
    }

    // `from` and `to` stay as they are until the next run(). 0, or the error of a move batch that
    // had to go before.
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
        for (const from_outside& source : fills_)
            std::memcpy(at(source.host), source.from, block_bytes_);
        for (const to_outside& target : copies_)
            std::memcpy(target.to, at(target.host), block_bytes_);
        for (const frame_move& moved : moves_) host_[moved.host] = 0, device_[moved.device] = 0;
        for (const from_outside& source : fills_) host_[source.host] = 0;
        for (const to_outside& target : copies_) host_[target.host] = 0;
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
               std::all_of(moves_.begin(), moves_.end(), [](const frame_move& moved) {
                   return moved.way == direction::to_device;
               });
    }
    // 0, or the device's error, of these moves or of those that no thread waited for. The device
    // may still be at those of the batch before: they are of our own frames.
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

// Carries out the actions of the core. By the batch; its errors are those of the device, and the
// first of a batch is kept (code).
//
// A page becomes unreadable before a block of it moves; its bytes have come only when the move
// batch ran (run). A dirty page that has to go is written at once, by all its blocks, when the core
// tells of the first of them.
class block_mover {
public:
    struct counts {
        std::uint64_t promotions = 0, demotions = 0;  // blocks
        std::uint64_t write_backs = 0;                // pages
        std::uint64_t device_write_backs = 0;         // blocks of them that lay in the device
    };

    // `scratch_frame`: the first of a page of the batch's own.
    block_mover(device_frames& frames, const frames_shape& shape, std::uint32_t scratch_frame,
                dedu_directory& pages, unwritten_pages& unwritten, const core_tables& known)
        : block_bytes_(shape.frame_bytes),
          scratch_frame_(scratch_frame),
          pages_(pages),
          unwritten_(unwritten),
          known_(known),
          batch_(frames, shape, shape.most_moves) {}

    void begin_batch(int code) { code_ = code; }
    void note(int code) {
        if (code_ == 0) code_ = code;
    }
    [[nodiscard]] int code() const { return code_; }
    [[nodiscard]] const counts& counted() const { return counts_; }

    // `from`: the bytes of the page that comes in, or null where none does.
    void carry_out(const action& told, const std::byte* from) {
        switch (told.kind) {
            case move::fill:
                note(batch_.fill(told.host, from + told.place * block_bytes_));
                pages_.complete_others(told);
                break;
            case move::demote:
                pages_.unpublish_all_of(told.block);
                ++counts_.demotions;
                note(batch_.move(told.host, told.device, direction::to_device));
                break;
            case move::promote:
                ++counts_.promotions;
                note(batch_.move(told.host, told.device, direction::to_host));
                break;
            case move::exchange:
                pages_.unpublish_all_of(told.other);
                ++counts_.promotions, ++counts_.demotions;
                note(batch_.move(told.host, told.device, direction::exchange));
                break;
            case move::write_back:
                if (told.place == 0) write_victim(told.page);  // the other blocks are told of next
                break;
            case move::drop: leave(told.page, owned_entry::nowhere); break;
            case move::vanish:
                known_.each_page_of(told.block, [&](page_id id, std::uint32_t) {
                    leave(id, owned_entry::incomplete);
                });
                break;
        }
    }
    // Of a page that is in the host; the bytes are there when the move batch ran.
    void copy_out(page_id id, std::byte* to) {
        for (std::uint32_t i = 0; i < known_.most.blocks_per_page; ++i)
            note(batch_.copy_out(known_.block_of(id, i)->frame, to + i * block_bytes_));
    }
    void run() { note(batch_.run()); }
    // A dirty page goes to its file, from wherever its blocks are. 0, -EIO of the device, or the
    // error of the write.
    int write(page_id id) {
        const std::byte* const bytes = gather(id);
        if (code_ != 0) return -EIO;
        if (const int code = pages_.write_page(id, bytes); code != 0) return code;
        ++counts_.write_backs;
        return 0;
    }

private:
    // The page's bytes, until the scratch frames are used next.
    std::byte* gather(page_id id) {
        for (std::uint32_t i = 0; i < known_.most.blocks_per_page; ++i) {
            const block& from = *known_.block_of(id, i);
            const std::uint32_t to = scratch_frame_ + i;
            counts_.device_write_backs += from.where == side::device ? 1 : 0;
            note(from.where == side::host ? batch_.copy_out(from.frame, pages_.frame_at(to))
                                          : batch_.move(to, from.frame, direction::to_host));
        }
        run();
        return pages_.frame_at(scratch_frame_);
    }
    // It goes next, or a block of it becomes absent; then it goes too if it could not be written
    // (block_loader::drop_unwritten).
    void write_victim(page_id id) {
        const std::byte* const bytes = gather(id);
        if (code_ != 0) return;
        ++counts_.write_backs;
        if (pages_.write_page(id, bytes) != 0) note(unwritten_.keep(id, bytes));
    }
    // Something of the page, or all, is in its file alone from here on; unless it could not be
    // written, and then no thread may read it there.
    void leave(page_id id, std::uint32_t where) {
        pages_.unpublish(id, unwritten_.find(id) != nullptr ? owned_entry::unwritten : where);
    }

    const std::uint64_t block_bytes_;
    const std::uint32_t scratch_frame_;
    dedu_directory& pages_;
    unwritten_pages& unwritten_;
    const core_tables& known_;
    move_batch batch_;
    int code_ = 0;
    counts counts_;
};

}  // namespace penstock::buffer
