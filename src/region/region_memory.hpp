// The memory of a region's pages, with the means to move and compare their bytes. The GPU does
// that, or CPU threads on the cpu back end.
//
// A few workers move pages at the same time, fewer workers for a small region. Each has room for a
// batch of pages that host and device reach (staging). Their work comes after the work that the
// caller's stream had at begin().
//
// The parts come first: the steps on the bytes of a page, and the helper threads.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "device/device.hpp"
#include "device/direct_storage.hpp"
#include "hub/hub.hpp"
#include "penstock/error.hpp"
#include "penstock/group/concept.hpp"
#include "penstock/merge.hpp"
#include "region/stream_turns.hpp"

namespace penstock::region {

// The steps on the bytes of one page of a region: filling, looking for changes and collecting, on a
// replica and its base. A warp of the GPU and a CPU thread have the same body.
// penstock/consistency/page_versions.hpp decides when each step is called.
//
// Kernels of the user may write a replica at any time. Each step loads each byte of it once, so the
// bytes found changed and the bytes kept as the base are the same.
inline constexpr std::uint64_t page_bytes = 4096;
inline constexpr std::uint64_t mark_bytes =
    page_bytes / 8;  // a bit for each byte that was changed, the first byte's lowest

using page_word = penstock::detail::merge_words;
inline constexpr std::uint64_t page_words = page_bytes / sizeof(page_word);

// Bit i: byte i is not zero. `mask` has 0 or 0xff in each byte.
constexpr PENSTOCK_HD std::uint32_t bits_of(std::uint64_t mask) {
    return static_cast<std::uint32_t>(((mask & 0x8040201008040201ull) * 0x0101010101010101ull) >>
                                      56);
}

// Base and replica take the page, but the replica keeps the bytes that differ from its base. `base`
// null: the region is only read. Where the page has what the base has, nothing is stored: a kernel
// of the user may have stored there since the word of the replica was loaded.
template <group Group>
PENSTOCK_HD void fill_page(const Group& g, std::byte* replica, std::byte* base,
                           const std::byte* from) {
    auto* const to = reinterpret_cast<page_word*>(replica);
    auto* const kept = reinterpret_cast<page_word*>(base);
    const auto* const fresh = reinterpret_cast<const page_word*>(from);
#if PENSTOCK_ON_DEVICE
#pragma unroll 4
#endif
    for (std::uint64_t i = g.rank(); i < page_words; i += g.size()) {
        const page_word n = fresh[i];
        if (kept == nullptr) {
            to[i] = n;
            continue;
        }
        const page_word r = to[i], b = kept[i];
        if (((n.low ^ b.low) | (n.high ^ b.high)) == 0) continue;
        to[i] = {penstock::detail::merged_word(n.low, r.low, b.low),
                 penstock::detail::merged_word(n.high, r.high, b.high)};
        kept[i] = n;
    }
    g.sync();
}

template <group Group>
PENSTOCK_HD bool is_changed(const Group& g, const std::byte* replica, const std::byte* base) {
    const auto* const now = reinterpret_cast<const page_word*>(replica);
    const auto* const before = reinterpret_cast<const page_word*>(base);
    std::uint64_t differs = 0;
#if PENSTOCK_ON_DEVICE
#pragma unroll 8
#endif
    for (std::uint64_t i = g.rank(); i < page_words; i += g.size())
        differs |= (now[i].low ^ before[i].low) | (now[i].high ^ before[i].high);
    return !g.all(differs == 0);
}

// Copies the replica's bytes to `staged`, with a mark for each byte that differs from the base.
template <group Group>
PENSTOCK_HD void collect_page(const Group& g, const std::byte* replica, const std::byte* base,
                              std::byte* staged, std::byte* marked) {
    const auto* const now = reinterpret_cast<const page_word*>(replica);
    const auto* const before = reinterpret_cast<const page_word*>(base);
    auto* const bytes = reinterpret_cast<page_word*>(staged);
    auto* const marks = reinterpret_cast<std::uint16_t*>(marked);
    for (std::uint64_t i = g.rank(); i < page_words; i += g.size()) {
        const page_word r = now[i], b = before[i];
        bytes[i] = r;
        marks[i] = static_cast<std::uint16_t>(
            bits_of(penstock::detail::differing_bytes(r.low, b.low)) |
            bits_of(penstock::detail::differing_bytes(r.high, b.high)) << 8);
    }
    g.sync();
}

// The first `bytes` of the collected bytes are in the file: the base takes them. The replica may
// have changed again since.
template <group Group>
PENSTOCK_HD void adopt_page(const Group& g, std::byte* base, const std::byte* staged,
                            std::uint64_t bytes) {
    auto* const kept = reinterpret_cast<page_word*>(base);
    const auto* const words = reinterpret_cast<const page_word*>(staged);
    const std::uint64_t whole = bytes / sizeof(page_word);
    for (std::uint64_t i = g.rank(); i < whole; i += g.size()) kept[i] = words[i];
    for (std::uint64_t i = whole * sizeof(page_word) + g.rank(); i < bytes; i += g.size())
        base[i] = staged[i];
    g.sync();
}

// Threads that help a caller move pages of a region. They are kept from one request to the next: a
// new thread costs as much as moving some pages, and on a GPU its first call of the driver costs as
// much again.
class helpers {
public:
    helpers() = default;
    ~helpers() {
        {
            const std::lock_guard hold(lock_);
            ends_ = true;
        }
        begins_.notify_all();
        for (std::thread& thread : threads_) thread.join();
    }
    helpers(const helpers&) = delete;
    helpers& operator=(const helpers&) = delete;

