#include "os/file_kind.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <unistd.h>
#include <vector>

#include "os/came_signal.hpp"
#include "os/file_system.hpp"
#include "os/own_mounts.hpp"
#include "os/patient_open.hpp"
#include "penstock/error.hpp"

namespace penstock::host {

namespace {

std::int64_t to_ns(const timespec& time) {
    return std::int64_t{time.tv_sec} * 1000000000 + time.tv_nsec;
}

// 1: there is a byte at `offset`; 0: the file ends before it; a negative errno: that cannot be
// told.
int has_byte_at(int fd, off_t offset) {
    char byte = 0;
    ssize_t got;
    do got = ::pread(fd, &byte, 1, offset);
    while (got < 0 && errno == EINTR);
    return got >= 0 ? static_cast<int>(got) : -errno;
}

// Asks the size again after the read: a file that grows meanwhile is no liar. Reads nothing of a
// made-up file that claims to be empty: such a read may wait, or use the bytes up (kmsg,
// trace_pipe).
bool has_false_size(int fd, const struct stat& facts) {
    if (facts.st_blocks != 0) return false;
    struct stat now {};
    if (facts.st_size == 0 && is_made_up(fd)) return true;
    if (facts.st_size == 0)
        return has_byte_at(fd, 0) == 1 && ::fstat(fd, &now) == 0 && now.st_size == 0;
    return has_byte_at(fd, facts.st_size - 1) == 0 && ::fstat(fd, &now) == 0 &&
           now.st_size >= facts.st_size;
}

// Where the writers are not known, or times are coarse, a file that changed less than this before
// it was looked at may be changing still. Some file systems keep whole seconds, or every other one.
constexpr std::int64_t tick_ns = 20'000'000, second_ns = 1'000'000'000;

}  // namespace

bool is_made_up(int fd) { return file_system_of(fd).is_made_up; }

file_identity identity_of(const struct stat& facts) {
    return {facts.st_dev, facts.st_ino, static_cast<std::uint64_t>(facts.st_size),
            to_ns(facts.st_mtim), to_ns(facts.st_ctim)};
}

file_kind kind_of(mode_t mode) {
    return S_ISREG(mode)   ? file_kind::regular
           : S_ISDIR(mode) ? file_kind::directory
                           : file_kind::special;
}

file_kind kind_of(int fd, const struct stat& facts) {
    const file_kind by_mode = kind_of(facts.st_mode);
    return by_mode == file_kind::regular && has_false_size(fd, facts) ? file_kind::false_size
                                                                      : by_mode;
}

bool tells_version(const file_facts& facts, trust_mode trust) {
    if (facts.times == file_times::local) return !may_change_unseen(facts, trust);
    const bool is_proof =
        facts.times == file_times::server ? trust != trust_mode::off : trust == trust_mode::on;
    return is_proof && facts.writing != writers::some;
}

std::int64_t rest_left_ns(const file_facts& facts, trust_mode trust) {
    constexpr std::int64_t clock_steps_ns = 1'000'000;  // more than two clocks' steps
    if (facts.times == file_times::local || !tells_version(facts, trust)) return 0;
    const std::int64_t left = server_grain_ns - facts.rested_ns;
    return left > 0 ? left + clock_steps_ns : 0;
}

bool may_change_unseen(const file_facts& facts, trust_mode trust) {
    if (facts.writing == writers::some) return true;
    if (facts.times != file_times::local)
        return !tells_version(facts, trust) || facts.rested_ns < server_grain_ns;
    const bool in_seconds = facts.identity.changed_ns % second_ns == 0;
    if (facts.writing == writers::none && facts.exact_times && !in_seconds) return false;
    return facts.now_ns - std::max(facts.identity.modified_ns, facts.identity.changed_ns) <
           tick_ns + (in_seconds ? 2 * second_ns : 0);
}

std::string when_used_again(file_times times, trust_mode trust) {
    const std::string rested = "are used again after a close once the file has rested for " +
                               std::to_string(server_grain_ns / second_ns) + " s";
    if (times == file_times::local) return "are used again after a close if the file is the same";
    if (trust == trust_mode::on) return rested + ", as PENSTOCK_TRUST_TIMES=on says";
    if (trust == trust_mode::off)
        return "are read anew at each open, as PENSTOCK_TRUST_TIMES=off says";
    if (times == file_times::server) return rested;
    return "are read anew at each open, since times may not tell of a change; if they do, or files "
           "there do not change, set PENSTOCK_TRUST_TIMES=on";
}

bool is_in_memory(environment& env, int fd, std::uint64_t offset, std::uint64_t bytes) {
    if (const int told = env.in_page_cache(fd, offset, bytes); told >= 0) return told == 1;
    void* at = nullptr;
    if (env.map_file(fd, offset, bytes, at) != 0) return true;
    std::vector<bool> resident;
    const int code = env.resident(at, bytes, bytes, resident);
    env.unmap_file(at, bytes);
    return code != 0 || resident.at(0);
}

std::int64_t read_all(environment& env, int fd, std::byte* to, std::uint64_t bytes,
                      std::uint64_t offset) {
    std::uint64_t got = 0;
    while (got < bytes) {
        const std::int64_t more =
            tried_again([&] { return env.read(fd, to + got, bytes - got, offset + got); });
        if (more < 0) return more;
        if (more == 0) break;
        got += static_cast<std::uint64_t>(more);
    }
    return static_cast<std::int64_t>(got);
}

void read_nothing_ahead(int fd) { ::posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); }

