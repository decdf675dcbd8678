// Rows by number for Python: lists and rows are addresses, with or without a stream.
#include "penstock/table.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "core/core.hpp"
#include "core/exchanged.hpp"
#include "core/host_rows.hpp"
#include "core/interrupts.hpp"
#include "penstock/advise.hpp"
#include "runtime/runtime_state.hpp"

namespace penstock::python {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

// A list of row numbers, as Python's side found it in an array of any framework, and what belongs
// to it.
struct list {
    std::uintptr_t numbers;
    int type;  // engine::number_type
    std::uint64_t count;
    std::uintptr_t rows;  // 0: the verb moves none
    std::uint64_t stride;
    std::uintptr_t stream;
    std::optional<std::int64_t> padding;
    int device;  // its place in the runtime; negative: all lies in host memory
    // The call returns when the work on the stream has ended. A close() of another thread does not
    // come between.
    bool waits = false;
};

// Memory of elements of another size would be shorter than the rows, and be written behind its end.
void require_elements(const open_table& of, std::uint64_t item_bytes) {
    if (item_bytes == of.item_bytes) return;
    raise(-EINVAL, "the memory for rows has elements of " + std::to_string(item_bytes) +
                       " bytes and those of the array have " + std::to_string(of.item_bytes) +
                       "; give memory of the array's dtype");
}

row_options options_of(const list& of, status* own_note) {
    row_options out;
    out.own_note = own_note;
    if (of.device >= 0) out.device = static_cast<std::uint32_t>(of.device);
    out.stream = reinterpret_cast<device_stream>(of.stream);
    out.padding = of.padding;
    out.stride_bytes = of.stride;
    return out;
}

enum class verb { gather, scatter, prefetch, will_need };

template <typename Number>
int call_with(table& rows, verb which, const list& of, status* own_note) {
    const auto* const numbers = reinterpret_cast<const Number*>(of.numbers);
    void* const memory = reinterpret_cast<void*>(of.rows);
    const row_options settings = options_of(of, own_note);
    switch (which) {
        case verb::gather: return rows.gather(numbers, of.count, memory, settings);
        case verb::scatter: return rows.scatter(numbers, of.count, memory, settings);
        case verb::prefetch: return rows.prefetch(numbers, of.count, settings);
        case verb::will_need: return rows.will_need(numbers, of.count, settings);
    }
    return -EINVAL;
}

// `own_note` as in row_options.
int call(table& rows, verb which, const list& of, status* own_note) {
    switch (static_cast<engine::number_type>(of.type)) {
        case engine::number_type::int32: return call_with<std::int32_t>(rows, which, of, own_note);
        case engine::number_type::int64: return call_with<std::int64_t>(rows, which, of, own_note);
        case engine::number_type::uint32:
            return call_with<std::uint32_t>(rows, which, of, own_note);
        case engine::number_type::uint64:
            return call_with<std::uint64_t>(rows, which, of, own_note);
    }
    return -EINVAL;
}

std::uint64_t number_bytes(const list& of) {
    const auto type = static_cast<engine::number_type>(of.type);
    return type == engine::number_type::int32 || type == engine::number_type::uint32 ? 4 : 8;
}

// A gather writes rows while it reads numbers. Those of the host that lie where rows go are copied;
// what it returns holds the copy. Throws ValueError: they lie so on a GPU.
std::vector<std::uint64_t> apart_from_rows(const open_table& table, verb which, list& of) {
    if (which != verb::gather || of.count == 0) return {};
    const std::uint64_t row_bytes = table.rows->row_bytes();
    const std::uint64_t stride = of.stride != 0 ? of.stride : row_bytes;
    const std::uint64_t bytes = of.count * number_bytes(of);
    if (of.numbers >= of.rows + (of.count - 1) * stride + row_bytes ||
        of.rows >= of.numbers + bytes)
        return {};
    if (of.device >= 0)
        raise(-EINVAL,
              "out: it shares memory with ids, which rows would overwrite before they are read; "
              "give other memory, or a copy of ids (ids.clone())");
    std::vector<std::uint64_t> copied((bytes + 7) / 8);
    std::memcpy(copied.data(), reinterpret_cast<const void*>(of.numbers), bytes);
    of.numbers = reinterpret_cast<std::uintptr_t>(copied.data());
    return copied;
}

int call_through_pinned(open_table& table, verb which, const list& of) {
    penstock::table& rows = *table.rows;
    const host_list host{reinterpret_cast<const std::byte*>(of.numbers),
                         number_bytes(of),
                         of.count,
                         reinterpret_cast<std::byte*>(of.rows),
                         rows.row_bytes(),
                         of.stride,
                         which == verb::gather};
    const auto run_piece = [&](const void* numbers, std::uint64_t count, void* memory,
                               void* stream) {
        list piece = of;
        piece.numbers = reinterpret_cast<std::uintptr_t>(numbers);
        piece.count = count;
        piece.rows = reinterpret_cast<std::uintptr_t>(memory);
        piece.stride = 0;
        piece.stream = reinterpret_cast<std::uintptr_t>(stream);
        piece.device = 0;
        return call(rows, which, piece, nullptr);
    };
    return run_through_pinned(*table.rt->state(0).device, host, run_piece);
}

// The file that a message of the library begins with. Empty: none of the table's.
std::string path_in(const std::string& message, const table_layout& layout) {
    for (const table_piece& piece : layout.pieces)
        if (message.starts_with("'" + piece.path + "': ") || message.starts_with(piece.path + ": "))
            return piece.path;
    return {};
}

// Brings what was scattered to storage. An error names the file, if the runtime noted it as the
// first of all, or the table has only one.
status synced(const open_table& table) {
    const int code = table.rows->sync();
    if (code == 0) return {};
    const std::vector<table_piece>& pieces = table.rows->layout().pieces;
    status noted = table.rt->write_status();
    if (noted.code == code && !path_in(noted.message, table.rows->layout()).empty()) return noted;
    const bool is_one = std::all_of(pieces.begin(), pieces.end(), [&](const table_piece& piece) {
        return piece.path == pieces[0].path;
    });
    return {code, (is_one ? "'" + pieces[0].path + "': " : "sync: ") + error_text(code)};
}

// Of a call that did not begin.
std::string text_of(const char* name, int code) {
    std::string text = std::string(name) + ": " + error_text(code);
    if (code == -EFAULT)
        text += "; the GPU does not reach the memory of ids or rows: give memory of that GPU";
    if (code == -EINVAL)
        text += "; ids have to lie at a multiple of their size: give a copy of them";
    if (code == -EBUSY)
        text += "; a stream is being captured that the default stream waits for: give stream=";
    return text;
}

// A captured call would run again when its arrays' memory is another's.
void check_wait(open_table& table, const list& of) {
    int code = 0;
    {
        const without_gil free;
        code = can_wait_for_stream(*table.rt->state(static_cast<std::uint32_t>(of.device)).device,
                                   reinterpret_cast<void*>(of.stream));
    }
    if (code != 0)
        raise(code, error_text(code) +
                        "; a stream is being captured, and a call with an array of jax is waited "
                        "for, which no capture can have: call before the capture or after it");
}

// Runs the call without the GIL. Where it has ended when it returns, a row that could not be had is
// raised at once; else the next call raises it. A row that only Ctrl-C kept from coming is asked
// for again if Python's handler does not raise. On CPU threads the call has a note of its own, so
// it raises what became of its rows, and neither a check() nor a call beside it does.
void run(table_box& box, const char* name, verb which, list of) {
    std::shared_ptr<open_table> table = box.open();
    const std::vector<std::uint64_t> copied = apart_from_rows(*table, which, of);
    const bool waits = !table->on_gpu || of.device < 0;
    if (of.waits && !waits) check_wait(*table, of);
    for (;;) {
        int code = 0;
        status noted;
        bool interrupted = false;
        std::optional<interruptible_call> watched;
        if (waits) {
            watched.emplace(*table->rt);
            watched->run_handlers();
        }
        {
            const without_gil free;
            code = waits && table->on_gpu ? call_through_pinned(*table, which, of)
                                          : call(*table->rows, which, of, &noted);
            if (code == 0 && of.waits && !waits) {
                const auto place = static_cast<std::uint32_t>(of.device);
                code = wait_for_stream(*table->rt->state(place).device,
                                       reinterpret_cast<void*>(of.stream));
            }
            if (waits) interrupted = watched->end();
            // In a child of fork() it tells why the call did not begin.
            if (table->on_gpu ? code != 0 || waits || of.waits : code == -ECHILD)
                noted = table->rows->check();
            if (!interrupted) {
                watched.reset();
                table.reset();  // it may be the last use, which waits
            }
        }
        if (interrupted) {
            raise_pending();
            if (code == -ECANCELED || noted.code == -ECANCELED) continue;
        }
        check(noted);
        if (code != 0) raise(code, text_of(name, code));
        return;
    }
}

void gather(table_box& box, std::uintptr_t numbers, int type, std::uint64_t count,
            std::uintptr_t out, std::uint64_t item_bytes, std::uint64_t stride,
            std::uintptr_t stream, std::optional<std::int64_t> padding, int device, bool waits) {
    require_elements(*box.open(), item_bytes);
    run(box, "gather", verb::gather,
        {numbers, type, count, out, stride, stream, padding, device, waits});
}

void scatter(table_box& box, std::uintptr_t numbers, int type, std::uint64_t count,
             std::uintptr_t from, std::uint64_t item_bytes, std::uint64_t stride,
             std::uintptr_t stream, std::optional<std::int64_t> padding, int device, bool waits) {
    require_elements(*box.open(), item_bytes);
    run(box, "scatter", verb::scatter,
        {numbers, type, count, from, stride, stream, padding, device, waits});
}

std::optional<engine::number_type> number_type_of(const dlpack::data_type& of) {
    using dlpack::kind;
    if (of == dlpack::data_type{kind::integer, 32, 1}) return engine::number_type::int32;
    if (of == dlpack::data_type{kind::integer, 64, 1}) return engine::number_type::int64;
    if (of == dlpack::data_type{kind::unsigned_integer, 32, 1}) return engine::number_type::uint32;
    if (of == dlpack::data_type{kind::unsigned_integer, 64, 1}) return engine::number_type::uint64;
    return std::nullopt;
}

// What `list` has for memory there. Nothing: the table's runtime does not use it.
std::optional<int> place_of(const open_table& table, const dlpack::device& where) {
    if (!table.on_gpu && where.type == dlpack::host_memory) return -1;
    if (table.on_gpu && where.type == dlpack::cuda)
        for (std::uint32_t i = 0; i < table.rt->device_count(); ++i)
            if (table.rt->settings(i).device == where.number) return static_cast<int>(i);
    return std::nullopt;
}

// Is it memory for the rows of such a list, without gaps?
bool is_for_rows(const open_table& table, const dlpack::tensor& numbers,
                 const exchanged_array& memory) {
    const dlpack::tensor& rows = memory.of;
    const std::vector<std::int64_t>& row = table.row_shape;
    return table.elements && rows.dtype == *table.elements &&
           rows.where.type == numbers.where.type && rows.where.number == numbers.where.number &&
           rows.dimensions == numbers.dimensions + static_cast<std::int32_t>(row.size()) &&
           std::equal(numbers.shape, numbers.shape + numbers.dimensions, rows.shape) &&
           std::equal(row.begin(), row.end(), rows.shape + numbers.dimensions) &&
           memory.is_contiguous();
}

// A list by its arrays. Nothing: they do not tell at once, or are unusual, or wrong.
std::optional<list> list_of(const open_table& table, nb::handle ids, nb::handle rows,
                            std::optional<std::int64_t> padding) {
    const std::optional<exchanged_array> numbers = exchanged(ids), memory = exchanged(rows);
    if (!numbers || !memory) return std::nullopt;
    const auto type = number_type_of(numbers->of.dtype);
    const std::optional<int> place = place_of(table, numbers->of.where);
    if (!type || !place || !numbers->is_contiguous() || !is_for_rows(table, numbers->of, *memory))
        return std::nullopt;
    const std::optional<std::uintptr_t> stream = *place < 0 ? 0 : stream_of(*numbers);
    const bool has_memory = numbers->of.data != nullptr && memory->of.data != nullptr;
    if (!stream || (numbers->size() != 0 && !has_memory)) return std::nullopt;
    return list{numbers->address(),
                static_cast<int>(*type),
                numbers->size(),
                memory->address(),
                0,
                *stream,
                padding,
                *place};
}

// The verb on arrays that tell all about themselves at once (core/exchanged.hpp): a tenth of the
// time that Python takes to ask them. False: nothing was done, and Python has to ask.
bool gather_arrays(table_box& box, nb::handle ids, nb::handle out,
                   std::optional<std::int64_t> padding) {
    const std::optional<list> of = list_of(*box.open(), ids, out, padding);
    if (of) run(box, "gather", verb::gather, *of);
    return of.has_value();
}

bool scatter_arrays(table_box& box, nb::handle ids, nb::handle values,
                    std::optional<std::int64_t> padding) {
    const std::optional<list> of = list_of(*box.open(), ids, values, padding);
    if (of) run(box, "scatter", verb::scatter, *of);
    return of.has_value();
}

void prefetch(table_box& box, std::uintptr_t numbers, int type, std::uint64_t count,
              std::uintptr_t stream, bool into_cache, int device, bool waits) {
    run(box, "prefetch", into_cache ? verb::prefetch : verb::will_need,
        {numbers, type, count, 0, 0, stream, std::nullopt, device, waits});
}

std::unique_ptr<table_box> make_table(const runtime_box& of, const table_layout& layout,
                                      bool writable) {
    auto made = std::make_shared<open_table>(of.open());
    made->writable = writable;
    status s;
    {
        const without_gil free;
        s = table::make(*made->rt, layout, {.writable = writable}, made->rows);
    }
    check(s, layout.pieces.empty() ? "" : layout.pieces[0].path);
    made->elements = data_type_of(layout.dtype);
    made->row_shape.assign(layout.row_shape.begin(), layout.row_shape.end());
    const std::uint64_t count = std::accumulate(layout.row_shape.begin(), layout.row_shape.end(),
                                                std::uint64_t{1}, std::multiplies<std::uint64_t>());
    // Raw bytes, and elements of less than a byte, which no framework has arrays of.
    if (layout.dtype.empty() || count > layout.row_bytes) {
        made->elements = data_type_of("uint8");
        made->row_shape = {static_cast<std::int64_t>(layout.row_bytes)};
    } else {
        made->item_bytes = layout.row_bytes / count;
    }
    return std::make_unique<table_box>(std::move(made));
}

// Of a verb of the table and its runtime that returns a count or a negative errno.
template <typename Verb>
std::int64_t count_of(table_box& box, const char* name, Verb of_table) {
    std::shared_ptr<open_table> table = box.open();
    std::int64_t done = 0;
    {
        const without_gil free;
        done = of_table(*table);
        table.reset();
    }
    return check(done, name);
}

// Calls `of_part(file, offset, bytes)` for each part of a file that has rows of [begin, end), until
// one returns a negative errno. Returns the sum.
template <typename Verb>
std::int64_t for_parts(runtime& rt, const table_layout& layout, std::uint64_t begin,
                       std::uint64_t end, Verb of_part) {
    const std::uint64_t stride = layout.stride_bytes != 0 ? layout.stride_bytes : layout.row_bytes;
    std::int64_t sum = 0;
    std::uint64_t first = 0;  // row of the piece
    for (const table_piece& piece : layout.pieces) {
        const std::uint64_t from = std::max(begin, first);
        const std::uint64_t to = std::min(end, first + piece.rows);
        if (from < to) {
            const shared_file file = rt.open_everywhere(piece.path);
            if (file.code() != 0) return file.code();
            const std::int64_t done =
                of_part(file, static_cast<std::int64_t>(piece.first_byte + (from - first) * stride),
                        static_cast<std::int64_t>((to - from - 1) * stride + layout.row_bytes));
            rt.close(file);
            if (done < 0) return done;
            sum += done;
        }
        first += piece.rows;
    }
    return sum;
}

std::int64_t advise_rows(table_box& box, int kind, std::uint64_t begin, std::uint64_t end) {
    return count_of(box, "advise", [&](open_table& table) {
        runtime& rt = *table.rt;
        return for_parts(rt, table.rows->layout(), begin, end,
                         [&](const shared_file& file, std::int64_t offset, std::int64_t bytes) {
                             std::int64_t done = 0;
                             for (std::uint32_t i = 0; i < rt.device_count() && done >= 0; ++i)
                                 done = rt.state(i).device->advise(rt.ref(i), file.of(i),
                                                                   static_cast<advice>(kind),
                                                                   offset, bytes);
                             return done;
                         });
    });
}

// Of rows [begin, end), on a GPU: on CPU threads a table has windows for all of its rows or none.
std::int64_t open_windows(table_box& box, std::uint64_t begin, std::uint64_t end) {
    return count_of(box, "windows", [&](open_table& table) {
        if (!table.on_gpu || (begin == 0 && end >= table.rows->size()))
            return table.rows->open_windows();
        return for_parts(*table.rt, table.rows->layout(), begin, end,
                         [&](const shared_file& file, std::int64_t offset, std::int64_t bytes) {
                             return table.rt->open_windows(file, offset, bytes);
                         });
    });
}

nb::bytes ref_of(const table_box& box, std::uint32_t device) {
    const std::shared_ptr<open_table> table = box.open();
    const table_ref ref = table->rows->ref(device_of(*table->rt, device));
    return nb::bytes(&ref, sizeof ref);
}

}  // namespace

