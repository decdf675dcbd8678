// How a GPU reads a mapping of a file: registered with the driver, or as pageable memory.
#include <cerrno>

#include "device/gpu_context.cuh"
#include "penstock/options.hpp"
#include "region/mapping_reader.hpp"
#include "region/region_memory.hpp"

namespace penstock::region {

namespace {

using host::device_guard;
using host::driver;

class gpu_mapping_reader final : public mapping_reader {
public:
    gpu_mapping_reader(const host::gpu_context& context, bool registered)
        : context_(context), registered_(registered) {}
    ~gpu_mapping_reader() override {
        const device_guard guard(context_);
        if (guard && stream_ != nullptr) cudaStreamDestroy(stream_);
    }
    bool begin(status& why) {
        const device_guard guard(context_);
        why = {host::context_is_gone, "the device was reset"};
        if (!guard) return false;
        const cudaError_t code = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
        if (code == cudaSuccess) return true;
        stream_ = nullptr;
        why = {host::errno_of(code), "a stream was refused: " + host::cuda_text(code)};
        return false;
    }

    [[nodiscard]] bool registers() const override { return registered_; }

    status add(std::byte* at, std::uint64_t bytes) override {
        const device_guard guard(context_);
        if (!guard) return {host::context_is_gone, "the device was reset"};
        const CUresult code = driver().register_host(
            at, bytes, CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY);
        if (code != CUDA_SUCCESS) {
            const bool is_short = code == CUDA_ERROR_OUT_OF_MEMORY;
            return {is_short ? -ENOMEM : -EOPNOTSUPP,
                    "the driver does not register " + format_size(bytes) +
                        " of the mapped file: " + host::cuda_text(code) +
                        (is_short ? "; map a smaller part of the file"
                                  : "; leave region_options::placement at filled")};
        }
        CUdeviceptr seen = 0;
        const CUresult asked = driver().device_pointer(&seen, at, 0);
        if (asked == CUDA_SUCCESS && seen == reinterpret_cast<CUdeviceptr>(at)) return {};
        driver().unregister_host(at);
        return {-EOPNOTSUPP,
                "the device has registered memory at other addresses than the host, so its parts "
                "are no range of addresses; leave region_options::placement at filled"};
    }

    void remove(std::byte* at) override {
        const device_guard guard(context_);
        if (guard) driver().unregister_host(at);
    }

    int wait(void* stream) override {
        const device_guard guard(context_);
        if (!guard) return host::context_is_gone;
        const auto on = static_cast<cudaStream_t>(stream);
        const int busy = host::check_stream(on);
        return busy != 0 ? busy : host::errno_of(cudaStreamSynchronize(on));
    }

    [[nodiscard]] status lost() const override {
        const device_guard guard(context_);
        if (!guard)
            return {host::context_is_gone, "the program reset the device (cudaDeviceReset)"};
        const cudaError_t code = cudaStreamQuery(stream_);
        return host::is_sticky(code) ? status{-EIO, "a kernel faulted: " + host::cuda_text(code)}
                                     : status{};
    }

private:
    const host::gpu_context context_;
    const bool registered_;
    cudaStream_t stream_ = nullptr;  // for asking whether the device is whole
};

bool has(CUdevice_attribute attribute, int device) {
    int value = 0;
    return driver().attribute(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

}  // namespace

std::unique_ptr<mapping_reader> make_gpu_reader(int device, bool registered, status& why) {
    bool is_short = false;
    const host::gpu_context context = host::gpu_context::of(device, why.message, is_short);
    why.code = is_short ? -ENOMEM : -ENODEV;
    if (context.handle == nullptr) return nullptr;
    auto reader = std::make_unique<gpu_mapping_reader>(context, registered);
    return reader->begin(why) ? std::move(reader) : nullptr;
}

status look_at_gpu(int device, reading_device& out) {
    status why;
    bool is_short = false;
    const host::gpu_context context = host::gpu_context::of(device, why.message, is_short);
    why.code = is_short ? -ENOMEM : -ENODEV;
    if (context.handle == nullptr) return why;
    const device_guard guard(context);
    if (!guard) return {host::context_is_gone, "the device was reset"};
    const std::uint64_t free_bytes = host::room_now().free_bytes;
    out.is_gpu = true;
    out.free_bytes = free_bytes > spare_device_bytes ? free_bytes - spare_device_bytes : 0;
    out.reads_pageable = has(CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, device);
    out.registers = has(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, device);
    return {};
}

}  // namespace penstock::region
