#include "scratch_file.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sstream>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include <vector>

#include "common/message.hpp"
#include "penstock/base/hash.hpp"
#include "penstock/options.hpp"

namespace penstock::bench {

status scratch_file::failed(int code, const std::string& cure) const {
    return {code, "file " + apps::shown(path_) + ": " + error_text(code) + "; " + cure};
}

void scratch_file::remove() {
    if (path_.empty()) return;
    ::unlink(path_.c_str());
    noted_.forget();
    path_.clear();
    bytes_ = 0;
}

status scratch_file::make(const std::string& directory, std::uint64_t bytes) {
    int fd = -1;
    if (status s = make_empty(directory, bytes, fd); !s) return s;
    const status written = write_words(fd);
    ::close(fd);
    return written;
}

status scratch_file::make_empty(const std::string& directory, std::uint64_t bytes) {
    int fd = -1;
    if (status s = make_empty(directory, bytes, fd); !s) return s;
    ::close(fd);
    bytes_ = 0;
    return {};
}

status scratch_file::make_empty(const std::string& directory, std::uint64_t bytes, int& fd) {
    remove();
    struct statvfs room {};
    if (::statvfs(directory.c_str(), &room) != 0)
        return {-errno,
                "--dir: " + apps::shown(directory) + ": " + error_text(-errno) + "; name another"};
    const std::uint64_t free_bytes = std::uint64_t{room.f_bavail} * room.f_frsize;
    if (free_bytes < bytes + bytes / 64)
        return {-ENOSPC, "--dir: " + apps::shown(directory) + " has " + format_size(free_bytes) +
                             " free and the file takes " + format_size(bytes) +
                             "; give another --dir or a smaller --file"};
    std::string name = directory + "/penstock-bench-XXXXXX";
    const apps::signal_pause until_noted;
    fd = ::mkostemp(name.data(), O_CLOEXEC);
    const int code = errno;
    if (fd >= 0) {
        noted_.file(name);
        path_ = name;
        bytes_ = bytes;
    }
    if (fd < 0)
        return {-code, "--dir: " + apps::shown(directory) + ": " + error_text(-code) +
                           "; name a directory that can be written to"};
    return {};
}

status scratch_file::write_words(int fd) const {
    std::vector<std::uint64_t> block(std::size_t{1} << 18);
    for (std::uint64_t at = 0; at < bytes_;) {
        for (std::size_t i = 0; i < block.size(); ++i) block[i] = mix64(at / 8 + i);
        const auto* from = reinterpret_cast<const char*>(block.data());
        for (std::uint64_t left = std::min<std::uint64_t>(block.size() * 8, bytes_ - at);
             left > 0;) {
            const ssize_t got = ::write(fd, from, left);
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0)
                return failed(got < 0 ? -errno : -EIO, "give another --dir or a smaller --file");
            from += got, at += static_cast<std::uint64_t>(got),
                left -= static_cast<std::uint64_t>(got);
        }
    }
    return {};
}

status scratch_file::drop_from_page_cache(double& left) const {
    const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return failed(-errno, "it must stay while it is measured");
    int code = ::fsync(fd) == 0 ? 0 : -errno;
    if (code == 0) code = -::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
    if (code != 0) return failed(code, "give another --dir");
    return resident_share(left);
}

status scratch_file::bring_into_page_cache() const {
    const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return failed(-errno, "it must stay while it is measured");
    std::vector<char> piece(std::size_t{1} << 20);
    int code = 0;
    for (std::uint64_t at = 0; at < bytes_ && code == 0;) {
        const ssize_t got = ::pread(fd, piece.data(), piece.size(), static_cast<off_t>(at));
        if (got > 0) at += static_cast<std::uint64_t>(got);
        else if (got == 0 || errno != EINTR) code = got == 0 ? -EIO : -errno;
    }
    ::close(fd);
    return code == 0 ? status{} : failed(code, "give another --dir");
}

status scratch_file::resident_share(double& share) const {
    const int fd = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return failed(-errno, "it must stay while it is measured");
    void* const mapped = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, fd, 0);
    ::close(fd);
    if (mapped == MAP_FAILED) return failed(-errno, "give a smaller --file");
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGE_SIZE));
    std::vector<unsigned char> there((bytes_ + page - 1) / page);
    const int code = ::mincore(mapped, bytes_, there.data()) == 0 ? 0 : -errno;
    ::munmap(mapped, bytes_);
    if (code != 0) return failed(code, "mincore is needed to know what is in memory");
    std::uint64_t resident = 0;
    for (const unsigned char state : there) resident += state & 1u;
    share = static_cast<double>(resident) / static_cast<double>(there.size());
    return {};
}

std::string file_system_of(const std::string& directory) {
    struct stat facts {};
    if (::stat(directory.c_str(), &facts) != 0) return "unknown";
    const std::string device =
        std::to_string(major(facts.st_dev)) + ":" + std::to_string(minor(facts.st_dev));
    std::ifstream mounts("/proc/self/mountinfo");
    for (std::string line; std::getline(mounts, line);) {
        std::istringstream words(line);
        std::string word, type;
        for (int i = 0; i < 3; ++i) words >> word;  // the third is the device
        if (word != device) continue;
        const std::size_t dash = line.find(" - ");
        if (dash != std::string::npos && std::istringstream(line.substr(dash + 3)) >> type)
            return type;
    }
    return "unknown";
}

}  // namespace penstock::bench
