// What kernels of this process change in files by write and truncate is told to regions of the
// file, page by page, and to mounts, which take away what the operating system keeps of it for
// programs.
#pragma once

namespace penstock::region {

// From now on; before there is the first region or mount there is none to tell. Any number of
// times.
void watch_kernel_writes();

}  // namespace penstock::region
