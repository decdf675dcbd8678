// The gpu back end: cache in device memory; the host versions of the calls are small kernels of the
// runtime's own.
//
// Each such call borrows a desk: a stream, pinned memory for arguments and results, and a pinned
// bounce buffer that the kernel's warps write file bytes to. All of it is made when the runtime is
// created, for nothing may be allocated while another kernel waits for the host.
#include <cerrno>
#include <cstring>
#include <mutex>

#include "device/device.hpp"
#include "device/gpu_context.cuh"
#include "device/gpu_desks.cuh"
#include "device/gpu_gather.cuh"
#include "device/gpu_links.cuh"
#include "device/gpu_table.cuh"
#include "device/gpu_words.cuh"
#include "penstock/group/gpu_groups.cuh"
#include "penstock/write.hpp"

namespace penstock::host {

namespace {

// This warp's share of the pages of a file slot, written back.
__device__ std::int64_t flush_share(const warp& g, const runtime_ref& fs, std::uint32_t slot,
                                    std::uint32_t share, std::uint32_t shares,
                                    std::uint64_t piece_pages) {
    const std::uint64_t pages =
        g.broadcast(engine::pages_of(fs.view, engine::size_of(fs.view, slot)));
    return engine::flush_share(g, fs.view, slot, 0, pages, share, shares, piece_pages);
}

// One warp per piece of the range, `results[piece]` each; calls without a range have one piece.
__global__ void serve_call(const __grid_constant__ runtime_ref fs, call_sheet* sheet,
                           std::byte* bounce, std::uint32_t pieces) {
    const warp g;
    for (std::uint32_t piece = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; piece < pieces;
         piece += gridDim.x * (blockDim.x / 32)) {
        std::int64_t result = 0;
        const std::uint64_t begin = piece * sheet->piece_bytes;
        const std::uint64_t length = min(sheet->piece_bytes, sheet->bytes - begin);
        switch (sheet->operation) {
            case call::open: result = open(g, fs, sheet->path, sheet->flags); break;
            case call::close: result = close(g, fs, sheet->fd); break;
            case call::duplicate: result = engine::add_reference(g, fs.view, sheet->fd); break;
            case call::stat: result = stat(g, fs, sheet->fd, &sheet->facts); break;
            case call::read:
                result = read(g, fs, sheet->fd, bounce + begin, static_cast<std::int64_t>(length),
                              static_cast<std::int64_t>(sheet->offset + begin));
                break;
            case call::prefetch:
                result =
                    prefetch(g, fs, sheet->fd, static_cast<std::int64_t>(sheet->offset + begin),
                             static_cast<std::int64_t>(length));
                break;
            case call::advise:
                result = advise(g, fs, sheet->fd, static_cast<advice>(sheet->flags),
                                static_cast<std::int64_t>(sheet->offset),
                                static_cast<std::int64_t>(sheet->range_bytes));
                break;
            case call::write:
                result = write(g, fs, sheet->fd, bounce + begin, static_cast<std::int64_t>(length),
                               static_cast<std::int64_t>(sheet->offset + begin));
                break;
            case call::append:
                result =
                    append(g, fs, sheet->fd, bounce, static_cast<std::int64_t>(sheet->range_bytes));
                break;
            case call::msync:
                result = msync(g, fs, sheet->fd, static_cast<std::int64_t>(sheet->offset),
                               static_cast<std::int64_t>(sheet->range_bytes));
                break;
            case call::fsync: result = fsync(g, fs, sheet->fd); break;
            case call::truncate:
                result = truncate(g, fs, sheet->fd, static_cast<std::int64_t>(sheet->offset));
                break;
            case call::forget: result = engine::unlink_file(g, fs.view, sheet->path, false); break;
            case call::flush:
                result = flush_share(g, fs, static_cast<std::uint32_t>(sheet->fd), piece, pieces,
                                     sheet->offset);
                break;
            default: break;
        }
        if (g.is_leader()) sheet->results[piece] = result;
    }
}

class gpu_device final : public cache_device {
public:
    gpu_device(const gpu_context& context, std::string name, std::string slow_start)
        : context_(context),
          name_(std::move(name)),
          slow_start_(std::move(slow_start)),
          memory_(context.device),
          loans_(context) {}

