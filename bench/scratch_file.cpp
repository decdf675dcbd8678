#include "scratch_file.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <numeric>
#include <sstream>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "common/message.hpp"
#include "penstock/base/hash.hpp"
#include "penstock/options.hpp"

namespace penstock::bench {

namespace {

[[noreturn]] void fail_of(const std::string& path, std::int64_t code, const std::string& cure) {
    throw failure(code, "file " + apps::shown(path) + ": " + error_text(code) + "; " + cure);
}

}  // namespace

mapped_memory::mapped_memory(std::uint64_t bytes, int protection, int flags, int fd)
    : bytes_(bytes), data_(::mmap(nullptr, bytes, protection, flags, fd, 0)) {
    if (data_ == MAP_FAILED)
        require(-errno, "mapping " + format_size(bytes) + " (give a smaller --file)");
}

mapped_memory::~mapped_memory() { ::munmap(data_, bytes_); }

apps::unique_fd open_measured(const std::string& path, int flags) {
    apps::unique_fd out(::open(path.c_str(), flags | O_CLOEXEC));
    if (out < 0) fail_of(path, -errno, "it must stay while it is measured");
    return out;
}

void scratch_file::fail(std::int64_t code, const std::string& cure) const {
    fail_of(path_, code, cure);
}

apps::unique_fd scratch_file::open(int flags) const { return open_measured(path_, flags); }

void scratch_file::remove() {
    if (path_.empty()) return;
    ::unlink(path_.c_str());
    noted_.forget();
    path_.clear();
    bytes_ = 0;
}

void scratch_file::make(const std::string& directory, std::uint64_t bytes) {
    make_empty(directory, bytes);
    const apps::unique_fd fd = open(O_WRONLY);
    std::vector<std::uint64_t> block(std::size_t{1} << 18);
    const std::uint64_t block_bytes = block.size() * 8;
    for (std::uint64_t at = 0; at < bytes; at += block_bytes) {
        for (std::size_t i = 0; i < block.size(); ++i) block[i] = mix64(at / 8 + i);
        const status s =
            apps::write_exactly(path_, fd, block.data(), std::min(block_bytes, bytes - at), at);
        if (!s) fail(s.code, "give another --dir or a smaller --file");
    }
    bytes_ = bytes;
}

void scratch_file::make_empty(const std::string& directory, std::uint64_t bytes) {
    remove();
    const std::string place = "--dir: " + apps::shown(directory);
    struct statvfs room {};
    if (::statvfs(directory.c_str(), &room) != 0)
        throw failure(-errno, place + ": " + error_text(-errno) + "; name another");
    const std::uint64_t free_bytes = std::uint64_t{room.f_bavail} * room.f_frsize;
    if (free_bytes < bytes + bytes / 64)
        throw failure(-ENOSPC, place + " has " + format_size(free_bytes) +
                                   " free and the file takes " + format_size(bytes) +
                                   "; give another --dir or a smaller --file");
    std::string name = directory + "/penstock-bench-XXXXXX";
    const apps::signal_pause until_noted;
    const apps::unique_fd fd(::mkostemp(name.data(), O_CLOEXEC));
    if (fd < 0)
        throw failure(-errno, place + ": " + error_text(-errno) +
                                  "; name a directory that can be written to");
    noted_.file(name);
    path_ = name;
}

double scratch_file::drop_from_page_cache() const {
    const apps::unique_fd fd = open(O_RDONLY);
    // Pages that the system still has in hand stay, and go a moment later.
    for (int attempt = 0;; ++attempt) {
        int code = ::fsync(fd) == 0 ? 0 : -errno;
        if (code == 0) code = -::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        if (code != 0) fail(code, "give another --dir");
        const double stayed = resident_share();
        if (stayed == 0 || attempt == 5) return stayed;
        std::this_thread::sleep_for(std::chrono::milliseconds(1 << attempt));
    }
}

void scratch_file::bring_into_page_cache() const {
    const apps::unique_fd fd = open(O_RDONLY);
    std::vector<char> piece(std::size_t{1} << 20);
    for (std::uint64_t at = 0; at < bytes_; at += piece.size())
        if (const int code =
                apps::read_all(fd, piece.data(), std::min(piece.size(), bytes_ - at), at);
            code != 0)
            fail(code, "give another --dir");
}

double scratch_file::resident_share() const {
    const apps::unique_fd fd = open(O_RDONLY);
    const mapped_memory mapped(bytes_, PROT_READ, MAP_SHARED, fd);
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGE_SIZE));
    std::vector<unsigned char> there((bytes_ + page - 1) / page);
    if (::mincore(mapped.as<void>(), bytes_, there.data()) != 0)
        fail(-errno, "mincore is needed to know what is in memory");
    const std::uint64_t resident =
        std::accumulate(there.begin(), there.end(), std::uint64_t{0},
                        [](std::uint64_t sum, unsigned char state) { return sum + (state & 1u); });
    return static_cast<double>(resident) / static_cast<double>(there.size());
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
