// How blocks move between the frames of both sides and out of the buffer: the steps of docs/buffer.md below an access. Each tells the sink what bytes must
// move before it changes what is known.
#pragma once

#include <cstdint>

#include "buffer/block_table.hpp"
#include "buffer/frame_pool.hpp"
#include "buffer/page_table.hpp"
#include "buffer/types.hpp"

namespace penstock::buffer {

template <typename Order, typename Cache>
struct state {
    state() = default;
    explicit state(const limits& how_much)
        : most(how_much), pages(how_much), blocks(how_much.host_frames() + how_much.device_frames(), how_much.pages * how_much.blocks_per_page),
          host(how_much.host_frames()), device(how_much.device_frames()), order(how_much.host_frames()), cache(how_much.device_frames()) {}

    limits most;
    page_table pages;
    block_table blocks;
    frame_pool host, device;
    Order order;   // of the host's frames
    Cache cache;   // of the device's
    std::uint32_t pinned_blocks = 0;
};

template <typename State>
void put_in_host(State& s, std::uint32_t number, std::uint32_t frame) {
    s.blocks[number].where = side::host;
    s.blocks[number].frame = frame;
    s.host.block_in(frame) = number;
    s.order.enter(frame);
}

template <typename State>
void put_in_device(State& s, std::uint32_t number, std::uint32_t frame) {
    s.blocks[number].where = side::device;
    s.blocks[number].frame = frame;
    s.device.block_in(frame) = number;
    s.cache.enter(frame);
}

// The place points at nothing then. A block to which no place points is free, wherever it lies.
template <typename State>
void take_reference(State& s, std::uint32_t place) {
    const std::uint32_t number = s.pages.block_at(place);
    s.pages.block_at(place) = nothing;
    s.blocks.take_reference(number, place);
    const block& left = s.blocks[number];
    if (left.references.size != 0) return;
    if (left.where == side::host) {
        s.order.leave(left.frame);
        s.host.give(left.frame);
    } else {
        s.cache.leave(left.frame);
        s.device.give(left.frame);
    }
    s.blocks.remove(number);
}

// The page is clean then, and stays.
template <typename State, typename Sink>
void write_back(State& s, std::uint32_t slot, Sink& sink) {
    for (std::uint32_t i = 0; i < s.most.blocks_per_page; ++i) {
        action tell{move::write_back};
        tell.block = s.pages.block_at(s.pages.place(slot, i));
        const block& from = s.blocks[tell.block];
        (from.where == side::host ? tell.host : tell.device) = from.frame;
        tell.place = i;
        tell.page = s.pages[slot].id;
        sink(tell);
    }
    s.pages.set_dirty(slot, false);
}

template <typename State, typename Sink>
void drop_page(State& s, std::uint32_t slot, Sink& sink) {
    if (s.pages[slot].dirty) write_back(s, slot, sink);
    action tell{move::drop};
    tell.page = s.pages[slot].id;
    sink(tell);
    for (std::uint32_t i = 0; i < s.most.blocks_per_page; ++i) take_reference(s, s.pages.place(slot, i));
    s.pages.remove(slot);
}

// Drops every page that has the block; with the last of them the block is free.
template <typename State, typename Sink>
void evict(State& s, std::uint32_t number, Sink& sink) {
    while (s.blocks[number].references.size != 0) drop_page(s, s.pages.slot_of(s.blocks[number].references.newest), sink);
}

template <typename State>
std::uint32_t host_victim(State& s) {
    return s.order.victim([&](std::uint32_t frame) {
        const block& here = s.blocks[s.host.block_in(frame)];
        return here.pins == 0 && !here.own;
    });
}

// A host frame that is free. Eviction comes before demotion, since pages that go may leave host frames free, and then nothing need be demoted.
template <typename State, typename Sink>
std::uint32_t free_host_frame(State& s, Sink& sink) {
    while (s.host.full()) {
        if (s.device.size() != 0 && s.device.full()) {
            evict(s, s.device.block_in(s.cache.tail([&](std::uint32_t frame) { return !s.blocks[s.device.block_in(frame)].own; })), sink);
            continue;
        }
        const std::uint32_t frame = host_victim(s);
        const std::uint32_t number = s.host.block_in(frame);
        if (s.device.size() == 0) {
            evict(s, number, sink);
            continue;
        }
        action tell{move::demote, number};
        tell.host = frame;
        tell.device = s.device.take();
        sink(tell);
        s.order.leave(frame);
        s.host.give(frame);
        put_in_device(s, number, tell.device);
    }
    return s.host.take();
}

// From the device to a free host frame, or in exchange with a victim.
template <typename State, typename Sink>
void promote(State& s, std::uint32_t number, Sink& sink) {
    action tell{s.host.full() ? move::exchange : move::promote, number};
    tell.device = s.blocks[number].frame;
    tell.host = s.host.full() ? host_victim(s) : s.host.take();
    if (tell.what == move::exchange) tell.other = s.host.block_in(tell.host);
    sink(tell);
    s.cache.leave(tell.device);
    if (tell.what == move::exchange) {
        s.order.leave(tell.host);
        put_in_device(s, tell.other, tell.device);
    } else {
        s.device.give(tell.device);
    }
    put_in_host(s, number, tell.host);
}

// What an access does to each block of its page: used where it is in the host, brought there where it is not.
template <typename State, typename Sink>
void use(State& s, std::uint32_t number, Sink& sink) {
    if (s.blocks[number].where == side::host) s.order.touch(s.blocks[number].frame);
    else promote(s, number, sink);
}

}  // namespace penstock::buffer
