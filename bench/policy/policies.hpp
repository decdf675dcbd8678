// Replacement policies that are tried over traces, from FIFO to the optimum that knows the future.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <queue>
#include <utility>
#include <vector>

#include "buffer/core/types.hpp"
#include "penstock/base/hash.hpp"

namespace penstock::bench::policy {

using buffer::linked;
using buffer::list_ends;

// FIFO: the page that was loaded first goes first. A hit changes nothing.
//
// Every policy here has the same shape: made for so many frames and pages, access(page) says
// whether it was a hit and, if not, loads the page in place of a victim.

inline constexpr std::uint32_t nothing = ~std::uint32_t{0};

class fifo {
public:
    fifo(std::uint32_t frames, std::uint32_t pages)
        : in_frame_(frames, nothing), resident_(pages) {}

    bool access(std::uint32_t page) {
        if (resident_[page] != 0) return true;
        const std::uint32_t victim = in_frame_[next_];
        if (victim != nothing) resident_[victim] = 0;
        in_frame_[next_] = page;
        resident_[page] = 1;
        next_ = next_ + 1 == in_frame_.size() ? 0 : next_ + 1;
        return false;
    }

private:
    std::vector<std::uint32_t> in_frame_;
    std::vector<std::uint8_t> resident_;
    std::uint32_t next_ = 0;
};

// How the engine spreads frames over shards: frames that were never used first, whatever their
// shard, then a victim of the shard that the page's number picks
// (include/penstock/engine/clock.hpp).

// As the runtime chooses it.
inline std::uint32_t engine_shards(std::uint32_t frames) {
    return std::clamp(std::bit_floor(frames / 256), 1u, 1024u);
}

class shard_map {
public:
    shard_map(std::uint32_t frames, std::uint32_t shards)
        : per_shard_(frames / shards), used_(shards) {}

    [[nodiscard]] std::uint32_t shards() const { return static_cast<std::uint32_t>(used_.size()); }
    [[nodiscard]] std::uint32_t per_shard() const { return per_shard_; }
    [[nodiscard]] std::uint32_t frames() const { return per_shard_ * shards(); }
    [[nodiscard]] std::uint32_t shard_of(std::uint32_t page) const {
        return static_cast<std::uint32_t>(mix64(page)) & (shards() - 1);
    }

    // A frame that was never used, or `nothing`.
    std::uint32_t fresh(std::uint32_t page) {
        for (std::uint32_t i = 0; !full_ && i < shards(); ++i) {
            const std::uint32_t shard = (shard_of(page) + i) & (shards() - 1);
            if (used_[shard] < per_shard_) return shard * per_shard_ + used_[shard]++;
        }
        full_ = true;
        return nothing;
    }

private:
    std::uint32_t per_shard_;
    std::vector<std::uint32_t> used_;
    bool full_ = false;
};

// CLOCK with one use bit, as the engine has it: a hand for each shard passes over frames whose bit
// is set, clearing it, and takes the first that is clear; the new page lies in the victim's place,
// just behind the hand. A hit sets the bit where it is clear.

// Whether a page that was just loaded counts as used. In the engine it does not.
enum class at_load { used, unused };

class clock {
public:
    clock(std::uint32_t frames, std::uint32_t pages, std::uint32_t shards = 1,
          at_load bit = at_load::unused)
        : map_(frames, shards),
          bit_(bit == at_load::used),
          hands_(shards),
          in_frame_(map_.frames(), nothing),
          used_(map_.frames()),
          frame_of_(pages, nothing) {}

    [[nodiscard]] bool holds(std::uint32_t page) const { return frame_of_[page] != nothing; }

    bool access(std::uint32_t page) {
        if (const std::uint32_t frame = frame_of_[page]; frame != nothing) {
            used_[frame] = 1;
            return true;
        }
        std::uint32_t frame = map_.fresh(page);
        if (frame == nothing) frame = evict(map_.shard_of(page));
        in_frame_[frame] = page;
        used_[frame] = bit_;
        frame_of_[page] = frame;
        return false;
    }

private:
    std::uint32_t evict(std::uint32_t shard) {
        for (;;) {
            const std::uint32_t frame = shard * map_.per_shard() + hands_[shard];
            hands_[shard] = hands_[shard] + 1 == map_.per_shard() ? 0 : hands_[shard] + 1;
            if (used_[frame] != 0) {
                used_[frame] = 0;
                continue;
            }
            frame_of_[in_frame_[frame]] = nothing;
            return frame;
        }
    }

