// Closes that write back their share of a file which others have open: nothing that was written is
// lost, and what a flush or the last close says is true beside them.
#include "explore/written_file.hpp"
#include "rounds.hpp"

namespace penstock::explore_kit {
namespace {

TEST(close_share, the_last_close_leaves_nothing) {
    closing_groups s;
    s.also([&] {
        explore::require(s.w.memory.disk[0] == 70 && s.w.memory.disk[words_per_page] == 72,
                         "closed by all, and the file does not have it");
    });
    s.lane(s.closer());
    s.lane(s.closer());
    expect_sound(s.run({.preemptions = test::deep_preemptions - 1}));
}

// The second lane writes a page again while it may be on its way to the file with a share.
TEST(close_share, a_page_that_is_written_again_meanwhile) {
    closing_groups s;
    s.expect(0, 1, 74);
    s.also([&] {
        explore::require(s.w.memory.disk[0] == 70 && s.w.memory.disk[1] == 74,
                         "closed by all, and the file does not have it");
    });
    s.lane(s.closer());
    s.lane([&](auto g) {
        s.store(g, 0, 1, 74);
        s.closer()(g);
    });
    expect_sound(s.run({.preemptions = test::deep_preemptions - 1}));
}

TEST(close_share, an_fsync_beside_it_tells_of_bytes_in_the_file) {
    closing_groups s;
    s.held.references = 1;
    s.lane(s.closer());
    s.lane(s.syncer());
    expect_sound(s.run({.preemptions = test::deep_preemptions - 1}));
}

// The share meets the error, or the last close does: one of them tells, and the bytes stay in the
// cache.
TEST(close_share, what_cannot_be_written_stays_dirty_and_is_told) {
    closing_groups s;
    int told = 0;
    s.prepare = [&, before = s.prepare] {
        before();
        told = 0;
    };
    s.server.decide = [](const engine::ring_request& request) {
        return plan{.error = request.operation == engine::op::write ? -ENOSPC : 0};
    };
    const auto close_and_count = [&](auto g) {
        const int code = close(g, s.w.fs(), s.fd);
        explore::require(code == 0 || code == -ENOSPC, "another error than the disk's");
        if (code != 0) ++told;
    };
    s.also([&] {
        explore::require(told >= 1, "no close told the error of the disk");
        explore::require(s.w.memory.writes[0].dirty_pages == 2, "a page that was not written left");
    });
    s.lane(close_and_count);
    s.lane(close_and_count);
    expect_sound(s.run({.preemptions = test::deep_preemptions - 1}));
}

// A share that no seat is left for is not written: the close ends all the same, and the last close
// does it.
TEST(close_share, without_a_seat) {
    closing_groups s;
    s.held.seats = 32;
    s.prepare = [&s, before = s.prepare] {
        before();
        s.w.view.clock_hands[engine::write_behind_writers_place] = 32;
    };
    s.also([&] {
        explore::require(s.w.memory.disk[0] == 70 && s.w.memory.disk[words_per_page] == 72,
                         "closed by all, and the file does not have it");
    });
    s.lane(s.closer());
    s.lane(s.closer());
    expect_sound(s.run({.preemptions = 1}));
}

}  // namespace
}  // namespace penstock::explore_kit