    ~gpu_device() override {
        const device_guard guard(context_);
        if (!guard) return;
        desks_.end();
        if (watch_ != nullptr) cudaStreamDestroy(watch_);
        words_.end();
    }

    status init() {
        const device_guard guard(context_);
        if (!guard) return {context_is_gone, "the device was reset"};
        if (const cudaError_t code = cudaStreamCreateWithFlags(&watch_, cudaStreamNonBlocking);
            code != cudaSuccess)
            return no_stream(code);
        if (const cudaError_t code = words_.init(memory_); code != cudaSuccess)
            return no_stream(code);
        if (const cudaError_t code = desks_.init(memory_); code == cudaErrorMemoryAllocation)
            return {-ENOMEM, "for calls of the host, " + memory_.shortage()};
        else if (code != cudaSuccess) return no_stream(code);
        return loans_.init(memory_);
    }

    [[nodiscard]] std::string name() const override { return name_; }
    [[nodiscard]] bool is_gpu() const override { return true; }
    [[nodiscard]] std::string slow_start() const override { return slow_start_; }

    [[nodiscard]] std::uint64_t free_bytes() const override {
        const device_guard guard(context_);
        return guard ? room_now().free_bytes : 0;
    }

    void* allocate_device(std::uint64_t bytes) override { return memory_.device_bytes(bytes); }
    void* allocate_shareable(std::uint64_t bytes) override {
        return memory_.shareable_bytes(bytes);
    }
    int handle_of(const void* shareable, std::uint64_t& mapped_bytes) override {
        return memory_.handle_of(shareable, mapped_bytes);
    }
    [[nodiscard]] std::uint64_t allocated_bytes() const override {
        return memory_.allocated_bytes();
    }
    bool may_hold_frames(const void* memory, std::uint64_t bytes, std::string& why) override {
        const device_guard guard(context_);
        why = "cannot be looked at, since the device was reset; make the runtime again";
        return guard && is_device_memory(memory, bytes, context_.device, why);
    }
    void* allocate_shared(std::uint64_t bytes) override { return memory_.shared_bytes(bytes); }
    [[nodiscard]] std::string shortage() const override { return memory_.shortage(); }

    bool expose(void* host_memory, std::uint64_t bytes, bool for_all, std::string& why) override {
        const device_guard guard(context_);
        why = "the device was reset";
        if (!guard) return false;
        const CUresult code =
            driver().register_host(host_memory, bytes,
                                   CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY |
                                       (for_all ? CU_MEMHOSTREGISTER_PORTABLE : 0));
        why.clear();
        if (code == CUDA_SUCCESS) return true;
        const bool is_short = code == CUDA_ERROR_OUT_OF_MEMORY;
        why = (is_short ? "no memory to register " + format_size(bytes) + " of a mapped file: "
                        : std::string("the driver does not register mapped files: ")) +
              cuda_text(code);
        if (is_short) why += "; of the device " + room_text();
        return false;
    }
    void conceal(void* host_memory) override {
        const device_guard guard(context_);
        if (guard) driver().unregister_host(host_memory);
    }

    int upload(void* to, const void* from, std::uint64_t bytes) override {
        if (bytes > gpu_words::most_bytes) return copy(to, from, bytes, true);
        const device_guard guard(context_);
        if (!guard) return context_is_gone;
        return words_.write(to, from, bytes) == cudaSuccess ? 0 : -EIO;
    }
    int download(void* to, const void* from, std::uint64_t bytes) override {
        return copy(to, from, bytes, false);
    }

    int wait_for_groups() override {
        const device_guard guard(context_);
        return guard ? wait_for_current_device() : 0;  // else what ran went with the context
    }

    status prepare(const runtime_ref& fs) override {
        const device_guard guard(context_);
        if (!guard) return {context_is_gone, name_ + ": the device was reset"};
        for (desk& d : desks_.all()) {
            d.sheet->operation = call::nothing;
            cudaError_t code =
                launch_kernel(serve_call, 1, 32, d.stream, fs, d.sheet, d.bounce, 1u);
            if (code == cudaSuccess) code = cudaStreamSynchronize(d.stream);
            if (code == cudaSuccess) code = load_gather_kernels(fs, d.gather, d.stream);
            if (code != cudaSuccess) return kernels_refused(code);
        }
        cudaError_t code = loans_.load(fs);
        if (code == cudaSuccess) code = tables_.load(fs, desks_.all()[0].stream);
        return code == cudaSuccess ? status{} : kernels_refused(code);
    }

