// The baselines on a GPU: a copy through pinned memory, and managed memory.
#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "graph_place.hpp"
#include "penstock/options.hpp"
#if defined(__CUDACC__)
#include "common/gpu.cuh"
#endif

namespace penstock::sssp {

#if defined(__CUDACC__)

namespace {

constexpr const char *copy_method = "--method copy", *managed_method = "--method managed";

// What one thread reads with: while one half is copied, the other is read into.
struct two_rooms {
    status make() {
        if (cudaMallocHost(&pinned, 2 * read_piece_bytes) != cudaSuccess) {
            cudaGetLastError();
            return {-ENOMEM, "--method copy: no pinned memory is free; use fewer --workers"};
        }
        cudaError_t code = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        for (apps::gpu_event& event : copied)
            if (code == cudaSuccess)
                code = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
        return apps::cuda_status(code, copy_method);
    }
    apps::pinned_array<std::byte> pinned;
    apps::gpu_stream stream;
    apps::gpu_event copied[2];
    unsigned next = 0;
};

class gpu_copy_place final : public whole_place {
public:
    gpu_copy_place(const graph_file& graph, std::uint32_t threads, int device)
        : whole_place(graph, threads), device_(device) {}
    [[nodiscard]] const std::byte* data() const override { return memory_; }
    [[nodiscard]] std::string note() const override {
        return "the whole file through pinned memory, by " + std::to_string(threads()) + " threads";
    }

private:
    status allocate() override {
        if (status s = apps::cuda_status(cudaSetDevice(device_), copy_method); !s) return s;
        if (cudaMalloc(&memory_, bytes()) != cudaSuccess) {
            cudaGetLastError();
            return {-ENOMEM, "--method copy: " + format_size(bytes()) +
                                 " of device memory are not free; leave this method out"};
        }
        rooms_ = std::vector<two_rooms>(threads());
        for (two_rooms& rooms : rooms_)
            if (status s = rooms.make(); !s) return s;
        return {};
    }
    status bring() override {
        status ended = each_piece([&](std::uint32_t thread, std::uint64_t at, std::uint64_t bytes) {
            return pass(rooms_[thread], at, bytes);
        });
        for (const two_rooms& rooms : rooms_) {
            const status copied =
                apps::cuda_status(cudaStreamSynchronize(rooms.stream), copy_method);
            if (ended.ok()) ended = copied;
        }
        return ended;
    }
    status pass(two_rooms& rooms, std::uint64_t at, std::uint64_t bytes) {
        const unsigned half = rooms.next++ % 2;
        std::byte* const room = rooms.pinned + half * read_piece_bytes;
        cudaError_t code = cudaSetDevice(device_);  // a new thread begins with device 0
        if (code == cudaSuccess) code = cudaEventSynchronize(rooms.copied[half]);
        if (code == cudaSuccess)
            if (status s = read(room, bytes, at); !s) return s;
        if (code == cudaSuccess)
            code = cudaMemcpyAsync(memory_ + at, room, bytes, cudaMemcpyHostToDevice, rooms.stream);
        if (code == cudaSuccess) code = cudaEventRecord(rooms.copied[half], rooms.stream);
        return apps::cuda_status(code, copy_method);
    }

    int device_;
    apps::gpu_array<std::byte> memory_;
    std::vector<two_rooms> rooms_;
};

class managed_place final : public whole_place {
public:
    managed_place(const graph_file& graph, std::uint32_t threads, int device)
        : whole_place(graph, threads), device_(device) {}
    [[nodiscard]] const std::byte* data() const override { return memory_; }
    [[nodiscard]] std::string note() const override {
        return "the whole file into managed memory, by " + std::to_string(threads()) +
               " threads; then moved to the GPU by cudaMemPrefetchAsync";
    }

private:
    status allocate() override {
        // Without this, the CPU may not use such memory while any kernel runs.
        int together = 0;
        std::size_t free = 0, total = 0;
        cudaError_t code = cudaSetDevice(device_);
        if (code == cudaSuccess)
            code = cudaDeviceGetAttribute(&together, cudaDevAttrConcurrentManagedAccess, device_);
        if (code == cudaSuccess) code = cudaMemGetInfo(&free, &total);
        if (code != cudaSuccess) return apps::cuda_status(code, managed_method);
        if (together == 0)
            return {-ENODEV, "--method managed: CPU and GPU " + std::to_string(device_) +
                                 " cannot share memory page by page; leave this method out"};
        if (bytes() <= free && cudaMallocManaged(&memory_, bytes()) == cudaSuccess) return {};
        cudaGetLastError();
        return {-ENOMEM, "--method managed: the graph has " + format_size(bytes()) +
                             ", and of the GPU's memory " + format_size(free) +
                             " are free; leave this method out, or use a smaller graph"};
    }
    status bring() override {
        if (status s = read_all(memory_); !s) return s;
        // In large pieces before the kernel starts: a kernel that faults its pages in one after the
        // other takes several times as long, and a program that cares about time does not do that.
        return apps::cuda_status(apps::prefetch(memory_, bytes(), false, device_), managed_method);
    }

    int device_;
    apps::gpu_array<std::byte> memory_;
};

}  // namespace

std::unique_ptr<graph_place> make_gpu_copy_place(const graph_file& graph, std::uint32_t threads,
                                                 int device) {
    return std::make_unique<gpu_copy_place>(graph, threads, device);
}

std::unique_ptr<graph_place> make_managed_place(const graph_file& graph, std::uint32_t threads,
                                                int device) {
    return std::make_unique<managed_place>(graph, threads, device);
}

#else

// A run asks for these after it has a solver on a GPU, so never here.
std::unique_ptr<graph_place> make_gpu_copy_place(const graph_file&, std::uint32_t, int) {
    return nullptr;
}
std::unique_ptr<graph_place> make_managed_place(const graph_file&, std::uint32_t, int) {
    return nullptr;
}

#endif

}  // namespace penstock::sssp
