// Open files: their bytes, holes, and when they are on storage.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "os/file_kind.hpp"
#include "mount/caller.hpp"
#include "mount/file_buffer.hpp"
#include "mount/pooled_reads.hpp"
#include "mount/tree.hpp"

namespace penstock::mount {

namespace {

// The kernel names the owner of locks where a program's own call comes past its pages, also of a
// file that is opened for direct access here, and not where it gets pages for itself.
region::program_access::kind kind_of(const fuse_file_info* open) {
    return (open->flags & O_DIRECT) != 0 || open->lock_owner != 0
               ? region::program_access::kind::direct
               : region::program_access::kind::fetch;
}

bool may_store(const fuse_file_info* open) { return (open->flags & O_ACCMODE) == O_RDWR; }

bool may_write(const fuse_file_info* open) { return (open->flags & O_ACCMODE) != O_RDONLY; }

// Direct access is the kernel's between the program and us; our own reads and writes may have any
// address and length. Nor may the descriptor append: the kernel writes pages back through it that
// the program changed in a mapping, and those have their places. The open does not wait for a
// program that has a lease on the file.
int our_flags(int flags) {
    return (flags & ~(O_DIRECT | O_APPEND | ((flags & O_CREAT) == 0 ? O_NOFOLLOW : 0))) |
           O_CLOEXEC | O_NONBLOCK;
}

// Opens a file of the source as the program wants it: a descriptor, or a negative errno, of which
// EWOULDBLOCK says that a lease has to go first. An append-only file can only be opened to append,
// so that descriptor appends, and `marks` says so to later operations on the handle.
int open_source(const node& file_node, int flags, std::uint64_t& marks) {
    const std::string path = path_of(file_node.fd);
    int fd = ::open(path.c_str(), our_flags(flags));
    if (fd < 0 && errno == EPERM && (flags & O_APPEND) != 0) {
        fd = ::open(path.c_str(), our_flags(flags) | O_APPEND);
        if (fd >= 0) marks |= only_appends;
    }
    if (fd < 0) return -errno;
    // Reads of a file that is made up must not wait. Other file systems may give the flag a
    // meaning.
    if ((marks & judges_reader) == 0) ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    return fd;
}

// A program that does not want to wait for a lease does so for this moment all the same: regions
// and kernels hold one while they ask whether a file has writers (os/file_kind.hpp).
class patience {
public:
    explicit patience(int flags) : is_short_((flags & O_NONBLOCK) != 0) {}
    // True: the program is to be told EWOULDBLOCK.
    [[nodiscard]] bool is_over() const {
        return is_short_ && std::chrono::steady_clock::now() - begin_ > longest_moment;
    }

private:
    static constexpr std::chrono::milliseconds longest_moment{100};
    const bool is_short_;
    const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// The version of a file that a program has opened. The kernel does not ask for facts at an open:
// for a second it goes on by those that it was told last, and reads no further than their size. So
// it is told to ask where they are no longer true. It is not held up by that, since no page is
// concerned. With the lock, so that no other open of the file is answered before. 0 or an errno.
int version_at_open(tree& t, node& file_node, const fuse_file_info* open, source_version& now) {
    const bool judges_size = (open->fh & is_ours) == 0;
    const std::lock_guard hold(file_node.lock);
    if (const int code = look_at_source(file_node, handle_of(open), judges_size, now); code != 0)
        return -code;
    if (file_node.told == now.identity) return 0;
    fuse_lowlevel_notify_inval_inode(t.session, t.nodes.number_of(file_node), -1, 0);
    file_node.told = now.identity;
    return 0;
}

// The kernel keeps the pages it has of a file that did not change since they came.
void keep_cache_if_unchanged(node& file_node, const source_version& now, fuse_file_info* open) {
    const std::lock_guard hold(file_node.lock);
    if (!now.is_proof) return file_node.pages.forget();
    const kept_pages::answer told = file_node.pages.opened(now.identity);
    open->keep_cache = told.keeps;
    open->fh |= std::uint64_t{told.dropping} << dropping_shift;
}

// The program that has it open so closes it: its open dropped the kernel's pages, if it was to.
void note_dropped(node& file_node, const fuse_file_info* open) {
    const auto number = static_cast<std::uint32_t>(open->fh >> dropping_shift);
    if (number == 0) return;
    const std::lock_guard hold(file_node.lock);
    file_node.pages.dropped(number);
}

// Marks files that bypass the kernel's cache. One of a false size, because the kernel would believe
// the size. An append-only one that a mapping could store to, because stores have no way to the
// file: so the kernel refuses the mapping (ENODEV). With a buffer it does not, and msync reports
// that such stores are lost.
void judge(const source_version& now, fuse_file_info* open) {
    if (now.has_false_size) open->fh |= has_false_size;
    open->direct_io =
        (open->fh & has_false_size) != 0 || ((open->fh & only_appends) != 0 && may_store(open));
}

bool is_buffered(const tree& t, const fuse_file_info* open) {
    return t.buffer != nullptr && (open->fh & has_false_size) == 0;
}

// Counts an open in. With a buffer the kernel keeps no pages but mapped ones, so that each byte is
// kept once. Pages that are written it keeps: a write past its pages would meet a page that a
// mapping brings in meanwhile and stores to, and that page goes to the file later with the bytes
// from before the write. False: the program wants what the source does not allow.
bool begin_use(tree& t, node& file_node, fuse_file_info* open) {
    const file_way way = begin_way(t, file_node, *open);
    if (way == file_way::refused) return false;
    const unsigned of_program = (open->fh & is_ours) == 0 ? 1 : 0;
    if (may_write(open)) ++file_node.writers;
    t.counted.opens.fetch_add(of_program, std::memory_order_relaxed);
    if (way == file_way::passed) {
        t.counted.passed_opens.fetch_add(of_program, std::memory_order_relaxed);
        open->fh |= is_passed;
        return true;
    }
    if (way == file_way::served_uncached) open->direct_io = 1;
    if (may_store(open)) ++file_node.storers;
    if ((open->fh & has_false_size) != 0) {
        const std::lock_guard hold(file_node.lock);
        ++file_node.told_opens;
    }
    if (is_buffered(t, open)) t.buffer->opened(file_node, handle_of(open));
    const bool is_pooled = t.pooled != nullptr && (open->fh & (has_false_size | is_ours)) == 0;
    if (!is_pooled && !is_buffered(t, open)) return true;
    if (t.agreed.uncached.reached) open->direct_io |= (open->flags & O_ACCMODE) == O_RDONLY;
    else if (is_pooled) t.pooled->say_copies();
    else t.buffer->say_copies();
    return true;
}

bool has_no_name(int fd) {
    struct stat facts {};
    return ::fstat(fd, &facts) == 0 && facts.st_nlink == 0;
}

void end_telling(node& file_node) {
    const std::lock_guard hold(file_node.lock);
    if (--file_node.told_opens == 0) file_node.told_bytes = 0;
}

void end_use(tree& t, node& file_node, const fuse_file_info* open) {
    if (may_write(open)) --file_node.writers;
    if ((open->fh & is_passed) == 0) {
        if (may_store(open)) --file_node.storers;  // the kernel has sent all that was stored
        if (is_buffered(t, open)) t.buffer->closed(file_node);
        if (t.pooled != nullptr && has_no_name(handle_of(open)))
            t.pooled->removed({file_node.device, file_node.inode});
        if ((open->fh & has_false_size) != 0) end_telling(file_node);
    }
    ::close(handle_of(open));
    end_way(t, file_node, *open);
    if ((open->fh & is_ours) == 0) t.counted.closes.fetch_add(1, std::memory_order_relaxed);
}

void reply_open(fuse_req_t request, tree& t, node& file_node, const fuse_file_info& open) {
    const int answer = (open.fh & is_passed) != 0 ? reply_passed(request, file_node, open)
                                                  : fuse_reply_open(request, &open);
    if (answer == -ENOENT)
        end_use(t, file_node, &open);  // the program was interrupted and heard nothing
}

// The kernel gets these first bytes; if it takes none, it goes on with the size it had.
void tell(fuse_session* session, std::uint64_t number, std::vector<char>& bytes) {
    fuse_bufvec from = FUSE_BUFVEC_INIT(bytes.size());
    from.buf[0].mem = bytes.data();
    fuse_lowlevel_notify_store(session, number, 0, &from, static_cast<fuse_buf_copy_flags>(0));
}

// Copies within the kernel (sendfile) go by the size and by the kernel's pages, which all users
// share. So both get the bytes that the file gives to any user now, for as long as it is open.
// True: another thread answers.
bool reply_told_open(fuse_req_t request, tree& t, node& file_node, const fuse_file_info& open) try {
    std::vector<char> bytes = public_content_of(file_node);
    if (bytes.empty()) return false;
    file_node.told_bytes = bytes.size();
    fuse_file_info told = open;
    told.keep_cache = 1;
    told.fh &= (1ull << dropping_shift) - 1;
    return t.late.put([request, &t, &file_node, told, bytes = std::move(bytes)]() mutable {
        tell(t.session, t.nodes.number_of(file_node), bytes);
        reply_open(request, t, file_node, told);
    });
} catch (const std::bad_alloc&) {
    return false;
}

// The kernel checked the mode, and root may open anything. Where rights depend on more than the
// mode, the caller opens.
int open_as_judged(fuse_req_t request, const node& file_node, fuse_file_info* open) {
    std::optional<as_user> caller;
    if ((open->fh & judges_reader) != 0) caller.emplace(request, file_node);
    if (caller && !caller->is_so()) return -EACCES;
    return open_source(file_node, open->flags, open->fh);
}

// The kernel opens a program to run it. A mount in the source may forbid that for all its files.
bool is_refused_as_program(const node& file_node, const fuse_file_info* open) {
    constexpr int to_run = 0x20;  // the kernel's FMODE_EXEC, which no header for programs has
    struct statvfs facts {};
    return (open->flags & to_run) != 0 && ::fstatvfs(file_node.fd, &facts) == 0 &&
           (facts.f_flag & ST_NOEXEC) != 0;
}

// The kernel checked the mode of a file that is made up, but its bytes may depend on more.
int look_for_judges(const node& file_node, fuse_file_info* open) {
    struct stat facts {};
    if (!is_made_up(file_node)) return 0;
    if (::fstatat(file_node.fd, "", &facts, AT_EMPTY_PATH) != 0) return errno;
    if (facts.st_blocks == 0) open->fh |= judges_reader;
    return 0;
}

// An attempt (answer_without_waiting).
bool try_to_open(fuse_req_t request, node& file_node, fuse_file_info wanted, const patience& left) {
    fuse_file_info* const open = &wanted;
    tree& t = tree_of(request);  // the request is gone with its answer
    const auto refuse = [request](int code) {
        reply(request, code);
        return true;
    };
    if (const int code = look_for_judges(file_node, open); code != 0) return refuse(code);
    look_for_stores_past(t, file_node);
    const int fd = open_as_judged(request, file_node, open);
    if (fd == -EWOULDBLOCK && !left.is_over()) return false;
    if (fd < 0) return refuse(-fd);
    open->fh |= static_cast<std::uint64_t>(fd);
    if (t.openers.has(fuse_req_ctx(request)->pid)) {
        open->fh |= is_ours;
        open->keep_cache = 1;
    }
    source_version now;
    int code = version_at_open(t, file_node, open, now);
    if (code == 0 && (open->fh & is_ours) == 0) judge(now, open);
    if (code == 0 && !begin_use(t, file_node, open)) code = EINVAL;
    if (code != 0) {
        ::close(fd);
        return refuse(code);
    }
    if ((open->fh & (is_ours | is_passed)) == 0) keep_cache_if_unchanged(file_node, now, open);
    const bool is_told = (open->fh & has_false_size) != 0 && now.identity.size_bytes == 0 &&
                         (open->flags & O_ACCMODE) == O_RDONLY;
    if (!is_told || !reply_told_open(request, t, file_node, *open))
        reply_open(request, t, file_node, *open);
    return true;
}

void open_file(fuse_req_t request, fuse_ino_t number, fuse_file_info* open) {
    node& file_node = begin(request, number);
    if (is_refused_as_program(file_node, open)) return reply(request, EACCES);
    answer_without_waiting(request, -1,
                           [request, &file_node, wanted = *open, left = patience(open->flags)] {
                               return try_to_open(request, file_node, wanted, left);
                           });
}

// Makes a file as its maker, and never opens one that is there: the kernel believes that there is
// no such name, so it judged the folder alone. A descriptor, or a negative errno.
//
// ESTALE has the kernel look again, and judge what has the name by now as it judges any open. It
// does so once for a program. So a name that comes and goes in the source is tried several times
// before: one moment without it is enough. ESTALE is also the answer where another program took a
// lease on the new file before it was open.
int make_in_source(fuse_req_t request, const node& at, const char* name, mode_t mode, int flags) {
    constexpr int most_tries = 50;
    const bool is_to_be_new = (flags & O_EXCL) != 0;
    const as_caller caller(request, mode);
    int fd = -1;
    for (int i = 0; i < most_tries && fd < 0; ++i) {
        fd = ::openat(at.fd, name, our_flags(flags | O_CREAT | O_EXCL), caller.mode_of(mode));
        if (fd < 0 && (errno != EEXIST || is_to_be_new)) break;
    }
    if (fd < 0 && !is_to_be_new && (errno == EEXIST || errno == EWOULDBLOCK)) return -ESTALE;
    if (fd < 0) return -errno;
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    return fd;
}

// The node of the file that was made, whatever has its name by now. 0 or an errno.
int entry_of_made(tree& t, int fd, fuse_entry_param& entry) {
    return entry_of(t, ::open(path_of(fd).c_str(), O_PATH | O_CLOEXEC), entry);
}

void create_file(fuse_req_t request, fuse_ino_t parent, const char* name, mode_t mode,
                 fuse_file_info* open) {
    node& at = begin(request, parent);
    tree& t = tree_of(request);  // the request is gone with its answer
    place_for_node place(at);
    if (place.code() != 0) return reply(request, place.code());
    const int fd = make_in_source(request, at, name, mode, open->flags);
    if (fd < 0) return reply(request, -fd);
    fuse_entry_param entry{};
    place.give();
    int code = entry_of_made(t, fd, entry);
    open->fh |= static_cast<std::uint64_t>(fd);
    if (code == 0 && !begin_use(t, t.nodes.at(entry.ino), open)) code = EINVAL;
    if (code != 0) {
        ::close(fd);
        if (entry.ino != 0) t.nodes.forget(entry.ino, 1);
        return reply(request, code);
    }
    node& made = t.nodes.at(entry.ino);
    const int answer = (open->fh & is_passed) != 0 ? reply_passed(request, made, entry, *open)
                                                   : fuse_reply_create(request, &entry, open);
    if (answer == -ENOENT) end_use(t, made, open);
    forget_unheard(t, entry, answer);
}

// False: the source is to be read.
bool read_buffer(fuse_req_t request, node& file_node, std::size_t bytes, off_t offset,
                 const fuse_file_info* open) {
    file_buffer* const buffer = tree_of(request).buffer.get();
    if (buffer == nullptr) return false;
    const std::shared_ptr<buffered_file> file = file_buffer::file_of(file_node);
    if (file == nullptr) return false;
    thread_local std::vector<std::byte> room;
    try {
        if (room.size() < bytes) room.resize(bytes);
    } catch (const std::bad_alloc&) {
        return false;
    }
    const std::int64_t got = buffer->read(*file, file_node, handle_of(open),
                                          static_cast<std::uint64_t>(offset), room.data(), bytes);
    if (got < 0) buffer->count_outside();
    if (got < 0) return false;
    fuse_reply_buf(request, reinterpret_cast<const char*>(room.data()),
                   static_cast<std::size_t>(got));  // the node may be gone after it
    if (static_cast<std::size_t>(got) == bytes)
        buffer->read_ahead(*file, static_cast<std::uint64_t>(offset), bytes);
    return true;
}

// The same of a pool.
bool read_pool(fuse_req_t request, const node& file_node, std::size_t bytes, off_t offset,
               const fuse_file_info* open) {
    tree& t = tree_of(request);
    if (t.pooled == nullptr) return false;
    thread_local std::vector<std::byte> room;
    try {
        if (room.size() < bytes) room.resize(bytes);
    } catch (const std::bad_alloc&) {
        return false;
    }
    const std::uint64_t got =
        t.pooled->read(t.shared->hub(), {file_node.device, file_node.inode}, handle_of(open),
                       static_cast<std::uint64_t>(offset), room.data(), bytes);
    if (got == 0) return false;
    t.counted.bytes_from_buffers.fetch_add(got, std::memory_order_relaxed);
    fuse_reply_buf(request, reinterpret_cast<const char*>(room.data()), got);
    return true;
}

void read_file(fuse_req_t request, fuse_ino_t number, std::size_t bytes, off_t offset,
               fuse_file_info* open) {
    node& file_node = begin(request, number);
    counters& counted = tree_of(request).counted;
    counted.reads.fetch_add(1, std::memory_order_relaxed);
    counted.bytes_asked.fetch_add(bytes, std::memory_order_relaxed);
    if ((open->fh & has_false_size) != 0) return read_what_comes(request, open, bytes, offset);
    const region::program_access access(file_of(request, file_node), kind_of(open),
                                        static_cast<std::uint64_t>(offset), bytes);
    // Counted first: a program that has its bytes finds them counted.
    const auto answer = [&](const std::byte* first, std::uint64_t count, std::uint64_t held) {
        counted.bytes_from_devices.fetch_add(held, std::memory_order_relaxed);
        fuse_reply_buf(request, reinterpret_cast<const char*>(first), count);
    };
    if (access.read_devices(handle_of(open), static_cast<std::uint64_t>(offset), bytes, answer) !=
        0)
        return;
    if (read_buffer(request, file_node, bytes, offset, open) ||
        read_pool(request, file_node, bytes, offset, open))
        return;
    fuse_bufvec from = FUSE_BUFVEC_INIT(bytes);
    from.buf[0].flags = static_cast<fuse_buf_flags>(FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK);
    from.buf[0].fd = handle_of(open);
    from.buf[0].pos = offset;
    fuse_reply_data(request, &from, FUSE_BUF_SPLICE_MOVE);
}

// How much of it was written, or a negative errno.
ssize_t write_at(int fd, fuse_bufvec& from, off_t offset) {
    fuse_bufvec to = FUSE_BUFVEC_INIT(fuse_buf_size(&from));
    to.buf[0].flags = static_cast<fuse_buf_flags>(FUSE_BUF_IS_FD | FUSE_BUF_FD_SEEK);
    to.buf[0].fd = fd;
    to.buf[0].pos = offset;
    return fuse_buf_copy(&to, &from, static_cast<fuse_buf_copy_flags>(0));
}

// How many bytes, or a negative errno.
ssize_t into_memory(fuse_bufvec& from, std::vector<char>& bytes) {
    bytes.resize(fuse_buf_size(&from));
    fuse_bufvec to = FUSE_BUFVEC_INIT(bytes.size());
    to.buf[0].mem = bytes.data();
    return fuse_buf_copy(&to, &from, static_cast<fuse_buf_copy_flags>(0));
}

// Behind what is there now, which may be more than the kernel knows of: what others appended in the
// source is not written over.
ssize_t append(int fd, fuse_bufvec& from) {
    std::vector<char> bytes;
    const ssize_t got = into_memory(from, bytes);
    if (got < 0) return got;
    const iovec all{bytes.data(), static_cast<std::size_t>(got)};
    const ssize_t written = ::pwritev2(fd, &all, 1, 0, RWF_APPEND);
    return written < 0 ? -errno : written;
}

// Somewhere behind the end that the file has, or had when the kernel heard of it last.
ssize_t append_told(fuse_req_t request, node& file_node, int fd, fuse_bufvec& from, off_t offset) {
    struct stat facts {};
    if (::fstat(fd, &facts) != 0) return -errno;
    const auto first = static_cast<std::uint64_t>(std::min<off_t>(offset, facts.st_size));
    region::program_write access(file_of(request, file_node), region::program_access::kind::direct,
                                 first, UINT64_MAX);
    const ssize_t written = append(fd, from);
    access.wrote(first, UINT64_MAX);
    tell_buffer(request, file_node, first, UINT64_MAX);
    return written;
}

ssize_t write_told(fuse_req_t request, node& file_node, fuse_file_info* open, fuse_bufvec& from,
                   off_t offset) {
    const std::size_t bytes = fuse_buf_size(&from);
    region::program_write access(file_of(request, file_node), kind_of(open),
                                 static_cast<std::uint64_t>(offset), bytes);
    const ssize_t written = write_at(handle_of(open), from, offset);
    access.wrote(static_cast<std::uint64_t>(offset), bytes);
    tell_buffer(request, file_node, static_cast<std::uint64_t>(offset), bytes);
    return written;
}

// What a program stored to a mapping.
ssize_t write_back(fuse_req_t request, node& file_node, int fd, fuse_bufvec& from, off_t offset) {
    std::vector<char> bytes;
    const ssize_t got = into_memory(from, bytes);
    if (got < 0) return got;
    const as_ordinary writer(other_user);  // which program stored it is not known
    const auto* const first = reinterpret_cast<const std::byte*>(bytes.data());
    const std::int64_t written = region::program_write::write_back(
        file_of(request, file_node), fd, first, static_cast<std::uint64_t>(got),
        static_cast<std::uint64_t>(offset));
    tell_buffer(request, file_node, static_cast<std::uint64_t>(offset),
                static_cast<std::uint64_t>(got));
    tree_of(request).counted.stores_written.fetch_add(1, std::memory_order_relaxed);
    return written;
}

ssize_t write_somehow(fuse_req_t request, node& file_node, fuse_file_info* open, fuse_bufvec& from,
                      off_t offset) {
    // The kernel does not know that the file is append-only, so it lets programs store to mappings
    // and take O_APPEND back.
    if ((open->fh & only_appends) != 0 && (open->writepage != 0 || (open->flags & O_APPEND) == 0))
        return -EPERM;
    if (open->writepage != 0) return write_back(request, file_node, handle_of(open), from, offset);
    std::optional<as_user> judged;
    std::optional<as_writer> writer;
    if ((open->fh & judges_reader) != 0) judged.emplace(request);
    else writer.emplace(request, handle_of(open));
    if (judged && !judged->is_so()) return -EACCES;
    if ((open->flags & O_APPEND) != 0)
        return append_told(request, file_node, handle_of(open), from, offset);
    return write_told(request, file_node, open, from, offset);
}

void write_file(fuse_req_t request, fuse_ino_t number, fuse_bufvec* from, off_t offset,
                fuse_file_info* open) {
    node& file_node = begin(request, number);
    const ssize_t written = write_somehow(request, file_node, open, *from, offset);
    if (written < 0) return reply(request, static_cast<int>(-written));
    counters& counted = tree_of(request).counted;
    counted.writes.fetch_add(1, std::memory_order_relaxed);
    counted.bytes_written.fetch_add(static_cast<std::uint64_t>(written), std::memory_order_relaxed);
    fuse_reply_write(request, static_cast<std::size_t>(written));
}

// Each close of a descriptor: file systems that report errors then do so for a copy of ours too. At
// the mount's limit on open files there is no copy, which is no error of the file. File systems
// that have a server write at a close what they write at an fsync.
void flush_file(fuse_req_t request, fuse_ino_t number, fuse_file_info* open) {
    node& file_node = begin(request, number);
    note_dropped(file_node, open);
    const int copy = ::fcntl(handle_of(open), F_DUPFD_CLOEXEC, 0);
    if (copy >= 0) return reply(request, ::close(copy) != 0 ? errno : 0);
    const host::file_system_kind& kind = *file_node.lies_on;
    const bool is_written_now = may_write(open) && !kind.is_local && !kind.is_made_up;
    reply(request, is_written_now && ::fsync(handle_of(open)) != 0 ? errno : 0);
}

// The last one. Whether another program wrote between our writes cannot be told, so after them the
// next open has the kernel read again.
void release_file(fuse_req_t request, fuse_ino_t number, fuse_file_info* open) {
    node& file_node = begin(request, number);
    note_dropped(file_node, open);
    if (may_write(open)) {
        const std::lock_guard hold(file_node.lock);
        file_node.pages.forget();
    }
    end_use(tree_of(request), file_node, open);
    reply(request, 0);
}

void sync_file(fuse_req_t request, fuse_ino_t number, int data_only, fuse_file_info* open) {
    begin(request, number);
    if (open->fh & is_ours) return reply(request, 0);
    reply(request,
          (data_only ? ::fdatasync(handle_of(open)) : ::fsync(handle_of(open))) != 0 ? errno : 0);
}

void allocate(fuse_req_t request, fuse_ino_t number, int mode, off_t offset, off_t bytes,
              fuse_file_info* open) {
    node& file_node = begin(request, number);
    // Other modes move what lies behind.
    constexpr int in_place =
        FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE | FALLOC_FL_UNSHARE_RANGE;
    const auto first = static_cast<std::uint64_t>(offset),
               count = (mode & ~in_place) == 0 ? static_cast<std::uint64_t>(bytes) : UINT64_MAX;
    const as_writer writer(request, handle_of(open));
    region::program_write access(file_of(request, file_node), region::program_access::kind::direct,
                                 first, count);
    const int code = ::fallocate(handle_of(open), mode, offset, bytes) != 0 ? errno : 0;
    access.wrote(first, count);
    tell_buffer(request, file_node, first, count);
    reply(request, code);
}

// The kernel asks for holes and data alone. Where a program stored to a mapping of a hole, the
// source has data only after the kernel wrote that back, and cp copies no holes.
void seek(fuse_req_t request, fuse_ino_t number, off_t offset, int whence, fuse_file_info* open) {
    const node& file_node = begin(request, number);
    after_stores_to(request, file_node, [request, fd = handle_of(open), offset, whence] {
        const off_t at = ::lseek(fd, offset, whence);
        if (at < 0) reply(request, errno);
        else fuse_reply_lseek(request, at);
    });
}

// An answer has 32 bits for the count, so at most as much at once as the kernel writes in one call.
void copy_range(fuse_req_t request, fuse_ino_t number, off_t from_offset, fuse_file_info* from,
                fuse_ino_t into, off_t to_offset, fuse_file_info* to, std::size_t bytes,
                int flags) {
    constexpr std::size_t most_bytes = 0x7ffff000;
    begin(request, number);
    bytes = std::min(bytes, most_bytes);
    const auto first = static_cast<std::uint64_t>(to_offset);
    const as_writer writer(request, handle_of(to));
    node& to_node = tree_of(request).nodes.at(into);
    region::program_write access(file_of(request, to_node), region::program_access::kind::direct,
                                 first, bytes);
    const ssize_t copied = ::copy_file_range(handle_of(from), &from_offset, handle_of(to),
                                             &to_offset, bytes, static_cast<unsigned>(flags));
    const int code = copied < 0 ? errno : 0;
    access.wrote(first, bytes);
    tell_buffer(request, to_node, first, bytes);
    if (copied < 0) return reply(request, code);
    fuse_reply_write(request, static_cast<std::size_t>(copied));
}

}  // namespace

void add_files(fuse_lowlevel_ops& table) {
    table.open = open_file;
    table.create = create_file;
    table.read = read_file;
    table.write_buf = write_file;
    table.flush = flush_file;
    table.release = release_file;
    table.fsync = sync_file;
    table.fallocate = allocate;
    table.lseek = seek;
    table.copy_file_range = copy_range;
}

}  // namespace penstock::mount
