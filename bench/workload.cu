#include "workload.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>

#include "penstock/group/lane.hpp"

namespace penstock::bench {

namespace {

struct read_blocks {
    int fd;
    std::byte* buffers;
    std::uint64_t* wrong;
    pattern reads;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
        std::byte* const own = buffers + index * reads.block_bytes;
        for (std::uint64_t i = 0; i < reads.rounds; ++i) {
            const std::uint64_t at = reads.offset_bytes(index, i);
            const auto wanted = static_cast<std::int64_t>(reads.block_bytes);
            bool right = read(g, fs, fd, own, wanted, static_cast<std::int64_t>(at)) == wanted;
            // Each thread looks at a word of its own, as far as there are words.
            if (g.rank() < reads.block_bytes / 8)
                right = right && reinterpret_cast<const std::uint64_t*>(own)[g.rank()] ==
                                     mix64(at / 8 + g.rank());
            if (!g.all(right) && g.is_leader()) atomic_add_relaxed(wrong, std::uint64_t{1});
            g.sync();  // all have looked before the next block comes
        }
    }
};

// The same, over a view of the cache whose clock has another number of shards.
struct read_blocks_with_shards {
    read_blocks body;
    runtime_ref other;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref&, std::uint64_t index) const {
        body(g, other, index);
    }
};

int launch_reads(runtime& rt, const read_blocks& body, caller kind, std::uint32_t clock_shards) {
    if (kind == caller::blocks) return launch<width::block>(rt, body.reads.groups, body);
    if (clock_shards == 0) return launch<width::warp>(rt, body.reads.groups, body);
    runtime_ref other = rt.ref();
    other.view.clock_shards = clock_shards;
    return launch<width::warp>(rt, body.reads.groups, read_blocks_with_shards{body, other});
}

}  // namespace

by_threads::by_threads(std::initializer_list<std::uint64_t> few, std::uint64_t all,
                       std::initializer_list<std::uint64_t> piece_bytes) {
    for (const std::uint64_t piece : piece_bytes) {
        for (const std::uint64_t threads : few)
            if (threads < all) entries_.push_back({threads, piece});
        entries_.push_back({all, piece});
    }
}

const by_threads::entry& by_threads::best() const {
    return *std::min_element(entries_.begin(), entries_.end(), [](const entry& a, const entry& b) {
        return a.seconds.median() < b.seconds.median();
    });
}

std::string by_threads::name() const {
    const entry& first = entries_.front();
    std::string threads, pieces;
    std::size_t counts = 0, sizes = 0;
    const auto also = [](std::string& tried, std::size_t& number, const std::string& what) {
        tried += (number++ == 0 ? ", the best of " : ", ") + what;
    };
    for (const entry& each : entries_) {
        if (each.piece_bytes == first.piece_bytes)
            also(threads, counts, std::to_string(each.threads));
        if (each.threads == first.threads) also(pieces, sizes, format_size(each.piece_bytes));
    }
    std::string out = counted(best().threads, "thread") + (counts > 1 ? threads : "");
    if (sizes > 1) out += "; pieces of " + format_size(best().piece_bytes) + pieces;
    return out + text_of("; %.1f cores", best().cores.median());
}

pattern make_pattern(const context& here, std::uint64_t block_bytes, std::uint64_t groups,
                     std::uint64_t total_bytes, bool in_order, std::uint64_t step_bytes) {
    pattern out;
    out.block_bytes = block_bytes;
    out.step_bytes = step_bytes != 0 ? step_bytes : block_bytes;
    out.blocks = (here.bytes() - block_bytes) / out.step_bytes + 1;
    out.groups = std::max<std::uint64_t>(groups, 1);
    out.rounds = std::max<std::uint64_t>(total_bytes / block_bytes / out.groups, 1);
    out.in_order = in_order;
    return out;
}

