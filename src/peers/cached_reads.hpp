// Pages that the caches of runtimes have, for readers that are no kernels of the runtime: reads of
// programs are answered with them, and regions are filled from them.
//
// Reads of programs:
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
    // Enters itself. `gpu`: CUDA's number of the device of `fs`.
    cached_reads(environment& env, hub& shared, file_registry& files, page_lender& lender,
                 const runtime_ref& fs, std::optional<int> gpu);
    ~cached_reads() override;
    cached_reads(const cached_reads&) = delete;
    cached_reads& operator=(const cached_reads&) = delete;

    std::uint64_t read(int fd, std::uint64_t offset, std::uint64_t bytes,
                       const byte_sink& use) override;
    bool lend(const file_identity& now, lent_file& out) override;
    bool is_lent_as_is(const lent_file& lent) override;

private:
    bool complete(const loan& peer_read, int fd);

    environment& env_;
    hub& hub_;
    file_registry& files_;
    page_lender& lender_;
    const runtime_ref& fs_;
    const std::optional<int> gpu_;
};

}  // namespace penstock::host
