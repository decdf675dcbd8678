// The cases of penstock bench. A new one is a file of its own and a row in case_table.cpp.
#pragma once

#include <vector>

#include "context.hpp"

namespace penstock::bench {

struct bench_case {
    const char* name;
    const char* about;                // one line of the help
    status (*on_cpu)(context& here);  // null: needs a GPU
    status (*on_gpu)(
        context& here);  // null: this build has no CUDA, or the case has nothing to do there
};

const std::vector<bench_case>& case_table();

}  // namespace penstock::bench
