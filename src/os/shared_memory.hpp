// Memory that processes share by a descriptor (memfd), and descriptors that close themselves.
//
// The owner maps its memory and seals it: from then on it has one size, and no mapping that writes
// can be made. A process that was handed a descriptor looks for the kind, the size and the seal
// before it maps: memory that becomes shorter under a reader, or huge pages of which there are
// none, would end the process with a signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace penstock::host {

class owned_fd {
public:
    owned_fd() = default;
    explicit owned_fd(int fd) : fd_(fd) {}
    ~owned_fd() { reset(); }
    owned_fd(owned_fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    owned_fd& operator=(owned_fd&& other) noexcept {
        if (this != &other) reset(std::exchange(other.fd_, -1));
        return *this;
    }
    void reset(int fd = -1);
    [[nodiscard]] int get() const { return fd_; }
    [[nodiscard]] explicit operator bool() const { return fd_ >= 0; }

private:
    int fd_ = -1;
};

// Zeroed memory of this process, mapped and sealed. Frees nothing in a child of fork().
class shared_memory {
public:
    shared_memory() = default;
    ~shared_memory();
    shared_memory(shared_memory&& other) noexcept
        : fd_(std::move(other.fd_)),
          begin_(std::exchange(other.begin_, nullptr)),
          bytes_(std::exchange(other.bytes_, 0)) {}
    shared_memory& operator=(shared_memory&&) = delete;

    // Once. 0 or a negative errno; `bytes` is rounded up to whole pages of the machine. The name is
    // for /proc. `others_write`: what has the descriptor may map it for writing.
    int make(std::uint64_t bytes, const char* name = "penstock", bool others_write = false);
    [[nodiscard]] std::byte* data() const { return begin_; }
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
    [[nodiscard]] int fd() const { return fd_.get(); }
    // In a child of fork(), which would otherwise write to the parent's memory: the child goes on
    // with a copy, made page by page as it is written to. One system call.
    void part_from_parent() const;

private:
    owned_fd fd_;
    std::byte* begin_ = nullptr;
    std::uint64_t bytes_ = 0;
};

// Memory of another process, for reading, or for writing too where that process allows it. Null
// with a negative errno in `code`: -EMSGSIZE, it is smaller than that; -EPERM, it may become
// smaller; -EOPNOTSUPP, it is of huge pages.
const std::byte* map_memory_of(int fd, std::uint64_t bytes, int& code, bool writes = false);
// Whether the file is memory in pages of the usual size. A descriptor by O_PATH will do.
bool is_plain_memory(int fd);
void unmap_memory_of(const std::byte* begin, std::uint64_t bytes);
// In a child of fork(), for which the memory is not: it reads zeros there, and holds nothing.
void part_from_memory_of(const std::byte* begin, std::uint64_t bytes);

}  // namespace penstock::host
