// Searching with kernels that open and read the files themselves.
#include <algorithm>

#include "count_words.hpp"
#include "penstock/launch.hpp"
#include "search.hpp"

namespace penstock::grep {

namespace {

constexpr std::uint64_t pages_ahead = 8;  // what one call keeps in flight

class penstock_search final : public search_method {
public:
    explicit penstock_search(runtime& rt)
        : search_method(rt.where() == backend::gpu ? apps::make_gpu_memory(rt.settings().device)
                                                   : apps::make_host_memory()),
          rt_(rt) {}

private:
    status launch(const search_view& view, const std::vector<job>&, std::uint64_t groups) override {
        const options& o = rt_.settings();
        // Reading ahead must not push out what other groups are about to read.
        const std::uint64_t pages = *o.cache_bytes / o.page_bytes;
        const std::uint64_t ahead =
            pages >= groups * pages_ahead * 2 ? pages_ahead * o.page_bytes : 0;
        const int code = penstock::launch<width::warp>(rt_, groups, count_words{view, ahead});
        if (was_interrupted()) return {-ECANCELED, error_text(-ECANCELED)};
        if (code == 0) return {};
        const status health = rt_.health();
        return {code, health.ok() ? error_text(code) : health.message};
    }
    runtime& rt_;
};

#if defined(__CUDACC__)
// With 64 registers for each thread (CMakeLists.txt), 32 warps fit a multiprocessor.
std::uint64_t resident_warps(int device) {
    int multiprocessors = 1;
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    return static_cast<std::uint64_t>(multiprocessors) * 32;
}
#endif

}  // namespace

std::unique_ptr<search_method> make_penstock_search(runtime& rt) {
    return std::make_unique<penstock_search>(rt);
}

bool will_use_gpu(const options& o) {
#if defined(__CUDACC__)
    int devices = 0;
    return o.where == backend::gpu || (o.where == backend::automatic &&
                                       cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0);
#else
    return o.where == backend::gpu;
#endif
}

// A group holds one page at a time, and half the frames are left for pages that are being loaded.
search_limits penstock_limits(const runtime& rt) {
    const options& o = rt.settings();
    std::uint64_t groups = *o.worker_threads;
#if defined(__CUDACC__)
    if (rt.where() == backend::gpu) groups = resident_warps(o.device);
#endif
    const std::uint64_t frames = *o.cache_bytes / o.page_bytes;
    groups =
        std::min({groups, std::max<std::uint64_t>(1, frames / 2), std::uint64_t{o.max_files} / 2});
    return {groups, std::uint64_t{1} << 14, 0};
}

}  // namespace penstock::grep
