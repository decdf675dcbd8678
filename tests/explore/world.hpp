// A cache small enough to explore: two words a page, one or two frames, one or two files, a ring of
// one or two slots.
#pragma once

#include <cstring>
#include <functional>
#include <string>

#include "explore/explore_lane.hpp"
#include "penstock/engine/invariants.hpp"
#include "penstock/engine/window.hpp"
#include "penstock/file.hpp"

namespace penstock::explore_kit {

inline constexpr std::uint32_t page_shift = 4, page_bytes = 16, words_per_page = 2;
inline constexpr std::uint32_t max_frames = 4, max_files = 4, max_slots = 4, max_names = 4,
                               arena_words = 32;
inline constexpr std::uint32_t staging_bytes = 32;
// Scenarios with a tier use the first words of the arena only.
inline constexpr std::uint32_t tier_words_count = 8;
inline constexpr std::uint32_t neighbour_words = 4, neighbour_frames = 2;

struct shape {
    std::uint32_t frames = 1, files = 1, ring_slots = 2, names = 4, leaf_shift = 1, tier_frames = 0;
    bool writes = false;
};

// Everything that fibers share. The counters are outside: no fiber reads them, so their order
// does not matter.
struct shared_memory {
    engine::page_word words[arena_words];
    engine::frame_word frame_words[max_frames];
    alignas(16) std::byte frames[max_frames * page_bytes];
    std::uint32_t clock_hand[engine::clock_hand_stride];
    engine::file_word file_words[max_files];
    alignas(8) engine::opening_count openings[max_files];
    engine::file_record file_records[max_files];
    engine::name_slot names[max_names];
    std::uint64_t name_lock, retire_hand, fill_done;  // the engine uses the low half
    std::uint64_t paths[64];
    engine::ring_request requests[max_slots];
    engine::ring_reply replies[max_slots];
    alignas(16) std::byte staging[max_slots * staging_bytes];
    std::uint64_t tail, free_ticket[max_slots];
    engine::control_block control;
    // The host tier.
    engine::page_word tier_words[tier_words_count];
    engine::frame_word tier_frame_words[max_frames];
    alignas(16) std::byte tier_frames[max_frames * page_bytes];
    std::uint64_t fill_marks[max_frames], done_marks[max_frames], tier_fill_done;
    std::uint32_t tier_hand[engine::clock_hand_stride];
    engine::window_word windows[max_files];
    // Chunk 0 belongs to no window, so that a chunk that is not there shows.
    std::uint64_t window_chunks[2 * max_files];
    alignas(16) std::byte window_bytes[max_files * 2 * page_bytes];
    // Writing; what the file on disk has (one file, four pages).
    engine::write_record writes[max_files];
    std::uint64_t dirty_bits[max_frames], frame_pages[max_frames], write_locks[max_frames],
        pristine[max_frames], offered_run;
    std::uint64_t disk[4 * words_per_page];
    // A second cache, and what each of the two sees of the other.
    struct neighbour_cache {
        engine::page_word words[neighbour_words];
        engine::frame_word frame_words[neighbour_frames];
        alignas(16) std::byte frames[neighbour_frames * page_bytes];
        std::uint32_t clock_hand[engine::clock_hand_stride];
        std::uint64_t fill_done;
        engine::file_word file_words[max_files];
        engine::file_record file_records[max_files];
    } neighbour;
    engine::neighbour_view views[2];  // of the first cache: the second; and the other way round
    engine::neighbour_entry entries[2 * max_files];
    engine::neighbour_visits visits;  // of the first cache
};

class world {
public:
    explicit world(const shape& dimensions) : shape_(dimensions) {
        engine::ring_view& r = ring_;
        r = {memory.requests,    memory.replies, memory.staging, &memory.tail,
             memory.free_ticket, nullptr,        staging_bytes,  dimensions.ring_slots};
        auto& c = view;
        c = {};
        c.words = memory.words;
        c.frame_words = memory.frame_words;
        c.frames = memory.frames;
        c.clock_hands = memory.clock_hand;
        c.file_words = memory.file_words;
        c.openings = memory.openings;
        c.file_records = memory.file_records;
        c.names = memory.names;
        c.name_locks = reinterpret_cast<std::uint32_t*>(&memory.name_lock);
        c.paths = memory.paths;
        c.fill_done = reinterpret_cast<std::uint32_t*>(&memory.fill_done);
        c.retire_hand = reinterpret_cast<std::uint32_t*>(&memory.retire_hand);
        c.counters = &counters;
        c.control = &memory.control;
        c.rings = &ring_;
        c.word_count = arena_words;
        c.frame_wait_ns = c.request_wait_ns = 100;  // less than a jump of the explorer's clock
        c.host_wait_ns = std::uint64_t{1} << 40;
        c.page_shift = page_shift;
        c.frame_count = dimensions.frames;
        c.file_slots = dimensions.files;
        c.name_slots = dimensions.names;
        c.leaf_shift = dimensions.leaf_shift;
        c.clock_shards = c.name_lock_count = c.ring_count = c.ring_threads = c.counter_shards = 1;
        if (dimensions.tier_frames != 0)
            c.tier = {memory.tier_words,
                      memory.tier_frame_words,
                      memory.tier_frames,
                      memory.fill_marks,
                      memory.done_marks,
                      memory.tier_hand,
                      reinterpret_cast<std::uint32_t*>(&memory.tier_fill_done),
                      dimensions.tier_frames,
                      1};
        if (dimensions.tier_frames != 0) c.word_count = tier_words_count;
        if (dimensions.writes) {
            c.writes = memory.writes;
            c.dirty_bits = memory.dirty_bits;
            c.frame_pages = memory.frame_pages;
            c.write_locks = memory.write_locks;
            c.offered_run = &memory.offered_run;
            c.pristine = memory.pristine;
            c.growth_entries = 1;
            c.write_behind_shift = 2;
        }
        reset();
    }

