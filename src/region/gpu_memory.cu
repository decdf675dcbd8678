// A region on a GPU: a warp for each page moves and compares its bytes. Each worker has a stream,
// memory of the host that kernels read pages from, and memory of the device where changed pages
// wait until they are at home.
#include <algorithm>
#include <cerrno>
#include <iterator>
#include <thread>
#include <utility>

#include "device/gpu_context.cuh"
#include "device/gpu_links.cuh"
#include "penstock/group/gpu_groups.cuh"
#include "region/cache_fill.hpp"
#include "region/gpu_range.cuh"

namespace penstock::region {

namespace {

constexpr unsigned most_threads = 16;
constexpr unsigned warps_of_block = 8;
constexpr std::uint64_t marked_bytes = batch_pages * mark_bytes;
constexpr std::uint64_t host_bytes = staging_pages * page_bytes + marked_bytes;
constexpr std::uint64_t collected_bytes = batch_pages * page_bytes + marked_bytes;
constexpr int most_looks = 200;  // for the end of a copy, some 0.2 ms

struct pages_of_region {
    std::byte* replica;
    std::byte* base;  // null: only read
    const std::uint64_t* numbers;
    std::uint64_t count;
};

__device__ std::uint64_t number_of_warp() {
    return std::uint64_t{blockIdx.x} * warps_of_block + threadIdx.x / 32;
}

// Which pages a fill is about. Mostly they follow each other, and then no list is read, which lies
// in host memory.
struct placed_pages {
    const staged_page* list;  // null: from `first` on
    staged_page first;

    __device__ staged_page operator[](std::uint64_t i) const {
        return list != nullptr ? list[i] : staged_page{first.number + i, first.slot + i};
    }
};

__global__ void fill_pages(pages_of_region r, placed_pages pages, const std::byte* staged) {
    const std::uint64_t i = number_of_warp();
    if (i >= r.count) return;
    const staged_page page = pages[i];
    const std::uint64_t at = page.number * page_bytes;
    fill_page(warp{}, r.replica + at, r.base == nullptr ? nullptr : r.base + at,
              staged + page.slot * page_bytes);
}

// Sets absent[i] of the pages that the cache does not have.
__global__ void __launch_bounds__(32 * warps_of_block)
    fill_from_frames(pages_of_region r, placed_pages pages, bool* absent,
                     const __grid_constant__ runtime_ref runtime, lent_pages lent) {
    const std::uint64_t i = number_of_warp();
    if (i >= r.count) return;
    const warp g;
    const staged_page page = pages[i];
    const std::uint64_t at = page.number * page_bytes;
    const bool filled = fill_from_cache(g, runtime.view, lent, page.slot * page_bytes,
                                        r.replica + at, r.base == nullptr ? nullptr : r.base + at);
    if (!filled && g.is_leader()) absent[i] = true;
}

__global__ void collect_pages(pages_of_region r, std::byte* staged, std::byte* marks) {
    const std::uint64_t i = number_of_warp();
    if (i >= r.count) return;
    const std::uint64_t at = r.numbers[i] * page_bytes;
    collect_page(warp{}, r.replica + at, r.base + at, staged + i * page_bytes,
                 marks + i * mark_bytes);
}

__global__ void adopt_pages(pages_of_region r, const std::byte* staged, std::uint64_t bytes) {
    const std::uint64_t i = number_of_warp();
    if (i < r.count)
        adopt_page(warp{}, r.base + r.numbers[i] * page_bytes, staged + i * page_bytes,
                   part_of_page(bytes, i));
}

// Appends the numbers of changed pages of [first, end) to `out`, in any order.
__global__ void find_changed(const std::byte* replica, const std::byte* base, std::uint64_t first,
                             std::uint64_t end, unsigned long long* count, std::uint64_t* out) {
    const warp g;
    for (std::uint64_t page = first + number_of_warp(); page < end;
         page += std::uint64_t{gridDim.x} * warps_of_block)
        if (is_changed(g, replica + page * page_bytes, base + page * page_bytes) && g.is_leader())
            out[atomicAdd(count, 1ull)] = page;
}

unsigned blocks_for(std::uint64_t pages) {
    return static_cast<unsigned>((pages + warps_of_block - 1) / warps_of_block);
}

// A kernel's code is loaded at its first launch, which would wait for kernels that run; one of
// those may wait for this one.
cudaError_t load_kernels() {
    const void* const kernels[] = {
        reinterpret_cast<const void*>(fill_pages), reinterpret_cast<const void*>(fill_from_frames),
        reinterpret_cast<const void*>(collect_pages), reinterpret_cast<const void*>(adopt_pages),
        reinterpret_cast<const void*>(find_changed)};
    cudaError_t code = cudaSuccess;
    cudaFuncAttributes attributes;
    for (const void* const kernel : kernels)
        if (code == cudaSuccess) code = cudaFuncGetAttributes(&attributes, kernel);
    return code;
}

using host::check_stream;
using host::context_is_gone;
using host::device_guard;
using host::errno_of;
using host::launch_kernel;

struct worker_room {
    cudaStream_t stream = nullptr;
    std::byte* host = nullptr;
    std::byte* device = nullptr;       // only where something may be changed
    staged_page* pages = nullptr;      // that a fill is about, where they do not follow each other
    bool* absent = nullptr;            // of these, by a fill from a cache
    std::byte* direct = nullptr;       // of the device, of a batch: for reads by cuFile
    bool direct_refused = false;       // there was no such memory
    bool direct_registered = false;    // with cuFile
    std::uint64_t* numbers = nullptr;  // of the others
};

// So many numbers of changed pages come to the host with their count: a second copy costs the
// caller some 25 us, whatever it brings.
constexpr std::uint64_t most_found_at_once = 511;

class gpu_region_memory final : public region_memory {
public:
    explicit gpu_region_memory(const host::gpu_context& context)
        : context_(context), small_(context.device), replica_(context), base_(context) {}
    ~gpu_region_memory() override {
        const device_guard guard(context_);
        if (!guard) return;
        for (worker_room& room : rooms_)
            if (room.stream != nullptr) {
                cudaStreamSynchronize(room.stream);
                cudaStreamDestroy(room.stream);
            }
        if (begun_ != nullptr) cudaEventDestroy(begun_);
    }