    int open(const runtime_ref& fs, const char* path, int flags) override {
        return run_named(fs, call::open, path, flags);
    }
    int forget(const runtime_ref& fs, const char* path) override {
        return run_named(fs, call::forget, path, 0);
    }
    // As with fsync, so that one warp does not have to write a whole file back.
    int close(const runtime_ref& fs, int fd) override {
        file_stat facts;
        if (fs.view.writes != nullptr && engine::descriptor_access(fd) != engine::may_read &&
            stat(fs, fd, &facts) == 0)
            flush(fs, engine::descriptor_slot(fs.view, fd));
        const desk_pool::borrowed d(desks_);
        d->sheet->fd = fd;
        return static_cast<int>(run(fs, *d, call::close, 1));
    }
    int duplicate(const runtime_ref& fs, int fd) override {
        const desk_pool::borrowed d(desks_);
        d->sheet->fd = fd;
        return static_cast<int>(run(fs, *d, call::duplicate, 1));
    }
    int stat(const runtime_ref& fs, int fd, file_stat* out) override {
        if (out == nullptr) return -EFAULT;
        const desk_pool::borrowed d(desks_);
        d->sheet->fd = fd;
        const auto code = static_cast<int>(run(fs, *d, call::stat, 1));
        if (code == 0) *out = d->sheet->facts;
        return code;
    }

    std::int64_t read(const runtime_ref& fs, int fd, void* buffer, std::int64_t bytes,
                      std::int64_t offset) override {
        if (bytes < 0 || offset < 0 || bytes > INT64_MAX - offset ||
            (buffer == nullptr && bytes > 0))
            return -EINVAL;
        const desk_pool::borrowed d(desks_);
        std::int64_t done = 0;
        do {
            const std::uint64_t part =
                std::min<std::uint64_t>(static_cast<std::uint64_t>(bytes - done), bounce_bytes);
            const std::int64_t got =
                run_range(fs, *d, call::read, fd, static_cast<std::uint64_t>(offset + done), part);
            if (got < 0) return done > 0 ? done : got;
            std::memcpy(static_cast<std::byte*>(buffer) + done, d->bounce,
                        static_cast<std::size_t>(got));
            done += got;
            if (static_cast<std::uint64_t>(got) < part) break;
        } while (done < bytes);
        return done;
    }

    std::int64_t write(const runtime_ref& fs, int fd, const void* buffer, std::int64_t bytes,
                       std::int64_t offset) override {
        if (bytes < 0 || offset < 0 || bytes > INT64_MAX - offset ||
            (buffer == nullptr && bytes > 0))
            return -EINVAL;
        const desk_pool::borrowed d(desks_);
        std::int64_t done = 0;
        do {
            const std::uint64_t part =
                std::min<std::uint64_t>(static_cast<std::uint64_t>(bytes - done), bounce_bytes);
            std::memcpy(d->bounce, static_cast<const std::byte*>(buffer) + done, part);
            const std::int64_t got =
                run_range(fs, *d, call::write, fd, static_cast<std::uint64_t>(offset + done), part);
            if (got < 0) return done > 0 ? done : got;
            done += got;
            if (static_cast<std::uint64_t>(got) < part) break;
        } while (done < bytes);
        return done;
    }

    // A record is one call of one group; it has to fit into the bounce buffer.
    std::int64_t append(const runtime_ref& fs, int fd, const void* buffer,
                        std::int64_t bytes) override {
        if (bytes < 0 || (buffer == nullptr && bytes > 0)) return -EINVAL;
        if (static_cast<std::uint64_t>(bytes) > bounce_bytes) return -EMSGSIZE;
        const desk_pool::borrowed d(desks_);
        std::memcpy(d->bounce, buffer, static_cast<std::size_t>(bytes));
        return run_with(fs, *d, call::append, fd, 0, static_cast<std::uint64_t>(bytes));
    }

