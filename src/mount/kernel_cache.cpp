#include <linux/fuse.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "mount/mount.hpp"
#include "mount/tree.hpp"

namespace penstock::mount {

void allow_read_ahead(const std::string& point, std::uint64_t bytes) {
    const std::string device = mounted_at(point).device;
    if (!device.empty())
        std::ofstream("/sys/class/bdi/" + device + "/read_ahead_kb") << bytes / 1024 << std::flush;
}

#if defined(FUSE_CAP_DIRECT_IO_ALLOW_MMAP)

void seek_agreement(fuse_session*, uncached_agreement&) {}

void agree_uncached(fuse_conn_info* kernel, uncached_agreement& both) {
    if (!both.wanted || (kernel->capable & FUSE_CAP_DIRECT_IO_ALLOW_MMAP) == 0) return;
    kernel->want |= FUSE_CAP_DIRECT_IO_ALLOW_MMAP;
    both.reached = true;
}

#elif FUSE_VERSION >= FUSE_MAKE_VERSION(3, 14) && defined(FUSE_INIT_EXT)

namespace {

constexpr std::uint32_t direct_maps =
    1u
    << (36 -
        32);  // FUSE_DIRECT_IO_ALLOW_MMAP, in the second word of flags; younger than some headers

uncached_agreement& agreement_of(void* user) { return static_cast<tree*>(user)->uncached; }

// One thread reads until the session has begun, so there is no other that looks.
ssize_t read_request(int fd, void* to, std::size_t room, void* user) {
    const ssize_t got = ::read(fd, to, room);
    uncached_agreement& both = agreement_of(user);
    struct {
        fuse_in_header head;
        fuse_init_in body;
    } begin{};
    if (!both.wanted || got != sizeof begin) return got;
    std::memcpy(&begin, to, sizeof begin);
    if (begin.head.opcode != FUSE_INIT || (begin.body.flags & FUSE_INIT_EXT) == 0 ||
        (begin.body.flags2 & direct_maps) == 0)
        return got;
    both.first = begin.head.unique;
    return got;
}

ssize_t write_answer(int fd, iovec* parts, int count, void* user) {
    uncached_agreement& both = agreement_of(user);
    if (both.wanted && !both.reached && both.first != 0 && count == 2 &&
        parts[0].iov_len == sizeof(fuse_out_header) && parts[1].iov_len == sizeof(fuse_init_out)) {
        fuse_out_header head{};
        fuse_init_out body{};
        std::memcpy(&head, parts[0].iov_base, sizeof head);
        std::memcpy(&body, parts[1].iov_base, sizeof body);
        if (head.unique == both.first && head.error == 0) {
            body.flags |= FUSE_INIT_EXT;
            body.flags2 |= direct_maps;
            std::memcpy(parts[1].iov_base, &body, sizeof body);
            both.reached = true;
        }
    }
    return ::writev(fd, parts, count);
}

}  // namespace

void seek_agreement(fuse_session* session, uncached_agreement& both) {
    fuse_custom_io ways{};
    ways.read = read_request;
    ways.writev = write_answer;
    if (both.wanted && fuse_session_custom_io(session, &ways, fuse_session_fd(session)) != 0)
        both.wanted = false;
}

void agree_uncached(fuse_conn_info*, uncached_agreement&) {}

#else

void seek_agreement(fuse_session*, uncached_agreement&) {}
void agree_uncached(fuse_conn_info*, uncached_agreement&) {}

#endif

}  // namespace penstock::mount
