#include "os/page_watch.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <unistd.h>

namespace penstock::host {

namespace {

// Of an entry of pagemap. While the system moves a page to other memory it counts as swapped out.
constexpr std::uint64_t is_present = 1ull << 63, is_swapped = 1ull << 62;

}  // namespace

page_watch::~page_watch() {
    if (map_of_pages_ >= 0) ::close(map_of_pages_);
    if (pages_ != nullptr) env_.unmap_file(pages_, bytes_);
}

int page_watch::begin(int fd, std::uint64_t offset, std::uint64_t bytes) {
    map_of_pages_ = ::open("/proc/thread-self/pagemap", O_RDONLY | O_CLOEXEC);
    if (map_of_pages_ < 0) return -errno;
    void* mapped = nullptr;
    if (const int code = env_.map_file(fd, offset, bytes, mapped); code != 0) return code;
    pages_ = static_cast<std::byte*>(mapped);
    bytes_ = bytes;
    return 0;
}

int page_watch::watch(std::uint64_t at, std::uint64_t bytes) {
    return pages_ == nullptr ? -EINVAL : env_.populate(pages_ + at, bytes);
}

bool page_watch::has_left(std::uint64_t at, std::uint64_t bytes) const {
    if (pages_ == nullptr) return true;
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGE_SIZE));
    const std::uint64_t first = (reinterpret_cast<std::uintptr_t>(pages_) + at) / page,
                        count = (bytes + page - 1) / page;
    std::array<std::uint64_t, 4096> entries;
    for (std::uint64_t done = 0; done < count;) {
        const std::uint64_t some = std::min<std::uint64_t>(count - done, entries.size());
        const ssize_t got = ::pread(map_of_pages_, entries.data(), some * sizeof entries[0],
                                    static_cast<off_t>((first + done) * sizeof entries[0]));
        if (got != static_cast<ssize_t>(some * sizeof entries[0])) return true;
        if (std::any_of(entries.begin(), entries.begin() + some, [](std::uint64_t entry) {
                return (entry & (is_present | is_swapped)) == 0;
            }))
            return true;
        done += some;
    }
    return false;
}

}  // namespace penstock::host
