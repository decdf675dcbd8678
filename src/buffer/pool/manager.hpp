// A buffer of pages of files, in frames of the host and of a device behind them
// (docs/guide/buffer.md): pages are fixed while they are used, read and changed in place, and
// flushed. What its users see is in penstock/buffer.hpp.
//
// A page that is in the host is fixed by one look at its entry and one step on the word of its
// frame, without a lock; that it was used is told to the order later, all at once, before the same
// thread next needs a frame. Everything else goes under one lock, which is not held while bytes
// move: what a miss has to do is decided under it, in the core, and takes a turn on each frame and
// on each page that is written back. Turns come in the order in which they were taken, so that
// the thread that moves bytes finds those that others, decided before, have put there.
//
// Nothing is lost where a write fails: a page that had to go and could not be written comes back,
// dirty, in place of the one that was asked for.
//
// The classes of the manager of whole pages (dedu_manager.hpp has those of the other), each with
// fields of its own. docs/protocol/buffer.md has both, and the order of all locks.
//
//   frame_directory  files, and which page is in which frame: entries and latches without a lock
//   locked_core      what the lock guards: the core, turns on frames, counts
//   page_mover       bytes on their way, without the lock
//   page_flusher     dirty pages on their way to their files, and which writes failed
//   file_sync        brings what was written to storage, and remembers if that failed
//   page_loader      pages that come to the host, and those that go for them
//   file_changes     files that grow, shrink and go
//   page_session     what one thread has fixed
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "buffer/pool/device_frames.hpp"
#include "buffer/pool/file_states.hpp"
#include "buffer/pool/frame_latch.hpp"
#include "buffer/core/types.hpp"
#include "hub/hub.hpp"
#include "os/env.hpp"
#include "penstock/buffer.hpp"
#include "penstock/error.hpp"

namespace penstock::buffer {

// Of pages that are missed: which go on while the device is told of victims. Others are for tests.
enum class begun_reads : std::uint8_t { past_the_page_cache, all, none };

// Of a buffer that keeps equal blocks once. An empty std::optional: the manager chooses.
struct dedu_settings {
    // A power of two, up to 64; a block is a multiple of 64 bytes.
    std::uint32_t blocks_per_page = 4;
    // That are known at once, at most; without a value 8 times those that the frames hold.
    std::optional<std::uint32_t> table_pages = std::nullopt;
    // That are known though they are in no frame, at most (90 bytes each); 0: a block that goes
    // takes all its pages with it; without a value twice as many as the frames.
    std::optional<std::uint32_t> absent_blocks = std::nullopt;
    signature_kind signature = signature_kind::quick;
    bool sign_on_device = false;  // else each thread signs its own page
    // In a file in which hardly any equal blocks are found none are looked for, for a while; and a
    // page comes into the buffer while the next is read.
    bool adaptive = true;
    std::uint32_t window_pages = 32;  // that one read of a file brings at once, at most
    // Whose signatures are remembered, at most; without a value 16 times as many as table_pages.
    std::optional<std::uint64_t> remembered_pages = std::nullopt;
};

struct manager_settings {
    std::uint64_t page_bytes = 4096;
    std::uint32_t host_pages = 0, device_pages = 0;
    std::uint32_t sessions = 16;    // threads that use the buffer, at most
    std::uint32_t fixed_pages = 8;  // that one of them has fixed at a time, at most
    std::uint32_t files = 64;
    std::uint32_t wait_ms = 30'000;  // for a page that others have fixed
    order_kind order = order_kind::lru;
    policy_kind policy = policy_kind::gram;  // native: no pages in the device
    // That threads that ask at once have moved, or handled by dedu, together, at most.
    std::uint32_t batch_pages = 256;
    std::uint32_t batch_wait_us = 0;  // in which others may join
    dedu_settings dedu{};
    begun_reads begins = begun_reads::past_the_page_cache;
    // Of gram: the device's part is used only as far as it pays (device_watch.hpp).
    bool stands_back = true;
    // Nanoseconds that only grow, for tests; empty: the machine's clock.
    std::function<std::uint64_t()> clock{};
    // For tests: fewer bits make blocks of one content hash and other bytes.
    std::uint64_t hash_mask = ~std::uint64_t{0};
    // For the canary: pages are lent to kernels though the file may be another by now.
    bool lends_unchecked = false;
};

// A page that could not be written to its file, and why.
struct failed_write {
    page_id page;
    int code = 0;
};

// The last one, for messages: a session is told only the code, also of another session's page.
// Thread-safe.
class last_failure {
public:
    // Returns `code`; 0 is no failure.
    int note(page_id page, int code) {
        if (code == 0) return 0;
        const std::lock_guard hold(mutex_);
        last_ = {page, code};
        return code;
    }
    [[nodiscard]] std::optional<failed_write> get() const {
        const std::lock_guard hold(mutex_);
        return last_;
    }

private:
    mutable std::mutex mutex_;
    std::optional<failed_write> last_;
};

// Pages that the host's part has at least, so that there is a victim whatever sessions have fixed:
// of each session those that it has fixed and one that it brings, and one more.
constexpr std::uint64_t least_host_pages(std::uint64_t sessions, std::uint64_t fixed_pages) {
    return sessions * (fixed_pages + 1) + 1;
}

// Whether tables can be made for as many files, and products of the other counts fit into 32 bits.
// To be asked before frames_for(); make() asks it too.
status check_counts(const manager_settings& settings);

// Frames that this needs of a device: some of the host's are for bytes on their way to files.
frames_shape frames_for(const manager_settings& settings);

// A pool with settings that buffer_options does not have, for tests and measurements: `tuning`'s
// batches and dedu are used, but for its blocks_per_page.
status make_pool(const buffer_options& wanted, const manager_settings& tuning,
                 std::unique_ptr<buffer_pool>& out, host::hub& shared = host::hub::of_process());

class manager {
public:
    virtual ~manager() = default;
    // `frames`: of the shape frames_for(settings). Both outlive it, and so do the files'
    // descriptors.
    static status make(const manager_settings& settings, device_frames& frames,
                       host::environment& env, std::unique_ptr<manager>& out);

