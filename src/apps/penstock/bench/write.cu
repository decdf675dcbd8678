// Writes: what a kernel made goes to a file in the operating system's page cache, by write from the kernel and a close; against what
// one would do by hand: copy it back to pinned memory in pieces and pwrite from all processors.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>
#include <vector>

#include "cases.hpp"
#include "kernel_output.hpp"
#include "memory.hpp"
#include "penstock/write.hpp"
#include "together.hpp"
#include "workload.hpp"
#include "write_by_hand.hpp"

namespace penstock::bench {

namespace {

// Of how many writes failed, and how many pages were begun.
struct write_counts {
    std::uint64_t failures, begun;
};

template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::uint64_t next_page(const Group g, write_counts* counts) {
    std::uint64_t page = 0;
    if (g.is_leader()) page = atomic_fetch_add<order::relaxed>(&counts->begun, std::uint64_t{1});
    return g.broadcast(page);
}

// Each group writes a page and then the next that nobody has begun, so that those which are written at a time are neighbours.
struct write_pages {
    int fd;
    const std::byte* output;
    write_counts* counts;
    std::uint64_t bytes, page_bytes;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref& fs, std::uint64_t) const {
        for (std::uint64_t at = next_page(g, counts) * page_bytes; at < bytes; at = next_page(g, counts) * page_bytes) {
            const auto length = static_cast<std::int64_t>(page_bytes < bytes - at ? page_bytes : bytes - at);
            if (write(g, fs, fd, output + at, length, static_cast<std::int64_t>(at)) != length && g.is_leader())
                atomic_add_relaxed(&counts->failures, std::uint64_t{1});
        }
    }
};

// All words of the file are the output's; found by as many threads as the host has.
status check_file(const context& here) {
    const int file = ::open(here.file().path().c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return {-errno, "the file: " + error_text(-errno)};
    std::atomic<std::uint64_t> next{0}, wrong{0};
    seconds_together(host_threads(here), [&](std::uint64_t) {
        std::vector<std::uint64_t> words(mib / 8);
        for (std::uint64_t at = next.fetch_add(mib); at < here.file().bytes(); at = next.fetch_add(mib)) {
            if (::pread(file, words.data(), mib, static_cast<off_t>(at)) != static_cast<ssize_t>(mib)) ++wrong;
            for (std::uint64_t i = 0; i < words.size(); ++i)
                if (words[i] != mix64(at / 8 + i)) ++wrong;
        }
    });
    ::close(file);
    return wrong == 0 ? status{} : status{-EIO, std::to_string(wrong.load()) + " words of the file are not what was written"};
}

// So that bytes which are not written show.
status clear_file(const context& here) {
    const int file = ::open(here.file().path().c_str(), O_WRONLY | O_CLOEXEC);
    if (file < 0) return {-errno, "the file: " + error_text(-errno)};
    std::atomic<std::uint64_t> next{0};
    std::atomic<int> code{0};
    const std::vector<std::byte> zeros(mib);
    seconds_together(host_threads(here), [&](std::uint64_t) {
        for (std::uint64_t at = next.fetch_add(mib); at < here.file().bytes(); at = next.fetch_add(mib))
            if (::pwrite(file, zeros.data(), mib, static_cast<off_t>(at)) != static_cast<ssize_t>(mib)) code = errno != 0 ? -errno : -EIO;
    });
    ::close(file);
    return code == 0 ? status{} : status{code, "clearing the file: " + error_text(code)};
}

struct write_run {
    series rate, cores, hand;
    std::uint64_t victims = 0, bytes_a_call = 0;
};

status write_once(context& here, const runtime_shape& shape, write_run& out) {
    const std::uint64_t bytes = here.file().bytes();
    if (status s = clear_file(here); !s) return s;
    std::unique_ptr<runtime> rt;
    if (status s = here.make_runtime(shape, rt); !s) return s;
    memory output, counts;
    if (status s = output.make(rt->where(), bytes); !s) return s;
    if (status s = counts.make(rt->where(), sizeof(write_counts)); !s) return s;
    const std::uint64_t groups = group_count(here, *rt, shape.page_bytes);
    if (const int code = launch<width::warp>(*rt, groups, fill_words{output.as<std::uint64_t>(), bytes / 8, groups}); code != 0) return {code, "kernel: " + error_text(code)};
    const int fd = rt->open(here.file().path(), open_write);
    if (fd < 0) return {fd, "opening the file for writing: " + error_text(fd)};
    const stopwatch watch;
    // Blocks of 8 warps, all of them resident.
    const launch_shape resident{.blocks = static_cast<std::uint32_t>((groups + 15) / 16)};
    int code = launch<width::warp>(*rt, std::uint64_t{resident.blocks} * 8, write_pages{fd, output.as<std::byte>(), counts.as<write_counts>(), bytes, shape.page_bytes},
                                   resident);
    if (code == 0) code = rt->close(fd);
    const double seconds = watch.seconds();
    if (code != 0) return {code, "writing: " + error_text(code)};
    out.rate.add(gigabytes_a_second(bytes, seconds));
    out.cores.add(watch.cores(seconds));
    const statistics counted = rt->stats();
    out.victims = counted.dirty_victims;
    out.bytes_a_call = counted.file_write_bytes / std::max<std::uint64_t>(counted.file_writes, 1);
    write_counts counted_here{};
    if (status s = counts.copy_out(&counted_here, sizeof counted_here); !s) return s;
    if (counted_here.failures != 0) return {-EIO, std::to_string(counted_here.failures) + " writes failed"};
    if (status s = check_file(here); !s) return s;
    if (status s = clear_file(here); !s) return s;
    if (status s = write_by_hand(here, rt->where(), output.as<std::byte>(), out.hand); !s) return s;
    return check_file(here);
}

}  // namespace

status write_path(context& here) {
    const std::uint64_t bytes = here.file_bytes(here.on_gpu() ? 4 * gib : 256 * mib);
    if (status s = here.use_file(bytes); !s) return s;
    for (const std::uint64_t page : here.pages({64 * kib, 4 * kib})) {
        std::vector<std::uint64_t> caches{bytes + bytes / 8};
        for (const std::uint64_t cache : here.caches(bytes, page)) caches.push_back(std::max(cache, 64 * page));
        for (const std::uint64_t cache : caches) {
            write_run all;
            for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat)
                if (status s = write_once(here, {.page_bytes = page, .cache_bytes = cache, .file_bytes = bytes, .writable = true}, all); !s) return s;
            const std::string where = cache > bytes ? "the cache holds it all" : cache_label(cache, bytes);
            if (status s = here.add({"S9", "output of a kernel to a file, written and closed, " + where, "", page, all.rate, "GB/s", write_by_hand_name(here), all.hand,
                                     all.cores, std::to_string(all.victims) + " pages written for their frame in the last run, " + std::to_string(all.bytes_a_call) + " bytes a system call"});
                !s)
                return s;
        }
    }
    return {};
}

}  // namespace penstock::bench
