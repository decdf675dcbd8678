// Gather: fetches rows of a file by an array of their numbers, for instance embeddings, feature
// vectors or records.
//
//   const penstock::row_view rows(fs, fd, {.row_bytes = 512});
//   penstock::gather(g, rows, indices + first, n, out);         // in a kernel: each group its
//       share of the array
//   rt.gather(fd, {.row_bytes = 512}, indices, count, out);     // from the host: the whole device
//       (penstock/runtime.hpp)
//
// Row indices[i] is copied to out + i * row_bytes, in whichever order the rows are fetched. Rows
// may straddle pages, repeat, overlap in the file and be longer than a page. `indices` and `out`
// lie in memory that all threads of the group reach. Meanwhile no other thread may change
// `indices`, or read or change `out`.
//
// Result: `count`, or a negative errno; then any of the rows may be delivered, and nothing else was
// written. -ERANGE: an index is not below size(). -EBADF, -EINVAL (a null pointer, indices that lie
// at no multiple of 8, a row of 0 bytes, an array of more than 2^63 bytes); else the errors of
// read. If a row caused the error, the runtime keeps which: ask runtime::view_status() after the
// kernel.
//
// Cost: for a row in the cache on a GPU two loads of the page word around the copy, no atomic
// update, and no count of hits. Short rows are copied several at a time, so give a group many rows
// (32 rows of 64 bytes, or 4 of 512, keep a warp busy). Multiples of 16 bytes for `out`, row,
// stride and first byte are fastest. Missing pages of one call are loaded together, up to eight at
// a time, each once.
//
// Thread safety: as file.hpp.
#pragma once

#include "penstock/base/standard.hpp"
#include "penstock/engine/gather.hpp"
#include "penstock/stream.hpp"
#include "penstock/view.hpp"

namespace penstock {

// Where the rows of a file lie.
struct row_shape {
    std::uint64_t row_bytes = 0;
    // The distance from the first byte of one row to that of the next; 0: row_bytes.
    std::uint64_t stride_bytes = 0;
    std::uint64_t first_byte = 0;  // of row 0
};

// The order in which runtime::gather fetches the rows; their places in `out` are the same for all
// orders. The GPU's address translation limits fetches of random rows of host memory that spread
// over more than 1 to 2 GiB, so such rows come faster span by span.
enum class gather_order {
    automatic,  // by_span for 65536 rows and more of a file that is larger than 2 GiB and than the
                // cache, if there is memory for it
    as_given,
    by_span  // costs two passes over the indices and 4 bytes of device memory a row, 256 MiB at
             // most (-ENOMEM); not stable on gpu
};

struct gather_options {
    gather_order order = gather_order::automatic;
    // Bytes of a span, a power of two from 2 MiB. A file is divided into at most 1024 spans; if the
    // file is too large for that, its spans are larger.
    std::uint64_t span_bytes = std::uint64_t{1} << 30;
    // gpu: the stream of the runtime's device on which the rows are fetched, after all work that is
    // on it already; that work may still write `indices` and use `out`. The call returns when the
    // gather and all earlier work on the stream have ended. Null: a stream of the runtime, which
    // waits for no other stream. So a program that has just copied `indices` to the device names
    // the stream of that copy here, or synchronises it first: cudaMemcpy from memory that is not
    // pinned returns before its last piece has arrived.
    device_stream stream = nullptr;
};

// A file as rows of bytes. Like a view, it holds the address of the runtime_ref it was made from.
class row_view {
public:
    // Impossible arguments (a descriptor that is not open, a row of 0 bytes) give a view of no
    // rows, and gather returns the reason.
    PENSTOCK_HD row_view(const runtime_ref& fs, int fd, const row_shape& shape) : cache_(&fs.view) {
        if (!engine::find_file(fs.view, fd, file_)) code_ = -EBADF;
        else if (shape.row_bytes == 0) code_ = -EINVAL;
        else
            rows_ = engine::rows_of(file_.size_bytes, shape.first_byte,
                                    shape.stride_bytes != 0 ? shape.stride_bytes : shape.row_bytes,
                                    shape.row_bytes);
    }

