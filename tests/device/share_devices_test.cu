// A share name for runtimes of several GPUs: the caches of two processes find each other by it, and
// kernels read next door what the other process has read. Skipped, and says so, on a machine with
// one GPU.
#include <csignal>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/support.cuh"
#include "penstock/launch.hpp"
#include "unit/share_support.hpp"

extern char** environ;

namespace penstock::test {

namespace {

constexpr std::uint64_t shared_pages = 2000;
constexpr const char* folder_name = "PENSTOCK_TEST_SHARE_FOLDER";

// Words of `wrong` only need to become other than 0.
struct judge_page {
    shared_file file;
    std::uint64_t seed;
    std::uint64_t* wrong;  // of each device

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
#if defined(__CUDA_ARCH__)
        __shared__ std::uint8_t bytes[8][512];
        std::uint8_t* const to = bytes[threadIdx.x / 32];
        for (std::uint64_t at = index * page; at < (index + 1) * page; at += 512) {
            const std::int64_t got =
                read(g, fs, file.of(fs), to, 512, static_cast<std::int64_t>(at));
            bool good = got == 512;
            for (std::uint32_t i = g.rank(); good && i < 512; i += g.size())
                good = to[i] == pattern_byte(seed, at + i);
            if (!good) wrong[fs.device] = index + 1;
            g.sync();
        }
#endif
    }
};

// A runtime of two GPUs with a cache that holds the file on each.
std::unique_ptr<runtime> make_sharing(const std::string& folder) {
    options o;
    o.where = backend::gpu;
    o.devices = {0, 1};
    o.share = "gputest";
    o.page_bytes = page;
    o.cache_bytes = 2 * shared_pages * page;
    o.window_bytes = 0;
    o.admit_one_in = 1;
    o.host_wait_ms = 20000;
    o.roots = {folder};
    o.log = [](const std::string& line) { std::printf("%d: %s\n", getpid(), line.c_str()); };
    return make_runtime(o);
}

// All pages by warps of this device; those that were wrong fail.
void read_on(runtime& rt, const shared_file& file, std::uint32_t device) {
    const shared_array<std::uint64_t> wrong(8);
    EXPECT_EQ(launch_on<width::warp>(rt, device, shared_pages, judge_page{file, 51, wrong.get()}),
              0);
    EXPECT_EQ(wrong[device], 0u) << "device " << device;
}

bool has_neighbours(const runtime& rt, std::size_t count) {
    return soon([&] {
        for (std::uint32_t i = 0; i < rt.device_count(); ++i)
            if (rt.state(i).share->linked() != count) return false;
        return true;
    });
}

std::uint64_t next_door(const runtime& rt, std::uint32_t device) {
    return rt.stats(device).neighbour_reads + rt.stats(device).neighbour_loads;
}

// This program again, as the process that has read the file by its second GPU and waits.
class other_process {
public:
    other_process() {
        int to_it[2], from_it[2];
        if (::pipe2(to_it, O_CLOEXEC) != 0 || ::pipe2(from_it, O_CLOEXEC) != 0) std::abort();
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, to_it[0], 0);
        posix_spawn_file_actions_adddup2(&actions, from_it[1], 3);
        char name[] = "share", filter[] = "--gtest_filter=share_of_gpus.DISABLED_the_other_process",
             also[] = "--gtest_also_run_disabled_tests";
        char* const words[] = {name, filter, also, nullptr};
        if (::posix_spawn(&process_, "/proc/self/exe", &actions, nullptr, words, environ) != 0)
            std::abort();
        posix_spawn_file_actions_destroy(&actions);
        ::close(to_it[0]);
        ::close(from_it[1]);
        holds_ = to_it[1];
        char ready = 0;
        is_ready_ = ::read(from_it[0], &ready, 1) == 1 && ready == 'r';
        ::close(from_it[0]);
    }
    ~other_process() { end(SIGKILL); }
    other_process(const other_process&) = delete;
    other_process& operator=(const other_process&) = delete;

    [[nodiscard]] bool is_ready() const { return is_ready_; }
    void end(int signal) {
        if (process_ == 0) return;
        ::kill(process_, signal);
        ::waitpid(process_, nullptr, 0);
        ::close(holds_);
        process_ = 0;
    }

private:
    pid_t process_ = 0;
    int holds_ = -1;
    bool is_ready_ = false;
};

}  // namespace

TEST(share_of_gpus, DISABLED_the_other_process) {
    const char* const folder = std::getenv(folder_name);
    if (folder == nullptr) GTEST_SKIP() << "runs as the other process of the test below";
    const auto rt = make_sharing(folder);
    ASSERT_NE(rt, nullptr);
    const shared_file file = rt->open_everywhere(std::string(folder) + "/data");
    ASSERT_EQ(file.code(), 0);
    read_on(*rt, file, 1);
    char nothing = 'r';
    ASSERT_EQ(::write(3, &nothing, 1), 1);
    while (::read(0, &nothing, 1) > 0) {
    }
    EXPECT_EQ(rt->close(file), 0);
}

TEST(share_of_gpus, two_processes_with_two_gpus_each_read_a_file_once) {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) cudaGetLastError();
    if (count < 2) GTEST_SKIP() << "this machine has fewer than two GPUs";
    const temporary_folder folder;
    write_file(folder / "data", pattern(51, shared_pages * page));
    let_files_settle();
    std::filesystem::create_directories(folder / "meeting");
    ::setenv("XDG_RUNTIME_DIR", (folder / "meeting").c_str(), 1);
    ::setenv(folder_name, folder.path().c_str(), 1);
    other_process other;
    ASSERT_TRUE(other.is_ready());
    const auto rt = make_sharing(folder.path());
    ASSERT_NE(rt, nullptr);
    ASSERT_TRUE(has_neighbours(*rt, 3));
    const shared_file file = rt->open_everywhere(folder / "data");
    ASSERT_EQ(file.code(), 0);
    for (const std::uint32_t device : {0u, 1u}) {
        read_on(*rt, file, device);
        std::printf("device %u: next door %llu, read from the file %llu bytes\n", device,
                    static_cast<unsigned long long>(next_door(*rt, device)),
                    static_cast<unsigned long long>(rt->stats(device).file_read_bytes));
        EXPECT_GT(next_door(*rt, device), 0u) << "device " << device;
        EXPECT_EQ(rt->stats(device).file_read_bytes, 0u) << "device " << device;
    }
    other.end(SIGKILL);
    EXPECT_TRUE(has_neighbours(*rt, 1));
    for (const std::uint32_t device : {0u, 1u}) read_on(*rt, file, device);
    EXPECT_EQ(rt->close(file), 0);
    EXPECT_TRUE(rt->health().ok()) << rt->health().message;
    ::unsetenv("XDG_RUNTIME_DIR");
    ::unsetenv(folder_name);
}

}  // namespace penstock::test
