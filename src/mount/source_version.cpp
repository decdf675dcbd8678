#include "mount/source_version.hpp"

#include <cerrno>

#include "os/env.hpp"
#include "os/file_kind.hpp"

namespace penstock::mount {

namespace {

// Files that are made up have no server to be asked, and reads of them may wait.
bool is_of_server(const host::file_system_kind& lies_on) {
    return lies_on.times != host::file_times::local && !lies_on.is_made_up;
}

}  // namespace

int look_at_source(const node& file_node, int fd, bool judges_size, source_version& out) {
    if (is_of_server(*file_node.lies_on)) {
        host::file_facts facts;
        if (const int code = host::linux_environment().facts(fd, facts); code != 0) return code;
        out = {facts.identity, !host::may_change_unseen(facts), facts.is_regular, facts.false_size};
        return 0;
    }
    struct stat facts {};
    if (::fstat(fd, &facts) != 0) return -errno;
    out = {host::identity_of(facts), file_node.lies_on->times == host::file_times::local,
           S_ISREG(facts.st_mode),
           judges_size && host::kind_of(fd, facts) == host::file_kind::false_size};
    return 0;
}

}  // namespace penstock::mount
