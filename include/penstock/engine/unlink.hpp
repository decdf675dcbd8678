// Takes the name of a file away, because the file is removed or gets another name. Open descriptors
// stay open, as with any file.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/file_table.hpp"

namespace penstock::engine {

// Leader only. Makes the next opener of the name ask the host which file it leads to. Returns 0, or
// the code that ended the wait for an opener that was asking.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t forget_name(const Group& g, const cache_view& c,
                                                       const name_key& key) {
    wait_deadline waiting(g, 2 * c.request_wait_ns);
    name_match found{};
    for (std::uint32_t round = 0; find_name(c, key, found); ++round) {
        name_word* const word = &c.names[found.slot].word;
        if (name_state(found.word) != name_busy && try_own_name(word, found.word)) {
            forget_target(&c.names[found.slot].generation);
            settle_name(word, name_ready);
            return 0;
        }
        if (const std::int64_t code = waiting.check(g, c); code != 0)
            return code == -ETIME ? -ETIMEDOUT : code;
        g.pause(round);
    }
    return 0;
}

// Leader only. Asks the host to unlink the name. Returns 0 or a negative errno.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t ask_to_unlink(const Group& g, const cache_view& c,
                                                         const name_key& key) {
    ring_ticket at{};
    if (const std::int64_t code = claim_slot(g, c, true, at); code != 0) return code;
    const ring_view& r = c.rings[at.ring];
    put_name(r.staging + r.staging_stride * slot_of(r, at.ticket), key);
    post(g, c, at, unlink_request{key.bytes}.packed());
    if (const std::int64_t code = await(g, c, at); code != 0) {
        orphan_slot(c, at);
        return code;
    }
    const std::int64_t result = r.replies[slot_of(r, at.ticket)].result;
    recycle_slot(c, at);
    return result;
}

// Whole group. With `removes` the host takes the file's name away; without it, only the cache
// forgets which file the name leads to. Returns 0 or a negative errno.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t unlink_file(const Group g, const cache_view& c,
                                                       const char* path, bool removes) {
    std::int64_t code = 0;
    if (g.is_leader()) {
        name_key key{};
        code = make_key(path, 0, key);
        if (code == 0 && removes) code = ask_to_unlink(g, c, key);
        if (code == 0) code = forget_name(g, c, key);
    }
    return share_code(g, code);
}

}  // namespace penstock::engine
