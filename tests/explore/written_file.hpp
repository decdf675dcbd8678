// One file that is being written, under every schedule: what the scenarios about writing have in
// common.
#pragma once

#include "explore/scenario.hpp"
#include "penstock/write.hpp"

namespace penstock::explore_kit {

// Slot 0, inode 1, two pages or more, open for reading and writing. Whatever happens, at the end
// every word is as `expect` says, in the cache or, if its page is not there, on disk; and where a
// byte is not marked, cache and disk agree.
struct written_file : scenario {
    explicit written_file(const shape& dimensions, std::uint64_t pages = 2)
        : scenario(with_writes(dimensions)), pages_(pages) {
        prepare = [this] {
            server.given_already(0, 1);
            w.open_now(0, pages_ * page_bytes, 0);
            w.memory.writes[0].granted = 1;
            w.memory.writes[0].writers = 1;
            w.memory.writes[0].stored_bytes = pages_ * page_bytes;
            server.written_bytes = pages_ * page_bytes;
            for (std::uint64_t i = 0; i < pages_ * words_per_page; ++i)
                w.memory.disk[i] = content(1, i / words_per_page, i % words_per_page);
        };
        check = [this] { compare(); };
        held.references = 1;
    }

    // `page` lies in `frame`, and is clean.
    void warm(std::uint64_t page, std::uint32_t frame, bool used = false) {
        prepare = [this, before = prepare, page, frame, used] {
            before();
            w.load_now(0, page, frame, content(1, page, 0), used);
        };
    }
    // As if that word had been written before: the page is in `frame`, and dirty.
    void turned_dirty(std::uint64_t page, std::uint32_t frame, std::uint64_t word,
                      std::uint64_t value) {
        warm(page, frame);
        prepare = [this, before = prepare, page, frame, word, value] {
            before();
            reinterpret_cast<std::uint64_t*>(w.memory.frames + frame * page_bytes)[word] = value;
            w.memory.dirty_bits[frame] = std::uint64_t{0xff} << (8 * word);
            w.memory.frame_pages[frame] = page;
            w.memory.words[page] |= engine::dirty_bit;
            ++w.memory.writes[0].dirty_pages;
        };
        expect(page, word, value);
    }
    // A lane that stores a word.
    auto writer(std::uint64_t page, std::uint64_t word, std::uint64_t value) {
        return [this, page, word, value](auto g) { store(g, page, word, value); };
    }
    template <typename Lane>
    void store(const Lane& g, std::uint64_t page, std::uint64_t word, std::uint64_t value) {
        const auto done = write(g, w.fs(), fd, &value, 8,
                                static_cast<std::int64_t>(page * page_bytes + word * 8));
        explore::require(done == 8, "a write failed");
    }
    // The same through a pointer. The store is a plain one of the caller's; here it is a step as
    // well.
    template <typename Lane>
    void change(const Lane& g, std::uint64_t page, std::uint64_t word, std::uint64_t value) {
        const writable_mapping mapped =
            map_write(g, w.fs(), fd, static_cast<std::int64_t>(page * page_bytes), page_bytes);
        explore::require(mapped.bytes == page_bytes, "a map failed");
        g.copy_store(mapped.data + word * 8, reinterpret_cast<const std::byte*>(&value), 8);
        explore::require(unmap(g, w.fs(), mapped) == 0, "an unmap failed");
    }
    auto changer(std::uint64_t page, std::uint64_t word, std::uint64_t value) {
        return [this, page, word, value](auto g) { change(g, page, word, value); };
    }
    auto flusher() {
        return [this](auto g) {
            explore::require(
                msync(g, w.fs(), fd, 0, static_cast<std::int64_t>(pages_ * page_bytes)) == 0,
                "an msync failed");
        };
    }
    void expect(std::uint64_t page, std::uint64_t word, std::uint64_t value) {
        expected_.push_back({page * words_per_page + word, value});
    }

    // That word may be as it was, or written, whichever way the lanes run.
    void anything_goes(std::uint64_t page, std::uint64_t word) {
        free_word_ = page * words_per_page + word;
    }

    // The word of the file as a reader through the cache finds it.
    std::uint64_t word_now(std::uint64_t number) const {
        const engine::page_word word = w.memory.words[number / words_per_page];
        if (!engine::is_valid(word)) return w.memory.disk[number];
        return reinterpret_cast<const std::uint64_t*>(
            w.memory.frames + engine::frame_of(word) * page_bytes)[number % words_per_page];
    }

    const int fd = engine::make_descriptor(0, 1, engine::may_read_write);

private:
    struct word_value {
        std::uint64_t number, value;
    };

    static shape with_writes(shape dimensions) {
        dimensions.writes = true;
        return dimensions;
    }

    void compare() const {
        for (std::uint64_t i = 0; i < pages_ * words_per_page; ++i) {
            std::uint64_t wanted = content(1, i / words_per_page, i % words_per_page);
            for (const word_value& expected : expected_)
                if (expected.number == i) wanted = expected.value;
            if (i == free_word_) wanted = word_now(i);
            explore::require(word_now(i) == wanted, "a written word was lost");
            const engine::page_word word = w.memory.words[i / words_per_page];
            if (!engine::is_valid(word)) continue;
            const std::uint64_t marks =
                w.memory.dirty_bits[engine::frame_of(word)] >> (8 * (i % words_per_page)) & 0xff;
            explore::require(marks != 0 || w.memory.disk[i] == wanted,
                             "a page is clean, and the file does not have its bytes");
        }
    }

