// Pieces on a GPU: a range of device addresses, and one allocation for each piece that may be
// resident, mapped where it is wanted. Absent pieces have no memory behind their addresses, or all
// of them the same allocation, which is full of poison.
#include <algorithm>
#include <cerrno>
#include <thread>
#include <vector>

#include "device/gpu_context.cuh"
#include "penstock/pieces.hpp"
#include "region/piece_memory.hpp"

namespace penstock::region {

namespace {

constexpr std::uint64_t spared_bytes = 1ull << 30;

using host::context_is_gone;
using host::device_guard;
using host::driver;
using host::errno_of;

int errno_of_driver(CUresult code) {
    return code == CUDA_SUCCESS ? 0 : code == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EIO;
}

struct piece_event {
    explicit piece_event(const host::gpu_context& made_in) : context(made_in) {}
    ~piece_event() {
        const device_guard guard(context);
        if (guard && handle != nullptr) cudaEventDestroy(handle);
    }
    piece_event(const piece_event&) = delete;
    piece_event& operator=(const piece_event&) = delete;

    const host::gpu_context context;
    cudaEvent_t handle = nullptr;
};

cudaEvent_t handle_of(const stream_mark& mark) {
    return static_cast<const piece_event*>(mark.get())->handle;
}

struct piece_worker {
    cudaStream_t stream = nullptr;
    std::byte* buffers[2] = {};
    cudaEvent_t sent[2] = {};  // what the buffer held is on the device
};

class gpu_pieces final : public piece_memory {
public:
    explicit gpu_pieces(const host::gpu_context& context)
        : context_(context), pinned_(context.device) {}
    ~gpu_pieces() override {
        const device_guard guard(context_);
        if (!guard) return;  // all went with the context
        for (piece_worker& w : workers_) end(w);
        if (joined_ != nullptr) cudaStreamDestroy(joined_);
        for (std::uint64_t piece = 0; piece < mapped_.size(); ++piece)
            if (mapped_[piece]) driver().unmap(at(piece), shape_.piece_bytes);
        for (const CUmemGenericAllocationHandle memory : slots_) driver().release(memory);
        if (poison_ != 0) driver().release(poison_);
        if (address_ != 0) driver().free_addresses(address_, shape_.pieces * shape_.piece_bytes);
    }

    bool take(const piece_shape& shape, status& why) {
        const device_guard guard(context_);
        why = {context_is_gone, "the device was reset"};
        if (!guard) return false;
        shape_ = shape;
        mapped_.resize(shape.pieces);
        if (!take_workers(why)) return false;
        host_ = shape.host_places == 0 ? nullptr
                                       : static_cast<std::byte*>(pinned_.shared_bytes(
                                             shape.host_places * shape.piece_bytes));
        if (shape.host_places != 0 && host_ == nullptr) {
            why = {-ENOMEM, "for host_bytes, " + pinned_.shortage()};
            return false;
        }
        if (const CUresult code = driver().reserve(&address_, shape.pieces * shape.piece_bytes,
                                                   std::uint64_t{2} << 20, 0, 0);
            code != CUDA_SUCCESS) {
            address_ = 0;
            why = {-ENOMEM, "the device gives no range of " +
                                format_size(shape.pieces * shape.piece_bytes) +
                                " of addresses: " + host::cuda_text(code)};
            return false;
        }
        if (shape.poison && !make_poison(why)) return false;
        return take_slots(why);
    }

    [[nodiscard]] std::byte* data() const override {
        return reinterpret_cast<std::byte*>(address_);
    }
    [[nodiscard]] std::uint32_t slots() const override {
        return static_cast<std::uint32_t>(slots_.size());
    }
    [[nodiscard]] unsigned workers() const override {
        return static_cast<unsigned>(workers_.size());
    }
    [[nodiscard]] bool reads_in_place() const override { return false; }

    int place(const std::vector<placed_piece>& pieces) override {
        const device_guard guard(context_);
        if (!guard) return context_is_gone;
        int code = 0;
        for_each_run(pieces, [&](const placed_piece* first, std::uint64_t count) {
            if (code == 0) code = unmap(first->number, count);
            if (code == 0)
                code = map(first->number, count,
                           [&](std::uint64_t i) { return slots_[first[i].slot]; });
        });
        if (code != 0) static_cast<void>(make_absent(pieces));
        return code;
    }
    int remove(const std::vector<placed_piece>& pieces) override {
        const device_guard guard(context_);
        return guard ? make_absent(pieces) : context_is_gone;
    }

    int begin_fill(std::uint64_t) override { return 0; }
    int end_fill(std::uint64_t) override { return 0; }