run_result run_reads(const opened_file& file, const pattern& reads, caller kind,
                     std::uint32_t clock_shards) {
    runtime& rt = *file.rt;
    const memory buffers(rt.where(), reads.groups * reads.block_bytes), wrong(rt.where(), 8);
    const read_blocks body{file.fd, buffers.as<std::byte>(), wrong.as(), reads};
    const statistics before = rt.stats();
    const stopwatch watch;
    const int code = launch_reads(rt, body, kind, clock_shards);
    run_result out(watch, reads);
    const statistics after = rt.stats();
    require(code, "the kernel failed");
    require_none(wrong, "of " + std::to_string(reads.groups * reads.rounds) +
                            " reads failed or gave wrong bytes");
    // A page that enters the cache comes as a whole, one that is read through as far as it was
    // asked for.
    const std::uint64_t page = rt.settings().page_bytes;
    out.loaded_bytes = static_cast<double>((after.misses - before.misses) * page) +
                       static_cast<double>(after.through_reads - before.through_reads) *
                           static_cast<double>(reads.block_bytes) / reads.pages_of_a_block(page);
    if (const std::uint64_t batches = after.batches - before.batches; batches != 0)
        out.batch_requests =
            static_cast<double>(after.requests - before.requests) / static_cast<double>(batches);
    return out;
}

run_result run_preads(const std::string& path, const pattern& reads, bool direct) {
    const apps::unique_fd fd = open_measured(path, O_RDONLY | (direct ? O_DIRECT : 0));
    const std::string act = (direct ? "pread with O_DIRECT of " : "pread of ") + path;
    std::vector<memory> buffers;
    for (std::uint64_t t = 0; t < reads.groups; ++t)
        buffers.emplace_back(backend::cpu, reads.block_bytes);
    const stopwatch watch;
    const double seconds = seconds_of_threads(reads.groups, [&](std::uint64_t t) {
        for (std::uint64_t i = 0; i < reads.rounds; ++i) {
            const std::uint64_t at = reads.offset_bytes(t, i);
            require(apps::read_all(fd, buffers[t].as<void>(), reads.block_bytes, at), act);
            if (*buffers[t].as() != mix64(at / 8)) require(-EIO, act);
        }
    });
    return {watch, seconds, reads};
}

std::string pread_by_all(const context& here) {
    return "pread of the same into one buffer a thread, " + std::to_string(here.host_threads()) +
           " threads";
}

void add_prefetch(const opened_file& file, measured& out) {
    const stopwatch watch;
    const std::int64_t got = file.rt->prefetch(file.fd, 0, file.bytes);
    const double seconds = watch.seconds();
    require_all(got, file.bytes, "prefetch brought " + std::to_string(got) + " bytes");
    out.add(gigabytes_a_second(file.bytes, seconds), watch, seconds);
}

void open_all_windows(const context& here, const opened_file& file) {
    if (!here.on_gpu()) return;
    const std::int64_t inside = require(file.rt->open_windows(file.fd), "windows");
    if (inside != static_cast<std::int64_t>(file.bytes))
        throw failure(-ENOMEM, "only " + format_size(static_cast<std::uint64_t>(inside)) +
                                   " of the file lie in windows; the rest is not in the page cache "
                                   "or beyond PENSTOCK_WINDOW: give a smaller --file");
}

std::uint64_t group_count(const context& here, const runtime& rt, std::uint64_t block_bytes) {
    if (!here.on_gpu()) return *rt.settings().worker_threads;
    int multiprocessors = 132;
#if defined(__CUDACC__)
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, rt.settings().device);
#endif
    const std::uint64_t frames = *rt.settings().cache_bytes / rt.settings().page_bytes,
                        touched = block_bytes / rt.settings().page_bytes + 1;
    const std::uint64_t warps = std::min<std::uint64_t>(
        {static_cast<std::uint64_t>(multiprocessors) * 32,
         frames / 4 / std::min<std::uint64_t>(touched, 8), (512 * mib) / block_bytes});
    return std::max<std::uint64_t>(warps, 8);
}

std::string groups_label(const context& here, std::uint64_t groups, caller kind) {
    const char* const name = !here.on_gpu() ? "thread" : kind == caller::warps ? "warp" : "block";
    return counted(groups, name);
}

}  // namespace penstock::bench
