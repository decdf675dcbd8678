// Merge of write-shared pages: two changed copies of each page against its pristine copy, into the
// page, by CPU threads or by warps; against copying as many pages in the same memory. And, on a
// GPU, the cache's own way: pages mapped to be changed and unmapped, whose comparison is the same
// work.

#include "cases.hpp"
#include "penstock/merge.hpp"

#if defined(__CUDACC__)
#include "gpu.cuh"
#include "penstock/write.hpp"
#endif

namespace penstock::bench {

namespace {

// What is merged: pages with a pristine copy and two changed ones. Every eighth byte of a page was
// changed by the first writer, every eighth by the second.

constexpr std::uint64_t merge_page_bytes = 4096;

class merge_input {
public:
    explicit merge_input(std::uint64_t pages)
        : pages_(pages), memory_(backend::cpu, 5 * pages * merge_page_bytes) {
        for (std::uint64_t i = 0; i < pages * merge_page_bytes; ++i) {
            const auto old = static_cast<std::uint8_t>(mix64(i) >> 7);
            at(0)[i] = at(1)[i] = at(2)[i] = old;
            if (i % 8 == 1) at(1)[i] = static_cast<std::uint8_t>(old + 1);
            if (i % 8 == 5) at(2)[i] = static_cast<std::uint8_t>(old + 2);
        }
    }
    // The pages as they were.
    void begin() { std::memcpy(at(3), at(0), pages_ * merge_page_bytes); }
    [[nodiscard]] bool is_merged() { return is_merged(at(3)); }
    [[nodiscard]] bool is_merged(const std::uint8_t* into) {
        for (std::uint64_t i = 0; i < pages_ * merge_page_bytes; ++i)
            if (into[i] != (i % 8 == 1 ? at(1)[i] : i % 8 == 5 ? at(2)[i] : at(0)[i])) return false;
        return true;
    }

    // Of the pristine pages (0), those of the two writers (1, 2), what they are merged into (3),
    // and as much room (4).
    std::uint8_t* at(std::uint64_t which, std::uint64_t page = 0) {
        return memory_.as<std::uint8_t>() + (which * pages_ + page) * merge_page_bytes;
    }

private:
    std::uint64_t pages_;
    memory memory_;
};

template <typename Work>
double seconds_by_all(std::uint64_t threads, std::uint64_t pages, const Work& work) {
    const stopwatch watch;
    apps::on_new_threads(static_cast<std::uint32_t>(threads), [&](std::uint32_t t) {
        for (std::uint64_t page = pages * t / threads; page < pages * (t + 1) / threads; ++page)
            work(page);
    });
    return watch.seconds();
}

// A row, if the pages are as they have to be.
void add_merges(context& here, const std::string& name, const measured& times, const char* baseline,
                bool merged) {
    expect(merged, "merged pages lack a change, or have one that no writer made");
    here.add("S10", "merge of a page of 4 KiB" + name, merge_page_bytes, "us", times, baseline,
             "two writers a page, every eighth byte each");
}

}  // namespace

void merge_on_cpu(context& here) {
    const std::uint64_t pages = here.file_bytes(256 * mib) / merge_page_bytes,
                        threads = here.host_threads();
    merge_input input(pages);
    measured times;
    bool merged = true;
    for (std::uint64_t repeat = 0; repeat < here.repeats(7); ++repeat) {
        input.begin();
        const double copying = seconds_by_all(threads, pages, [&](std::uint64_t i) {
            std::memcpy(input.at(4, i), input.at(0, i), merge_page_bytes);
        });
        times.baseline.add(1e6 * copying / pages);
        const stopwatch watch;
        const double merging = seconds_by_all(threads, pages, [&](std::uint64_t i) {
            merge(lane{}, input.at(3, i), input.at(1, i), input.at(0, i), merge_page_bytes);
            merge(lane{}, input.at(3, i), input.at(2, i), input.at(0, i), merge_page_bytes);
        });
        times.add(1e6 * merging / (2 * pages), watch);
        merged = merged && input.is_merged();
    }
    add_merges(here, ", " + std::to_string(threads) + " threads", times, "copying a page", merged);
}

#if defined(__CUDACC__)

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
constexpr std::uint64_t changed_bytes_of_page = 256;

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

// Of copying so many bytes within device memory.
double copy_seconds(std::byte* to, const std::byte* from, std::uint64_t bytes) {
    return kernel_seconds([&] { cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice); });
}

