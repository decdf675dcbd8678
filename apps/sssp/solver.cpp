#include "solver.hpp"

#include <cerrno>

namespace penstock::sssp {

namespace {

status outcome(const search_state& state) {
    switch (static_cast<fault>(state.failed)) {
        case fault::none: return {};
        case fault::damaged:
            return {-EINVAL,
                    "an edge or an offset is not as it was when the graph was checked; let others "
                    "change nothing but weights meanwhile"};
        case fault::too_far:
            return {
                -EOVERFLOW,
                "a path is longer than 4,294,967,294, the greatest distance; use smaller weights"};
        case fault::endless: break;
    }
    return {-EIO, "the search did not end after " + std::to_string(state.step) +
                      " steps; let no program change weights while it runs"};
}

}  // namespace

status run_search(const solver_settings& how, const std::function<status()>& run_steps,
                  const search_state& state) {
    while (state.is_done == 0) {
        if (how.interrupted && how.interrupted())
            return {-ECANCELED, "interrupted; nothing was written"};
        if (status s = run_steps(); !s) return s;
    }
    return outcome(state);
}

}  // namespace penstock::sssp
