// A table: rows of equal size that lie in files, read by their numbers. The numbers lie where
// kernels run, for instance because a kernel has just computed them: token ids of an embedding,
// nodes of a graph, experts of a layer.
//
//   penstock::table_layout layout;                       // where the rows lie (table_layout.hpp)
//   penstock::describe("model/", "embed.weight", layout);
//   penstock::runtime::make(penstock::options_for(layout, {}), rt);
//   penstock::table::make(*rt, layout, {}, rows);
//   rows->gather(numbers, count, out, {.stream = stream});         // from the host
//   penstock::gather(g, fs, rows->ref(), numbers, count, out);     // in a kernel of your own
//   if (penstock::status s = rows->check(); !s) ...                // what went wrong since
//
// gather works on the caller's stream. It waits for nothing, allocates nothing, and needs no thread
// of the host as long as the rows are in the cache or in windows: so a stream capture may contain
// it, and the graph may be launched again and again with new numbers in the same memory. Kernels
// that need rows from the disk ask the service threads, inside the graph too.
//
// Errors cannot be returned by work that has not begun. A row that cannot be had is delivered as
// zeros, all other rows are right, and the table notes the first such row: the next call that takes
// rows gives its code and does nothing, and check() gives file, row, cause and cure and clears the
// note. That next call may be of another thread: on cpu, calls of threads that share a table can
// have a note each (row_options::own_note).
//
// In a runtime of several devices a table is on all of them: each has its files open and a note of
// its own, and rows come through the cache of the device that gathers. A row that one device has
// scattered is seen by the others after close and reopen only, like every write.
//
// Rows that lie in a window and not in the cache go straight to their place
// (docs/protocol/through.md), so for rows of files in memory open the windows of the table first.
#pragma once

#if !defined(__CUDACC_RTC__)
#include <memory>
#include <optional>
#endif

#include "penstock/base/standard.hpp"
#include "penstock/engine/table_rows.hpp"
#include "penstock/file.hpp"
#include "penstock/write.hpp"
#if !defined(__CUDACC_RTC__)
#include "penstock/stream.hpp"
#include "penstock/table_layout.hpp"
#endif

namespace penstock {

// A kernel's reference to a table. Trivially copyable; pass it by value. Valid while the table
// lives.
struct table_ref {
    engine::table_view view;

