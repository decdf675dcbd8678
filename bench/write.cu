// Writes: what a kernel made goes to a file in the operating system's page cache, by write from the
// kernel and a close, of the host or of the kernel itself; against what one would do by hand: copy
// it back to pinned memory in pieces and pwrite from few or all processors, whatever is best.

#include "cases.hpp"
#include "penstock/write.hpp"

#if defined(__CUDACC__)
#include "gpu.cuh"
#include "penstock/gpufs.cuh"
#endif

namespace penstock::bench {

namespace {

constexpr std::uint64_t written_piece_bytes = 4 * mib;
constexpr const char* hand_name = "writing by hand";

#if defined(__CUDACC__)
// Each thread copies pieces to pinned buffers, two of its own, and writes one while the next is on
// its way. Streams and buffers are made before the clock starts.
class hand_of_gpu {
public:
    explicit hand_of_gpu(std::uint64_t threads)
        : pinned_(memory::pinned(2 * threads * written_piece_bytes)), streams_(2 * threads) {
        cudaGetDevice(&device_);
        for (apps::gpu_stream& stream : streams_)
            require_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    }
    void part(std::uint64_t thread, const std::string& path, int file, const std::byte* output,
              std::uint64_t bytes, std::atomic<std::uint64_t>& next) const {
        require_cuda(cudaSetDevice(device_), hand_name);
        std::uint64_t at[2] = {bytes, bytes};
        const auto buffer = [&](unsigned turn) {
            return pinned_.as<std::byte>() + (2 * thread + turn) * written_piece_bytes;
        };
        const auto length = [&](unsigned turn) {
            return std::min(written_piece_bytes, bytes - at[turn]);
        };
        const auto begin = [&](unsigned turn) {
            at[turn] = next.fetch_add(written_piece_bytes);
            if (at[turn] < bytes)
                require_cuda(cudaMemcpyAsync(buffer(turn), output + at[turn], length(turn),
                                             cudaMemcpyDeviceToHost, streams_[2 * thread + turn]),
                             hand_name);
        };
        begin(0);
        for (unsigned turn = 0; at[turn] < bytes; turn ^= 1) {
            begin(turn ^ 1);
            require_cuda(cudaStreamSynchronize(streams_[2 * thread + turn]), hand_name);
            require(apps::write_exactly(path, file, buffer(turn), length(turn), at[turn]));
        }
    }

private:
    memory pinned_;
    std::vector<apps::gpu_stream> streams_;
    int device_ = 0;
};
#endif

// The baseline: a programmer's way without Penstock to bring the output of a kernel to a file, by
// so many threads. `output`: memory of that back end, as long as the file.
timed_run write_by_hand(const context& here, const std::byte* output, std::uint64_t threads) {
    const scratch_file& to = here.file();
    const std::uint64_t bytes = to.bytes();
    const apps::unique_fd file = to.open(O_WRONLY);
    std::atomic<std::uint64_t> next{0};
#if defined(__CUDACC__)
    if (here.on_gpu()) {
        const hand_of_gpu hand(threads);
        const stopwatch watch;
        const double seconds = seconds_of_threads(threads, [&](std::uint64_t thread) {
            hand.part(thread, to.path(), file, output, bytes, next);
        });
        return {seconds, watch.cores(seconds)};
    }
#endif
    const stopwatch watch;
    const double seconds = seconds_of_threads(threads, [&](std::uint64_t) {
        take_pieces(next, bytes, written_piece_bytes, [&](std::uint64_t at, std::uint64_t n) {
            require(apps::write_exactly(to.path(), file, output + at, n, at));
        });
    });
    return {seconds, watch.cores(seconds)};
}

// The lock of the file leaves little for many threads.
by_threads tried_by_hand(const context& here) { return {{1, 4}, here.host_threads()}; }

std::string name_by_hand(const context& here, const by_threads& by) {
    return (here.on_gpu() ? "cudaMemcpyAsync to pinned buffers, two a thread, and pwrite, "
                          : "pwrite, ") +
           by.name();
}

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

// work(file, offset, bytes) for all pieces of a MiB of the file, by as many threads as the host
// has.
template <typename Work>
void each_piece(const context& here, int flags, const Work& work) {
    const apps::unique_fd file = here.file().open(flags);
    std::atomic<std::uint64_t> next{0};
    seconds_together(here.host_threads(), [&](std::uint64_t) {
        take_pieces(next, here.bytes(), mib,
                    [&](std::uint64_t at, std::uint64_t bytes) { work(file, at, bytes); });
    });
}

// All words of the file are the output's.
void check_file(const context& here) {
    each_piece(here, O_RDONLY, [&](int file, std::uint64_t at, std::uint64_t bytes) {
        std::vector<std::uint64_t> words(bytes / 8);
        require(apps::read_all(file, words.data(), bytes, at), "reading what was written");
        for (std::uint64_t i = 0; i < words.size(); ++i)
            expect(words[i] == mix64(at / 8 + i), "words of the file are not what was written");
    });
}

// So that bytes which are not written show.
void clear_file(const context& here) {
    const std::vector<std::byte> zeros(mib);
    each_piece(here, O_WRONLY, [&](int file, std::uint64_t at, std::uint64_t bytes) {
        require(apps::write_exactly(here.file().path(), file, zeros.data(), bytes, at));
    });
}

void measure_by_hand(const context& here, const std::byte* output, by_threads& by) {
    by.measure([&](std::uint64_t threads, std::uint64_t) {
        clear_file(here);
        const timed_run took = write_by_hand(here, output, threads);
        check_file(here);
        return took;
    });
}

// The same output by hand, for a baseline, in turns before Penstock and after it: whichever comes
// second meets what the file system still has to write of the first.
struct hand_part {
    by_threads& by;
    bool is_first;
};

// Writes the file once, each group at work for `busy_seconds` in all, and closes it.
statistics write_output(context& here, const runtime_shape& shape, double busy_seconds,
                        measured& out, const hand_part* hand = nullptr) {
    const std::uint64_t bytes = here.bytes(),
                        pages = (bytes + shape.page_bytes - 1) / shape.page_bytes;
    const auto rt = here.make_runtime(shape);
    const memory output(rt->where(), bytes), failures(rt->where(), 8);
    const std::uint64_t groups = group_count(here, *rt, shape.page_bytes);
    run_kernel<width::warp>(*rt, groups, fill_words{output.as(), bytes / 8, groups});
    if (hand != nullptr && hand->is_first) measure_by_hand(here, output.as<std::byte>(), hand->by);
    clear_file(here);
    const int fd = rt->open(here.file().path(), open_write);
    require(fd, "opening the file for writing");
    // Blocks of 8 warps, all of them resident.
    const launch_shape resident{.blocks = static_cast<std::uint32_t>((groups + 15) / 16)};
    const std::uint64_t at_a_time = std::min(
        pages, here.on_gpu() ? resident.blocks * std::uint64_t{8} : *rt->settings().worker_threads);
    const auto compute_ns =
        static_cast<std::uint64_t>(busy_seconds * 1e9 * at_a_time / static_cast<double>(pages));
    const stopwatch watch;
    int code = launch<width::warp>(
        *rt, pages,
        write_page{fd, output.as<std::byte>(), failures.as(), bytes, shape.page_bytes, compute_ns},
        resident);
    if (code == 0) code = rt->close(fd);
    const double seconds = watch.seconds();
    require(code, "writing");
    out.add(gigabytes_a_second(bytes, seconds), watch, seconds);
    const statistics counted = rt->stats();
    require_none(failures, "writes failed");
    check_file(here);
    if (hand != nullptr && !hand->is_first) measure_by_hand(here, output.as<std::byte>(), hand->by);
    return counted;
}

// The output of a kernel that does nothing else, by a cache of that size; against writing it by
// hand.
measured write_only(context& here, const runtime_shape& shape) {
    measured rates;
    statistics counted;
    by_threads by_hand = tried_by_hand(here);
    for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat) {
        const hand_part hand{by_hand, repeat % 2 == 1};
        counted = write_output(here, shape, 0, rates, &hand);
    }
    rates.baseline = by_hand.seconds().under(1e-9 * static_cast<double>(here.bytes()));
    here.add("S9",
             "output of a kernel to a file, written and closed, " +
                 (shape.cache_bytes > here.bytes() ? "the cache holds it all"
                                                   : here.cache_label(shape.cache_bytes)),
             shape.page_bytes, "GB/s", rates, name_by_hand(here, by_hand),
             std::to_string(counted.dirty_victims) + " pages written for their frame and " +
                 std::to_string(counted.written_behind) + " behind in the last run, " +
                 std::to_string(counted.file_write_bytes /
                                std::max<std::uint64_t>(counted.file_writes, 1)) +
                 " bytes a system call");
    return rates;
}

// A kernel that computes between its writes, as long in all as writing by hand takes; against the
// same with nothing written behind.
void write_and_compute(context& here, runtime_shape shape, double busy_seconds) {
    measured behind, without;
    statistics counted;
    for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat) {
        shape.write_behind_bytes = 0;
        counted = write_output(here, shape, busy_seconds, behind);
        shape.write_behind_bytes = shape.cache_bytes;
        write_output(here, shape, busy_seconds, without);
    }
    behind.baseline = without.ours;
    here.add("S9",
             "output of a kernel that computes as long as writing by hand takes, the cache holds "
             "it all",
             shape.page_bytes, "GB/s", behind, "the same, nothing written behind",
             std::to_string(counted.written_behind) + " of " + std::to_string(counted.write_backs) +
                 " pages written behind in the last run");
}

