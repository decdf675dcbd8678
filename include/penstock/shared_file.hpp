// A file that every device of a runtime has open.
//
//   penstock::shared_file file = rt->open_everywhere("features.bin");
//   if (file.code() != 0) return fail(penstock::error_text(file.code()));
//   penstock::launch(*rt, groups, work{file});       // over all devices
//   ...
//   read(g, fs, file.of(fs), buffer, bytes, offset); // in work::operator()(g, fs, index)
//   ...
//   rt->close(file);
//
// Each device has its own file table, so one file has another descriptor on each. A shared_file
// holds all of them; it is trivially copyable and owns nothing. Kernels that open files by name
// need none.
//
// Devices that write the same file do not see each other's writes before close, fsync and reopen:
// each has its own copies of the pages, and marks bring the bytes that it wrote to the file.
#pragma once

#include <cerrno>
#include <cstdint>

#include "penstock/base/macros.hpp"
#include "penstock/file.hpp"

namespace penstock {

// How many devices a runtime may have (options::devices).
inline constexpr std::uint32_t most_runtime_devices = 8;

struct shared_file {
    // Of each device; a negative errno where there is none.
    int fds[most_runtime_devices] = {-EBADF, -EBADF, -EBADF, -EBADF,
                                     -EBADF, -EBADF, -EBADF, -EBADF};

    // The descriptor of the device that the reference is of. Not open, for a reference to a device
    // that the file was not opened for.
    PENSTOCK_HD int of(const runtime_ref& fs) const {
        return fs.device < most_runtime_devices ? fds[fs.device] : -EBADF;
    }
    PENSTOCK_HD int of(std::uint32_t device) const {
        return device < most_runtime_devices ? fds[device] : -EBADF;
    }
    // 0, or why the file could not be opened; then no device has it open.
    [[nodiscard]] PENSTOCK_HD int code() const { return fds[0] < 0 ? fds[0] : 0; }
};

}  // namespace penstock
