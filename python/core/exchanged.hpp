// Arrays of frameworks that hand out DLPack's table of C functions: where they lie and on which
// stream their users work, told without an object of Python and without a wait.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <string>

#include "core/dlpack.hpp"

namespace penstock::python {

// What an array tells of itself. Good until control returns to Python.
struct exchanged_array {
    const dlpack::function_table* functions;
    dlpack::tensor of;

    [[nodiscard]] std::uintptr_t address() const {
        return reinterpret_cast<std::uintptr_t>(of.data) + of.byte_offset;
    }
    [[nodiscard]] std::uint64_t size() const;  // its elements
    [[nodiscard]] bool is_contiguous() const;
};

// Nothing: the array's type has no such table, or the framework cannot tell this array so. Leaves
// no exception pending. The caller holds the GIL.
std::optional<exchanged_array> exchanged(nanobind::handle array);

// The current stream of the framework on the device of the array, which is of CUDA.
std::optional<std::uintptr_t> stream_of(const exchanged_array& array);

// The type of elements of that name, for those that frameworks tell alike.
std::optional<dlpack::data_type> data_type_of(const std::string& dtype);

}  // namespace penstock::python
