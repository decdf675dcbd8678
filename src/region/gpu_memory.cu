// A region on a GPU: a warp for each page moves and compares its bytes. Each worker has a stream, memory of the host that kernels read pages
// from, and memory of the device where changed pages wait until they are at home.
#include <algorithm>
#include <cerrno>
#include <iterator>
#include <thread>

#include "host/gpu_memory.cuh"
#include "penstock/group/warp.cuh"
#include "region/gpu_range.cuh"
#include "region/region_memory.hpp"

namespace penstock::region {

namespace {

constexpr unsigned most_threads = 16;
constexpr unsigned warps_of_block = 8;
constexpr std::uint64_t marked_bytes = batch_pages * mark_bytes;
constexpr std::uint64_t host_bytes = staging_pages * page_bytes + marked_bytes;
constexpr std::uint64_t collected_bytes = batch_pages * page_bytes + marked_bytes;
constexpr std::uint64_t spare_bytes = 1ull << 30;
constexpr int most_looks = 200;  // for the end of a copy, some 0.2 ms

struct pages_of_region {
    std::byte* replica;
    std::byte* base;  // null: only read
    const std::uint64_t* numbers;
    std::uint64_t count;
};

__device__ std::uint64_t number_of_warp() { return std::uint64_t{blockIdx.x} * warps_of_block + threadIdx.x / 32; }

__global__ void fill_pages(pages_of_region r, const staged_page* pages, const std::byte* staged) {
    const std::uint64_t i = number_of_warp();
    if (i >= r.count) return;
    const std::uint64_t at = pages[i].number * page_bytes;
    fill_page(warp{}, r.replica + at, r.base == nullptr ? nullptr : r.base + at, staged + pages[i].slot * page_bytes);
}

__global__ void collect_pages(pages_of_region r, std::byte* staged, std::byte* marks) {
    const std::uint64_t i = number_of_warp();
    if (i >= r.count) return;
    const std::uint64_t at = r.numbers[i] * page_bytes;
    collect_page(warp{}, r.replica + at, r.base + at, staged + i * page_bytes, marks + i * mark_bytes);
}

__global__ void adopt_pages(pages_of_region r, const std::byte* staged, std::uint64_t bytes) {
    const std::uint64_t i = number_of_warp();
    if (i < r.count) adopt_page(warp{}, r.base + r.numbers[i] * page_bytes, staged + i * page_bytes, part_of_page(bytes, i));
}

// Appends the numbers of changed pages to `out`, in any order.
__global__ void find_changed(const std::byte* replica, const std::byte* base, std::uint64_t pages, unsigned long long* count, std::uint64_t* out) {
    const warp g;
    for (std::uint64_t page = number_of_warp(); page < pages; page += std::uint64_t{gridDim.x} * warps_of_block)
        if (is_changed(g, replica + page * page_bytes, base + page * page_bytes) && g.is_leader()) out[atomicAdd(count, 1ull)] = page;
}

unsigned blocks_for(std::uint64_t pages) { return static_cast<unsigned>((pages + warps_of_block - 1) / warps_of_block); }

// A kernel's code is loaded at its first launch, which would wait for kernels that run; one of those may wait for this one.
bool load_kernels() {
    const void* const kernels[] = {reinterpret_cast<const void*>(fill_pages), reinterpret_cast<const void*>(collect_pages),
                                   reinterpret_cast<const void*>(adopt_pages), reinterpret_cast<const void*>(find_changed)};
    return std::all_of(std::begin(kernels), std::end(kernels), [](const void* one) {
        cudaFuncAttributes attributes;
        return cudaFuncGetAttributes(&attributes, one) == cudaSuccess;
    });
}

int code_of(cudaError_t code) {
    if (code == cudaSuccess) return 0;
    cudaGetLastError();
    return -EIO;
}

struct worker_room {
    cudaStream_t stream = nullptr;
    std::byte* host = nullptr;
    std::byte* device = nullptr;    // only where something may be changed
    staged_page* pages = nullptr;   // that a fill is about
    std::uint64_t* numbers = nullptr;  // of the others
};

class gpu_region_memory final : public region_memory {
public:
    explicit gpu_region_memory(int device) : device_(device), small_(device), replica_(device), base_(device) {}
    ~gpu_region_memory() override {
        const host::device_guard guard(device_);
        for (worker_room& one : rooms_)
            if (one.stream != nullptr) {
                cudaStreamSynchronize(one.stream);
                cudaStreamDestroy(one.stream);
            }
        if (begun_ != nullptr) cudaEventDestroy(begun_);
    }

