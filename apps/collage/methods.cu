#include "methods.hpp"

#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "picture.hpp"
#include "common/process.hpp"
#include "penstock/options.hpp"

namespace penstock::collage {

namespace {

status copy_failed() {
    return {-EIO, "a picture could not be copied to or from the device; is the GPU in order?"};
}

}  // namespace

#if defined(__CUDACC__)

collage_memory::~collage_memory() {
    if (device_ == no_gpu) {
        for (void* const piece : pieces_) std::free(piece);
        return;
    }
    cudaSetDevice(device_);
    for (void* const address : pinned_) cudaHostUnregister(address);
    for (void* const piece : pieces_) cudaFree(piece);
}

void* collage_memory::allocate(std::uint64_t bytes) {
    const std::uint64_t length = bytes == 0 ? 1 : bytes;
    void* address = nullptr;
    if (device_ == no_gpu) {
        address = std::calloc(1, length);
    } else if (cudaSetDevice(device_) != cudaSuccess ||
               cudaMalloc(&address, length) != cudaSuccess ||
               cudaMemset(address, 0, length) != cudaSuccess) {
        cudaGetLastError();  // the failure is reported by the null pointer, not by the next launch
        return nullptr;
    }
    if (address != nullptr) pieces_.push_back(address);
    return address;
}

bool collage_memory::upload(void* to, const void* from, std::uint64_t bytes) const {
    if (device_ != no_gpu)
        return bytes == 0 || cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice) == cudaSuccess;
    if (bytes != 0) std::memcpy(to, from, bytes);
    return true;
}

bool collage_memory::begin_upload(void* to, const void* from, std::uint64_t bytes) const {
    if (device_ == no_gpu) return upload(to, from, bytes);
    return bytes == 0 || cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice) == cudaSuccess;
}

bool collage_memory::download(void* to, const void* from, std::uint64_t bytes) const {
    if (device_ != no_gpu)
        return bytes == 0 || cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
    return upload(to, from, bytes);
}

void collage_memory::pin(const void* address, std::uint64_t bytes) {
    if (device_ == no_gpu || cudaSetDevice(device_) != cudaSuccess) return;
    void* const start = const_cast<void*>(address);
    if (cudaHostRegister(start, bytes, cudaHostRegisterDefault) == cudaSuccess)
        pinned_.push_back(start);
    else cudaGetLastError();
}

#else

collage_memory::~collage_memory() {
    for (void* const piece : pieces_) std::free(piece);
}

void* collage_memory::allocate(std::uint64_t bytes) {
    void* const address = device_ == no_gpu ? std::calloc(1, bytes == 0 ? 1 : bytes) : nullptr;
    if (address != nullptr) pieces_.push_back(address);
    return address;
}

bool collage_memory::upload(void* to, const void* from, std::uint64_t bytes) const {
    if (bytes != 0) std::memcpy(to, from, bytes);
    return true;
}

bool collage_memory::begin_upload(void* to, const void* from, std::uint64_t bytes) const {
    return upload(to, from, bytes);
}

bool collage_memory::download(void* to, const void* from, std::uint64_t bytes) const {
    return upload(to, from, bytes);
}

void collage_memory::pin(const void*, std::uint64_t) {}

#endif

status place_collage(collage_memory& memory, bool on_gpu, const library_header& h,
                     const picture& in, picture& out, collage_view& v) {
    out.width = v.width = in.width;
    out.height = v.height = in.height;
    out.rgb.assign(in.rgb.size(), 0);
    v.columns = (in.width + tile_side - 1) / tile_side;
    v.rows = (in.height + tile_side - 1) / tile_side;
    v.tile_count = h.tile_count;
    for (std::uint32_t t = 0; t < tables; ++t)
        v.table_entries[t] = static_cast<std::uint32_t>(h.table_entries[t]);
    const lsh_family family = make_family(h.seed, h.width);
    v.lsh.width = h.width;
    v.lsh.slots = h.slots;
    v.picture = in.rgb.data();
    v.out = out.rgb.data();
    std::uint8_t* room = nullptr;
    std::uint32_t* order = nullptr;
    bool placed = memory.place(v.lsh.coefficients, family.coefficients) &&
                  memory.place(v.lsh.offsets, family.offsets) &&
                  memory.allocate(v.seen, (h.tile_count + 63) / 64) &&
                  memory.allocate(v.totals, 1) && memory.allocate(order, v.blocks());
    v.order = order;
    if (placed && on_gpu) {
        placed = memory.allocate(room, in.rgb.size()) && memory.allocate(v.out, in.rgb.size());
        v.picture = room;
        memory.pin(in.rgb.data(), in.rgb.size());
        memory.pin(out.rgb.data(), out.rgb.size());
    }
    if (placed) return {};
    return {-ENOMEM, "the pictures need " + format_size(2 * in.rgb.size()) +
                         " of memory that is not free; use a smaller --cache or picture"};
}

status prepare_input(const collage_memory& memory, const picture& in, const collage_view& v,
                     std::uint32_t threads, std::vector<std::uint32_t>& order,
                     method_report& report) {
    apps::stopwatch watch;
    if (v.picture != in.rgb.data() &&
        !memory.begin_upload(const_cast<std::uint8_t*>(v.picture), in.rgb.data(), in.rgb.size()))
        return copy_failed();
    order = block_order(in, threads);
    report.order_seconds = watch.lap();
    const bool copied = memory.upload(const_cast<std::uint32_t*>(v.order), order.data(),
                                      order.size() * sizeof(std::uint32_t));
    report.upload_seconds = watch.lap();
    return copied ? status{} : copy_failed();
}

status download_result(const collage_memory& memory, const collage_view& v, picture& out,
                       collage_totals& totals) {
    bool copied = memory.download(&totals, v.totals, sizeof totals);
    if (copied && v.out != out.rgb.data())
        copied = memory.download(out.rgb.data(), v.out, out.rgb.size());
    return copied ? status{} : copy_failed();
}

status count_seen(const collage_memory& memory, const library_header& h, const collage_view& v,
                  std::uint64_t& unique_tiles) {
    std::vector<std::uint64_t> seen((h.tile_count + 63) / 64);
    const bool copied = memory.download(seen.data(), v.seen, seen.size() * sizeof(std::uint64_t));
    unique_tiles = 0;
    for (const std::uint64_t bits : seen)
        unique_tiles += static_cast<std::uint64_t>(std::popcount(bits));
    return copied ? status{} : copy_failed();
}

}  // namespace penstock::collage