// A path that a kernel gets by value.
struct path_text {
    char text[512] = {};

    explicit path_text(const std::string& path) {
        expect(path.size() < sizeof text, path + ": the path is too long; give a shorter --dir");
        path.copy(text, path.size());
    }
};

// Each group opens the file, writes a piece of it and every `groups`-th after that, page by page,
// and closes the file. No other descriptor is open, so the kernel does the last close too.
struct write_and_close {
    path_text path;
    const std::byte* output;
    std::uint64_t* failures;
    std::uint64_t bytes, page_bytes, piece_bytes, groups;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
        const int fd = open(g, fs, path.text, open_write);
        bool good = fd >= 0;
        for (std::uint64_t piece = index * piece_bytes; good && piece < bytes;
             piece += groups * piece_bytes)
            for (std::uint64_t at = piece; good && at < piece + piece_bytes && at < bytes;
                 at += page_bytes) {
                const auto length =
                    static_cast<std::int64_t>(page_bytes < bytes - at ? page_bytes : bytes - at);
                good =
                    write(g, fs, fd, output + at, length, static_cast<std::int64_t>(at)) == length;
            }
        if (fd >= 0) good = close(g, fs, fd) == 0 && good;
        if (!good && g.is_leader()) atomic_add_relaxed(failures, std::uint64_t{1});
    }
};

