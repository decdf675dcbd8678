// The one seam to the operating system. Everything the service does to files goes through an
// `environment`; the tests put a fault-making one in its place (tests/fault).
//
// Every call returns a value >= 0 or a negative errno, and never throws. Thread-safe.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "os/file_system.hpp"

namespace penstock::host {

// What tells one version of a file from another.
struct file_identity {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    std::uint64_t size_bytes = 0;
    std::int64_t modified_ns = 0;
    std::int64_t changed_ns = 0;

    bool operator==(const file_identity&) const = default;
    [[nodiscard]] bool same_file(const file_identity& other) const {
        return device == other.device && inode == other.inode;
    }
};

// Whether anybody, this process too, has a file open or mapped for writing right now. Unknown where
// the file system or our rights do not let us ask.
enum class writers { unknown, none, some };

struct file_facts {
    file_identity identity;
    bool is_regular = false;
    bool is_directory = false;
    bool false_size = false;  // its size is not what reads deliver (os/file_kind.hpp); told only
                              // of a handle that is open for reading
    // Two changes never leave the same times, even right after one another.
    bool exact_times = false;
    // A change of the bytes leaves another change time, whichever way it comes
    // (os/file_system.hpp).
    bool notes_stores = false;
    // Every machine sees the file by this number of an inode (os/file_system.hpp).
    bool has_number_for_all = false;
    writers writing = writers::unknown;  // told only of a handle that is open for reading
    // When the file was made; 0: not told. It tells a file from a deleted one with its inode.
    std::int64_t made_ns = 0;
    std::int64_t now_ns = 0;  // the file clock of this machine when the facts were read
    file_times times = file_times::local;
    const char* file_system = "";  // its name, for people
    // Not of a local file system: for how long its file system has given these facts
    // (os/rested_files.hpp).
    std::int64_t rested_ns = 0;

    // Not if it is a later file with the inode, as far as both tell.
    [[nodiscard]] bool may_be_of(const file_identity& other, std::int64_t other_made_ns) const {
        return identity.same_file(other) &&
               (made_ns == 0 || other_made_ns == 0 || made_ns == other_made_ns);
    }
};

struct memory_area {
    std::byte* begin = nullptr;
    std::uint64_t bytes = 0;
};

// One read of a file into memory. `tag` comes back with the result.
struct read_operation {
    int fd = -1;
    std::byte* to = nullptr;
    std::uint32_t bytes = 0;
    std::uint64_t offset = 0;
    std::uint64_t tag = 0;
    bool at_once = false;    // take what the page cache has, and give -EAGAIN rather than wait; see
                             // io_engine::reads_at_once
    bool direct = false;     // past the page cache
    std::int32_t area = -1;  // all of its place is in this one of the areas registered; -1: in none
};

struct read_result {
    std::uint64_t tag = 0;
    std::int64_t result = 0;  // bytes, 0 at the end of the file, or a negative errno
};

// Reads in flight. Owned and called by one thread.
class io_engine {
public:
    virtual ~io_engine() = default;
    [[nodiscard]] virtual const char* name() const = 0;
    [[nodiscard]] virtual std::uint32_t capacity() const = 0;  // most operations in flight
    virtual void start(const read_operation& operation) = 0;  // queued; leaves with the next submit
    virtual void submit() = 0;
    // May operations say `at_once`? Such a one is done when start returns.
    [[nodiscard]] virtual bool reads_at_once() const { return false; }
    // Are there results that reap hands over without asking the kernel?
    [[nodiscard]] virtual bool has_finished() const { return false; }
    // Tells the kernel, once, of all memory that direct reads will go to, so that it need not pin
    // and let go of it for each. All the areas or, with a negative errno, none; reads go on
    // without.
    virtual int register_memory(const std::vector<memory_area>&) { return -EOPNOTSUPP; }
    // Appends what has finished. Waits up to `wait_ns` for the first if none has; 0 only looks.
    virtual void reap(std::vector<read_result>& out, std::uint64_t wait_ns) = 0;
};

struct memory_piece {
    const std::byte* from = nullptr;
    std::uint64_t bytes = 0;
};

struct placed_piece {
    const std::byte* from = nullptr;
    std::uint64_t bytes = 0;
    std::uint64_t offset = 0;  // in the file
};

class environment {
public:
    virtual ~environment() = default;

