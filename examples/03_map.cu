// Adds up the bytes of a file through pointers into the page cache, without copying them: 03_map
// FILE.
#include <penstock/launch.hpp>
#include <penstock/view.hpp>

#include "support.hpp"

struct add_bytes {
    int fd;
    std::int64_t page_bytes;
    std::uint64_t* sum;
    std::uint64_t* failures;

    // Page number `index`. While the mapping is held the page stays where it is; unmap gives its
    // frame back to the cache.
    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const penstock::runtime_ref& fs,
                                std::uint64_t index) const {
        const penstock::mapping page =
            penstock::map(g, fs, fd, static_cast<std::int64_t>(index) * page_bytes, page_bytes);
        std::uint64_t found = 0;
        for (std::int64_t i = g.rank(); i < page.bytes; i += g.size())
            found += static_cast<std::uint8_t>(page.data[i]);
        penstock::unmap(g, fs, page);
        penstock::atomic_add_relaxed(sum, found);
        if (page.bytes < 0) penstock::atomic_add_relaxed(failures, std::uint64_t{1});
    }
};

int main(int argc, char** argv) {
    if (argc != 2) return std::fprintf(stderr, "usage: 03_map FILE\n"), 2;
    const auto rt = make_runtime();
    if (rt == nullptr) return 1;
    penstock::file_stat facts{};
    const int fd = rt->open(argv[1]);
    if (fd < 0 || rt->stat(fd, &facts) != 0)
        return std::fprintf(stderr, "%s: %s\n", argv[1], penstock::error_text(fd).c_str()), 1;

    const std::uint64_t pages = (facts.size_bytes + facts.page_bytes - 1) / facts.page_bytes;
    const shared_array<std::uint64_t> counts(*rt, 2);
    const add_bytes work{fd, static_cast<std::int64_t>(facts.page_bytes), counts.data(),
                         counts.data() + 1};
    const int launched = penstock::launch<penstock::width::warp>(*rt, pages, work);
    rt->close(fd);
    if (launched != 0 || counts[1] != 0)
        return std::fprintf(stderr, "%s could not be read\n", argv[1]), 1;
    std::printf("%llu %s\n", static_cast<unsigned long long>(counts[0]), argv[1]);
}
