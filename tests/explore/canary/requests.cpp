// Canaries of the ring and of the doorbell: how a request is posted, answered and waited for.
// Each section breaks one step of the engine and is compiled by itself (canary.hpp).
#include "explore/canary/canary.hpp"

// A fill is settled by a plain store, so two lanes that find it ended both take its pin off.
#ifdef CANARY_settle_by_store

#include "penstock/engine/ring.hpp"

namespace penstock::engine {

inline bool store_outcome(std::uint64_t* mark, std::uint64_t, std::uint64_t outcome) {
    store_hint(mark, outcome);
    return true;
}

}  // namespace penstock::engine

#define settle_mark store_outcome

#include "explore/scenario.hpp"
#include "penstock/advise.hpp"

// A reader comes for the fill while another judges its frame.
TEST(canary, settle_by_store) {
    one_file s({.frames = 2, .tier_frames = 1}, 4 * page_bytes);
    s.lane([&](auto g) {
        advise(g, s.w.fs(), s.fd, advice::will_need, 0, page_bytes);
        read_and_compare(g, s.w.fs(), s.fd, 1, 0);
    });
    s.lane([&](auto g) {
        for (int i = 0; i < 2; ++i)
            advise(g, s.w.fs(), s.fd, advice::will_need, page_bytes, page_bytes);
    });
    explore::limits bounds;
    bounds.preemptions = 3;
    const auto out = s.run(bounds);
    EXPECT_NE(out.violation, "") << out.schedules << " schedules";
}

#endif

// A slot that was given up may be claimed before the host has answered it.
#ifdef CANARY_orphan_as_recycled

#include "penstock/engine/ring.hpp"

#define orphan_slot recycle_slot

#include "explore/scenario.hpp"

TEST(canary, orphan_as_recycled) {
    one_file s({.frames = 2, .ring_slots = 1});
    s.server.decide = [&](const auto&) {
        return plan{.when = s.asked++ == 0 ? timing::late : timing::at_once};
    };
    s.lane([&](auto g) {
        std::byte got[page_bytes];
        for (int i = 0; i < 2; ++i) read(g, s.w.fs(), s.fd, got, page_bytes, i * page_bytes);
    });
    expect_caught(s.run(), "a request changed before it was answered");
}

#endif

// A vacant slot is filled with whatever the host once answered.
#ifdef CANARY_old_answer_in_force

#include "penstock/engine/file_word.hpp"

#define is_later_generation(generation, than) ((generation) != (than))

#include "explore/scenario.hpp"

TEST(canary, old_answer_in_force) {
    names s({.frames = 1, .files = 1});
    s.w.view.request_wait_ns = 8500;
    s.prepare = [&] {
        s.server.given_already(0, 2, 2);
        s.w.closed_now(0, 2 * page_bytes, 0, 2);
    };
    s.lane([&](auto g) { s.open_and_close(g, "c"); });
    s.lane([&](auto g) {
        const engine::open_answer told{0, 0, 1, 2 * page_bytes, 0, 0, false, 1, 0, 0};
        engine::wait_deadline deadline(g, s.w.view.request_wait_ns);
        if (engine::attach_file(g, s.w.view, told, deadline) != 0) return;
        explore::require(s.server.gave(0, 1, 1), "an answer that was out of date came into force");
    });
    expect_caught(s.run(), "an answer that was out of date came into force");
}

#endif

// A service thread moves the head of a ring by a store, so that two threads may take one request.
#ifdef CANARY_head_by_store

#include "service/ring_head.hpp"

namespace penstock::host {

inline bool take_by_store(const host_ring& ring, std::uint64_t& ticket) {
    ticket = atomic_load<order::relaxed>(ring.head);
    if (!is_posted(ring, ticket)) return false;
    atomic_store<order::relaxed>(ring.head, ticket + 1);
    return true;
}

}  // namespace penstock::host

#define take_next take_by_store

#include "explore/takers_scenario.hpp"

TEST(canary, head_by_store) {
    const auto out = takers_scenario(2, 2).run();
    EXPECT_TRUE(out.violation == "a request was taken twice" ||
                out.violation == "a thread served another request than it took")
        << out.violation;
}

#endif

// The sleeper says that it sleeps only when it begins to wait, after its last look for work.
#ifdef CANARY_bell_asleep_late

#include "os/bell_word.hpp"

namespace penstock::host {

inline bool begin_and_see_rung(std::uint32_t* word) {
    if (atomic_load<order::relaxed>(word) == bell_awake) begin_bell_sleep(word);
    return is_rung(word);
}
inline void begin_nothing(std::uint32_t*) {}

}  // namespace penstock::host

#define begin_bell_sleep begin_nothing
#define is_rung begin_and_see_rung

#include "explore/bell_scenario.hpp"

TEST(canary, bell_asleep_late) {
    EXPECT_EQ(bell_scenario(1).run().violation, "a fiber waits for ever");
}

#endif

// A ring that comes between the sleeper's last look for work and its wait is forgotten.
#ifdef CANARY_bell_ring_forgotten

#include "os/bell_word.hpp"

namespace penstock::host {

// A ring counts only from the second look on, as if the wait began with a word of its own.
inline bool forget_first_ring(std::uint32_t* word) {
    static thread_local bool waits = false;
    if (waits) return !(waits = !is_rung(word));
    waits = true;
    atomic_store<order::relaxed>(word, static_cast<std::uint32_t>(bell_asleep));
    return false;
}

}  // namespace penstock::host

#define is_rung forget_first_ring

#include "explore/bell_scenario.hpp"

TEST(canary, bell_ring_forgotten) {
    EXPECT_EQ(bell_scenario(1).run().violation, "a fiber waits for ever");
}

#endif