    bool take(const memory_shape& shape, std::string& why) {
        const host::device_guard guard(device_);
        pages_ = shape.pages;
        why = "the device has no code of regions";
        if (!load_kernels()) return false;
        why = "the device has no memory left for moving pages";
        rooms_.resize(workers_for(pages_, std::clamp(std::thread::hardware_concurrency(), 2u, most_threads)));
        if (cudaEventCreateWithFlags(&begun_, cudaEventDisableTiming) != cudaSuccess) return false;
        for (worker_room& one : rooms_) {
            if (cudaStreamCreateWithFlags(&one.stream, cudaStreamNonBlocking) != cudaSuccess) return false;
            one.host = static_cast<std::byte*>(small_.shared_bytes(host_bytes));
            one.pages = static_cast<staged_page*>(small_.shared_bytes(batch_pages * sizeof(staged_page)));
            one.numbers = static_cast<std::uint64_t*>(small_.shared_bytes(batch_pages * sizeof(std::uint64_t)));
            if (one.host == nullptr || one.pages == nullptr || one.numbers == nullptr) return false;
            if (!shape.writable) continue;
            one.device = static_cast<std::byte*>(small_.device_bytes(collected_bytes));
            if (one.device == nullptr) return false;
        }
        if (shape.writable) {
            changed_ = static_cast<std::uint64_t*>(small_.device_bytes((pages_ + 1) * sizeof(std::uint64_t)));
            if (changed_ == nullptr) return false;
        }
        std::size_t free = 0, total = 0;
        if (cudaMemGetInfo(&free, &total) != cudaSuccess) return false;
        const std::uint64_t room = std::min(shape.device_bytes, free > spare_bytes ? free - spare_bytes : 0);
        const std::uint64_t bytes = pages_ * page_bytes;
        if (!replica_.take(bytes, room, why)) return false;
        return !shape.writable || base_.take(bytes, room - replica_.bytes_on_device(), why);
    }

    [[nodiscard]] std::byte* data() const override { return replica_.data(); }
    [[nodiscard]] std::uint64_t bytes_on_device() const override { return replica_.bytes_on_device(); }
    [[nodiscard]] unsigned workers() const override { return static_cast<unsigned>(rooms_.size()); }
    [[nodiscard]] std::byte* staging(unsigned worker) const override { return rooms_[worker].host; }
    [[nodiscard]] std::byte* marks(unsigned worker) const override { return rooms_[worker].host + staging_pages * page_bytes; }

    int begin(void* stream) override {
        const host::device_guard guard(device_);
        cudaError_t code = cudaEventRecord(begun_, static_cast<cudaStream_t>(stream));
        for (const worker_room& one : rooms_)
            if (code == cudaSuccess) code = cudaStreamWaitEvent(one.stream, begun_, 0);
        return code_of(code);
    }

    int fill(unsigned worker, const std::vector<staged_page>& pages) override {
        const host::device_guard guard(device_);
        const worker_room& room = rooms_[worker];
        std::copy(pages.begin(), pages.end(), room.pages);
        const pages_of_region all{replica_.data(), base_.data(), nullptr, pages.size()};
        fill_pages<<<blocks_for(pages.size()), warps_of_block * 32, 0, room.stream>>>(all, room.pages, room.host);
        return code_of(cudaGetLastError());
    }

    int collect(unsigned worker, const std::vector<std::uint64_t>& numbers) override {
        const host::device_guard guard(device_);
        const worker_room& room = rooms_[worker];
        std::byte* const marked = room.device + batch_pages * page_bytes;
        collect_pages<<<blocks_for(numbers.size()), warps_of_block * 32, 0, room.stream>>>(listed(room, numbers), room.device, marked);
        cudaMemcpyAsync(room.host, room.device, numbers.size() * page_bytes, cudaMemcpyDeviceToHost, room.stream);
        cudaMemcpyAsync(marks(worker), marked, numbers.size() * mark_bytes, cudaMemcpyDeviceToHost, room.stream);
        return code_of(cudaStreamSynchronize(room.stream));
    }

