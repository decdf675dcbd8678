// Calls of Penstock by C names, for kernels that are not written in C++: penstock.device.numba
// compiles this file by NVRTC and links it to a Numba kernel.
//
// Compiled twice: with PENSTOCK_CALLER penstock::lane and PENSTOCK_CALL(name) lane_##name, and with
// warps. The caller of a warp's call is the whole warp, with equal arguments.
//
// Each argument is a number of 64 bits: an address, a descriptor, a count. `fs` and `table` are
// addresses of copies of runtime_ref and table_ref in memory that the device reaches; the copies
// must not move while a kernel uses them. Each result is a 64-bit number: a count, or a negative
// errno. No function returns void, since Numba declares such a result wrongly.
#include "penstock/file.hpp"
#include "penstock/table.hpp"
#include "penstock/view.hpp"

#if !defined(PENSTOCK_CALLER)
#error "define PENSTOCK_CALLER and PENSTOCK_CALL"
#endif

using number = long long;

namespace {

__device__ const penstock::runtime_ref& runtime_at(number address) {
    return *reinterpret_cast<const penstock::runtime_ref*>(address);
}
__device__ const penstock::table_ref& table_at(number address) {
    return *reinterpret_cast<const penstock::table_ref*>(address);
}

template <typename Number>
__device__ number gather(number fs, number table, number numbers, number count, number out) {
    if (count < 0 || (count > 0 && (numbers == 0 || out == 0))) return -EINVAL;
    return static_cast<number>(penstock::gather(PENSTOCK_CALLER{}, runtime_at(fs), table_at(table),
                                                reinterpret_cast<const Number*>(numbers),
                                                static_cast<std::uint64_t>(count),
                                                reinterpret_cast<void*>(out)));
}

}  // namespace

// `path`: the address of a name that ends with a zero byte.
extern "C" __device__ number PENSTOCK_CALL(open)(number fs, number path, number flags) {
    return penstock::open(PENSTOCK_CALLER{}, runtime_at(fs), reinterpret_cast<const char*>(path),
                          static_cast<int>(flags));
}

extern "C" __device__ number PENSTOCK_CALL(close)(number fs, number fd) {
    return penstock::close(PENSTOCK_CALLER{}, runtime_at(fs), static_cast<int>(fd));
}

extern "C" __device__ number PENSTOCK_CALL(size)(number fs, number fd) {
    return static_cast<number>(
        penstock::view<unsigned char>(runtime_at(fs), static_cast<int>(fd)).size());
}

extern "C" __device__ number PENSTOCK_CALL(read)(number fs, number fd, number to, number bytes,
                                                 number offset) {
    return penstock::read(PENSTOCK_CALLER{}, runtime_at(fs), static_cast<int>(fd),
                          reinterpret_cast<void*>(to), bytes, offset);
}

extern "C" __device__ number PENSTOCK_CALL(read_row)(number fs, number table, number row,
                                                     number to) {
    return penstock::read_row(PENSTOCK_CALLER{}, runtime_at(fs), table_at(table),
                              static_cast<std::uint64_t>(row), reinterpret_cast<void*>(to));
}

extern "C" __device__ number PENSTOCK_CALL(gather_int64)(number fs, number table, number numbers,
                                                         number count, number out) {
    return gather<std::int64_t>(fs, table, numbers, count, out);
}

extern "C" __device__ number PENSTOCK_CALL(gather_int32)(number fs, number table, number numbers,
                                                         number count, number out) {
    return gather<std::int32_t>(fs, table, numbers, count, out);
}
