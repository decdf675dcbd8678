// Which version of a file its bytes are of: by its identity and, where programs may store to it
// past a mount without new times (tmpfs), by the number of opens that were passed through.
#pragma once

#include <cstdint>

#include "hub/hub.hpp"
#include "os/env.hpp"
#include "os/file_kind.hpp"

namespace penstock::host {

struct file_version {
    file_identity identity;
    std::uint64_t passed_opens = 0;
    bool notes_stores = false;  // every store leaves another identity
    // Bytes that are read from now on are of this version as long as another look gives the same.
    bool is_proof = false;

    [[nodiscard]] bool is_same(const file_version& later) const {
        return identity == later.identity && (notes_stores || passed_opens == later.passed_opens);
    }
};

// 0 with `out`, or a negative errno.
//
// The passed opens are asked for before the facts: a program that comes in between has another
// number at the next look. One that was there before is no proof's end if the operating system then
// knows no writer: its last store came before the facts. After a look that is proof no such program
// is left, so a store that comes later has another number.
inline int look_at_version(environment& env, const passed_files& passed, const file_key& file,
                           int fd, file_version& out) {
    const passed_files::seen seen = passed.look(file);
    file_facts facts;
    if (const int code = env.facts(fd, facts); code != 0) return code;
    out = {facts.identity, seen.opens, facts.notes_stores,
           !may_change_unseen(facts) && (seen.writers == 0 || facts.writing == writers::none)};
    return 0;
}

}  // namespace penstock::host
