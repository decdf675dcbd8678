#include "os/file_system.hpp"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <iterator>
#include <linux/magic.h>
#include <sstream>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace penstock::host {

namespace {

constexpr std::uint32_t fuse_magic = FUSE_SUPER_MAGIC;
constexpr const char* fuse_prefix = "fuse.";

constexpr file_system_kind local(std::uint32_t magic, const char* name) {
    return {.magic = magic, .name = name, .is_local = true, .times = file_times::local};
}

constexpr file_system_kind exact(std::uint32_t magic, const char* name, bool notes_stores = true) {
    file_system_kind out = local(magic, name);
    out.has_exact_times = true;
    out.notes_stores = notes_stores;
    return out;
}

constexpr file_system_kind made_up(std::uint32_t magic, const char* name) {
    return {.magic = magic, .name = name, .times = file_times::unreliable, .is_made_up = true};
}

constexpr file_system_kind remote(std::uint32_t magic, const char* name,
                                  file_times times = file_times::server) {
    return {.magic = magic, .name = name, .times = times};
}

constexpr file_system_kind numbered(file_system_kind from) {
    from.has_numbers_for_all = true;
    return from;
}

constexpr file_system_kind layered(file_system_kind below) {
    below.is_layered = true;
    return below;
}

// The server decides what times mean, and there are too many servers to know. That of
// MooseFS answers from attributes of up to a second ago, at an open and however it is asked
// (docs/guide/network-file-systems.md).
constexpr file_system_kind fuse(const char* server, const char* name) {
    return {.magic = fuse_magic,
            .server = server,
            .name = name,
            .times = file_times::unreliable,
            .is_layered = true};
}

// The first row that fits counts. A mount of SMB may make the numbers of its inodes up
// (noserverino, also by itself where the server has none), and clients of AFS make them in several
// ways.
constexpr file_system_kind rows[] = {
    exact(0xEF53u, "ext4"),
    exact(0x58465342u, "xfs"),
    exact(0x9123683Eu, "btrfs"),
    exact(0x01021994u, "tmpfs", false),
    local(0xF2F52010u, "f2fs"),
    local(0x2FC12FC1u, "zfs"),
    local(0xCA451A4Eu, "bcachefs"),
    layered(local(OVERLAYFS_SUPER_MAGIC, "overlayfs")),
    local(0x73717368u, "squashfs"),
    local(0xE0F5E1E2u, "erofs"),
    local(0x858458F6u, "ramfs"),
    local(MSDOS_SUPER_MAGIC, "vfat"),
    local(0x2011BAB0u, "exfat"),
    local(0x7366746Eu, "ntfs3"),
    local(ISOFS_SUPER_MAGIC, "iso9660"),
    local(0x15013346u, "udf"),
    layered(remote(ECRYPTFS_SUPER_MAGIC, "eCryptfs", file_times::unreliable)),

    made_up(PROC_SUPER_MAGIC, "proc"),
    made_up(SYSFS_MAGIC, "sysfs"),
    made_up(DEBUGFS_MAGIC, "debugfs"),
    made_up(TRACEFS_MAGIC, "tracefs"),
    made_up(SECURITYFS_MAGIC, "securityfs"),
    made_up(CGROUP_SUPER_MAGIC, "cgroup"),
    made_up(CGROUP2_SUPER_MAGIC, "cgroup2"),

    numbered(remote(0x6969u, "NFS")),
    remote(0xFF534D42u, "CIFS"),
    remote(0xFE534D42u, "SMB"),
    numbered(remote(0x00C36400u, "Ceph")),
    numbered(remote(0x0BD00BD0u, "Lustre")),
    numbered(remote(0x47504653u, "GPFS")),
    numbered(remote(0x01161970u, "GFS2")),
    numbered(remote(0x7461636Fu, "OCFS2")),
    remote(0x01021997u, "9p", file_times::unreliable),
    remote(0x5346414Fu, "AFS"),
    fuse("daos", "DAOS"),
    fuse("glusterfs", "GlusterFS"),
    fuse("sshfs", "sshfs"),
    fuse(nullptr, "FUSE"),
};

constexpr file_system_kind unknown = remote(0, "unknown to Penstock", file_times::unreliable);

bool lies_below(const std::string& path, const std::string& directory) {
    if (directory == "/") return true;
    return path.compare(0, directory.size(), directory) == 0 &&
           (path.size() == directory.size() || path[directory.size()] == '/');
}

}  // namespace

const file_system_kind& file_system_row(std::uint32_t magic, const std::string& server_name) {
    for (const file_system_kind& row : rows)
        if (row.magic == magic && (row.server == nullptr || row.server == server_name)) return row;
    return unknown;
}

