// Opens, reads, writes and maps the files of programs.
#include "common/files.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <time.h>
#include <vector>

#include "common/message.hpp"
#include "os/file_kind.hpp"
#include "os/file_system.hpp"
#include "os/patient_open.hpp"
#include "penstock/runtime.hpp"

namespace penstock::apps {

namespace {

constexpr auto longest_wait_for_writer = std::chrono::seconds(2);
constexpr int between_looks_ms = 50;

std::string directory_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

// As the kernel has it where fs.protected_symlinks is on: in a folder like /tmp a link counts if it
// is of this user or of the folder's owner. Any other user could choose what is written there.
int check_link(const struct stat& link, const std::string& directory) {
    constexpr mode_t shared = S_ISVTX | S_IWOTH;
    struct stat folder {};
    if (::stat(directory.c_str(), &folder) != 0) return -errno;
    const bool counts = (folder.st_mode & shared) != shared || link.st_uid == ::geteuid() ||
                        link.st_uid == folder.st_uid;
    return counts ? 0 : -EACCES;
}

// What a link leads to, followed by hand because its end need not exist yet. By a descriptor of the
// link, so that what was checked is what is followed.
int follow_links(std::string& path) {
    for (int depth = 0; depth < 40; ++depth) {
        const unique_fd at(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
        struct stat facts {};
        if (at < 0 && errno == ENOENT) return 0;
        if (at < 0 || ::fstat(at, &facts) != 0) return -errno;
        if (!S_ISLNK(facts.st_mode)) return 0;
        if (const int code = check_link(facts, directory_of(path)); code != 0) return code;
        char text[PATH_MAX + 1];
        const ssize_t length = ::readlinkat(at, "", text, sizeof text);
        if (length < 0) return -errno;
        const std::string next(text, static_cast<std::size_t>(length));
        path = next.empty() || next[0] == '/' ? next : directory_of(path) + "/" + next;
    }
    return -ELOOP;
}

std::string end_of(const std::string& folder) {
    char end[PATH_MAX];
    return ::realpath(folder.c_str(), end) != nullptr ? end : "";
}

// The descriptor of this process that a path names, such as 1 for /dev/stdout, by whatever links;
// -1: it names none. The link that /proc has for a descriptor leads on to a file by its name, so
// what it says is not followed.
int own_descriptor(std::string path) {
    const std::string all = end_of("/proc/self/fd"), of_thread = end_of("/proc/thread-self/fd");
    for (int depth = 0; depth < 40 && !all.empty(); ++depth) {
        const std::string folder = end_of(directory_of(path));
        const std::string name = path.substr(path.rfind('/') + 1);  // npos + 1: from the start
        if (folder == all || folder == of_thread) {
            int number = -1;
            const auto [end, code] =
                std::from_chars(name.data(), name.data() + name.size(), number);
            return code == std::errc() && end == name.data() + name.size() ? number : -1;
        }
        char text[PATH_MAX + 1];
        const ssize_t length = ::readlink(path.c_str(), text, sizeof text);
        if (length <= 0) return -1;
        const std::string next(text, static_cast<std::size_t>(length));
        path = next[0] == '/' ? next : directory_of(path) + "/" + next;
    }
    return -1;
}

unsigned mode_of_new_files() {
    const mode_t mask = ::umask(0);
    ::umask(mask);
    return 0666 & ~mask;
}

// The further users and groups of a file (POSIX ACL) come along, or it has none: a new file may
// have got some from its folder. False if the two files do not let the same ones in now.
bool take_access_list(int fd, const std::string& old) {
    constexpr const char* name = "system.posix_acl_access";
    constexpr std::size_t most_bytes = 64 << 10;
    std::vector<char> list(most_bytes);
    const ssize_t bytes = ::getxattr(old.c_str(), name, list.data(), list.size());
    if (bytes > 0)
        return ::fsetxattr(fd, name, list.data(), static_cast<std::size_t>(bytes), 0) == 0;
    return ::fgetxattr(fd, name, nullptr, 0) <= 0 || ::fremovexattr(fd, name) == 0;
}

constexpr std::size_t most_at_once = PATH_MAX - 1;

status not_written(const std::string& path, int code, const std::string& cure) {
    return {code,
            "output file " + shown(path) + ": " + error_text(code) + "; " + cure_for(code, cure)};
}

}  // namespace

status look_at_input(const std::string& path, const std::string& cure, struct stat& facts) {
    host::file_kind kind = host::file_kind::regular;
    int code = host::look_at_file(path, facts, kind);
    if (code == 0 && kind == host::file_kind::directory) code = -EISDIR;
    if (code != 0)
        return {code, shown(path) + ": " + error_text(code) + "; " + cure_for(code, cure)};
    if (kind == host::file_kind::regular) return {};
    return {-EOPNOTSUPP, shown(path) + ": " + host::why_not_by_size(kind)};
}

status open_to_read(const std::string& path, const std::string& noun, unique_fd& out, int flags) {
    out = unique_fd((flags & O_NONBLOCK) != 0 ? host::open_past_leases(path, O_RDONLY | flags)
                                              : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags));
    if (out >= 0) return {};
    return {-errno,
            shown(path) + ": " + error_text(-errno) + "; name " + noun + " that can be read"};
}

std::string about_stream(int code, const std::string& cure) {
    if (code != -ENXIO) return error_text(code) + "; " + cure_for(code, cure);
    return "no program writes to this pipe; start that program first, or name a file";
}

// The open of a pipe does not wait for its writer, and that of a device not for its other end.
int input_stream::open(const std::string& path) {
    fd_ = {};
    had_writer_ = false;
    fd_ = unique_fd(host::open_past_leases(path, O_RDONLY | O_NOCTTY));
    struct stat facts {};
    if (fd_ < 0 || ::fstat(fd_, &facts) != 0) return -errno;
    is_pipe_ = S_ISFIFO(facts.st_mode);
    return S_ISDIR(facts.st_mode) ? -EISDIR : 0;
}

// A read of a pipe that had no writer yet gives 0, as at its end, but poll() tells the two apart:
// only after a writer has left is it ready. With a writer a read gives EAGAIN until there are
// bytes.
ssize_t input_stream::read(void* to, std::size_t most) {
    const auto deadline = std::chrono::steady_clock::now() + longest_wait_for_writer;
    for (;;) {
        if (was_interrupted()) return -ECANCELED;
        pollfd polled{fd_, POLLIN, 0};
        const bool ready = ::poll(&polled, 1, between_looks_ms) > 0;
        const ssize_t got = ::read(fd_, to, most);
        if (got > 0) had_writer_ = true;
        if (got > 0 || (got == 0 && (!is_pipe_ || had_writer_ || ready))) return got;
        if (got < 0 && errno == EAGAIN) had_writer_ = had_writer_ || is_pipe_;
        else if (got < 0 && errno != EINTR) return -errno;
        if (got == 0 && std::chrono::steady_clock::now() > deadline) return -ENXIO;
    }
}

std::optional<file_place> place_of(const std::string& path) {
    struct stat facts {};
    if (::stat(path.c_str(), &facts) == 0) return {{facts.st_dev, facts.st_ino, ""}};
    std::string end = path;
    if (follow_links(end) != 0 || ::stat(directory_of(end).c_str(), &facts) != 0) return {};
    const std::string name = end.substr(end.rfind('/') + 1);
    if (name.empty()) return {};  // no file can be there
    return {{facts.st_dev, facts.st_ino, name}};
}

bool same_file(const std::string& path, const std::string& other) {
    if (path == other) return true;
    const std::optional<file_place> place = place_of(path);
    return place.has_value() && place == place_of(other);
}

status check_not_input(const std::string& output, const std::vector<std::string>& inputs) {
    struct stat there {};
    if (::stat(output.c_str(), &there) != 0 || !S_ISREG(there.st_mode)) return {};
    for (const std::string& input : inputs)
        if (same_file(output, input)) return is_input(output, input);
    return {};
}

status is_input(const std::string& output, const std::string& input) {
    return {-EINVAL, "output file " + shown(output) + ": is the input " + shown(input) +
                         "; give another name"};
}

status check_not_report(bool wanted, const std::string& output) {
    struct stat there {
    }, report{};
    if (!wanted || output.empty() || ::stat(output.c_str(), &there) != 0 ||
        ::fstat(STDOUT_FILENO, &report) != 0)
        return {};
    const bool takes_all = S_ISCHR(there.st_mode) && there.st_rdev == makedev(1, 3);  // /dev/null
    if (takes_all || there.st_dev != report.st_dev || there.st_ino != report.st_ino) return {};
    return {-EINVAL, "output file " + shown(output) +
                         ": is standard output, which gets the report; give another name"};
}

status check_room(const std::string& path, std::uint64_t bytes, const std::string& cure) {
    std::string place = path;
    struct statvfs room {};
    if (follow_links(place) != 0 || ::statvfs(directory_of(place).c_str(), &room) != 0) return {};
    const std::uint64_t free_bytes = std::uint64_t{room.f_bavail} * room.f_frsize;
    // A file system that counts no blocks at all (ramfs, tmpfs of any size, FUSE that tells
    // nothing) says nothing about its room.
    if (room.f_blocks == 0 || free_bytes >= bytes) return {};
    return {-ENOSPC, "output file " + shown(path) + ": its file system has " +
                         format_size(free_bytes) + " free, and " + format_size(bytes) +
                         " are to be written; " + cure + ", or make room"};
}

// Where the group is lost, its members are among the others, and members of the new group were:
// both get what both had.
int take_rights(int fd, const std::string& old) {
    struct stat there {
    }, made{};
    if (::stat(old.c_str(), &there) != 0 || ::fstat(fd, &made) != 0) return -errno;
    const bool has_all = made.st_uid == there.st_uid && made.st_gid == there.st_gid;
    const bool has_group = has_all || ::fchown(fd, there.st_uid, there.st_gid) == 0 ||
                           ::fchown(fd, static_cast<uid_t>(-1), there.st_gid) == 0;
    const mode_t mode = there.st_mode & (S_ISDIR(made.st_mode) ? 07777 : 0777);
    const mode_t both = mode & (mode >> 3) & 07;
    mode_t taken = has_group ? mode : (mode & 01700) | both << 3 | both;
    if (!take_access_list(fd, old)) taken &= 01700;
    return ::fchmod(fd, taken) == 0 ? 0 : -errno;
}

output_file::~output_file() {
    if (!passing_.empty()) ::unlink(passing_.c_str());
    if (fd_ > STDERR_FILENO) ::close(fd_);
}

status output_file::failed(int code, const std::string& cure) const {
    if (path_.empty() && code == -EPIPE) return {code, ""};  // the reader has what it wanted
    if (path_.empty())
        return {code, "standard output: " + error_text(code) + "; the output is incomplete"};
    return not_written(path_, code, cure);
}

status output_file::open(const std::string& path) {
    path_ = target_ = path;
    if (path.empty()) {
        fd_ = STDOUT_FILENO;
        return {};
    }
    struct stat there {};
    const bool exists = ::stat(path.c_str(), &there) == 0;
    // What the kernel does not follow is not followed by hand either.
    if (!exists && errno != ENOENT) return failed(-errno, "give another name");
    if (exists && S_ISDIR(there.st_mode)) return failed(-EISDIR, "give the name of a file");
    if (exists && !S_ISREG(there.st_mode) && wants_name_)
        return failed(-EINVAL, "it is no regular file, so give another name");
    // Before it is opened by its name: a socket cannot be, and what another user gave may not be.
    if (const int own = own_descriptor(path); exists && own >= 0) return open_again(own);
    if (exists && !S_ISREG(there.st_mode)) return open_special(path);
    return open_regular(exists);
}

// What the caller opened as this descriptor goes on where it stands, or at its end (>>): the caller
// meant that file, and its bytes before are not this program's to replace.
status output_file::open_again(int own) {
    if (wants_name_)
        return failed(-EINVAL,
                      "it is a file that the program was given open, so give another name");
    const int flags = ::fcntl(own, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY)
        return failed(-EBADF, "it is not open for writing, so give another name");
    fd_ = ::fcntl(own, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    return fd_ >= 0 ? status{} : failed(-errno, "give another name");
}

// To open a pipe that no program reads would wait for ever, so it is asked for some time. Writes
// wait as usual.
status output_file::open_special(const std::string& path) {
    constexpr int most_tries = 200, try_ns = 10000000;
    for (int i = 0; i < most_tries && fd_ < 0 && !was_interrupted(); ++i) {
        fd_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
        if (fd_ >= 0 || errno != ENXIO) break;
        const timespec pause{0, try_ns};
        ::nanosleep(&pause, nullptr);
        errno = ENXIO;
    }
    if (fd_ < 0)
        return failed(-errno,
                      "give another name, or for a pipe start the program that reads it first");
    const int flags = ::fcntl(fd_, F_GETFL);
    return flags >= 0 && ::fcntl(fd_, F_SETFL, flags & ~O_NONBLOCK) == 0
               ? status{}
               : failed(-errno, "give another name");
}

status output_file::open_named(const std::string& path) {
    wants_name_ = true;
    return open(path);
}

// A file without a name vanishes by itself however the program ends. Where the file system has no
// such thing, it gets a passing name that the destructor removes. Only this user may open it before
// it is whole.
status output_file::open_regular(bool exists) {
    if (const int code = follow_links(target_); code != 0) return failed(code, "give another name");
    if (exists && ::faccessat(AT_FDCWD, target_.c_str(), W_OK, AT_EACCESS) != 0)
        return failed(-errno, "give another name or change its permissions");
    replaces_ = true;
    mode_if_new_ = mode_of_new_files();
    const std::string directory = directory_of(target_);
    if (!wants_name_) fd_ = ::open(directory.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (fd_ < 0) {
        if (!wants_name_ &&
            (errno == ENOENT || errno == ENOTDIR || errno == EACCES || errno == EROFS))
            return failed(-errno, "name a directory that exists and can be written");
        const signal_pause until_noted;
        std::string name = directory + "/.penstock.XXXXXX";
        fd_ = ::mkostemp(name.data(), O_CLOEXEC);
        if (fd_ < 0) return failed(-errno, "name a directory that exists and can be written");
        passing_ = name;
        noted_.file(name);
    }
    return {};
}

status output_file::write(const char* data, std::size_t bytes) {
    while (bytes > 0) {
        const ssize_t done = ::write(fd_, data, bytes);
        if (done < 0 && errno == EINTR && was_interrupted())
            return {-ECANCELED,
                    "interrupted; the output is incomplete"};  // a pipe whose reader takes its time
        if (done < 0 && errno == EINTR) continue;
        if (done < 0 && errno == EAGAIN) {  // the caller gave a descriptor whose writes do not wait
            pollfd polled{fd_, POLLOUT, 0};
            ::poll(&polled, 1, between_looks_ms);
            if (was_interrupted()) return {-ECANCELED, "interrupted; the output is incomplete"};
            continue;
        }
        if (done <= 0) return failed(done < 0 ? -errno : -EIO, "make room or give another name");
        data += done;
        bytes -= static_cast<std::size_t>(done);
    }
    return {};
}

status output_file::write_at(const void* data, std::uint64_t bytes, std::uint64_t offset) const {
    return write_exactly(path_, fd_, data, bytes, offset);
}

// A name cannot be given over an existing one in one step, so it first gets a passing one: that no
// other user can tell before, and take.
status output_file::name_it() {
    const std::string from = host::path_of_descriptor(fd_);
    for (int attempt = 0; attempt < 10; ++attempt) {
        unsigned long long random = 0;
        if (::getrandom(&random, sizeof random, 0) != sizeof random)
            return failed(-errno, "run it again");
        char end[17];
        std::snprintf(end, sizeof end, "%016llx", random);
        const std::string name = directory_of(target_) + "/.penstock." + end;
        const signal_pause until_noted;
        if (::linkat(AT_FDCWD, from.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
            passing_ = name;
            noted_.file(name);
            return {};
        }
        if (errno == ENOENT && !host::is_proc_there()) return failed(-EUNATCH, "then run it again");
        if (errno != EEXIST) return failed(-errno, "give another name");
    }
    return failed(-EEXIST, "remove the files .penstock.* beside it");
}

// File systems of networks write at the close, and only its result says that the server had no
// room. Standard output stays open for others: the close of another descriptor of it writes as
// well.
status output_file::close_it() {
    if (fd_ == STDOUT_FILENO) fd_ = ::fcntl(fd_, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int fd = std::exchange(fd_, -1);
    return fd < 0 || ::close(fd) == 0 ? status{} : failed(-errno, "make room or give another name");
}

status output_file::finish() {
    if (fd_ < 0) return {};  // it was called before
    if (!replaces_) return close_it();
    if (passing_.empty())
        if (status s = name_it(); !s) return s;
    int code = take_rights(fd_, target_);
    if (code == -ENOENT) code = ::fchmod(fd_, mode_if_new_) == 0 ? 0 : -errno;
    return code == 0 ? close_it() : failed(code, "give another name");
}

status output_file::commit() {
    if (status s = finish(); !s) return s;
    if (!replaces_) return {};
    if (::rename(passing_.c_str(), target_.c_str()) != 0)
        return failed(-errno, "give another name");
    passing_.clear();
    noted_.forget();
    return {};
}

int read_all(int fd, void* to, std::uint64_t bytes, std::uint64_t offset) {
    for (std::uint64_t done = 0; done < bytes;) {
        const ssize_t got = ::pread(fd, static_cast<char*>(to) + done, bytes - done,
                                    static_cast<off_t>(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return got < 0 ? -errno : -ESTALE;
        done += static_cast<std::uint64_t>(got);
    }
    return 0;
}

int write_all(int fd, const void* from, std::uint64_t bytes, std::uint64_t offset) {
    for (std::uint64_t done = 0; done < bytes;) {
        const ssize_t put = ::pwrite(fd, static_cast<const char*>(from) + done, bytes - done,
                                     static_cast<off_t>(offset + done));
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return put < 0 ? -errno : -EIO;
        done += static_cast<std::uint64_t>(put);
    }
    return 0;
}

status read_exactly(const std::string& path, int fd, void* to, std::uint64_t bytes,
                    std::uint64_t offset) {
    const int code = read_all(fd, to, bytes, offset);
    if (code == 0) return {};
    return {code, shown(path) + ": " +
                      (code != -ESTALE ? error_text(code)
                                       : "became shorter while it was read; "
                                         "run again when no program writes to it")};
}

status write_exactly(const std::string& path, int fd, const void* from, std::uint64_t bytes,
                     std::uint64_t offset) {
    const int code = write_all(fd, from, bytes, offset);
    return code == 0 ? status{} : not_written(path, code, "make room or give another name");
}

void mapped_file::unmap::operator()(char* data) const { ::munmap(data, bytes); }

status mapped_file::open(const std::string& path, std::uint64_t bytes, const std::string& noun) {
    unique_fd fd;
    if (status s = open_to_read(path, noun, fd); !s) return s;
    void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    const int code = at == MAP_FAILED ? -errno : 0;
    if (code != 0)
        return {code, shown(path) + ": " + error_text(code) +
                          " while mapping it; free some address space"};
    data_ = {static_cast<char*>(at), {bytes}};
    return {};
}

// Each step goes as far as one call can, from the folder where the step before it ended.
int open_long(const std::string& path, int flags) {
    unique_fd folder;
    const auto from = [&folder] { return folder < 0 ? AT_FDCWD : int{folder}; };
    std::size_t at = 0;
    while (path.size() - at > most_at_once) {
        const std::size_t slash = path.rfind('/', at + most_at_once - 1);
        if (slash == std::string::npos || slash <= at) {
            errno = ENAMETOOLONG;
            return -1;
        }
        const std::string names = path.substr(at, slash - at);
        folder = unique_fd(::openat(from(), names.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
        if (folder < 0) return -1;
        at = std::min(path.find_first_not_of('/', slash), path.size());
    }
    const std::string rest = at == path.size() && at > 0 ? "." : path.substr(at);
    return (flags & O_NONBLOCK) != 0 ? host::open_past_leases(from(), rest.c_str(), flags)
                                     : ::openat(from(), rest.c_str(), flags);
}

}  // namespace penstock::apps
