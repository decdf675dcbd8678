// The real operating system behind the seam.
#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <memory>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "os/came_signal.hpp"
#include "os/change_watch.hpp"
#include "os/env.hpp"
#include "os/file_kind.hpp"
#include "os/file_system.hpp"
#include "os/own_mounts.hpp"
#include "os/patient_open.hpp"
#include "os/process_owner.hpp"
#include "os/rested_files.hpp"

namespace penstock::host {

namespace {

std::int64_t to_ns(const statx_timestamp& t) {
    return std::int64_t{t.tv_sec} * 1000000000 + t.tv_nsec;
}

// Newer than some headers. The number of a mount that is never given to another one (Linux 6.8).
constexpr unsigned wants_unique_mount = 0x4000;

// From Linux 6.13 on some file systems give every change that may have been noticed a time of its
// own (multigrain timestamps). Elsewhere two changes within one clock tick leave equal times.
bool kernel_has_exact_times() {
    static const bool has = [] {
        utsname name{};
        unsigned major = 0, minor = 0;
        return uname(&name) == 0 && std::sscanf(name.release, "%u.%u", &major, &minor) == 2 &&
               (major > 6 || (major == 6 && minor >= 13));
    }();
    return has;
}

const file_system_kind& file_system_of(int fd, const struct statx& info) {
    const bool is_named = (info.stx_mask & wants_unique_mount) != 0 && info.stx_mnt_id != 0;
    return is_named ? host::file_system_of(fd, info.stx_mnt_id) : host::file_system_of(fd);
}

std::int64_t monotonic_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return std::int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

// By the facts that are there already.
bool has_false_size(int handle, const struct statx& info) {
    struct stat facts {};
    facts.st_mode = info.stx_mode;
    facts.st_size = static_cast<off_t>(info.stx_size);
    facts.st_blocks = static_cast<blkcnt_t>(info.stx_blocks);
    return kind_of(handle, facts) == file_kind::false_size;
}

// A read lease is granted only while no writer has the file open; it is given back at
// once. Should a writer come in between, the kernel makes it wait that moment and tells us by a
// signal: SIGURG, which is ignored unless asked for.
writers ask_for_writers(int fd) {
    if (::fcntl(fd, F_SETSIG, SIGURG) != 0) return writers::unknown;
    if (::fcntl(fd, F_SETLEASE, F_RDLCK) != 0)
        return errno == EAGAIN ? writers::some : writers::unknown;
    ::fcntl(fd, F_SETLEASE, F_UNLCK);
    return writers::none;
}

constexpr int populate_read_advice = 22;  // MADV_POPULATE_READ; newer than some headers

constexpr long cachestat_number = 451;  // from Linux 6.5 on; C libraries have no name for it yet

// What offset, length and address of a direct read must be multiples of. File systems that do not
// say so want no more than a page.
int grain_of(int fd, std::uint32_t& grain_bytes) {
    grain_bytes = 4096;
#if defined(STATX_DIOALIGN)
    struct statx info {};
    if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) != 0 ||
        (info.stx_mask & STATX_DIOALIGN) == 0)
        return 0;
    if (info.stx_dio_offset_align == 0) return -EINVAL;
    grain_bytes = std::max(info.stx_dio_mem_align, info.stx_dio_offset_align);
#else
    static_cast<void>(fd);
#endif
    return 0;
}

constexpr std::size_t most_vectors = 1024;  // IOV_MAX

// The negative errno of a call by the name of an open handle. Such a name is always there, unless
// /proc is not: a container or chroot() without it.
int code_of_proc(int error) {
    return error == ENOENT && !is_proc_there() ? -EUNATCH : code_of_open(error);
}

// Opens what a handle stands for, and waits for leases on it, also past signals.
int reopen(int handle, int flags) {
    const std::string name = path_of_descriptor(handle);
    return open_past_signals([&] { return ::open(name.c_str(), flags | O_CLOEXEC | O_NOCTTY); });
}

// Small pieces, gathered first: what is copied from is looked up page by page, and what is copied
// to piece by piece if it is named as another process's.
constexpr std::uint64_t most_gathered_bytes = 512u << 10;

