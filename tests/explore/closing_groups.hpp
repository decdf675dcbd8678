// Two groups that have one file open and close it, each with a share in its dirty pages, under
// every schedule.
#pragma once

#include "explore/written_file.hpp"

namespace penstock::explore_kit {

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