    bool take(const memory_shape& shape, status& why) {
        const device_guard guard(context_);
        why = {context_is_gone, "the device was reset"};
        if (!guard) return false;
        pages_ = shape.pages;
        if (const cudaError_t code = load_kernels(); code != cudaSuccess)
            return refused(why, "the kernels of regions could not be loaded: ", code);
        if (!take_rooms(shape.writable, why)) return false;
        const std::uint64_t free_bytes = host::room_now().free_bytes;
        const std::uint64_t room =
            std::min(shape.device_bytes,
                     free_bytes > spare_device_bytes ? free_bytes - spare_device_bytes : 0);
        const std::uint64_t bytes = pages_ * page_bytes;
        why.code = -ENOMEM;
        if (!replica_.take(bytes, room, why.message)) return false;
        return !shape.writable || base_.take(bytes, room - replica_.bytes_on_device(), why.message);
    }

    [[nodiscard]] std::byte* data() const override { return replica_.data(); }
    [[nodiscard]] std::uint64_t bytes_on_device() const override {
        return replica_.bytes_on_device();
    }
    [[nodiscard]] unsigned workers() const override { return static_cast<unsigned>(rooms_.size()); }
    [[nodiscard]] std::byte* staging(unsigned worker) const override { return rooms_[worker].host; }
    [[nodiscard]] std::byte* marks(unsigned worker) const override {
        return rooms_[worker].host + staging_pages * page_bytes;
    }

    int begin(void* stream) override {
        const device_guard guard(context_);
        if (!guard) return context_is_gone;
        if (!replica_.is_whole()) return -EIO;
        const auto on = static_cast<cudaStream_t>(stream);
        if (const int busy = check_stream(on); busy != 0) return busy;
        cudaError_t code = cudaEventRecord(begun_, on);
        for (const worker_room& room : rooms_)
            if (code == cudaSuccess) code = cudaStreamWaitEvent(room.stream, begun_, 0);
        return errno_of(code);
    }

    int fill(unsigned worker, const std::byte* from,
             const std::vector<staged_page>& pages) override {
        const device_guard guard(context_);
        if (!guard) return context_is_gone;
        const worker_room& room = rooms_[worker];
        const pages_of_region all{replica_.data(), base_.data(), nullptr, pages.size()};
        return errno_of(launch_kernel(fill_pages, blocks_for(pages.size()), warps_of_block * 32,
                                      room.stream, all, placed(room, pages), from));
    }

