// May a file have changed since its facts were read, although it looks the same?
#pragma once

#include <algorithm>

#include "os/env.hpp"

namespace penstock::host {

// Where the writers are not known, or times are coarse, a file that changed less than this before
// it was looked at may be changing still.
inline constexpr std::int64_t time_grain_ns = 20'000'000;

// May the file change, or have changed, without leaving other times than those just read? A
// write(2) sets the time before it copies the bytes, and stores to a mapping set it now and then,
// so no time is to be believed while a writer has the file open. Without a writer exact times are
// proof: a later writer leaves a new one.
inline bool may_change_unseen(const file_facts& facts) {
    if (facts.writing == writers::some) return true;
    if (facts.writing == writers::none && facts.exact_times) return false;
    return facts.now_ns - std::max(facts.identity.modified_ns, facts.identity.changed_ns) <
           time_grain_ns;
}

}  // namespace penstock::host
