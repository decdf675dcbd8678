// The ways to search.
#pragma once

#include <memory>
#include <string>

#include "penstock/runtime.hpp"
#include "search.hpp"

namespace penstock::grep {

// Kernels that read the files through Penstock's page cache. `rt` must outlive the method.
std::unique_ptr<search_method> make_penstock_search(runtime& rt);
search_limits penstock_limits(const runtime& rt);
// Will a runtime of these options be one of the gpu back end? For what is chosen before it is made.
bool will_use_gpu(const options& o);

// Baseline: the same counting on CPU threads, with pread and no page cache of our own.
std::unique_ptr<search_method> make_cpu_search();
search_limits cpu_limits(std::uint32_t threads);

// Baseline: the same counting on the GPU; the host reads the files into pinned memory in large
// batches and copies them, reading one batch while the GPU counts another. `files` must outlive the
// method. -ENODEV and a message without a GPU.
status make_cuda_search(int device, std::uint32_t threads, const file_list& files,
                        std::unique_ptr<search_method>& out, search_limits& limits);

}  // namespace penstock::grep
