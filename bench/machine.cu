#include "machine.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <sys/utsname.h>
#include <thread>

#include "scratch_file.hpp"

#if defined(PENSTOCK_WITH_CUDA)
#include <cuda_runtime.h>
#endif

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

// Empty if a GPU can be used, else why not.
std::string why_no_gpu() {
#if defined(PENSTOCK_WITH_CUDA)
    int count = 0;
    if (const cudaError_t code = cudaGetDeviceCount(&count); code != cudaSuccess) {
        cudaGetLastError();
        return cudaGetErrorString(code);
    }
    return count > 0 ? "" : "there is no GPU";
#else
    return "this build has no CUDA; configure with nvcc on PATH";
#endif
}

#if defined(PENSTOCK_WITH_CUDA)
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
#endif

}  // namespace

status choose_backend(backend asked, [[maybe_unused]] int device, backend& out) {
    const std::string why = asked == backend::cpu ? std::string() : why_no_gpu();
    if (asked == backend::gpu && !why.empty())
        return {-ENODEV, "--backend: 'gpu' cannot be used: " + why + "; give --backend cpu"};
    out = asked == backend::cpu || !why.empty() ? backend::cpu : backend::gpu;
#if defined(PENSTOCK_WITH_CUDA)
    if (out == backend::gpu) {
        cudaError_t code = cudaSetDevice(device);
        if (code == cudaSuccess) code = cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync);
        if (code != cudaSuccess)
            return {-ENODEV,
                    "GPU " + std::to_string(device) + ": " + cudaGetErrorString(code) +
                        "; set PENSTOCK_DEVICE to one that is there, or give --backend cpu"};
    }
#endif
    return {};
}

nlohmann::ordered_json machine_json(backend where, const std::string& directory,
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
#else
    static_cast<void>(where);
#endif
    utsname system{};
    ::uname(&system);
    return {{"device", device},         {"driver", driver},
            {"cpu", processor_name()},  {"cores", std::thread::hardware_concurrency()},
            {"kernel", system.release}, {"file_system", file_system_of(directory)},
            {"commit", commit}};
}

memory::~memory() {
    if (data_ == nullptr) return;
#if defined(PENSTOCK_WITH_CUDA)
    if (where_ == backend::gpu) {
        cudaFree(data_);
        return;
    }
#endif
    std::free(data_);
}

status memory::make(backend where, std::uint64_t bytes) {
    where_ = where;
#if defined(PENSTOCK_WITH_CUDA)
    if (where == backend::gpu) {
        if (status s =
                cuda_status(cudaMalloc(&data_, bytes), format_size(bytes) + " of device memory");
            !s)
            return s;
        return cuda_status(cudaMemset(data_, 0, bytes), "memory");
    }
#endif
    const std::uint64_t rounded = (bytes + 4095) / 4096 * 4096;
    data_ = std::aligned_alloc(4096, rounded);
    if (data_ == nullptr)
        return {-ENOMEM, format_size(bytes) + " of memory could not be had; give a smaller --file"};
    std::memset(data_, 0, rounded);
    return {};
}

status memory::copy_out(void* to, std::uint64_t bytes) const {
#if defined(PENSTOCK_WITH_CUDA)
    if (where_ == backend::gpu)
        return cuda_status(cudaMemcpy(to, data_, bytes, cudaMemcpyDeviceToHost),
                           "copy from the device");
#endif
    std::memcpy(to, data_, bytes);
    return {};
}

}  // namespace penstock::bench