    void reset() {
        std::memset(static_cast<void*>(&memory), 0, sizeof memory);
        for (std::uint32_t i = 0; i < shape_.ring_slots; ++i) memory.free_ticket[i] = i;
        memory.control.heartbeat = 1;
    }

    runtime_ref fs() const { return {view, 0}; }

    // As if slot `slot` had been opened: its pages are `first_word` on. Returns the descriptor; one
    // reference is held.
    int open_now(std::uint32_t slot, std::uint64_t size_bytes, std::uint64_t first_word,
                 bool two_level = false, std::uint32_t generation = 1) {
        memory.file_words[slot] = engine::make_file_word(engine::file_live, generation, 1);
        memory.file_records[slot] = {size_bytes, (size_bytes + page_bytes - 1) / page_bytes,
                                     first_word, slot + 1,
                                     0,          0,
                                     generation, two_level ? 1u : 0u,
                                     0};
        return engine::make_descriptor(slot, generation);
    }
    // The same, and closed again.
    void closed_now(std::uint32_t slot, std::uint64_t size_bytes, std::uint64_t first_word,
                    std::uint32_t generation) {
        open_now(slot, size_bytes, first_word, false, generation);
        memory.file_words[slot] -= 1;
    }

    // As if the page of that word had been read before: `frame` holds it, unpinned. Word i of it is
    // first_value + i.
    void load_now(std::uint32_t slot, std::uint64_t word_index, std::uint32_t frame,
                  std::uint64_t first_value, bool used) {
        memory.words[word_index] = engine::state_valid | frame | (used ? engine::use_bit : 0);
        memory.frame_words[frame] = engine::make_owned(slot, word_index);
        for (std::uint64_t i = 0; i < words_per_page; ++i)
            reinterpret_cast<std::uint64_t*>(memory.frames + frame * page_bytes)[i] =
                first_value + i;
        memory.fill_done = 1;
    }

    // As if that page had been dropped by the cache before: frame `frame` of the tier holds it.
    void keep_now(std::uint32_t slot, std::uint64_t word_index, std::uint32_t frame,
                  std::uint64_t first_value, bool used) {
        memory.tier_words[word_index] = engine::state_valid | frame | (used ? engine::use_bit : 0);
        memory.tier_frame_words[frame] = engine::make_owned(slot, word_index);
        for (std::uint64_t i = 0; i < words_per_page; ++i)
            reinterpret_cast<std::uint64_t*>(memory.tier_frames + frame * page_bytes)[i] =
                first_value + i;
        memory.tier_fill_done = 1;
    }

