// How much of the image each processor should have, so that both end at the same time: found by
// measuring them on a few tiles.
#pragma once

#include "methods.hpp"

namespace penstock::stitch {

struct balance {
    double left_rate = 0, right_rate = 0;  // pixels a second
    double seconds = 0;                    // that it took to find out
    double share = 0;                      // of the left one
};

status measure_balance(const stitch_job& job, balance& out);

}  // namespace penstock::stitch
