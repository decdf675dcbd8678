// Canary: a fill is settled by a plain store, so two lanes that find it ended both take its pin
// off.
#define penstock penstock_settle_by_store

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
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

namespace penstock::explore_kit {

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

}  // namespace penstock::explore_kit
