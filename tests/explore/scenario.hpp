// A world, its host and some lanes, run under every schedule.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "explore/host.hpp"
#include "penstock/view.hpp"
#include "penstock/write.hpp"

namespace penstock::explore_kit {

class scenario {
public:
    explicit scenario(const shape& dimensions) : w(dimensions), server(w) {}

    world w;
    host server;
    engine::quiescent_state held;           // what the lanes keep on purpose
    std::uint64_t gone = 0;                 // explore::program::gone
    std::function<void()> prepare = [] {};  // after the reset, before each schedule
    // At the end of each schedule; the invariants are checked as well.
    std::function<void()> check = [] {};

    // `body(lane)` is run as one more lane.
    template <typename Lane = explore_lane, typename Body>
    void lane(Body body) {
        const auto id = static_cast<std::uint32_t>(lanes_.size());
        lanes_.push_back([body, id] { body(Lane(id)); });
    }

    explore::outcome run(explore::limits bounds = {}) {
        explore::program program;
        program.fibers = lanes_;
        program.fibers.push_back([this] { server.serve(); });
        program.helpers = 1;
        program.reset = [this] {
            w.reset();
            server.reset();
            prepare();
        };
        program.check = [this] {
            w.check(held);
            check();
        };
        program.memory = reinterpret_cast<std::byte*>(&w.memory);
        program.memory_bytes = sizeof w.memory;
        program.gone = gone;
        program.name_of = [this](std::size_t offset) { return w.name_of(offset); };
        // To compare: every schedule within a bound, as often as it leads to the same state.
        if (std::getenv("PENSTOCK_EXPLORE_PLAIN") != nullptr) bounds.remember = false;
        explore::explorer x(program, bounds);
        const auto out = x.run();
        const std::string bound =
            bounds.preemptions < 0
                ? ""
                : " with at most " + std::to_string(bounds.preemptions) + " preemptions";
        std::printf("%-44s %8llu schedules, %7llu cut, %llu ends: %s%s\n",
                    ::testing::UnitTest::GetInstance()->current_test_info()->name(),
                    static_cast<unsigned long long>(out.schedules),
                    static_cast<unsigned long long>(out.cut),
                    static_cast<unsigned long long>(out.ends),
                    out.complete            ? "complete"
                    : out.violation.empty() ? "NOT complete"
                                            : out.violation.c_str(),
                    bound.c_str());
        return out;
    }

