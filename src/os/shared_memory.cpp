#include "os/shared_memory.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>

#include "os/size_signal.hpp"

namespace penstock::host {

void owned_fd::reset(int fd) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
}

shared_memory::~shared_memory() {
    if (begin_ != nullptr) ::munmap(begin_, bytes_);
}

int shared_memory::make(std::uint64_t bytes, const char* name, bool others_write) {
    constexpr std::uint64_t huge = 2u << 20;
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGE_SIZE));
    const std::uint64_t length = (bytes + page - 1) / page * page;
    owned_fd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd) return -errno;
    {
        const without_size_signal guard;  // its size counts against RLIMIT_FSIZE
        if (::ftruncate(fd.get(), static_cast<off_t>(length)) != 0) return -errno;
    }
    void* const begin =
        ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd.get(), 0);
    if (begin == MAP_FAILED) return -errno;
    begin_ = static_cast<std::byte*>(begin);
    bytes_ = length;
    if (length >= 16 * huge) ::madvise(begin, length, MADV_HUGEPAGE);
    if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) return -errno;
    // Linux 5.1. An older kernel leaves it to the other processes that they only read.
    if (!others_write) ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
    fd_ = std::move(fd);
    return 0;
}

void shared_memory::part_from_parent() const {
    if (begin_ == nullptr) return;
    ::mmap(begin_, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE,
           fd_.get(), 0);
}

bool is_plain_memory(int fd) {
    struct statfs where {};
    struct stat facts {};
    return ::fstatfs(fd, &where) == 0 && where.f_type == TMPFS_MAGIC && ::fstat(fd, &facts) == 0 &&
           S_ISREG(facts.st_mode);
}

const std::byte* map_memory_of(int fd, std::uint64_t bytes, int& code, bool writes) {
    struct stat facts {};
    const int seals = ::fcntl(fd, F_GET_SEALS);
    code = 0;
    if (seals < 0 || ::fstat(fd, &facts) != 0) code = -errno;
    else if ((seals & F_SEAL_SHRINK) == 0) code = -EPERM;
    else if (!is_plain_memory(fd)) code = -EOPNOTSUPP;  // only huge pages have seals too
    else if (bytes == 0 || facts.st_size < 0 || static_cast<std::uint64_t>(facts.st_size) < bytes)
        code = -EMSGSIZE;
    if (code != 0) return nullptr;
    void* const begin = ::mmap(nullptr, bytes, writes ? PROT_READ | PROT_WRITE : PROT_READ,
                               MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (begin == MAP_FAILED) code = -errno;
    return begin == MAP_FAILED ? nullptr : static_cast<const std::byte*>(begin);
}

void unmap_memory_of(const std::byte* begin, std::uint64_t bytes) {
    ::munmap(const_cast<std::byte*>(begin), bytes);
}

void part_from_memory_of(const std::byte* begin, std::uint64_t bytes) {
    ::mmap(const_cast<std::byte*>(begin), bytes, PROT_READ,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

}  // namespace penstock::host
