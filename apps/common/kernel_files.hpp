// Files that a kernel works on, opened by the host before the launch, and what their errors mean to
// the user.
#pragma once

#include <cstdint>
#include <vector>

#include "common/files.hpp"
#include "common/numbers.hpp"
#include "penstock/runtime.hpp"

namespace penstock::apps {

// -ESTALE and a message if the file has no longer the size that was checked.
status open_input(runtime& rt, const number_file& file, int& fd);

// Makes the file under its passing name empty and opens it for a kernel to write.
status open_result(runtime& rt, const output_file& file, int& fd);

// After the kernel, whose own result `written` is: everything comes to the file, and other programs
// see it.
status close_result(runtime& rt, int fd, const status& written);

// Windows let the GPU fetch pages without a request. What has none, for want of budget or because
// the driver refuses, comes by request as ever. Returns how many bytes of the files have one.
std::uint64_t open_windows(runtime& rt, const std::vector<int>& fds);

// What an error code of a kernel means.
status read_error(const number_file& file, int code);
status write_error(int code);

}  // namespace penstock::apps
