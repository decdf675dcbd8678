// Merge of write-shared pages on a GPU: two changed copies of each page against its pristine copy,
// into the page, by warps; against copying as many pages within device memory. And the cache's own
// way: pages mapped to be changed and unmapped, which compares them.
#include <algorithm>
#include <memory>
#include <vector>

#include "cases.hpp"
#include "gpu.cuh"
#include "merge_pages.hpp"
#include "penstock/launch.hpp"
#include "penstock/merge.hpp"
#include "penstock/write.hpp"

namespace penstock::bench {

namespace {

struct merge_pages_of {
    std::byte *into, *first, *second;
    const std::byte* pristine;
};

__global__ void __launch_bounds__(256) merge_all(const merge_pages_of m, std::uint64_t pages) {
    const std::uint64_t warps = std::uint64_t{gridDim.x} * 8;
    for (std::uint64_t page = (std::uint64_t{blockIdx.x} * 256 + threadIdx.x) / 32; page < pages;
         page += warps) {
        const std::uint64_t at = page * merge_page_bytes;
        merge(this_warp(), m.into + at, m.first + at, m.pristine + at, merge_page_bytes);
        merge(this_warp(), m.into + at, m.second + at, m.pristine + at, merge_page_bytes);
    }
}

// A warp changes the first bytes of each of its pages: in one piece, since each piece that is
// marked is a write of its own to the file.
inline constexpr std::uint64_t changed_bytes_of_page = 256;

struct change_pages {
    int fd;
    std::uint64_t pages, page_bytes, warps;
    unsigned long long* failed;

