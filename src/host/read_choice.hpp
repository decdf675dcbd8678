// Which way reads of one file should go, from how the reads before went. Shared by all threads that read the file; each word
// stands for itself, so they are relaxed, and a decision made from words of different moments is only a worse guess.
#pragma once

#include <atomic>
#include <cstdint>

namespace penstock::host {

// at_once: from the page cache or not at all. queued: by io_uring or pread, through the page cache.
enum class read_way : std::uint8_t { at_once, queued };

class read_choice {
public:
    // Is it likely that the page cache has what is read next? A file counts as warm until a read at once finds nothing, and
    // again after `proof` that did; meanwhile only some reads are tried.
    [[nodiscard]] bool likely_cached() {
        if (lately_cached_.load(std::memory_order_relaxed) >= proof) return true;
        return tries_.fetch_add(1, std::memory_order_relaxed) % proof == 0;
    }
    void found_cached() {
        const std::uint32_t so_far = lately_cached_.load(std::memory_order_relaxed);
        if (so_far < proof) lately_cached_.store(so_far + 1, std::memory_order_relaxed);
    }
    void found_absent() {
        if (lately_cached_.load(std::memory_order_relaxed) != 0) lately_cached_.store(0, std::memory_order_relaxed);
    }

    static constexpr std::uint32_t proof = 8;

private:
    std::atomic<std::uint32_t> lately_cached_{proof}, tries_{0};
};

}  // namespace penstock::host
