#include "mapped_library.hpp"

#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/message.hpp"

namespace penstock::collage {

mapped_library::~mapped_library() {
    for (const auto& [address, bytes] : maps_) ::munmap(address, bytes);
    if (histograms_fd_ >= 0) ::close(histograms_fd_);
}

status mapped_library::map(const std::string& path, const char*& out, int* keep_fd) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    struct stat info {};
    if (fd < 0 || ::fstat(fd, &info) != 0) {
        const int code = -errno;
        if (fd >= 0) ::close(fd);
        return {code,
                apps::shown(path) + ": " + error_text(code) + "; name a library that can be read"};
    }
    const auto bytes = static_cast<std::size_t>(info.st_size);
    void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    const int code = at == MAP_FAILED ? -errno : 0;
    if (keep_fd != nullptr && code == 0) *keep_fd = fd;
    else ::close(fd);
    if (code != 0)
        return {code, apps::shown(path) + ": " + error_text(code) +
                          " while mapping it; free some address space"};
    maps_.emplace_back(at, bytes);
    out = static_cast<const char*>(at);
    return {};
}

status mapped_library::open(const library& of) {
    entries_at_ = entries_at(of.header.slots);
    if (status s = map(of.file(histograms_name), histograms_, &histograms_fd_); !s) return s;
    if (status s = map(of.file(tiles_name), tiles_, nullptr); !s) return s;
    for (std::uint32_t t = 0; t < tables; ++t)
        if (status s = map(of.file(table_name(t)), tables_[t], nullptr); !s) return s;
    return {};
}

}  // namespace penstock::collage
