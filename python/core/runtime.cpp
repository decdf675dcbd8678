// A runtime for Python: made from options as text, and closed without the GIL.
#include "penstock/runtime.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <tuple>

#include "core/core.hpp"
#include "penstock/prometheus.hpp"
#include "runtime/runtime_state.hpp"
#include "settings/tables.hpp"

namespace penstock::python {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

// An option: its name in C++, what the caller calls it, and its value as text, which may be the
// name of a file.
using setting = std::tuple<std::string, std::string, file_name>;

using named_counts = nb::typed<nb::dict, nb::str, nb::object>;

// The counts by their names. A name that is not there is 0, and others are left out.
statistics statistics_of(const named_counts& counts) {
    statistics out;
    for (const settings::statistic_entry& entry : settings::statistic_entries())
        if (counts.contains(entry.name))
            out.*entry.member = nb::cast<std::uint64_t>(counts[entry.name]);
    const auto take = [&counts](const char* name, auto& buckets) {
        if (!counts.contains(name)) return;
        const auto values = nb::cast<std::vector<std::uint64_t>>(counts[name]);
        std::copy_n(values.begin(), std::min(values.size(), buckets.size()), buckets.begin());
    };
    take("batch_size", out.batch_size);
    take("latency_ns", out.latency_ns);
    return out;
}

enum class log_to { standard_error, queue, nowhere };

void set(const setting& of, options& out) {
    const auto& [name, label, written] = of;
    const std::string& text = written.bytes;
    for (const settings::option_entry& entry : settings::option_entries()) {
        if (name != entry.name) continue;
        // Python's True and False come as on and off.
        const bool is_number = entry.unit == settings::unit::zero_or_one;
        const std::string value = !is_number      ? text
                                  : text == "on"  ? "1"
                                  : text == "off" ? "0"
                                                  : text;
        return check(settings::set_option(entry, label, value, out));
    }
    std::string names;
    for (const settings::option_entry& entry : settings::option_entries())
        names += std::string(names.empty() ? "" : ", ") + entry.name;
    raise(-EINVAL, "Runtime: there is no option '" + label + "'; there are " + names);
}

// Gives up what holds the memory of a cache. The last user of the runtime may be any thread, with
// the GIL or without, and the interpreter may be gone: so the main thread of Python does it, at its
// next step. What cannot be handed to it within a second, since too much waits for it, stays.
void give_up(PyObject* keep) {
    const auto drop = [](void* of) {
        Py_DECREF(static_cast<PyObject*>(of));
        return 0;
    };
    for (int tries = 0; tries < 1000 && Py_IsInitialized() != 0; ++tries) {
        if (Py_AddPendingCall(drop, keep) == 0) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

// The runtime with what holds the memory of its cache, until its end.
std::shared_ptr<runtime> held(std::unique_ptr<runtime> made, PyObject* keep) {
    if (keep == nullptr) return made;
    return {made.release(), [keep](runtime* of) {
                delete of;
                give_up(keep);
            }};
}

std::unique_ptr<runtime_box> make_runtime(const std::vector<setting>& settings,
                                          const std::optional<std::vector<file_name>>& roots,
                                          const std::optional<table_layout>& suits, int log,
                                          std::uintptr_t memory, nb::object keep) {
    options wanted;
    check(options::from_environment(wanted));
    for (const setting& s : settings) set(s, wanted);
    if (roots) {
        wanted.roots.clear();
        for (const file_name& root : *roots) wanted.roots.push_back(root.bytes);
    }
    wanted.cache_memory = reinterpret_cast<void*>(memory);
    if (suits) wanted = options_for(*suits, wanted);
    check(wanted.check());
    std::shared_ptr<log_queue> queue;
    if (log == static_cast<int>(log_to::queue)) {
        queue = std::make_shared<log_queue>();
        wanted.log = [queue](const std::string& line) { queue->put(line); };
    } else if (log == static_cast<int>(log_to::nowhere)) {
        wanted.log = [](const std::string&) {};
    }
    status s;
    std::unique_ptr<runtime> made;
    {
        const without_gil free;
        s = runtime::make(wanted, made);
    }
    check(s);
    return std::make_unique<runtime_box>(
        held(std::move(made), keep.is_none() ? nullptr : keep.release().ptr()), std::move(queue));
}

std::vector<std::tuple<std::string, std::string, nb::str>> settings_of(const runtime_box& box,
                                                                       std::uint32_t device) {
    const std::shared_ptr<runtime> rt = box.open();
    std::vector<std::tuple<std::string, std::string, nb::str>> out;
    for (const settings::option_entry& entry : settings::option_entries())
        out.emplace_back(entry.name, entry.variable,
                         shown(settings::shown_text(entry, rt->settings(device_of(*rt, device)))));
    return out;
}

// The file that an error of writing is of, as host::write_error_log words it; empty if that is
// labelled with a device.
std::string written_path(const status& s) {
    const std::size_t end =
        std::min(s.message.find(": bytes "), s.message.find(": could not be brought"));
    return s.message.starts_with('/') && end != std::string::npos ? s.message.substr(0, end) : "";
}

void check_all(const runtime_box& box) {
    const std::shared_ptr<runtime> rt = box.open();
    check(rt->health());
    // Only what is raised is cleared: the next check tells that of the next device.
    for (std::uint32_t i = 0; i < rt->device_count(); ++i) {
        host::runtime_state& state = rt->state(i);
        const status view = state.view_status();
        if (!view) state.clear_view_status();
        check(state.labelled(view));
    }
    for (std::uint32_t i = 0; i < rt->device_count(); ++i) {
        host::runtime_state& state = rt->state(i);
        const status writing = state.write_errors->first();
        if (!writing) state.write_errors->clear();
        check(state.labelled(writing), written_path(writing));
    }
}

std::vector<nb::str> lines_of(log_queue& queue, double seconds) {
    std::vector<std::string> lines;
    {
        const without_gil free;
        lines = queue.take(seconds);
    }
    std::vector<nb::str> out;
    for (const std::string& line : lines) out.push_back(shown(line));
    return out;
}

nb::bytes bytes_of_ref(const runtime_box& box, std::uint32_t device) {
    const std::shared_ptr<runtime> rt = box.open();
    const runtime_ref ref = rt->ref(device_of(*rt, device));
    return nb::bytes(&ref, sizeof ref);
}

}  // namespace

std::uint32_t device_of(const runtime& rt, std::uint32_t place) {
    if (place >= rt.device_count())
        raise(-EINVAL, "device: the runtime has no device " + std::to_string(place) + "; it has " +
                           std::to_string(rt.device_count()));
    return place;
}

status wait_for_devices(runtime& rt, const char* what) {
    if (rt.where() != backend::gpu || rt.process_code() != 0) return {};
    for (std::uint32_t i = 0; i < rt.device_count(); ++i)
        if (const int code = rt.state(i).device->wait_for_groups(); code != 0)
            return {-EAGAIN,
                    rt.state(i).label() + "the end of its kernels could not be waited for (" +
                        error_text(code) + "), and " + what + " is open still; close it again"};
    return {};
}

std::shared_ptr<runtime> runtime_box::open() const {
    std::shared_ptr<runtime> of = rt.get();
    if (of == nullptr) raise(-EBADF, "the runtime is closed; make another");
    return of;
}

std::vector<nb::str> runtime_box::close() {
    std::shared_ptr<runtime> last = rt.take();
    if (last == nullptr) return {};
    ending of;
    status waited;
    {
        const without_gil free;
        waited = wait_for_devices(*last, "the runtime");
        if (waited.ok()) of = end(std::move(last));
        else rt.put_back(std::move(last));
    }
    check(waited);
    if (!of.lost.ok())
        of.lost.message += of.is_last ? "; they are lost, for the runtime has ended"
                                      : "; it is tried again when the calls of other threads end";
    check(of.lost, written_path(of.lost));
    std::vector<nb::str> left;
    for (const std::string& path : of.left) left.push_back(shown(path));
    return left;
}

// After wait_for_devices(), for kernels use the runtime's memory. A runtime that calls of other
// threads use ends with the last of them, or never, if the process ends before: so what was written
// until now is brought to its files here.
runtime_box::ending runtime_box::end(std::shared_ptr<runtime> last) {
    ending out;
    const bool is_ours = last->process_code() == 0;  // else a child of fork(): all is the parent's
    std::vector<std::shared_ptr<host::write_error_log>> errors;
    for (std::uint32_t i = 0; is_ours && i < last->device_count(); ++i)
        errors.push_back(last->state(i).write_errors);
    // What could not be written before is tried again now.
    for (const auto& of : errors) of->clear();
    const bool has_others = last.use_count() > 1;
    status late;
    for (std::uint32_t i = 0; is_ours && has_others && i < last->device_count(); ++i)
        if (status s = last->state(i).write_back_open_files(out.left); late.ok()) late = s;
    const std::weak_ptr<runtime> ended = last;
    last.reset();
    out.is_last = ended.expired();  // the others may have ended meanwhile
    if (out.is_last) out.left.clear();
    if (is_ours && log != nullptr) log->close();
    for (const auto& of : errors)
        if (out.lost.ok()) out.lost = of->first();
    if (out.lost.ok()) out.lost = late;
    return out;
}

runtime_box::~runtime_box() {
    std::shared_ptr<runtime> last = rt.take();
    if (last == nullptr) return;
    const without_gil free;
    if (wait_for_devices(*last, "the runtime").ok()) end(std::move(last));
    else static_cast<void>(new std::shared_ptr<runtime>(last));  // its memory stays for good
}

void bind_runtime(nb::module_& m) {
    nb::class_<log_queue>(m, "LogQueue", "Log lines that wait for a thread of Python.")
        .def("take", lines_of, "seconds"_a, "All lines; waits up to so many seconds for the first.")
        .def("close", &log_queue::close, nb::call_guard<without_gil>())
        .def_prop_ro("closed", &log_queue::is_closed);
    nb::class_<runtime_box>(m, "Runtime", "A runtime of the library.")
        .def("close", &runtime_box::close,
             "Waits for the device, then ends the runtime. Returns the files of which calls of "
             "other threads have changed pages still.")
        .def_prop_ro("closed", [](const runtime_box& box) { return box.rt.get() == nullptr; })
        .def_prop_ro("log", [](const runtime_box& box) { return box.log; })
        .def_prop_ro("backend", [](const runtime_box& box) { return name_of(box.open()->where()); })
        .def_prop_ro("device_count",
                     [](const runtime_box& box) { return box.open()->device_count(); })
        .def("device_name",
             [](const runtime_box& box, std::uint32_t i) {
                 const std::shared_ptr<runtime> rt = box.open();
                 return rt->device_name(device_of(*rt, i));
             })
        .def("device_number",
             [](const runtime_box& box, std::uint32_t i) {
                 const std::shared_ptr<runtime> rt = box.open();
                 return rt->settings(device_of(*rt, i)).device;
             })
        .def("page_bytes", [](const runtime_box& box) { return box.open()->settings().page_bytes; })
        .def("cache_bytes",
             [](const runtime_box& box) { return box.open()->settings().cache_bytes.value(); })
        .def_prop_ro("writable",
                     [](const runtime_box& box) { return box.open()->settings().writable; })
        .def_prop_ro("io_name", [](const runtime_box& box) { return box.open()->io_name(); })
        .def_prop_ro("is_shared", [](const runtime_box& box) { return box.open()->is_shared(); })
        .def("linked_processes",
             [](const runtime_box& box) { return box.open()->linked_processes(); })
        .def("process_code", [](const runtime_box& box) { return box.open()->process_code(); })
        .def("settings", settings_of, "device"_a,
             "Name, variable and value of each option, as resolved.")
        .def("check", check_all, "Raises what went wrong since, and forgets it.")
        .def("statistics",
             [](const runtime_box& box) {
                 const std::shared_ptr<runtime> rt = box.open();
                 const without_gil free;
                 return rt->stats().to_json();
             })
        .def("ref", bytes_of_ref, "device"_a, "The bytes of penstock::runtime_ref.");
    m.def("make_runtime", make_runtime, "settings"_a, "roots"_a.none(), "suits"_a.none(), "log"_a,
          "memory"_a, "keep"_a.none());
    m.def(
        "parse_size",
        [](const std::string& label, const std::string& text) {
            std::uint64_t bytes = 0;
            check(parse_size(label, text, bytes));
            return bytes;
        },
        "label"_a, "text"_a);
    m.def("format_size", format_size, "bytes"_a);
    m.def(
        "prometheus_text",
        [](const named_counts& counts, const metric_labels& labels) {
            return prometheus_text(statistics_of(counts), labels);
        },
        "counts"_a, "labels"_a, "The text of penstock stat --prometheus.");
}

}  // namespace penstock::python
