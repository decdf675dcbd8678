#include "machine_report.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <thread>
#include <unistd.h>

#include "os/env.hpp"
#include "penstock/error.hpp"

#if defined(PENSTOCK_WITH_CUDA)
#include <cuda_runtime.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace penstock::info {

namespace {

constexpr const char* own_program = "/proc/self/exe";
constexpr std::size_t probe_bytes = 4096;

// A handle from environment, closed with its scope.
class scoped_handle {
public:
    explicit scoped_handle(int fd) : fd_(fd) {}
    ~scoped_handle() {
        if (fd_ >= 0) host::linux_environment().close(fd_);
    }
    scoped_handle(const scoped_handle&) = delete;
    scoped_handle& operator=(const scoped_handle&) = delete;
    [[nodiscard]] int fd() const { return fd_; }

private:
    int fd_;
};

std::string text_of(std::int64_t code) { return error_text(code); }

std::uint64_t soft_limit(int which) {
    rlimit limit{};
    if (::getrlimit(static_cast<__rlimit_resource>(which), &limit) != 0) return 0;
    return limit.rlim_cur == RLIM_INFINITY ? host_facts::unlimited
                                           : static_cast<std::uint64_t>(limit.rlim_cur);
}

}  // namespace

finding probe_opening() {
    finding out{"opening files", false, ""};
    host::environment& env = host::linux_environment();
    const scoped_handle found(env.find(-1, own_program));
    std::string path;
    int code = found.fd() < 0 ? found.fd() : env.real_path(found.fd(), path);
    if (code == 0) {
        const scoped_handle opened(env.open_found(found.fd()));
        if (opened.fd() < 0) code = opened.fd();
    }
    out.works = code == 0;
    if (!out.works) out.why = "through /proc/self/fd: " + text_of(code) + "; is /proc mounted?";
    return out;
}

finding probe_io_uring() {
    finding out{"io_uring", false, ""};
    host::environment& env = host::linux_environment();
    const auto io = env.make_io_engine(true, 4, out.why);
    if (io == nullptr) return out;
    const scoped_handle found(env.find(-1, own_program));
    const scoped_handle file(found.fd() < 0 ? -1 : env.open_found(found.fd()));
    if (file.fd() < 0) {
        out.why = "a ring could be made, but no file opened to read with it";
        return out;
    }
    alignas(4096) static std::array<std::byte, probe_bytes> by_ring, by_pread;
    io->start({file.fd(), by_ring.data(), probe_bytes, 0, 1});
    io->submit();
    std::vector<host::read_result> results;
    for (int round = 0; round < 20 && results.empty(); ++round) io->reap(results, 100'000'000);
    if (results.empty()) {
        out.why = "a ring could be made, but a read did not finish within two seconds";
    } else if (results[0].result < 0) {
        out.why = "a ring could be made, but a read failed: " + text_of(results[0].result);
    } else {
        const std::int64_t got = env.read(file.fd(), by_pread.data(), probe_bytes, 0);
        out.works = got == results[0].result && std::memcmp(by_ring.data(), by_pread.data(),
                                                            static_cast<std::size_t>(got)) == 0;
        if (!out.works) out.why = "a read gave other bytes than pread";
    }
    return out;
}

finding probe_direct_io() {
    finding out{"O_DIRECT", false, ""};
    host::environment& env = host::linux_environment();
    const scoped_handle found(env.find(-1, own_program));
    const scoped_handle file(found.fd() < 0 ? -1 : env.open_found(found.fd()));
    std::uint32_t grain_bytes = 0;
    const int direct = file.fd() < 0 ? file.fd() : env.open_direct(file.fd(), grain_bytes);
    const scoped_handle past(direct);
    alignas(4096) static std::array<std::byte, probe_bytes> by_direct, by_pread;
    const std::int64_t got =
        direct < 0 ? direct : env.read(direct, by_direct.data(), probe_bytes, 0);
    if (got < 0) {
        out.why = "the file system of the program refuses it: " + text_of(got) +
                  "; files there are read through the page cache";
        return out;
    }
    out.works = got == env.read(file.fd(), by_pread.data(), probe_bytes, 0) &&
                std::memcmp(by_direct.data(), by_pread.data(), static_cast<std::size_t>(got)) == 0;
    if (!out.works) {
        out.why = "a read gave other bytes than pread";
        return out;
    }
    out.why =
        "in pieces of " + std::to_string(grain_bytes) + " bytes, on the file system of the program";
    const int cached = env.in_page_cache(file.fd(), 0, probe_bytes);
    if (cached < 0)
        out.why += "; the kernel does not tell what is in the page cache (" + text_of(cached) +
                   "), so direct_io=auto does without it";
    return out;
}

finding probe_huge_pages() {
    finding out{"transparent huge pages", false, ""};
    std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
    std::string line;
    if (!std::getline(file, line)) {
        out.why = "this kernel has none; large caches cost more page faults";
        return out;
    }
    out.works = line.find("[never]") == std::string::npos;
    out.why = out.works ? line : "switched off (" + line + "); large caches cost more page faults";
    return out;
}

