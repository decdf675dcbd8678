// A buffer pool for programs on the host, like that of a database: it keeps pages of files in host
// memory and, behind it, in the memory of a GPU. A program fixes a page, uses it in place, unfixes
// it, and flushes it. Pages for which the host has no room go to the device, and a page that is
// found there is not read from the disk. With `dedu` equal blocks are kept once.
// docs/guide/buffer.md has the rules.
//
//     std::unique_ptr<penstock::buffer_pool> pool;
//     std::uint32_t accounts = 0;
//     if (penstock::status s = penstock::buffer_pool::make({.host_bytes = 1 << 30, .device_bytes =
//         8ull << 30}, pool); !s) return fail(s.message);
//     if (penstock::status s = pool->open_file("accounts.db",
//         penstock::buffer::file_access::read_write, accounts); !s) return fail(s.message);
//     const auto session = pool->open_session();  // of this thread
//     penstock::buffer::fixed_page page;
//     if (session->fix({.page = 7, .file = accounts}, penstock::buffer::use_kind::write,
//                      page) == 0) {
//         ++*reinterpret_cast<std::uint64_t*>(page.data);
//         session->unfix(page, true);
//     }
//     session->flush(accounts);  // on storage
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
    native,  // only the host's part
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
    // Blocks that came from the device for writing to the disk; these are pages if a page is one
    // block.
    std::uint64_t device_write_backs = 0;
    // With `dedu`: blocks that were looked up, and how many were found; blocks compared byte for
    // byte, and how many differed.
    std::uint64_t looked_blocks = 0, shared_blocks = 0, compared_blocks = 0, differing_blocks = 0;
    std::uint64_t prefetched = 0;  // pages read ahead; they count as neither hits, misses nor loads
    // With `gram`: pages that left the host and did not go to the device, since the buffer stood
    // back or measured; and how often it began to stand back.
    std::uint64_t kept_back = 0, stand_backs = 0;
    // With `native` and `gram`: the time of all requests for pages that were not in the host, as
    // their threads waited; and of it, the time for the device: copies for it, calls, waits.
    std::uint64_t request_ns = 0, device_ns = 0;
    // Now:
    std::uint64_t pages = 0, device_pages = 0;  // in the buffer; of these, in the device
    std::uint64_t device_bytes = 0;             // of device memory in use
    bool stands_back = false;                   // `gram`: the device's part does not pay just now
};

// The contents of the buffer now. The time to collect them grows with the contents.
struct manager_contents {
    std::uint64_t pages = 0,
                  pages_with_sharing = 0;  // pages with a block that another place has too
    std::uint64_t blocks = 0, block_references = 0, absent_blocks = 0;  // `blocks` are in frames
};

struct fixed_page {
    std::byte* data = nullptr;  // page_bytes, until unfix
    page_id id;
    std::uint32_t frame = 0;
    use_kind kind = use_kind::read;
    std::uint32_t place = 0;  // the session's own
};

// One thread's access to the buffer. A session is not thread-safe itself; any number of sessions
// work at the same time. It must end before its pool, with no page fixed. Every call gives -EBADF
// while the pool closes the file, and -ECHILD in a child of fork(): the child may only destroy a
// session and its pool, or leave them alone.
class session {
public:
    virtual ~session() = default;

    // Fixes a page until unfix: for reading, beside other readers, or for writing, alone. With
    // `dedu` the caller gets a copy: a reader is not affected by a concurrent writer, and neither
    // waits for the other. Returns 0; -EINVAL, no such page; -EACCES, the file is open for reading;
    // -EBUSY, the session has too many pages fixed; -ETIMEDOUT, another session has the page; or
    // the error of a read of its file, or of a write of another page that had to leave. Cost if the
    // page is in the host: two atomic steps, and the copy; else a move from the device or a read,
    // and maybe a write.
    virtual int fix(page_id id, use_kind kind, fixed_page& out) = 0;
    // The same for writing, but the page is not read from the file: the contents of `out` are
    // undefined. The caller writes all bytes of the page, or unfixes it as unchanged. Also returns
    // -ENOMEM.
    virtual int fix_fresh(page_id id, fixed_page& out) = 0;
    // `changed`: only for a page that was fixed for writing. False: the caller stored no byte.
    // After fix_fresh it may have stored bytes all the same, and the page is as it was before.
    virtual void unfix(const fixed_page& page, bool changed) = 0;