    shard_map map_;
    std::uint8_t bit_;
    std::vector<std::uint32_t> hands_;
    std::vector<std::uint32_t> in_frame_;
    std::vector<std::uint8_t> used_;
    std::vector<std::uint32_t> frame_of_;
};

// LRU: the page that was not used for longest goes. A hit moves the page to the front of a list.
class lru {
public:
    lru(std::uint32_t frames, std::uint32_t pages)
        : frames_(frames), links_(pages), resident_(pages) {}

    bool access(std::uint32_t page) {
        const bool hit = resident_[page] != 0;
        if (hit) {
            links_.remove(ends_, page);
        } else if (ends_.size == frames_) {
            const std::uint32_t victim = ends_.oldest;
            links_.remove(ends_, victim);
            resident_[victim] = 0;
        }
        links_.push_newest(ends_, page);
        resident_[page] = 1;
        return hit;
    }

private:
    std::uint32_t frames_;
    linked links_;
    list_ends ends_;
    std::vector<std::uint8_t> resident_;
};

// SIEVE (Zhang and others, NSDI 2024): pages in the order in which they were loaded, a hand that
// goes from the oldest to the newest, clears the use bits that it finds set, and takes the first
// page whose bit is clear. A page that the hand spares stays where it is, and a new one is put at
// the newest end, so the hand comes to new pages soon and to proven ones late. A hit sets one bit.
class sieve {
public:
    sieve(std::uint32_t frames, std::uint32_t pages)
        : frames_(frames), links_(pages), resident_(pages), used_(pages) {}

    bool access(std::uint32_t page) {
        if (resident_[page] != 0) {
            used_[page] = 1;
            return true;
        }
        if (ends_.size == frames_) evict();
        links_.push_newest(ends_, page);
        resident_[page] = 1;
        used_[page] = 0;
        return false;
    }

private:
    void evict() {
        std::uint32_t at = hand_ == nothing ? ends_.oldest : hand_;
        while (used_[at] != 0) {
            used_[at] = 0;
            at = links_.newer(at) == nothing ? ends_.oldest : links_.newer(at);
        }
        hand_ = links_.newer(at);
        links_.remove(ends_, at);
        resident_[at] = 0;
    }

    std::uint32_t frames_;
    linked links_;
    list_ends ends_;
    std::uint32_t hand_ = nothing;
    std::vector<std::uint8_t> resident_, used_;
};

// SIEVE over the frames of a sharded cache, without a list: each shard has two rings of frame
// numbers. What lies before the hand is in one, with new pages put at its end; what the hand has
// spared goes to the other, in order. When the first is empty they change places. With one shard it
// takes the same victims as class sieve.

// A ring with room for every frame of a shard, so that it is never too small.
class frame_ring {
public:
    explicit frame_ring(std::uint32_t room) : places_(room) {}
    [[nodiscard]] bool empty() const { return size_ == 0; }
    void push(std::uint32_t frame) {
        const std::uint64_t end = std::uint64_t{first_} + size_++;
        places_[end < places_.size() ? end : end - places_.size()] = frame;
    }
    std::uint32_t pop() {
        const std::uint32_t frame = places_[first_];
        first_ = first_ + 1 == places_.size() ? 0 : first_ + 1;
        --size_;
        return frame;
    }

private:
    std::vector<std::uint32_t> places_;
    std::uint32_t first_ = 0, size_ = 0;
};

class queued_sieve {
public:
    queued_sieve(std::uint32_t frames, std::uint32_t pages, std::uint32_t shards = 1)
        : map_(frames, shards),
          shards_(shards, shard(frames / shards)),
          in_frame_(map_.frames(), nothing),
          used_(map_.frames()),
          frame_of_(pages, nothing) {}

    bool access(std::uint32_t page) {
        if (const std::uint32_t frame = frame_of_[page]; frame != nothing) {
            used_[frame] = 1;
            return true;
        }
        std::uint32_t frame = map_.fresh(page);
        if (frame == nothing) frame = evict(shards_[map_.shard_of(page)]);
        in_frame_[frame] = page;
        used_[frame] = 0;
        frame_of_[page] = frame;
        shards_[frame / map_.per_shard()].ahead.push(frame);
        return false;
    }

private:
    struct shard {
        explicit shard(std::uint32_t frames) : ahead(frames), spared(frames) {}
        frame_ring ahead, spared;
    };

