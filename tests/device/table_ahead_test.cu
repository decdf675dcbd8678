// Tables on a GPU ahead of their gathers: wishes, in captured graphs too, while the disk stands
// still; and windows that grow between launches over what was asked for.
#include <fcntl.h>
#include <set>
#include <unistd.h>

#include "device/support.cuh"
#include "fault/faulty_environment.hpp"
#include "penstock/table.hpp"
#include "soon.hpp"

namespace penstock::test {

namespace {

class device_tables_ahead : public testing::Test {
protected:
    static constexpr std::uint64_t file_rows = 8192, row = 4096, files = 3;

    void start(std::uint64_t tier_bytes) {
        layout = {.row_bytes = row};
        for (std::uint64_t i = 0; i < files; ++i) {
            const std::string path = folder / ("piece" + std::to_string(i));
            bytes.push_back(pattern(i + 1, file_rows * row));
            write_file(path, bytes.back());
            layout.pieces.push_back({path, 0, file_rows});
        }
        env.allow_leases();
        hooks.env = &env;
        options o = gpu_options(folder);
        o.page_bytes = 4096;
        o.cache_bytes = 4096 * 4096;
        o.table_bytes = 16 << 20;
        o.tier_bytes = tier_bytes;
        o.window_bytes = tier_bytes + (256 << 20);
        o.direct_io = direct_mode::off;  // what is read stays in the system's page cache
        rt = make_runtime(o, hooks);
        ASSERT_NE(rt, nullptr);
        const status s = table::make(*rt, layout, {}, rows);
        ASSERT_TRUE(s.ok()) << s.message;
        ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    }
    void TearDown() override {
        env.release();
        if (stream != nullptr) {
            cudaStreamSynchronize(stream);
            cudaStreamDestroy(stream);
        }
        rows.reset();
        rt.reset();
    }
    // True if the operating system let go of the bytes of a file.
    [[nodiscard]] bool drop_from_memory(std::uint64_t file, std::uint64_t begin,
                                        std::uint64_t length) const {
        const int fd = ::open(layout.pieces[file].path.c_str(), O_RDONLY | O_CLOEXEC);
        const bool done = ::fsync(fd) == 0 &&
                          ::posix_fadvise(fd, static_cast<off_t>(begin), static_cast<off_t>(length),
                                          POSIX_FADV_DONTNEED) == 0 &&
                          host::linux_environment().in_page_cache(fd, begin, row) == 0;
        ::close(fd);
        return done;
    }
    [[nodiscard]] bool is_in_memory(std::uint64_t number) const {
        const int fd = ::open(layout.pieces[number / file_rows].path.c_str(), O_RDONLY | O_CLOEXEC);
        const int answer =
            host::linux_environment().in_page_cache(fd, number % file_rows * row, row);
        ::close(fd);
        return answer == 1;
    }
    // Numbers of rows at random, of which every fourth repeats the one before.
    void choose(std::int32_t* numbers, std::uint64_t count, std::uint64_t seed) {
        chosen.clear();
        for (std::uint64_t i = 0; i < count; ++i) {
            numbers[i] =
                i % 4 == 3
                    ? numbers[i - 1]
                    : static_cast<std::int32_t>(mix64(seed * 1000003 + i) % (files * file_rows));
            chosen.insert(static_cast<std::uint64_t>(numbers[i]));
        }
    }
    void expect_gathered(const std::int32_t* numbers, std::uint64_t count) {
        const shared_array<std::uint8_t> out(count * row);
        ASSERT_EQ(rows->gather(numbers, count, out.get(), {.stream = stream}), 0);
        ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
        std::uint64_t wrong = 0;
        for (std::uint64_t i = 0; i < count; ++i) {
            const auto n = static_cast<std::uint64_t>(numbers[i]);
            wrong += std::memcmp(out.get() + i * row, &bytes[n / file_rows][n % file_rows * row],
                                 row) != 0;
        }
        EXPECT_EQ(wrong, 0u);
        const status s = rows->check();
        EXPECT_TRUE(s.ok()) << s.message;
    }
    // A graph of one wish for the list, which is launched again with other numbers in it.
    cudaGraphExec_t captured_wish(const std::int32_t* numbers, std::uint64_t count) {
        EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
        EXPECT_EQ(rows->will_need(numbers, count, {.stream = stream}), 0);
        cudaGraph_t graph = nullptr;
        EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
        cudaGraphExec_t exec = nullptr;
        EXPECT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
        cudaGraphDestroy(graph);
        return exec;
    }

