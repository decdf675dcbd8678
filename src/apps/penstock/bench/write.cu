// Writes: what a kernel made goes to a file in the operating system's page cache, by write from the kernel and a close; against what
// one would do by hand: copy it back to pinned memory in pieces and pwrite from all processors. And records appended by all groups.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>
#include <vector>

#include "cases.hpp"
#include "memory.hpp"
#include "penstock/write.hpp"
#include "together.hpp"
#include "workload.hpp"
#include "write_by_hand.hpp"

namespace penstock::bench {

namespace {

// The i-th word of the output, as of the scratch file.
struct fill_words {
    std::uint64_t* words;
    std::uint64_t count, groups;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref&, std::uint64_t index) const {
        for (std::uint64_t i = index * g.size() + g.rank(); i < count; i += groups * g.size()) words[i] = mix64(i);
    }
};

struct write_blocks {
    int fd;
    const std::byte* output;
    std::uint64_t* failures;
    std::uint64_t bytes, block_bytes, groups;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
        for (std::uint64_t at = index * block_bytes; at < bytes; at += groups * block_bytes) {
            const auto length = static_cast<std::int64_t>(block_bytes < bytes - at ? block_bytes : bytes - at);
            if (write(g, fs, fd, output + at, length, static_cast<std::int64_t>(at)) != length && g.is_leader()) atomic_add_relaxed(failures, std::uint64_t{1});
        }
    }
};

constexpr std::uint64_t record_bytes = 128;

struct append_records {
    int fd;
    const std::byte* records;  // one for each group
    std::uint64_t* failures;
    std::uint64_t rounds;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
        for (std::uint64_t i = 0; i < rounds; ++i)
            if (append(g, fs, fd, records + index * record_bytes, record_bytes) < 0 && g.is_leader()) atomic_add_relaxed(failures, std::uint64_t{1});
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
    memory output, failures;
    if (status s = output.make(rt->where(), bytes); !s) return s;
    if (status s = failures.make(rt->where(), 8); !s) return s;
    const std::uint64_t groups = group_count(here, *rt, shape.page_bytes);
    if (const int code = launch<width::warp>(*rt, groups, fill_words{output.as<std::uint64_t>(), bytes / 8, groups}); code != 0) return {code, "kernel: " + error_text(code)};
    const int fd = rt->open(here.file().path(), open_write);
    if (fd < 0) return {fd, "opening the file for writing: " + error_text(fd)};
    const stopwatch watch;
    int code = launch<width::warp>(*rt, groups, write_blocks{fd, output.as<std::byte>(), failures.as<std::uint64_t>(), bytes, shape.page_bytes, groups});
    if (code == 0) code = rt->close(fd);
    const double seconds = watch.seconds();
    if (code != 0) return {code, "writing: " + error_text(code)};
    out.rate.add(gigabytes_a_second(bytes, seconds));
    out.cores.add(watch.cores(seconds));
    const statistics counted = rt->stats();
    out.victims = counted.dirty_victims;
    out.bytes_a_call = counted.file_write_bytes / std::max<std::uint64_t>(counted.file_writes, 1);
    std::uint64_t failed = 0;
    if (status s = failures.copy_out(&failed, sizeof failed); !s) return s;
    if (failed != 0) return {-EIO, std::to_string(failed) + " writes failed"};
    if (status s = check_file(here); !s) return s;
    if (status s = clear_file(here); !s) return s;
    if (status s = write_by_hand(here, rt->where(), output.as<std::byte>(), out.hand); !s) return s;
    return check_file(here);
}

status append_all(context& here, std::uint64_t page) {
    std::unique_ptr<runtime> rt;
    if (status s = here.make_runtime({.page_bytes = page, .cache_bytes = 256 * mib, .file_bytes = mib, .writable = true}, rt); !s) return s;
    const std::uint64_t groups = group_count(here, *rt, page), rounds = std::max<std::uint64_t>(here.file().bytes() / 8 / record_bytes / groups, 1);
    memory records, failures;
    if (status s = records.make(rt->where(), groups * record_bytes); !s) return s;
    if (status s = failures.make(rt->where(), 8); !s) return s;
    const std::string path = here.file().path() + ".log";
    series rate, cores, baseline;
    status result;
    for (std::uint64_t repeat = 0; repeat < here.repeats(5) && result.ok(); ++repeat) {
        const int fd = rt->open(path, open_write | open_create | open_truncate);
        if (fd < 0) result = {fd, "opening " + path + ": " + error_text(fd)};
        if (!result.ok()) break;
        const stopwatch watch;
        int code = launch<width::warp>(*rt, groups, append_records{fd, records.as<std::byte>(), failures.as<std::uint64_t>(), rounds});
        if (const int closed = rt->close(fd); code == 0) code = closed;
        const double seconds = watch.seconds();
        if (code != 0) result = {code, "appending: " + error_text(code)};
        rate.add(1e-6 * static_cast<double>(groups * rounds) / seconds);
        cores.add(watch.cores(seconds));
        if (result.ok()) result = append_by_hand(here, path, record_bytes, groups * rounds, baseline);
    }
    ::unlink(path.c_str());
    std::uint64_t failed = 0;
    if (result.ok()) result = failures.copy_out(&failed, sizeof failed);
    if (result.ok() && failed != 0) result = {-EIO, std::to_string(failed) + " appends failed"};
    if (!result.ok()) return result;
    return here.add({"append", "records of 128 bytes appended to one file by all groups, and close", "", page, rate, "million/s",
                     "all cores: write of each record with O_APPEND", baseline, cores, groups_label(here, groups)});
}

}  // namespace

status write_path(context& here) {
    const std::uint64_t bytes = here.file_bytes(here.on_gpu() ? 4 * gib : 256 * mib);
    if (status s = here.use_file(bytes); !s) return s;
    for (const std::uint64_t page : here.pages({64 * kib, 4 * kib}))
        for (const std::uint64_t cache : {bytes + bytes / 8, std::max(bytes / 16, 64 * page)}) {
            write_run all;
            for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat)
                if (status s = write_once(here, {.page_bytes = page, .cache_bytes = cache, .file_bytes = bytes, .writable = true}, all); !s) return s;
            const std::string where = cache > bytes ? "the cache holds it all" : cache_label(cache, bytes);
            if (status s = here.add({"S9", "output of a kernel to a file, written and closed, " + where, "", page, all.rate, "GB/s", write_by_hand_name(here), all.hand,
                                     all.cores, std::to_string(all.victims) + " searches for a frame wrote pages in the last run, " + std::to_string(all.bytes_a_call) + " bytes a system call"});
                !s)
                return s;
        }
    return append_all(here, here.pages({64 * kib}).front());
}

}  // namespace penstock::bench
