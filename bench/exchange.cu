// Pages of a buffer that change places between the host's frames and a device's, in batches, as
// they do when a miss of the host is found there. Baseline: the copy engine with 64 MiB at a time
// to the host, which is what the bus can do; on the cpu memcpy.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "buffer/pool/device_frames.hpp"
#include "cases.hpp"
#include "common/threads.hpp"
#include "machine.hpp"

#if defined(__CUDACC__)
#include "gpu.cuh"
#endif

namespace penstock::bench {

namespace {

using buffer::direction;
using buffer::frame_move;

constexpr std::uint64_t frame_bytes = 4096;
constexpr std::uint32_t most_moves = 4096;
constexpr unsigned most_queues = 8;

// Batches of frames at random, of which a thread has its own part of all: what is measured is the
// moving, not the choice.
class batches {
public:
    batches(std::uint32_t host_frames, std::uint32_t device_frames, unsigned queues,
            std::uint32_t size, direction way)
        : lists_(queues) {
        std::mt19937_64 random(1);
        std::vector<std::uint32_t> far(host_frames), near(device_frames);
        std::iota(far.begin(), far.end(), 0);
        std::iota(near.begin(), near.end(), 0);
        std::shuffle(far.begin(), far.end(), random);
        std::shuffle(near.begin(), near.end(), random);
        const std::uint64_t each = std::min(host_frames, device_frames) / queues / size;
        std::size_t at = 0;
        for (auto& own : lists_)
            for (std::uint64_t i = 0; i < each; ++i) {
                auto& batch = own.emplace_back(size);
                for (frame_move& entry : batch) entry = {far[at], near[at], way}, ++at;
            }
    }
    // GB that came to the host in a second.
    [[nodiscard]] double measure(buffer::device_frames& frames, std::uint64_t times) const {
        std::vector<int> codes(lists_.size(), 0);
        const stopwatch watch;
        apps::on_threads(static_cast<std::uint32_t>(lists_.size()), [&](std::uint32_t t) {
            for (std::uint64_t i = 0; i < times; ++i)
                for (const auto& batch : lists_[t])
                    if (codes[t] == 0) codes[t] = frames.move(t, batch);
        });
        const double seconds = watch.seconds();
        if (!std::all_of(codes.begin(), codes.end(), [](int code) { return code == 0; }))
            throw failure(-EIO, "the device failed to move pages");
        return gigabytes_a_second(times * pages() * frame_bytes, seconds);
    }
    [[nodiscard]] std::uint64_t pages() const {
        return std::accumulate(
            lists_.begin(), lists_.end(), std::uint64_t{0},
            [](auto sum, const auto& l) { return sum + (l.empty() ? 0 : l.size() * l[0].size()); });
    }

private:
    std::vector<std::vector<std::vector<frame_move>>> lists_;
};

// GB/s of the copy engine, or of memcpy where there is none.
series plain_copies(context& here, std::uint64_t bytes) {
    series out;
#if defined(__CUDACC__)
    if (here.on_gpu()) {
        constexpr std::uint64_t piece = 64 * mib;
        const memory near(backend::gpu, piece), far = memory::pinned(piece);
        for (std::uint64_t repeat = 0; repeat < here.repeats(7); ++repeat) {
            const double seconds = kernel_seconds([&] {
                for (int i = 0; i < 16; ++i)
                    cudaMemcpyAsync(far.as<void>(), near.as<void>(), piece, cudaMemcpyDeviceToHost);
            });
            out.add(gigabytes_a_second(16 * piece, seconds));
        }
        return out;
    }
#endif
    std::vector<std::byte> from(bytes, std::byte{1}), to(bytes, std::byte{2});
    for (std::uint64_t repeat = 0; repeat < here.repeats(7); ++repeat) {
        const stopwatch watch;
        std::memcpy(to.data(), from.data(), bytes);
        out.add(gigabytes_a_second(bytes, watch.seconds()));
    }
    if (to.back() != std::byte{1}) throw failure(-EIO, "memcpy did not");
    return out;
}

}  // namespace

void exchange_path(context& here) {
    const auto frames_each =
        static_cast<std::uint32_t>(here.file_bytes(gib, 64 * mib) / frame_bytes);
    const auto queues = static_cast<unsigned>(
        std::min<std::uint64_t>(here.threads(here.on_gpu() ? 4 : 1), most_queues));
    const buffer::frames_shape shape{frames_each, frames_each, frame_bytes, queues, most_moves};
    std::string why;
    const auto frames = here.on_gpu() ? buffer::make_gpu_frames(0, shape, why)
                                      : buffer::make_cpu_frames(shape, why);
    if (frames == nullptr) throw failure(-ENOMEM, "exchange: " + why + "; give a smaller --file");
    std::memset(frames->host_frames(), 1, frames_each * frame_bytes);
    const series bus = plain_copies(here, frames_each * frame_bytes);
    for (const direction way : {direction::exchange, direction::to_host})
        for (const std::uint32_t size : {1u, 16u, 64u, 256u, 1024u, 4096u}) {
            const batches all(frames_each, frames_each, queues, size, way);
            if (all.pages() == 0) continue;
            const std::string name =
                std::string(way == direction::exchange ? "pages that change places with victims"
                                                       : "pages to the host") +
                ", " + std::to_string(size) + " a batch, " + counted(queues, "thread");
            here.progress(name);
            // Single pages take long.
            const std::uint64_t times =
                here.on_gpu() && size >= 64
                    ? std::max<std::uint64_t>(1, gib / (all.pages() * frame_bytes))
                    : 1;
            series moved;
            for (std::uint64_t repeat = 0; repeat < here.repeats(7); ++repeat)
                moved.add(all.measure(*frames, times));
            here.add({"S14",
                      name,
                      frame_bytes,
                      "GB/s",
                      {moved, bus, {}},
                      here.on_gpu() ? "the copy engine, 64 MiB at a time to the host" : "memcpy",
                      "GB that come to the host"});
        }
}

}  // namespace penstock::bench