    PENSTOCK_HD std::uint64_t size() const { return view.rows; }
    PENSTOCK_HD std::uint64_t row_bytes() const { return view.row_bytes; }
};

// An integer of 4 or 8 bytes.
template <typename Number>
concept row_number = std::is_integral_v<Number> &&(sizeof(Number) == 4 || sizeof(Number) == 8) &&
                     !std::is_same_v<Number, bool>;

namespace detail {

template <row_number Number>
constexpr PENSTOCK_HD engine::number_type type_of_number() {
    if (sizeof(Number) == 4)
        return std::is_signed_v<Number> ? engine::number_type::int32 : engine::number_type::uint32;
    return std::is_signed_v<Number> ? engine::number_type::int64 : engine::number_type::uint64;
}

}  // namespace detail

// Whole group. Copies the row to `to`, which all threads of the group may read when the call
// returns. Returns the row's bytes, or a negative errno, and then `to` has zeros: -ERANGE, no such
// row; -ESTALE, the file was cut; else the errors of read. The table notes the first error. Cost:
// that of a read of as many bytes; in a table of many files, a look at the list of files more.
template <group Group>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t read_row(const Group& g, const runtime_ref& fs,
                                                  const table_ref& table, std::uint64_t number,
                                                  void* to) {
    const std::int64_t done =
        engine::deliver_row(g, fs.view, table.view, number, static_cast<std::byte*>(to));
    g.sync();
    return done;
}

// Whole group. Copies rows numbers[0] to numbers[count - 1] to `out`, one each `out_stride_bytes`
// (0: one behind the other), in any order. Numbers may repeat. A row that cannot be had becomes
// zeros, and the table notes the first. Returns how many rows could not be had. `numbers` and `out`
// lie in memory that all threads of the group reach; meanwhile no other thread may change
// `numbers`, or read or change `out`. Short rows are copied several at a time, so give a group
// many.
template <group Group, row_number Number>
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t gather(const Group& g, const runtime_ref& fs,
                                                 const table_ref& table, const Number* numbers,
                                                 std::uint64_t count, void* out,
                                                 std::uint64_t out_stride_bytes = 0) {
    const engine::number_list list{numbers, detail::type_of_number<Number>(), false, 0};
    const std::uint64_t failed = engine::deliver_list(
        g, fs.view, table.view, list, static_cast<std::byte*>(out),
        out_stride_bytes != 0 ? out_stride_bytes : table.view.row_bytes, 0, count, count);
    g.sync();
    return failed;
}

namespace detail {

// Nothing can be written for want of room, on the disk or in the cache. A row waits for a frame
// before it says so.
constexpr PENSTOCK_HD bool is_want_of_room(std::int64_t code) {
    return code == -ENOSPC || code == -EDQUOT || code == -EFBIG || code == -ENOBUFS;
}

// Whole group. Writes a row of `bytes` bytes. Returns 0, or the negative errno of the page that
// could not be written; those before it are.
template <group Group>
PENSTOCK_HD std::int64_t scatter_row(const Group& g, const runtime_ref& fs, int fd,
                                     const std::byte* row, std::int64_t bytes, std::int64_t at) {
    // A write ends before a page that cannot be written. Only one that begins there tells why.
    for (std::int64_t done = 0; done < bytes;) {
        const std::int64_t more = write(g, fs, fd, row + done, bytes - done, at + done);
        if (more <= 0) return more < 0 ? more : -EIO;
        done += more;
    }
    return 0;
}

// Whole group. Writes rows [begin, end) of the list, until there is no room for one.
template <group Group>
PENSTOCK_HD std::uint64_t scatter_list(const Group& g, const runtime_ref& fs,
                                       const engine::table_view& t, const engine::number_list& list,
                                       const std::byte* rows, std::uint64_t stride_bytes,
                                       std::uint64_t begin, std::uint64_t end) {
    std::uint64_t failed = 0;
    std::int64_t no_room = 0;
    for (std::uint64_t i = begin; i < end; ++i) {
        const engine::row_source source = engine::source_of(t, list, i);
        if (source.is == engine::row_source::padding) continue;
        std::int64_t code = -ERANGE;
        if (source.is == engine::row_source::in_file && no_room != 0) code = no_room;
        else if (source.is == engine::row_source::in_file)
            code = scatter_row(g, fs, engine::run_of(t, static_cast<std::uint64_t>(list.at(i))).fd,
                               rows + i * stride_bytes, static_cast<std::int64_t>(t.row_bytes),
                               static_cast<std::int64_t>(source.at));
        if (code == 0) continue;
        if (is_want_of_room(code)) no_room = code;
        ++failed;
        if (g.is_leader()) engine::note_listed_row(t, code, list, i);
    }
    return failed;
}

}  // namespace detail

// Whole group. Writes rows[i] to row numbers[i] of a writable table (penstock/write.hpp). Returns
// how many rows could not be written; the table notes the first. Where there is no room for a row
// (-ENOSPC, -EDQUOT, -EFBIG, -ENOBUFS), the group does not try those behind it.
template <group Group, row_number Number>
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t scatter(const Group& g, const runtime_ref& fs,
                                                  const table_ref& table, const Number* numbers,
                                                  std::uint64_t count, const void* rows,
                                                  std::uint64_t stride_bytes = 0) {
    const engine::number_list list{numbers, detail::type_of_number<Number>(), false, 0};
    return detail::scatter_list(g, fs, table.view, list, static_cast<const std::byte*>(rows),
                                stride_bytes != 0 ? stride_bytes : table.view.row_bytes, 0, count);
}

#if !defined(__CUDACC_RTC__)

class runtime;
struct options;

struct table_options {
    bool writable = false;  // for scatter; the runtime must be writable too
};

struct row_options {
    // gpu: the stream on which the rows are copied, after all work that is on it already; it is one
    // of the device that does it. Null: CUDA's default stream (-EBUSY while a stream that waits for
    // it is being captured). No meaning on cpu, where the call returns when all is done.
    device_stream stream = nullptr;
    // A number that stands for no row: it yields zeros, and scatter leaves it out. For lists of
    // fixed length. It is compared as 64 bits: of uint64 numbers -1 stands for 2^64 - 1, which is
    // no row of any table. Of uint32 numbers no negative one stands for any: 2^32 - 1 may be a row.
    // For them name 2^32 - 1 itself.
    std::optional<std::int64_t> padding = std::nullopt;
    std::uint64_t stride_bytes = 0;  // between rows in the caller's memory; 0: row_bytes
    // Which device of the runtime does it, with its cache; -EINVAL: there is no such device. Empty:
    // on gpu the one that `stream` is of, or without a stream the calling thread's current device
    // (cudaSetDevice); device 0, if that is none of the runtime's, and on cpu.
    std::optional<std::uint32_t> device = std::nullopt;
    // For threads that share a table on cpu: a call that returns 0 puts its own first error here,
    // as check() would tell it, or ok. Such a call leaves the table's note as it is, and begins
    // whatever that says. No meaning on gpu, where an error may come after the call.
    status* own_note = nullptr;
};

// Settings for a runtime that is to serve such a table: pages that suit its rows, at least eight of
// them in the cache and in a tier, and a page table with room for its files. Everything else is as
// in `base`, so runtime::make refuses a cache_memory with less than eight such pages.
options options_for(const table_layout& layout, const options& base);

class table {
public:
    // Opens the files of the layout, each once. On failure `out` stays as it was, and the status
    // names the file and the cure: errors of runtime::open; -EINVAL, a layout of no rows, or of a
    // row that does not lie in its file; -ESTALE, another file has the name by now, and the runtime
    // has the one before open; -ENOMEM, no room for the list of files. Takes some tens of
    // microseconds for each file. On gpu the first table of a runtime allocates memory, so make it
    // between kernels.
    static status make(runtime& rt, const table_layout& layout, const table_options& settings,
                       std::unique_ptr<table>& out);
    // The work that was launched must have ended. The runtime must outlive the table.
    ~table();
    // Ends the table as the destructor does, and tells what that cannot: ok, or the first file that
    // does not have all that scatter wrote, and why. All files are closed then, and the bytes stay
    // in the cache: a table that opens the file again has them, and its sync() and the end of the
    // runtime try once more. The work that was launched must have ended; nothing but the destructor
    // may follow.
    status close();
    table(const table&) = delete;
    table& operator=(const table&) = delete;