    std::uint64_t pages_, free_word_ = ~std::uint64_t{0};
    std::vector<word_value> expected_;
};

// Two frames, both dirty, and two lanes that need one more each. The first lane offers the
// neighbour of the page that it writes back. The second lane takes the neighbour over,
// unless the first lane comes first. The first lane needs a third frame and takes its own offer
// back.
struct short_of_frames : written_file {
    short_of_frames() : written_file({.frames = 2, .ring_slots = 4}, 4) {
        warm(0, 0);
        warm(1, 1);
        for (std::uint64_t page = 0; page < 4; ++page) expect(page, 0, 70 + page);
        expect(0, 1, 74);
        lane([this](auto g) {
            for (std::uint64_t page = 0; page < 3; ++page) store(g, page, 0, 70 + page);
            store(g, 0, 1, 74);
        });
        lane(writer(3, 0, 73));
    }
};

// Two dirty pages: the first lane writes one back and offers the other, and the second lane takes
// that over if it is there in time.
struct offered_neighbour : written_file {
    offered_neighbour() : written_file({.frames = 2, .ring_slots = 4}) {
        turned_dirty(0, 0, 0, 70);
        turned_dirty(1, 1, 0, 71);
        lane([this](auto g) {
            engine::pending_write pending{};
            explore::require(
                engine::begin_offering(w.view) && engine::hold_dirty(w.view, 0, pending) == 1,
                "a dirty page could not be held");
            explore::require(engine::write_offering(g, w.view, pending) == 0,
                             "a write-back failed");
        });
        lane([this](auto g) {
            engine::pending_write pending{};
            if (engine::take_next_offered(w.view, pending))
                explore::require(engine::write_alone(g, w.view, pending) == 0,
                                 "a write-back failed");
        });
        // The other page may be dirty still: the second lane drew it and then came too late.
        also([this] {
            explore::require(!engine::is_dirty(w.memory.words[0]),
                             "a page that was held to be written was not");
        });
    }
};

// A lane that goes through a file, and writes behind as soon as it has made a second page dirty;
// another changes a page that goes meanwhile.
struct written_behind : written_file {
    written_behind() : written_file({.frames = 4, .ring_slots = 4}, 3) {
        w.view.write_behind_pages = 1;
        for (std::uint64_t page = 0; page < 3; ++page) {
            warm(page, static_cast<std::uint32_t>(page));
            expect(page, 0, 70 + page);
        }
        expect(0, 1, 74);
        lane([this](auto g) {
            for (std::uint64_t page = 0; page < 3; ++page) store(g, page, 0, 70 + page);
        });
        lane(writer(0, 1, 74));
        also([this] { explore::require(w.memory.disk[0] == 70, "nothing was written behind"); });
    }
};

// That file, closed by all lanes, so that the host has no writer. It has two names, by each of
// which a lane asks the host of its own.
struct closed_file : written_file {
    closed_file() : written_file({.frames = 1, .ring_slots = 2}) {
        warm(0, 0);
        held.references = 0;
        server.files = {{"a", 1, 2 * page_bytes}, {"alias", 1, 2 * page_bytes}};
        prepare = [this, before = prepare] {
            before();
            --w.memory.file_words[0];
            w.memory.writes[0].writers = 0;
        };
    }

    // A lane that opens it, stores a word of its first page, and closes it.
    auto opens_and_writes(const char* name, std::uint64_t word, std::uint64_t value) {
        return [this, name, word, value](auto g) {
            fd_of(g, name, [&](int opened) {
                explore::require(
                    write(g, w.fs(), opened, &value, 8, static_cast<std::int64_t>(word * 8)) == 8,
                    "a write failed");
            });
        };
    }
    // Opens it to write, acts, and closes it.
    template <typename Lane, typename Act>
    void fd_of(const Lane& g, const char* name, const Act& act) {
        const int opened = open(g, w.fs(), name, open_write);
        explore::require(opened >= 0, "an open failed");
        act(opened);
        explore::require(close(g, w.fs(), opened) == 0, "a close failed");
    }
    // A lane that opens it to write as another one does, closes it, and opens it to read.
    auto goes_and_reads() {
        return [this](auto g) {
            fd_of(g, "a", [](int) {});
            explore::require(open(g, w.fs(), "alias") >= 0, "an open failed");
        };
    }
    // A lane that opens it to write as another one does, and has a word in the file.
    auto comes_and_writes(std::uint64_t value) {
        return [this, value](auto g) {
            fd_of(g, "a", [&](int opened) {
                explore::require(write(g, w.fs(), opened, &value, 8, 0) == 8, "a write failed");
                explore::require(msync(g, w.fs(), opened, 0, page_bytes) == 0, "an msync failed");
            });
        };
    }
};

// Two groups that have one file open and close it, each with a share in its dirty pages.
//
// Pages 0 and 1 are dirty, one more than a close leaves to the other. Both descriptors write.
struct closing_groups : written_file {
    closing_groups() : written_file({.frames = 2, .ring_slots = 4}) {
        w.view.close_leaves_pages = 1;
        turned_dirty(0, 0, 0, 70);
        turned_dirty(1, 1, 0, 72);
        held.references = 0;
        prepare = [this, before = prepare] {
            before();
            ++w.memory.file_words[0];
            ++w.memory.writes[0].writers;
        };
    }
    auto closer() {
        return [this](auto g) { explore::require(close(g, w.fs(), fd) == 0, "a close failed"); };
    }
    // An fsync that returns without an error has brought to the file what was written before.
    auto syncer() {
        return [this](auto g) {
            explore::require(fsync(g, w.fs(), fd) == 0, "an fsync failed");
            explore::require(w.memory.disk[0] == 70 && w.memory.disk[words_per_page] == 72,
                             "fsync returned, and the file does not have it");
        };
    }
};

}  // namespace penstock::explore_kit
