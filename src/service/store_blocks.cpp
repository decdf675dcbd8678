// A service thread and the store between nodes (docs/protocol/block_store.md): misses, prefetch
// loads and wishes that are answered with blocks. What the operating system has in memory comes
// from there, as without a store.
#include "service/service.hpp"

#include <algorithm>
#include <cstring>

#include "penstock/group/lane.hpp"

namespace penstock::host {

namespace {

using penstock::detail::host_now_ns;

}  // namespace

// True: the flight waits for a block, or was answered with one that was there already. A flight
// asks once: then its file is read.
bool service::start_at_store(std::uint32_t number) {
    flight& f = flights_[number];
    if (f.asked_store) return false;
    f.asked_store = true;
    if (!settings_.blocks->wants(*f.file, f.offset, f.wanted)) return false;
    const auto version = files_.version_of(f.slot, f.generation);
    if (!version) return false;
    f.block = settings_.blocks->fetch(f.file, version->identity, version->is_settled,
                                      f.offset / block_bytes);
    if (f.block == nullptr) return false;
    if (f.block->look() == block_fetch::state::there && take_from_block(number)) return true;
    f.block_begun_ns = host_now_ns();
    awaiting_.push_back(number);
    return true;
}

// Answers the flight from its block. False: the block is shorter than the page's place in it.
bool service::take_from_block(std::uint32_t number) {
    flight& f = flights_[number];
    const std::span<const std::byte> block = f.block->bytes();
    const std::uint64_t begin = f.offset % block_bytes;
    if (begin + f.wanted > block.size()) return false;
    std::memcpy(staging_of(f.at), block.data() + begin, f.wanted);
    f.done = f.wanted;
    f.block.reset();
    f.file.reset();
    --in_flight_;
    answer_read(f);
    return true;
}

bool service::start_fill_at_store(const fill_order& order, std::uint32_t slot,
                                  std::uint32_t generation,
                                  const std::shared_ptr<shared_handle>& file) {
    if (!settings_.blocks->wants(*file, order.offset, order.bytes)) return false;
    const auto version = files_.version_of(slot, generation);
    if (!version) return false;
    waiting_fill wanted{order, file, {}, host_now_ns()};
    const std::uint64_t last = (order.offset + order.bytes - 1) / block_bytes;
    for (std::uint64_t block = order.offset / block_bytes; block <= last; ++block) {
        wanted.blocks.push_back(
            settings_.blocks->fetch(file, version->identity, version->is_settled, block));
        if (wanted.blocks.back() == nullptr) return false;
    }
    waiting_fills_.push_back(std::move(wanted));
    ++in_flight_;
    return true;
}

// True: the file's blocks are on their way, as many as the workers take. They are kept here for a
// while, and those that come from the file are then in the memory of the operating system.
bool service::wish_from_store(const wish& wanted, const std::shared_ptr<shared_handle>& file) {
    if (!settings_.blocks->wants(*file, wanted.offset, wanted.bytes)) return false;
    const auto version = files_.version_of(wanted.slot, wanted.generation);
    if (!version) return false;
    const std::uint64_t last = (wanted.offset + wanted.bytes - 1) / block_bytes;
    for (std::uint64_t block = wanted.offset / block_bytes; block <= last; ++block)
        if (settings_.blocks->fetch(file, version->identity, version->is_settled, block) == nullptr)
            return block != wanted.offset / block_bytes;
    return true;
}

// Each flight and fill either is answered, or waits on, or reads its file.
void service::look_at_blocks() {
    using state = block_fetch::state;
    const std::uint64_t now = host_now_ns(), most = settings_.blocks->most_wait_ns();
    std::vector<std::uint32_t> flights;
    flights.swap(awaiting_);
    for (const std::uint32_t number : flights) {
        flight& f = flights_[number];
        const state s = f.block->look();
        if (s == state::under_way && now - f.block_begun_ns < most) {
            awaiting_.push_back(number);
        } else if (s != state::there || !take_from_block(number)) {
            f.block.reset();
            start_flight(number);
        }
    }
    std::vector<waiting_fill> fills;
    fills.swap(waiting_fills_);
    for (waiting_fill& fill : fills) {
        const auto is = [&fill](state s) {
            return std::any_of(fill.blocks.begin(), fill.blocks.end(),
                               [s](const auto& block) { return block->look() == s; });
        };
        if (is(state::under_way) && !is(state::failed) && now - fill.begun_ns < most) {
            waiting_fills_.push_back(std::move(fill));
            continue;
        }
        --in_flight_;
        if (is(state::under_way) || is(state::failed)) {
            start_fill(fill.order, std::move(fill.file));
            continue;
        }
        const std::uint64_t first = fill.order.offset / block_bytes;
        fills_.take(fill.order, [&](std::byte* to, std::uint64_t offset, std::uint64_t bytes) {
            const std::span<const std::byte> block =
                fill.blocks[offset / block_bytes - first]->bytes();
            if (offset % block_bytes + bytes > block.size()) return false;
            std::memcpy(to, block.data() + offset % block_bytes, bytes);
            return true;
        });
        answer(fill.order.at, 0);
    }
}

// The thread ends, and its kernels wait no more.
void service::give_up_blocks() {
    for (const std::uint32_t number : awaiting_) {
        flights_[number].block.reset();
        flights_[number].file.reset();
        --in_flight_;
    }
    awaiting_.clear();
    for (const waiting_fill& fill : waiting_fills_) {
        fills_.refuse(fill.order);
        --in_flight_;
    }
    waiting_fills_.clear();
}

}  // namespace penstock::host
