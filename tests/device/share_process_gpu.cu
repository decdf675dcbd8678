// penstock_share_process on a GPU (fault/share_process.cpp has the command line): kernels open,
// read and judge the files, while processes around them are killed. CUDA_VISIBLE_DEVICES chooses
// the GPU. Exit 77: there is none.
#include "device/support.cuh"
#include "fault/share_roles.hpp"

namespace penstock::test {
namespace {

constexpr std::uint32_t groups = 16, reads_a_group = 8, name_bytes = 8;

// A warp reads two pages of a file at a time and compares all their words.
struct read_and_judge {
    const char* names;  // of the files, name_bytes each
    std::uint64_t files, pages, seed;
    std::uint64_t* to;  // room for two pages, for each group
    unsigned long long* wrong;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref& fs, std::uint64_t i) const {
        std::uint64_t* const words = to + i * 2 * words_per_page;
        for (std::uint64_t k = 0; k < reads_a_group; ++k) {
            const std::uint64_t drawn = mix64(seed + i * reads_a_group + k), file = drawn % files,
                                first = (drawn >> 32) % (pages - 1);
            const int fd = open(g, fs, names + file * name_bytes);
            if (fd == -ENFILE || fd == -ENOMEM) continue;
            const std::int64_t got =
                fd < 0 ? fd
                       : read(g, fs, fd, words, 2 * share_page_bytes,
                              static_cast<std::int64_t>(first * share_page_bytes));
            g.sync();
            unsigned long long bad = got == 2 * share_page_bytes ? 0 : 1;
            for (std::uint64_t w = g.rank(); bad == 0 && w < 2 * words_per_page; w += g.size())
                bad = words[w] != mix64(file * 0x9e3779b97f4a7c15ull + first * words_per_page + w)
                          ? 1
                          : 0;
            if (bad != 0) atomic_add_relaxed(wrong, bad);
            g.sync();
            if (fd >= 0) close(g, fs, fd);
        }
    }
};

// One thread's kernels: each has words of its own.
class kernel_reads {
public:
    kernel_reads(runtime& rt, std::uint64_t files, std::uint64_t pages)
        : rt_(rt), files_(files), pages_(pages), names_(files * name_bytes) {
        for (std::uint64_t i = 0; i < files; ++i)
            std::snprintf(names_.get() + i * name_bytes, name_bytes, "%u",
                          static_cast<unsigned>(i));
        if (cudaMalloc(&to_, std::uint64_t{groups} * 2 * share_page_bytes) != cudaSuccess)
            std::abort();
    }
    ~kernel_reads() { cudaFree(to_); }
    kernel_reads(const kernel_reads&) = delete;
    kernel_reads& operator=(const kernel_reads&) = delete;

    void operator()(std::mt19937_64& random, findings& found) {
        const std::uint64_t begin_ns = detail::host_now_ns();
        const int code = launch<width::warp>(
            rt_, groups, read_and_judge{names_.get(), files_, pages_, random(), to_, wrong_.get()});
        if (code != 0) ++found.wrong;
        found.took(begin_ns);
        found.reads += groups * reads_a_group;
        const unsigned long long wrong = wrong_.read()[0];
        found.wrong += wrong - seen_;
        seen_ = wrong;
    }

private:
    runtime& rt_;
    std::uint64_t files_, pages_;
    shared_array<char> names_;
    std::uint64_t* to_ = nullptr;
    device_counters wrong_{1};
    unsigned long long seen_ = 0;
};

}  // namespace
}  // namespace penstock::test

int main(int argc, char** argv) {
    using namespace penstock::test;
    if (!has_gpu()) {
        std::puts("no GPU in this machine");
        return 77;
    }
    return run_share_process(
        argc, argv, penstock::backend::gpu,
        [](penstock::runtime& rt, std::uint64_t files, std::uint64_t pages, std::uint64_t seed) {
            read_role(rt, seed, [&](auto& random, auto& found) {
                thread_local kernel_reads kernels(rt, files, pages);
                kernels(random, found);
            });
        });
}
