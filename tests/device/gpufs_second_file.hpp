// What tests/device/gpufs_second_file_test.cu lends to gpufs_test.cu: a kernel of another source
// file.
#pragma once

namespace penstock::test {

// The sum of a file's bytes, by gread, added to *sum. Both are in memory of the GPU.
void sum_in_second_file(const char* name, unsigned long long* sum);

}  // namespace penstock::test