ssize_t copy_gathered(const placed_piece* pieces, const iovec* to, std::size_t number,
                      std::uint64_t bytes, std::unique_ptr<std::byte[]>& room) {
    if (room == nullptr) room = std::make_unique_for_overwrite<std::byte[]>(most_gathered_bytes);
    std::byte* end = room.get();
    for (std::size_t i = 0; i < number; ++i)
        end = std::copy_n(pieces[i].from, pieces[i].bytes, end);
    const iovec from{room.get(), bytes};
    return ::process_vm_readv(::getpid(), to, number, &from, 1, 0);
}

ssize_t copy_as_they_lie(const placed_piece* pieces, const iovec* to, std::size_t number) {
    std::array<iovec, most_vectors> from;
    for (std::size_t i = 0; i < number; ++i)
        from[i] = {const_cast<std::byte*>(pieces[i].from), pieces[i].bytes};
    return ::process_vm_writev(::getpid(), from.data(), number, to, number, 0);
}

// How many bytes, from the first piece on, or a negative errno if none.
std::int64_t copy_to_mapping(std::byte* mapped, std::uint64_t mapped_from,
                             const placed_piece* pieces, std::size_t count) {
    std::array<iovec, most_vectors> to;
    std::unique_ptr<std::byte[]> room;
    std::int64_t all = 0;
    for (std::size_t first = 0; first < count; first += most_vectors) {
        const std::size_t number = std::min(count - first, most_vectors);
        std::uint64_t wanted = 0;
        for (std::size_t i = 0; i < number; ++i) {
            const placed_piece& piece = pieces[first + i];
            to[i] = {mapped + (piece.offset - mapped_from), piece.bytes};
            wanted += piece.bytes;
        }
        const ssize_t done = wanted <= most_gathered_bytes
                                 ? copy_gathered(pieces + first, to.data(), number, wanted, room)
                                 : copy_as_they_lie(pieces + first, to.data(), number);
        if (done < 0) return all != 0 ? all : -errno;
        all += done;
        if (static_cast<std::uint64_t>(done) != wanted) break;
    }
    return all;
}

std::int64_t seek(int fd, std::uint64_t offset, int whence) {
    const off_t at = ::lseek(fd, static_cast<off_t>(offset), whence);
    return at >= 0 ? at : errno == ENXIO ? INT64_MAX : -errno;
}

// The system would take a name with a zero byte for the part before it, which is another file.
bool has_zero_byte(const std::string& name) { return name.find('\0') != std::string::npos; }

class linux_files final : public environment {
public:
    int find(int start, const std::string& path) override {
        if (has_zero_byte(path)) return -EINVAL;
        return tried_again([&] {
            const int handle =
                ::openat(start < 0 ? AT_FDCWD : start, path.c_str(), O_PATH | O_CLOEXEC);
            return handle >= 0 ? handle : code_of_open(errno);
        });
    }

    int real_path(int handle, std::string& out) override {
        char text[PATH_MAX + 1];
        const ssize_t length = ::readlink(path_of_descriptor(handle).c_str(), text, sizeof text);
        if (length < 0) return code_of_proc(errno);
        if (length > PATH_MAX) return -ENAMETOOLONG;
        out.assign(text, static_cast<std::size_t>(length));
        return 0;
    }

    int facts(int handle, file_facts& out) override {
        struct statx info {};
        // A network file system might answer from what its server said some time ago.
        const std::int64_t asked_ns = monotonic_ns();
        const int code = tried_again([&] {
            const int asked = ::statx(handle, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC,
                                      STATX_BASIC_STATS | STATX_BTIME | wants_unique_mount, &info);
            return asked == 0 ? 0 : -errno;
        });
        if (code != 0) return code;
        out.identity = {makedev(info.stx_dev_major, info.stx_dev_minor), info.stx_ino,
                        info.stx_size, to_ns(info.stx_mtime), to_ns(info.stx_ctime)};
        out.is_regular = S_ISREG(info.stx_mode);
        out.is_directory = S_ISDIR(info.stx_mode);
        out.false_size = has_false_size(handle, info);
        const file_system_kind& lies_on = file_system_of(handle, info);
        out.times = lies_on.times;
        out.file_system = lies_on.name;
        out.exact_times = lies_on.has_exact_times && kernel_has_exact_times();
        // Elsewhere it may change: where overlayfs copies a file, the inode keeps its number.
        out.made_ns = lies_on.has_exact_times && (info.stx_mask & STATX_BTIME) != 0
                          ? to_ns(info.stx_btime)
                          : 0;
        out.notes_stores = lies_on.notes_stores;
        out.has_number_for_all = lies_on.has_numbers_for_all;
        // A lease tells of the writers of this machine, which are all only of a local file system.
        out.writing =
            out.is_regular && lies_on.is_local ? ask_for_writers(handle) : writers::unknown;
        if (out.is_regular && out.times != file_times::local)
            out.rested_ns =
                one_of_process<rested_files>().note(out.identity, asked_ns, monotonic_ns());
        timespec now{};
        clock_gettime(CLOCK_REALTIME_COARSE, &now);  // the clock that file times are taken from
        out.now_ns = std::int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
        return 0;
    }

