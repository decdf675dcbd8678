// In place of the rest where libfuse was not there when this was built.
#include "mount/mount.hpp"
#include "penstock/runtime.hpp"

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

status runtime::mount(const std::string& source, const std::string& point, const mount_options& how,
                      std::unique_ptr<file_mount>& out) {
    out.reset();
    const status s = mount::check({how, source, point});
    return s ? mount::can_mount() : s;
}

}  // namespace penstock
