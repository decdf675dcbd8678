// A file of which one lane cuts the second page off while another writes there.
#pragma once

#include "explore/written_file.hpp"

namespace penstock::explore_kit {

// Slot 0, two pages. The write is acknowledged, so it came before the cut, and then nothing is left
// of it; or after it, and then it is there and the file reaches to its end.
struct cut_file : written_file {
    static constexpr std::uint64_t word = words_per_page, value = 70;
    bool is_written = false;

    explicit cut_file(std::uint32_t frames = 2)
        : written_file({.frames = frames, .ring_slots = 4}) {
        prepare = [this, before = prepare] {
            before();
            is_written = false;
        };
        check = [this] { compare_size(); };
    }
    auto cutter() {
        return [this](auto g) {
            explore::require(truncate(g, w.fs(), fd, page_bytes) == 0, "a cut failed");
        };
    }
    template <typename Lane>
    void write_word(const Lane& g) {
        const std::uint64_t bytes = value;
        const std::int64_t done =
            write(g, w.fs(), fd, &bytes, 8, static_cast<std::int64_t>(page_bytes));
        explore::require(done == 8 || done == -ETIMEDOUT, "a write failed");
        is_written = is_written || done == 8;
    }

private:
    void compare_size() const {
        const std::uint64_t size = w.memory.file_records[0].size_bytes;
        const bool is_there = size == page_bytes + 8;
        explore::require(is_there || size == page_bytes, "the size is of no order of the two");
        explore::require(server.written_bytes <= size, "the file reaches behind the device's end");
        if (!is_there) {
            explore::require(server.written_bytes == page_bytes, "the file was not cut");
            const engine::page_word seen = w.memory.words[1];
            explore::require(!engine::is_valid(seen) || !engine::is_dirty(seen),
                             "bytes behind the cut go to the file yet");
            return;
        }
        explore::require(is_written, "the file grew, and nothing was written");
        explore::require(word_now(word) == value, "a written word was lost");
        for (std::uint64_t i = word + 1; i < 2 * words_per_page; ++i)
            explore::require(word_now(i) == 0, "a byte behind the cut came back");
        explore::require(engine::is_valid(w.memory.words[1]) || server.written_bytes == size,
                         "a written word was not brought to the file");
    }
};

// A lane holds a pointer to the page that is cut off, and has written there before. What it stores
// through the pointer comes before the cut, and goes; or after it, and is there.
struct held_cut_file : cut_file {
    held_cut_file() : held_cut_file(nothing_yet{}) {
        warm(1, 1);
        lane(cutter());
        lane([this](auto g) {
            const writable_mapping mapped = map_write(g, w.fs(), fd, page_bytes, page_bytes);
            explore::require(mapped.bytes == page_bytes, "a map failed");
            write_word(g);
            explore::require(unmap(g, w.fs(), mapped) == 0, "an unmap failed");
        });
    }

protected:
    struct nothing_yet {};
    explicit held_cut_file(nothing_yet) : cut_file(3) {
        check = [this] { compare_held(); };
    }

private:
    void compare_held() const {
        const std::uint64_t size = w.memory.file_records[0].size_bytes;
        explore::require(size == page_bytes || size == 2 * page_bytes,
                         "the size is of no order of the two");
        explore::require(server.written_bytes <= size, "the file reaches behind the device's end");
        for (std::uint64_t i = word; i < 2 * words_per_page; ++i)
            explore::require(
                word_now(i) == 0 || (i == word && word_now(i) == value) || size == page_bytes,
                "a byte behind the cut came back");
        const engine::page_word seen = w.memory.words[1];
        const bool is_dirty = engine::is_valid(seen) && engine::is_dirty(seen);
        explore::require(size != page_bytes || !is_dirty, "bytes behind the cut go to the file");
        for (std::uint64_t i = word; i < 2 * words_per_page; ++i)
            explore::require(
                size == page_bytes || marks_of(i) != 0 || w.memory.disk[i] == word_now(i),
                "the file has a byte that the device does not have");
        explore::require(is_dirty || server.written_bytes == size,
                         "the size was not brought there");
    }
    // Of a word of the second page.
    std::uint64_t marks_of(std::uint64_t number) const {
        const engine::page_word seen = w.memory.words[1];
        if (!engine::is_valid(seen)) return 0;
        return w.memory.dirty_bits[engine::frame_of(seen)] >> (8 * (number - word)) & 0xff;
    }
};

// A pointer holds the page, which has a word that was written before. Lanes cut the page off, bring
// it to the file, as often as they find it dirty, and give the pointer back.
struct synced_cut_file : held_cut_file {
    synced_cut_file() : held_cut_file(nothing_yet{}) {
        turned_dirty(1, 1, 0, value);
        prepare = [this, before = prepare] {
            before();
            w.memory.pristine[1] = engine::pristine_of(2);
            w.memory.frame_words[2] = engine::frame_copy;
            std::memcpy(w.memory.frames + 2 * page_bytes, w.memory.frames + page_bytes, page_bytes);
            w.memory.words[1] += engine::pin_one;
            w.memory.writes[0].mappings = 1;
        };
        lane(cutter());
    }
    auto unmapper() {
        return [this](auto g) {
            const writable_mapping mapped{w.view.frame_address(1), page_bytes, 1, 1, 0};
            explore::require(unmap(g, w.fs(), mapped) == 0, "an unmap failed");
        };
    }
};

// A cut of the second page was left, before the host was asked for it. Two lanes want to write
// there: one of them takes the cut up, and then both words stay.
struct left_cut_file : cut_file {
    left_cut_file() {
        warm(1, 1);
        prepare = [this, before = prepare] {
            before();
            w.memory.writes[0].gate = engine::gate_closed | engine::gate_left;
            w.memory.writes[0].left_cut = engine::cut_is_to_ask;
            w.memory.writes[0].cut_bytes = page_bytes;
            w.memory.writes[0].cut_end_bytes = 2 * page_bytes;
        };
        lane(writer(1, 0, value));
        lane(writer(1, 1, value + 1));
        check = [this] {
            explore::require(word_now(word) == value && word_now(word + 1) == value + 1,
                             "a written word was lost");
            explore::require(w.memory.writes[0].gate == 0 && server.asked.cuts == 1,
                             "the cut was not made once");
        };
    }
};

// The host makes the first cut after its group gave up waiting. What is written then stays.
struct late_cut_file : cut_file {
    late_cut_file() : late_cut_file(1001, false) {}

protected:
    late_cut_file(std::uint64_t late_ns, bool waits_for_other) {
        warm(1, 1);
        server.decide = [late_ns](const engine::ring_request& request) {
            if (request.operation == engine::op::read) return plan{.when = timing::never};
            return request.operation == engine::op::truncate && request.published == 1
                       ? plan{.when = timing::late, .late_ns = late_ns}
                       : plan{};
        };
        lane([this, waits_for_other](auto g) {
            const int code = truncate(g, w.fs(), fd, page_bytes);
            explore::require(code == 0 || code == -ETIMEDOUT, "a cut failed");
            while (waits_for_other && atomic_load<order::acquire>(has_ended()) == 0) g.pause(0);
            for (int tries = 0; tries < 3 && !is_written; ++tries) write_word(g);
            explore::require(is_written, "a cut was never made");
            static_cast<void>(fsync(g, w.fs(), fd));
            std::uint64_t got = 0;
            static_cast<void>(read(g, w.fs(), fd, &got, 8, 0));  // patience runs out once more
        });
        check = [this] {
            if (!is_written) return;
            explore::require(word_now(word) == value, "a written word was lost");
            explore::require(server.written_bytes == page_bytes + 8, "a late cut took a write");
        };
    }
    // Of another lane that cuts; the engine does not use this word here.
    std::uint64_t* has_ended() { return &w.memory.retire_hand; }
};

// Each pause takes longer than any wait, and lets no other lane run. So its waits end while other
// lanes stand anywhere, not only where they wait too.
struct impatient_lane : explore_lane {
    impatient_lane(const explore_lane& g, std::uint64_t& clock) : explore_lane(g), clock_(&clock) {}
    std::uint64_t now_ns() const { return *clock_; }
    void pause(std::uint32_t) const { *clock_ += 1000; }

private:
    std::uint64_t* clock_;
};

// Another lane cuts the file too, and waits for nothing. What is written after both stays.
struct twice_cut_file : late_cut_file {
    twice_cut_file() : late_cut_file(1, true) {
        lane([this](auto g) {
            std::uint64_t clock = 0;
            const int code = truncate(impatient_lane(g, clock), w.fs(), fd, page_bytes);
            explore::require(code == 0 || code == -ETIMEDOUT, "a cut failed");
            atomic_store<order::release>(has_ended(), std::uint64_t{1});
        });
        also([this] {
            const std::uint64_t gate = w.memory.writes[0].gate;
            explore::require(gate == 0 || gate == (engine::gate_closed | engine::gate_left),
                             "the gate is neither open nor left");
        });
    }
};

}  // namespace penstock::explore_kit