    // Read or write bytes of a file through fixed pages. Returns the count, which is less at the
    // end of the file, or a negative errno if no byte was copied: those of fix, but -EBADF where
    // there is no such file.
    virtual std::int64_t read(std::uint32_t file, std::uint64_t offset, std::byte* to,
                              std::uint64_t bytes) = 0;
    virtual std::int64_t write(std::uint32_t file, std::uint64_t offset, const std::byte* from,
                               std::uint64_t bytes) = 0;

    // Writes every page that was unfixed as changed before to its file, and to storage. Returns 0
    // or the first error; then the pages that were not written stay dirty, and the next flush tries
    // again. -EINVAL: no such file. -ETIMEDOUT: another session has such a page fixed for writing
    // (`native` and `gram`, which have no other copy of it). -EIO on every flush: the device
    // failed, and it had the only copy of a changed page; or storage failed in an earlier flush.
    // The error of storage itself is different: the pages are written and clean, and the operating
    // system may have dropped their bytes (Linux does so) and tells of it once. So no later flush
    // of the file gives 0. Discard the file, open it anew, and write once more what was changed
    // since the last flush that gave 0.
    virtual int flush(std::uint32_t file) = 0;

    // Sets the size of the file in the buffer to `bytes`. The file below does not change: a caller
    // that cuts it does so afterwards, so that nothing is written behind the new end
    // (buffer_pool::resize_file does both). Pages behind the new end leave and are not written. The
    // rest of the last page is zero, and so are the bytes by which a file grows, unless the file
    // below has other bytes there. Returns 0; -EINVAL, no such file, or too large; -ENOMEM; -EBUSY,
    // this session has as many pages fixed as it may; -ETIMEDOUT, a session has a page fixed behind
    // the new end or at it; or the error of a move or a write. After an error the file is as it
    // was, with all changes. Threads may call it at the same time. Cost: that of forget, and a fix
    // of the last page if it is in the buffer.
    virtual int resize(std::uint32_t file, std::uint64_t bytes) = 0;
    // For a file that was changed by other means: drops these pages from the buffer, and loses
    // changes made to them here. Waits for sessions that have such a page fixed, load it or write
    // it. So after 0 no call returns a byte that was read from the file before this call. The range
    // may reach behind the end. Returns 0; -EINVAL, no such file; -ETIMEDOUT, a session (this one
    // included) has a page fixed: some pages have left, others are still there. Cost: a step for
    // each page in the buffer, and little for each thousand pages that are not.
    virtual int forget(std::uint32_t file, std::uint64_t first_page, std::uint64_t pages) = 0;
    // Tells that these pages will be wanted: reads the pages that are neither in host nor device,
    // from the first on, as many as do not drive each other out. A hint: it reports no error and
    // fixes no page. Cost: that of fix for each page read.
    virtual void prefetch(std::uint32_t file, std::uint64_t first_page, std::uint64_t pages) = 0;
};

class open_pool;
struct pool_access;

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
    std::uint32_t sessions = 16;      // most threads that use the buffer at a time
    std::uint32_t fixed_pages = 8;    // most pages that a session has fixed at a time
    std::uint32_t max_files = 64;
    std::uint32_t wait_ms = 30'000;  // how long to wait for a page that other sessions have fixed
    // Files are read and written past the operating system's page cache, so that the sizes mean
    // something, if their file system can do that and page_bytes is at least 4 KiB.
    bool direct_io = true;
    // For `dedu`, which keeps equal blocks once. A power of two, up to 64; a block is a multiple of
    // 64 bytes.
    std::uint32_t blocks_per_page = 4;
    std::function<void(const std::string&)>
        log{};  // for errors that no call can return, as options::log; by default standard error
};

