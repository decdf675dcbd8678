#include "gpu_report.hpp"

#if defined(PENSTOCK_WITH_CUDA)
#include <cuda_runtime.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace penstock::info {

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
        for (const char* what :
             {"registered windows", "pinned host memory", "peer access between GPUs"})
            out.findings.push_back({what, false, out.why});
    }
    return out;
}

#else

gpu_report look_at_gpus(int) {
    gpu_report out;
    out.why = "this build has no CUDA; configure with nvcc on PATH";
    for (const char* what :
         {"registered windows", "pinned host memory", "peer access between GPUs"})
        out.findings.push_back({what, false, out.why});
    return out;
}

#endif

}  // namespace penstock::info
