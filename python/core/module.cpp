// The module penstock._core. Its functions take integers, addresses and text, and give up the GIL
// in every call that may wait. The package penstock around it is what programs use.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cxxabi.h>
#include <unistd.h>

#include "core/core.hpp"
#include "penstock/version.hpp"

namespace penstock::python {

namespace nb = nanobind;

without_gil::~without_gil() {
    try {
        PyEval_RestoreThread(state_);
    } catch (const abi::__forced_unwind&) {
        for (;;) ::pause();  // to leave this block would end the process, or be unwound further
    }
}

nb::str shown(const std::string& text) {
    PyObject* const made =
        PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace");
    if (made == nullptr) throw nb::python_error();
    return nb::steal<nb::str>(made);
}

void raise(std::int64_t negative_errno, const std::string& text, const std::string& path) {
    const nb::object error = nb::module_::import_("penstock._errors")
                                 .attr("error_of")(-negative_errno, shown(text), file_name{path});
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

NB_MODULE(_core, m) {
    // Objects that live when the interpreter ends are no mistake: the process ends.
    nanobind::set_leak_warnings(false);
    m.doc() = "The library, for the package penstock alone: integers, addresses and text.";
    m.attr("version") = penstock::version();
#ifdef PENSTOCK_WITH_CUDA
    m.attr("with_cuda") = true;
#else
    m.attr("with_cuda") = false;
#endif
    penstock::python::bind_layout(m);
    penstock::python::bind_runtime(m);
    penstock::python::bind_region(m);
    penstock::python::bind_store(m);
    penstock::python::bind_table(m);
}