finding probe_exact_times() {
    finding out{"exact file times", false, ""};
    host::environment& env = host::linux_environment();
    const scoped_handle here(env.find(-1, "."));
    host::file_facts facts;
    const int code = here.fd() < 0 ? here.fd() : env.facts(here.fd(), facts);
    out.works = code == 0 && facts.exact_times;
    if (code != 0) out.why = "working directory: " + text_of(code);
    else if (!out.works)
        out.why =
            "the kernel or the file system of the working directory has coarse times; a file "
            "changed within the last 20 ms is read anew at the next open";
    return out;
}

host_facts read_host_facts() {
    host_facts out;
    utsname name{};
    if (::uname(&name) == 0) out.kernel = std::string(name.sysname) + " " + name.release;
    out.processors = std::thread::hardware_concurrency();
    out.memory_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                       static_cast<std::uint64_t>(::sysconf(_SC_PAGE_SIZE));
    out.open_files = soft_limit(RLIMIT_NOFILE);
    out.locked_bytes = soft_limit(RLIMIT_MEMLOCK);
    return out;
}

#if defined(PENSTOCK_WITH_CUDA)

namespace {

std::string version_text(int version) {
    return version == 0
               ? std::string()
               : std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// The words of the last CUDA error, which is thereby forgotten.
std::string reason(cudaError_t code) {
    cudaGetLastError();
    return cudaGetErrorString(code);
}

// A page of a mapped file, registered read only: then a GPU can read the operating system's page
// cache in place.
finding probe_windows() {
    finding out{"registered windows", false, ""};
    const int fd = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGE_SIZE));
    void* const page =
        fd < 0 ? MAP_FAILED : ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (fd >= 0) ::close(fd);
    if (page == MAP_FAILED) {
        out.why = "no file could be mapped to try it with";
        return out;
    }
    const cudaError_t code =
        cudaHostRegister(page, bytes, cudaHostRegisterReadOnly | cudaHostRegisterMapped);
    out.works = code == cudaSuccess;
    if (out.works) cudaHostUnregister(page);
    else out.why = "a page of a mapped file cannot be registered: " + reason(code);
    ::munmap(page, bytes);
    return out;
}

finding probe_pinned() {
    finding out{"pinned host memory", false, ""};
    void* memory = nullptr;
    const cudaError_t code =
        cudaHostAlloc(&memory, 1 << 20, cudaHostAllocMapped | cudaHostAllocPortable);
    out.works = code == cudaSuccess;
    if (out.works) cudaFreeHost(memory);
    else out.why = "1 MiB could not be pinned: " + reason(code);
    return out;
}

finding probe_peers(int count) {
    finding out{"peer access between GPUs", false, ""};
    if (count < 2) {
        out.why = "there is one GPU";
        return out;
    }
    out.works = true;
    for (int from = 0; from < count; ++from)
        for (int to = 0; to < count; ++to) {
            int can = 0;
            if (from == to || (cudaDeviceCanAccessPeer(&can, from, to) == cudaSuccess && can != 0))
                continue;
            cudaGetLastError();
            out.works = false;
            out.why += (out.why.empty() ? "" : ", ") + ("not from GPU " + std::to_string(from)) +
                       " to " + std::to_string(to);
        }
    return out;
}

gpu describe(int number) {
    gpu out;
    out.number = number;
    cudaDeviceProp facts{};
    if (cudaGetDeviceProperties(&facts, number) != cudaSuccess) return out;
    out.name = facts.name;
    out.capability = std::to_string(facts.major) + "." + std::to_string(facts.minor);
    out.memory_bytes = facts.totalGlobalMem;
    out.multiprocessors = facts.multiProcessorCount;
    std::size_t free = 0, total = 0;
    if (cudaSetDevice(number) == cudaSuccess && cudaMemGetInfo(&free, &total) == cudaSuccess)
        out.free_bytes = free;
    return out;
}

}  // namespace

gpu_report look_at_gpus(int device) {
    gpu_report out;
    int driver = 0, runtime = 0, count = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    out.driver = version_text(driver);
    out.runtime = version_text(runtime);
    if (driver == 0) out.why = "no NVIDIA driver is loaded";
    else if (const cudaError_t code = cudaGetDeviceCount(&count); code != cudaSuccess)
        out.why = reason(code);
    else if (count == 0) out.why = "there is no GPU";
    cudaGetLastError();
    for (int i = 0; i < count; ++i) out.gpus.push_back(describe(i));
    if (out.why.empty() && cudaSetDevice(device) != cudaSuccess) {
        cudaGetLastError();
        out.why = "there is no GPU number " + std::to_string(device);
    }
    if (out.why.empty()) {
        out.findings = {probe_windows(), probe_pinned(), probe_peers(count)};
    } else {
        for (const char* feature :
             {"registered windows", "pinned host memory", "peer access between GPUs"})
            out.findings.push_back({feature, false, out.why});
    }
    return out;
}

#else

gpu_report look_at_gpus(int) {
    gpu_report out;
    out.why = "this build has no CUDA; configure with nvcc on PATH";
    for (const char* feature :
         {"registered windows", "pinned host memory", "peer access between GPUs"})
        out.findings.push_back({feature, false, out.why});
    return out;
}

#endif

}  // namespace penstock::info
