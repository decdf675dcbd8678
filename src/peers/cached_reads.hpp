// Reads of programs that are answered with pages which the caches of runtimes have:
// of a file that kernels open and read, what lies in device memory or the host tier need not be
// read from the disk again (peer caching: Brokhman et al., GAIA, 2019). Mounts ask the
// hub (hub/hub.hpp), and the hub asks each runtime.
//
// A page is given out only if
//   - no writer has the file open, and it looks now (device, inode, size, times) as when
//     the slot of the page was opened (os/file_kind.hpp),
//   - no kernel has it open for writing, or has written to it, before and after the page is copied
//     (file_registry::lend).
// So it has the bytes that the file has, or had while the read was under way.
#pragma once

#include <cstdint>

#include "hub/hub.hpp"
#include "os/env.hpp"
#include "files/file_registry.hpp"
#include "device/loan.hpp"

namespace penstock::host {

// One runtime's part.
class cached_reads final : public page_source {
public:
    // Enters itself.
    cached_reads(environment& env, hub& shared, file_registry& files, page_lender& lender,
                 const runtime_ref& fs);
    ~cached_reads() override;
    cached_reads(const cached_reads&) = delete;
    cached_reads& operator=(const cached_reads&) = delete;

    std::uint64_t read(int fd, std::uint64_t offset, std::uint64_t bytes,
                       const byte_sink& use) override;

private:
    bool complete(const loan& peer_read, int fd);

    environment& env_;
    hub& hub_;
    file_registry& files_;
    page_lender& lender_;
    const runtime_ref& fs_;
};

}  // namespace penstock::host
