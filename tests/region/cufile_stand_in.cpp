// A library with the names of cuFile that reads with pread, into memory of the host or, where the
// CUDA driver says that an address is the device's, by a copy. A test loads it in cuFile's place.
#include "region/cufile_stand_in.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "device/cufile.hpp"

namespace cufile = penstock::host::cufile;
using penstock::test::read_fault;
using penstock::test::stand_in_controls;

namespace {

stand_in_controls controls;

struct open_file {
    int fd;
};

void* driver_call(const char* name) {
    void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    return driver == nullptr ? nullptr : ::dlsym(driver, name);
}

bool is_on_device(const void* memory) {
    constexpr int memory_type = 2;
    constexpr unsigned device_memory = 2;
    using call = int (*)(void*, int, unsigned long long);
    const auto ask = reinterpret_cast<call>(driver_call("cuPointerGetAttribute"));
    unsigned type = 0;
    return ask != nullptr &&
           ask(&type, memory_type, reinterpret_cast<unsigned long long>(memory)) == 0 &&
           type == device_memory;
}

void put(std::byte* to, const std::byte* from, std::size_t bytes) {
    if (!is_on_device(to)) {
        std::memcpy(to, from, bytes);
        return;
    }
    using call = int (*)(unsigned long long, const void*, std::size_t);
    reinterpret_cast<call>(driver_call("cuMemcpyHtoD_v2"))(reinterpret_cast<unsigned long long>(to),
                                                           from, bytes);
}

}  // namespace

extern "C" {

stand_in_controls* stand_in() { return &controls; }

cufile::error cuFileDriverOpen() {
    ++controls.opens;
    while (controls.holds_open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return {controls.open_code, 0};
}

cufile::error cuFileGetVersion(int* version) {
    *version = 1200;
    return {0, 0};
}

cufile::error cuFileDriverGetProperties(cufile::properties* out) {
    *out = {};
    out->major_version = controls.major;
    out->minor_version = controls.minor;
    out->storage = controls.storage;
    out->control = controls.control;
    out->features = controls.features;
    return {controls.properties_code, 0};
}

cufile::error cuFileDriverGetP2PFlags(int storage, unsigned* ways) {
    *ways = storage == cufile::nvme ? controls.ways.load() : 0;
    return {0, 0};
}

cufile::error cuFileHandleRegister(cufile::file_handle* out, cufile::description* of) {
    if (controls.file_code != 0) return {controls.file_code, 0};
    if (of->type != cufile::by_descriptor || of->operations != nullptr) return {5022, 0};
    ++controls.files;
    *out = new open_file{of->fd};
    return {0, 0};
}

void cuFileHandleDeregister(cufile::file_handle file) {
    --controls.files;
    delete static_cast<open_file*>(file);
}

cufile::error cuFileBufRegister(const void*, std::size_t, int) {
    if (controls.buffer_code != 0) return {controls.buffer_code, 0};
    ++controls.buffers;
    return {0, 0};
}

cufile::error cuFileBufDeregister(const void*) {
    --controls.buffers;
    return {0, 0};
}

ssize_t cuFileRead(cufile::file_handle file, void* base, std::size_t wanted, off_t offset,
                   off_t at) {
    const bool is_faulty = ++controls.reads == controls.faulty_read;
    const read_fault fault = is_faulty ? controls.fault.load() : read_fault::none;
    if (fault == read_fault::error) {
        errno = EIO;
        return -1;
    }
    if (fault == read_fault::library_code) return -cufile::cuda_failed;
    if (fault == read_fault::end) return 0;
    const std::size_t bytes = std::min<std::uint64_t>(wanted, controls.longest_read);
    std::vector<std::byte> got(bytes);
    std::size_t have = 0;
    for (ssize_t more = 1; have < bytes && more > 0; have += static_cast<std::size_t>(more)) {
        more = ::pread(static_cast<open_file*>(file)->fd, got.data() + have, bytes - have,
                       offset + static_cast<off_t>(have));
        if (more < 0) return -1;
    }
    if (fault == read_fault::wrong_byte) got[have / 2] ^= std::byte{1};
    put(static_cast<std::byte*>(base) + at, got.data(),
        fault == read_fault::unread ? have / 2 : have);
    controls.bytes += have;
    return static_cast<ssize_t>(fault == read_fault::too_many ? have + 1 : have);
}

}  // extern "C"
