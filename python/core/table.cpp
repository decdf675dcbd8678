// Rows by number for Python: lists and rows are addresses, with or without a stream.
#include "penstock/table.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "core/core.hpp"
#include "core/errors.hpp"
#include "core/interrupts.hpp"
#include "runtime/runtime_state.hpp"

namespace penstock::python {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

// A list of row numbers, as Python's side found it in an array of any framework.
struct list {
    std::uintptr_t numbers;
    int type;  // engine::number_type
    std::uint64_t count;
};

template <typename Call>
int with_numbers(const list& of, Call&& call) {
    switch (static_cast<engine::number_type>(of.type)) {
        case engine::number_type::int32:
            return call(reinterpret_cast<const std::int32_t*>(of.numbers));
        case engine::number_type::int64:
            return call(reinterpret_cast<const std::int64_t*>(of.numbers));
        case engine::number_type::uint32:
            return call(reinterpret_cast<const std::uint32_t*>(of.numbers));
        case engine::number_type::uint64:
            return call(reinterpret_cast<const std::uint64_t*>(of.numbers));
    }
    return -EINVAL;
}

// Runs the call without the GIL. On cpu all is done then, so what could not be had is raised at
// once; on gpu the next call raises it. A row that only Ctrl-C kept from coming is asked for again
// if Python's handler does not raise.
template <typename Call>
void run(table_box& box, const std::string& verb, const Call& call) {
    const std::shared_ptr<table> rows = box.open();
    for (;;) {
        int code = 0;
        status noted;
        bool interrupted = false;
        {
            const nb::gil_scoped_release free;
            if (box.on_gpu) {
                code = call(*rows);
            } else {
                interruptible_call watched(*box.rt);
                code = call(*rows);
                interrupted = watched.end();
            }
            if (code != 0 || !box.on_gpu) noted = rows->check();
        }
        if (interrupted) {
            raise_pending();
            if (code == -ECANCELED || noted.code == -ECANCELED) continue;
        }
        check(noted);
        check(code, verb);
        return;
    }
}

// A negative device: the one that the stream is of.
row_options options_of(std::uintptr_t stream, std::optional<std::int64_t> padding,
                       std::uint64_t stride, int device) {
    row_options out;
    if (device >= 0) out.device = static_cast<std::uint32_t>(device);
    out.stream = reinterpret_cast<device_stream>(stream);
    out.padding = padding;
    out.stride_bytes = stride;
    return out;
}

void gather(table_box& box, std::uintptr_t numbers, int type, std::uint64_t count,
            std::uintptr_t out, std::uint64_t stride, std::uintptr_t stream,
            std::optional<std::int64_t> padding, int device) {
    run(box, "gather", [&](table& rows) {
        return with_numbers({numbers, type, count}, [&](auto* list) {
            return rows.gather(list, count, reinterpret_cast<void*>(out),
                               options_of(stream, padding, stride, device));
        });
    });
}

void scatter(table_box& box, std::uintptr_t numbers, int type, std::uint64_t count,
             std::uintptr_t from, std::uint64_t stride, std::uintptr_t stream,
             std::optional<std::int64_t> padding, int device) {
    run(box, "scatter", [&](table& rows) {
        return with_numbers({numbers, type, count}, [&](auto* list) {
            return rows.scatter(list, count, reinterpret_cast<const void*>(from),
                                options_of(stream, padding, stride, device));
        });
    });
}

void prefetch(table_box& box, std::uintptr_t numbers, int type, std::uint64_t count,
              std::uintptr_t stream, bool wait, int device) {
    run(box, "prefetch", [&](table& rows) {
        return with_numbers({numbers, type, count}, [&](auto* list) {
            const row_options settings = options_of(stream, std::nullopt, 0, device);
            return wait ? rows.prefetch(list, count, settings)
                        : rows.will_need(list, count, settings);
        });
    });
}

std::unique_ptr<table_box> make_table(const runtime_box& of, const table_layout& layout,
                                      bool writable) {
    auto box = std::make_unique<table_box>();
    box->rt = of.open();
    box->on_gpu = box->rt->where() == backend::gpu;
    status s;
    {
        const nb::gil_scoped_release free;
        std::unique_ptr<table> made;
        s = table::make(*box->rt, layout, {.writable = writable}, made);
        box->rows = std::move(made);
    }
    check(s, layout.pieces.empty() ? "" : layout.pieces[0].path);
    return box;
}

template <typename Verb>
std::int64_t count_of(table_box& box, const std::string& name, Verb verb) {
    const std::shared_ptr<table> rows = box.open();
    std::int64_t done = 0;
    {
        const nb::gil_scoped_release free;
        done = verb(*rows);
    }
    return check(done, name);
}

}  // namespace

std::shared_ptr<table> table_box::open() const {
    if (rows == nullptr) raise(-EBADF, "the table is closed; open the array again");
    return rows;
}

void table_box::close() {
    std::shared_ptr<table> last = std::move(rows);
    std::shared_ptr<runtime> of = std::move(rt);
    rows = nullptr;
    rt = nullptr;
    const nb::gil_scoped_release free;
    if (on_gpu && of != nullptr && of->process_code() == 0)
        for (std::uint32_t i = 0; i < of->device_count(); ++i)
            of->state(i).device->wait_for_groups();
    last.reset();
    of.reset();
}

table_box::~table_box() {
    if (rows != nullptr) close();
}

void bind_table(nb::module_& m) {
    nb::class_<table_box>(m, "Table", "Rows of equal size in files.")
        .def("close", &table_box::close, "Waits for the device, then closes the files.")
        .def_prop_ro("closed", [](const table_box& box) { return box.rows == nullptr; })
        .def("gather", gather, "numbers"_a, "type"_a, "count"_a, "out"_a, "stride"_a, "stream"_a,
             "padding"_a.none(), "device"_a)
        .def("scatter", scatter, "numbers"_a, "type"_a, "count"_a, "rows"_a, "stride"_a, "stream"_a,
             "padding"_a.none(), "device"_a)
        .def("prefetch", prefetch, "numbers"_a, "type"_a, "count"_a, "stream"_a, "wait"_a,
             "device"_a)
        .def("check", [](const table_box& box) { check(box.open()->check()); })
        .def("sync",
             [](table_box& box) {
                 count_of(box, "sync", [](table& t) { return std::int64_t{t.sync()}; });
             })
        .def("open_windows",
             [](table_box& box) {
                 return count_of(box, "windows", [](table& t) { return t.open_windows(); });
             })
        .def("grow_windows",
             [](table_box& box) {
                 return count_of(box, "windows", [](table& t) { return t.grow_windows(); });
             })
        .def("ref", [](const table_box& box, std::uint32_t device) {
            const table_ref ref = box.open()->ref(device);
            return nb::bytes(&ref, sizeof ref);
        });
    m.def("make_table", make_table, "runtime"_a, "layout"_a, "writable"_a);
}

}  // namespace penstock::python
