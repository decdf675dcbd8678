// A buffer of pages of files, in frames of the host and of a device behind them (docs/buffer.md): pages are fixed while they are used, read and changed in place, and flushed.
//
// A page that is in the host is fixed by one look at its entry and one step on the word of its frame, without a lock; that it was used is told to the order later, all at once, before the same thread
// next needs a frame. Everything else goes under one lock, which is not held while bytes move: what a miss has to do is decided under it, in the core, and takes a turn on each frame and on each
// page that is written back. Turns come in the order in which they were taken, so that whoever moves bytes finds those that others, decided before, have put there.
//
// Nothing is lost where a write fails: a page that had to go and could not be written comes back, dirty, in place of the one that was asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "buffer/device_frames.hpp"
#include "buffer/frame_latch.hpp"
#include "buffer/signature.hpp"
#include "buffer/types.hpp"
#include "host/env.hpp"
#include "penstock/error.hpp"

namespace penstock::buffer {

enum class order_kind : std::uint8_t { lru, clock };
enum class policy_kind : std::uint8_t { native, gram, dedu };  // docs/buffer.md

// Of a buffer that keeps equal blocks once.
struct dedu_settings {
    std::uint32_t blocks_per_page = 4;      // a power of two; a block is a multiple of signed_bytes
    std::uint32_t table_pages = 0;          // that are known at once, at most; 0: 8 times those that the frames hold
    signature_kind signature = signature_kind::quick;
    bool sign_on_device = false;            // else each thread signs its own page
    bool adaptive = true;                   // in a file in which hardly any equal blocks are found none are looked for, for a while
    std::uint32_t batch_pages = 256;        // that are handled at once, at most
    std::uint32_t batch_wait_us = 0;        // in which others may join a batch
    std::uint32_t window_pages = 32;        // that one read of a file brings at once, at most
    std::uint64_t remembered_pages = 0;     // whose signatures are remembered, at most; 0: 16 times as many as table_pages
    std::uint64_t signature_mask = ~std::uint64_t{0};  // for tests: fewer bits make blocks of one signature and other bytes
};

struct manager_settings {
    std::uint64_t page_bytes = 4096;
    std::uint32_t host_pages = 0, device_pages = 0;
    std::uint32_t sessions = 16;        // threads that use the buffer, at most
    std::uint32_t fixed_pages = 8;      // that one of them has fixed at a time, at most
    std::uint32_t files = 64;
    std::uint32_t wait_ms = 30'000;     // for a page that others have fixed
    order_kind order = order_kind::lru;
    policy_kind policy = policy_kind::gram;  // native: no pages in the device
    dedu_settings dedu{};
};

// Frames that this needs of a device: some of the host's are for bytes on their way to files.
frames_shape frames_for(const manager_settings& settings);

struct manager_counts {
    std::uint64_t host_hits = 0, device_hits = 0, misses = 0, loads = 0, write_backs = 0, demotions = 0, promotions = 0;
    std::uint64_t device_write_backs = 0;  // blocks that came from the device for that; pages where a page is one block
    // Where equal blocks are kept once: blocks that were looked for and those that were there; compared byte for byte, and found to differ.
    std::uint64_t looked_blocks = 0, shared_blocks = 0, compared_blocks = 0, differing_blocks = 0;
    std::uint64_t prefetched = 0;          // pages read ahead; among neither hits, misses nor loads
    // Now:
    std::uint64_t pages = 0, device_pages = 0;  // in the buffer, and of those in the device
    std::uint64_t device_bytes = 0;             // of device memory in use
};

// What is in the buffer now. Takes time for all of it.
struct manager_contents {
    std::uint64_t pages = 0, pages_with_sharing = 0;  // the latter have a block that another place has too
    std::uint64_t blocks = 0, block_references = 0;
};

struct fixed_page {
    std::byte* data = nullptr;  // page_bytes, until unfix
    page_id id;
    std::uint32_t frame = 0;
    use_kind kind = use_kind::read;
};

// What one thread does with the buffer. Not thread-safe itself. Ends before its manager, with nothing fixed.
class session {
public:
    virtual ~session() = default;

