#include "workload.hpp"

#include <algorithm>
#include <cerrno>
#include <thread>

#include "machine.hpp"
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

pattern make_pattern(std::uint64_t file_bytes, std::uint64_t block_bytes, std::uint64_t step_bytes,
                     std::uint64_t groups, std::uint64_t total_bytes, bool in_order) {
    pattern out;
    out.block_bytes = block_bytes;
    out.step_bytes = step_bytes;
    out.blocks = (file_bytes - block_bytes) / step_bytes + 1;
    out.groups = std::max<std::uint64_t>(groups, 1);
    out.rounds = std::max<std::uint64_t>(total_bytes / block_bytes / out.groups, 1);
    out.in_order = in_order;
    return out;
}

status run_reads(runtime& rt, int fd, const pattern& reads, run_result& out, caller kind,
                 std::uint32_t clock_shards) {
    memory buffers, wrong;
    if (status s = buffers.make(rt.where(), reads.groups * reads.block_bytes); !s) return s;
    if (status s = wrong.make(rt.where(), 8); !s) return s;
    const read_blocks body{fd, buffers.as<std::byte>(), wrong.as<std::uint64_t>(), reads};
    const statistics before = rt.stats();
    const stopwatch watch;
    const int code = launch_reads(rt, body, kind, clock_shards);
    out.seconds = watch.seconds();
    out.cores = watch.cores(out.seconds);
    const statistics after = rt.stats();
    if (code != 0) return {code, "the kernel failed: " + error_text(code)};
    std::uint64_t failures = 0;
    if (status s = wrong.copy_out(&failures, sizeof failures); !s) return s;
    if (failures != 0)
        return {-EIO, std::to_string(failures) + " of " +
                          std::to_string(reads.groups * reads.rounds) +
                          " reads failed or gave wrong bytes"};
    out.loaded_bytes = static_cast<double>(after.misses - before.misses) *
                       static_cast<double>(rt.settings().page_bytes);
    const std::uint64_t batches = after.batches - before.batches;
    out.batch_requests = batches == 0 ? 0
                                      : static_cast<double>(after.requests - before.requests) /
                                            static_cast<double>(batches);
    return {};
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
    return std::to_string(groups) + " " + name + (groups == 1 ? "" : "s");
}

std::uint64_t host_threads(const context& here) {
    return here.threads(std::max(1u, std::thread::hardware_concurrency()));
}

}  // namespace penstock::bench