    std::byte* buffer(unsigned number, unsigned which, std::uint64_t) override {
        const device_guard guard(context_);
        const piece_worker& w = workers_[number];
        return guard && cudaEventSynchronize(w.sent[which]) == cudaSuccess ? w.buffers[which]
                                                                           : nullptr;
    }
    int send(unsigned number, unsigned which, std::uint64_t offset, std::uint64_t bytes) override {
        const device_guard guard(context_);
        if (!guard) return context_is_gone;
        const piece_worker& w = workers_[number];
        cudaError_t code = cudaMemcpyAsync(data() + offset, w.buffers[which], bytes,
                                           cudaMemcpyHostToDevice, w.stream);
        if (code == cudaSuccess) code = cudaEventRecord(w.sent[which], w.stream);
        return errno_of(code);
    }
    int clear(unsigned number, std::uint64_t offset, std::uint64_t bytes) override {
        const device_guard guard(context_);
        if (!guard) return context_is_gone;
        return errno_of(cudaMemsetAsync(data() + offset, 0, bytes, workers_[number].stream));
    }
    int to_host(std::uint64_t piece, std::uint64_t place) override {
        const device_guard guard(context_);
        if (!guard) return context_is_gone;
        const cudaStream_t stream = workers_.front().stream;
        cudaError_t code = cudaMemcpyAsync(host_at(place), data() + piece * shape_.piece_bytes,
                                           shape_.piece_bytes, cudaMemcpyDeviceToHost, stream);
        if (code == cudaSuccess) code = cudaStreamSynchronize(stream);
        return errno_of(code);
    }
    int from_host(unsigned number, std::uint64_t piece, std::uint64_t place) override {
        const device_guard guard(context_);
        if (!guard) return context_is_gone;
        return errno_of(cudaMemcpyAsync(data() + piece * shape_.piece_bytes, host_at(place),
                                        shape_.piece_bytes, cudaMemcpyHostToDevice,
                                        workers_[number].stream));
    }

    int mark_workers(stream_mark& out) override {
        const device_guard guard(context_);
        if (!guard) return context_is_gone;
        cudaError_t code = cudaSuccess;
        for (const piece_worker& w : workers_) {
            if (code == cudaSuccess) code = cudaEventRecord(w.sent[0], w.stream);
            if (code == cudaSuccess) code = cudaStreamWaitEvent(joined_, w.sent[0], 0);
        }
        return code == cudaSuccess ? record(joined_, out) : errno_of(code);
    }
    int mark(void* stream, stream_mark& out) override {
        const device_guard guard(context_);
        return guard ? record(static_cast<cudaStream_t>(stream), out) : context_is_gone;
    }
    int wait(const stream_mark& until) override {
        if (until == nullptr) return 0;
        const device_guard guard(context_);
        return guard ? errno_of(cudaEventSynchronize(handle_of(until))) : context_is_gone;
    }
    [[nodiscard]] bool has_passed(const stream_mark& mark) const override {
        if (mark == nullptr) return true;
        const device_guard guard(context_);
        return guard && cudaEventQuery(handle_of(mark)) == cudaSuccess;
    }
    int order(void* stream, const stream_mark& behind) override {
        if (behind == nullptr) return 0;
        const device_guard guard(context_);
        if (!guard) return context_is_gone;
        return errno_of(
            cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), handle_of(behind), 0));
    }
    int check(void* stream) override {
        const device_guard guard(context_);
        return guard ? host::check_stream(static_cast<cudaStream_t>(stream)) : context_is_gone;
    }

private:
    [[nodiscard]] CUdeviceptr at(std::uint64_t piece) const {
        return address_ + piece * shape_.piece_bytes;
    }
    [[nodiscard]] std::byte* host_at(std::uint64_t place) const {
        return host_ + place * shape_.piece_bytes;
    }

    int record(cudaStream_t stream, stream_mark& out) const {
        const auto made = std::make_shared<piece_event>(context_);
        cudaError_t code = cudaEventCreateWithFlags(&made->handle, cudaEventDisableTiming);
        if (code == cudaSuccess) code = cudaEventRecord(made->handle, stream);
        if (code == cudaSuccess) out = made;
        return errno_of(code);
    }

    static void end(piece_worker& w) {
        if (w.stream == nullptr) return;
        cudaStreamSynchronize(w.stream);
        for (const cudaEvent_t sent : w.sent)
            if (sent != nullptr) cudaEventDestroy(sent);
        cudaStreamDestroy(w.stream);
    }
    bool take_workers(status& why) {
        workers_.resize(std::clamp(std::thread::hardware_concurrency(), 2u, most_piece_threads));
        cudaError_t code = cudaStreamCreateWithFlags(&joined_, cudaStreamNonBlocking);
        const std::uint64_t bytes = std::min(most_part_bytes, shape_.piece_bytes);
        for (piece_worker& w : workers_) {
            if (code == cudaSuccess)
                code = cudaStreamCreateWithFlags(&w.stream, cudaStreamNonBlocking);
            for (cudaEvent_t& sent : w.sent)
                if (code == cudaSuccess)
                    code = cudaEventCreateWithFlags(&sent, cudaEventDisableTiming);
            for (std::byte*& buffer : w.buffers) {
                buffer = static_cast<std::byte*>(pinned_.shared_bytes(bytes));
                if (buffer != nullptr) continue;
                why = {-ENOMEM, "for bringing pieces, " + pinned_.shortage()};
                return false;
            }
        }
        if (code == cudaSuccess) return true;
        why = {errno_of(code), "a stream for bringing pieces was refused: " +
                                   host::cuda_text(code) + "; of the device " + host::room_text()};
        return false;
    }

