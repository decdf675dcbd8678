// Files that programs read, write and map, with messages that name the file and the cure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "common/process.hpp"
#include "penstock/error.hpp"

namespace penstock::apps {

// A descriptor of an open file, closed at the end; -1: none.
class unique_fd {
public:
    unique_fd() = default;
    explicit unique_fd(int fd) : fd_(fd) {}
    unique_fd(unique_fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    unique_fd& operator=(unique_fd&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~unique_fd() {
        if (fd_ >= 0) ::close(fd_);
    }
    operator int() const { return fd_; }
    // To another owner.
    int release() { return std::exchange(fd_, -1); }

private:
    int fd_ = -1;
};

// A negative errno and a message that ends in "name `noun` that can be read". `flags` beside those
// of every file that is read.
status open_to_read(const std::string& path, const std::string& noun, unique_fd& out,
                    int flags = 0);

// For a file that is read by its size, by a kernel, a map or parts of it. A negative errno and a
// message if it is not there, is a directory, a pipe or a device, or says that it has another size
// than it has (/proc, /sys). `cure` is the end of the message where the operating system refused:
// "name a graph that can be read". Waits for nothing.
status look_at_input(const std::string& path, const std::string& cure, struct stat& facts);

// What a message says about a negative errno of a stream, and the cure: the given one, or that for
// a pipe without a writer.
std::string about_stream(int code, const std::string& cure);

// A file or pipe that is read from front to back. Of a pipe, a program must be writing, or begin to
// within seconds; then reads wait for it as long as it lives and no signal interrupts them.
class input_stream {
public:
    // 0, or a negative errno: what open() said, -EISDIR, -ENXIO for a socket.
    int open(const std::string& path);
    // Bytes read; 0 at the end; a negative errno. -ECANCELED after a signal, -ENXIO where no
    // program writes to the pipe.
    ssize_t read(void* to, std::size_t most);
    [[nodiscard]] int fd() const { return fd_; }

private:
    unique_fd fd_;
    bool is_pipe_ = false, had_writer_ = false;
};

// What a name leads to, links followed: a file, or where there is none yet, the folder and the name
// in it that one would get.
struct file_place {
    std::uint64_t device = 0, inode = 0;
    std::string name;  // empty: the file is there
    auto operator<=>(const file_place&) const = default;
};
// Nothing where that cannot be found out.
std::optional<file_place> place_of(const std::string& path);

// By name, and by where the names lead to.
bool same_file(const std::string& path, const std::string& other);

// -EINVAL and a message if the output is a file that would go over one of the inputs, by whatever
// name.
status check_not_input(const std::string& output, const std::vector<std::string>& inputs);
// That message.
status is_input(const std::string& output, const std::string& input);

// -EINVAL and a message if a report is to go to standard output (`wanted`) and the output is that
// too, by whatever name: one file would hold both, mixed. /dev/null may be both.
status check_not_report(bool wanted, const std::string& output);

// Gives a file or folder that this process made and has open the owner, group and rights of the one
// at `old`, which it is to replace. What the process may not give away costs rights: no user gains
// access by the replacement. The bits that run a program with the rights of its owner or group stay
// behind, since they were given to other bytes. 0 or a negative errno.
int take_rights(int fd, const std::string& old);

// -ENOSPC and a message if `bytes` more do not fit where `path` is to lie, for what takes long to
// write. `cure` is its end: "give fewer --pages". Where that cannot be found out, the write tells.
status check_room(const std::string& path, std::uint64_t bytes, const std::string& cure);

// A file that appears whole or not at all: written without a name, or under a passing one, and put
// in place at the end.
class output_file {
public:
    output_file() = default;
    ~output_file();
    output_file(const output_file&) = delete;
    output_file& operator=(const output_file&) = delete;

    // Checks that `path` can be written, before the work is done. An empty path is standard output.
    // A device or pipe is written to directly, a pipe only if a program reads it or begins to
    // within seconds; a link is followed, but not another user's in a folder like /tmp; an existing
    // file stays as it is until commit(). A name of a descriptor that this process was given, such
    // as /dev/stdout, is written to as it stands.
    status open(const std::string& path);

    // The same for what is written by its name, as by a kernel: until commit() it stands beside its
    // place under passing_path(). Only a regular file can be.
    status open_named(const std::string& path);
    [[nodiscard]] const std::string& passing_path() const { return passing_; }

    status write(const char* data, std::size_t bytes);

    // Of a regular file: bytes that lie at `offset`. Thread-safe.
    status write_at(const void* data, std::uint64_t bytes, std::uint64_t offset) const;

    // Gives the file take_rights() of the one that it is to replace, and closes it: what the file
    // system refuses as late as that is an error too. What is left is its place. A caller with two
    // files finishes both before it commits one.
    status finish();

    // Finishes the file and puts it in its place. Without it, nothing is left behind.
    status commit();

private:
    status failed(int code, const std::string& cure) const;
    status open_special(const std::string& path);
    status open_again(int own);
    status open_regular(bool exists);
    status name_it();
    status close_it();

    std::string path_;     // as given, for messages
    std::string target_;   // where it goes, links followed
    std::string passing_;  // name it has meanwhile; empty: none
    leftover noted_;       // that name, for signals
    int fd_ = -1;
    unsigned mode_if_new_ = 0;  // with the umask, which only calls that change it tell
    bool replaces_ = false;     // a regular file, put in place at the end
    bool wants_name_ = false;
};

// pread or pwrite of all of it. 0 or a negative errno, -ESTALE if the file is shorter.
int read_all(int fd, void* to, std::uint64_t bytes, std::uint64_t offset);
int write_all(int fd, const void* from, std::uint64_t bytes, std::uint64_t offset);

// The same with a message that names the file.
status read_exactly(const std::string& path, int fd, void* to, std::uint64_t bytes,
                    std::uint64_t offset);
status write_exactly(const std::string& path, int fd, const void* from, std::uint64_t bytes,
                     std::uint64_t offset);

// A file in this process's address space: a plain memory map of the operating system's page cache,
// for the baselines. A file that is cut short while it is mapped ends the program by SIGBUS, as
// with every memory map; the handler says so (common/process.cpp).
class mapped_file {
public:
    // The first `bytes` bytes, which the file has; more than 0.
    status open(const std::string& path, std::uint64_t bytes, const std::string& noun = "a file");
    [[nodiscard]] const char* data() const { return data_.get(); }

private:
    struct unmap {
        std::uint64_t bytes;
        void operator()(char* data) const;
    };
    std::unique_ptr<char, unmap> data_;
};

// As ::open() without O_CREAT, for paths of any length: one that is longer than the operating
// system takes in one call (PATH_MAX, 4096 bytes) is opened folder by folder. A descriptor, or -1
// and errno.
int open_long(const std::string& path, int flags);

}  // namespace penstock::apps