    // A handle on whatever the path names, for asking only (O_PATH): opening it waits for nothing.
    // `start` is a directory handle for relative paths. -EINVAL, here and in every call that takes
    // a name: it has a zero byte.
    virtual int find(int start, const std::string& path) = 0;
    // Where the handle's file really lies, without links; negative errno if that cannot be told.
    virtual int real_path(int handle, std::string& out) = 0;
    // As the file system has them now: a network file system asks its server. To be asked after the
    // open that reads go by, since some servers look for changes only at an open.
    virtual int facts(int handle, file_facts& out) = 0;
    // The size of an open file; the facts have it too, but take longer.
    virtual std::int64_t size_bytes(int handle) {
        file_facts out;
        const int code = facts(handle, out);
        return code != 0 ? code : static_cast<std::int64_t>(out.identity.size_bytes);
    }
    // The same by what this machine knows: no server is asked.
    virtual std::int64_t known_size_bytes(int handle) { return size_bytes(handle); }
    // Is the file of an open handle without a name? By what this machine knows: no server is asked.
    virtual bool has_no_name(int) { return false; }
    // Opens for reading what a find handle stands for: the same file, whatever the path means by
    // now.
    // Waits where a lease stands in the way, past signals too: -ECANCELED after one that asks for
    // the program's end (os/came_signal.hpp). So do open_writing and open_direct.
    virtual int open_found(int handle) = 0;
    // The quick way for a name that is its own real path: opens the regular file that `path` names
    // (from the directory handle `start`, if it is relative), provided that there is no link in it,
    // not even in front, and no way up ("..") out of `start`. What is known to be no regular file
    // is not opened. Any negative errno means: go the way above, which decides.
    virtual int open_plain(int, const std::string&) { return -EOPNOTSUPP; }
    // Makes room for about `count` handles beside `handle` at once. A table of handles that grows
    // while threads use it stops all of them for a while at each doubling.
    virtual void reserve_handles(int, std::size_t) {}
    virtual void close(int handle) = 0;
    virtual std::int64_t read(int fd, std::byte* to, std::uint64_t bytes, std::uint64_t offset) = 0;

    // Writing. Opens the file of an open handle once more, to read and write.
    virtual int open_writing(int) { return -EOPNOTSUPP; }
    // Makes an empty regular file of that name, which has no slash in it, in the directory of a
    // find handle. -EEXIST: there is something of that name, a link too.
    virtual int create(int, const std::string&) { return -EOPNOTSUPP; }
    // Takes the name away, of anything but a directory; gives a file another. The names have no
    // slash in them.
    virtual int unlink(int, const std::string&) { return -EOPNOTSUPP; }
    virtual int rename(int, const std::string&, int, const std::string&) { return -EOPNOTSUPP; }
    // Pieces of memory, at least one and at most 1024, to places of the file that follow each other
    // from `offset` on.
    virtual std::int64_t write(int, const memory_piece*, std::size_t, std::uint64_t) {
        return -EOPNOTSUPP;
    }
    // The same for pieces that lie anywhere before the file's end, in order: many in a call, and
    // threads do not wait for each other. The count of bytes from the first on that are in the
    // file, and no others; fewer than all, or a negative errno: this is no way to write the next,
    // so use the one above.
    virtual std::int64_t write_scattered(int, const placed_piece*, std::size_t) {
        return -EOPNOTSUPP;
    }
    // What was written by this handle to a file that changes_elsewhere has come to its server when
    // this returns, or the first error since the last call is told: a server may refuse what the
    // operating system took. Callers use hand_over_file() below.
    virtual int hand_over(int fd) { return sync(fd); }
    // Returns after all that was written to the file is on storage. Callers use sync_file() below.
    virtual int sync(int) { return -EOPNOTSUPP; }
    // As write, and leaves no event in a watch (below): for the writes of the watcher itself.
    // -EOPNOTSUPP: the system has no such way.
    virtual std::int64_t write_unwatched(int, const memory_piece*, std::size_t, std::uint64_t) {
        return -EOPNOTSUPP;
    }
    virtual int truncate(int, std::uint64_t) { return -EOPNOTSUPP; }

    // Opens the file of an open handle once more, for reads past the page cache (O_DIRECT).
    // `grain_bytes`: address, offset and length of such reads must be multiples of it. -EINVAL
    // where the file system has no such reads.
    virtual int open_direct(int, std::uint32_t&) { return -EOPNOTSUPP; }
    // 1 if the page cache has all of a range of an open file, 0 if not; negative errno: that cannot
    // be told.
    virtual int in_page_cache(int, std::uint64_t, std::uint64_t) { return -EOPNOTSUPP; }
    // A hint: a range of an open file will be read soon. The page cache begins to read what it does
    // not have of it, as a rule without a wait for the disk. Some systems heed no more than 128 KiB
    // of one call.
    virtual int will_need(int, std::uint64_t, std::uint64_t) { return -EOPNOTSUPP; }

