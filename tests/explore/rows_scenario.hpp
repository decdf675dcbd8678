// Readers of rows of a table, whose pages lie in a window, in the cache, or in neither.
#pragma once

#include "explore/row_table.hpp"
#include "explore/window_scenario.hpp"
#include "penstock/engine/truncate.hpp"

namespace penstock::explore_kit {

struct rows_of_file : read_through_file {
    using read_through_file::read_through_file;

    // Reads a row that is the page.
    std::function<void(explore_lane)> row_reader(std::uint64_t page) {
        return [this, page](explore_lane g) {
            const row_table own(w.view, fd, page_bytes, page_bytes, 0, 2);
            std::uint64_t got[words_per_page] = {};
            explore::require(read_row(g, w.fs(), own.ref, page, got) == page_bytes,
                             "a row could not be had");
            for (std::uint64_t i = 0; i < words_per_page; ++i)
                explore::require(got[i] == content(1, page, i), "a row has wrong bytes");
        };
    }

    // The version that a program writes to page 0.
    std::uint64_t version_by_row(const explore_lane& g) {
        const row_table own(w.view, fd, page_bytes, 8, 0, 2);
        std::uint64_t got = 0;
        explore::require(read_row(g, w.fs(), own.ref, 0, &got) == 8, "a row could not be had");
        return got;
    }
    // A runtime that writes cuts the file within page 1 or before it, while a lane reads the row
    // that is that page: the lane gets the row, or zeros and an error. `warm`: the page is in the
    // cache.
    void row_reader_while_the_file_is_cut(std::uint64_t size_bytes, bool is_warm) {
        prepare = [this, before = prepare] {
            before();
            w.memory.windows[0] = 0;
            w.memory.writes[0].granted = 1;
            w.memory.writes[0].stored_bytes = 2 * page_bytes;
            for (std::uint64_t i = 0; i < 2 * words_per_page; ++i)
                w.memory.disk[i] = content(1, i / words_per_page, i % words_per_page);
        };
        if (is_warm) warm(1, 0, false);
        lane([this, size_bytes](auto g) {
            engine::cut_to(w.view, 0, size_bytes);
            engine::cut_stored(w.view, 0, size_bytes);
            explore::require(engine::cut_pages(g, w.view, 0, {size_bytes, 2 * page_bytes}) == 0,
                             "a cut failed");
        });
        lane([this](explore_lane g) {
            const row_table own(w.view, fd, page_bytes, page_bytes, 0, 2);
            std::uint64_t got[words_per_page] = {};
            const std::int64_t done = read_row(g, w.fs(), own.ref, 1, got);
            explore::require(done == page_bytes || done == -ESTALE, "a row could not be had");
            for (std::uint64_t i = 0; i < words_per_page; ++i)
                explore::require(got[i] == (done < 0 ? 0 : content(1, 1, i)),
                                 "a row has wrong bytes");
        });
    }
    void row_reader_while_the_page_enters() {
        lane([this](auto g) { bring_in(g); });
        lane([this](auto g) { write_version(g, ~std::uint64_t{0}); });
        lane([this](auto g) {
            const std::uint64_t first = version_by_row(g);
            explore::require(version_by_row(g) >= first, "a reader went back in time");
        });
    }
};

}  // namespace penstock::explore_kit
