#include "machine.hpp"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <sys/utsname.h>
#include <thread>

#include "scratch_file.hpp"

#if defined(PENSTOCK_WITH_CUDA)
#include "gpu.cuh"
#endif

namespace penstock::bench {

namespace {

std::string processor_name() {
    std::ifstream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);)
        if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
    return "unknown";
}

#if defined(PENSTOCK_WITH_CUDA)
// Empty if a GPU can be used, else why not.
std::string why_no_gpu() {
    int count = 0;
    if (const cudaError_t code = cudaGetDeviceCount(&count); code != cudaSuccess) {
        cudaGetLastError();
        return cudaGetErrorString(code);
    }
    return count > 0 ? "" : "there is no GPU";
}

// "580.159.04, CUDA 13.0": the driver's own version, where the system tells it, and what it
// supports.
std::string driver_name() {
    int version = 0;
    cudaDriverGetVersion(&version);
    const std::string cuda =
        "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
    std::ifstream file("/sys/module/nvidia/version");
    std::string number;
    return file >> number ? number + ", " + cuda : cuda;
}
#else
const char* why_no_gpu() { return "this build has no CUDA; configure with nvcc on PATH"; }
#endif

}  // namespace

backend choose_backend(backend asked, [[maybe_unused]] int device) {
    const std::string why = asked == backend::cpu ? std::string() : why_no_gpu();
    if (asked == backend::gpu && !why.empty())
        throw failure(-ENODEV, "--backend: 'gpu' cannot be used: " + why + "; give --backend cpu");
    if (asked == backend::cpu || !why.empty()) return backend::cpu;
#if defined(PENSTOCK_WITH_CUDA)
    cudaError_t code = cudaSetDevice(device);
    if (code == cudaSuccess) code = cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync);
    if (code != cudaSuccess)
        throw failure(-ENODEV,
                      "GPU " + std::to_string(device) + ": " + cudaGetErrorString(code) +
                          "; set PENSTOCK_DEVICE to one that is there, or give --backend cpu");
#endif
    return backend::gpu;
}

nlohmann::ordered_json machine_json([[maybe_unused]] backend where, const std::string& directory,
                                    const std::string& commit) {
    std::string device = "cpu", driver;
#if defined(PENSTOCK_WITH_CUDA)
    cudaDeviceProp properties{};
    int number = 0;
    if (where == backend::gpu && cudaGetDevice(&number) == cudaSuccess &&
        cudaGetDeviceProperties(&properties, number) == cudaSuccess) {
        device = properties.name;
        driver = driver_name();
    }
#endif
    utsname system{};
    ::uname(&system);
    return {{"device", device},         {"driver", driver},
            {"cpu", processor_name()},  {"cores", std::thread::hardware_concurrency()},
            {"kernel", system.release}, {"file_system", file_system_of(directory)},
            {"commit", commit}};
}

memory::~memory() {
#if defined(PENSTOCK_WITH_CUDA)
    if (place_ == place::device) cudaFree(data_);
    if (place_ == place::pinned) cudaFreeHost(data_);
    if (place_ != place::host) return;
#endif
    std::free(data_);
}

memory::memory(backend where, std::uint64_t bytes)
    : place_(where == backend::gpu ? place::device : place::host) {
#if defined(PENSTOCK_WITH_CUDA)
    if (where == backend::gpu)
        require_cuda(cudaMalloc(&data_, bytes), format_size(bytes) + " of device memory");
#endif
    if (where != backend::gpu) data_ = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (data_ == nullptr)
        throw failure(-ENOMEM,
                      format_size(bytes) + " of memory could not be had; give a smaller --file");
    fill(0, bytes);
}

#if defined(PENSTOCK_WITH_CUDA)
memory memory::pinned(std::uint64_t bytes) {
    memory out;
    out.place_ = place::pinned;
    require_cuda(cudaHostAlloc(&out.data_, bytes, cudaHostAllocMapped),
                 format_size(bytes) + " of pinned memory");
    out.fill(0, bytes);
    return out;
}
#endif

void memory::fill(int byte, std::uint64_t bytes) const {
#if defined(PENSTOCK_WITH_CUDA)
    if (place_ == place::device) {
        require_cuda(cudaMemset(data_, byte, bytes), "memory");
        return require_cuda(cudaDeviceSynchronize(), "memory");
    }
#endif
    std::memset(data_, byte, bytes);
}

void memory::copy_out(void* to, std::uint64_t bytes) const {
#if defined(PENSTOCK_WITH_CUDA)
    if (place_ == place::device)
        return require_cuda(cudaMemcpy(to, data_, bytes, cudaMemcpyDeviceToHost),
                            "copy from the device");
#endif
    std::memcpy(to, data_, bytes);
}

}  // namespace penstock::bench