namespace {

// Null: the file system did not answer.
const file_system_kind* ask_file_system(int fd) noexcept try {
    struct statfs where {};
    if (::fstatfs(fd, &where) != 0) return nullptr;
    const auto magic = static_cast<std::uint32_t>(where.f_type);
    std::string name;
    struct stat facts {};
    if (magic == fuse_magic && ::fstat(fd, &facts) == 0) {
        const std::string type = mount_of_device(facts.st_dev).type;
        if (type.rfind(fuse_prefix, 0) == 0) name = type.substr(std::string(fuse_prefix).size());
    }
    return &file_system_row(magic, name);
} catch (...) {
    return nullptr;
}

// What the last mounts answered, for all threads: those of a table live for one call. A word is the
// number of a mount, which no other one ever gets, times 256, and its row. A word is read whole,
// and what it stands for are constants, so it orders nothing (relaxed).
constexpr std::uint64_t rows_of_word = 256, unknown_row = std::size(rows);
static_assert(unknown_row < rows_of_word);
std::atomic<std::uint64_t> known_mounts[16];

const file_system_kind& row_at(std::uint64_t index) {
    return index < unknown_row ? rows[index] : unknown;
}

}  // namespace

const file_system_kind& file_system_of(int fd) noexcept {
    const file_system_kind* const answer = ask_file_system(fd);
    return answer != nullptr ? *answer : unknown;
}

const file_system_kind& file_system_of(int fd, std::uint64_t mount) noexcept {
    std::atomic<std::uint64_t>& word = known_mounts[mount % std::size(known_mounts)];
    const std::uint64_t known = word.load(std::memory_order_relaxed);
    if (known / rows_of_word == mount) return row_at(known % rows_of_word);
    const file_system_kind* const answer = ask_file_system(fd);
    if (answer == nullptr) return unknown;
    const std::uint64_t row =
        answer == &unknown ? unknown_row : static_cast<std::uint64_t>(answer - rows);
    word.store(mount * rows_of_word + row, std::memory_order_relaxed);
    return *answer;
}

bool is_proc_there() { return ::access("/proc/thread-self/fd", F_OK) == 0; }

std::string of_mount_table(const std::string& text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const bool is_number = text[i] == '\\' && i + 3 < text.size() &&
                               text.find_first_not_of("01234567", i + 1) > i + 3;
        if (!is_number) {
            out += text[i];
            continue;
        }
        out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                 (text[i + 3] - '0'));
        i += 3;
    }
    return out;
}

// A line is: number, parent, major:minor, root, point, options, optional fields, "-", type,
// source, ...
mount_facts mount_of_device(std::uint64_t device) {
    const std::string wanted = std::to_string(major(device)) + ":" + std::to_string(minor(device));
    std::ifstream table("/proc/thread-self/mountinfo");
    mount_facts out;
    for (std::string text; std::getline(table, text);) {
        std::istringstream line(text);
        std::string number, parent, numbers, root, point, word;
        if (!(line >> number >> parent >> numbers >> root >> point) || numbers != wanted) continue;
        while (line >> word && word != "-") {
        }
        std::string source;
        if (line >> word >> source) out = {of_mount_table(point), word, of_mount_table(source)};
        if (root == "/") break;  // else it shows a part, and a later line may show all
    }
    return out;
}

mounted_place place_in_file_system(const std::string& real_path, const std::string& mounts) {
    std::istringstream lines(mounts);
    std::string line, best_point, best_root, file_system;
    while (std::getline(lines, line)) {
        std::istringstream fields(line);
        std::string number, parent, device, root, point, type, source;
        if (!(fields >> number >> parent >> device >> root >> point)) continue;
        point = of_mount_table(point);
        // Of two mounts at one place the later hides the earlier.
        if (point.size() < best_point.size() || !lies_below(real_path, point)) continue;
        best_point = point;
        best_root = of_mount_table(root);
        // A single "-" ends the fields of which there may be any number.
        std::istringstream rest(line.substr(std::min(line.find(" - "), line.size())));
        rest >> type >> type >> source;
        file_system = of_mount_table(type) + " " + of_mount_table(source);
    }
    if (best_point.empty()) return {};
    const std::string rest = best_point == "/" ? real_path : real_path.substr(best_point.size());
    return {best_root == "/" ? rest : best_root + rest, file_system};
}

mounted_place place_in_file_system(const std::string& real_path) {
    std::ifstream file("/proc/thread-self/mountinfo");
    std::ostringstream text;
    text << file.rdbuf();
    return place_in_file_system(real_path, text.str());
}

}  // namespace penstock::host