    int msync(const runtime_ref& fs, int fd, std::int64_t offset, std::int64_t bytes) override {
        const desk_pool::borrowed d(desks_);
        return static_cast<int>(run_with(fs, *d, call::msync, fd,
                                         static_cast<std::uint64_t>(offset),
                                         static_cast<std::uint64_t>(bytes)));
    }

    // Many warps write back what one would have to, one page after the other.
    int fsync(const runtime_ref& fs, int fd) override {
        file_stat facts;
        if (const int code = stat(fs, fd, &facts); code != 0) return code;
        const int flushed =
            fs.view.writes != nullptr ? flush(fs, engine::descriptor_slot(fs.view, fd)) : 0;
        const desk_pool::borrowed d(desks_);
        const std::int64_t synced = run_with(fs, *d, call::fsync, fd, 0, 0);
        return flushed != 0 ? flushed : static_cast<int>(synced);
    }

    int truncate(const runtime_ref& fs, int fd, std::int64_t size_bytes) override {
        const desk_pool::borrowed d(desks_);
        return static_cast<int>(
            run_with(fs, *d, call::truncate, fd, static_cast<std::uint64_t>(size_bytes), 0));
    }

    int flush(const runtime_ref& fs, std::uint32_t slot) override {
        const std::uint32_t shares = engine::flushing_groups(fs.view);
        const desk_pool::borrowed d(desks_);
        d->sheet->fd = static_cast<int>(slot);
        d->sheet->piece_bytes = d->sheet->bytes = 0;
        d->sheet->offset = engine::flushed_piece_pages(fs.view);
        std::int64_t code = run(fs, *d, call::flush, shares);
        for (std::uint32_t i = 1; i < shares && code == 0; ++i) code = d->sheet->results[i];
        return static_cast<int>(code);
    }

    std::int64_t prefetch(const runtime_ref& fs, int fd, std::int64_t offset,
                          std::int64_t bytes) override {
        if (bytes < 0 || offset < 0 || bytes > INT64_MAX - offset) return -EINVAL;
        const desk_pool::borrowed d(desks_);
        std::int64_t done = 0;
        do {
            const std::uint64_t part =
                std::min<std::uint64_t>(static_cast<std::uint64_t>(bytes - done), 1u << 30);
            const std::int64_t got = run_range(fs, *d, call::prefetch, fd,
                                               static_cast<std::uint64_t>(offset + done), part);
            if (got < 0) return done > 0 ? done : got;
            done += got;
            if (static_cast<std::uint64_t>(got) < part) break;
        } while (done < bytes);
        return done;
    }

    std::int64_t advise(const runtime_ref& fs, int fd, advice kind, std::int64_t offset,
                        std::int64_t bytes) override {
        const desk_pool::borrowed d(desks_);
        d->sheet->fd = fd;
        d->sheet->flags = static_cast<int>(kind);
        d->sheet->offset = static_cast<std::uint64_t>(offset);
        d->sheet->range_bytes = static_cast<std::uint64_t>(bytes);
        return run(fs, *d, call::advise, 1);
    }

    std::int64_t gather(const runtime_ref& fs, const gather_job& job,
                        device_stream stream) override {
        const device_guard guard(context_);
        if (!guard) return context_is_gone;
        const auto callers = static_cast<cudaStream_t>(stream);
        if (callers != nullptr)
            if (const int busy = check_stream(callers); busy != 0) return busy;
        const desk_pool::borrowed d(desks_);
        return gather_on_gpu(fs, job, d->gather, &d->sheet->results[0], memory_,
                             callers != nullptr ? callers : d->stream);
    }

    // The caller's stream may be in a capture, which then contains the job. Only work on the
    // default stream would end the capture of another stream.
    int run_table(const runtime_ref& fs, const table_job& job, device_stream stream) override {
        const device_guard guard(context_);
        if (!guard) return context_is_gone;
        const auto callers = static_cast<cudaStream_t>(stream);
        if (callers == nullptr || callers == cudaStreamLegacy)
            if (const int busy = check_stream(cudaStreamLegacy); busy != 0) return busy;
        return tables_.launch(fs, job, callers);
    }

    int while_current(const std::function<int()>& call) override {
        const device_guard guard(context_);
        return guard ? call() : context_is_gone;
    }

