// Two linked caches with one file: slot 0 of the first, slot 1 of the second.
#pragma once

#include "explore/row_table.hpp"
#include "explore/scenario.hpp"
#include "links/visit_drain.hpp"

namespace penstock::explore_kit {

struct linked_file : one_file {
    static constexpr std::uint32_t far_slot = 1;

    explicit linked_file(const shape& dimensions, std::uint32_t far_frames = 1)
        : one_file(dimensions), far(w.view) {
        auto& n = w.memory.neighbour;
        far.words = n.words;
        far.frame_words = n.frame_words;
        far.frames = n.frames;
        far.clock_hands = n.clock_hand;
        far.fill_done = reinterpret_cast<std::uint32_t*>(&n.fill_done);
        far.file_words = n.file_words;
        far.file_records = n.file_records;
        far.word_count = neighbour_words;
        far.frame_count = far_frames;
        far.file_slots = max_files;
        for (engine::cache_view* const view : {&w.view, &far}) {
            view->neighbours = w.memory.views + (view == &far ? 1 : 0);
            view->neighbour_entries = w.memory.entries + (view == &far ? max_files : 0);
            view->neighbour_places = 1;
            view->link_rank = view == &far ? 0 : 1;
        }
        prepare = [this, before = prepare] {
            before();
            server.given_already(far_slot, 1);
            far_fd = far_opened(far_slot, 1);
            w.memory.views[0] = seen_from_outside(far);
            w.memory.views[1] = seen_from_outside(w.view);
            w.memory.fill_done = w.memory.neighbour.fill_done = 1;
            w.memory.entries[0] = {engine::make_entry_life(1, far_slot, 1, false), 0};
            w.memory.entries[max_files + far_slot] = {engine::make_entry_life(1, 0, 1, false), 0};
            w.counters = {};
        };
        also([this] {
            const auto report = engine::check_invariants(far, held_far);
            if (report.rule != nullptr) explore::violation(report.rule);
        });
        held_far.references = 1;
    }

    engine::cache_view far;
    engine::quiescent_state held_far;
    int far_fd = 0;

    [[nodiscard]] runtime_ref far_fs() const { return {far, 1}; }
    [[nodiscard]] std::uint64_t counted(engine::counter kind) const {
        return w.counters.count[kind];
    }
    auto far_reader(std::uint64_t page) {
        return [this, page](auto g) { read_and_compare(g, far_fs(), far_fd, 1, page); };
    }
    // Reads rows of half a page by a list, one of each page.
    auto row_reader() {
        return [this](explore_lane g) {
            constexpr std::uint64_t row_words = words_per_page / 2;
            const row_table own(w.view, fd, page_bytes, page_bytes / 2, 0, 4);
            const std::int32_t numbers[] = {1, 2};
            std::uint64_t got[2][row_words] = {};
            explore::require(gather(g, w.fs(), own.ref, numbers, 2, got) == 0,
                             "a row could not be had");
            for (std::uint64_t k = 0; k < 2; ++k)
                for (std::uint64_t i = 0; i < row_words; ++i) {
                    const std::uint64_t word =
                        static_cast<std::uint64_t>(numbers[k]) * row_words + i;
                    explore::require(
                        got[k][i] == content(1, word / words_per_page, word % words_per_page),
                        "a row has wrong bytes");
                }
        };
    }
    // The neighbour has read `page` already; it lies in its frame `frame`.
    void warm_far(std::uint64_t page, std::uint32_t frame) {
        prepare = [this, before = prepare, page, frame] {
            before();
            hold_far(far_slot, page, frame, 1);
        };
    }
    void hold_far(std::uint32_t slot, std::uint64_t page, std::uint32_t frame,
                  std::uint64_t inode) {
        auto& n = w.memory.neighbour;
        n.words[page] = engine::state_valid | frame;
        n.frame_words[frame] = engine::make_owned(slot, page);
        for (std::uint64_t i = 0; i < words_per_page; ++i)
            far_bytes(frame)[i] = content(inode, page, i);
    }
    std::uint64_t* far_bytes(std::uint32_t frame) {
        return reinterpret_cast<std::uint64_t*>(w.memory.neighbour.frames + frame * page_bytes);
    }

