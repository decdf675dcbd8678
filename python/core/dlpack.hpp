// The structures of DLPack 1.1 (https://dmlc.github.io/dlpack), of which Penstock makes tensors.
// Their layout is fixed by that document.
#pragma once

#include <cstdint>

namespace penstock::python::dlpack {

struct device {
    std::int32_t type;  // 1: host memory, 2: CUDA
    std::int32_t number;
};

struct data_type {
    std::uint8_t code;
    std::uint8_t bits;
    std::uint16_t lanes;
};

struct tensor {
    void* data;
    device where;
    std::int32_t dimensions;
    data_type dtype;
    std::int64_t* shape;
    std::int64_t* strides;
    std::uint64_t byte_offset;
};

struct managed_tensor {
    tensor of;
    void* context;
    void (*deleter)(managed_tensor*);
};

struct managed_tensor_versioned {
    std::uint32_t major, minor;
    void* context;
    void (*deleter)(managed_tensor_versioned*);
    std::uint64_t flags;  // bit 0: not to be written
    tensor of;
};

}  // namespace penstock::python::dlpack