void merge_kernel(context& here, std::uint64_t pages) {
    const std::uint64_t bytes = pages * merge_page_bytes;
    merge_input input(pages);
    const memory room(backend::gpu, 5 * bytes);
    auto* const base = room.as<std::byte>();
    const auto put = [&](std::uint64_t which, const void* from) {
        require_cuda(cudaMemcpy(base + which * bytes, from, bytes, cudaMemcpyHostToDevice), "copy");
    };
    for (const std::uint64_t which : {0, 1, 2}) put(which, input.at(which));
    measured times;
    const auto grid = static_cast<std::uint32_t>(8 * multiprocessors());
    for (std::uint64_t repeat = 0; repeat < here.repeats(11); ++repeat) {
        times.baseline.add(1e6 * copy_seconds(base + 4 * bytes, base, bytes) / pages);
        put(3, input.at(0));
        const stopwatch watch;
        const double seconds = kernel_seconds([&] {
            merge_all<<<grid, 256>>>({base + 3 * bytes, base + bytes, base + 2 * bytes, base},
                                     pages);
        });
        times.add(1e6 * seconds / (2 * pages), watch);
    }
    std::vector<std::uint8_t> got(bytes);
    require_cuda(cudaMemcpy(got.data(), base + 3 * bytes, bytes, cudaMemcpyDeviceToHost), "copy");
    add_merges(here, "", times, "copying a page within device memory", input.is_merged(got.data()));
}

// Every page resident, and a frame that was never used for every copy: no frame has to be found,
// and nothing is written back meanwhile.
void changed_mappings(context& here, std::uint64_t page) {
    const std::uint64_t bytes = 64 * mib, pages = bytes / page;
    here.use_file(bytes);
    const opened_file file = here.open(
        {.page_bytes = page, .cache_bytes = 16 * bytes, .writable = true}, open_read_write);
    bring_into_cache(file);
    const memory failed(backend::gpu, 8), copy(backend::gpu, 2 * bytes);
    measured times;
    const std::uint64_t warps = std::min<std::uint64_t>(pages, 32ull * multiprocessors());
    for (std::uint64_t repeat = 0;
         repeat < 2 * std::clamp<std::uint64_t>(here.repeats(6) / 2, 1, 5);
         ++repeat) {  // an even number: the file is as it was
        times.baseline.add(
            1e6 * copy_seconds(copy.as<std::byte>() + bytes, copy.as<std::byte>(), bytes) / pages);
        int code = 0;
        const stopwatch watch;
        const double seconds = kernel_seconds([&] {
            code = launch<width::warp>(
                *file.rt, warps,
                change_pages{file.fd, pages, page, warps, failed.as<unsigned long long>()},
                {128, 0});
        });
        require(code, "the kernel that changes pages");
        times.add(1e6 * seconds / pages, watch);
    }
    require_none(failed, "pages could not be mapped to be changed");
    require(file.rt->close(file.fd), here.file().path());
    here.add("S10", "map, change 256 bytes, compare and unmap a cached page", page, "us", times,
             "copying a page within device memory", std::to_string(warps) + " warps");
}

}  // namespace

void merge_on_gpu(context& here) {
    merge_kernel(here, here.file_bytes(gib) / merge_page_bytes);
    for (const std::uint64_t page : here.pages({4 * kib, 64 * kib})) changed_mappings(here, page);
}

#endif

}  // namespace penstock::bench
