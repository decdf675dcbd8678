// A page leaves the cache while its file is closed and taken down: what invariant (1) of
// engine/tier.hpp is about.
#pragma once

#include "explore/scenario.hpp"

namespace penstock::explore_kit {

// The cache has one frame, which holds page 0 of file 1. One lane reads file 2 and drops that page;
// another closes file 1 and takes it down. The page may be kept, but only as long as the host has
// not been told that the words of file 1 are free.
struct dropped_while_taken_down : scenario {
    dropped_while_taken_down() : scenario({.frames = 1, .files = 2, .tier_frames = 1}) {
        prepare = [this] {
            server.given_already(0, 1);
            server.given_already(1, 2);
            going = w.open_now(0, 2 * page_bytes, 0);
            staying = w.open_now(1, 2 * page_bytes, 2);
            w.load_now(0, 0, 0, content(1, 0, 0), false);
        };
        held.references = 1;
        lane([this](auto g) { read_and_compare(g, w.fs(), staying, 2, 0); });
        lane([this](auto g) {
            explore::require(close(g, w.fs(), going) == 0, "a close failed");
            engine::retire_one(g, w.view);
        });
        check = [this] {
            kept += w.counters.count[engine::count_tier_saves] != 0;
            taken_down += engine::file_state(w.memory.file_words[0]) != engine::file_live;
        };
    }
    // Runs it with so few preemptions that it takes a moment, and as many as the broken step needs.
    explore::outcome run_bounded() {
        explore::limits bounds;
        bounds.preemptions = 2;
        return run(bounds);
    }
    int going = 0, staying = 0;
    std::uint32_t kept = 0, taken_down = 0;  // schedules; once a page was kept, all that follow
};

}  // namespace penstock::explore_kit
