#include "scratch_mount.hpp"

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "common/message.hpp"

namespace penstock::bench {

namespace {

// What the handler takes away. It may run at any moment, so names are whole before the flag says that they are there.
struct doomed_mount {
    char top[PATH_MAX], source[PATH_MAX], file[PATH_MAX], point[PATH_MAX];
    std::atomic<bool> there{false};
};
doomed_mount doomed;

void note(char (&to)[PATH_MAX], const std::string& from) { std::memcpy(to, from.c_str(), from.size() + 1); }

status failed(const std::string& path, int code) { return {code, apps::shown(path) + ": " + error_text(code) + "; name another --dir"}; }

}  // namespace

void undo_scratch_mount() {
    if (!doomed.there.exchange(false)) return;
    if (::umount2(doomed.point, MNT_DETACH) != 0) {
        const pid_t child = ::fork();
        if (child == 0) {
            ::execlp("fusermount3", "fusermount3", "-u", "-z", "-q", doomed.point, nullptr);
            ::_exit(1);
        }
        if (child > 0) ::waitpid(child, nullptr, 0);
    }
    ::unlink(doomed.file);
    for (const char* const folder : {doomed.point, doomed.source, doomed.top}) ::rmdir(folder);
}

status scratch_mount::make(runtime& rt, context& here) {
    remove();
    std::string top = here.asked().directory + "/penstock-bench-XXXXXX";
    if (top.size() + 16 >= sizeof doomed.top) return failed(top, -ENAMETOOLONG);
    if (::mkdtemp(top.data()) == nullptr) return failed(top, -errno);
    top_ = top, source_ = top + "/source", point_ = top + "/point";
    note(doomed.top, top_), note(doomed.source, source_), note(doomed.file, source_ + "/file"), note(doomed.point, point_);
    doomed.there.store(true);
    std::error_code code;
    for (const std::string& folder : {source_, point_})
        if (!std::filesystem::create_directory(folder, code)) return failed(folder, -code.value());
    if (::link(here.file().path().c_str(), (source_ + "/file").c_str()) != 0) return failed(source_ + "/file", -errno);
    return rt.mount(source_, point_, {}, mount_);
}

void scratch_mount::remove() {
    if (top_.empty()) return;
    mount_.reset();
    std::error_code ignored;
    // Not what a mount shows that is still there.
    std::filesystem::remove(source_ + "/file", ignored);
    for (const std::string& folder : {point_, source_, top_}) std::filesystem::remove(folder, ignored);
    doomed.there.store(false);
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
