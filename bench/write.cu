// Writes: what a kernel made goes to a file in the operating system's page cache, by write from the
// kernel and a close; against what one would do by hand: copy it back to pinned memory in pieces
// and pwrite from all processors.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <memory>
#include <unistd.h>
#include <vector>

#include "cases.hpp"
#include "workload.hpp"
#include "machine.hpp"
#include "penstock/write.hpp"
#include "host.hpp"

#if defined(__CUDACC__)
#include "gpu.cuh"
#endif

namespace penstock::bench {

namespace {

constexpr std::uint64_t written_piece_bytes = 4 * mib;

int write_all(int file, const std::byte* from, std::uint64_t bytes, std::uint64_t offset) {
    while (bytes > 0) {
        const ssize_t done = ::pwrite(file, from, bytes, static_cast<off_t>(offset));
        if (done <= 0) return done < 0 ? -errno : -EIO;
        from += done;
        bytes -= static_cast<std::uint64_t>(done);
        offset += static_cast<std::uint64_t>(done);
    }
    return 0;
}

#if defined(__CUDACC__)
// Streams and pinned buffers are made before the clock starts.
struct hand_of_gpu {
    std::vector<cudaStream_t> streams;
    gpu_memory pinned;
    int device = 0;

    ~hand_of_gpu() {
        for (cudaStream_t stream : streams) cudaStreamDestroy(stream);
    }
    status make(std::uint64_t threads) {
        cudaGetDevice(&device);
        streams.resize(2 * threads);
        for (cudaStream_t& stream : streams)
            if (status s = cuda_status(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                       "stream");
                !s)
                return s;
        return pinned.on_host(2 * threads * written_piece_bytes);
    }
    // 0, a negative errno, or a positive CUDA error.
    int part(std::uint64_t thread, int file, const std::byte* output, std::uint64_t bytes,
             std::atomic<std::uint64_t>& next) const {
        if (const cudaError_t code = cudaSetDevice(device); code != cudaSuccess) return code;
        std::uint64_t at[2] = {bytes, bytes};
        const auto begin = [&](unsigned turn) -> int {
            at[turn] = next.fetch_add(written_piece_bytes);
            if (at[turn] >= bytes) return 0;
            return cudaMemcpyAsync(buffer(thread, turn), output + at[turn],
                                   std::min(written_piece_bytes, bytes - at[turn]),
                                   cudaMemcpyDeviceToHost, streams[2 * thread + turn]);
        };
        if (const int code = begin(0); code != 0) return code;
        for (unsigned turn = 0; at[turn] < bytes; turn ^= 1) {
            if (const int code = begin(turn ^ 1); code != 0) return code;
            if (const cudaError_t code = cudaStreamSynchronize(streams[2 * thread + turn]);
                code != cudaSuccess)
                return code;
            if (const int code =
                    write_all(file, buffer(thread, turn),
                              std::min(written_piece_bytes, bytes - at[turn]), at[turn]);
                code != 0)
                return code;
        }
        return 0;
    }
    [[nodiscard]] std::byte* buffer(std::uint64_t thread, unsigned turn) const {
        return pinned.as<std::byte>() + (2 * thread + turn) * written_piece_bytes;
    }
};
#endif

}  // namespace

std::string write_by_hand_name(const context& here) {
    return here.on_gpu() ? "all cores: cudaMemcpyAsync to pinned buffers, two a core, and pwrite"
                         : "all cores: pwrite";
}

status write_by_hand(const context& here, backend where, const std::byte* output, series& rate) {
    const std::uint64_t bytes = here.file().bytes(), threads = host_threads(here);
    const int file = ::open(here.file().path().c_str(), O_WRONLY | O_CLOEXEC);
    if (file < 0) return {-errno, "the file: " + error_text(-errno)};
    std::atomic<std::uint64_t> next{0};
    std::atomic<int> code{0};
    double seconds = 0;
    status made;
    if (where == backend::cpu) {
        seconds = seconds_together(threads, [&](std::uint64_t) {
            for (std::uint64_t at = next.fetch_add(written_piece_bytes); at < bytes;
                 at = next.fetch_add(written_piece_bytes))
                if (const int failed =
                        write_all(file, output + at, std::min(written_piece_bytes, bytes - at), at);
                    failed != 0)
                    code = failed;
        });
    } else {
#if defined(__CUDACC__)
        hand_of_gpu hand;
        made = hand.make(threads);
        if (made.ok())
            seconds = seconds_together(threads, [&](std::uint64_t thread) {
                if (const int failed = hand.part(thread, file, output, bytes, next); failed != 0)
                    code = failed;
            });
#endif
    }
    ::close(file);
    if (!made.ok()) return made;
    if (code != 0)
        return {code < 0 ? code.load() : -EIO,
                "writing by hand: " +
                    (code < 0 ? error_text(code) : "CUDA error " + std::to_string(code))};
    rate.add(gigabytes_a_second(bytes, seconds));
    return {};
}

namespace {

// Each group computes for a while and writes its page. `launch` gives out its groups in order, so
// pages that are written at a time are neighbours.
struct write_page {
    int fd;
    const std::byte* output;
    std::uint64_t* failures;
    std::uint64_t bytes, page_bytes, compute_ns;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref& fs, std::uint64_t page) const {
        for (const std::uint64_t start = g.now_ns(); g.now_ns() - start < compute_ns;) {
        }
        const std::uint64_t at = page * page_bytes;
        const auto length =
            static_cast<std::int64_t>(page_bytes < bytes - at ? page_bytes : bytes - at);
        if (write(g, fs, fd, output + at, length, static_cast<std::int64_t>(at)) != length &&
            g.is_leader())
            atomic_add_relaxed(failures, std::uint64_t{1});
    }
};

// All words of the file are the output's; found by as many threads as the host has.
status check_file(const context& here) {
    const int file = ::open(here.file().path().c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return {-errno, "the file: " + error_text(-errno)};
    std::atomic<std::uint64_t> next{0}, wrong{0};
    seconds_together(host_threads(here), [&](std::uint64_t) {
        std::vector<std::uint64_t> words(mib / 8);
        for (std::uint64_t at = next.fetch_add(mib); at < here.file().bytes();
             at = next.fetch_add(mib)) {
            if (::pread(file, words.data(), mib, static_cast<off_t>(at)) !=
                static_cast<ssize_t>(mib))
                ++wrong;
            for (std::uint64_t i = 0; i < words.size(); ++i)
                if (words[i] != mix64(at / 8 + i)) ++wrong;
        }
    });
    ::close(file);
    return wrong == 0 ? status{}
                      : status{-EIO, std::to_string(wrong.load()) +
                                         " words of the file are not what was written"};
}

// So that bytes which are not written show.
status clear_file(const context& here) {
    const int file = ::open(here.file().path().c_str(), O_WRONLY | O_CLOEXEC);
    if (file < 0) return {-errno, "the file: " + error_text(-errno)};
    std::atomic<std::uint64_t> next{0};
    std::atomic<int> code{0};
    const std::vector<std::byte> zeros(mib);
    seconds_together(host_threads(here), [&](std::uint64_t) {
        for (std::uint64_t at = next.fetch_add(mib); at < here.file().bytes();
             at = next.fetch_add(mib))
            if (::pwrite(file, zeros.data(), mib, static_cast<off_t>(at)) !=
                static_cast<ssize_t>(mib))
                code = errno != 0 ? -errno : -EIO;
    });
    ::close(file);
    return code == 0 ? status{} : status{code, "clearing the file: " + error_text(code)};
}

struct written {
    double seconds = 0, cores = 0;
    statistics counted{};
};

// Writes the file once, each group at work for `busy_seconds` in all, and closes it. `by_hand`:
// afterwards the same output by hand.
status write_output(context& here, const runtime_shape& shape, double busy_seconds, written& out,
                    series* by_hand) {
    const std::uint64_t bytes = here.file().bytes(),
                        pages = (bytes + shape.page_bytes - 1) / shape.page_bytes;
    if (status s = clear_file(here); !s) return s;
    std::unique_ptr<runtime> rt;
    if (status s = here.make_runtime(shape, rt); !s) return s;
    memory output, failures;
    if (status s = output.make(rt->where(), bytes); !s) return s;
    if (status s = failures.make(rt->where(), 8); !s) return s;
    const std::uint64_t groups = group_count(here, *rt, shape.page_bytes);
    if (const int code = launch<width::warp>(
            *rt, groups, fill_words{output.as<std::uint64_t>(), bytes / 8, groups});
        code != 0)
        return {code, "kernel: " + error_text(code)};
    const int fd = rt->open(here.file().path(), open_write);
    if (fd < 0) return {fd, "opening the file for writing: " + error_text(fd)};
    // Blocks of 8 warps, all of them resident.
    const launch_shape resident{.blocks = static_cast<std::uint32_t>((groups + 15) / 16)};
    const std::uint64_t at_a_time = std::min(
        pages, here.on_gpu() ? resident.blocks * std::uint64_t{8} : *rt->settings().worker_threads);
    const auto compute_ns = static_cast<std::uint64_t>(
        busy_seconds * 1e9 * static_cast<double>(at_a_time) / static_cast<double>(pages));
    const stopwatch watch;
    int code =
        launch<width::warp>(*rt, pages,
                            write_page{fd, output.as<std::byte>(), failures.as<std::uint64_t>(),
                                       bytes, shape.page_bytes, compute_ns},
                            resident);
    if (code == 0) code = rt->close(fd);
    out.seconds = watch.seconds();
    if (code != 0) return {code, "writing: " + error_text(code)};
    out.cores = watch.cores(out.seconds);
    out.counted = rt->stats();
    std::uint64_t failed = 0;
    if (status s = failures.copy_out(&failed, sizeof failed); !s) return s;
    if (failed != 0) return {-EIO, std::to_string(failed) + " writes failed"};
    if (status s = check_file(here); !s) return s;
    if (by_hand == nullptr) return {};
    if (status s = clear_file(here); !s) return s;
    if (status s = write_by_hand(here, rt->where(), output.as<std::byte>(), *by_hand); !s) return s;
    return check_file(here);
}

// The output of a kernel that does nothing else, by a cache of that size; against writing it by
// hand.
status write_only(context& here, const runtime_shape& shape, series& by_hand) {
    const std::uint64_t bytes = here.file().bytes();
    series rate, cores;
    written last;
    for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat) {
        if (status s = write_output(here, shape, 0, last, &by_hand); !s) return s;
        rate.add(gigabytes_a_second(bytes, last.seconds));
        cores.add(last.cores);
    }
    const std::string where = shape.cache_bytes > bytes ? "the cache holds it all"
                                                        : cache_label(shape.cache_bytes, bytes);
    return here.add({"S9", "output of a kernel to a file, written and closed, " + where, "",
                     shape.page_bytes, rate, "GB/s", write_by_hand_name(here), by_hand, cores,
                     std::to_string(last.counted.dirty_victims) +
                         " pages written for their frame and " +
                         std::to_string(last.counted.written_behind) + " behind in the last run, " +
                         std::to_string(last.counted.file_write_bytes /
                                        std::max<std::uint64_t>(last.counted.file_writes, 1)) +
                         " bytes a system call"});
}

// A kernel that computes between its writes, as long in all as writing by hand takes; against the
// same with nothing written behind.
status write_and_compute(context& here, runtime_shape shape, double busy_seconds) {
    const std::uint64_t bytes = here.file().bytes();
    series rate, cores, without;
    written behind, last;
    for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat) {
        shape.write_behind_bytes = 0;
        if (status s = write_output(here, shape, busy_seconds, behind, nullptr); !s) return s;
        rate.add(gigabytes_a_second(bytes, behind.seconds));
        cores.add(behind.cores);
        shape.write_behind_bytes = shape.cache_bytes;
        if (status s = write_output(here, shape, busy_seconds, last, nullptr); !s) return s;
        without.add(gigabytes_a_second(bytes, last.seconds));
    }
    return here.add(
        {"S9",
         "output of a kernel that computes as long as writing by hand takes, the cache holds it "
         "all",
         "", shape.page_bytes, rate, "GB/s", "the same, nothing written behind", without, cores,
         std::to_string(behind.counted.written_behind) + " of " +
             std::to_string(behind.counted.write_backs) + " pages written behind in the last run"});
}

}  // namespace

status write_path(context& here) {
    const std::uint64_t bytes = here.file_bytes(here.on_gpu() ? 4 * gib : 256 * mib);
    if (status s = here.use_file(bytes); !s) return s;
    for (const std::uint64_t page : here.pages({64 * kib, 4 * kib})) {
        std::vector<std::uint64_t> caches{bytes + bytes / 8};
        for (const std::uint64_t cache : here.caches(bytes, page))
            caches.push_back(std::max(cache, 64 * page));
        for (const std::uint64_t cache : caches) {
            const runtime_shape shape{
                .page_bytes = page, .cache_bytes = cache, .file_bytes = bytes, .writable = true};
            series by_hand;
            if (status s = write_only(here, shape, by_hand); !s) return s;
            if (cache <= bytes) continue;
            if (status s = write_and_compute(here, shape,
                                             static_cast<double>(bytes) / 1e9 / by_hand.median());
                !s)
                return s;
        }
    }
    return {};
}

}  // namespace penstock::bench
