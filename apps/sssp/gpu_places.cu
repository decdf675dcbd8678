// The baselines on a GPU: a copy through pinned memory, and managed memory.
#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "graph_place.hpp"
#include "penstock/options.hpp"
#if defined(__CUDACC__)
#include "common/gpu.cuh"
#include "gpu_memory.cuh"
#endif

namespace penstock::sssp {

#if defined(__CUDACC__)

namespace {

// What one thread reads with: while one half is copied, the other is read into.
struct two_rooms {
    status make() {
        if (!pinned.allocate(2 * read_piece_bytes))
            return {-ENOMEM, "--method copy: no pinned memory is free; use fewer --workers"};
        for (apps::gpu_event& event : copied)
            if (status s = check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                                 "--method copy");
                !s)
                return s;
        return check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "--method copy");
    }
    pinned_bytes pinned;
    apps::gpu_stream stream;
    apps::gpu_event copied[2];
    unsigned next = 0;
};

class gpu_copy_place final : public graph_place {
public:
    gpu_copy_place(const graph_file& graph, std::uint32_t threads, int device)
        : reader_(graph, threads), device_(device) {}

    status open() {
        if (status s = check(cudaSetDevice(device_), "--method copy"); !s) return s;
        if (status s = reader_.open(); !s) return s;
        if (!memory_.allocate(reader_.bytes()))
            return {-ENOMEM, "--method copy: " + format_size(reader_.bytes()) +
                                 " of device memory are not free; leave this method out"};
        for (std::uint32_t i = 0; i < reader_.threads(); ++i) {
            rooms_.push_back(std::make_unique<two_rooms>());
            if (status s = rooms_.back()->make(); !s) return s;
        }
        return {};
    }
    status refresh(std::uint64_t& pages) override {
        pages = reader_.bytes() / page_bytes;
        status ended =
            reader_.each_piece([&](std::uint32_t thread, std::uint64_t at, std::uint64_t bytes) {
                return pass(*rooms_[thread], at, bytes);
            });
        for (const auto& room : rooms_) {
            status copied = check(cudaStreamSynchronize(room->stream), "--method copy");
            if (ended.ok()) ended = std::move(copied);
        }
        return ended;
    }
    [[nodiscard]] const std::byte* data() const override {
        return static_cast<const std::byte*>(memory_.get());
    }
    [[nodiscard]] std::string note() const override {
        return "the whole file through pinned memory, by " + std::to_string(reader_.threads()) +
               " threads";
    }

private:
    status pass(two_rooms& rooms, std::uint64_t at, std::uint64_t bytes) {
        if (status s = check(cudaSetDevice(device_), "--method copy"); !s)
            return s;  // a new thread begins with device 0
        const unsigned half = rooms.next++ % 2;
        std::byte* const room =
            static_cast<std::byte*>(rooms.pinned.get()) + half * read_piece_bytes;
        if (status s = check(cudaEventSynchronize(rooms.copied[half]), "--method copy"); !s)
            return s;
        if (status s = reader_.read(room, bytes, at); !s) return s;
        if (status s = check(cudaMemcpyAsync(static_cast<std::byte*>(memory_.get()) + at, room,
                                             bytes, cudaMemcpyHostToDevice, rooms.stream),
                             "--method copy");
            !s)
            return s;
        return check(cudaEventRecord(rooms.copied[half], rooms.stream), "--method copy");
    }

    whole_reader reader_;
    int device_;
    device_bytes memory_;
    std::vector<std::unique_ptr<two_rooms>> rooms_;
};

class managed_place final : public graph_place {
public:
    managed_place(const graph_file& graph, std::uint32_t threads) : reader_(graph, threads) {}

    status open(int device) {
        device_ = device;
        if (status s = check(cudaSetDevice(device), "--method managed"); !s) return s;
        if (status s = reader_.open(); !s) return s;
        // Without this, the CPU may not use such memory while any kernel runs.
        int together = 0;
        if (status s =
                check(cudaDeviceGetAttribute(&together, cudaDevAttrConcurrentManagedAccess, device),
                      "--method managed");
            !s)
            return s;
        if (together == 0)
            return {-ENODEV, "--method managed: CPU and GPU " + std::to_string(device) +
                                 " cannot share memory page by page; leave this method out"};
        std::size_t free = 0, total = 0;
        if (status s = check(cudaMemGetInfo(&free, &total), "--method managed"); !s) return s;
        if (reader_.bytes() > free || !memory_.allocate(reader_.bytes()))
            return {-ENOMEM, "--method managed: the graph has " + format_size(reader_.bytes()) +
                                 ", and of the GPU's memory " + format_size(free) +
                                 " are free; leave this method out, or use a smaller graph"};
        return {};
    }
    status refresh(std::uint64_t& pages) override {
        pages = reader_.bytes() / page_bytes;
        if (status s = reader_.read_all(static_cast<std::byte*>(memory_.get())); !s) return s;
        // In large pieces before the kernel starts: a kernel that faults its pages in one after the
        // other takes several times as long, and a program that cares about time does not do that.
        return check(apps::prefetch(memory_.get(), reader_.bytes(), false, device_),
                     "--method managed");
    }
    [[nodiscard]] const std::byte* data() const override {
        return static_cast<const std::byte*>(memory_.get());
    }
    [[nodiscard]] std::string note() const override {
        return "the whole file into managed memory, by " + std::to_string(reader_.threads()) +
               " threads; then moved to the GPU by cudaMemPrefetchAsync";
    }

private:
    int device_ = 0;
    whole_reader reader_;
    managed_bytes memory_;
};

}  // namespace

status make_gpu_copy_place(const graph_file& graph, std::uint32_t threads, int device,
                           std::unique_ptr<graph_place>& out) {
    return open_place(std::make_unique<gpu_copy_place>(graph, threads, device), out);
}

status make_managed_place(const graph_file& graph, std::uint32_t threads, int device,
                          std::unique_ptr<graph_place>& out) {
    return open_place(std::make_unique<managed_place>(graph, threads), out, device);
}

#else

status make_gpu_copy_place(const graph_file&, std::uint32_t, int, std::unique_ptr<graph_place>&) {
    return {-ENODEV, "--method copy: this program was built without CUDA; use --backend cpu"};
}

status make_managed_place(const graph_file&, std::uint32_t, int, std::unique_ptr<graph_place>&) {
    return {-ENODEV,
            "--method managed: needs a GPU and a program that was built with CUDA; leave this "
            "method out"};
}

#endif

}  // namespace penstock::sssp