open_table::open_table(std::shared_ptr<runtime> of)
    : rt(std::move(of)), on_gpu(rt->where() == backend::gpu) {}

status open_table::wait() {
    if (!on_gpu || rows == nullptr) return {};
    return wait_for_devices(*rt, "the array");
}

// Files and memory stay for good if kernels may still use them.
open_table::~open_table() {
    if (!wait().ok()) {
        static_cast<void>(rows.release());
        static_cast<void>(new std::shared_ptr<runtime>(rt));
    }
    rows.reset();
}

status open_table::close(bool is_last) {
    if (rt->process_code() != 0) return {};  // a child of fork(): all is the parent's
    status noted;                            // a row that a scatter of a GPU could not write
    if (writable) noted = rows->check();
    const status ended = is_last ? rows->close() : synced(*this);
    if (!ended.ok()) return ended;
    if (is_last) rows.reset();  // so that its end waits for no work of others
    return noted;
}

std::shared_ptr<open_table> table_box::open() const {
    std::shared_ptr<open_table> table = of.get();
    if (table == nullptr) raise(-EBADF, "the array is closed; open it again");
    return table;
}

void table_box::close() {
    std::shared_ptr<open_table> last = of.take();
    if (last == nullptr) return;
    const table_layout layout = last->rows->layout();
    status waited, ended;
    {
        const without_gil free;
        // Before the wait: a call that another thread is in now may begin its kernel after it.
        const bool is_last = last.use_count() == 1;
        waited = last->wait();
        if (waited.ok()) ended = last->close(is_last);
        else of.put_back(std::move(last));
        last.reset();
    }
    check(waited);
    check(ended, path_in(ended.message, layout));
}