    const std::byte* read_direct(unsigned worker, host::direct_file& file, std::uint64_t bytes,
                                 std::uint64_t offset) override {
        const device_guard guard(context_);
        if (!guard) return nullptr;
        worker_room& room = rooms_[worker];
        if (room.direct == nullptr && !take_direct(room, file.storage())) return nullptr;
        return file.read(room.direct, bytes, offset) ? room.direct : nullptr;
    }

    void end_direct(host::direct_storage& storage) override {
        const device_guard guard(context_);
        if (!guard) return;
        for (worker_room& room : rooms_) {
            if (room.direct == nullptr) continue;
            if (room.direct_registered) storage.remove_buffer(room.direct);
            cudaFree(std::exchange(room.direct, nullptr));
        }
    }

    int fill_from_cache(unsigned worker, const host::lent_file& from,
                        std::vector<staged_page>& pages) override {
        const device_guard guard(context_);
        if (!guard) return context_is_gone;
        const worker_room& room = rooms_[worker];
        const pages_of_region all{replica_.data(), base_.data(), nullptr, pages.size()};
        std::fill_n(room.absent, pages.size(), false);
        const int code =
            ended(launch_kernel(fill_from_frames, blocks_for(pages.size()), warps_of_block * 32,
                                room.stream, all, placed(room, pages), room.absent, *from.runtime,
                                lent_pages{from.slot, from.generation}),
                  room.stream);
        for (std::size_t i = 0; i < pages.size(); ++i) pages[i].slot = room.absent[i] ? 0 : 1;
        return code;
    }

    int collect(unsigned worker, const std::vector<std::uint64_t>& numbers) override {
        const device_guard guard(context_);
        if (!guard) return context_is_gone;
        const worker_room& room = rooms_[worker];
        std::byte* const marked = room.device + batch_pages * page_bytes;
        cudaError_t code =
            launch_kernel(collect_pages, blocks_for(numbers.size()), warps_of_block * 32,
                          room.stream, listed(room, numbers), room.device, marked);
        if (code == cudaSuccess)
            code = cudaMemcpyAsync(room.host, room.device, numbers.size() * page_bytes,
                                   cudaMemcpyDeviceToHost, room.stream);
        if (code == cudaSuccess)
            code = cudaMemcpyAsync(marks(worker), marked, numbers.size() * mark_bytes,
                                   cudaMemcpyDeviceToHost, room.stream);
        return ended(code, room.stream);
    }

    int adopt(unsigned worker, const std::vector<std::uint64_t>& numbers,
              std::uint64_t bytes) override {
        const device_guard guard(context_);
        if (!guard) return context_is_gone;
        const worker_room& room = rooms_[worker];
        return ended(launch_kernel(adopt_pages, blocks_for(numbers.size()), warps_of_block * 32,
                                   room.stream, listed(room, numbers), room.device, bytes),
                     room.stream);
    }

    int wait(unsigned worker) override {
        const device_guard guard(context_);
        return guard ? ended(cudaSuccess, rooms_[worker].stream) : context_is_gone;
    }

    [[nodiscard]] const std::byte* settled() const override {
        return base_.data() == nullptr ? replica_.data() : base_.data();
    }
    [[nodiscard]] std::optional<int> gpu() const override { return context_.device; }

    // Not where a part lies in host memory: it would go over the host's bus, and its pieces change
    // places.
    host::device_link show_to(const region_memory& reader) override {
        using host::link_kind;
        if (!reader.gpu()) return {link_kind::none, "one of them is on CPU threads"};
        const device_guard guard(context_);
        if (!guard) return {link_kind::none, "a device was reset"};
        gpu_range& shown = base_.data() == nullptr ? replica_ : base_;
        if (shown.is_split()) return {link_kind::none, "a part of one lies in host memory"};
        host::device_link link = host::link_between(*reader.gpu(), context_.device);
        if (link.kind == link_kind::none || link.kind == link_kind::same_memory) return link;
        if (const CUresult code = shown.show_to(*reader.gpu()); code != CUDA_SUCCESS)
            return {link_kind::none, "GPU " + std::to_string(*reader.gpu()) +
                                         " gets no access: " + host::cuda_text(code)};
        return link;
    }

