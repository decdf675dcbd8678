// A buffer pool for programs on the host: pages of files in host memory and, behind it, in the
// memory of a GPU, as a database has them: a page is fixed, used in place, unfixed, and flushed.
// What the host has no room for goes to the device, and what is found there is not read from the
// disk; equal blocks are kept once if that is asked for. docs/guide/buffer.md has the rules.
//
//     std::unique_ptr<penstock::buffer_pool> pool;
//     std::uint32_t accounts = 0;
//     if (penstock::status s = penstock::buffer_pool::make({.host_bytes = 1 << 30, .device_bytes =
//         8ull << 30}, pool); !s) return fail(s.message);
//     if (penstock::status s = pool->open_file("accounts.db",
//         penstock::buffer::file_access::read_write, accounts); !s) return fail(s.message);
//     const auto mine = pool->open_session();  // of this thread
//     penstock::buffer::fixed_page page;
//     if (mine->fix({.page = 7, .file = accounts}, penstock::buffer::use_kind::write, page) == 0) {
//         ++*reinterpret_cast<std::uint64_t*>(page.data);
//         mine->unfix(page, true);
//     }
//     mine->flush(accounts);  // on storage
//
// (GRAM and DEDU: Zhong and He, ICCS 2011.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "penstock/error.hpp"
#include "penstock/options.hpp"

namespace penstock {

namespace buffer {

enum class policy_kind : std::uint8_t {
    native,  // the host's part alone
    gram,    // the device is the host's second part, under one order
    dedu,    // as gram, and equal blocks are kept once
};
enum class order_kind : std::uint8_t { lru, clock };  // which page of the host goes next
enum class use_kind : std::uint8_t { read, write };
enum class file_access : std::uint8_t { read, read_write };

struct page_id {
    std::uint64_t page = 0;  // its number in the file
    std::uint32_t file = 0;

    friend bool operator==(const page_id&, const page_id&) = default;
};

struct manager_counts {
    std::uint64_t host_hits = 0, device_hits = 0, misses = 0, loads = 0, write_backs = 0,
                  demotions = 0, promotions = 0;
    // Blocks that came from the device for that; pages where a page is one block.
    std::uint64_t device_write_backs = 0;
    // Where equal blocks are kept once: blocks that were looked for and those that were there;
    // compared byte for byte, and found to differ.
    std::uint64_t looked_blocks = 0, shared_blocks = 0, compared_blocks = 0, differing_blocks = 0;
    std::uint64_t prefetched = 0;  // pages read ahead; among neither hits, misses nor loads
    // Now:
    std::uint64_t pages = 0, device_pages = 0;  // in the buffer, and of those in the device
    std::uint64_t device_bytes = 0;             // of device memory in use
};

// What is in the buffer now. Takes time for all of it.
struct manager_contents {
    std::uint64_t pages = 0,
                  pages_with_sharing = 0;  // the latter have a block that another place has too
    std::uint64_t blocks = 0, block_references = 0, absent_blocks = 0;  // the first are in frames
};

struct fixed_page {
    std::byte* data = nullptr;  // page_bytes, until unfix
    page_id id;
    std::uint32_t frame = 0;
    use_kind kind = use_kind::read;
    std::uint32_t place = 0;  // the session's own
};

// What one thread does with the buffer. Not thread-safe itself; any number of sessions work at the
// same time. Ends before its pool, with nothing fixed. Every call gives -EBADF while the pool
// closes the file, and -ECHILD in a child of fork(): there a session and its pool may be destroyed
// or left alone, no more.
class session {
public:
    virtual ~session() = default;

    // Fixes a page until unfix: for reading beside others that read, or for writing alone. With
    // `dedu` the caller gets a copy: a reader is not affected by a concurrent writer, and neither
    // waits for the other. 0; -EINVAL, no such page; -EACCES, the file is open for reading; -EBUSY,
    // too many fixed; -ETIMEDOUT, another session has it; or the error of a read of its file, or of
    // a write of another page that had to go. Cost where it is in the host: two atomic steps, and
    // the copy; else a move from the device or a read, and maybe a write.
    virtual int fix(page_id id, use_kind kind, fixed_page& out) = 0;
    // The same for writing, and the page is not read from the file: what `out` holds is undefined.
    // The caller writes all its bytes, or unfixes it as unchanged. Also -ENOMEM.
    virtual int fix_fresh(page_id id, fixed_page& out) = 0;
    // `changed`: only of a page that was fixed for writing. False: no byte was stored; after
    // fix_fresh any may have been, and the page is as it was before.
    virtual void unfix(const fixed_page& page, bool changed) = 0;

    // Bytes of a file, through fixed pages: the count, less at the end of the file, or a negative
    // errno where nothing was done.
    virtual std::int64_t read(std::uint32_t file, std::uint64_t offset, std::byte* to,
                              std::uint64_t bytes) = 0;
    virtual std::int64_t write(std::uint32_t file, std::uint64_t offset, const std::byte* from,
                               std::uint64_t bytes) = 0;

    // Every page that was unfixed as changed before is in its file, and on storage. 0 or the first
    // error; then what was not written stays dirty, and the next flush tries again. -ETIMEDOUT:
    // another session has such a page fixed for writing (`native` and `gram`, which have no other
    // copy of it). -EIO for ever: the device failed, and a page that was changed lay there alone.
    virtual int flush(std::uint32_t file) = 0;

