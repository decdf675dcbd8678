// Reads of programs that are answered with pages which the caches of this process's runtimes have:
// of a file that kernels open and read, what lies in device memory or the host tier need not be
// read from the disk again (peer caching: Brokhman et al., GAIA, 2019). Mounts ask here
// (region/programs.cpp).
//
// A runtime enters itself when it is made, and leaves before it ends, which waits for reads under
// way. A page is given out only if
//   - no writer has the file open, and it looks now (device, inode, size, times) as when
//     the slot of the page was opened (may_change.hpp),
//   - no kernel has it open for writing, or has written to it, before and after the page is copied
//     (file_registry::lend).
// So it has the bytes that the file has, or had while the read was under way.
#pragma once

#include <cstdint>
#include <functional>

#include "os/env.hpp"
#include "files/file_registry.hpp"
#include "device/loan.hpp"

namespace penstock::host {

using byte_sink = std::function<void(const std::byte*, std::uint64_t)>;

// One runtime's part.
class cached_reads {
public:
    cached_reads(environment& env, file_registry& files, page_lender& lender,
                 const runtime_ref& fs);
    ~cached_reads();
    cached_reads(const cached_reads&) = delete;
    cached_reads& operator=(const cached_reads&) = delete;

    // A part of a file that is open as `fd`, where the operating system would have to bring it from
    // storage and a runtime of the process has pages of it: these by copies, the others from the
    // file at the same time. use(bytes, count), once, with what there is of the part up to the
    // file's end. How much of it came from a runtime; 0: use was not called, and the file has to be
    // read. Whether the file may be known is to be asked before (known_files).
    static std::uint64_t read(int fd, std::uint64_t offset, std::uint64_t bytes,
                              const byte_sink& use);

private:
    std::uint64_t read_own(int fd, std::uint64_t offset, std::uint64_t bytes, const byte_sink& use);
    bool complete(const loan& what, int fd);

    environment& env_;
    file_registry& files_;
    page_lender& lender_;
    const runtime_ref& fs_;
};

}  // namespace penstock::host