    // The neighbour evicts page 0 by reading page 1, and reads page 0 again.
    template <typename Lane>
    void evict_and_reload(const Lane& g) {
        far_reader(1)(g);
        far_reader(0)(g);
    }
    // The neighbour takes its file down. Its words serve as a directory for a while, which leaves
    // them as they were at first (engine/retire.hpp, sweep_table), and then another file's page 0
    // takes the same word and frame.
    template <typename Lane>
    void give_table_away(const Lane&) {
        auto& n = w.memory.neighbour;
        engine::file_word* const word = &n.file_words[far_slot];
        const engine::file_word seen = engine::look(word);
        explore::require(engine::begin_retire(word, seen), "the file is not closed");
        explore::require(engine::sweep_word(far, &n.words[0], engine::load_relaxed(&n.words[0])),
                         "a page is held");
        engine::end_retire(word, 1);
        explore::require(engine::begin_fill(word, engine::look(word), 2), "the slot is taken");
        engine::reset(&n.words[0]);
        for (std::uint64_t i = 0; i < words_per_page; ++i)
            atomic_store<order::relaxed>(far_bytes(0) + i, content(2, 0, i));
        engine::set_frame_word(far, 0, engine::make_owned(far_slot, 0));
        atomic_store<order::release>(&n.words[0], engine::state_valid);
        n.file_records[far_slot].generation = 2;
        engine::end_fill(word, 2);
    }
    // The host withdraws the file from the first cache, answers an open for writing in the second,
    // and its kernel stores to page 0.
    template <typename Lane>
    void open_and_store(const Lane&) {
        atomic_store<order::relaxed>(&w.memory.entries[0].life, std::uint64_t{0});
        for (std::uint64_t i = 0; i < words_per_page; ++i)
            atomic_store<order::relaxed>(far_bytes(0) + i, ~std::uint64_t{0});
    }
    // The neighbour's last entry was of another file, whose page 0 is in word 2; that of this one
    // is in word 0. The host writes the new entry over the old one.
    void begin_with_another_entry() {
        prepare = [this, before = prepare] {
            before();
            far_opened(far_slot + 1, 1);
            w.memory.neighbour.file_words[far_slot + 1] -= 1;
            w.memory.neighbour.file_records[far_slot + 1].table = 2;
            w.memory.neighbour.file_records[far_slot + 1].page_count = 1;
            hold_far(far_slot + 1, 2, 1, 2);
            w.memory.entries[0] = {0, 2};
        };
    }
    template <typename Lane>
    void enter(const Lane&) {
        atomic_store<order::relaxed>(&w.memory.entries[0].table, std::uint64_t{0});
        atomic_store<order::release>(&w.memory.entries[0].life,
                                     engine::make_entry_life(1, far_slot, 1, false));
    }

private:
    int far_opened(std::uint32_t slot, std::uint32_t generation) {
        auto& n = w.memory.neighbour;
        n.file_words[slot] = engine::make_file_word(engine::file_live, generation, 1);
        n.file_records[slot] = {2 * page_bytes, 2, 0, slot + 1, 0, 0, generation, 0, 0};
        return engine::make_descriptor(slot, generation);
    }
    static engine::neighbour_view seen_from_outside(const engine::cache_view& c) {
        return {reinterpret_cast<std::uintptr_t>(c.words),
                reinterpret_cast<std::uintptr_t>(c.file_words),
                reinterpret_cast<std::uintptr_t>(c.writes),
                reinterpret_cast<std::uintptr_t>(c.frames),
                c.word_count,
                c.frame_count,
                c.file_slots,
                c.leaf_shift,
                engine::same_memory,
                c.link_rank};
    }
};

// The same, with the file closed in the second cache.
struct closed_next_door : linked_file {
    explicit closed_next_door(const shape& dimensions) : linked_file(dimensions) {
        warm_far(0, 0);
        prepare = [this, before = prepare] {
            before();
            w.memory.neighbour.file_words[far_slot] -= 1;
        };
        held_far.references = 1;  // of the file that takes the slot
    }
};

// The neighbour leaves: the host of the first cache takes its entry away, waits until no reader can
// go by it, and unmaps the neighbour's memory.
struct leaving_neighbour : linked_file {
    static constexpr std::uint64_t unmapped = 0xdeaddeaddeaddeadu;

