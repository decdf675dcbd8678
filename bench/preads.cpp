// The baseline of most cases: the same blocks by pread.
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <unistd.h>
#include <vector>

#include "common/message.hpp"
#include "common/threads.hpp"
#include "workload.hpp"

namespace penstock::bench {

namespace {

// One thread's part. 0 or a negative errno; -EIO also for bytes that are not the file's.
int read_part(int fd, const pattern& what, std::uint64_t thread, std::byte* buffer) {
    for (std::uint64_t i = 0; i < what.rounds; ++i) {
        const std::uint64_t at = what.offset_bytes(thread, i);
        for (std::uint64_t done = 0; done < what.block_bytes;) {
            const ssize_t got =
                ::pread(fd, buffer + done, what.block_bytes - done, static_cast<off_t>(at + done));
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) return got < 0 ? -errno : -EIO;
            done += static_cast<std::uint64_t>(got);
        }
        std::uint64_t first = 0;
        std::memcpy(&first, buffer, sizeof first);
        if (first != mix64(at / 8)) return -EIO;
    }
    return 0;
}

}  // namespace

status run_preads(const std::string& path, const pattern& what, bool direct, run_result& out) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0));
    if (fd < 0)
        return {-errno, "file " + apps::shown(path) + ": " + error_text(-errno) +
                            "; it must stay while it is measured"};
    std::vector<std::unique_ptr<std::byte, void (*)(void*)>> buffers;
    bool room = true;
    for (std::uint64_t t = 0; t < what.groups; ++t) {
        buffers.emplace_back(static_cast<std::byte*>(
                                 std::aligned_alloc(4096, (what.block_bytes + 4095) / 4096 * 4096)),
                             std::free);
        room = room && buffers.back() != nullptr;
        if (room) std::memset(buffers.back().get(), 1, what.block_bytes);
    }
    std::atomic<int> code{room ? 0 : -ENOMEM};
    const stopwatch watch;
    apps::on_new_threads(room ? static_cast<std::uint32_t>(what.groups) : 0, [&](std::uint32_t t) {
        if (const int failed = read_part(fd, what, t, buffers[t].get()); failed != 0) code = failed;
    });
    out.seconds = watch.seconds();
    out.cores = watch.cores(out.seconds);
    ::close(fd);
    if (code == 0) return {};
    return {code, std::string(direct ? "pread with O_DIRECT" : "pread") + " of " +
                      apps::shown(path) + ": " + error_text(code)};
}

}  // namespace penstock::bench
