// The memory behind windows: runs of files that are mapped and exposed. The window_sets of a
// runtime's devices share one window_runs, so what several devices have open of a file is mapped
// and registered once, and is counted once.
//
// A run is offered to other sets while the set that made it holds a lease on the file. A set takes
// a run over only while it holds a lease of its own, which it took before. A lease is refused while
// a writer has the file open, and a writer waits until every lease has ended. So from when the run
// was made until the last set lets go of it, or puts the window aside, the file has not changed,
// and the memory is what the set would map itself. Without a lease each set maps for itself.
//
// Windows that grow may have a run for each chunk (service/asked_chunks.hpp), so runs are kept by
// the block of chunks that they begin in: a look and a withdrawal pass over few.
//
// One device exposes the memory, for all. It is the first of the runtime, which ends last.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/device.hpp"
#include "os/env.hpp"
#include "penstock/base/hash.hpp"

namespace penstock::host {

class window_runs;

// The largest mapping: one registration of a very large range is reported to fail on some drivers.
inline constexpr std::uint64_t most_run_chunks = 512;

// Chunks [first, first + count) of one file, mapped; those that were in memory are exposed. Its end
// takes back both.
class exposed_run {
public:
    exposed_run(window_runs& owner, void* address, std::uint64_t bytes, std::uint64_t first_chunk);
    ~exposed_run();
    exposed_run(const exposed_run&) = delete;
    exposed_run& operator=(const exposed_run&) = delete;

    // Exposes the chunks from `chunk` on that these bytes lie in. False, with the reason in `why`.
    bool expose(std::uint64_t chunk, std::uint64_t bytes, std::string& why);
    [[nodiscard]] bool is_empty() const { return pieces_.empty(); }
    // Where a chunk lies; 0: not exposed, or not of this run.
    [[nodiscard]] std::uint64_t address_of(std::uint64_t chunk) const;

private:
    friend class window_runs;
    struct piece {
        std::byte* address;
        std::uint64_t first_chunk, bytes;
    };
    window_runs& owner_;
    void* const address_;
    const std::uint64_t bytes_, first_chunk_;
    std::vector<piece> pieces_;
    std::optional<std::uint64_t> offered_under_;  // the owner's lock guards it
};

// Thread-safe. It outlives its runs.
class window_runs {
public:
    // Of so many devices; at most `budget_bytes` are exposed at a time.
    window_runs(environment& env, cache_device& device, std::uint32_t devices,
                std::uint64_t budget_bytes)
        : env_(env), device_(device), devices_(devices), budget_bytes_(budget_bytes) {}
    window_runs(const window_runs&) = delete;
    window_runs& operator=(const window_runs&) = delete;

    [[nodiscard]] bool are_shared() const { return devices_ > 1; }
    // How much is exposed now, and how much more may be.
    [[nodiscard]] std::uint64_t exposed_bytes();
    [[nodiscard]] std::uint64_t room();
    // The system refuses to expose mappings of files: no set tries it again.
    void refuse() { refused_ = true; }
    [[nodiscard]] bool are_refused() const { return refused_; }
    // True for the first caller, which says why a file has no windows for rows.
    bool is_first_to_miss_lease() { return !missed_lease_.exchange(true); }

    // The run is whole, and from now on sets with a lease on this version of the file may take it.
    void offer(const file_identity& file, const std::shared_ptr<exposed_run>& run);
    // Of the file's offered runs that have the chunk, one; null: there is none. The caller holds a
    // lease.
    std::shared_ptr<exposed_run> find(const file_identity& file, std::uint64_t chunk);
    // Before a lease ends that the run was offered or taken under: no set takes it from now on.
    void withdraw(exposed_run& run);

private:
    friend class exposed_run;
    struct offered_run {
        file_identity file;
        const exposed_run* address;  // while it ends, `run` is null already
        std::uint64_t first_chunk, end_chunk;
        std::weak_ptr<exposed_run> run;
    };
    // A block has as many chunks as the longest run, so a run lies in the block that it begins in
    // and in the next one.
    static std::uint64_t block_of(std::uint64_t chunk) { return chunk / most_run_chunks; }
    static std::uint64_t key_of(const file_identity& file, std::uint64_t block) {
        return mix64(mix64(file.inode ^ file.device << 32) + block);
    }

    environment& env_;
    cache_device& device_;
    const std::uint32_t devices_;
    const std::uint64_t budget_bytes_;
    std::atomic<bool> refused_{false}, missed_lease_{false};
    std::mutex mutex_;  // guards everything below
    std::uint64_t exposed_bytes_ = 0;
    std::unordered_multimap<std::uint64_t, offered_run> offered_;  // by key_of
};

}  // namespace penstock::host