    CUresult create(CUmemGenericAllocationHandle& out) const {
        CUmemAllocationProp properties{};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, context_.device};
        return driver().create(&out, shape_.piece_bytes, &properties, 0);
    }
    // As many as there is room for, at least one.
    bool take_slots(status& why) {
        const std::uint64_t free_bytes = host::room_now().free_bytes,
                            room =
                                std::min(shape_.device_bytes,
                                         free_bytes > spared_bytes ? free_bytes - spared_bytes : 0),
                            count = std::min(shape_.pieces, room / shape_.piece_bytes);
        CUresult code = CUDA_ERROR_OUT_OF_MEMORY;
        for (std::uint64_t i = 0; i < count; ++i) {
            CUmemGenericAllocationHandle memory{};
            if (code = create(memory); code != CUDA_SUCCESS) break;
            slots_.push_back(memory);
        }
        if (!slots_.empty()) return true;
        why = {-ENOMEM, "there is no room for one piece of " + format_size(shape_.piece_bytes) +
                            ": " + host::cuda_text(code) + "; of the device " + host::room_text()};
        return false;
    }

    bool make_poison(status& why) {
        const CUresult code = create(poison_);
        if (code != CUDA_SUCCESS) poison_ = 0;
        int mapped = errno_of_driver(code);
        if (mapped == 0) mapped = map(0, shape_.pieces, [&](std::uint64_t) { return poison_; });
        if (mapped == 0)
            mapped = errno_of(cudaMemsetAsync(data(), poison_byte, shape_.piece_bytes, joined_));
        if (mapped == 0) mapped = errno_of(cudaStreamSynchronize(joined_));
        if (mapped != 0)
            why = {mapped, "for poison_absent the device has no piece left; of the device " +
                               host::room_text()};
        return mapped == 0;
    }

    // visit(first, count) for each run of neighbours.
    template <typename Visit>
    static void for_each_run(const std::vector<placed_piece>& pieces, const Visit& visit) {
        for (std::size_t i = 0, end = 0; i < pieces.size(); i = end) {
            for (end = i + 1;
                 end < pieces.size() && pieces[end].number == pieces[end - 1].number + 1;)
                ++end;
            visit(&pieces[i], end - i);
        }
    }
    int make_absent(const std::vector<placed_piece>& pieces) {
        int code = 0;
        for_each_run(pieces, [&](const placed_piece* first, std::uint64_t count) {
            int failed = unmap(first->number, count);
            if (failed == 0 && poison_ != 0)
                failed = map(first->number, count, [&](std::uint64_t) { return poison_; });
            if (code == 0) code = failed;
        });
        return code;
    }

    // Neighbouring pieces, which get their access together. After an error none is mapped.
    template <typename MemoryOf>
    int map(std::uint64_t first, std::uint64_t count, const MemoryOf& memory_of) {
        CUresult code = CUDA_SUCCESS;
        for (std::uint64_t i = 0; i < count && code == CUDA_SUCCESS; ++i) {
            code = driver().map(at(first + i), shape_.piece_bytes, 0, memory_of(i), 0);
            mapped_[first + i] = code == CUDA_SUCCESS;
        }
        CUmemAccessDesc access{};
        access.location = {CU_MEM_LOCATION_TYPE_DEVICE, context_.device};
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        if (code == CUDA_SUCCESS)
            code = driver().set_access(at(first), count * shape_.piece_bytes, &access, 1);
        if (code != CUDA_SUCCESS) static_cast<void>(unmap(first, count));
        return errno_of_driver(code);
    }
    int unmap(std::uint64_t first, std::uint64_t count) {
        CUresult code = CUDA_SUCCESS;
        for (std::uint64_t i = first; i < first + count; ++i) {
            if (!mapped_[i]) continue;
            const CUresult one = driver().unmap(at(i), shape_.piece_bytes);
            mapped_[i] = one != CUDA_SUCCESS;
            if (code == CUDA_SUCCESS) code = one;
        }
        return errno_of_driver(code);
    }

    const host::gpu_context context_;
    host::gpu_memory pinned_;
    piece_shape shape_;
    CUdeviceptr address_ = 0;
    std::vector<CUmemGenericAllocationHandle> slots_;
    CUmemGenericAllocationHandle poison_ = 0;
    std::vector<bool> mapped_;  // of the pieces
    std::vector<piece_worker> workers_;
    cudaStream_t joined_ = nullptr;  // waits for all workers
    std::byte* host_ = nullptr;
};

}  // namespace

std::unique_ptr<piece_memory> make_gpu_pieces(int device, const piece_shape& shape, status& why) {
    bool is_short = false;
    const host::gpu_context context = host::gpu_context::of(device, why.message, is_short);
    why.code = is_short ? -ENOMEM : -ENODEV;
    if (context.handle == nullptr) return nullptr;
    auto memory = std::make_unique<gpu_pieces>(context);
    return memory->take(shape, why) ? std::move(memory) : nullptr;
}

}  // namespace penstock::region