    [[nodiscard]] bool is_of(device_stream stream) const override {
        return is_stream_of(static_cast<cudaStream_t>(stream), context_);
    }

    [[nodiscard]] device_link link_to(const cache_device& other) const override {
        const auto* const gpu = dynamic_cast<const gpu_device*>(&other);
        if (gpu == nullptr) return {link_kind::none, "the other device is no GPU"};
        return link_between(context_.device, gpu->context_.device);
    }
    bool reach(const cache_device& other, std::string& why) override {
        const auto* const gpu = dynamic_cast<const gpu_device*>(&other);
        why = "the other device is no GPU";
        if (gpu == nullptr) return false;
        const device_guard guard(context_);
        why = "a device was reset; make the runtime again";
        if (!guard || !gpu->context_.is_alive()) return false;
        return enable_peer(context_, gpu->context_, why);
    }

    [[nodiscard]] std::string identity() const override { return identity_of(context_.device); }
    [[nodiscard]] device_link link_to(const std::string& identity) const override {
        return link_to_identity(context_.device, identity);
    }
    const void* map_foreign(int handle, std::uint64_t bytes, std::string& why) override {
        return memory_.map_foreign(handle, bytes, why);
    }
    void unmap_foreign(const void* mapped) override { memory_.unmap_foreign(mapped); }
    void part_from_parent() override {}  // a child of fork() does not have the device
    int sample(std::uint64_t* out, std::uint64_t* counters, std::uint64_t count) override {
        const device_guard guard(context_);
        if (!guard) return context_is_gone;
        return words_.look(out, counters, count * sizeof *out) == cudaSuccess ? 0 : -EIO;
    }

    page_lender& lender() override { return loans_; }

    status health() override {
        const device_guard guard(context_);
        if (!guard && context_.is_over()) return {};
        if (!guard)
            return {context_is_gone,
                    name_ +
                        ": the program reset the device (cudaDeviceReset), and what was in its "
                        "memory is gone; create a new runtime"};
        const cudaError_t code = cudaStreamQuery(watch_);
        if (!is_sticky(code)) return {};
        return {
            -EIO,
            name_ + ": a kernel faulted and the device gave up: " + cuda_text(code) +
                "; fix the kernel (compute-sanitizer finds the place) and start the program again"};
    }

private:
    [[nodiscard]] status no_stream(cudaError_t code) const {
        return {errno_of(code), "for calls of the host, a stream was refused: " + cuda_text(code) +
                                    "; of the device " + room_text()};
    }

    // Each kernel has the stacks of as many threads as the device can run set aside when it is
    // first launched.
    [[nodiscard]] status kernels_refused(cudaError_t code) const {
        if (!is_shortage(code))
            return {-EIO, name_ + " could not load Penstock's kernels: " + cuda_text(code) +
                              "; is the driver older than the toolkit, or is this a build for "
                              "another kind of GPU?"};
        const std::uint64_t stacks =
            stack_bytes(reinterpret_cast<const void*>(serve_call), context_.device);
        return {-ENOMEM,
                name_ + ": no memory for Penstock's kernels: " + cuda_text(code) + "; they need " +
                    whole_mib(stacks) + " for their stacks besides their code, and of the device " +
                    room_text() + "; free some of its memory, or give a smaller cache_bytes"};
    }

    int run_named(const runtime_ref& fs, call operation, const char* path, int flags) {
        const std::size_t length = std::strlen(path);
        if (length > engine::max_path_bytes) return -ENAMETOOLONG;
        const desk_pool::borrowed d(desks_);
        std::memcpy(d->sheet->path, path, length + 1);
        d->sheet->flags = flags;
        return static_cast<int>(run(fs, *d, operation, 1));
    }

    int copy(void* to, const void* from, std::uint64_t bytes, bool up) {
        const device_guard guard(context_);
        if (!guard) return context_is_gone;
        const desk_pool::borrowed d(desks_);
        for (std::uint64_t done = 0; done < bytes; done += bounce_bytes) {
            const std::uint64_t part = std::min(bytes - done, bounce_bytes);
            auto* const target = static_cast<std::byte*>(to) + done;
            const auto* const source = static_cast<const std::byte*>(from) + done;
            if (up) std::memcpy(d->bounce, source, part);
            if (cudaMemcpyAsync(up ? target : d->bounce,
                                up ? static_cast<const std::byte*>(d->bounce) : source, part,
                                up ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost,
                                d->stream) != cudaSuccess ||
                cudaStreamSynchronize(d->stream) != cudaSuccess)
                return -EIO;
            if (!up) std::memcpy(target, d->bounce, part);
        }
        return 0;
    }

