// The part of NVIDIA's cuFile library that is called here, found when the program runs: Penstock is
// not linked with it, and needs no header of it. Names, values and layouts are those of the
// documented interface; sizes are checked against release 1.20 (CUDA 13).
//
// cuFile is one for a process. It is never closed or unloaded here: the program may use it too, and
// its threads may be at work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <sys/types.h>

namespace penstock::host::cufile {

// What calls give back. Of a code that is not 0, `cuda` is the driver's code if `code` says so.
struct error {
    int code;
    int cuda;
};
inline constexpr int already_open = 5026, cuda_failed = 5011;

// Bits of properties::storage, by kind of storage.
enum storage_bit : unsigned { lustre = 0, nfs = 2, gpfs = 3, nvme = 4, scsi = 6 };
// Bits of properties::control.
enum control_bit : unsigned { allows_compatibility = 1, only_posix = 2 };
// A bit of properties::features: reads by the kernel's own peer-to-peer transfers (P2PDMA).
inline constexpr unsigned feature_p2p = 4;
// Bits of the ways that are told of a kind of storage.
enum way_bit : unsigned { pci_p2pdma = 0, nvidia_fs = 1, chip_to_chip = 3 };

struct properties {
    unsigned major_version, minor_version;  // of the nvidia-fs module; 0.0: it is not loaded
    std::size_t poll_bytes, most_direct_kib;
    unsigned storage, control;
    unsigned features;
    unsigned device_cache_kib, buffer_cache_kib, pinned_kib;
    unsigned batch, batch_wait_ms;  // not told by releases before 1.11
};
static_assert(sizeof(error) == 8 && sizeof(properties) == 56 && alignof(properties) == 8);
static_assert(offsetof(properties, storage) == 24 && offsetof(properties, features) == 32);

inline constexpr int by_descriptor = 1;
struct description {
    int type;
    union {
        int fd;
        void* handle;
    };
    const void* operations;
};
static_assert(sizeof(description) == 24 && offsetof(description, fd) == 8);

using file_handle = void*;

struct functions {
    error (*open)() = nullptr;
    error (*get_properties)(properties*) = nullptr;
    error (*add_file)(file_handle*, description*) = nullptr;
    void (*remove_file)(file_handle) = nullptr;
    error (*add_buffer)(const void*, std::size_t, int) = nullptr;
    error (*remove_buffer)(const void*) = nullptr;
    // To `base` + `at`. How many bytes came; -1: errno; else minus the code of an error.
    ssize_t (*read)(file_handle, void* base, std::size_t bytes, off_t offset, off_t at) = nullptr;
    // Null in older releases:
    error (*get_version)(int*) = nullptr;
    error (*get_ways)(int storage, unsigned* ways) = nullptr;
};

// Loads `name`, or if that is empty libcufile.so.0 or libcufile.so. False: `why`.
bool load(const std::string& name, functions& out, std::string& why);

// For people: what the library said of a call.
std::string text_of(const error& e);

}  // namespace penstock::host::cufile
