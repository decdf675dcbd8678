// In place of the rest where libfuse was not there when this was built.
#include "mount/mount.hpp"

namespace penstock {

namespace mount {

status can_mount() {
    return {
        -ENOSYS,
        "this program was built without libfuse; install libfuse3-dev and fuse3, and build again"};
}

status serve(const serve_options&, const serve_calls&, serve_report&) { return can_mount(); }

class background_session {};

}  // namespace mount

file_mount::file_mount(std::unique_ptr<mount::background_session> session)
    : session_(std::move(session)) {}
file_mount::~file_mount() = default;
int file_mount::unmount() { return 0; }
bool file_mount::is_mounted() const { return false; }
mount_report file_mount::report() const { return {}; }

inline namespace link_with_penstock_mount {

status mount_directory(runtime&, const std::string& source, const std::string& point,
                       const mount_options& settings, std::unique_ptr<file_mount>& out) {
    out.reset();
    const status s = mount::check({settings, source, point});
    return s ? mount::can_mount() : s;
}

}  // namespace link_with_penstock_mount

}  // namespace penstock
