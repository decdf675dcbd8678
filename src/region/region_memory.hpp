// The memory in which the pages of a region lie, with the means to move and compare their bytes.
// The GPU does that, or CPU threads on the cpu back end.
//
// A few workers, fewer for a small region, each with room for a batch of pages that host and device
// reach (staging), move pages at a time. What they do comes after what the caller's stream had been
// given at begin().
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "penstock/error.hpp"
#include "region/helpers.hpp"
#include "region/page_steps.hpp"

namespace penstock::region {

inline constexpr std::uint64_t batch_pages = 512;
// Of one page between two that are wanted the read goes on over it: a call costs more than its
// bytes.
inline constexpr std::uint64_t longest_gap = 1;
inline constexpr std::uint64_t staging_pages = batch_pages * (1 + longest_gap);
inline constexpr std::uint64_t chunk_bytes = 2u << 20;

struct memory_shape {
    std::uint64_t pages = 0;
    bool writable = false;
    std::uint64_t device_bytes = 0;  // at most, for the pages and their bases; the rest lies in
                                     // host memory at the same addresses
};

// A page of the region, and where in staging it lies.
struct staged_page {
    std::uint64_t number, slot;
};
// `count` pages that follow each other in both.
struct staged_run {
    std::uint64_t number, slot, count;
};

// How many batches are moved at a time. A thread has two, one to be filled and one on its way.
inline unsigned workers_for(std::uint64_t pages, unsigned threads) {
    const std::uint64_t batches = (pages + batch_pages - 1) / batch_pages;
    return 2 * static_cast<unsigned>(std::clamp<std::uint64_t>(batches, 1, threads));
}

class region_memory {
public:
    virtual ~region_memory() = default;
    [[nodiscard]] virtual std::byte* data() const = 0;
    [[nodiscard]] virtual std::uint64_t bytes_on_device() const = 0;
    [[nodiscard]] virtual unsigned workers() const = 0;
    // Those that move pages besides the caller.
    [[nodiscard]] helpers& threads() { return threads_; }
    // Of a worker: room for staging_pages pages one after the other, and for the marks of
    // batch_pages.
    [[nodiscard]] virtual std::byte* staging(unsigned worker) const = 0;
    [[nodiscard]] virtual std::byte* marks(unsigned worker) const = 0;

    // The caller's streams may be refused, here and below: -EBUSY, the stream is being captured, or
    // it is the legacy stream and another one is.
    virtual int begin(void* stream) = 0;
    // From staging to the pages (fill_page). May return before it is done; then the staging is in
    // use until wait().
    virtual int fill(unsigned worker, const std::vector<staged_page>& pages) = 0;
    // To staging (collect_page); and, when those bytes are at home, to the bases (adopt_page): the
    // first `bytes` of what was collected, the pages one after the other. They return when done.
    virtual int collect(unsigned worker, const std::vector<std::uint64_t>& numbers) = 0;
    virtual int adopt(unsigned worker, const std::vector<std::uint64_t>& numbers,
                      std::uint64_t bytes) = 0;
    virtual int wait(unsigned worker) = 0;
    // What the pages were filled with or have brought home since, to staging; kernels of the user
    // may run meanwhile, and none is waited for. May return before it is done, as fill.
    virtual int read_back(unsigned worker, const std::vector<staged_run>& runs) = 0;
    // Of bytes [begin, end) of the region as much as can be to device memory, for others, after
    // what is on the stream; it waits for that. How many of them are there then, or a negative
    // errno.
    virtual std::int64_t prefer(std::uint64_t begin, std::uint64_t end, void* stream) = 0;
    // Kernels changed these pages, or others did and they were fetched; and: what is hot by that
    // comes to device memory, for what is not, after what is on the stream, which is waited for.
    // How many bytes came, or a negative errno. Where all lies on the device, or nothing was used
    // since, it does nothing.
    virtual void used(const std::vector<std::uint64_t>& numbers) = 0;
    virtual std::int64_t promote(void* stream) = 0;
    // The pages that differ from their bases when the stream has come so far, in order; waits for
    // the stream only.
    virtual int changed_pages(void* stream, std::vector<std::uint64_t>& out) = 0;

    // A stream that is not the caller's and never captured, for pages that no kernel uses any more.
    [[nodiscard]] virtual void* own_stream() const { return nullptr; }
    // Ok, or why the bytes of the region are gone for good, and its kernels' changes with them.
    [[nodiscard]] virtual status lost() const { return {}; }

private:
    helpers threads_;
};

// How many of the first `bytes` of staged pages are of page i.
constexpr PENSTOCK_HD std::uint64_t part_of_page(std::uint64_t bytes, std::uint64_t i) {
    const std::uint64_t before = i * page_bytes;
    return bytes <= before ? 0 : bytes - before < page_bytes ? bytes - before : page_bytes;
}

// Null, and why: -ENOMEM, or of a GPU -EIO or -ENODEV too.
std::unique_ptr<region_memory> make_cpu_memory(const memory_shape& shape, status& why);
std::unique_ptr<region_memory> make_gpu_memory(int device, const memory_shape& shape, status& why);

}  // namespace penstock::region