    // The caller runs work(0); helpers run work(i) for other i below `count`, each at most once, as
    // far as they begin before the caller is through. So each call of work takes pieces of the job
    // until none are left, and the caller does not wait for a thread that has not begun. Returns
    // when all calls of work have returned. For one caller at a time; work throws nothing.
    void run(unsigned count, const std::function<void(unsigned)>& work) {
        make(count);
        {
            const std::lock_guard hold(lock_);
            work_ = &work;
            next_ = 1;
            end_ = count;
        }
        if (count > 1) begins_.notify_all();
        work(0);
        std::unique_lock hold(lock_);
        end_ = 0;
        all_ended_.wait(hold, [&] { return working_ == 0; });
    }

private:
    void make(unsigned count) {
        if (threads_.size() + 1 >= count) return;
        // Signals belong to the program's own threads.
        sigset_t all, before;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            threads_.reserve(count - 1);
            while (threads_.size() + 1 < count) threads_.emplace_back([this] { help(); });
        } catch (const std::exception&) {  // no more threads or memory: fewer threads help
        }
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    void help() {
        std::unique_lock hold(lock_);
        for (;;) {
            begins_.wait(hold, [&] { return ends_ || next_ < end_; });
            if (ends_) return;
            const std::function<void(unsigned)>& work = *work_;
            const unsigned number = next_++;
            ++working_;
            hold.unlock();
            work(number);
            hold.lock();
            if (--working_ == 0) all_ended_.notify_one();
        }
    }

    std::vector<std::thread> threads_;  // the caller's
    std::mutex lock_;
    std::condition_variable begins_, all_ended_;
    // Guarded by lock_:
    const std::function<void(unsigned)>* work_ = nullptr;
    unsigned next_ = 0, end_ = 0;  // numbers not taken yet: none between calls
    unsigned working_ = 0;
    bool ends_ = false;
};

inline constexpr std::uint64_t batch_pages = 512;
// A read goes on over one unwanted page between two wanted pages: a call costs more than that
// page's bytes.
inline constexpr std::uint64_t longest_gap = 1;
inline constexpr std::uint64_t staging_pages = batch_pages * (1 + longest_gap);
inline constexpr std::uint64_t chunk_bytes = 2u << 20;
// Pages of another region's memory need no room in staging, so more of them go at a time.
inline constexpr std::uint64_t settled_batch_pages = 8 * batch_pages;

// Of the device, which a region leaves for others.
inline constexpr std::uint64_t spare_device_bytes = 1ull << 30;

struct memory_shape {
    std::uint64_t pages = 0;
    bool writable = false;
    std::uint64_t device_bytes = 0;  // at most, for the pages and their bases; the rest lies in
                                     // host memory at the same addresses
};

// A page of the region, and its place in staging, or in the settled bytes of another region.
struct staged_page {
    std::uint64_t number, slot;
};
// `count` pages that follow each other, both in the region and in staging.
struct staged_run {
    std::uint64_t number, slot, count;
};

// How many batches are moved at a time. A thread has two batches: one is being filled, the other is
// on its way.
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
    // The threads that move pages besides the caller.
    [[nodiscard]] helpers& threads() { return threads_; }
    // A worker's room for staging_pages pages one after the other, and for the marks of batch_pages
    // pages.
    [[nodiscard]] virtual std::byte* staging(unsigned worker) const = 0;
    [[nodiscard]] virtual std::byte* marks(unsigned worker) const = 0;