// The pool. Thread-safe, except that the destructor is for one thread, with no other call under way
// and no session left. A mount that reads files through it (mount_options::buffer) may outlive it.
// In a child of fork() every call fails at once (-ECHILD, null or zeros) and the destructor does
// nothing: only the parent writes the files.
class buffer_pool {
public:
    // Throws nothing. Returns 0; -EINVAL, -ENOMEM or -ENODEV, with a message that names the option,
    // the value and the cure. Takes all memory at once; the host's part is pinned if the device is
    // a GPU.
    static status make(const buffer_options& wanted, std::unique_ptr<buffer_pool>& out);
    explicit buffer_pool(std::unique_ptr<buffer::open_pool> made);
    // Does the same as close_file of each file; changes that cannot be written are lost, and the
    // log names them. Its memory stays while a mount reads through it.
    ~buffer_pool();
    buffer_pool(const buffer_pool&) = delete;
    buffer_pool& operator=(const buffer_pool&) = delete;

    // Opens a regular file that exists, and gives its number. No other program may change the file
    // while it is open here, unless the caller tells sessions by forget(). If the file cannot be
    // read past the page cache, or could not be written past it since its size is no whole number
    // of pages, its reads and writes go through the page cache. Costs four bytes of memory for each
    // page. Errors, with the cure: -EBUSY, the file is open here already; -EINVAL, no regular file
    // (a directory to read_write: -EISDIR); -EMFILE, as many files are open as
    // buffer_options::max_files says; -ENOMEM; errors of opening the file.
    status open_file(const std::string& path, buffer::file_access access, std::uint32_t& number);
    // Flushes the file, and gives its number back. Waits for sessions that have a page of it fixed;
    // meanwhile no other page of it can be fixed (-EBADF), and pages that sessions unfix as changed
    // are written. Returns 0, and nothing is lost. Otherwise the file stays open with all changes,
    // but for those that the device or storage lost (session::flush, which gives -EIO then), and
    // may be used, closed again or discarded: -EBADF, no such file, or another thread closes it;
    // -ETIMEDOUT, a session still has a page of it fixed; or the error of the flush.
    // docs/guide/buffer.md has the steps.
    int close_file(std::uint32_t number);
    // The same without flushing. With 0, changes that were not flushed are lost; with an error they
    // stay.
    int discard_file(std::uint32_t number);
    // Sets the size of the file, here and below. Bytes behind the new end are lost; bytes by which
    // the file grows are zero. Returns 0; -EBADF; -EACCES, the file is open for reading; -EINVAL, a
    // file that is written past the page cache has whole pages; or an error of session::resize or
    // of the file system. After an error the size is as it was, with all changes. There is one
    // exception: if the file system does not cut the file after the buffer has, changes behind the
    // new end that were not flushed are lost; the log says so.
    int resize_file(std::uint32_t number, std::uint64_t bytes);
    // Returns the size, or -EBADF.
    [[nodiscard]] std::int64_t file_bytes(std::uint32_t number) const;

    // Opens a session, which each thread needs. Null: there are as many sessions as the option
    // says, or there is no memory.
    [[nodiscard]] std::unique_ptr<buffer::session> open_session();

    // A thread adds its hits to the counts now and then, and when its session ends; with `dedu` it
    // reports the use of the page that it read last in the same way.
    [[nodiscard]] buffer::manager_counts counts() const;
    [[nodiscard]] buffer::manager_contents contents() const;
    [[nodiscard]] bool is_on_gpu() const;

private:
    friend struct buffer::pool_access;
    std::shared_ptr<buffer::open_pool> pool_;
};

}  // namespace penstock