    // By copies alone: a kernel of ours could wait long for room beside one of the user's.
    int read_back(unsigned worker, const std::vector<staged_run>& runs) override {
        const device_guard guard(context_);
        if (!guard) return context_is_gone;
        const worker_room& room = rooms_[worker];
        cudaError_t code = cudaSuccess;
        for (const staged_run& run : runs)
            if (code == cudaSuccess)
                code = cudaMemcpyAsync(room.host + run.slot * page_bytes,
                                       settled() + run.number * page_bytes, run.count * page_bytes,
                                       cudaMemcpyDeviceToHost, room.stream);
        // A thread that sleeps until it is told takes longer to wake up than the copy takes.
        for (int looks = 0; code == cudaSuccess && looks < most_looks &&
                            cudaStreamQuery(room.stream) == cudaErrorNotReady;
             ++looks) {
        }
        return errno_of(code);
    }

    std::int64_t prefer(std::uint64_t begin, std::uint64_t end, void* stream) override {
        const device_guard guard(context_);
        if (!guard) return context_is_gone;
        const int code = after(stream);
        return code != 0 ? code : replica_.prefer(begin, end);
    }

    void used(const std::vector<std::uint64_t>& numbers) override { replica_.used(numbers); }

    std::int64_t promote(void* stream) override {
        if (!replica_.is_split()) return 0;
        const device_guard guard(context_);
        if (!guard) return context_is_gone;
        const int code = after(stream);
        return code != 0 ? code : replica_.promote();
    }

    int changed_pages(void* stream, std::uint64_t first, std::uint64_t end,
                      std::vector<std::uint64_t>& out) override {
        const device_guard guard(context_);
        if (!guard) return context_is_gone;
        const auto on = static_cast<cudaStream_t>(stream);
        out.clear();
        if (changed_ == nullptr || first == end) return 0;
        if (!replica_.is_whole()) return -EIO;
        if (const int busy = check_stream(on); busy != 0) return busy;
        auto* const count = reinterpret_cast<unsigned long long*>(changed_);
        const unsigned blocks = std::min(blocks_for(end - first), 132u * 8);
        const std::uint64_t at_once = std::min(most_found_at_once, end - first);
        cudaError_t code = cudaMemsetAsync(count, 0, sizeof *count, on);
        if (code == cudaSuccess)
            code = launch_kernel(find_changed, blocks, warps_of_block * 32, on, replica_.data(),
                                 base_.data(), first, end, count, changed_ + 1);
        if (code == cudaSuccess)
            code = cudaMemcpyAsync(found_, changed_, (1 + at_once) * sizeof *found_,
                                   cudaMemcpyDeviceToHost, on);
        if (const int failed = ended(code, on); failed != 0) return failed;
        const std::uint64_t all = found_[0], came = std::min(all, at_once);
        out.assign(found_ + 1, found_ + 1 + came);
        int failed = 0;
        if (came < all) {
            out.resize(all);
            failed = ended(
                cudaMemcpyAsync(&out[came], changed_ + 1 + came,
                                (all - came) * sizeof(std::uint64_t), cudaMemcpyDeviceToHost, on),
                on);
        }
        std::sort(out.begin(), out.end());
        return failed;
    }

    [[nodiscard]] void* own_stream() const override { return rooms_.front().stream; }

    [[nodiscard]] status lost() const override {
        const device_guard guard(context_);
        if (!guard) return {context_is_gone, "the program reset the device (cudaDeviceReset)"};
        if (!replica_.is_whole())
            return {-EIO, "the driver failed while parts of it changed places"};
        const cudaError_t code = cudaStreamQuery(rooms_.front().stream);
        return host::is_sticky(code) ? status{-EIO, "a kernel faulted: " + host::cuda_text(code)}
                                     : status{};
    }

private:
    static bool refused(status& why, const std::string& message, cudaError_t code) {
        why = {errno_of(code),
               message + host::cuda_text(code) + "; of the device " + host::room_text()};
        return false;
    }

