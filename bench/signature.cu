// Signatures of blocks of 4 KiB: on a GPU against all cores and one core, on the cpu by all cores
// against one. What the device finds is compared with what a core finds.
#include <algorithm>
#include <thread>
#include <vector>

#include "buffer/pool/content_hash.hpp"
#include "cases.hpp"
#include "common/threads.hpp"
#include "penstock/base/hash.hpp"

#if defined(__CUDACC__)
#include "buffer/pool/gpu_hashes.cuh"
#include "gpu.cuh"
#endif

namespace penstock::bench {

namespace {

using buffer::content_hash;
using buffer::signature_kind;

constexpr std::uint64_t signed_block_bytes = 4096;

struct signed_input {
    std::vector<buffer::strand_word> words;
    std::vector<content_hash> found;  // by cores
    std::uint64_t count;

    explicit signed_input(std::uint64_t bytes)
        : words(bytes / sizeof(buffer::strand_word)),
          found(bytes / signed_block_bytes),
          count(bytes / signed_block_bytes) {
        for (std::uint64_t i = 0; i < words.size(); ++i)
            words[i] = {mix64(2 * i), mix64(2 * i + 1)};
    }
    [[nodiscard]] const std::byte* block(std::uint64_t i) const {
        return reinterpret_cast<const std::byte*>(words.data()) + i * signed_block_bytes;
    }
    [[nodiscard]] std::uint64_t bytes() const { return count * signed_block_bytes; }

    // GB/s by so many threads.
    double sign(signature_kind kind, std::uint64_t threads) {
        const stopwatch watch;
        apps::on_threads(static_cast<std::uint32_t>(threads), [&](std::uint32_t t) {
            for (std::uint64_t i = count * t / threads; i < count * (t + 1) / threads; ++i)
                found[i] = buffer::hash_of(kind, block(i), signed_block_bytes);
        });
        return gigabytes_a_second(bytes(), watch.seconds());
    }
};

const char* name_of_kind(signature_kind kind) {
    return kind == signature_kind::md5 ? "MD5" : "quick signatures";
}

#if defined(__CUDACC__)

// What a device makes of the blocks, again and again.
status sign_on_gpu(context& here, const signed_input& input, signature_kind kind, series& out) {
    gpu_memory blocks, signatures;
    if (status s = blocks.on_device(input.bytes()); !s) return s;
    if (status s = signatures.on_device(input.count * sizeof(content_hash)); !s) return s;
    if (status s = cuda_status(cudaMemcpy(blocks.as<std::byte>(), input.block(0), input.bytes(),
                                          cudaMemcpyHostToDevice),
                               "copy");
        !s)
        return s;
    for (std::uint64_t repeat = 0; repeat < here.repeats(7) + 1; ++repeat) {
        float ms = 0;
        const auto launch = [&] {
            return buffer::hash_blocks(kind, blocks.as<std::byte>(), input.count,
                                       signed_block_bytes, signatures.as<content_hash>(), nullptr);
        };
        if (status s = kernel_ms(launch, ms); !s) return s;
        if (repeat != 0)
            out.add(gigabytes_a_second(input.bytes(), 1e-3 * ms));  // the first loads the code
    }
    std::vector<content_hash> got(input.count);
    if (status s =
            cuda_status(cudaMemcpy(got.data(), signatures.as<content_hash>(),
                                   input.count * sizeof(content_hash), cudaMemcpyDeviceToHost),
                        "copy");
        !s)
        return s;
    return got == input.found ? status{}
                              : status{-EIO, std::string(name_of_kind(kind)) +
                                                 ": the device found others than the cores"};
}

#else

status sign_on_gpu(context&, const signed_input&, signature_kind, series&) {
    return {-ENODEV, "built without CUDA"};
}

#endif

}  // namespace

status signature_speed(context& here) {
    signed_input input(here.file_bytes(here.on_gpu() ? gib : 256 * mib) / signed_block_bytes *
                       signed_block_bytes);
    const std::uint64_t cores = here.threads(std::max(1u, std::thread::hardware_concurrency()));
    for (const signature_kind kind : {signature_kind::quick, signature_kind::md5}) {
        here.progress(name_of_kind(kind));
        series single, all, device;
        for (std::uint64_t repeat = 0; repeat < here.repeats(7); ++repeat) {
            single.add(input.sign(kind, 1));
            all.add(input.sign(kind, cores));
        }
        const std::string name = std::string(name_of_kind(kind)) + " of blocks of 4 KiB";
        if (!here.on_gpu()) {
            if (status s = here.add({"6",
                                     name + ", " + std::to_string(cores) + " threads",
                                     "",
                                     signed_block_bytes,
                                     all,
                                     "GB/s",
                                     "one core",
                                     single,
                                     {},
                                     ""});
                !s)
                return s;
            continue;
        }
        if (status s = sign_on_gpu(here, input, kind, device); !s) return s;
        if (status s = here.add({"6",
                                 name,
                                 "",
                                 signed_block_bytes,
                                 device,
                                 "GB/s",
                                 "all cores, the same signatures",
                                 all,
                                 {},
                                 "kernel only, blocks in device memory"});
            !s)
            return s;
        if (status s = here.add({"6",
                                 name,
                                 "",
                                 signed_block_bytes,
                                 device,
                                 "GB/s",
                                 "one core, the same signatures",
                                 single,
                                 {},
                                 "kernel only, blocks in device memory"});
            !s)
            return s;
    }
    return {};
}

}  // namespace penstock::bench