    const temporary_folder folder;
    table_layout layout;
    std::vector<std::vector<std::uint8_t>> bytes;
    fault::faulty_environment env;
    host::runtime_hooks hooks;
    std::unique_ptr<runtime> rt;
    std::unique_ptr<table> rows;
    std::set<std::uint64_t> chosen;
    cudaStream_t stream = nullptr;
};

constexpr std::uint64_t list_rows = 400;

}  // namespace

TEST_F(device_tables_ahead, a_graph_wishes_while_the_disk_stands_still) {
    PENSTOCK_NEEDS_GPU();
    start(0);
    for (std::uint64_t i = 0; i < files; ++i)
        if (!drop_from_memory(i, 0, file_rows * row))
            GTEST_SKIP() << "this file system keeps its pages, or does not tell";
    const shared_array<std::int32_t> numbers(list_rows);
    const cudaGraphExec_t exec = captured_wish(numbers.get(), list_rows);
    ASSERT_NE(exec, nullptr);
    for (std::uint64_t round = 1; round <= 3; ++round) {
        env.stall(fault::call_will_need | fault::call_read | fault::call_direct_read);
        choose(numbers.get(), list_rows, round);
        const std::uint64_t misses = rt->stats().misses;
        ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
        ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess) << "no page can have come";
        EXPECT_EQ(rt->stats().misses, misses);
        EXPECT_TRUE(soon([&] { return env.stalled() > 0; }));
        env.release();
        for (const std::uint64_t number : chosen)
            EXPECT_TRUE(soon([&] { return is_in_memory(number); })) << number;
        expect_gathered(numbers.get(), list_rows);
    }
    EXPECT_EQ(rt->stats().wishes_dropped, 0u);
    EXPECT_EQ(rt->stats().bad_requests, 0u);
    cudaGraphExecDestroy(exec);
}

TEST_F(device_tables_ahead, a_graph_fills_the_tier_while_the_disk_stands_still) {
    PENSTOCK_NEEDS_GPU();
    start(4096 * 4096);
    const shared_array<std::int32_t> numbers(list_rows);
    const cudaGraphExec_t exec = captured_wish(numbers.get(), list_rows);
    ASSERT_NE(exec, nullptr);
    env.stall(fault::call_read | fault::call_direct_read);
    choose(numbers.get(), list_rows, 1);
    ASSERT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess) << "no page can have come";
    const statistics held = rt->stats();
    EXPECT_EQ(held.tier_loads, 0u);
    // Two groups may ask for one page at once, of which one gets it; rings had room for all.
    EXPECT_EQ(held.read_ahead_pages, chosen.size()) << "each page once";
    env.release();
    expect_gathered(numbers.get(), list_rows);
    const statistics s = rt->stats();
    EXPECT_EQ(s.tier_loads, chosen.size());
    EXPECT_EQ(s.requests, held.requests) << "no row asked again";
    EXPECT_EQ(s.bad_requests, 0u);
    cudaGraphExecDestroy(exec);
}

// The rows of one chunk are wished for and gathered, and then it is a window.
TEST_F(device_tables_ahead, windows_grow_between_launches_over_what_was_asked_for) {
    PENSTOCK_NEEDS_GPU();
    start(0);
    constexpr std::uint64_t chunk_rows = engine::window_chunk_bytes / row, first = file_rows;
    if (!drop_from_memory(1, 0, file_rows * row))
        GTEST_SKIP() << "this file system keeps its pages, or does not tell";
    const std::int64_t inside = rows->open_windows();
    if (inside == -EOPNOTSUPP) GTEST_SKIP() << "this driver registers no mapped file";
    ASSERT_GT(inside, 0);
    ASSERT_LT(inside, static_cast<std::int64_t>(files * file_rows * row));
    EXPECT_EQ(rows->grow_windows(), 0) << "nothing was asked for";
    const shared_array<std::int32_t> numbers(chunk_rows);
    for (std::uint64_t i = 0; i < chunk_rows; ++i)
        numbers[i] = static_cast<std::int32_t>(first + i);
    ASSERT_EQ(rows->will_need(numbers.get(), chunk_rows, {.stream = stream}), 0);
    expect_gathered(numbers.get(), chunk_rows);
    ASSERT_TRUE(soon([&] { return is_in_memory(first + chunk_rows - 1); }));
    const std::uint64_t before = rt->stats().window_bytes;
    const std::int64_t grown = rows->grow_windows();
    EXPECT_EQ(grown, static_cast<std::int64_t>(engine::window_chunk_bytes));
    EXPECT_EQ(rt->stats().window_bytes, before + engine::window_chunk_bytes);
    EXPECT_EQ(rt->grow_windows(), 0);
    // Once the cache has forgotten them, they come from the window.
    for (const table_piece& piece : layout.pieces) {
        const int fd = rt->open(piece.path);
        EXPECT_EQ(rt->advise(fd, advice::done_with), 0);
        rt->close(fd);
    }
    const statistics forgotten = rt->stats();
    expect_gathered(numbers.get(), chunk_rows);
    const statistics s = rt->stats();
    EXPECT_EQ(s.file_reads, forgotten.file_reads);
    EXPECT_GE(s.window_loads + s.through_reads - forgotten.window_loads - forgotten.through_reads,
              chunk_rows);
}

TEST_F(device_tables_ahead, wishes_of_no_row_and_from_unreachable_memory) {
    PENSTOCK_NEEDS_GPU();
    start(0);
    const shared_array<std::int32_t> numbers(3);
    std::vector<std::int32_t> of_host(3);
    EXPECT_EQ(rows->will_need(of_host.data(), 3, {.stream = stream}), -EFAULT);
    numbers[0] = -7, numbers[1] = 1 << 30, numbers[2] = 12;
    EXPECT_EQ(rows->will_need(numbers.get(), 3, {.stream = stream}), 0);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_TRUE(rows->check().ok()) << "a hint notes nothing";
    numbers[0] = numbers[1] = 5;
    expect_gathered(numbers.get(), 3);
}

}  // namespace penstock::test