    // `more` is checked as well.
    void also(std::function<void()> more) {
        check = [before = check, more] { before(), more(); };
    }

private:
    std::vector<std::function<void()>> lanes_;
};

// All schedules were run and none broke a rule.
inline void expect_sound(const explore::outcome& out) {
    EXPECT_EQ(out.violation, "") << out.trace;
    EXPECT_TRUE(out.complete) << "only " << out.schedules << " schedules were run";
}

// The exploration found what was broken on purpose, by the rule that it breaks.
inline void expect_caught(const explore::outcome& out, const std::string& rule) {
    EXPECT_EQ(out.violation, rule) << out.schedules << " schedules\n" << out.trace;
}

// Reads one page of an open file and tells whether its bytes are those of the inode.
template <typename Lane>
void read_and_compare(const Lane& g, const runtime_ref& fs, int fd, std::uint64_t inode,
                      std::uint64_t page) {
    std::uint64_t got[words_per_page] = {};
    const auto done =
        read(g, fs, fd, got, page_bytes, static_cast<std::int64_t>(page * page_bytes));
    explore::require(done == page_bytes, "a read failed");
    for (std::uint64_t i = 0; i < words_per_page; ++i)
        explore::require(got[i] == content(inode, page, i), "a read delivered wrong bytes");
}

// Maps a page, looks at it twice and gives it back: it must not change while it is mapped.
template <typename Lane>
void map_and_compare(const Lane& g, const runtime_ref& fs, int fd, std::uint64_t inode,
                     std::uint64_t page) {
    const mapping m = map(g, fs, fd, static_cast<std::int64_t>(page * page_bytes), page_bytes);
    explore::require(m.bytes == page_bytes, "a map failed");
    const auto* words = reinterpret_cast<const std::uint64_t*>(m.data);
    for (std::uint64_t i = 0; i < words_per_page; ++i)
        explore::require(atomic_load<order::relaxed>(words + i) == content(inode, page, i),
                         "a mapped page changed");
    explore::require(unmap(g, fs, m) == 0, "an unmap failed");
}

// Asks for an echo of `number`. 0, or why the wait ended.
template <typename Lane>
std::int64_t echo(const Lane& g, const engine::cache_view& c, std::uint64_t number,
                  bool may_wait = true) {
    engine::ring_ticket at{};
    if (const auto code = engine::claim_slot(g, c, may_wait, at); code != 0) return code;
    engine::ring_request request{};
    request.operation = engine::op::ping;
    request.offset = number;
    engine::post(g, c, at, request);
    if (const auto code = engine::await(g, c, at); code != 0) {
        engine::orphan_slot(c, at);
        return code;
    }
    const auto& reply = c.rings[0].replies[engine::slot_of(c.rings[0], at.ticket)];
    explore::require(reply.words[0] == number, "a lane got the answer to another question");
    engine::recycle_slot(c, at);
    return 0;
}

// As a lane of a GPU does for v[i]: the element at byte `at`, or false if its page is not in the
// cache. The loads of a frame are schedule points, two for an element of 16 bytes.
template <typename T>
bool look_at_element(const runtime_ref& fs, int fd, std::uint64_t at, T& out) {
    engine::file_handle f{};
    explore::require(engine::find_file(fs.view, fd, f), "the descriptor is not open");
    const auto load = [](const std::byte* from) {
        std::uint64_t words[sizeof(T) / 8];
        for (std::uint64_t i = 0; i < sizeof(T) / 8; ++i)
            words[i] =
                atomic_load<order::relaxed>(reinterpret_cast<const std::uint64_t*>(from) + i);
        T value;
        std::memcpy(&value, words, sizeof value);
        return value;
    };
    return engine::try_element_by(load, fs.view, f, at, out);
}

struct two_words {
    std::uint64_t first, second;
};

// Looks at the whole of a page as one element; if it is there, it must be the inode's.
inline void look_and_compare(const runtime_ref& fs, int fd, std::uint64_t inode,
                             std::uint64_t page) {
    two_words got{};
    if (!look_at_element(fs, fd, page * page_bytes, got)) return;
    explore::require(got.first == content(inode, page, 0) && got.second == content(inode, page, 1),
                     "an element has wrong bytes");
}

// As a group of a GPU does in for_each: a page's words without a pin, or nothing of them if the
// page is not there. `early`: a look ahead at its word.
template <typename Lane>
void visit_and_compare_by_looks(const Lane& g, const runtime_ref& fs, int fd, std::uint64_t inode,
                                std::uint64_t page, engine::page_word early = 0) {
    engine::file_handle f{};
    explore::require(engine::find_file(fs.view, fd, f), "the descriptor is not open");
    const auto load = [](const std::byte* from) {
        const auto* const words = reinterpret_cast<const std::uint64_t*>(from);
        const std::uint64_t first = atomic_load<order::relaxed>(words);
        return engine::two_words{first, atomic_load<order::relaxed>(words + 1)};
    };
    engine::page_stretch<std::uint64_t> stretch{page, page * words_per_page, 0,
                                                static_cast<std::uint32_t>(words_per_page)};
    std::uint64_t visited = 0;
    const bool all = engine::try_visit_by<std::uint64_t>(
        load, g, fs.view, f, early, stretch, [&](std::uint64_t i, std::uint64_t element) {
            explore::require(element == content(inode, i / words_per_page, i % words_per_page),
                             "a stretch has wrong bytes");
            ++visited;
        });
    explore::require(visited == (all ? words_per_page : 0) && stretch.n == words_per_page,
                     "a stretch was visited in part");
}

// One file (inode 1, slot 0), open already, whose page words are the first of the arena.
struct one_file : scenario {
    explicit one_file(const shape& dimensions, std::uint64_t size_bytes = 2 * page_bytes)
        : scenario(dimensions) {
        prepare = [this, size_bytes] {
            server.given_already(0, 1);
            fd = w.open_now(0, size_bytes, 0);
            asked = 0;
        };
        held.references = 1;
    }
    auto reader(std::uint64_t page) {
        return [this, page](auto g) { read_and_compare(g, w.fs(), fd, 1, page); };
    }
    auto mapper(std::uint64_t page) {
        return [this, page](auto g) { map_and_compare(g, w.fs(), fd, 1, page); };
    }
    // `page` has been read already and lies in `frame`.
    void warm(std::uint64_t page, std::uint32_t frame, bool used) {
        prepare = [this, before = prepare, page, frame, used] {
            before();
            w.load_now(0, page, frame, content(1, page, 0), used);
        };
    }
    // Both pages lie in a window.
    void in_window() {
        prepare = [this, before = prepare] {
            before();
            w.window_now(0, 1,
                         [](std::uint64_t page, std::uint64_t i) { return content(1, page, i); });
        };
    }
    int fd = 0;
    std::uint32_t asked = 0;  // a count for decide()
};

// Nothing is open; the host knows five names of four files.
struct names : scenario {
    explicit names(const shape& dimensions) : scenario(dimensions) {
        server.files = {{"a", 1, 2 * page_bytes},
                        {"alias", 1, 2 * page_bytes},
                        {"b", 2, 2 * page_bytes},
                        {"c", 3, page_bytes},
                        {"huge", 4, 3 * page_bytes, true}};
        // Every path extent that the host gave out is in the name table, so that it can come back.
        check = [this] {
            std::uint32_t kept = 0;
            for (const auto& n : w.memory.names) kept += n.path_bytes != 0;
            explore::require(kept == server.paths_out(), "a path extent was lost");
        };
    }
    // Opens, reads a page, closes. The result of open if that failed, else 0.
    template <typename Lane>
    int use(const Lane& g, const char* name, std::uint64_t inode, std::uint64_t page = 0) {
        const int fd = open(g, w.fs(), name);
        if (fd < 0) return fd;
        read_and_compare(g, w.fs(), fd, inode, page);
        explore::require(close(g, w.fs(), fd) == 0, "a close failed");
        return 0;
    }
    // As if `slot`, which holds a file of `generation`, had been opened by a name of up to 8 bytes,
    // and closed again or not.
    void name_now(std::uint32_t place, const char* name, std::uint32_t slot,
                  std::uint32_t generation = 1) {
        const auto bytes = static_cast<std::uint32_t>(std::strlen(name));
        engine::name_slot& n = w.memory.names[place];
        n.path_at = server.path_given_already() - 1;
        n.path_bytes = bytes;
        w.memory.paths[n.path_at] = name_chunk(name, bytes, 0);
        n.hash = hash_name(name, bytes);
        n.file_slot = slot;
        n.generation = generation;
        n.word = engine::next_name_word(0, engine::name_ready);
    }
    template <typename Lane>
    int open_and_close(const Lane& g, const char* name) {
        const int fd = open(g, w.fs(), name);
        if (fd < 0) return fd;
        explore::require(close(g, w.fs(), fd) == 0, "a close failed");
        return 0;
    }
};

// A file that two names led to was opened by one, "a", and closed. Since then another program gave
// that name to another file.
struct moved_name : names {
    moved_name() : names({.frames = 1, .files = 2, .names = 2}) {
        server.files = {{"a", 2, 2 * page_bytes}, {"alias", 1, 2 * page_bytes}};
        prepare = [this] {
            server.given_already(0, 1);
            w.closed_now(0, 2 * page_bytes, 0, 1);
            name_now(hash_name("a", 1) % 2, "a", 0);
        };
    }
    // A lane opens the file by its other name, and another one what has the old name now.
    void open_both() {
        lane([this](auto g) { explore::require(use(g, "alias", 1) == 0, "an open failed"); });
        lane([this](auto g) {
            const int fd = open(g, w.fs(), "a");
            explore::require(fd >= 0, "an open failed");
            explore::require(engine::descriptor_slot(w.view, fd) != 0,
                             "a name led to the file that it had before");
            explore::require(close(g, w.fs(), fd) == 0, "a close failed");
        });
    }
};

}  // namespace penstock::explore_kit
