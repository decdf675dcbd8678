#include "os/regular_file.hpp"

#include <cassert>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>

#include "os/file_kind.hpp"
#include "os/own_mounts.hpp"
#include "os/patient_open.hpp"

namespace penstock::host {

regular_file::~regular_file() {
    if (fd_ >= 0) ::close(fd_);
}

// The name is asked first, because opening a device may already do something. A pipe that takes the
// name in between does not hold up the caller.
status regular_file::open(const std::string& path) {
    assert(fd_ < 0);
    const auto refused = [&](int code) -> status {
        return {code, path + ": " + error_and_cure(code, "name a file that can be read")};
    };
    const auto own = [&]() -> status { return {-EDEADLK, path + ": " + why_own(path)}; };
    const auto of_kind = [&](file_kind kind) -> status {
        return {kind == file_kind::directory ? -EISDIR : -EOPNOTSUPP,
                path + ": " + why_not_by_size(kind)};
    };
    if (path.empty()) return {-EINVAL, "the path of a file is empty; name a file"};
    if (path.find('\0') != std::string::npos)
        return {-EINVAL, std::string(path.c_str()) + ": the path has a zero byte; leave it out"};
    struct stat facts {};
    if (const int code = look_at_name(path, facts); code != 0) return refused(code);
    if (const file_kind kind = kind_of(facts.st_mode); kind != file_kind::regular)
        return of_kind(kind);
    if (check_not_own(facts.st_dev) != 0) return own();
    fd_ = open_past_leases(path, O_RDONLY | O_NOCTTY);
    if (fd_ < 0 || ::fstat(fd_, &facts) != 0) return refused(-errno);
    if (const file_kind kind = kind_of(fd_, facts); kind != file_kind::regular)
        return of_kind(kind);
    path_ = path;
    size_bytes_ = static_cast<std::uint64_t>(facts.st_size);
    return {};
}

status regular_file::read(std::uint64_t offset, std::uint64_t bytes, std::string& out) const {
    assert(offset <= size_bytes_ && bytes <= size_bytes_ - offset);
    out.resize(bytes);
    std::uint64_t got = 0;
    while (got < bytes) {
        const ssize_t more =
            ::pread(fd_, out.data() + got, bytes - got, static_cast<off_t>(offset + got));
        if (more < 0 && errno == EINTR) continue;
        if (more < 0) {
            const int code = -errno;
            return {code, path_ + ": " + error_text(code) + " at byte " +
                              std::to_string(offset + got) + "; copy the file from its source"};
        }
        if (more == 0)
            return {-ESTALE, path_ + ": ends at byte " + std::to_string(offset + got) +
                                 ", and had " + std::to_string(size_bytes_) +
                                 " bytes when it was opened; wait until its writer is done"};
        got += static_cast<std::uint64_t>(more);
    }
    return {};
}

std::string absolute_path(const std::string& path) {
    std::error_code failed;
    const std::filesystem::path out = std::filesystem::absolute(path, failed);
    return failed ? path : out.string();
}

bool is_folder(const std::string& path) {
    struct stat facts {};
    return look_at_name(path, facts) == 0 && kind_of(facts.st_mode) == file_kind::directory;
}

bool is_there(const std::string& path) {
    struct stat facts {};
    return look_at_name(path, facts) == 0;
}

}  // namespace penstock::host
