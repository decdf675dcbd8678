// Linked caches without files, bytes and a host, for simulations: page words and frame words in
// ordinary memory, and the engine's own steps on them.
//
//   hit      touch
//   look     engine::look_at_neighbours
//   enter    engine::admits, with time that is a counter, so that a seed decides the draws
//   load     try_claim, engine::take_frame, make_owned with the replica bit, publish_and_unpin
//
// One thread takes all steps, so no page is pinned or loading when another access looks at it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "penstock/base/hash.hpp"
#include "penstock/engine/clock.hpp"
#include "penstock/engine/neighbour.hpp"
#include "penstock/engine/through.hpp"
#include "penstock/group/lane.hpp"
#include "policies.hpp"

namespace penstock::bench::policy {

// When a page that a neighbour holds enters the cache of its reader.
enum class copy_in : std::uint8_t {
    as_engine,  // as seldom as engine::neighbour_rate_of says
    always,
    never,
    one_in  // one read in so many, also while the cache is filling
};

// Where pages of linked caches lie.
struct placement {
    const char* name;
    copy_in kind = copy_in::as_engine;
    std::uint32_t n = 0;  // of one_in
    bool is_linked = true;
    bool marks_replicas = true;  // with the bit that lets replicas leave first
    bool has_homes = false;      // a page lies in the cache that its hash picks, and nowhere else
    std::uint32_t admit_one_in = 1;  // options::admit_one_in; 1: every page from the host enters
};

enum class source : std::uint8_t { own, neighbour, host };

// One thread as a group, whose clock is a counter.
struct counting_lane : lane {
    std::uint64_t* ticks;
    std::uint32_t number;

    counting_lane(std::uint64_t& from, std::uint32_t of) : ticks(&from), number(of) {}
    std::uint64_t now_ns() const { return ++*ticks; }
    std::uint32_t home() const { return number; }
};

// A file of `pages` pages that each of `count` caches has open.
class linked_caches {
public:
    static constexpr std::uint32_t page_shift = 12;

    linked_caches(const placement& rule, std::uint32_t count, std::uint32_t frames,
                  std::uint32_t pages, std::uint64_t seed)
        : rule_(rule), pages_(pages), ticks_(mix64(seed)) {
        const std::uint32_t shards = engine_shards(frames);
        frames_ = frames / shards * shards;
        frame_bytes_ =
            std::make_unique_for_overwrite<std::byte[]>(std::size_t{frames_} << page_shift);
        for (std::uint32_t number = 0; number < count; ++number)
            caches_.push_back(std::make_unique<cache>(*this, number, count, shards));
        if (rule.is_linked)
            for (auto& reader : caches_) link(*reader);
    }

    // The cache with that number reads a page; where it came from.
    source access(std::uint32_t number, std::uint32_t page) {
        if (rule_.has_homes) return access_home(number, page);
        cache& own = *caches_[number];
        if (hits(own, page)) return source::own;
        engine::through_look look;
        look.length = own.view.page_bytes();
        if (rule_.is_linked) look.neighbour = engine::look_at_neighbours(own.view, handle(), page);
        const bool is_near = look.neighbour.frame != nullptr;
        if (enters(own, page, look)) load(own, page, is_near && rule_.marks_replicas);
        return is_near ? source::neighbour : source::host;
    }

    // The view of a cache, for checks.
    [[nodiscard]] const engine::cache_view& view(std::uint32_t number) const {
        return caches_[number]->view;
    }

private:
    static constexpr std::uint32_t slot = 0, generation = 1;

    struct cache {
        cache(const linked_caches& all, std::uint32_t number_of, std::uint32_t count,
              std::uint32_t shards)
            : number(number_of),
              words(all.pages_),
              frame_words(all.frames_),
              hands(std::size_t{shards} * engine::clock_hand_stride),
              drawn(std::bit_floor(all.frames_)),
              neighbours(count - 1),
              entries(count - 1) {
            view.words = words.data();
            view.frame_words = frame_words.data();
            view.frames = all.frame_bytes_.get();
            view.clock_hands = hands.data();
            view.fill_done = &fill_done;
            view.drawn_pages = drawn.data();
            view.drawn_places = static_cast<std::uint32_t>(drawn.size());
            view.file_words = &file;
            view.counters = &counters;
            view.counter_shards = 1;
            view.control = &control;
            view.word_count = words.size();
            view.frame_wait_ns = view.request_wait_ns = view.look_ns = view.host_wait_ns =
                std::uint64_t{1} << 40;
            view.page_shift = page_shift;
            view.frame_count = all.frames_;
            view.clock_shards = shards;
            view.file_slots = 1;
            view.admit_one_in = all.rule_.admit_one_in;
            view.link_rank = number;
        }