    // For kernels of that device of the runtime: their runtime_ref is runtime::ref(device).
    [[nodiscard]] table_ref ref(std::uint32_t device = 0) const;
    [[nodiscard]] std::uint64_t size() const;
    [[nodiscard]] std::uint64_t row_bytes() const;
    [[nodiscard]] const table_layout& layout() const;

    // Copies rows numbers[0] to numbers[count - 1] to `out`. On gpu both lie in memory that the
    // device reaches, and the call returns before the rows are there: the stream says when. Returns
    // 0 or a negative errno, and then nothing was begun: the code of an error that was noted before
    // (check() clears it); -EINVAL, a null pointer, numbers that lie at no multiple of their size,
    // or a stride shorter than a row; -EFAULT, the device does not reach the memory; -ENODEV,
    // -ECHILD, as of the runtime. Capturable in every mode; in a capture an address that neither
    // the driver nor the host knows is taken for memory that comes with the graph. Thread-safe.
    template <row_number Number>
    int gather(const Number* numbers, std::uint64_t count, void* out,
               const row_options& settings = {}) {
        return gather_list({numbers, detail::type_of_number<Number>(), false, 0}, count, out,
                           settings);
    }
    // Writes rows[i] to row numbers[i], with table_options::writable (-EROFS). As with every write,
    // the bytes are in the cache then, and sync() brings them to the files. If a number repeats,
    // each byte of its row comes from one of the rows.
    template <row_number Number>
    int scatter(const Number* numbers, std::uint64_t count, const void* rows,
                const row_options& settings = {}) {
        return scatter_list({numbers, detail::type_of_number<Number>(), false, 0}, count, rows,
                            settings);
    }
    // Brings the pages of these rows into the cache, each once: they are there when the stream gets
    // past this call. Its kernel waits for them, but for pages that another call is loading: for
    // those a gather waits, and it tells if they cannot be had.
    template <row_number Number>
    int prefetch(const Number* numbers, std::uint64_t count, const row_options& settings = {}) {
        return prefetch_list({numbers, detail::type_of_number<Number>(), false, 0}, count,
                             settings);
    }

    // Says that these rows will be wanted soon, and waits for nothing: the kernel tells the host
    // which of their pages are nowhere yet, and ends. Their bytes are then on their way to the host
    // tier (options::tier_bytes), or where there is none to the operating system's page cache, each
    // page once; a gather that comes later finds them nearer. A hint, as advice::will_need: no row
    // depends on it, numbers of no row are passed over, and what rings, tier or host have no room
    // for is dropped. Returns as prefetch, and may be captured like it.
    template <row_number Number>
    int will_need(const Number* numbers, std::uint64_t count, const row_options& settings = {}) {
        return will_need_list({numbers, detail::type_of_number<Number>(), false, 0}, count,
                              settings);
    }

    // Ok, or the first error of a device since a check told one of it: its code, and a line with
    // file, row, cause and cure. Of several devices with errors each call tells one. Reads a word
    // of host memory of each and waits for nothing, so work on a stream must have ended to be seen.
    status check();
    // Writable tables: what scatter wrote is on storage when this returns. 0, or the first error;
    // what an error leaves to the next call, and what not, is as with fsync (penstock/write.hpp).
    int sync();
    // Opens windows onto the rows (runtime::open_windows). Returns how many bytes of the files lie
    // in windows then, or the first error if none could be opened. Again, after a time: takes in
    // what has come into memory since. On cpu the windows are mappings, and a table that gathers
    // many rows opens them by itself; -EOPNOTSUPP: the file has no lease (docs/guide/tables.md), or
    // the table is writable. They are closed with the table.
    std::int64_t open_windows();
    // The same for what was asked for since, by gather, prefetch or will_need, and is in memory now
    // (runtime::grow_windows). Looks at nothing else, so call it between launches as often as you
    // like. Returns how many bytes it took in, of several devices the least, or a negative errno.
    // On cpu a table does so by itself, now and then.
    std::int64_t grow_windows();

private:
    struct on_device;
    struct parts;
    explicit table(std::unique_ptr<parts> made);
    int gather_list(engine::number_list list, std::uint64_t count, void* out,
                    const row_options& settings);
    int scatter_list(engine::number_list list, std::uint64_t count, const void* rows,
                     const row_options& settings);
    int prefetch_list(engine::number_list list, std::uint64_t count, const row_options& settings);
    int will_need_list(engine::number_list list, std::uint64_t count, const row_options& settings);

    std::unique_ptr<parts> parts_;
};

#endif

}  // namespace penstock
