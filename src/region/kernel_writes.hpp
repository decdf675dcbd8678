// What kernels of this process change in files by write and truncate is told to regions of the
// file, page by page, and to mounts, which take away what the operating system keeps of it for
// programs.
#pragma once

namespace penstock::region {

// From now on. Called when the first region or mount is made: before, there is none to tell. May
// be called any number of times.
void watch_kernel_writes();

}  // namespace penstock::region
