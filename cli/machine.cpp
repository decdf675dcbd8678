// Probes the host and its GPUs, for penstock info.
#include "machine.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sys/mman.h>
#include <unistd.h>

#include "common/files.hpp"
#include "os/env.hpp"
#include "penstock/error.hpp"

#if defined(PENSTOCK_WITH_CUDA)
#include <cuda_runtime.h>
#endif

namespace penstock::cli {

namespace {

using apps::unique_fd;

constexpr const char* own_program = "/proc/self/exe";
constexpr std::size_t probe_bytes = 4096;
alignas(4096) std::array<std::byte, probe_bytes> probed, by_pread;

// This program's own file, as the runtime opens files; else a negative errno.
unique_fd open_own_program() {
    const unique_fd found(host::linux_environment().find(-1, own_program));
    return unique_fd(found < 0 ? int{found} : host::linux_environment().open_found(found));
}

// Whether a probe read the first bytes of the program, as pread does; `got`: how many, or an error.
void compare_with_pread(int file, std::int64_t got, finding& out) {
    out.works = got == host::linux_environment().read(file, by_pread.data(), probe_bytes, 0) &&
                std::memcmp(probed.data(), by_pread.data(), static_cast<std::size_t>(got)) == 0;
    if (!out.works) out.why = "a read gave other bytes than pread";
}

finding probe_opening() {
    finding out{"opening files", false, ""};
    const unique_fd found(host::linux_environment().find(-1, own_program));
    std::string path;
    int code = found < 0 ? int{found} : host::linux_environment().real_path(found, path);
    if (code == 0) code = std::min(int{open_own_program()}, 0);
    out.works = code == 0;
    if (!out.works) out.why = "through /proc/self/fd: " + error_text(code) + "; is /proc mounted?";
    return out;
}

finding probe_io_uring() {
    finding out{"io_uring", false, ""};
    const auto io = host::linux_environment().make_io_engine(true, 4, out.why);
    if (io == nullptr) return out;
    const unique_fd file = open_own_program();
    if (file < 0) {
        out.why = "a ring could be made, but no file opened to read with it";
        return out;
    }
    io->start({file, probed.data(), probe_bytes, 0, 1});
    io->submit();
    std::vector<host::read_result> results;
    for (int round = 0; round < 20 && results.empty(); ++round) io->reap(results, 100'000'000);
    if (results.empty())
        out.why = "a ring could be made, but a read did not finish within two seconds";
    else if (results[0].result < 0)
        out.why = "a ring could be made, but a read failed: " + error_text(results[0].result);
    else compare_with_pread(file, results[0].result, out);
    return out;
}

finding probe_direct_io() {
    finding out{"O_DIRECT", false, ""};
    host::environment& env = host::linux_environment();
    const unique_fd file = open_own_program();
    std::uint32_t grain_bytes = 0;
    const unique_fd direct(file < 0 ? int{file} : env.open_direct(file, grain_bytes));
    const std::int64_t got = direct < 0 ? direct : env.read(direct, probed.data(), probe_bytes, 0);
    if (got < 0) {
        out.why = "the file system of the program refuses it: " + error_text(got) +
                  "; files there are read through the page cache";
        return out;
    }
    compare_with_pread(file, got, out);
    if (!out.works) return out;
    out.why =
        "in pieces of " + std::to_string(grain_bytes) + " bytes, on the file system of the program";
    const int cached = env.in_page_cache(file, 0, probe_bytes);
    if (cached < 0)
        out.why += "; the kernel does not tell what is in the page cache (" + error_text(cached) +
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
    const unique_fd here(host::linux_environment().find(-1, "."));
    host::file_facts facts;
    const int code = here < 0 ? int{here} : host::linux_environment().facts(here, facts);
    out.works = code == 0 && facts.exact_times;
    if (code != 0) out.why = "working directory: " + error_text(code);
    else if (!out.works)
        out.why =
            "the kernel or the file system of the working directory has coarse times; a file "
            "changed within the last 20 ms is read anew at the next open";
    return out;
}

// Without a GPU to use, none of its features works.
void refuse_features(gpu_report& out) {
    for (const char* feature :
         {"registered windows", "pinned host memory", "peer access between GPUs"})
        out.findings.push_back({feature, false, out.why});
}

#if defined(PENSTOCK_WITH_CUDA)

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
    const unique_fd file(::open(own_program, O_RDONLY | O_CLOEXEC));
    const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGE_SIZE));
    void* const page = file < 0
                           ? MAP_FAILED
                           : ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, file, 0);
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

#endif

}  // namespace

std::vector<finding> probe_host() {
    return {probe_opening(), probe_io_uring(), probe_direct_io(), probe_huge_pages(),
            probe_exact_times()};
}

#if defined(PENSTOCK_WITH_CUDA)

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
    if (out.why.empty()) out.findings = {probe_windows(), probe_pinned(), probe_peers(count)};
    else refuse_features(out);
    return out;
}

#else

gpu_report look_at_gpus(int) {
    gpu_report out;
    out.why = "this build has no CUDA; configure with nvcc on PATH";
    refuse_features(out);
    return out;
}

#endif

}  // namespace penstock::cli