    std::int64_t run(const runtime_ref& fs, desk& d, call operation, std::uint32_t pieces) {
        const device_guard guard(context_);
        if (!guard) return context_is_gone;
        d.sheet->operation = operation;
        cudaError_t code = launch_kernel(serve_call, (pieces + 3) / 4, 128, d.stream, fs, d.sheet,
                                         d.bounce, pieces);
        if (code == cudaSuccess) code = cudaStreamSynchronize(d.stream);
        return code == cudaSuccess ? d.sheet->results[0] : errno_of(code);
    }

    std::int64_t run_with(const runtime_ref& fs, desk& d, call operation, int fd,
                          std::uint64_t offset, std::uint64_t bytes) {
        d.sheet->fd = fd;
        d.sheet->offset = offset;
        d.sheet->range_bytes = bytes;
        return run(fs, d, operation, 1);
    }

    // Splits a range over warps. The count of the longest prefix that was delivered, or the first
    // piece's error.
    std::int64_t run_range(const runtime_ref& fs, desk& d, call operation, int fd,
                           std::uint64_t offset, std::uint64_t bytes) {
        d.sheet->fd = fd;
        d.sheet->offset = offset;
        d.sheet->bytes = bytes;
        d.sheet->piece_bytes =
            std::max<std::uint64_t>(fs.view.page_bytes(), (bytes + max_pieces - 1) / max_pieces);
        const auto pieces = static_cast<std::uint32_t>(
            std::max<std::uint64_t>(1, (bytes + d.sheet->piece_bytes - 1) / d.sheet->piece_bytes));
        const std::int64_t first = run(fs, d, operation, pieces);
        std::int64_t done = first;
        for (std::uint32_t i = 1;
             i < pieces && done == static_cast<std::int64_t>(i * d.sheet->piece_bytes); ++i)
            if (d.sheet->results[i] > 0) done += d.sheet->results[i];
        return done;
    }

    const gpu_context context_;
    const std::string name_, slow_start_;
    gpu_memory memory_;
    gpu_tables tables_;
    gpu_loans loans_;  // ends before its memory goes
    cudaStream_t watch_ = nullptr;
    desk_pool desks_;
    gpu_words words_;
};

}  // namespace

std::unique_ptr<cache_device> make_gpu_device(int device, status& why) {
    bool is_short = false;
    why = {-ENODEV, {}};
    const gpu_driver& calls = driver();
    const gpu_context context = gpu_context::of(device, why.message, is_short);
    if (context.handle == nullptr) {
        if (is_short) why.code = -ENOMEM;
        return nullptr;
    }
    char name[256] = "";
    int unified = 0, same_address = 0;
    if (calls.device_name(name, sizeof name, device) != CUDA_SUCCESS ||
        calls.attribute(&unified, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, device) != CUDA_SUCCESS ||
        calls.attribute(&same_address, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
                        device) != CUDA_SUCCESS) {
        why.message = "the device cannot be asked for its properties";
        return nullptr;
    }
    if (unified == 0 || same_address == 0) {
        why.message = std::string(name) + " does not share addresses with the host";
        return nullptr;
    }
    std::string slow_start;
    why.message = look_for_code(name, device, slow_start);
    if (!why.message.empty()) return nullptr;
    auto gpu = std::make_unique<gpu_device>(context, name, std::move(slow_start));
    why = gpu->init();
    if (why.ok()) return gpu;
    why.message = std::string(name) + ": " + why.message;
    return nullptr;
}

int gpu_of_memory(const void* memory) {
    int device = -1;
    const bool is_told =
        driver().missing.empty() &&
        driver().pointer_attribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   reinterpret_cast<CUdeviceptr>(memory)) == CUDA_SUCCESS;
    return is_told ? device : -1;
}

}  // namespace penstock::host