    std::int64_t size_bytes(int handle) override {
        return tried_again([&]() -> std::int64_t {
            struct stat info {};
            return ::fstat(handle, &info) == 0 ? info.st_size : -errno;
        });
    }

    std::int64_t known_size_bytes(int handle) override {
        struct statx info {};
        return ::statx(handle, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_SIZE, &info) == 0
                   ? static_cast<std::int64_t>(info.stx_size)
                   : -errno;
    }

    bool has_no_name(int handle) override {
        struct statx info {};
        return ::statx(handle, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_NLINK, &info) == 0 &&
               (info.stx_mask & STATX_NLINK) != 0 && info.stx_nlink == 0;
    }

    int open_found(int handle) override {
        if (const int code = check_handle_not_own(handle); code != 0) return code;
        const int fd = reopen(handle, O_RDONLY);
        return fd >= 0 ? fd : code_of_proc(errno);
    }

    // Asked first, because opening a device or a pipe may already do something. Should it be
    // exchanged in between, then by a user that may make such things below the root himself, and
    // O_NONBLOCK keeps us from waiting for it. It is taken off then: io_uring does not wait for
    // such a handle either where the file system cannot say that it would.
    int open_plain(int start, const std::string& path) override {
        if (has_zero_byte(path)) return -EINVAL;
        const int from = start < 0 ? AT_FDCWD : start;
        struct stat info {};
        if (::fstatat(from, path.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return -errno;
        if (!S_ISREG(info.st_mode)) return -EOPNOTSUPP;
        if (const int code = check_not_own(info.st_dev); code != 0) return code;
        open_how rules{};
        rules.flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
        rules.resolve = RESOLVE_NO_SYMLINKS | (path[0] == '/' ? 0 : RESOLVE_BENEATH);
        const int fd =
            static_cast<int>(::syscall(SYS_openat2, from, path.c_str(), &rules, sizeof rules));
        if (fd < 0) return code_of_open(errno);
        if (::fcntl(fd, F_SETFL, O_RDONLY) == 0) return fd;
        const int code = -errno;
        ::close(fd);
        return code;
    }

    void reserve_handles(int handle, std::size_t count) override {
        const int highest = ::fcntl(handle, F_DUPFD_CLOEXEC, static_cast<int>(count));
        if (highest >= 0) ::close(highest);
    }

    void close(int handle) override { ::close(handle); }

    std::int64_t read(int fd, std::byte* to, std::uint64_t bytes, std::uint64_t offset) override {
        const ssize_t got = ::pread(fd, to, bytes, static_cast<off_t>(offset));
        return got >= 0 ? got : -errno;
    }

    int open_writing(int fd) override {
        const int writing = reopen(fd, O_RDWR);
        return writing >= 0 ? writing : code_of_proc(errno);
    }

    int unlink(int directory, const std::string& name) override {
        if (has_zero_byte(name)) return -EINVAL;
        if (const int code = check_handle_not_own(directory); code != 0) return code;
        return ::unlinkat(directory, name.c_str(), 0) == 0 ? 0 : -errno;
    }
    int rename(int from, const std::string& name, int to, const std::string& new_name) override {
        if (has_zero_byte(name) || has_zero_byte(new_name)) return -EINVAL;
        if (const int code = check_handle_not_own(from); code != 0) return code;
        return ::renameat(from, name.c_str(), to, new_name.c_str()) == 0 ? 0 : -errno;
    }
    int create(int directory, const std::string& name) override {
        if (has_zero_byte(name)) return -EINVAL;
        if (const int code = check_handle_not_own(directory); code != 0) return code;
        const int fd = ::openat(directory, name.c_str(),
                                O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (fd < 0) return code_of_open(errno);
        ::close(fd);
        return 0;
    }

    std::int64_t write(int fd, const memory_piece* pieces, std::size_t count,
                       std::uint64_t offset) override {
        std::array<iovec, most_vectors> places;
        const std::size_t most = std::min(count, places.size());
        for (std::size_t i = 0; i < most; ++i)
            places[i] = {const_cast<std::byte*>(pieces[i].from), pieces[i].bytes};
        const ssize_t done =
            ::pwritev(fd, places.data(), static_cast<int>(most), static_cast<off_t>(offset));
        return done >= 0 ? done : -errno;
    }

    std::int64_t write_unwatched(int fd, const memory_piece* pieces, std::size_t count,
                                 std::uint64_t offset) override {
        return write_without_event(fd, pieces, count, offset);
    }

    // By a mapping, into which the kernel copies for us: it gives an error where a store of our own
    // would be a signal (the file became shorter, the disk is full).
    std::int64_t write_scattered(int fd, const placed_piece* pieces, std::size_t count) override {
        const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGE_SIZE));
        std::uint64_t begin = UINT64_MAX, end = 0;
        for (std::size_t i = 0; i < count; ++i) {
            begin = std::min(begin, pieces[i].offset / page * page);
            end = std::max(end, pieces[i].offset + pieces[i].bytes);
        }
        struct stat facts {};
        if (::fstat(fd, &facts) != 0) return -errno;
        if (begin >= end || end > static_cast<std::uint64_t>(facts.st_size)) return -EOPNOTSUPP;
        void* const mapped = ::mmap(nullptr, end - begin, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                                    static_cast<off_t>(begin));
        if (mapped == MAP_FAILED) return -errno;
        const std::int64_t done =
            copy_to_mapping(static_cast<std::byte*>(mapped), begin, pieces, count);
        ::munmap(mapped, end - begin);
        return done;
    }

    // Servers of FUSE tell by the close of a handle, of a second one too, what became of its
    // writes, and need not wait for a disk for that. Of others the kernel keeps writes to itself,
    // and where one has lent it the file (a delegation of NFS) a close does not ask.
    int hand_over(int fd) override {
        struct statfs where {};
        if (::fstatfs(fd, &where) != 0) return -errno;
        if (where.f_type != FUSE_SUPER_MAGIC) return sync(fd);
        const int second = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (second < 0) return -errno;
        return ::close(second) == 0 ? 0 : -errno;
    }
    int sync(int fd) override { return ::fdatasync(fd) == 0 ? 0 : -errno; }

    int truncate(int fd, std::uint64_t size_bytes) override {
        return ::ftruncate(fd, static_cast<off_t>(size_bytes)) == 0 ? 0 : -errno;
    }

    // The link in /proc leads to the file itself, whatever its name means by now; looked at all the
    // same.
    int open_direct(int fd, std::uint32_t& grain_bytes) override {
        const int direct = reopen(fd, O_RDONLY | O_DIRECT);
        if (direct < 0) return code_of_proc(errno);
        struct stat before {
        }, now{};
        int code = ::fstat(fd, &before) == 0 && ::fstat(direct, &now) == 0 ? 0 : -errno;
        if (code == 0 && (before.st_dev != now.st_dev || before.st_ino != now.st_ino))
            code = -ESTALE;
        if (code == 0) code = grain_of(direct, grain_bytes);
        if (code != 0) ::close(direct);
        return code == 0 ? direct : code;
    }

    int in_page_cache(int fd, std::uint64_t offset, std::uint64_t bytes) override {
        struct {
            std::uint64_t offset, bytes;
        } const range{offset, bytes};
        struct {
            std::uint64_t cached, dirty, writeback, evicted, recently_evicted;
        } pages{};
        if (::syscall(cachestat_number, fd, &range, &pages, 0) != 0) return -errno;
        const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGE_SIZE));
        return pages.cached >= (offset + bytes + page - 1) / page - offset / page ? 1 : 0;
    }

    int will_need(int fd, std::uint64_t offset, std::uint64_t bytes) override {
        return -::posix_fadvise(fd, static_cast<off_t>(offset), static_cast<off_t>(bytes),
                                POSIX_FADV_WILLNEED);
    }

    std::int64_t next_data(int fd, std::uint64_t offset) override {
        return seek(fd, offset, SEEK_DATA);
    }
    std::int64_t next_hole(int fd, std::uint64_t offset) override {
        return seek(fd, offset, SEEK_HOLE);
    }

    int map_file(int fd, std::uint64_t offset, std::uint64_t bytes, void*& address) override {
        address = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(offset));
        return address != MAP_FAILED ? 0 : -errno;
    }

    void unmap_file(void* address, std::uint64_t bytes) override { ::munmap(address, bytes); }

    int populate(void* address, std::uint64_t bytes) override {
        return ::madvise(address, bytes, populate_read_advice) == 0 ? 0 : -errno;
    }
    // Not of a server, where the kernel tells a unique number of the mount (Linux 6.8): statfs()
    // would wait for one.
    bool changes_elsewhere(int fd) override {
        struct statx info {};
        const bool told =
            ::statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, wants_unique_mount, &info) == 0;
        return !(told ? file_system_of(fd, info) : host::file_system_of(fd)).is_local;
    }

    int resident(void* address, std::uint64_t bytes, std::uint64_t piece_bytes,
                 std::vector<bool>& out) override {
        const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGE_SIZE));
        std::vector<unsigned char> pages((bytes + page - 1) / page, 0);
        if (::mincore(address, bytes, pages.data()) != 0) return -errno;
        out.assign((bytes + piece_bytes - 1) / piece_bytes, true);
        for (std::uint64_t i = 0; i < pages.size(); ++i)
            if ((pages[i] & 1) == 0) out[i * page / piece_bytes] = false;
        return 0;
    }

    int take_lease(int fd) override {
        if (changes_elsewhere(fd)) return -EINVAL;
        // The signal that tells of a break is one that is ignored unless asked for: we look.
        if (::fcntl(fd, F_SETSIG, SIGURG) == 0 && ::fcntl(fd, F_SETLEASE, F_RDLCK) == 0) return 0;
        return errno == EOPNOTSUPP ? -EINVAL : -errno;
    }
    bool is_lease_awaited(int fd) override { return ::fcntl(fd, F_GETLEASE) != F_RDLCK; }
    void end_lease(int fd) override { ::fcntl(fd, F_SETLEASE, F_UNLCK); }
    int take_sole_lease(int fd) override { return host::take_sole_lease(fd); }

    int open_watch() override { return open_change_watch(); }
    int watch_file(int watch, int fd) override { return add_to_watch(watch, fd); }
    void end_watch(int watch, int number) override { remove_from_watch(watch, number); }
    void read_watch(int watch, std::vector<int>& out) override { read_change_watch(watch, out); }

    std::unique_ptr<io_engine> make_io_engine(bool want_uring, std::uint32_t depth,
                                              std::string& why) override {
        if (!want_uring) return make_pread_engine(*this);
#if defined(PENSTOCK_WITH_IO_URING)
        return make_uring_engine(depth, why);
#else
        static_cast<void>(depth);
        why = "Penstock was built without liburing";
        return nullptr;
#endif
    }
};

}  // namespace

environment& linux_environment() {
    // Never destroyed: a runtime in a global variable may be one of the last things that go.
    static auto& files = *new linux_files;
    return files;
}

namespace {

// Reads done one after the other by the service thread itself, where io_uring is refused or not
// wanted.
class pread_engine final : public io_engine {
public:
    explicit pread_engine(environment& env) : env_(env) {}

    [[nodiscard]] const char* name() const override { return "pread"; }
    [[nodiscard]] std::uint32_t capacity() const override { return 64; }
    // At once, so that a slow read holds up no other one that this thread has already taken.
    void start(const read_operation& operation) override {
        finished_.push_back({operation.tag, env_.read(operation.fd, operation.to, operation.bytes,
                                                      operation.offset)});
    }
    void submit() override {}
    [[nodiscard]] bool has_finished() const override { return !finished_.empty(); }

    void reap(std::vector<read_result>& out, std::uint64_t) override {
        out.insert(out.end(), finished_.begin(), finished_.end());
        finished_.clear();
    }

private:
    environment& env_;
    std::vector<read_result> finished_;
};

}  // namespace

std::unique_ptr<io_engine> make_pread_engine(environment& env) {
    return std::make_unique<pread_engine>(env);
}

}  // namespace penstock::host