    explicit leaving_neighbour(const shape& dimensions) : linked_file(dimensions) {
        w.view.visits = &w.memory.visits;
        gone = unmapped;
        warm_far(0, 0);
        // The second cache itself is gone in the end; all readers have left.
        check = [this] {
            for (const engine::visit_shard& shard : w.memory.visits.shards)
                explore::require(shard.inside[0] == 0 && shard.inside[1] == 0,
                                 "a reader is counted still");
        };
    }

    template <typename Lane>
    void leave(const Lane& g) {
        withdraw();
        penstock::host::visit_drain<counts> drain(counts_, &w.memory.visits);
        const std::uint64_t cycle = drain.begin();
        for (drain.step(); drain.cycles() < cycle; drain.step()) g.pause(0);
        unmap();
    }
    void withdraw() { atomic_store<order::release>(&w.memory.entries[0].life, std::uint64_t{0}); }
    // Until one count of the shard in use was seen at 0.
    template <typename Lane>
    void wait_for_round(const Lane& g, std::uint32_t round) {
        const std::uint64_t* const count = &w.memory.visits.shards[shard_of(0)].inside[round];
        while (atomic_load<order::acquire>(count) != 0) g.pause(0);
    }
    // A store to each word that a reader may look at, so that every order of the two is tried.
    void unmap() {
        auto& n = w.memory.neighbour;
        atomic_store<order::relaxed>(&n.words[0], unmapped);
        atomic_store<order::relaxed>(&n.file_words[far_slot], unmapped);
        for (std::uint64_t i = 0; i < words_per_page; ++i)
            atomic_store<order::relaxed>(far_bytes(0) + i, unmapped);
    }

private:
    // The first cache's device, as visit_drain sees it. One shard is in use; the others are looked
    // at by no other fiber, so they are no points of the schedule.
    struct counts {
        static constexpr std::uint64_t most_sampled = sizeof(engine::neighbour_visits);
        static int upload(std::uint64_t* to, const void* from, std::uint64_t) {
            std::uint64_t value = 0;
            std::memcpy(&value, from, sizeof value);
            atomic_store<order::release>(to, value);
            return 0;
        }
        static int sample(std::uint64_t* out, std::uint64_t* inside, std::uint64_t count) {
            constexpr std::uint64_t words = sizeof(engine::visit_shard) / sizeof(std::uint64_t);
            const std::uint64_t used = shard_of(0) * words;
            for (std::uint64_t i = 0; i < count; ++i)
                out[i] = i / words == used / words && i % words < 2
                             ? atomic_fetch_add<order::acq_rel>(inside + i, std::uint64_t{0})
                             : 0;
            return 0;
        }
    };
    static std::uint64_t shard_of(std::uint64_t page) {
        return mix64(page) & (engine::visit_shards - 1);
    }
    counts counts_;
};

// The neighbour began to load page 0 and never ends; its rank is lower.
struct stuck_neighbour : linked_file {
    explicit stuck_neighbour(const shape& dimensions) : linked_file(dimensions) {
        prepare = [this, before = prepare] {
            before();
            w.memory.neighbour.words[0] = engine::state_loading;
        };
        check = [this] {
            explore::require(server.asked.reads == 1, "the page was not asked for once");
            explore::require(counted(engine::count_neighbour_waits) == 1,
                             "the reader did not wait for the neighbour, once");
        };
    }
};

}  // namespace penstock::explore_kit