    // As if the host had opened a window onto two pages for this life of the slot; content_of(page,
    // word) is what they hold.
    void window_now(std::uint32_t slot, std::uint32_t generation,
                    const std::function<std::uint64_t(std::uint64_t, std::uint64_t)>& content_of) {
        view.windows = memory.windows;
        view.window_chunks = memory.window_chunks;
        std::byte* const bytes = memory.window_bytes + slot * 2 * page_bytes;
        for (std::uint64_t page = 0; page < 2; ++page)
            for (std::uint64_t i = 0; i < words_per_page; ++i)
                reinterpret_cast<std::uint64_t*>(bytes)[page * words_per_page + i] =
                    content_of(page, i);
        memory.window_chunks[slot + 1] = reinterpret_cast<std::uintptr_t>(bytes);
        memory.windows[slot] = engine::make_window_word(generation, slot + 1);
    }

    // The rules that hold when all is quiet.
    void check(const engine::quiescent_state& held) const {
        const auto report = engine::check_invariants(view, held);
        if (report.rule != nullptr) explore::violation(report.rule);
    }

    std::string name_of(std::size_t offset) const;

    shared_memory memory{};
    engine::cache_view view{};
    engine::counter_shard counters{};

private:
    shape shape_;
    engine::ring_view ring_{};
};

inline std::string world::name_of(std::size_t offset) const {
    struct part {
        const char* name;
        const void* begin;
        std::size_t bytes, stride;
    };
    const part parts[] = {
        {"page word", memory.words, sizeof memory.words, 8},
        {"frame word", memory.frame_words, sizeof memory.frame_words, 8},
        {"frame bytes", memory.frames, sizeof memory.frames, page_bytes},
        {"clock hand", memory.clock_hand, sizeof memory.clock_hand, 32},
        {"file word", memory.file_words, sizeof memory.file_words, 8},
        {"count of openings", memory.openings, sizeof memory.openings, 4},
        {"name slot", memory.names, sizeof memory.names, sizeof memory.names[0]},
        {"name lock", &memory.name_lock, 8, 8},
        {"retire hand", &memory.retire_hand, 8, 8},
        {"fill done", &memory.fill_done, 8, 8},
        {"path", memory.paths, sizeof memory.paths, 8},
        {"request", memory.requests, sizeof memory.requests, sizeof memory.requests[0]},
        {"reply", memory.replies, sizeof memory.replies, sizeof memory.replies[0]},
        {"tier word", memory.tier_words, sizeof memory.tier_words, 8},
        {"tier frame word", memory.tier_frame_words, sizeof memory.tier_frame_words, 8},
        {"tier frame bytes", memory.tier_frames, sizeof memory.tier_frames, page_bytes},
        {"fill mark", memory.fill_marks, sizeof memory.fill_marks, 8},
        {"done mark", memory.done_marks, sizeof memory.done_marks, 8},
        {"ring tail", &memory.tail, 8, 8},
        {"window word", memory.windows, sizeof memory.windows, 8},
        {"chunk word", memory.window_chunks, sizeof memory.window_chunks, 8},
        {"window bytes", memory.window_bytes, sizeof memory.window_bytes, page_bytes},
        {"write record", memory.writes, sizeof memory.writes, sizeof memory.writes[0]},
        {"dirty bits", memory.dirty_bits, sizeof memory.dirty_bits, 8},
        {"page of frame", memory.frame_pages, sizeof memory.frame_pages, 8},
        {"frame lock", memory.write_locks, sizeof memory.write_locks, 8},
        {"pristine word", memory.pristine, sizeof memory.pristine, 8},
        {"offered run", &memory.offered_run, 8, 8},
        {"disk", memory.disk, sizeof memory.disk, 8},
        {"neighbour's page word", memory.neighbour.words, sizeof memory.neighbour.words, 8},
        {"neighbour's frame bytes", memory.neighbour.frames, sizeof memory.neighbour.frames,
         page_bytes},
        {"neighbour's file word", memory.neighbour.file_words, sizeof memory.neighbour.file_words,
         8},
        {"visit", &memory.visits, sizeof memory.visits, 8},
        {"entry", memory.entries, sizeof memory.entries, sizeof memory.entries[0]},
        {"free mark", memory.free_ticket, sizeof memory.free_ticket, 8}};
    const auto* at = reinterpret_cast<const std::byte*>(&memory) + offset;
    for (const part& p : parts) {
        const auto* begin = static_cast<const std::byte*>(p.begin);
        if (at < begin || at >= begin + p.bytes) continue;
        const auto into = static_cast<std::size_t>(at - begin);
        std::string text = std::string(p.name) + ' ' + std::to_string(into / p.stride);
        if (p.stride > 8) text += " +" + std::to_string(into % p.stride);
        return text;
    }
    return "word " + std::to_string(offset / 8);
}

}  // namespace penstock::explore_kit