    // The caller's stream may be refused, here and below: -EBUSY, the stream is being captured, or
    // it is the legacy stream and another stream is being captured.
    virtual int begin(void* stream) = 0;
    // Copies from `from` to the pages (fill_page): the worker's staging, or the settled bytes of a
    // memory that was shown to this one, then up to settled_batch_pages pages. May return before it
    // is done; then `from` is in use until wait().
    virtual int fill(unsigned worker, const std::byte* from,
                     const std::vector<staged_page>& pages) = 0;
    // Reads a part of a file by cuFile, of up to batch_pages pages, into memory of the device that
    // the worker's next fill takes it from. Null: it did not come, or there is no such memory. To
    // be called between begin() or take() and end_direct(), which gives that memory back; both
    // between kernels, as what maps a region.
    virtual const std::byte* read_direct(unsigned, host::direct_file&, std::uint64_t,
                                         std::uint64_t) {
        return nullptr;
    }
    virtual void end_direct(host::direct_storage&) {}
    // Fills pages from the cache of a runtime, which this memory reaches; a page's slot is its
    // number in the file. When it returns, a slot is 1 if its page was filled, and else 0: then the
    // page is as it was.
    virtual int fill_from_cache(unsigned worker, const host::lent_file& from,
                                std::vector<staged_page>& pages) = 0;
    [[nodiscard]] bool reaches(const host::lent_file& from) const {
        return from.gpu == gpu() && from.runtime->view.page_bytes() >= page_bytes;
    }
    // collect copies to staging (collect_page). When those bytes are in the file, adopt copies them
    // to the bases (adopt_page): the first `bytes` of the collected bytes, the pages one after the
    // other. Both return when done.
    virtual int collect(unsigned worker, const std::vector<std::uint64_t>& numbers) = 0;
    virtual int adopt(unsigned worker, const std::vector<std::uint64_t>& numbers,
                      std::uint64_t bytes) = 0;
    virtual int wait(unsigned worker) = 0;
    // The bytes that the pages were filled with or have released since, one page after the other:
    // the bases, or the pages of a region that is only read. Only fill and adopt change them.
    [[nodiscard]] virtual const std::byte* settled() const = 0;
    // Lets `reader` fill pages from settled(), if it reaches them straight, over no memory of the
    // host. It stays so. No kernel should run: it maps memory. How it reaches them, or why not.
    virtual host::device_link show_to(const region_memory& reader) = 0;
    // CUDA's number of the device whose memory it is; none: ordinary memory.
    [[nodiscard]] virtual std::optional<int> gpu() const { return std::nullopt; }
    // Copies settled bytes to staging. Kernels of the user may run meanwhile, and the call waits
    // for none of them. Like fill, it may return before it is done.
    virtual int read_back(unsigned worker, const std::vector<staged_run>& runs) = 0;
    // Moves as many as possible of the bytes [begin, end) of the region to device memory, in
    // exchange for other bytes, after the work on the stream, for which it waits. Returns how many
    // of them are there then, or a negative errno.
    virtual std::int64_t prefer(std::uint64_t begin, std::uint64_t end, void* stream) = 0;
    // used tells that kernels changed these pages, or that they were fetched after other writers
    // changed them. promote moves pieces that are hot by that to device memory, in exchange for
    // pieces that are not, after the work on the stream, for which it waits. It returns how many
    // bytes came, or a negative errno. It does nothing if all lies on the device, or nothing was
    // used since.
    virtual void used(const std::vector<std::uint64_t>& numbers) = 0;
    virtual std::int64_t promote(void* stream) = 0;
    // Lists, in order, the pages of [first, end) that differ from their bases when the stream has
    // reached this call; waits for the stream only.
    virtual int changed_pages(void* stream, std::uint64_t first, std::uint64_t end,
                              std::vector<std::uint64_t>& out) = 0;

    // A stream that does not belong to the caller and is never captured, for pages that no kernel
    // uses any more.
    [[nodiscard]] virtual void* own_stream() const { return nullptr; }
    // Ok, or the reason why the region's bytes are gone for good, with its kernels' changes.
    [[nodiscard]] virtual status lost() const { return {}; }

private:
    helpers threads_;
};

// How many of the first `bytes` bytes of staged pages belong to page i.
constexpr PENSTOCK_HD std::uint64_t part_of_page(std::uint64_t bytes, std::uint64_t i) {
    const std::uint64_t before = i * page_bytes;
    return bytes <= before ? 0 : bytes - before < page_bytes ? bytes - before : page_bytes;
}

// Makes the memory. Null on an error, with `why`: -ENOMEM, or for a GPU also -EIO or -ENODEV.
std::unique_ptr<region_memory> make_cpu_memory(const memory_shape& shape, status& why);
std::unique_ptr<region_memory> make_gpu_memory(int device, const memory_shape& shape, status& why);
// Turns of requests on streams of the device. Null on an error, with `code`.
std::unique_ptr<stream_turns> make_gpu_turns(int device, int& code);

}  // namespace penstock::region
