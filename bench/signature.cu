// Signatures of blocks of 4 KiB: on a GPU against all cores and one core, on the cpu by all cores
// against one. What the device finds is compared with what a core finds.
#include <cerrno>
#include <vector>

#include "buffer/pool/content_hash.hpp"
#include "cases.hpp"
#include "common/threads.hpp"
#include "machine.hpp"
#include "penstock/base/hash.hpp"

#if defined(__CUDACC__)
#include "buffer/pool/gpu_hashes.cuh"
#include "gpu.cuh"
#endif

namespace penstock::bench {

namespace {

using buffer::content_hash;
using buffer::signature_kind;

constexpr std::uint64_t block_bytes = 4096;

struct signed_input {
    std::vector<buffer::strand_word> words;
    std::vector<content_hash> found;  // by cores
    std::uint64_t count;

    explicit signed_input(std::uint64_t bytes)
        : words(bytes / sizeof(buffer::strand_word)),
          found(bytes / block_bytes),
          count(bytes / block_bytes) {
        for (std::uint64_t i = 0; i < words.size(); ++i)
            words[i] = {mix64(2 * i), mix64(2 * i + 1)};
    }
    [[nodiscard]] const std::byte* block(std::uint64_t i) const {
        return reinterpret_cast<const std::byte*>(words.data()) + i * block_bytes;
    }
    [[nodiscard]] std::uint64_t bytes() const { return count * block_bytes; }

    // GB/s by so many threads.
    double sign(signature_kind kind, std::uint64_t threads) {
        const stopwatch watch;
        apps::on_threads(static_cast<std::uint32_t>(threads), [&](std::uint32_t t) {
            for (std::uint64_t i = count * t / threads; i < count * (t + 1) / threads; ++i)
                found[i] = buffer::hash_of(kind, block(i), block_bytes);
        });
        return gigabytes_a_second(bytes(), watch.seconds());
    }
};

const char* name_of_kind(signature_kind kind) {
    return kind == signature_kind::md5 ? "MD5" : "quick signatures";
}

// GB/s of what a device makes of the blocks, again and again.
series sign_on_gpu([[maybe_unused]] context& here, [[maybe_unused]] const signed_input& input,
                   [[maybe_unused]] signature_kind kind) {
    series out;
#if defined(__CUDACC__)
    const memory blocks(backend::gpu, input.bytes()),
        signatures(backend::gpu, input.count * sizeof(content_hash));
    require_cuda(
        cudaMemcpy(blocks.as<void>(), input.block(0), input.bytes(), cudaMemcpyHostToDevice),
        "copy");
    for (std::uint64_t repeat = 0; repeat < here.repeats(7) + 1; ++repeat) {
        const double seconds = kernel_seconds([&] {
            return buffer::hash_blocks(kind, blocks.as<std::byte>(), input.count, block_bytes,
                                       signatures.as<content_hash>(), nullptr);
        });
        if (repeat != 0)
            out.add(gigabytes_a_second(input.bytes(), seconds));  // the first loads the code
    }
    std::vector<content_hash> got(input.count);
    signatures.copy_out(got.data(), input.count * sizeof(content_hash));
    if (got != input.found)
        throw failure(-EIO,
                      std::string(name_of_kind(kind)) + ": the device found others than the cores");
#endif
    return out;
}

}  // namespace

void signature_speed(context& here) {
    signed_input input(here.file_bytes(gib, 256 * mib) / block_bytes * block_bytes);
    const std::uint64_t cores = here.host_threads();
    for (const signature_kind kind : {signature_kind::quick, signature_kind::md5}) {
        here.progress(name_of_kind(kind));
        series single, all;
        for (std::uint64_t repeat = 0; repeat < here.repeats(7); ++repeat) {
            single.add(input.sign(kind, 1));
            all.add(input.sign(kind, cores));
        }
        const std::string name = std::string(name_of_kind(kind)) + " of blocks of 4 KiB";
        if (!here.on_gpu()) {
            here.add({"6",
                      name + ", " + std::to_string(cores) + " threads",
                      block_bytes,
                      "GB/s",
                      {all, single, {}},
                      "one core"});
            continue;
        }
        const series device = sign_on_gpu(here, input, kind);
        const char* const note = "kernel only, blocks in device memory";
        here.add({"6",
                  name,
                  block_bytes,
                  "GB/s",
                  {device, all, {}},
                  "all cores, the same signatures",
                  note});
        here.add({"6",
                  name,
                  block_bytes,
                  "GB/s",
                  {device, single, {}},
                  "one core, the same signatures",
                  note});
    }
}

}  // namespace penstock::bench