#if defined(__CUDACC__)
// A kernel for the original GPUfs: blocks open the file, share its pages out, and close it.
__global__ void write_as_original(const __grid_constant__ path_text path, const uchar* output,
                                  std::size_t bytes, std::size_t page_bytes,
                                  unsigned long long* failures) {
    const int fd = gopen(path.text, O_GWRONLY);
    bool good = fd >= 0;
    for (std::size_t at = blockIdx.x * page_bytes; good && at < bytes;
         at += gridDim.x * page_bytes) {
        const std::size_t length = page_bytes < bytes - at ? page_bytes : bytes - at;
        good = gwrite(fd, at, length, output + at) == length;
    }
    if (fd >= 0) good = gclose(fd) == 0 && good;
    if (!good && threadIdx.x == 0) atomicAdd(failures, 1ull);
}

void launch_as_original(const context& here, runtime& rt, const write_and_close& all) {
    require(gpufs_attach(rt), "gpufs_attach");
    write_as_original<<<static_cast<unsigned>(all.groups), 256>>>(
        all.path, reinterpret_cast<const uchar*>(all.output), all.bytes, all.page_bytes,
        reinterpret_cast<unsigned long long*>(all.failures));
    require_cuda(cudaDeviceSynchronize(), here.file().path().c_str());
}
#endif

enum class closing_style { original, pieces };