    int adopt(unsigned worker, const std::vector<std::uint64_t>& numbers, std::uint64_t bytes) override {
        const host::device_guard guard(device_);
        const worker_room& room = rooms_[worker];
        adopt_pages<<<blocks_for(numbers.size()), warps_of_block * 32, 0, room.stream>>>(listed(room, numbers), room.device, bytes);
        return code_of(cudaStreamSynchronize(room.stream));
    }

    int wait(unsigned worker) override {
        const host::device_guard guard(device_);
        return code_of(cudaStreamSynchronize(rooms_[worker].stream));
    }

    // By copies alone: a kernel of ours could wait long for room beside one of the user's.
    int read_back(unsigned worker, const std::vector<staged_run>& runs) override {
        const host::device_guard guard(device_);
        const worker_room& room = rooms_[worker];
        const std::byte* const from = base_.data() == nullptr ? replica_.data() : base_.data();
        cudaError_t code = cudaSuccess;
        for (const staged_run& one : runs)
            if (code == cudaSuccess)
                code = cudaMemcpyAsync(room.host + one.slot * page_bytes, from + one.number * page_bytes, one.count * page_bytes, cudaMemcpyDeviceToHost, room.stream);
        // A thread that sleeps until it is told takes longer to wake up than the copy takes.
        for (int looks = 0; code == cudaSuccess && looks < most_looks && cudaStreamQuery(room.stream) == cudaErrorNotReady; ++looks) {}
        cudaGetLastError();  // that it was not ready is no error for whoever asks next
        return code_of(code);
    }

    std::int64_t prefer(std::uint64_t begin, std::uint64_t end, void* stream) override {
        const host::device_guard guard(device_);
        if (const int code = code_of(cudaStreamSynchronize(static_cast<cudaStream_t>(stream))); code != 0) return code;
        const std::int64_t near = replica_.prefer(begin, end);
        if (near < 0) cudaGetLastError();
        return near;
    }

    void used(const std::vector<std::uint64_t>& numbers) override { replica_.used(numbers); }

    std::int64_t promote(void* stream) override {
        if (!replica_.is_split()) return 0;
        const host::device_guard guard(device_);
        if (const int code = code_of(cudaStreamSynchronize(static_cast<cudaStream_t>(stream))); code != 0) return code;
        const std::int64_t came = replica_.promote();
        if (came < 0) cudaGetLastError();
        return came;
    }

    int changed_pages(void* stream, std::vector<std::uint64_t>& out) override {
        const host::device_guard guard(device_);
        const auto on = static_cast<cudaStream_t>(stream);
        out.clear();
        if (changed_ == nullptr) return 0;
        auto* const count = reinterpret_cast<unsigned long long*>(changed_);
        cudaMemsetAsync(count, 0, sizeof *count, on);
        const unsigned blocks = std::min(blocks_for(pages_), 132u * 8);
        find_changed<<<blocks, warps_of_block * 32, 0, on>>>(replica_.data(), base_.data(), pages_, count, changed_ + 1);
        unsigned long long found = 0;
        cudaMemcpyAsync(&found, count, sizeof found, cudaMemcpyDeviceToHost, on);
        if (const int code = code_of(cudaStreamSynchronize(on)); code != 0) return code;
        out.resize(found);
        cudaMemcpyAsync(out.data(), changed_ + 1, found * sizeof(std::uint64_t), cudaMemcpyDeviceToHost, on);
        const int code = code_of(cudaStreamSynchronize(on));
        std::sort(out.begin(), out.end());
        return code;
    }

private:
    pages_of_region listed(const worker_room& room, const std::vector<std::uint64_t>& numbers) const {
        std::copy(numbers.begin(), numbers.end(), room.numbers);
        return {replica_.data(), base_.data(), room.numbers, numbers.size()};
    }

    const int device_;
    std::uint64_t pages_ = 0;
    host::gpu_memory small_;
    gpu_range replica_, base_;
    std::vector<worker_room> rooms_;
    std::uint64_t* changed_ = nullptr;  // how many, then which
    cudaEvent_t begun_ = nullptr;
};

}  // namespace

std::unique_ptr<region_memory> make_gpu_memory(int device, const memory_shape& shape, std::string& why) {
    auto memory = std::make_unique<gpu_region_memory>(device);
    if (memory->take(shape, why)) return memory;
    cudaGetLastError();
    return nullptr;
}

}  // namespace penstock::region
