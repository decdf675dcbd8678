// Flushes by a block: its warps share the pages out. What a block wrote is in the file after fsync,
// msync and the last close, whatever the number of its threads, and errors are told.
#include <algorithm>
#include <cerrno>

#include "device/support.cuh"
#include "fault/faulty_environment.hpp"
#include "penstock/write.hpp"
#include "runtime/runtime_state.hpp"

namespace penstock::test {

namespace {

// Small enough for each warp to have its own.
constexpr std::uint64_t flushed_page = 4096;
constexpr std::uint64_t flushed_bytes = 300 * flushed_page + 1234;

enum flush_result { opened, wrote, synced, closed, flush_results };
enum class ending { fsync, msync, close };

// One block writes the whole file and ends so. The bounds: compiled fast or to be debugged, it
// would use more registers than a block of so many threads may have.
__global__ void __launch_bounds__(512)
    write_and_end(const __grid_constant__ runtime_ref fs, const char* name,
                  const std::uint8_t* source, ending how, std::int64_t* results) {
    const block g;
    const int fd = open(g, fs, name, open_read_write | open_create);
    std::int64_t done = 0, code = 0;
    for (std::uint64_t at = 0; at < flushed_bytes; at += flushed_page) {
        const auto length = static_cast<std::int64_t>(min(flushed_page, flushed_bytes - at));
        const std::int64_t more =
            write(g, fs, fd, source + at, length, static_cast<std::int64_t>(at));
        done = more < 0 ? more : done + more;
    }
    if (how == ending::fsync) code = fsync(g, fs, fd);
    // All but the first page and the last ones.
    if (how == ending::msync) code = msync(g, fs, fd, flushed_page, 200 * flushed_page);
    if (g.is_leader()) {
        results[opened] = fd;
        results[wrote] = done;
        results[synced] = code;
    }
    if (how != ending::close) return;
    const int end = close(g, fs, fd);
    if (g.is_leader()) results[closed] = end;
}

class device_flush : public testing::TestWithParam<unsigned> {
protected:
    temporary_folder folder;
    fault::faulty_environment disk;
    std::unique_ptr<runtime> rt;
    std::vector<std::uint8_t> wanted = pattern(3, flushed_bytes);

    void SetUp() override {
        PENSTOCK_NEEDS_GPU();
        options o = gpu_options(folder);
        o.writable = true;
        o.page_bytes = flushed_page;
        o.cache_bytes = 512 * flushed_page;
        o.write_behind_bytes = o.cache_bytes;  // nothing is written before the end
        host::runtime_hooks hooks;
        hooks.env = &disk;
        rt = make_runtime(o, hooks);
        ASSERT_NE(rt, nullptr);
    }
    std::vector<std::int64_t> run(ending how) {
        const shared_array<std::uint8_t> source(flushed_bytes);
        std::copy(wanted.begin(), wanted.end(), source.get());
        const device_text name("out");
        const shared_array<std::int64_t> results(flush_results);
        write_and_end<<<1, GetParam()>>>(rt->ref(), name.get(), source.get(), how, results.get());
        EXPECT_EQ(cudaGetLastError(), cudaSuccess);
        EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
        EXPECT_GE(results[opened], 0);
        EXPECT_EQ(results[wrote], static_cast<std::int64_t>(flushed_bytes));
        return {results.get(), results.get() + flush_results};
    }
    std::vector<std::uint8_t> on_disk() { return bytes_on_disk(folder / "out"); }
};

}  // namespace

TEST_P(device_flush, fsync_brings_all_pages) {
    EXPECT_EQ(run(ending::fsync)[synced], 0);
    EXPECT_TRUE(on_disk() == wanted);
    EXPECT_EQ(rt->stats().write_backs, 301u) << "a page was written twice, or not at all";
}

TEST_P(device_flush, msync_brings_its_range) {
    EXPECT_EQ(run(ending::msync)[synced], 0);
    const auto found = on_disk();
    ASSERT_EQ(found.size(), 201 * flushed_page);
    EXPECT_TRUE(
        std::equal(found.begin() + flushed_page, found.end(), wanted.begin() + flushed_page));
    EXPECT_EQ(rt->stats().write_backs, 200u);
}

TEST_P(device_flush, the_last_close_brings_all_pages) {
    EXPECT_EQ(run(ending::close)[closed], 0);
    EXPECT_TRUE(on_disk() == wanted);
    EXPECT_EQ(rt->stats().write_backs, 301u);
}

TEST_P(device_flush, an_error_is_told_and_the_other_pages_are_written) {
    disk.set({.calls = fault::call_write, .nth = 1, .error = -ENOSPC});
    EXPECT_EQ(run(ending::fsync)[synced], -ENOSPC);
    disk.clear();
    const int fd = rt->open("out", open_read_write);
    ASSERT_GE(fd, 0) << error_text(fd);
    EXPECT_EQ(rt->fsync(fd), 0) << "the pages that could not be written are dirty still";
    EXPECT_TRUE(on_disk() == wanted);
    EXPECT_EQ(rt->close(fd), 0);
}

// Whole warps, one warp, and a block whose last warp is not whole.
INSTANTIATE_TEST_SUITE_P(threads, device_flush, testing::Values(256u, 96u, 32u, 100u, 512u));

}  // namespace penstock::test