    // The number of rows that lie whole in the file, as it was when it was opened.
    PENSTOCK_HD std::uint64_t size() const { return rows_.rows; }

    // For gather: the cache and file that a call uses.
    PENSTOCK_HD const engine::cache_view& cache() const { return *cache_; }
    PENSTOCK_HD const engine::file_handle& file() const { return file_; }
    PENSTOCK_HD const engine::row_geometry& geometry() const { return rows_; }
    PENSTOCK_HD int code() const { return code_; }

private:
    const engine::cache_view* cache_;
    engine::file_handle file_{};
    engine::row_geometry rows_{};
    int code_ = 0;
};

namespace detail {

// Returns 0, or the error of the arguments.
PENSTOCK_HD PENSTOCK_INLINE std::int64_t check_gather(const void* indices, std::uint64_t count,
                                                      const void* out, std::uint64_t row_bytes) {
    if (count == 0) return 0;
    if (indices == nullptr || out == nullptr ||
        reinterpret_cast<std::uintptr_t>(indices) % alignof(std::uint64_t) != 0)
        return -EINVAL;
    // Usually both are below 2^31, which spares a division.
    if ((count | row_bytes) >> 31 != 0 && count > INT64_MAX / row_bytes) return -EINVAL;
    return 0;
}

// Whole group: the common end of every gather, once its rows are delivered.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t end_gather(const Group& g, const engine::cache_view& c,
                                                    std::int64_t done, std::uint64_t row_bytes) {
    g.sync();  // every thread's part is in `out` before any of them reads it
    if (g.is_leader()) {
        if (done > 0)
            engine::count(g, c, engine::count_bytes_read,
                          static_cast<std::uint64_t>(done) * row_bytes);
        if (done < 0) engine::count(g, c, engine::count_errors);
    }
    return done;
}

// Whole group: gathers the rows of a list (engine/gather.hpp).
template <typename Group, typename List>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t gather_list(const Group& g, const row_view& rows,
                                                     const List& list, std::uint64_t count,
                                                     void* out) {
    engine::row_geometry geometry = rows.geometry();
    geometry.rows = engine::share_count(g, rows.cache(), geometry.rows);
    std::int64_t done = rows.code();
    // A thread whose view is one of a descriptor that was closed has no rows.
    if (geometry.rows == 0 && !g.all(done == 0) && done == 0) done = -EBADF;
    if (done == 0) done = check_gather(list.indices, count, out, geometry.row_bytes);
    if (done == 0 && count > 0)
        done = engine::gather_rows(g, rows.cache(), rows.file(), geometry, list, count,
                                   static_cast<std::byte*>(out));
    return end_gather(g, rows.cache(), done, geometry.row_bytes);
}

}  // namespace detail

// Whole group: copies rows indices[0] to indices[count - 1], one behind the other, to `out`, which
// every thread of the group may read when the call returns.
template <group Group>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t gather(const Group& g, const row_view& rows,
                                                const std::uint64_t* indices, std::uint64_t count,
                                                void* out) {
    return detail::gather_list(g, rows, engine::listed_rows{indices}, count, out);
}

// The same for the elements of a view. An empty view has no element, so any index is out of range.
template <typename T, group Group>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t gather(const Group& g, const view<T>& elements,
                                                const std::uint64_t* indices, std::uint64_t count,
                                                T* out) {
    std::int64_t done = detail::check_gather(indices, count, out, sizeof(T));
    engine::row_geometry geometry = elements.geometry();
    geometry.rows = engine::share_count(g, elements.cache(), geometry.rows);
    if (done == 0 && count > 0)
        done = engine::gather_in_units<engine::unit_for<sizeof(T)>, call_kind::by_address>(
            g, elements.cache(), elements.file(), geometry, engine::listed_rows{indices}, count,
            reinterpret_cast<std::byte*>(out));
    return detail::end_gather(g, elements.cache(), done, sizeof(T));
}

}  // namespace penstock
