// Penstock as a guest of a program that uses up the device's memory, resets the device, runs a
// faulting kernel, or forks. Each in a process of its own, for what it breaks is the process's.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <mutex>

#include "device/guest.cuh"
#include "device/gpu_context.cuh"

namespace penstock::test {

namespace {

// What the library said, with a look for one text.
class heard {
public:
    options listening(const temporary_folder& folder) {
        options o = guest_options(folder);
        o.log = [this](const std::string& line) {
            const std::lock_guard lock(mutex_);
            std::printf("    log: %s\n", line.c_str());
            lines_.push_back(line);
        };
        return o;
    }
    // How many lines have both.
    int count(const std::string& first, const std::string& second) {
        const std::lock_guard lock(mutex_);
        return static_cast<int>(
            std::count_if(lines_.begin(), lines_.end(), [&](const std::string& line) {
                return line.find(first) != std::string::npos &&
                       line.find(second) != std::string::npos;
            }));
    }

private:
    std::mutex mutex_;
    std::vector<std::string> lines_;
};

template <typename Condition>
bool comes_true(const Condition& condition, int looks = 1000) {
    for (int i = 0; i < looks && !condition(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return condition();
}

// Takes device memory until about so much is free.
class ballast {
public:
    explicit ballast(std::uint64_t leave_bytes) {
        for (std::uint64_t piece = std::uint64_t{8} << 30; piece >= 1u << 20;) {
            std::size_t free = 0, all = 0;
            void* taken = nullptr;
            cudaMemGetInfo(&free, &all);
            if (free < leave_bytes + piece || cudaMalloc(&taken, piece) != cudaSuccess) {
                piece /= 2;
                continue;
            }
            pieces_.push_back(taken);
        }
        cudaGetLastError();
        std::size_t free = 0, all = 0;
        cudaMemGetInfo(&free, &all);
        std::printf("    %zu MiB are free\n", free >> 20);
    }
    ~ballast() {
        for (void* const piece : pieces_) cudaFree(piece);
    }

private:
    std::vector<void*> pieces_;
};

// Done, or refused for lack of memory in so many words.
std::string judge(const char* label, const status& s) {
    std::printf("    %s: %d %s\n", label, s.code, s.message.c_str());
    if (s.ok()) return "";
    const auto has = [&](const char* text) { return s.message.find(text) != std::string::npos; };
    const bool named = (has("CUDA_ERROR_OUT_OF_MEMORY") || has("cudaErrorMemoryAllocation") ||
                        has("cudaErrorLaunchOutOfResources")) &&
                       has("are free");
    const bool sized = has("do not fit into the") || has("is less than");
    if (has("older than the toolkit") || has("could not be had"))
        return std::string(label) + " names a wrong cause";
    if (!named && !sized) return std::string(label) + " does not say what there is";
    return s.code == -ENOMEM || s.code == -EINVAL || s.code == -ENODEV
               ? ""
               : std::string(label) + " has another code";
}

std::string with_little_memory(std::uint64_t free_mib) {
    const temporary_folder folder;
    write_guest_file(folder / "data", 0);
    cudaFree(nullptr);
    const ballast taken(free_mib << 20);
    std::unique_ptr<runtime> rt;
    std::string wrong = judge("create", runtime::make(guest_options(folder), rt));
    rt.reset();
    buffer_options pool_options;
    pool_options.where = backend::gpu;
    pool_options.host_bytes = 1 << 20;
    pool_options.device_bytes = (free_mib << 20) * 2;
    std::unique_ptr<buffer_pool> pool;
    if (wrong.empty()) wrong = judge("pool", buffer_pool::make(pool_options, pool));
    return wrong.empty() && pool != nullptr ? "there is a pool of more than there is" : wrong;
}

// A runtime that was made in time goes on when its program has taken the rest.
std::string with_memory_used_up_later(std::uint64_t free_mib) {
    const temporary_folder folder;
    guest_calls calls(folder);
    std::unique_ptr<runtime> rt;
    if (const status s = runtime::make(guest_options(folder), rt); !s.ok()) return s.message;
    const ballast taken(free_mib << 20);
    const int fd = rt->open(folder / "data");
    std::vector<std::uint32_t> words(guest_file_bytes / 4);
    if (rt->read(fd, words.data(), static_cast<std::int64_t>(guest_file_bytes), 0) !=
        static_cast<std::int64_t>(guest_file_bytes))
        return "it does not read";
    std::unique_ptr<file_region> region;
    std::string wrong = judge(
        "map_region", map_region(*rt, folder / "data", 0, 0, protection::read_write, {}, region));
    const shared_array<std::uint64_t> indices(1 << 20);
    const shared_array<std::uint8_t> out(16 << 20);
    const std::int64_t rows =
        rt->gather(fd, {16}, indices.get(), 1 << 20, out.get(), {gather_order::by_span});
    std::printf("    gather: %lld\n", static_cast<long long>(rows));
    if (rows != 1 << 20 && rows != -ENOMEM) wrong = "gather: " + error_text(rows);
    return rt->health().ok() ? wrong : rt->health().message;
}

// A program that only lends its device to the library may reset it without harm: then the context
// stays. Where it used CUDA itself, or asks the driver, the context goes.
enum class reset_by { guest, user_of_cuda, driver };

bool reset_device(reset_by agent) {
    if (agent != reset_by::driver) return cudaDeviceReset() == cudaSuccess;
    void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
    const auto reset = reinterpret_cast<decltype(&cuDevicePrimaryCtxReset)>(
        ::dlsym(library, "cuDevicePrimaryCtxReset_v2"));
    return reset != nullptr && reset(0) == CUDA_SUCCESS;
}

// What is lost is named once, whether it is asked for often or not.
std::string expect_gone(runtime& rt, file_region& region, heard& log, int fd,
                        const std::string& path) {
    std::uint32_t word = 0;
    const int opened = rt.open(path);
    const std::int64_t got = rt.read(fd, &word, 4, 0), released = region.release(),
                       again = region.release();
    const status health = rt.health();
    std::printf("    open %d, read %lld, release %lld, health %d %s\n", opened,
                static_cast<long long>(got), static_cast<long long>(released), health.code,
                health.message.c_str());
    if (opened != -ENODEV || got != -ENODEV || released != -ENODEV || again != -ENODEV ||
        health.code != -ENODEV)
        return "another code";
    if (launch<width::warp>(rt, 1, guest_reader{}) != -ENODEV) return "a launch ran";
    return log.count("/out'", "lost") == 1 && log.count("region of", "lost") == 1
               ? ""
               : "what is lost is not named, or more than once";
}

std::string expect_whole(runtime& rt, file_region& region, int fd) {
    std::vector<std::uint32_t> words(guest_file_bytes / 4);
    if (rt.read(fd, words.data(), static_cast<std::int64_t>(guest_file_bytes), 0) !=
        static_cast<std::int64_t>(guest_file_bytes))
        return "it does not read";
    for (std::uint64_t i = 1; i < words.size(); ++i)
        if (words[i] != guest_word(0, i)) return "it gives wrong words";
    return region.release() == 0 && rt.fsync(fd) == 0 && rt.health().ok() ? ""
                                                                          : "it does not write";
}

// `goes_on`: the program uses CUDA again before the library notices.
std::string after_a_reset(reset_by agent, bool goes_on, bool stays_for_ever) {
    static std::unique_ptr<runtime> kept;
    static std::unique_ptr<file_region> kept_region;
    auto* const folder = new temporary_folder;  // as long as the process
    auto* const log = new heard;
    write_guest_file(*folder / "data", 0);
    write_guest_file(*folder / "out", 0);
    void* piece = nullptr;
    if (agent == reset_by::user_of_cuda && cudaMalloc(&piece, 1 << 20) != cudaSuccess)
        return "no CUDA";
    if (const status s = runtime::make(log->listening(*folder), kept); !s.ok()) return s.message;
    runtime& rt = *kept;
    const int fd = rt.open(*folder / "out", open_read_write);
    const std::uint32_t word = 1;
    if (rt.write(fd, &word, 4, 0) != 4) return "it does not write";
    if (const status s =
            map_region(rt, *folder / "data", 0, 0, protection::read_write, {}, kept_region);
        !s.ok())
        return s.message;
    if (!reset_device(agent)) return "no reset";
    if (goes_on && cudaMalloc(&piece, 1 << 20) != cudaSuccess) return "the program cannot go on";
    const bool gone = comes_true([&] { return rt.health().code == -ENODEV; }, 100);
    std::printf("    the context %s\n", gone ? "is gone" : "stays");
    if (!gone && agent == reset_by::driver) return "the driver's reset was not noticed";
    const std::string wrong = gone ? expect_gone(rt, *kept_region, *log, fd, *folder / "data")
                                   : expect_whole(rt, *kept_region, fd);
    if (!wrong.empty() || stays_for_ever) return wrong;
    kept_region.reset();
    kept.reset();
    if (gone && (log->count("/out'", "lost") != 1 || log->count("region of", "lost") != 1))
        return "what is lost is named again";
    if (agent == reset_by::driver) return "";  // the CUDA runtime does not know of it
    // And the program may make another.
    if (cudaFree(nullptr) != cudaSuccess) return "the program's CUDA is broken";
    guest_calls calls(*folder);
    return calls.make();
}

// The threads of a runtime meet resets at any moment of theirs.
std::string many_resets() {
    const temporary_folder folder;
    write_guest_file(folder / "data", 0);
    int noticed = 0;
    for (int round = 0; round < 12; ++round) {
        void* piece = nullptr;
        if (cudaMalloc(&piece, 1 << 20) != cudaSuccess) return "no CUDA";
        std::unique_ptr<runtime> rt;
        if (const status s = runtime::make(guest_options(folder), rt); !s.ok()) return s.message;
        std::atomic<bool> stop{false};
        std::thread asker([&] {
            while (!stop && rt->health().ok())
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(20 + 3 * round));
        const bool reset = cudaDeviceReset() == cudaSuccess;
        const bool gone = comes_true([&] { return rt->health().code == -ENODEV; }, 30);
        stop = true;
        asker.join();
        if (!reset) return "no reset";
        if (gone) ++noticed;
        const int code = rt->open(folder / "data");
        if (gone ? code != -ENODEV : code < 0) return "open: " + std::to_string(code);
    }
    std::printf("    %d of 12 contexts went\n", noticed);
    return "";
}

__global__ void fault() { *reinterpret_cast<int*>(8) = 1; }

std::string after_a_fault() {
    heard log;
    const temporary_folder folder;
    write_guest_file(folder / "in the cache", 0);
    write_guest_file(folder / "written before", 0);
    write_guest_file(folder / "in a region", 0);
    write_guest_file(folder / "read there", 0);
    std::unique_ptr<runtime> rt;
    std::unique_ptr<file_region> region, in_place;
    if (const status s = runtime::make(log.listening(folder), rt); !s.ok()) return s.message;
    if (const status s =
            map_region(*rt, folder / "in a region", 4096, 8192, protection::read_write, {}, region);
        !s.ok())
        return s.message;
    if (const status s = map_region(*rt, folder / "read there", 0, 0, protection::read,
                                    {.placement = region_placement::in_place}, in_place);
        !s.ok())
        return s.message;
    const int fd = rt->open(folder / "in the cache", open_read_write),
              other = rt->open(folder / "written before", open_read_write);
    const std::uint32_t word = 77;
    if (rt->write(fd, &word, 4, 8192) != 4 || rt->write(other, &word, 4, 0) != 4 ||
        rt->close(other) != 0)
        return "it does not write";
    cudaMemset(region->data(), 1, 100);
    fault<<<1, 1>>>();
    cudaDeviceSynchronize();
    if (!comes_true([&] { return rt->health().code == -EIO; })) return "the fault was not noticed";
    if (region->release() != -EIO || region->release() != -EIO || rt->fsync(fd) != -EIO)
        return "another code";
    if (in_place->acquire() != -EIO || in_place->acquire() != -EIO)
        return "another code of a region in place";
    if (launch<width::warp>(*rt, 1, guest_reader{}) != -EIO) return "a launch ran";
    region.reset();
    in_place.reset();
    rt.reset();
    if (log.count("read there", "a kernel faulted") != 1)
        return "the region in place is not named once";
    if (log.count("in the cache", "lost") != 1) return "the file in the cache is not named once";
    if (log.count("written before", "lost") != 0) return "a file is named that is safe";
    return log.count("in a region", "bytes 4096 to 12287") == 1
               ? ""
               : "the region's bytes are not named once";
}

int in_child(const std::function<bool()>& body) {
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child == 0) std::exit(body() ? 7 : 1);
    for (int i = 0; i < 3000; ++i) {
        int state = 0;
        if (::waitpid(child, &state, WNOHANG) == child)
            return WIFEXITED(state) ? WEXITSTATUS(state) : -WTERMSIG(state);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    return -1000;
}

std::string beside_forks() {
    static std::unique_ptr<runtime> kept;
    static std::unique_ptr<file_region> kept_region;
    const temporary_folder folder;
    write_guest_file(folder / "data", 0);
    if (const status s = runtime::make(guest_options(folder), kept); !s.ok()) return s.message;
    if (const status s =
            map_region(*kept, folder / "data", 0, 0, protection::read_write, {}, kept_region);
        !s.ok())
        return s.message;
    const device_text name("data");
    const guest_result result;
    std::atomic<bool> stop{false};
    std::thread reader([&] {
        while (!stop)
            launch<width::warp>(
                *kept, 256,
                guest_reader{name.get(), guest_file_bytes, 1, 50'000'000, 1u << 30, result.get()});
    });
    std::string wrong;
    for (int i = 0; i < 5 && wrong.empty(); ++i) {
        if (const int code = in_child([] { return true; }); code != 7)
            wrong = "exit: " + std::to_string(code);
        const int dropped = in_child([] {
            kept_region.reset();
            kept.reset();
            return true;
        });
        if (dropped != 7) wrong = "drop: " + std::to_string(dropped);
        const int asked = in_child([&] {
            std::uint32_t word = 0;
            file_stat facts{};
            std::unique_ptr<runtime> own;
            const bool refused =
                kept->open(folder / "data") == -ECHILD && kept->read(0, &word, 4, 0) == -ECHILD &&
                kept->stat(0, &facts) == -ECHILD &&
                kept->gather(0, {4}, nullptr, 0, nullptr) == -ECHILD &&
                kept->open_windows(0) == -ECHILD && kept_region->release() == -ECHILD &&
                launch<width::warp>(*kept, 1, guest_reader{}) == -ECHILD &&
                kept->health().code == -ECHILD;
            options o = guest_options(folder);
            const status on_gpu = runtime::make(o, own);
            o.where = backend::automatic;
            const status automatic = runtime::make(o, own);
            return refused && on_gpu.code == -ENODEV && automatic.ok() &&
                   own->where() == backend::cpu && own->open(folder / "data") >= 0;
        });
        if (asked != 7) wrong = "calls: " + std::to_string(asked);
    }
    stop = true;
    reader.join();
    const guest_counts c = result.read();
    if (wrong.empty() && (c.reads == 0 || c.wrong + c.stale + c.cancelled + c.other_errors != 0))
        wrong = "the parent was disturbed";
    if (wrong.empty() && kept_region->release() != 0) wrong = "the parent's region was disturbed";
    return wrong;
}

#define PENSTOCK_OWN_PROCESS(body)                  \
    PENSTOCK_NEEDS_GPU();                           \
    GTEST_FLAG_SET(death_test_style, "threadsafe"); \
    EXPECT_EXIT(end_with([] { return body; }), testing::ExitedWithCode(7), "")

}  // namespace

TEST(guest_memory_DeathTest, free_700_mib) { PENSTOCK_OWN_PROCESS(with_little_memory(700)); }
TEST(guest_memory_DeathTest, free_200_mib) { PENSTOCK_OWN_PROCESS(with_little_memory(200)); }
TEST(guest_memory_DeathTest, free_20_mib) { PENSTOCK_OWN_PROCESS(with_little_memory(20)); }
TEST(guest_memory_DeathTest, used_up_later) { PENSTOCK_OWN_PROCESS(with_memory_used_up_later(20)); }
TEST(guest_reset_DeathTest, by_a_program_that_used_no_cuda) {
    PENSTOCK_OWN_PROCESS(after_a_reset(reset_by::guest, false, false));
}
TEST(guest_reset_DeathTest, by_a_program_that_uses_cuda) {
    PENSTOCK_OWN_PROCESS(after_a_reset(reset_by::user_of_cuda, false, false));
}
TEST(guest_reset_DeathTest, by_a_program_that_goes_on) {
    PENSTOCK_OWN_PROCESS(after_a_reset(reset_by::user_of_cuda, true, false));
}
TEST(guest_reset_DeathTest, by_the_driver) {
    PENSTOCK_OWN_PROCESS(after_a_reset(reset_by::driver, false, false));
}
TEST(guest_reset_DeathTest, under_objects_that_live_as_long_as_the_process) {
    PENSTOCK_OWN_PROCESS(after_a_reset(reset_by::driver, false, true));
}
TEST(guest_reset_DeathTest, again_and_again) { PENSTOCK_OWN_PROCESS(many_resets()); }
TEST(guest_fault_DeathTest, what_is_lost_is_named_once) { PENSTOCK_OWN_PROCESS(after_a_fault()); }
TEST(guest_fork_DeathTest, children_end_and_the_parent_goes_on) {
    PENSTOCK_OWN_PROCESS(beside_forks());
}

}  // namespace penstock::test