    // Where in an open file from `offset` on the next bytes are that were ever written, and where
    // those end (which may be the file's end); all between are zeros. INT64_MAX: there are none.
    virtual std::int64_t next_data(int, std::uint64_t) { return -EOPNOTSUPP; }
    virtual std::int64_t next_hole(int, std::uint64_t) { return -EOPNOTSUPP; }

    // Maps a part of an open file for reading, shared with all processes; `offset` is a multiple of
    // the page size. An environment that only stands between others need not have it.
    virtual int map_file(int, std::uint64_t, std::uint64_t, void*&) { return -EOPNOTSUPP; }
    virtual void unmap_file(void*, std::uint64_t) {}
    // Brings all pages of a mapped range into memory and into the mapping (Linux 5.14). 0, or a
    // negative errno: -EFAULT, the file has no such page, or it cannot be read; -EINVAL, the system
    // is older. Never a signal.
    virtual int populate(void*, std::uint64_t) { return -EINVAL; }
    // May the file change in ways that this kernel does not see? True of file systems whose files
    // another machine or a server changes too (NFS, FUSE, cluster file systems), and of those that
    // are not known.
    virtual bool changes_elsewhere(int) { return false; }
    // For each piece of a mapped range (a multiple of the page size; the last may be shorter): is
    // all of it in memory?
    virtual int resident(void*, std::uint64_t, std::uint64_t, std::vector<bool>&) {
        return -EOPNOTSUPP;
    }

    // A read lease on an open file (fcntl): while it is held, an open for writing or a cut by
    // others waits for us, up to the system's lease-break-time. It ends with the handle's close. 0,
    // or a negative errno: there is a writer, the file belongs to another user, or the file system
    // has no leases or has files that are changed elsewhere too. -EOPNOTSUPP: an environment that
    // only stands between others; its files are not watched.
    virtual int take_lease(int) { return -EOPNOTSUPP; }
    // Does a writer wait for the lease's end?
    virtual bool is_lease_awaited(int) { return false; }
    // Before the handle's close, since a child of fork() may have the handle too.
    virtual void end_lease(int) {}
    // A lease on a file that is open to be written by this handle alone, and by no other handle of
    // any process, for reading either: while it is held, every other open and every cut waits. For
    // microseconds only. -EAGAIN: another handle is open. Other negative errnos: the file system
    // has no such leases, is changed elsewhere too, or does not note stores to mappings in a file's
    // times.
    virtual int take_sole_lease(int) { return -EOPNOTSUPP; }

    // A watch tells which files were written or cut, and which handles that could write were
    // closed, by any process. open_watch gives a handle to close. watch_file begins to watch the
    // file of an open handle, and gives its number in this watch. read_watch appends the numbers of
    // the files that events came for; `all_files`: events were lost.
    static constexpr int all_files = -1;
    virtual int open_watch() { return -EOPNOTSUPP; }
    virtual int watch_file(int, int) { return -EOPNOTSUPP; }
    virtual void end_watch(int, int) {}
    virtual void read_watch(int, std::vector<int>&) {}

    // Queue for one service thread. `want_uring` false: plain pread. Null if io_uring was wanted
    // and is refused; `why`.
    virtual std::unique_ptr<io_engine> make_io_engine(bool want_uring, std::uint32_t depth,
                                                      std::string& why) = 0;
};

// Repeats a call while the operating system says to try again, but not for ever: a thread that
// serves others must not hang in it.
inline constexpr int most_attempts = 1000;
inline bool says_again(std::int64_t result) { return result == -EINTR || result == -EAGAIN; }
template <typename Call>
auto tried_again(const Call& call) {
    auto result = call();
    for (int i = 1; i < most_attempts && says_again(result); ++i) result = call();
    return result;
}

// All that was written to the file is on storage. A file system that has no fsync for a file says
// EINVAL: there is nothing to wait for, and no failure.
inline int sync_file(environment& env, int fd) {
    const int code = tried_again([&] { return env.sync(fd); });
    return code == -EINVAL ? 0 : code;
}

inline int hand_over_file(environment& env, int fd) {
    const int code = tried_again([&] { return env.hand_over(fd); });
    return code == -EINVAL ? 0 : code;
}

// The real one. Lives as long as the process.
environment& linux_environment();

std::unique_ptr<io_engine> make_pread_engine(environment& env);
std::unique_ptr<io_engine> make_uring_engine(std::uint32_t depth, std::string& why);

}  // namespace penstock::host