        const std::uint32_t number;
        std::vector<engine::page_word> words;
        std::vector<engine::frame_word> frame_words;
        std::vector<std::uint32_t> hands;
        std::vector<std::uint64_t> drawn;
        std::vector<engine::neighbour_view> neighbours;
        std::vector<engine::neighbour_entry> entries;
        std::uint32_t fill_done = 0;
        engine::file_word file = engine::make_file_word(engine::file_live, generation, 1);
        engine::counter_shard counters{};
        engine::control_block control{0, 1};
        engine::cache_view view{};
    };

    // The reader learns of all others, as links::connect and links::entries_of tell it.
    void link(cache& reader) {
        reader.view.neighbours = reader.neighbours.data();
        reader.view.neighbour_entries = reader.entries.data();
        reader.view.neighbour_places = static_cast<std::uint32_t>(reader.neighbours.size());
        std::size_t place = 0;
        for (const auto& owner : caches_) {
            if (owner->number == reader.number) continue;
            reader.neighbours[place] = {reinterpret_cast<std::uintptr_t>(owner->view.words),
                                        reinterpret_cast<std::uintptr_t>(owner->view.file_words),
                                        0,
                                        reinterpret_cast<std::uintptr_t>(owner->view.frames),
                                        owner->view.word_count,
                                        owner->view.frame_count,
                                        1,
                                        0,
                                        engine::by_nvlink,
                                        owner->number};
            reader.entries[place++] = {engine::make_entry_life(generation, slot, generation, false),
                                       0};
        }
    }

    [[nodiscard]] engine::file_handle handle() const {
        return {std::uint64_t{pages_} << page_shift, 0, slot, generation, false};
    }

    static bool hits(const cache& in, std::uint32_t page) {
        engine::page_word* const word = &in.view.words[page];
        const engine::page_word seen = engine::load_for_read(word);
        if (!engine::is_valid(seen)) return false;
        engine::touch(word, seen);
        return true;
    }

    bool enters(const cache& own, std::uint32_t page, const engine::through_look& look) {
        const counting_lane g(ticks_, own.number);
        if (look.neighbour.frame != nullptr && rule_.kind != copy_in::as_engine)
            return rule_.kind == copy_in::always ||
                   (rule_.kind == copy_in::one_in && engine::draws(g, rule_.n));
        return engine::admits(g, own.view, slot, page, look);
    }

    void load(const cache& own, std::uint32_t page, bool is_replica) {
        const counting_lane g(ticks_, own.number);
        engine::page_word* const word = &own.view.words[page];
        if (!engine::try_claim(word, engine::load_relaxed(word))) return;
        engine::wait_deadline deadline(g, own.view.frame_wait_ns);
        engine::keep_nothing keep;
        std::uint32_t frame = 0;
        if (engine::take_frame(g, own.view, page, true, deadline, frame, keep) != 0) {
            engine::abandon(word);
            return;
        }
        engine::set_frame_word(
            own.view, frame,
            engine::make_owned(slot, page) | (is_replica ? engine::replica_bit : 0));
        engine::publish_and_unpin(word, frame);
    }

    source access_home(std::uint32_t number, std::uint32_t page) {
        const auto home = static_cast<std::uint32_t>((mix64(page) >> 32) % caches_.size());
        if (hits(*caches_[home], page)) return home == number ? source::own : source::neighbour;
        load(*caches_[home], page, false);
        return source::host;
    }

    const placement rule_;
    const std::uint32_t pages_;
    std::uint32_t frames_ = 0;
    std::uint64_t ticks_;
    std::unique_ptr<std::byte[]> frame_bytes_;  // of all caches; no step looks at a byte
    std::vector<std::unique_ptr<cache>> caches_;
};

}  // namespace penstock::bench::policy
