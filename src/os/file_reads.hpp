// What a reader of an open file asks before it reads or keeps a part of it, and the read itself.
#pragma once

#include <fcntl.h>

#include <algorithm>
#include <vector>

#include "os/env.hpp"

namespace penstock::host {

// Has the operating system all of this part of the file in memory? Where that cannot be told it
// counts as so. `offset` is a multiple of the page size of the machine.
inline bool is_in_memory(environment& env, int fd, std::uint64_t offset, std::uint64_t bytes) {
    if (const int told = env.in_page_cache(fd, offset, bytes); told >= 0) return told == 1;
    void* at = nullptr;
    if (env.map_file(fd, offset, bytes, at) != 0) return true;
    std::vector<bool> resident;
    const int code = env.resident(at, bytes, bytes, resident);
    env.unmap_file(at, bytes);
    return code != 0 || resident.at(0);
}

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

// How many bytes there are, fewer only at the end of the file; or a negative errno.
inline std::int64_t read_all(environment& env, int fd, std::byte* to, std::uint64_t bytes,
                             std::uint64_t offset) {
    std::uint64_t got = 0;
    while (got < bytes) {
        const std::int64_t more = env.read(fd, to + got, bytes - got, offset + got);
        if (more < 0) return more;
        if (more == 0) break;
        got += static_cast<std::uint64_t>(more);
    }
    return static_cast<std::int64_t>(got);
}

// From now on the operating system reads from this handle what it is asked for and no more: what
// comes behind may be to be had elsewhere.
inline void read_nothing_ahead(int fd) { ::posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); }

}  // namespace penstock::host