    // What moves pages: a stream and memory for each worker, and the list of changed pages.
    bool take_rooms(bool writable, status& why) {
        rooms_.resize(
            workers_for(pages_, std::clamp(std::thread::hardware_concurrency(), 2u, most_threads)));
        cudaError_t code = cudaEventCreateWithFlags(&begun_, cudaEventDisableTiming);
        for (worker_room& room : rooms_)
            if (code == cudaSuccess)
                code = cudaStreamCreateWithFlags(&room.stream, cudaStreamNonBlocking);
        if (code != cudaSuccess)
            return refused(why, "a stream for moving pages was refused: ", code);
        bool all = true;
        for (worker_room& room : rooms_) {
            all = all && share(host_bytes, room.host) &&
                  share(settled_batch_pages * sizeof(staged_page), room.pages) &&
                  share(settled_batch_pages * sizeof(bool), room.absent) &&
                  share(batch_pages * sizeof(std::uint64_t), room.numbers);
            if (!all || !writable) continue;
            room.device = static_cast<std::byte*>(small_.device_bytes(collected_bytes));
            all = room.device != nullptr;
        }
        if (all && writable) {
            changed_ = static_cast<std::uint64_t*>(
                small_.device_bytes((pages_ + 1) * sizeof(std::uint64_t)));
            all = changed_ != nullptr && share((1 + most_found_at_once) * sizeof *found_, found_);
        }
        if (!all) why = {-ENOMEM, "for moving pages, " + small_.shortage()};
        return all;
    }
    // An allocation of its own, since cuFile pins and registers whole allocations, and the memory
    // of a region is many that are mapped.
    static bool take_direct(worker_room& room, host::direct_storage& storage) {
        constexpr std::uint64_t bytes = batch_pages * page_bytes;
        if (room.direct_refused) return false;
        void* memory = nullptr;
        if (cudaMalloc(&memory, bytes) != cudaSuccess) {
            cudaGetLastError();
            room.direct_refused = true;
            return false;
        }
        room.direct = static_cast<std::byte*>(memory);
        room.direct_registered = storage.add_buffer(room.direct, bytes);
        return true;
    }
    template <typename T>
    bool share(std::uint64_t bytes, T*& out) {
        out = static_cast<T*>(small_.shared_bytes(bytes));
        return out != nullptr;
    }

    // Waits for what was launched, also after an error: it uses the caller's memory.
    static int ended(cudaError_t launched, cudaStream_t stream) {
        const cudaError_t ran = cudaStreamSynchronize(stream);
        return errno_of(launched != cudaSuccess ? launched : ran);
    }
    static int after(void* stream) {
        const auto on = static_cast<cudaStream_t>(stream);
        const int busy = check_stream(on);
        return busy != 0 ? busy : errno_of(cudaStreamSynchronize(on));
    }

    // Of pages in the order of their numbers. `room` is in use until the kernel has ended.
    static placed_pages placed(const worker_room& room, const std::vector<staged_page>& pages) {
        const staged_page first = pages.front(), last = pages.back();
        const std::uint64_t others = pages.size() - 1;
        // Slots follow the order of the numbers too, so the ends tell about all between them.
        if (last.number - first.number == others && last.slot - first.slot == others)
            return {nullptr, first};
        std::copy(pages.begin(), pages.end(), room.pages);
        return {room.pages, {}};
    }
    pages_of_region listed(const worker_room& room,
                           const std::vector<std::uint64_t>& numbers) const {
        std::copy(numbers.begin(), numbers.end(), room.numbers);
        return {replica_.data(), base_.data(), room.numbers, numbers.size()};
    }

    const host::gpu_context context_;
    std::uint64_t pages_ = 0;
    host::gpu_memory small_;
    gpu_range replica_, base_;
    std::vector<worker_room> rooms_;
    std::uint64_t* changed_ = nullptr;  // how many, then which
    std::uint64_t* found_ = nullptr;    // the first of it, in memory of the host
    cudaEvent_t begun_ = nullptr;
};

}  // namespace

std::unique_ptr<region_memory> make_gpu_memory(int device, const memory_shape& shape, status& why) {
    bool is_short = false;
    const host::gpu_context context = host::gpu_context::of(device, why.message, is_short);
    why.code = is_short ? -ENOMEM : -ENODEV;
    if (context.handle == nullptr) return nullptr;
    auto memory = std::make_unique<gpu_region_memory>(context);
    return memory->take(shape, why) ? std::move(memory) : nullptr;
}

}  // namespace penstock::region
