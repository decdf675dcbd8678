// The memory in which the pages of a region lie, with the means to move and compare their bytes.
// The GPU does that, or CPU threads on the cpu back end.
//
// A few workers, fewer for a small region, each with room for a batch of pages that host and device
// reach (staging), move pages at a time. What they do comes after what the caller's stream had been
// given at begin().
//
// First what it is made of: the steps on the bytes of a page, and the threads that help.
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
#include <string>
#include <thread>
#include <vector>

#include "penstock/error.hpp"
#include "penstock/group/concept.hpp"
#include "penstock/merge.hpp"

namespace penstock::region {

// The bytes of one page of a region: what filling, looking for changes and collecting do to a
// replica and its base. One body for a warp of the GPU and for a CPU thread. The callers and the
// times of the calls are decided elsewhere (penstock/consistency/page_versions.hpp).
//
// A replica may be written by kernels of the user at any time; each byte of it is looked at once by
// each step, so what is taken for changed and what is kept as the base are the same bytes.
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

// Base and replica take the page, but the replica keeps what differs from its base. `base` null:
// the region is only read.
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

// The replica's bytes to `staged`, and a mark for each byte that is not as in the base.
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

// The first `bytes` of what was collected are at home: the base takes them. The replica may have
// changed again since.
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

// Threads that help a caller move pages of a region, kept from one request to the next: a thread
// that is made anew costs as much as moving some pages, and on a GPU its first call of the driver
// does again.
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

    // work(0) by the caller, and work(i) for other i below `count`, each once at most, by as many
    // threads as begin before the caller is through: so each takes pieces of what there is to do
    // until there are none, and the caller waits for no thread that had not begun. Returns when all
    // have returned. By one caller at a time; work throws nothing.
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
        // Signals are the program's.
        sigset_t all, before;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            threads_.reserve(count - 1);
            while (threads_.size() + 1 < count) threads_.emplace_back([this] { help(); });
        } catch (const std::exception&) {  // no more threads or memory: those that are there do it
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
    unsigned next_ = 0, end_ = 0;  // numbers that are still to be had: none between calls
    unsigned working_ = 0;
    bool ends_ = false;
};

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