    std::uint32_t evict(shard& in) {
        std::uint32_t frame = in.ahead.pop();
        while (used_[frame] != 0) {
            used_[frame] = 0;
            in.spared.push(frame);
            if (in.ahead.empty()) std::swap(in.ahead, in.spared);
            frame = in.ahead.pop();
        }
        // At once, and not when the next victim is looked for: the page that comes now lies before
        // the hand, behind the others.
        if (in.ahead.empty()) std::swap(in.ahead, in.spared);
        frame_of_[in_frame_[frame]] = nothing;
        return frame;
    }

    shard_map map_;
    std::vector<shard> shards_;
    std::vector<std::uint32_t> in_frame_;
    std::vector<std::uint8_t> used_;
    std::vector<std::uint32_t> frame_of_;
};

// S3-FIFO (Yang and others, SOSP 2023): a small queue, a tenth of the frames, for new pages; a main
// queue for those that were used twice meanwhile or came back soon after they were dropped; and a
// queue of names only, as long as the main one, that remembers what was dropped. A hit counts up to
// three in two bits.
class s3_fifo {
public:
    s3_fifo(std::uint32_t frames, std::uint32_t pages)
        : frames_(frames),
          small_frames_(std::max(frames / 10, 1u)),
          names_(std::max(frames - frames / 10, 1u)),
          links_(pages),
          where_(pages),
          count_(pages) {}

    bool access(std::uint32_t page) {
        if (where_[page] == place::small || where_[page] == place::main) {
            count_[page] = static_cast<std::uint8_t>(std::min(count_[page] + 1, 3));
            return true;
        }
        const bool remembered = where_[page] == place::name;
        // Out of the way first: making room may push it out of the queue of names.
        if (remembered) move(page, place::none);
        while (small_.size + main_.size >= frames_) evict();
        count_[page] = 0;
        move(page, remembered ? place::main : place::small);
        return false;
    }

private:
    enum class place : std::uint8_t { none, small, main, name };

    void evict() {
        if (small_.size >= small_frames_ || main_.size == 0) evict_small();
        else evict_main();
    }
    void evict_small() {
        while (small_.size > 0) {
            const std::uint32_t oldest = small_.oldest;
            if (count_[oldest] > 1) {
                count_[oldest] = 0;
                move(oldest, place::main);
                continue;
            }
            if (remembered_.size == names_) move(remembered_.oldest, place::none);
            move(oldest, place::name);
            return;
        }
    }
    void evict_main() {
        for (;;) {
            const std::uint32_t oldest = main_.oldest;
            if (count_[oldest] == 0) return move(oldest, place::none);
            --count_[oldest];
            move(oldest, place::main);
        }
    }
    void move(std::uint32_t page, place to) {
        if (where_[page] != place::none) links_.remove(ends(where_[page]), page);
        where_[page] = to;
        if (to != place::none) links_.push_newest(ends(to), page);
    }
    list_ends& ends(place of) {
        return of == place::small ? small_ : of == place::main ? main_ : remembered_;
    }

    std::uint32_t frames_, small_frames_, names_;
    linked links_;
    list_ends small_, main_, remembered_;
    std::vector<place> where_;
    std::vector<std::uint8_t> count_;
};

// Belady's optimum: drops the page whose next use lies furthest ahead. It knows the future, so it
// is a bound and no policy.
class belady {
public:
    belady(std::uint32_t frames, std::uint32_t pages, const std::vector<std::uint32_t>& trace)
        : frames_(frames), next_use_(trace.size()), resident_until_(pages, absent) {
        std::vector<std::uint64_t> coming(pages, never);
        for (std::size_t i = trace.size(); i-- > 0;) {
            next_use_[i] = coming[trace[i]];
            coming[trace[i]] = i;
        }
    }

    // Call with the trace's pages in order.
    bool access(std::uint32_t page) {
        const std::uint64_t next = next_use_[at_++];
        const bool hit = resident_until_[page] != absent;
        if (!hit && resident_ == frames_) drop_one();
        else if (!hit) ++resident_;
        resident_until_[page] = next;
        order_.emplace(next, page);
        return hit;
    }

private:
    static constexpr std::uint64_t never = ~std::uint64_t{0}, absent = never - 1;

    void drop_one() {
        // An entry that the page has outlived by another use is skipped.
        while (resident_until_[order_.top().second] != order_.top().first) order_.pop();
        resident_until_[order_.top().second] = absent;
        order_.pop();
    }

    std::uint32_t frames_, resident_ = 0;
    std::vector<std::uint64_t> next_use_, resident_until_;
    std::priority_queue<std::pair<std::uint64_t, std::uint32_t>> order_;
    std::size_t at_ = 0;
};

}  // namespace penstock::bench::policy
