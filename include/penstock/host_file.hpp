// A file that the host has open: the object owns a descriptor of a runtime and closes it at its
// end.
//
//   penstock::file f;
//   if (penstock::status s = penstock::file::open(*rt, "data.bin", penstock::open_read, f); !s)
//       return fail(s.message);
//   f.read(buffer, 4096, 0);       // from the host
//   use(f.fd());                   // for kernels: they read, write and gather by the descriptor
//
// Every call forwards to the runtime; penstock/runtime.hpp says its meaning, its errors and its
// cost. The runtime must outlive the file.
//
// Thread safety: calls that forward may be made by several threads at a time; open, close, moving
// and the destructor by one thread while no other uses the file. Kernels that use the descriptor
// must have ended before it is closed.
#pragma once

#include <cstdint>
#include <string>

#include "penstock/advise.hpp"
#include "penstock/error.hpp"
#include "penstock/file.hpp"

namespace penstock {

class runtime;

class file {
public:
    // Owns nothing: fd() is -1, and every call gives -EBADF. So does a file that was closed or
    // moved from.
    file() = default;
    // Opens as runtime::open does. First `out` closes the descriptor that it owned; on failure it
    // owns nothing, and the message names the file and the cause.
    static status open(runtime& rt, const std::string& path, int flags, file& out);
    // Closes the file and discards the error; call close() to see it. In a child of fork() it does
    // nothing: the descriptor belongs to the parent.
    ~file();
    file(const file&) = delete;
    file& operator=(const file&) = delete;
    file(file&& other) noexcept;
    // Closes the descriptor that it owned, and discards the error.
    file& operator=(file&& other) noexcept;

    [[nodiscard]] int fd() const { return fd_; }
    [[nodiscard]] bool is_open() const { return rt_ != nullptr; }

    std::int64_t read(void* buffer, std::int64_t bytes, std::int64_t offset) const;
    std::int64_t write(const void* buffer, std::int64_t bytes, std::int64_t offset) const;
    std::int64_t append(const void* buffer, std::int64_t bytes) const;
    int stat(file_stat* out) const;
    std::int64_t prefetch(std::int64_t offset, std::int64_t bytes) const;
    std::int64_t advise(advice kind, std::int64_t offset = 0, std::int64_t bytes = INT64_MAX) const;
    int fsync() const;
    int truncate(std::int64_t size_bytes) const;

    // Gives the descriptor up, even on an error. Returns the result of runtime::close: 0, or an
    // error, for a written file also the error of its write-back. -EBADF: it owns no descriptor.
    int close();

private:
    file(runtime& rt, int fd) : rt_(&rt), fd_(fd) {}

    runtime* rt_ = nullptr;  // null: owns nothing
    int fd_ = -1;
};

}  // namespace penstock
