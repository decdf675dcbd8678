// shared_server SOURCE POINT AHEAD_MS ATTRIBUTE_MS: a mount of SOURCE, as a machine has the files
// of a server. Started twice on one source it is two machines of one server. The server's clock is
// AHEAD_MS before that of this machine and dates changes in whole seconds, as that of MooseFS; the
// kernel keeps attributes for ATTRIBUTE_MS. Stays in the foreground and ends with the mount.
#define FUSE_USE_VERSION 312

#include <fuse.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace {

std::string source;
long ahead_ms = 0;
double attributes_s = 0;

std::string at(const char* path) { return source + path; }
int code_of(int result) { return result == 0 ? 0 : -errno; }
int file_of(const fuse_file_info* open) { return static_cast<int>(open->fh); }

timespec dated(const timespec& real) {
    const long ms = real.tv_nsec / 1'000'000 + ahead_ms;
    const long seconds = ms >= 0 ? ms / 1000 : (ms - 999) / 1000;
    return {real.tv_sec + seconds, 0};
}

void* begin(fuse_conn_info*, fuse_config* config) {
    config->use_ino = 1;
    config->attr_timeout = attributes_s;
    config->entry_timeout = attributes_s;
    return nullptr;
}

int facts(const char* path, struct stat* out, fuse_file_info* open) {
    const int result =
        open != nullptr ? ::fstat(file_of(open), out) : ::lstat(at(path).c_str(), out);
    if (result != 0) return -errno;
    out->st_mtim = dated(out->st_mtim);
    out->st_ctim = dated(out->st_ctim);
    return 0;
}

int open_file(const char* path, fuse_file_info* open) {
    // Direct access is that of the client's kernel: what it reads to may have any address.
    const int flags = open->flags & ~(O_CREAT | O_EXCL | O_NOFOLLOW | O_DIRECT);
    const int fd = ::open(at(path).c_str(), flags);
    if (fd < 0) return -errno;
    open->fh = static_cast<std::uint64_t>(fd);
    return 0;
}

int create(const char* path, mode_t mode, fuse_file_info* open) {
    const int fd = ::open(at(path).c_str(), open->flags | O_CREAT, mode);
    if (fd < 0) return -errno;
    open->fh = static_cast<std::uint64_t>(fd);
    return 0;
}

int read_file(const char*, char* to, std::size_t bytes, off_t offset, fuse_file_info* open) {
    const ssize_t got = ::pread(file_of(open), to, bytes, offset);
    return got >= 0 ? static_cast<int>(got) : -errno;
}

int write_file(const char*, const char* from, std::size_t bytes, off_t offset,
               fuse_file_info* open) {
    const ssize_t done = ::pwrite(file_of(open), from, bytes, offset);
    return done >= 0 ? static_cast<int>(done) : -errno;
}

int cut(const char* path, off_t size, fuse_file_info* open) {
    return code_of(open != nullptr ? ::ftruncate(file_of(open), size)
                                   : ::truncate(at(path).c_str(), size));
}

int close_file(const char*, fuse_file_info* open) { return code_of(::close(file_of(open))); }

int remove_file(const char* path) { return code_of(::unlink(at(path).c_str())); }

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5) {
        std::fprintf(stderr, "shared_server SOURCE POINT AHEAD_MS ATTRIBUTE_MS\n");
        return 2;
    }
    source = argv[1];
    ahead_ms = std::strtol(argv[3], nullptr, 10);
    attributes_s = static_cast<double>(std::strtol(argv[4], nullptr, 10)) / 1000;
    fuse_operations calls{};
    calls.init = begin;
    calls.getattr = facts;
    calls.open = open_file;
    calls.create = create;
    calls.read = read_file;
    calls.write = write_file;
    calls.truncate = cut;
    calls.release = close_file;
    calls.unlink = remove_file;
    std::string name = argv[0], foreground = "-f", no_thread = "-s", flag = "-o",
                options = "fsname=shared_server,subtype=shared";
    char* words[] = {name.data(), foreground.data(), no_thread.data(),
                     flag.data(), options.data(),    argv[2]};
    return fuse_main(6, words, &calls, nullptr);
}
