#include "common/device_memory.hpp"

#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace penstock::apps {

namespace {

// Fresh pages of the kernel are zero, and cost memory only once they are touched.
class host_memory final : public device_memory {
public:
    ~host_memory() override {
        for (const auto& [address, bytes] : pieces_) ::munmap(address, bytes);
    }
    void* allocate(std::uint64_t bytes) override {
        const std::uint64_t length = bytes == 0 ? 1 : bytes;
        void* const address = ::mmap(nullptr, length, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (address == MAP_FAILED) return nullptr;
        pieces_.emplace_back(address, length);
        return address;
    }
    bool upload(void* to, const void* from, std::uint64_t bytes) override {
        if (bytes != 0) std::memcpy(to, from, bytes);
        return true;
    }
    bool fill(void* to, int byte, std::uint64_t bytes) override {
        std::memset(to, byte, bytes);
        return true;
    }
    bool download(void* to, const void* from, std::uint64_t bytes) override {
        return upload(to, from, bytes);
    }
    [[nodiscard]] std::uint64_t free_bytes() const override {
        return static_cast<std::uint64_t>(::sysconf(_SC_AVPHYS_PAGES)) *
               static_cast<std::uint64_t>(::sysconf(_SC_PAGE_SIZE));
    }

private:
    std::vector<std::pair<void*, std::uint64_t>> pieces_;
};

#if defined(__CUDACC__)
class gpu_memory final : public device_memory {
public:
    explicit gpu_memory(int device) : device_(device) {}
    ~gpu_memory() override {
        cudaSetDevice(device_);
        for (void* const address : pinned_) cudaHostUnregister(address);
        for (void* const piece : pieces_) cudaFree(piece);
    }
    void* allocate(std::uint64_t bytes) override {
        const std::uint64_t length = bytes == 0 ? 1 : bytes;
        void* address = nullptr;
        if (cudaSetDevice(device_) != cudaSuccess || cudaMalloc(&address, length) != cudaSuccess) {
            cudaGetLastError();  // the failure is reported by the null pointer, not by the next
                                 // launch
            return nullptr;
        }
        pieces_.push_back(address);
        // Kernels on streams of their own do not wait for it.
        const bool is_zero = cudaMemset(address, 0, length) == cudaSuccess &&
                             cudaStreamSynchronize(nullptr) == cudaSuccess;
        return is_zero ? address : nullptr;
    }
    // From memory that is not pinned, the copy may return before the last bytes are there, and
    // kernels on streams of their own do not wait for it.
    bool upload(void* to, const void* from, std::uint64_t bytes) override {
        return bytes == 0 || (cudaSetDevice(device_) == cudaSuccess &&
                              cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice) == cudaSuccess &&
                              cudaStreamSynchronize(nullptr) == cudaSuccess);
    }
    bool fill(void* to, int byte, std::uint64_t bytes) override {
        return cudaSetDevice(device_) == cudaSuccess &&
               cudaMemset(to, byte, bytes) == cudaSuccess &&
               cudaStreamSynchronize(nullptr) == cudaSuccess;
    }
    bool begin_upload(void* to, const void* from, std::uint64_t bytes) override {
        return bytes == 0 ||
               (cudaSetDevice(device_) == cudaSuccess &&
                cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice) == cudaSuccess);
    }
    void pin(const void* address, std::uint64_t bytes) override {
        void* const start = const_cast<void*>(address);
        cudaSetDevice(device_);
        if (cudaHostRegister(start, bytes, cudaHostRegisterDefault) == cudaSuccess)
            pinned_.push_back(start);
        else cudaGetLastError();
    }
    void* reach(void* pinned) override {
        void* address = nullptr;
        if (cudaSetDevice(device_) == cudaSuccess &&
            cudaHostGetDevicePointer(&address, pinned, 0) == cudaSuccess)
            return address;
        cudaGetLastError();
        return nullptr;
    }
    bool download(void* to, const void* from, std::uint64_t bytes) override {
        return bytes == 0 || (cudaSetDevice(device_) == cudaSuccess &&
                              cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost) == cudaSuccess);
    }
    [[nodiscard]] std::uint64_t free_bytes() const override {
        std::size_t free = 0, total = 0;
        cudaSetDevice(device_);
        return cudaMemGetInfo(&free, &total) == cudaSuccess ? free : 0;
    }

private:
    int device_;
    std::vector<void*> pieces_, pinned_;
};
#endif

}  // namespace

std::unique_ptr<device_memory> make_host_memory() { return std::make_unique<host_memory>(); }

std::unique_ptr<device_memory> make_gpu_memory([[maybe_unused]] int device) {
#if defined(__CUDACC__)
    return std::make_unique<gpu_memory>(device);
#else
    return nullptr;
#endif
}

bool will_use_gpu(const options& o) {
    if (o.where != backend::automatic) return o.where == backend::gpu;
#if defined(__CUDACC__)
    int devices = 0;
    if (cudaGetDeviceCount(&devices) == cudaSuccess) return devices > 0;
    cudaGetLastError();
#endif
    return false;
}

}  // namespace penstock::apps
