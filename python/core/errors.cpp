#include "core/errors.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

namespace penstock::python {

namespace nb = nanobind;

void raise(std::int64_t negative_errno, const std::string& text, const std::string& path) {
    const nb::object error =
        nb::module_::import_("penstock._errors").attr("error_of")(-negative_errno, text, path);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
    throw nb::python_error();
}

void check(const status& s, const std::string& path) {
    if (!s) raise(s.code, s.message.empty() ? error_text(s.code) : s.message, path);
}

std::int64_t check(std::int64_t result, const std::string& verb, const std::string& path) {
    if (result < 0) raise(result, verb + ": " + error_text(result), path);
    return result;
}

}  // namespace penstock::python