    // The file has so many bytes from now on, which changes nothing below: a caller that cuts it
    // off does that afterwards, so that nothing is written behind the new end
    // (buffer_pool::resize_file does both). Pages behind it leave and are not written; the rest of
    // the last page is zero, and so is what a file grows by, unless the file below has it
    // otherwise. 0; -EINVAL, no such file, or too large; -ENOMEM; -EBUSY, this session has as many
    // pages fixed as it may; -ETIMEDOUT, a session has a page fixed behind the new end or at it; or
    // the error of a move or a write. After an error the file is as it was, with all that was
    // changed. Threads may call it at the same time. Cost: as of forget, and a fix of the last page
    // if it is in the buffer.
    virtual int resize(std::uint32_t file, std::uint64_t bytes) = 0;
    // The file below was changed by other means: these pages leave the buffer, and what was changed
    // of them here is lost. Waits for sessions that have one fixed, load one or write one, so that
    // after 0 no byte is given that was read from the file before the call. Pages behind the end
    // may be named. 0; -EINVAL, no such file; -ETIMEDOUT, a session (this one included) has one
    // fixed: some pages have left, others are still there. Cost: for each page that is in the
    // buffer, and little for each thousand that are not.
    virtual int forget(std::uint32_t file, std::uint64_t first_page, std::uint64_t pages) = 0;
    // These pages will be wanted: those that are nowhere are read, as many of the first as do not
    // drive each other out. A hint: no error is told, and no page fixed. Cost: as of fix for each
    // that is read.
    virtual void prefetch(std::uint32_t file, std::uint64_t first_page, std::uint64_t pages) = 0;
};

class open_pool;

}  // namespace buffer

struct buffer_options {
    buffer::policy_kind policy = buffer::policy_kind::gram;
    buffer::order_kind order = buffer::order_kind::lru;
    backend where = backend::automatic;  // of the device's part; cpu: ordinary memory stands for
                                         // it. automatic: a GPU if there is one
    int device = 0;                      // CUDA device number
    std::uint64_t host_bytes = 0;  // whole pages of both sizes are used: at least two, and in the
                                   // host, for every policy, (sessions + 1) x (fixed_pages + 1) + 1
                                   // (the pool's own is one more)
    std::uint64_t device_bytes = 0;   // not used by `native`
    std::uint32_t page_bytes = 4096;  // a power of two, 512 B to 2 MiB
    std::uint32_t sessions = 16;      // threads that use the buffer at a time, at most
    std::uint32_t fixed_pages = 8;    // that one of them has fixed at a time, at most
    std::uint32_t max_files = 64;
    std::uint32_t wait_ms = 30'000;  // for a page that others have fixed
    // Files are read and written past the operating system's page cache, so that the sizes mean
    // something, where their file system can do that and their pages are of 4 KiB or more.
    bool direct_io = true;
    // `dedu`: equal blocks are kept once. A power of two, up to 64; a block is a multiple of 64
    // bytes.
    std::uint32_t blocks_per_page = 4;
    std::function<void(const std::string&)>
        log{};  // of errors that no call can return; by default standard error
};

// Thread-safe, except that the destructor is for one thread, with no other call under way and no
// session left. In a child of fork() every call fails at once (-ECHILD, null or zeros) and the
// destructor does nothing: the files are the parent's to write.
class buffer_pool {
public:
    // Throws nothing. 0; -EINVAL, -ENOMEM or -ENODEV, with a message that names the option, the
    // value and the cure. Takes all memory at once: pinned in the host if the device is a GPU.
    static status make(const buffer_options& wanted, std::unique_ptr<buffer_pool>& out);
    explicit buffer_pool(std::unique_ptr<buffer::open_pool> made);
    // As close_file of each; what cannot be written is lost, and the log names it.
    ~buffer_pool();
    buffer_pool(const buffer_pool&) = delete;
    buffer_pool& operator=(const buffer_pool&) = delete;

    // A regular file that exists, and its number. Others must not change it while it is open here,
    // unless sessions are told by forget(). Where it cannot be read past the page cache, or could
    // not be written so since its size is no whole number of pages, it goes through it. Costs four
    // bytes of memory for each page. Not both here twice: -EBUSY.
    status open_file(const std::string& path, buffer::file_access access, std::uint32_t& number);
    // Flushes, and gives the number back. Waits for sessions that have a page of it fixed; from
    // then on no other can be fixed (-EBADF), and what they unfix as changed is written. 0, and
    // nothing is lost. Or the file stays open with all that was changed, and may be used, closed
    // again or discarded: -EBADF, no such file, or another thread closes it; -ETIMEDOUT, a session
    // still has a page of it fixed; or the error of the flush. docs/guide/buffer.md has the steps.
    int close_file(std::uint32_t number);
    // The same without flushing: what was changed and not flushed is lost with 0, and stays with an
    // error.
    int discard_file(std::uint32_t number);
    // The file has so many bytes, here and below. What is behind the new end is lost, what it grows
    // by is zero. 0; -EBADF; -EACCES, it is open for reading; -EINVAL, a file that is written past
    // the page cache has whole pages; or an error of session::resize or of the file system, and
    // then the size is as it was, with all that was changed. Only where the file system does not
    // cut the file once the buffer has, is what was changed behind the new end and not flushed
    // lost; the log says so.
    int resize_file(std::uint32_t number, std::uint64_t bytes);
    // -EBADF, or the size.
    [[nodiscard]] std::int64_t file_bytes(std::uint32_t number) const;

    // One for each thread; null: there are as many as `sessions` says, or there is no memory.
    [[nodiscard]] std::unique_ptr<buffer::session> open_session();

    // A thread tells its hits now and then, and when its session ends; under `dedu` so it does of
    // the page that it has read last.
    [[nodiscard]] buffer::manager_counts counts() const;
    [[nodiscard]] buffer::manager_contents contents() const;
    [[nodiscard]] bool is_on_gpu() const;

private:
    std::unique_ptr<buffer::open_pool> pool_;
};

}  // namespace penstock