// A kernel whose groups write the file and close it; the host has it never open.
statistics write_closing(context& here, const runtime_shape& shape, closing_style style,
                         measured& out, const hand_part& hand) {
    constexpr std::uint64_t piece_of_group = 64 * kib;
    const auto rt = here.make_runtime(shape);
    const std::uint64_t bytes = here.bytes();
    const memory output(rt->where(), bytes), failures(rt->where(), 8);
    const std::uint64_t warps = group_count(here, *rt, shape.page_bytes);
    run_kernel<width::warp>(*rt, warps, fill_words{output.as(), bytes / 8, warps});
    if (hand.is_first) measure_by_hand(here, output.as<std::byte>(), hand.by);
    clear_file(here);
    // So that kernels may open it to write, wherever it lies.
    require(rt->close(rt->open(here.file().path(), open_write)), "opening the file for writing");
    write_and_close all{path_text(here.file().path()),
                        output.as<std::byte>(),
                        failures.as(),
                        bytes,
                        shape.page_bytes,
                        shape.page_bytes,
                        warps};
    if (style == closing_style::pieces) {
        all.piece_bytes = std::max(shape.page_bytes, piece_of_group);
        all.groups = (bytes + all.piece_bytes - 1) / all.piece_bytes;
    } else if (here.on_gpu()) {
        all.groups = std::max<std::uint64_t>(warps / 8, 1);  // blocks of 8 warps
    }
    const stopwatch watch;
#if defined(__CUDACC__)
    if (style == closing_style::original && here.on_gpu()) launch_as_original(here, *rt, all);
    else run_kernel<width::warp>(*rt, all.groups, all);
#else
    run_kernel<width::warp>(*rt, all.groups, all);
#endif
    const double seconds = watch.seconds();
    out.add(gigabytes_a_second(bytes, seconds), watch, seconds);
    require_none(failures, "groups failed to open, write or close");
    check_file(here);
    const statistics counted = rt->stats();
    if (!hand.is_first) measure_by_hand(here, output.as<std::byte>(), hand.by);
    return counted;
}

void write_and_close_rows(context& here, const runtime_shape& shape) {
    for (const closing_style style : {closing_style::original, closing_style::pieces}) {
        measured rates;
        statistics counted;
        by_threads by_hand = tried_by_hand(here);
        for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat)
            counted = write_closing(here, shape, style, rates, {by_hand, repeat % 2 == 1});
        rates.baseline = by_hand.seconds().under(1e-9 * static_cast<double>(here.bytes()));
        const char* const title =
            style == closing_style::pieces
                ? "a kernel whose groups each open the file, write 64 KiB and close it"
            : here.on_gpu() ? "a kernel for GPUfs: each block opens the file (gopen), writes its "
                              "pages (gwrite) and closes it (gclose)"
                            : "a kernel like GPUfs's: each group opens the file, writes its pages "
                              "and closes it";
        here.add("S9c", title, shape.page_bytes, "GB/s", rates, name_by_hand(here, by_hand),
                 std::to_string(counted.written_behind) + " of " +
                     std::to_string(counted.write_backs) +
                     " pages written before the last close in the last run, " +
                     std::to_string(counted.opens) + " opens");
    }
}

}  // namespace

void closing_path(context& here) {
    const std::uint64_t bytes = here.use_file(here.file_bytes(4 * gib, 256 * mib));
    for (const std::uint64_t page : here.pages({4 * kib, 64 * kib}))
        write_and_close_rows(
            here, {.page_bytes = page, .cache_bytes = bytes + bytes / 8, .writable = true});
}

void write_path(context& here) {
    const std::uint64_t bytes = here.use_file(here.file_bytes(4 * gib, 256 * mib));
    for (const std::uint64_t page : here.pages({64 * kib, 4 * kib})) {
        std::vector<std::uint64_t> caches{bytes + bytes / 8};
        for (const std::uint64_t cache : here.caches(page))
            caches.push_back(std::max(cache, 64 * page));
        for (const std::uint64_t cache : caches) {
            const runtime_shape shape{.page_bytes = page, .cache_bytes = cache, .writable = true};
            const double rate = write_only(here, shape).baseline.median();
            if (cache > bytes)
                write_and_compute(here, shape, static_cast<double>(bytes) / 1e9 / rate);
        }
    }
}

}  // namespace penstock::bench
