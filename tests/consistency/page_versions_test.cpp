// What the protocol decides in single situations, and what it moves: by a page of 16 bytes whose
// steps are done at once.
#include "penstock/consistency/page_versions.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace penstock::consistency {

namespace {

constexpr unsigned devices = 3;
using page = page_versions<devices>;

// Does the steps; `log` has what was done.
struct shared_page {
    page p;
    std::string stored = "................", home, replica[devices + 1], base[devices + 1];
    std::vector<std::string> log;
    stamp clock = 0;

    std::string& bytes_of(place holder) {
        return holder == cpu ? home : holder == page::storage ? stored : base[holder];
    }

    void perform(const step& s) {
        const char* const name[] = {"", "invalidate", "load", "collect", "fill", "store", "drop"};
        log.push_back(name[static_cast<int>(s.kind)] + std::to_string(s.holder));
        const std::string from = s.from != 0 ? bytes_of(first_of(s.from)) : std::string();
        std::string &own = replica[s.holder], &before = base[s.holder];
        if (s.kind == work::load_home) home = from;
        if (s.kind == work::write_back) stored = home;
        if (s.kind == work::collect)
            for (std::size_t i = 0; i < home.size(); ++i)
                if (own[i] != before[i]) home[i] = before[i] = own[i];
        if (s.kind == work::fill) {
            if (!has(p.present, s.holder)) own = before = from;
            for (std::size_t i = 0; i < from.size(); ++i)
                own[i] = own[i] == before[i] ? from[i] : own[i], before[i] = from[i];
        }
    }
    template <typename Next>
    void run(const Next& next) {
        for (step s = next(); s.kind != work::nothing; s = next()) {
            begin(p, s);
            perform(s);
            finish(p, s, true);
        }
    }
    std::string& at_device(place d) {
        run([&] { return next_for_access(p, d); });
        return replica[d];
    }
    const std::string& at_cpu() {
        run([&] { return next_for_access(p, cpu); });
        admit_cpu(p);
        return home;
    }
    void write_by_cpu(std::size_t i, char c) {
        at_cpu();
        home[i] = c;
        wrote_by_cpu(p);
    }
    void acquired(place d) { acquire(p, d, ++clock); }
    void released(place d) {
        if (replica[d] != base[d]) release(p, d, ++clock);
        run([&] { return next_for_release(p); });
    }
    std::string done() {
        std::string out;
        for (const std::string& entry : log) out += (out.empty() ? "" : " ") + entry;
        log.clear();
        return out;
    }
};

TEST(page_versions, a_reader_moves_the_page_once) {
    shared_page s;
    s.acquired(1);
    EXPECT_EQ(s.at_device(1), s.stored);
    EXPECT_EQ(s.done(), "fill1");
    s.released(1);
    s.acquired(1);
    s.at_device(1);
    EXPECT_EQ(s.at_cpu(), s.stored);
    s.acquired(2);
    s.at_device(2);
    EXPECT_EQ(s.done(), "load0 fill2");
    EXPECT_FALSE(s.p.newer);
}

TEST(page_versions, acquire_and_release_move_nothing) {
    shared_page s;
    s.at_device(1)[0] = 'a';
    s.done();
    s.released(1);
    s.acquired(2);
    s.acquired(1);
    EXPECT_EQ(s.done(), "");
    EXPECT_EQ(s.at_device(1)[0], 'a');  // its own change does not make its replica old
    EXPECT_EQ(s.done(), "");
    EXPECT_EQ(s.at_device(2)[0], 'a');
    EXPECT_EQ(s.done(), "load0 collect1 fill2");
}

TEST(page_versions, a_device_sees_others_changes_when_it_acquires) {
    shared_page s;
    s.at_device(1);
    s.at_device(2)[3] = 'b';
    s.released(2);
    EXPECT_EQ(s.at_device(1)[3], '.');
    EXPECT_TRUE(is_outdated(s.p, 1));
    s.acquired(1);
    EXPECT_EQ(s.at_device(1)[3], 'b');
    EXPECT_FALSE(is_outdated(s.p, 1));
}

TEST(page_versions, different_bytes_by_all_survive) {
    shared_page s;
    s.write_by_cpu(0, 'c');
    for (place d = 1; d <= devices; ++d)
        s.acquired(d), s.at_device(d)[d] = static_cast<char>('0' + d);
    s.write_by_cpu(5, 'C');
    for (place d = 1; d <= devices; ++d) s.released(d);
    EXPECT_EQ(s.at_cpu().substr(0, 6), "c123.C");
    for (place d = 1; d <= devices; ++d) {
        s.acquired(d);
        EXPECT_EQ(s.at_device(d).substr(0, 6), "c123.C");
    }
    s.run([&] { return next_for_sync(s.p); });
    EXPECT_EQ(s.stored.substr(0, 6), "c123.C");
}

// Whatever the order of the releases.
TEST(page_versions, of_one_byte_the_later_device_wins) {
    for (const auto& order : std::vector<std::vector<place>>{{1, 2, 3}, {3, 2, 1}, {2, 3, 1}}) {
        shared_page s;
        s.at_cpu();
        for (const place d : order) s.acquired(d), s.at_device(d)[7] = static_cast<char>('0' + d);
        for (const place d : order) s.released(d);
        EXPECT_EQ(s.at_cpu()[7], '3');
    }
}

TEST(page_versions, a_writer_that_knew_the_other_change_wins) {
    shared_page s;
    s.at_device(3)[7] = '3';
    s.released(3);
    s.acquired(1);
    s.at_device(1)[7] = '1';
    s.released(1);
    s.at_device(3)[8] = '3';  // without an acquire: its byte 7 is old, and was brought home before
    s.released(3);
    EXPECT_EQ(s.at_cpu().substr(7, 2), "13");
}

TEST(page_versions, what_is_not_released_stays_own_and_is_kept) {
    shared_page s;
    s.at_cpu();
    s.at_device(1)[0] = 'a';
    s.write_by_cpu(1, 'c');
    s.acquired(1);
    EXPECT_EQ(s.at_device(1).substr(0, 2), "ac");
    EXPECT_EQ(s.at_cpu().substr(0, 2), ".c");
    s.released(1);
    EXPECT_EQ(s.at_cpu().substr(0, 2), "ac");
}

TEST(page_versions, a_home_that_was_dropped_comes_from_storage_or_a_device) {
    shared_page s;
    s.write_by_cpu(0, 'c');
    s.acquired(1);
    s.at_device(1);
    s.run([&] { return next_for_eviction(s.p, cpu); });
    EXPECT_EQ(s.done(), "load0 fill1 invalidate0 store0 drop0");
    EXPECT_EQ(sources(s.p), only(page::storage) | only(1));
    s.home.clear();
    s.replica[1][2] = 'x';  // not released: a reader of the base does not see it
    EXPECT_EQ(s.at_cpu().substr(0, 3), "c..");
    s.released(1);
    EXPECT_EQ(sources(s.p) & only(1), 0u);
}

TEST(page_versions, changes_that_only_a_device_has_are_brought_before_it_is_dropped) {
    shared_page s;
    s.at_device(2)[0] = 'b';
    s.released(2);
    s.done();
    s.run([&] { return next_for_eviction(s.p, 2); });
    EXPECT_EQ(s.done(), "load0 collect2 drop2");
    EXPECT_EQ(s.at_cpu()[0], 'b');
}

TEST(page_versions, a_failed_step_comes_again) {
    shared_page s;
    s.at_cpu();
    s.at_device(1)[0] = 'a';
    s.released(1);
    for (int attempt = 0; attempt < 3; ++attempt) {
        const step next = next_for_sync(s.p);
        EXPECT_EQ(next.kind, work::collect);
        begin(s.p, next);
        finish(s.p, next, false);
    }
    const auto fail = [&](work wanted) {
        const step next = next_for_sync(s.p);
        EXPECT_EQ(next.kind, wanted);
        begin(s.p, next);
        if (wanted == work::collect) s.perform(next);
        finish(s.p, next, wanted == work::collect);
    };
    fail(work::collect);
    fail(work::write_back);
    fail(work::write_back);
    s.run([&] { return next_for_sync(s.p); });
    EXPECT_EQ(s.stored[0], 'a');
}

}  // namespace

}  // namespace penstock::consistency
