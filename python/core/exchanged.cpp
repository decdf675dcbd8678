#include "core/exchanged.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace penstock::python {

namespace {

namespace nb = nanobind;

// The table of the type, which lives as long as the process. Tables of older versions hang at the
// newer ones.
const dlpack::function_table* functions_of(nb::handle type) {
    static PyObject* const name = PyUnicode_InternFromString("__dlpack_c_exchange_api__");
    const nb::object capsule = nb::steal(PyObject_GetAttr(type.ptr(), name));
    const void* found = nullptr;
    if (capsule.is_valid() && PyCapsule_CheckExact(capsule.ptr()))
        found = PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api");
    if (PyErr_Occurred() != nullptr) PyErr_Clear();
    const auto* table = static_cast<const dlpack::function_table*>(found);
    while (table != nullptr && table->major != dlpack::known_major) table = table->older;
    return table;
}

}  // namespace

std::uint64_t exchanged_array::size() const {
    std::uint64_t out = 1;
    for (std::int32_t i = 0; i < of.dimensions; ++i) out *= static_cast<std::uint64_t>(of.shape[i]);
    return out;
}

bool exchanged_array::is_contiguous() const {
    if (size() == 0) return true;
    std::int64_t expected = 1;
    for (std::int32_t i = of.dimensions - 1; i >= 0; --i) {
        if (of.strides != nullptr && of.shape[i] != 1 && of.strides[i] != expected) return false;
        expected *= of.shape[i];
    }
    return true;
}

std::optional<exchanged_array> exchanged(nb::handle array) {
    exchanged_array out{functions_of(array.type()), {}};
    if (out.functions == nullptr || out.functions->tell == nullptr) return std::nullopt;
    if (out.functions->tell(array.ptr(), &out.of) == 0) return out;
    PyErr_Clear();
    return std::nullopt;
}

std::optional<std::uintptr_t> stream_of(const exchanged_array& array) {
    void* stream = nullptr;
    if (array.functions->current_stream != nullptr &&
        array.functions->current_stream(array.of.where.type, array.of.where.number, &stream) == 0)
        return reinterpret_cast<std::uintptr_t>(stream);
    PyErr_Clear();
    return std::nullopt;
}

std::optional<dlpack::data_type> data_type_of(const std::string& dtype) {
    struct named {
        std::string_view name;
        dlpack::data_type type;
    };
    using dlpack::kind;
    static constexpr named known[] = {
        {"", {kind::unsigned_integer, 8, 1}},        {"uint8", {kind::unsigned_integer, 8, 1}},
        {"uint16", {kind::unsigned_integer, 16, 1}}, {"uint32", {kind::unsigned_integer, 32, 1}},
        {"uint64", {kind::unsigned_integer, 64, 1}}, {"int8", {kind::integer, 8, 1}},
        {"int16", {kind::integer, 16, 1}},           {"int32", {kind::integer, 32, 1}},
        {"int64", {kind::integer, 64, 1}},           {"float16", {kind::floating, 16, 1}},
        {"float32", {kind::floating, 32, 1}},        {"float64", {kind::floating, 64, 1}},
        {"bfloat16", {kind::bfloat, 16, 1}},         {"complex64", {kind::complex, 64, 1}},
        {"complex128", {kind::complex, 128, 1}},     {"bool", {kind::boolean, 8, 1}},
    };
    const auto* const found = std::find_if(std::begin(known), std::end(known),
                                           [&](const named& of) { return of.name == dtype; });
    if (found == std::end(known)) return std::nullopt;
    return found->type;
}

}  // namespace penstock::python