    template <typename Group>
    __device__ void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
        for (std::uint64_t page = index; page < pages; page += warps) {
            const writable_mapping m =
                map_write(g, fs, fd, static_cast<std::int64_t>(page * page_bytes),
                          static_cast<std::int64_t>(page_bytes));
            for (std::uint64_t i = g.rank(); m.data != nullptr && i < changed_bytes_of_page;
                 i += g.size())
                m.data[i] ^= std::byte{0x55};
            if ((m.bytes != static_cast<std::int64_t>(page_bytes) || unmap(g, fs, m) != 0) &&
                g.is_leader())
                atomicAdd(failed, 1ull);
        }
    }
};

status merge_kernel(context& here, std::uint64_t pages) {
    const std::uint64_t bytes = pages * merge_page_bytes;
    merge_input input(pages);
    gpu_memory memory;
    if (status s = memory.on_device(5 * bytes); !s) return s;
    auto* const base = memory.as<std::byte>();
    const auto put = [&](std::uint64_t which, const void* from) {
        return cuda_status(cudaMemcpy(base + which * bytes, from, bytes, cudaMemcpyHostToDevice),
                           "copy");
    };
    if (status s = put(0, input.pristine(0)); !s) return s;
    if (status s = put(1, input.first(0)); !s) return s;
    if (status s = put(2, input.second(0)); !s) return s;
    series merges, copies, cores;
    const auto grid = static_cast<std::uint32_t>(8 * multiprocessors());
    for (std::uint64_t repeat = 0; repeat < here.repeats(11); ++repeat) {
        float ms = 0;
        if (status s = kernel_ms(
                [&] { cudaMemcpyAsync(base + 4 * bytes, base, bytes, cudaMemcpyDeviceToDevice); },
                ms);
            !s)
            return s;
        copies.add(1e3 * ms / static_cast<double>(pages));
        if (status s = put(3, input.pristine(0)); !s) return s;
        const stopwatch watch;
        if (status s = kernel_ms(
                [&] {
                    merge_all<<<grid, 256>>>(
                        {base + 3 * bytes, base + bytes, base + 2 * bytes, base}, pages);
                },
                ms);
            !s)
            return s;
        merges.add(1e3 * ms / static_cast<double>(2 * pages));
        cores.add(watch.cores(watch.seconds()));
    }
    std::vector<std::uint8_t> got(bytes);
    if (status s = cuda_status(
            cudaMemcpy(got.data(), base + 3 * bytes, bytes, cudaMemcpyDeviceToHost), "copy");
        !s)
        return s;
    if (!input.is_merged(got.data()))
        return {-EIO, "merged pages lack a change, or have one that no writer made"};
    return here.add({"S10", "merge of a page of 4 KiB", "", merge_page_bytes, merges, "us",
                     "copying a page within device memory", copies, cores,
                     "two writers a page, every eighth byte each"});
}

// Every page resident, and a frame that was never used for every copy: no frame has to be found,
// and nothing is written back meanwhile.
status changed_mappings(context& here, std::uint64_t page) {
    const std::uint64_t bytes = 64 * mib, pages = bytes / page;
    if (status s = here.use_file(bytes); !s) return s;
    std::unique_ptr<runtime> rt;
    if (status s = here.make_runtime(
            {.page_bytes = page, .cache_bytes = 16 * bytes, .file_bytes = bytes, .writable = true},
            rt);
        !s)
        return s;
    const int fd = rt->open(here.file().path(), open_read_write);
    if (fd < 0) return {fd, here.file().path() + ": " + error_text(fd)};
    if (rt->prefetch(fd, 0, static_cast<std::int64_t>(bytes)) != static_cast<std::int64_t>(bytes))
        return {-EIO, "the file could not be brought into the cache"};
    gpu_memory failed, copy;
    if (status s = failed.on_device(8); !s) return s;
    if (status s = copy.on_device(2 * bytes); !s) return s;
    cudaMemset(failed.as<void>(), 0, 8);
    series changes, copies, cores;
    const std::uint64_t warps = std::min<std::uint64_t>(pages, 32ull * multiprocessors());
    for (std::uint64_t repeat = 0;
         repeat < 2 * std::clamp<std::uint64_t>(here.repeats(6) / 2, 1, 5);
         ++repeat) {  // an even number: the file is as it was
        float ms = 0;
        if (status s = kernel_ms(
                [&] {
                    cudaMemcpyAsync(copy.as<std::byte>() + bytes, copy.as<std::byte>(), bytes,
                                    cudaMemcpyDeviceToDevice);
                },
                ms);
            !s)
            return s;
        copies.add(1e3 * ms / static_cast<double>(pages));
        int code = 0;
        const stopwatch watch;
        if (status s = kernel_ms(
                [&] {
                    code = launch<width::warp>(
                        *rt, warps,
                        change_pages{fd, pages, page, warps, failed.as<unsigned long long>()},
                        {128, 0});
                },
                ms);
            !s)
            return s;
        if (code != 0) return {code, "the kernel that changes pages: " + error_text(code)};
        changes.add(1e3 * ms / static_cast<double>(pages));
        cores.add(watch.cores(watch.seconds()));
    }
    unsigned long long bad = 0;
    if (status s =
            cuda_status(cudaMemcpy(&bad, failed.as<void>(), 8, cudaMemcpyDeviceToHost), "copy");
        !s)
        return s;
    if (bad != 0) return {-EIO, std::to_string(bad) + " pages could not be mapped to be changed"};
    if (const int code = rt->close(fd); code != 0)
        return {code, here.file().path() + ": " + error_text(code)};
    return here.add({"S10", "map, change 256 bytes, compare and unmap a cached page", "", page,
                     changes, "us", "copying a page within device memory", copies, cores,
                     std::to_string(warps) + " warps"});
}

}  // namespace

status merge_on_gpu(context& here) {
    if (status s = merge_kernel(here, here.file_bytes(1 * gib) / merge_page_bytes); !s) return s;
    for (const std::uint64_t page : here.pages({4 * kib, 64 * kib}))
        if (status s = changed_mappings(here, page); !s) return s;
    return {};
}

}  // namespace penstock::bench
