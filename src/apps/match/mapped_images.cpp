#include "mapped_images.hpp"

#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/message.hpp"

namespace penstock::match {

mapped_images::~mapped_images() {
    for (const one_map& one : maps_) ::munmap(one.data, one.bytes);
}

status mapped_images::open(const std::vector<image_file>& files) {
    for (const image_file& file : files) {
        const int fd = ::open(file.path.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0) return {-errno, apps::shown(file.path) + ": " + error_text(-errno) + "; name a file of images that can be read"};
        const std::uint64_t bytes = file.header.data_offset + file.header.data_bytes();
        void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
        const int code = at == MAP_FAILED ? -errno : 0;
        ::close(fd);
        if (code != 0) return {code, apps::shown(file.path) + ": " + error_text(code) + " while mapping it; free some address space"};
        maps_.push_back({static_cast<char*>(at), bytes});
    }
    return {};
}

}  // namespace penstock::match