    // The number of a file of so many bytes, which is read and written through `fd` until
    // remove_file; another program that changes it is told by forget. -EMFILE, there are as many as
    // can be; -EINVAL, too large; -ENOMEM. A descriptor that reads past the operating system's page
    // cache will do for files of any size, but only whole pages are written through it. Cost: four
    // bytes of memory for each page.
    virtual int add_file(int fd, std::uint64_t bytes,
                         file_access access = file_access::read_write) = 0;
    // The pages of the file leave; what was changed and not flushed is lost. Afterwards the number
    // may be another file's. 0; -EINVAL, no such file; -EBUSY, another thread removes or closes it;
    // -ETIMEDOUT, a session has a page of it fixed, and the file stays as it was. Cost: as of
    // session::forget.
    int remove_file(std::uint32_t number);
    // The same in three parts, for a session of this manager that may be null: (2), (3) with (4),
    // and (5) of file_states.hpp. After begin_close() was 0, end_close() follows; with `flushes`
    // nothing is lost, and it is 0 or the error of the flush, after which the file is open as
    // before. After 0, free_number() follows: until then the number is no other file's, so a caller
    // that keeps something under it takes that away first.
    int begin_close(session* by, std::uint32_t number);
    int end_close(session* by, std::uint32_t number, bool flushes);
    virtual void free_number(std::uint32_t number) = 0;
    // Null: there are as many as can be, or there is no memory.
    virtual std::unique_ptr<session> open_session() = 0;
    // The hits of a session of any manager, in no call now, are in the counts. It tells them by
    // itself later, at its end at the latest.
    static void tell_hits(session& idle);
    [[nodiscard]] virtual manager_counts counts() const = 0;
    [[nodiscard]] virtual manager_contents contents() const = 0;
    [[nodiscard]] virtual std::optional<failed_write> last_failed_write() const = 0;
    // Null, or what does not agree (check.hpp), while no thread uses it.
    [[nodiscard]] virtual const char* check() = 0;
    [[nodiscard]] virtual const manager_settings& settings() const = 0;
    // Lends pages to kernels while it is entered at `all`, which is told of files that are added
    // after this. leave() before the manager ends.
    virtual void lend_to(host::hub& all) = 0;
    virtual void leave(host::hub& all) = 0;

protected:
    // Step (4). The file is closing, and still is afterwards.
    virtual int drop_pages(std::uint32_t number) = 0;
    [[nodiscard]] virtual file_states& states() = 0;
};

// The manager of a pool, for parts of the library that bring files of their own to it. It lives as
// long as this does, also after the pool. Null: the pool is that of the process that called fork().
struct shared_manager {
    std::shared_ptr<manager> all;
    bool direct_io = true, on_gpu = false;
};
struct pool_access {
    static shared_manager of(const buffer_pool& pool);
};

}  // namespace penstock::buffer
