// A file of one and a half times the room on the device, in pieces at a plain pointer, which CUB
// sums up part by part while the next part comes; against the bus, by the copy engine.
#include <chrono>
#include <thread>

#include "cub_sum.cuh"
#include "penstock/pieces.hpp"

namespace penstock::bench {

namespace {

struct pieces_run {
    context& here;
    file_pieces& file;
    std::uint64_t part_bytes;
    memory cub = memory(backend::gpu, most_cub_bytes), sums = memory(backend::gpu, 8 * 65536);

    // Seconds of one pass over the file, until the last sum is there.
    double seconds(cudaStream_t stream) const {
        const stopwatch watch;
        std::uint64_t number = 0;
        for (std::uint64_t at = 0; at < file.size_bytes(); at += part_bytes, ++number) {
            const byte_range part{at, std::min(part_bytes, file.size_bytes() - at)};
            require(file.expect(part, stream), "expect");
            std::size_t bytes = most_cub_bytes;
            const auto* const words = reinterpret_cast<const std::uint64_t*>(
                static_cast<const std::byte*>(file.data()) + at);
            require_cuda(cub::DeviceReduce::Sum(cub.as<void>(), bytes, words, sums.as() + number,
                                                static_cast<std::int64_t>(part.bytes / 8), stream),
                         "sum");
            require(file.done(part, stream), "done");
        }
        require_cuda(cudaStreamSynchronize(stream), "sums");
        return watch.seconds();
    }
    [[nodiscard]] std::uint64_t sum() const {
        std::vector<std::uint64_t> parts((file.size_bytes() + part_bytes - 1) / part_bytes);
        sums.copy_out(parts.data(), parts.size() * 8);
        std::uint64_t out = 0;
        for (const std::uint64_t part : parts) out += part;
        return out;
    }
};

// Processors that rested take some milliseconds to reach their speed, which is a tenth of a pass.
// So passes that follow each other and passes after a rest are rows of their own.
constexpr std::chrono::milliseconds rest_before_pass(60);

}  // namespace

void pieces_on_gpu(context& here) {
    const std::uint64_t room = here.file_bytes(2 * gib), bytes = here.use_file(room / 2 * 3);
    const opened_file opened = here.open({.cache_bytes = 64 * mib});
    const huge_host_memory pinned(bytes);
    const memory target(backend::gpu, copied_at_once);
    const reduction by;
    auto* const words = reinterpret_cast<std::uint64_t*>(pinned.get());
    fill(opened, words);
    by.seconds(static_cast<const std::uint64_t*>(words), bytes / 8);
    const std::uint64_t right = by.sum();
    apps::gpu_stream stream;
    require_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    for (const std::uint64_t piece : {64 * mib, 256 * mib}) {
        std::unique_ptr<file_pieces> file;
        require(map_pieces(*opened.rt, here.file().path(),
                           {.piece_bytes = piece, .device_bytes = room}, file));
        const pieces_run run{here, *file, std::max(room / 8 / piece, std::uint64_t{1}) * piece};
        std::uint64_t passes = 0;
        const auto add_pass = [&](measured& rates) {
            const stopwatch watch;
            const double ours_s = run.seconds(stream), used = watch.cores();
            expect(run.sum() == right, "the sum of the file in pieces is wrong");
            if (passes++ == 0) return;  // it loads the kernels
            rates.ours.add(gigabytes_a_second(bytes, ours_s));
            rates.cores.add(used);
        };
        const auto add_copies = [&](measured& beside) {
            const double bus_s = seconds_of_copies(pinned.get(), bytes, target);
            beside.baseline.add(gigabytes_a_second(bytes, bus_s));
        };
        // The copies come before the passes that follow each other, and after each that rested.
        measured rates, rested;
        for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat) add_copies(rates);
        for (std::uint64_t repeat = 0; repeat <= here.repeats(5); ++repeat) add_pass(rates);
        for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat) {
            std::this_thread::sleep_for(rest_before_pass);
            add_pass(rested);
            add_copies(rested);
        }
        const piece_traffic t = file->traffic();
        const std::string name = "CUB's sums of a file of 1.5 rooms in parts of " +
                                 format_size(run.part_bytes) + ", pieces of " + format_size(piece);
        const std::string note =
            text_of("sums compared; room of %.2f GiB; %.2f GB read from the file a pass",
                    static_cast<double>(t.room_bytes) / gib,
                    1e-9 * static_cast<double>(t.bytes_read) / static_cast<double>(passes));
        const char* const baseline = "the copy engine, from pinned memory";
        here.add("issue-32", name + ", again and again", 0, "GB/s", rates, baseline, note);
        here.add("issue-32", name + ", each after a rest of 60 ms", 0, "GB/s", rested, baseline,
                 note);
    }
}

}  // namespace penstock::bench
