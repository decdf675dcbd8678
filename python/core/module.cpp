// The module penstock._core. Its functions take integers, addresses and text, and give up the GIL
// in every call that may wait. The package penstock around it is what programs use.
#include <nanobind/nanobind.h>

#include "core/core.hpp"
#include "penstock/version.hpp"

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
    penstock::python::bind_table(m);
}
