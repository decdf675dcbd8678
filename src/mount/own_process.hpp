// Files of /proc that show a reader more because the mount's process reads them: what the kernel
// shows of a process to itself alone, and the keys of its session. No rights that a thread gives up
// change that, since the kernel goes by the process.
#pragma once

namespace penstock::mount {

// Whether the descriptor leads to such a file or link. True also where that cannot be told.
bool shows_own_process(int path_fd);

}  // namespace penstock::mount
