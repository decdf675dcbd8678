// In place of session.cpp where libfuse was not there when this was built.
#include "mount/mount.hpp"

namespace penstock::mount {

status can_mount() { return {-ENOSYS, "this program was built without libfuse; install libfuse3-dev and fuse3, and build again"}; }

status serve(const mount_options&, void (*)(const mount_options&), mount_report&) { return can_mount(); }

}  // namespace penstock::mount
