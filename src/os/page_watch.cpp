#include "os/page_watch.hpp"

#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace penstock::host {

namespace {

std::uint64_t page_of_system() { return static_cast<std::uint64_t>(::sysconf(_SC_PAGE_SIZE)); }

}  // namespace

page_watch::~page_watch() {
    if (map_of_pages_ >= 0) ::close(map_of_pages_);
    if (page_ != nullptr) env_.unmap_file(page_, page_of_system());  // unlocks it
}

int page_watch::begin(int fd, std::uint64_t offset) {
    const std::uint64_t size = page_of_system();
    if (const int code = env_.map_file(fd, offset / size * size, size, page_); code != 0) {
        page_ = nullptr;
        return code;
    }
    map_of_pages_ = ::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    if (map_of_pages_ < 0) return -errno;
    // By its number: sanitizers put a function that does nothing in the place of mlock.
    if (::syscall(SYS_mlock, page_, size) != 0) return -errno;
    locked_ = is_mapped();
    return locked_ ? 0 : -ENOENT;
}

// While the system moves the page to other memory it counts as swapped out, not as gone.
bool page_watch::is_mapped() const {
    constexpr std::uint64_t present = 1ull << 63, swapped = 1ull << 62;
    std::uint64_t entry = 0;
    const auto at = reinterpret_cast<std::uintptr_t>(page_) / page_of_system() * sizeof entry;
    return ::pread(map_of_pages_, &entry, sizeof entry, static_cast<off_t>(at)) == sizeof entry &&
           (entry & (present | swapped)) != 0;
}

bool page_watch::has_left() const { return locked_ && !is_mapped(); }

}  // namespace penstock::host
