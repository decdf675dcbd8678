// Files that programs read: whether they can be read at all, decided before anything is opened that
// could wait.
#pragma once

#include <cstddef>
#include <string>
#include <sys/stat.h>
#include <sys/types.h>

#include "penstock/error.hpp"

namespace penstock::apps {

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
    input_stream() = default;
    ~input_stream();
    input_stream(const input_stream&) = delete;
    input_stream& operator=(const input_stream&) = delete;

    // 0, or a negative errno: what open() said, -EISDIR, -ENXIO for a socket.
    int open(const std::string& path);
    // Bytes read; 0 at the end; a negative errno. -ECANCELED after a signal, -ENXIO where no
    // program writes to the pipe.
    ssize_t read(void* to, std::size_t most);
    [[nodiscard]] int fd() const { return fd_; }

private:
    int fd_ = -1;
    bool is_pipe_ = false, had_writer_ = false;
};

}  // namespace penstock::apps
