// Moves pages between memory and file: writes changed bytes to the file, and moves pages in
// batches, with as many threads as the memory has workers for.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <new>
#include <vector>

#include "os/env.hpp"
#include "region/region_memory.hpp"

namespace penstock::region {

struct staged_pages {
    const std::vector<std::uint64_t>& numbers;  // of the file, in order
    const std::byte* bytes;                     // one page after the other
    const std::byte* marks;
    std::uint64_t end_bytes;  // no byte of the file is written from here on
    bool exactly;  // no byte without a mark may be written, not even as it is in the file
    // By no mapping. Of one, what lies elsewhere gets whole pages, with bytes of others as this
    // machine knows them, and its errors when they are no one's any more.
    bool by_calls;
};

struct written_pages {
    int code = 0;               // or a negative errno
    std::uint64_t settled = 0;  // staged bytes, from the first: their marked bytes are in the
                                // file, and none of the other staged bytes are
    std::uint64_t bytes = 0;    // bytes written
};

// Writes each marked byte to its place in the file; runs that follow each other go in one call.
// -ESTALE: a byte lies behind the end of the file, which another program has cut; it is not
// written.
written_pages write_marked(host::environment& env, int fd, const staged_pages& pages);

// Calls action(worker, pages), which returns 0 or a negative errno, for each batch of up to
// `most_pages` of `pages`, in any order; batches are smaller if there are few pages for many
// threads. A worker's memory is at rest when it gets a batch, and the memory of all workers is at
// rest when this returns. Returns the first error, after which no batch begins. A thread has two
// workers, so that one can be filled while the other is copied from.
template <typename Action>
int for_batches(region_memory& memory, const std::vector<std::uint64_t>& pages, Action&& action,
                std::uint64_t most_pages = batch_pages) {
    constexpr std::uint64_t least_pages = 32;
    const std::uint64_t size = std::clamp(pages.size() / memory.workers(), least_pages, most_pages),
                        count = (pages.size() + size - 1) / size;
    std::atomic<std::uint64_t> next{0};
    std::atomic<int> failed{0};
    const auto fail = [&](int code) {
        int none = 0;
        if (code != 0) failed.compare_exchange_strong(none, code);
    };
    const auto move_all = [&](unsigned thread) {
        for (unsigned turn = 0;; turn ^= 1) {
            const std::uint64_t batch = next.fetch_add(1);
            if (batch >= count || failed.load() != 0) break;
            const unsigned worker = 2 * thread + turn;
            fail(memory.wait(worker));
            const auto begin = pages.begin() + static_cast<std::ptrdiff_t>(batch * size);
            const auto end = pages.begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(
                                                 pages.size(), (batch + 1) * size));
            fail(action(worker, std::vector<std::uint64_t>(begin, end)));
        }
        fail(memory.wait(2 * thread));
        fail(memory.wait(2 * thread + 1));
    };
    const auto work = [&](unsigned thread) {
        try {
            move_all(thread);
        } catch (const std::bad_alloc&) {
            fail(-ENOMEM);
            memory.wait(2 * thread);
            memory.wait(2 * thread + 1);
        }
    };
    memory.threads().run(
        static_cast<unsigned>(std::min<std::uint64_t>(memory.workers() / 2, count)), work);
    return failed.load();
}

}  // namespace penstock::region