void read_ahead_as_usual(int fd) { ::posix_fadvise(fd, 0, 0, POSIX_FADV_NORMAL); }

int look_at_name(const std::string& path, struct stat& facts) {
    return open_past_signals([&] { return ::stat(path.c_str(), &facts); }) == 0 ? 0 : -errno;
}

// Asked by name first, because opening a device may already do something. A pipe that takes the
// name in between does not hold up the caller.
int look_at_file(const std::string& path, struct stat& facts, file_kind& kind) {
    if (const int code = look_at_name(path, facts); code != 0) return code;
    kind = kind_of(facts.st_mode);
    if (kind != file_kind::regular) return 0;
    const int fd = open_past_leases(path, O_RDONLY | O_NOCTTY);
    if (fd < 0) return -errno;
    const int code = ::fstat(fd, &facts) == 0 ? 0 : -errno;
    if (code == 0) kind = kind_of(fd, facts);
    ::close(fd);
    return code;
}

std::string why_not_by_size(file_kind kind) {
    switch (kind) {
        case file_kind::regular: return {};
        case file_kind::directory: return "is a directory; name a file in it";
        case file_kind::special: return "is no regular file; copy what it gives to one";
        case file_kind::false_size:
            return "says that it has another size than it has, as files of /proc and /sys do; copy "
                   "it to another folder "
                   "first (cat FILE > COPY)";
    }
    return {};
}

int open_regular(environment& env, const std::string& path, file_facts& facts) {
    const int found = env.find(AT_FDCWD, path);
    if (found < 0) return found;
    int fd = env.facts(found, facts);
    if (fd == 0)
        fd = facts.is_directory ? -EISDIR : !facts.is_regular ? -EOPNOTSUPP : env.open_found(found);
    env.close(found);
    if (fd < 0) return fd;
    int code = env.facts(fd, facts);
    if (code == 0 && facts.false_size) code = -EOPNOTSUPP;
    if (code == 0) return fd;
    env.close(fd);
    return code;
}

std::string why_not_opened(int code, const std::string& path, bool writable) {
    if (path.find('\0') != std::string::npos)
        return "the name has a zero byte; give the name without it";
    if (code == -EDEADLK) return why_own(path);
    struct stat facts {};
    file_kind kind{};
    if ((code == -EOPNOTSUPP || code == -EISDIR) && look_at_file(path, facts, kind) == 0 &&
        kind != file_kind::regular)
        return why_not_by_size(kind);
    return error_and_cure(code, writable ? "name a file that you may read and write"
                                         : "name a file that you may read");
}

std::string error_and_cure(int code, const std::string& of_the_name) {
    const bool is_of_name = code != -EMFILE && code != -ENFILE && code != -EUNATCH;
    return is_of_name ? error_text(code) + "; " + of_the_name : error_and_cure(code);
}

std::string error_and_cure(int code) {
    return error_text(code) + (code == -EMFILE
                                   ? "; raise the limit on open files (of the process ulimit -n, "
                                     "of the machine fs.file-max), or close some"
                                   : "");
}

}  // namespace penstock::host
