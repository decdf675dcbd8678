// What must be so before anything is mounted, and what the operating system says of mounts.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "mount/mount.hpp"
#include "os/file_system.hpp"
#include "os/own_mounts.hpp"

namespace penstock::mount {

namespace {

// The name as one word of bash, for commands that people copy from a message: as it is where the
// shell takes it so, else in quotes. A message stays one line. A name that begins as an option gets
// its folder.
std::string shell_word(const std::string& name) {
    constexpr std::string_view safe =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:=@_";
    if (!name.empty() && name.front() == '-') return shell_word("./" + name);
    if (!name.empty() && name.find_first_not_of(safe) == std::string::npos) return name;
    const auto is_control = [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return byte < 32 || byte == 127;
    };
    bool has_control = false;
    for (const char c : name) has_control = has_control || is_control(c);
    std::string out = has_control ? "$'" : "'";
    for (const char c : name) {
        const auto byte = static_cast<unsigned char>(c);
        if (!has_control && c == '\'') {
            out += "'\\''";
        } else if (is_control(c)) {
            out += {'\\', static_cast<char>('0' + byte / 64), static_cast<char>('0' + byte / 8 % 8),
                    static_cast<char>('0' + byte % 8)};
        } else {
            if (has_control && (c == '\'' || c == '\\')) out += '\\';
            out += c;
        }
    }
    return out += '\'';
}

// From its beginning, whichever part of it was read before. None: it cannot be read.
std::optional<std::string> whole_text(int fd) {
    std::string out;
    char part[4096];
    for (;;) {
        const ssize_t got = ::pread(fd, part, sizeof part, static_cast<off_t>(out.size()));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return std::nullopt;
        if (got == 0) return out;
        out.append(part, static_cast<std::size_t>(got));
    }
}

}  // namespace

host::owned_fd open_mount_table() {
    return host::owned_fd(::open("/proc/thread-self/mountinfo", O_RDONLY | O_CLOEXEC));
}

mount_entry mounted_at(const std::string& path) {
    return mounted_at(open_mount_table().get(), path);
}

mount_entry mounted_at(int mount_table, const std::string& path) {
    mount_entry found;
    std::istringstream table(whole_text(mount_table).value_or(""));
    for (std::string line; std::getline(table, line);) {
        std::istringstream words(line);
        std::string word, point;
        mount_entry entry;
        for (int i = 0; i < 5 && words >> word; ++i) (i == 2 ? entry.device : point) = word;
        while (words >> word && word != "-") {
        }
        words >> entry.type;
        if (host::of_mount_table(point) == path) found = entry;
    }
    return found;
}

void allow_read_ahead(const std::string& point, std::uint64_t bytes) {
    const std::string device = mounted_at(point).device;
    if (!device.empty())
        std::ofstream("/sys/class/bdi/" + device + "/read_ahead_kb") << bytes / 1024 << std::flush;
}

std::string unmount_command(const std::string& point) {
    return "fusermount3 -u " + shell_word(point);
}

std::uint64_t device_number(const std::string& device) {
    const std::size_t colon = device.find(':');
    if (colon == std::string::npos) return 0;
    const auto number = [](const std::string& text) {
        return static_cast<unsigned>(std::strtoul(text.c_str(), nullptr, 10));
    };
    return makedev(number(device.substr(0, colon)), number(device.substr(colon + 1)));
}

std::uint64_t device_at(const std::string& path) {
    struct statx facts {};
    if (::statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC,
                0, &facts) != 0)
        return 0;
    return makedev(facts.stx_dev_major, facts.stx_dev_minor);
}

mount_place place_of(int mount_table, const std::string& device, const std::string& usual) {
    const std::uint64_t number = device_number(device);
    mount_place found;
    if (number == 0) return found;
    const std::optional<std::string> text = whole_text(mount_table);
    if (!text) return {usual, true};
    std::istringstream table(*text);
    for (std::string line; std::getline(table, line);) {
        std::istringstream words(line);
        std::string id, parent, its_device, root, point;
        words >> id >> parent >> its_device >> root >> point;
        if (its_device != device || root != "/") continue;  // a folder of it that is mounted, too
        mount_place here{host::of_mount_table(point), false};
        here.is_on_top = device_at(here.point) == number;
        const auto rank = [&](const mount_place& place) {
            return place.point.empty() ? 0 : 1 + 2 * place.is_on_top + (place.point == usual);
        };
        if (rank(here) > rank(found)) found = here;
    }
    return found;
}

namespace {

namespace fs = std::filesystem;

status wrong(int code, const std::string& text) { return {-code, text}; }

std::string quoted(const std::string& path) { return "'" + path + "'"; }

status check_directory(const std::string& path, const char* role) {
    struct stat facts {};
    if (::stat(path.c_str(), &facts) != 0) {
        if (errno == ENOTCONN)
            return wrong(ENOTCONN, quoted(path) +
                                       " is a mount whose service is gone; take it away with: " +
                                       unmount_command(path));
        return wrong(errno, std::string(role) + " " + quoted(path) + ": " + error_text(-errno) +
                                "; name a directory that is there");
    }
    if (!S_ISDIR(facts.st_mode))
        return wrong(ENOTDIR, std::string(role) + " " + quoted(path) + " is not a directory");
    return {};
}

status check_not_own(const std::string& source) {
    struct stat facts {};
    if (::stat(source.c_str(), &facts) != 0) return wrong(errno, quoted(source));
    const auto own = host::own_mounts::of_process().source_of(facts.st_dev);
    if (!own) return {};
    return wrong(EDEADLK, "the source " + quoted(source) +
                              " is a folder of a mount that this process serves; name the folder "
                              "in the source of that (" +
                              *own + ")");
}

bool is_inside(const fs::path& inner, const fs::path& outer) {
    auto a = inner.begin();
    for (auto b = outer.begin(); b != outer.end(); ++a, ++b)
        if (a == inner.end() || *a != *b) return false;
    return true;
}

}  // namespace

status check(const serve_options& wanted) {
    if (status s = check_directory(wanted.source, "the source"); !s) return s;
    if (status s = check_directory(wanted.point, "the mount point"); !s) return s;
    if (status s = check_not_own(wanted.source); !s) return s;
    std::error_code failed;
    const fs::path source = fs::canonical(wanted.source, failed),
                   point = fs::canonical(wanted.point, failed);
    if (failed) return wrong(failed.value(), quoted(wanted.point) + ": " + failed.message());
    // One that lies below what covers its folder has that name too, and is in no way.
    const mount_entry there = mounted_at(point.string());
    if (there.type.rfind("fuse", 0) == 0 &&
        device_number(there.device) == device_at(point.string()))
        return wrong(EBUSY, quoted(wanted.point) + " is mounted already (" + there.type +
                                "); take that away with: " + unmount_command(point.string()));
    if (is_inside(point, source))
        return wrong(EINVAL, "the mount point " + quoted(wanted.point) + " lies in the source " +
                                 quoted(wanted.source) +
                                 ", which would contain itself; name a directory elsewhere");
    if (!fs::is_empty(point, failed) || failed) {
        if (failed)
            return wrong(failed.value(),
                         "the mount point " + quoted(wanted.point) + ": " + failed.message());
        return wrong(
            ENOTEMPTY,
            "the mount point " + quoted(wanted.point) +
                " is not empty, and what is in it would be hidden; name an empty directory");
    }
    if (::access(wanted.source.c_str(), R_OK | X_OK) != 0)
        return wrong(errno, "the source " + quoted(wanted.source) + ": " + error_text(-errno));
    return can_mount();
}

}  // namespace penstock::mount
