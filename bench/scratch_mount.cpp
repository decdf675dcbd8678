#include "scratch_mount.hpp"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include "common/message.hpp"

namespace penstock::bench {

namespace {

status failed(const std::string& path, int code) {
    return {code, apps::shown(path) + ": " + error_text(code) + "; name another --dir"};
}

}  // namespace

status scratch_mount::make(runtime& rt, context& here) {
    remove();
    std::string top = here.asked().directory + "/penstock-bench-XXXXXX";
    {
        const apps::signal_pause until_noted;
        if (::mkdtemp(top.data()) == nullptr) return failed(top, -errno);
        top_ = top, source_ = top + "/source", point_ = top + "/point";
        // Folders are removed with the files in them, in this order; the mount is taken away
        // before.
        noted_[0].mount(point_), noted_[1].folder(point_), noted_[2].folder(source_),
            noted_[3].folder(top_);
    }
    std::error_code code;
    for (const std::string& folder : {source_, point_})
        if (!std::filesystem::create_directory(folder, code)) return failed(folder, -code.value());
    if (::link(here.file().path().c_str(), (source_ + "/file").c_str()) != 0)
        return failed(source_ + "/file", -errno);
    return rt.mount(source_, point_, {}, mount_);
}

void scratch_mount::remove() {
    if (top_.empty()) return;
    mount_.reset();
    std::error_code ignored;
    // Not what a mount shows that is still there.
    std::filesystem::remove(source_ + "/file", ignored);
    for (const std::string& folder : {point_, source_, top_})
        std::filesystem::remove(folder, ignored);
    for (apps::leftover& one : noted_) one.forget();
    top_.clear();
}

status scratch_mount::forget_pages() const {
    const int fd = ::open(file().c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return failed(file(), -errno);
    const int code = -::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
    return code == 0 ? status{} : failed(file(), code);
}

}  // namespace penstock::bench
