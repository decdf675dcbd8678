// A cache of a few frames and words in ordinary memory, with no host behind it: the unit tests play
// the host by hand.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "penstock/engine/file_table.hpp"
#include "penstock/engine/invariants.hpp"
#include "penstock/group/lane.hpp"

namespace penstock::test {

struct hand_cache {
    static constexpr std::uint32_t frames = 8, words = 64, files = 8, names = 16, ring_slots = 4,
                                   page_shift = 9, stride = 4096;

    alignas(64) std::byte frame_bytes[std::size_t{frames} << page_shift] = {};
    engine::page_word page_words[words] = {};
    engine::frame_word frame_words[frames] = {};
    std::uint32_t hands[engine::clock_hand_stride] = {};
    std::uint32_t fill_done = 0, retire_hand = 0;
    engine::file_word file_words[files] = {};
    engine::opening_count openings[files] = {};
    engine::file_record file_records[files] = {};
    engine::name_slot name_slots[names] = {};
    std::uint32_t name_locks[4] = {};
    std::uint64_t paths[256] = {};
    engine::counter_shard counters[1] = {};
    engine::control_block control{0, 1};
    engine::ring_request requests[ring_slots] = {};
    engine::ring_reply replies[ring_slots] = {};
    alignas(16) std::byte staging[std::size_t{ring_slots} * stride] = {};
    std::uint64_t tail = 0;
    std::uint64_t free_ticket[ring_slots] = {0, 1, 2, 3};
    engine::ring_view ring{};
    engine::cache_view view{};

    hand_cache() {
        ring.requests = requests;
        ring.replies = replies;
        ring.staging = staging;
        ring.tail = &tail;
        ring.free_ticket = free_ticket;
        ring.staging_stride = stride;
        ring.slots = ring_slots;
        view.words = page_words;
        view.frame_words = frame_words;
        view.frames = frame_bytes;
        view.clock_hands = hands;
        view.fill_done = &fill_done;
        view.file_words = file_words;
        view.openings = openings;
        view.file_records = file_records;
        view.names = name_slots;
        view.name_locks = name_locks;
        view.paths = paths;
        view.retire_hand = &retire_hand;
        view.counters = counters;
        view.control = &control;
        view.rings = &ring;
        view.word_count = words;
        view.frame_wait_ns = 20'000'000;
        view.request_wait_ns = 50'000'000;
        view.host_wait_ns = 10'000'000'000;
        view.page_shift = page_shift;
        view.frame_count = frames;
        view.clock_shards = 1;
        view.file_slots = files;
        view.name_slots = names;
        view.name_lock_count = 4;
        view.ring_count = view.ring_threads = 1;
        view.counter_shards = 1;
        view.leaf_shift = 2;
    }
    hand_cache(const hand_cache&) = delete;
    hand_cache& operator=(const hand_cache&) = delete;

    // A one-level file of `pages` pages whose words start at `table`, with one reference.
    engine::file_handle add_file(std::uint32_t slot, std::uint64_t table, std::uint64_t pages) {
        file_words[slot] = engine::make_file_word(engine::file_live, 1, 1);
        file_records[slot] = {pages << page_shift, pages, table, 0, 0, 0, 1, 0, 0};
        return {pages << page_shift, table, slot, 1, false};
    }
    // Makes page word `index` of file `slot` valid in `frame`, unpinned and without its use bit.
    void place(std::uint32_t slot, std::uint64_t index, std::uint32_t frame) {
        page_words[index] = engine::state_valid | frame;
        frame_words[frame] = engine::make_owned(slot, index);
    }
    [[nodiscard]] std::uint64_t counted(engine::counter counter) const {
        return counters[0].count[counter];
    }

    // The host's part: answers the request with this ticket.
    void answer(std::uint64_t ticket, std::int64_t result) {
        engine::ring_reply& reply = replies[ticket % ring_slots];
        reply.result = result;
        atomic_store<order::release, scope::system>(&reply.completed, ticket + 1);
    }
};

}  // namespace penstock::test
