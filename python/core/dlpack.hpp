// The structures of DLPack (https://dmlc.github.io/dlpack): tensors of 1.1, as which Penstock lends
// memory, and the table of functions of 1.3, by which frameworks tell of theirs. Their layout is
// fixed by that document.
#pragma once

#include <cstdint>

namespace penstock::python::dlpack {

inline constexpr std::int32_t host_memory = 1, cuda = 2;

struct device {
    std::int32_t type;
    std::int32_t number;
};

enum class kind : std::uint8_t {
    integer,
    unsigned_integer,
    floating,
    bfloat = 4,
    complex,
    boolean
};

struct data_type {
    kind code;
    std::uint8_t bits;
    std::uint16_t lanes;

    friend bool operator==(const data_type&, const data_type&) = default;
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

// A framework has one for each of its types of arrays, in a capsule. It lives as long as the
// process. Functions return 0, or have set an exception of Python.
inline constexpr std::uint32_t known_major = 1;
struct function_table {
    std::uint32_t major, minor;
    const function_table* older;  // of another major version
    void (*unused[3])();          // they make and take tensors that own their memory
    int (*tell)(void* array, tensor* out);
    int (*current_stream)(std::int32_t device_type, std::int32_t device, void** out);
};

}  // namespace penstock::python::dlpack