    // The page stays where it is until unfix: for reading with others that read, for writing alone. Under `dedu` it is a copy: who reads has the page as it was then, also while another has it for writing. 0; -EINVAL, no
    // such page; -EBUSY, too many fixed; -ETIMEDOUT, others have it; or the error of a read of its file, or of a write of another page that had to go. Cost where it is in the host: two atomic steps, and the copy; else a
    // move from the device or a read, and maybe a write.
    virtual int fix(page_id id, use_kind kind, fixed_page& out) = 0;
    // The same for writing, and what the page held is not wanted: it is not read from the file. All its bytes must be written.
    virtual int fix_fresh(page_id id, fixed_page& out) = 0;
    // `changed`: only of a page that was fixed for writing.
    virtual void unfix(const fixed_page& page, bool changed) = 0;

    // Bytes of a file, through fixed pages: the count, less at the end of the file, or a negative errno where nothing was done.
    virtual std::int64_t read(std::uint32_t file, std::uint64_t offset, std::byte* to, std::uint64_t bytes) = 0;
    virtual std::int64_t write(std::uint32_t file, std::uint64_t offset, const std::byte* from, std::uint64_t bytes) = 0;

    // Every page that was unfixed as changed before is in its file, and on storage. 0 or the first error; then what was not written stays dirty, and the next flush tries again.
    virtual int flush(std::uint32_t file) = 0;

    // The file has so many bytes from now on, which changes nothing below: a caller that cuts it off does that afterwards, so that nothing is written behind the new end. Pages behind it leave and are
    // not written; the rest of the last page is zero, and so is what a file grows by, unless the file below has it otherwise. 0; -EINVAL, no such file, or too large; -ENOMEM, and the size is as it was;
    // -EBUSY, this session has as many pages fixed as it may; -ETIMEDOUT or the error of a move or a write where something stood in the way: call again, it goes on. Threads may call it at the same time.
    // Cost: as of forget, and a fix of the last page if it is in the buffer.
    virtual int resize(std::uint32_t file, std::uint64_t bytes) = 0;
    // The file below was changed by others: these pages leave the buffer, and what was changed of them here is lost. Who has one fixed, or loads or writes one, is waited for, so that when this has
    // returned 0 no byte is given that was read from the file before the call. Pages behind the end may be named. 0; -EINVAL, no such file; -ETIMEDOUT, others have one fixed: some may be there still. Not
    // with one of these pages fixed by this session. Cost: for each page that is in the buffer, and little for each thousand that are not.
    virtual int forget(std::uint32_t file, std::uint64_t first_page, std::uint64_t pages) = 0;
    // These pages will be wanted: those that are nowhere are read, as many of the first as do not drive each other out. A hint: no error is told, and no page fixed. Cost: as of fix for each that is read.
    virtual void prefetch(std::uint32_t file, std::uint64_t first_page, std::uint64_t pages) = 0;
};

class manager {
public:
    virtual ~manager() = default;
    // `frames`: of the shape frames_for(settings). Both outlive it, and so do the files' descriptors.
    static status make(const manager_settings& settings, device_frames& frames, host::environment& env, std::unique_ptr<manager>& out);

    // The number of a file of so many bytes, which is read and written through `fd` until remove_file; who else changes it says so by forget. -EMFILE, there are as many as can be; -EINVAL, too large; -ENOMEM.
    // A descriptor that reads past the operating system's page cache will do for files of any size, but only whole pages are written through it. Cost: four bytes of memory for each page.
    virtual int add_file(int fd, std::uint64_t bytes) = 0;
    // Nobody uses the file any more. Its pages leave; what was changed and not flushed is lost. Afterwards the number may be another file's. 0; -EINVAL, no such file; -ETIMEDOUT, somebody has a page of it
    // fixed: the number stays in use, the file has no pages, and this may be called again. Cost: as of session::forget.
    virtual int remove_file(std::uint32_t number) = 0;
    // Null: there are as many as can be, or there is no memory.
    virtual std::unique_ptr<session> open_session() = 0;
    [[nodiscard]] virtual manager_counts counts() const = 0;
    [[nodiscard]] virtual manager_contents contents() const = 0;
    // Null, or what does not agree (check.hpp), while nobody uses it.
    [[nodiscard]] virtual const char* check() = 0;
};

}  // namespace penstock::buffer