table_box::~table_box() {
    std::shared_ptr<open_table> last = of.take();
    if (last == nullptr) return;
    const without_gil free;
    last.reset();
}

void bind_table(nb::module_& m) {
    nb::class_<table_box>(m, "Table", "Rows of equal size in files.")
        .def("close", &table_box::close, "Waits for the device, then closes the files.")
        .def_prop_ro("closed", [](const table_box& box) { return box.of.get() == nullptr; })
        .def("gather", gather, "numbers"_a, "type"_a, "count"_a, "out"_a, "item_bytes"_a,
             "stride"_a, "stream"_a, "padding"_a.none(), "device"_a, "waits"_a)
        .def("scatter", scatter, "numbers"_a, "type"_a, "count"_a, "rows"_a, "item_bytes"_a,
             "stride"_a, "stream"_a, "padding"_a.none(), "device"_a, "waits"_a)
        .def("gather_arrays", gather_arrays, "ids"_a, "out"_a, "padding"_a.none())
        .def("scatter_arrays", scatter_arrays, "ids"_a, "values"_a, "padding"_a.none())
        .def("prefetch", prefetch, "numbers"_a, "type"_a, "count"_a, "stream"_a, "into_cache"_a,
             "device"_a, "waits"_a)
        .def("check", [](const table_box& box) { check(box.open()->rows->check()); })
        .def("sync",
             [](table_box& box) {
                 std::shared_ptr<open_table> table = box.open();
                 const table_layout layout = table->rows->layout();
                 status ended;
                 {
                     const without_gil free;
                     ended = synced(*table);
                     table.reset();
                 }
                 check(ended, path_in(ended.message, layout));
             })
        .def("advise", advise_rows, "kind"_a, "begin"_a, "end"_a)
        .def("open_windows", open_windows, "begin"_a, "end"_a)
        .def("grow_windows",
             [](table_box& box) {
                 return count_of(box, "windows",
                                 [](open_table& t) { return t.rows->grow_windows(); });
             })
        .def("ref", ref_of, "device"_a, "The bytes of penstock::table_ref.");
    m.def("make_table", make_table, "runtime"_a, "layout"_a, "writable"_a);
    m.def(
        "gpu_of_memory",
        [](std::uintptr_t address) {
            return host::gpu_of_memory(reinterpret_cast<const void*>(address));
        },
        "address"_a, "The number of its GPU; -1: the driver knows of none.");
}

}  // namespace penstock::python
