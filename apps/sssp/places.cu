// The places of a graph: a region, and for the baselines copies on CPU and GPU, managed memory and
// a memory map.
#include "graph_place.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <vector>

#include "common/device_memory.hpp"
#include "common/files.hpp"
#include "common/message.hpp"
#include "common/threads.hpp"
#include "penstock/region.hpp"
#if defined(__CUDACC__)
#include "common/gpu.cuh"
#endif

namespace penstock::sssp {

namespace {

class region_place final : public graph_place {
public:
    region_place(runtime& rt, const graph_file& graph, bool outside_writers)
        : rt_(rt), graph_(graph), outside_writers_(outside_writers) {}

    status open() override {
        region_options settings;
        settings.outside_writers = outside_writers_;
        return map_region(rt_, graph_.real_path(), 0, 0, protection::read, settings, region_);
    }
    status refresh(std::uint64_t& pages) override {
        const std::int64_t code = region_->acquire();
        if (code < 0)
            return apps::failure(static_cast<int>(code), apps::shown(graph_.path),
                                 ": acquire: ", error_text(code),
                                 code == -ESTALE ? "; the file became shorter, so start again"
                                                 : "; see that the file can be read");
        pages = static_cast<std::uint64_t>(code);
        return {};
    }
    [[nodiscard]] const std::byte* data() const override {
        return static_cast<const std::byte*>(region_->data());
    }
    [[nodiscard]] std::string note() const override {
        return outside_writers_ ? "region, any program may write the file"
                                : "region, what is written comes through the mount";
    }

private:
    runtime& rt_;
    const graph_file& graph_;
    const bool outside_writers_;
    std::unique_ptr<file_region> region_;
};

constexpr std::uint64_t read_piece_bytes = 2u << 20;

// A place that gets the whole file anew each time, in pieces by all threads.
class whole_place : public graph_place {
public:
    whole_place(const graph_file& graph, std::uint32_t threads)
        : graph_(graph),
          threads_(static_cast<std::uint32_t>(
              std::min<std::uint64_t>(threads, apps::pieces_of(bytes(), read_piece_bytes)))) {}

    status open() final {
        if (status s = graph_.open(O_RDONLY, fd_); !s) return s;
        return allocate();
    }
    status refresh(std::uint64_t& pages) final {
        pages = bytes() / page_bytes;
        return bring();
    }

protected:
    virtual status allocate() = 0;
    virtual status bring() = 0;

    // take(thread, offset, bytes) for every piece, on all threads; gives a status.
    template <typename Take>
    status each_piece(const Take& take) const {
        return apps::on_pieces(threads_, bytes(), read_piece_bytes, take);
    }
    status read(void* to, std::uint64_t bytes, std::uint64_t offset) const {
        return apps::read_exactly(graph_.path, fd_, to, bytes, offset);
    }
    // Straight to where it belongs, in memory that the CPU reaches.
    status read_all(std::byte* to) const {
        return each_piece([&](std::uint32_t, std::uint64_t at, std::uint64_t bytes) {
            return read(to + at, bytes, at);
        });
    }

    [[nodiscard]] std::uint64_t bytes() const { return graph_.shape.file_bytes(); }
    [[nodiscard]] std::uint32_t threads() const { return threads_; }

private:
    const graph_file& graph_;
    std::uint32_t threads_;
    apps::unique_fd fd_;
};

class copy_place final : public whole_place {
public:
    using whole_place::whole_place;
    [[nodiscard]] const std::byte* data() const override { return data_; }
    [[nodiscard]] std::string note() const override {
        return "the whole file, by " + std::to_string(threads()) + " threads";
    }

private:
    status allocate() override {
        if (memory_->allocate(data_, bytes())) return {};
        return {-ENOMEM, "--method copy: " + format_size(bytes()) +
                             " of memory are not free; use --method cpu"};
    }
    status bring() override { return read_all(data_); }

    std::unique_ptr<apps::device_memory> memory_ = apps::make_host_memory();
    std::byte* data_ = nullptr;
};

class mapped_place final : public graph_place {
public:
    explicit mapped_place(const graph_file& graph) : graph_(graph) {}
    status open() override { return file_.open(graph_.real_path(), graph_.shape.file_bytes()); }
    status refresh(std::uint64_t& pages) override {
        pages = 0;
        return {};
    }
    [[nodiscard]] const std::byte* data() const override {
        return reinterpret_cast<const std::byte*>(file_.data());
    }
    [[nodiscard]] std::string note() const override { return "memory map"; }

private:
    const graph_file& graph_;
    apps::mapped_file file_;
};

#if defined(__CUDACC__)

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
    gpu_copy_place(const graph_file& graph, const place_settings& settings)
        : whole_place(graph, settings.threads), device_(settings.device) {}
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
    managed_place(const graph_file& graph, const place_settings& settings)
        : whole_place(graph, settings.threads), device_(settings.device) {}
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

#endif

}  // namespace

std::unique_ptr<graph_place> make_region_place(runtime& rt, const graph_file& graph,
                                               bool outside_writers) {
    return std::make_unique<region_place>(rt, graph, outside_writers);
}

std::unique_ptr<graph_place> make_place(const std::string& method, const graph_file& graph,
                                        const place_settings& settings) {
    if (method == "cpu") return std::make_unique<mapped_place>(graph);
// Without CUDA a run has no solver on a GPU, and ends before it asks for these.
#if defined(__CUDACC__)
    if (method == "managed") return std::make_unique<managed_place>(graph, settings);
    if (settings.on_gpu) return std::make_unique<gpu_copy_place>(graph, settings);
#endif
    return std::make_unique<copy_place>(graph, settings.threads);
}

}  // namespace penstock::sssp
