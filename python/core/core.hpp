// What the parts of the module share: objects of the library as Python holds them. Python hands in
// integers, addresses and text; what they mean is decided in python/penstock.
//
// Each object is shared: a call takes its part of it first, so a close() of another thread ends the
// object after the call and not during it. A Python without a GIL runs such calls at the same time.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/unique_ptr.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/dlpack.hpp"
#include "core/log_queue.hpp"
#include "penstock/error.hpp"
#include "penstock/runtime.hpp"
#include "penstock/table.hpp"

namespace penstock::python {

// A shared object that calls of any thread take, until a close() takes it away.
template <typename T>
class shared_until_closed {
public:
    shared_until_closed() = default;
    explicit shared_until_closed(std::shared_ptr<T> of) : object_(std::move(of)) {}

    // Null after take().
    [[nodiscard]] std::shared_ptr<T> get() const {
        const std::lock_guard lock(mutex_);
        return object_;
    }
    [[nodiscard]] std::shared_ptr<T> take() {
        const std::lock_guard lock(mutex_);
        return std::exchange(object_, nullptr);
    }
    // After a take() whose close() could not be.
    void put_back(std::shared_ptr<T> of) {
        const std::lock_guard lock(mutex_);
        object_ = std::move(of);
    }

private:
    mutable std::mutex mutex_;  // held for a copy of the pointer alone
    std::shared_ptr<T> object_;
};

// A runtime, with the queue that its log goes to.
struct runtime_box {
    runtime_box(std::shared_ptr<runtime> made, std::shared_ptr<log_queue> lines)
        : rt(std::move(made)), log(std::move(lines)) {}
    ~runtime_box();
    // Throws ValueError once it is closed.
    std::shared_ptr<runtime> open() const;
    // Throws what kept changed pages from their files; it is closed all the same, unless the device
    // could not be waited for. Calls of other threads use the runtime until they return. Returns
    // the files that they have changed pages of.
    std::vector<nanobind::str> close();

    shared_until_closed<runtime> rt;
    const std::shared_ptr<log_queue> log;  // null: lines go to standard error, or nowhere

private:
    struct ending {
        status lost;  // the first of what could not be written
        std::vector<std::string> left;
        bool is_last = false;
    };
    ending end(std::shared_ptr<runtime> last);
};

// A table with a use of its runtime. The last of its users ends it, first waiting until no kernel
// uses it, for some gather may just have been launched.
struct open_table {
    explicit open_table(std::shared_ptr<runtime> of);
    ~open_table();
    open_table(const open_table&) = delete;
    open_table& operator=(const open_table&) = delete;

    // After wait(), before the last use ends: what a caller of scatter was not told of yet. If
    // others use it still, their last use closes it, and what has been scattered by now is written
    // here.
    status close(bool is_last);
    // Until no kernel uses it. Not ok: one may still do so.
    [[nodiscard]] status wait();

    const std::shared_ptr<runtime> rt;
    const bool on_gpu;
    std::unique_ptr<table> rows;
    bool writable = false;
    // What an array of rows must have; no type: frameworks tell it in different ways.
    std::optional<dlpack::data_type> elements{};
    std::vector<std::int64_t> row_shape{};
    std::uint64_t item_bytes = 1;
};

struct table_box {
    explicit table_box(std::shared_ptr<open_table> made) : of(std::move(made)) {}
    // Throws ValueError once it is closed.
    std::shared_ptr<open_table> open() const;
    // Throws what kept scattered rows from their files; it is closed all the same, unless the
    // device could not be waited for.
    void close();
    ~table_box();

    shared_until_closed<open_table> of;
};

// Gives the GIL up for a while. Before version 3.14 Python unwinds a thread that asks for the GIL
// while the interpreter ends, and nothing between here and the interpreter can be unwound: that
// would end the process with abort(). So such a thread, a daemon's, stays here until the process
// has ended.
class without_gil {
public:
    without_gil() : state_(PyEval_SaveThread()) {}
    ~without_gil();
    without_gil(const without_gil&) = delete;
    without_gil& operator=(const without_gil&) = delete;

private:
    PyThreadState* const state_;
};

// Waits until the work has ended that the devices of a runtime have, and disturbs no capture. Not
// ok, and then `what` is open still: some of it may run.
status wait_for_devices(runtime& rt, const char* what);

// The place of a device of the runtime. Throws ValueError: it has none there.
std::uint32_t device_of(const runtime& rt, std::uint32_t place);

// The name of a file, in any bytes. In Python it is text, in which bytes that are no letters stand
// as os.fsdecode() has them.
struct file_name {
    std::string bytes;
};

// Text of the library for people: bytes that are no UTF-8, for instance of a damaged header, come
// as \xff. The caller holds the GIL.
nanobind::str shown(const std::string& text);

// Errors of the library as exceptions of Python. The class of each is chosen in Python
// (penstock/_errors.py), so that C++ knows codes and texts only. The caller holds the GIL; `path`
// may be empty, and is in the bytes of the file's name.
[[noreturn]] void raise(std::int64_t negative_errno, const std::string& text,
                        const std::string& path = {});
// Raises unless the status is ok.
void check(const status& s, const std::string& path = {});
// Of calls that return a count or a negative errno.
std::int64_t check(std::int64_t result, const std::string& verb, const std::string& path = {});

void bind_layout(nanobind::module_& m);
void bind_region(nanobind::module_& m);
void bind_runtime(nanobind::module_& m);
void bind_store(nanobind::module_& m);
void bind_table(nanobind::module_& m);

}  // namespace penstock::python

// Takes what os.fsencode() takes.
template <>
struct nanobind::detail::type_caster<penstock::python::file_name> {
    NB_TYPE_CASTER(penstock::python::file_name, const_name("str"))

    bool from_python(handle from, std::uint8_t, cleanup_list*) noexcept {
        PyObject* encoded = nullptr;
        if (PyUnicode_FSConverter(from.ptr(), &encoded) == 0) {
            PyErr_Clear();
            return false;
        }
        value.bytes.assign(PyBytes_AsString(encoded),
                           static_cast<std::size_t>(PyBytes_Size(encoded)));
        Py_DECREF(encoded);
        return true;
    }

    static handle from_cpp(const penstock::python::file_name& name, rv_policy,
                           cleanup_list*) noexcept {
        return PyUnicode_DecodeFSDefaultAndSize(name.bytes.data(),
                                                static_cast<Py_ssize_t>(name.bytes.size()));
    }
};
