// What the runtime needs of the place where the cache lives: memory, and the host versions of the
// calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "device/loan.hpp"
#include "penstock/advise.hpp"
#include "penstock/engine/wish.hpp"
#include "penstock/file.hpp"
#include "penstock/gather.hpp"
#include "penstock/options.hpp"
#include "penstock/stream.hpp"
#include "penstock/table.hpp"

namespace penstock {
class runtime;
}

namespace penstock::host {

// Gather over a whole device: what runtime::gather hands to the back ends.

// Spans of a file are numbered from its first byte; what lies behind the last one counts to the
// last one. A number has the same span each time, also while the file gets another size: two passes
// over a list have to agree.
struct span_rule {
    std::uint32_t spans = 0;  // 0: rows are fetched in the order they are given in
    std::uint32_t shift = 0;

    template <typename Geometry>
    PENSTOCK_HD std::uint32_t span_of(const Geometry& rows, std::uint64_t index) const {
        const std::uint64_t span = rows.byte_of(index) >> shift;  // of a wrapped product: any
        return span < spans ? static_cast<std::uint32_t>(span) : spans - 1;
    }
};

inline constexpr std::uint32_t max_spans = 1024;

// Rows that are put in order together: 4 bytes each, and enough of them that each span has plenty.
inline constexpr std::uint64_t ordered_rows_at_once = std::uint64_t{1} << 26;

struct gather_job {
    int fd;
    row_shape shape;
    const std::uint64_t* indices;
    std::uint64_t count;  // not 0
    std::byte* out;
    span_rule spans;
    bool must_order;  // without memory for the order: fail, instead of taking the rows as they are
                      // given
};

// How many rows a warp or a worker takes at a time: enough to keep it busy, few enough to go round.
inline std::uint64_t rows_of_a_piece(std::uint64_t count, std::uint64_t row_bytes,
                                     std::uint64_t takers) {
    const std::uint64_t fair = (count + takers - 1) / takers;
    std::uint64_t rows = row_bytes > 65536 ? 1 : 65536 / row_bytes;
    if (rows > 256) rows = 256;
    if (rows > fair) rows = fair;
    return rows > 32 ? rows / 32 * 32 : rows;
}

std::int64_t gather_on_cpu(runtime& rt, const gather_job& job);

// What a table hands to the back ends: all rows of a list, and a verb for them.
enum class table_verb { gather, scatter, prefetch, will_need };
struct table_job {
    table_verb verb;
    engine::table_view table;
    engine::number_list list;
    std::uint64_t count;  // not 0
    std::byte* memory;    // of the caller's rows; scatter only reads it
    std::uint64_t stride_bytes;
};

// Whole group: rows [begin, end) of the job's list.
template <table_verb Verb, typename Group>
PENSTOCK_HD PENSTOCK_INLINE void run_part(const Group& g, const runtime_ref& fs,
                                          const table_job& job, std::uint64_t begin,
                                          std::uint64_t end) {
    if constexpr (Verb == table_verb::gather)
        engine::deliver_list(g, fs.view, job.table, job.list, job.memory, job.stride_bytes, begin,
                             end, job.count);
    else if constexpr (Verb == table_verb::scatter)
        penstock::detail::scatter_list(g, fs, job.table, job.list, job.memory, job.stride_bytes,
                                       begin, end);
    else if constexpr (Verb == table_verb::prefetch)
        engine::bring_in_list(g, fs.view, job.table, job.list, begin, end);
    else engine::wish_list(g, fs.view, job.table, job.list, begin, end, job.count);
}

// The verbs on an open file that go the same way through every layer, one row each: result, name,
// parameters after the descriptor, and their names. From the rows come the functions of
// cache_device here and the forwarding bodies of cpu_device, runtime (runtime/runtime.cpp) and file
// (runtime/host_file.cpp). The public headers write their declarations out, because users read them
// there; gpu_device has bodies of its own, which stage the bytes. Verbs that go another way (open,
// close, msync, unlink, gather, map) stand in full in each layer.
#define PENSTOCK_FILE_VERBS(VERB)                                                            \
    VERB(std::int64_t, read, (void* buffer, std::int64_t bytes, std::int64_t offset),        \
         (buffer, bytes, offset))                                                            \
    VERB(std::int64_t, write, (const void* buffer, std::int64_t bytes, std::int64_t offset), \
         (buffer, bytes, offset))                                                            \
    VERB(std::int64_t, append, (const void* buffer, std::int64_t bytes), (buffer, bytes))    \
    VERB(std::int64_t, prefetch, (std::int64_t offset, std::int64_t bytes), (offset, bytes)) \
    VERB(std::int64_t, advise, (advice kind, std::int64_t offset, std::int64_t bytes),       \
         (kind, offset, bytes))                                                              \
    VERB(int, stat, (file_stat * out), (out))                                                \
    VERB(int, fsync, (), ())                                                                 \
    VERB(int, truncate, (std::int64_t size_bytes), (size_bytes))

// What stands in a row's brackets, as the rest of a list.
#define PENSTOCK_REST(...) __VA_OPT__(, ) __VA_ARGS__

// How groups of one device reach the memory of another.
enum class link_kind { none, same_memory, nvlink, pcie };

struct device_link {
    link_kind kind = link_kind::none;
    std::string reason;  // why there is none, or by what the kind was told
};
constexpr const char* name_of(link_kind kind) {
    return kind == link_kind::same_memory ? "same memory"
           : kind == link_kind::nvlink    ? "NVLink"
           : kind == link_kind::pcie      ? "PCIe"
                                          : "none";
}

class cache_device {
public:
    virtual ~cache_device() = default;
    [[nodiscard]] virtual std::string name() const = 0;
    [[nodiscard]] virtual bool is_gpu() const = 0;
    [[nodiscard]] virtual std::uint64_t free_bytes() const = 0;

    // Device memory, zeroed, aligned to 256 bytes or better; null if there is not enough
    // (`shortage` says more). Freed with the device.
    virtual void* allocate_device(std::uint64_t bytes) = 0;
    // What allocate_device gave, and a gather took for its order and has not freed, in the bytes
    // asked for. Thread-safe.
    [[nodiscard]] virtual std::uint64_t allocated_bytes() const = 0;
    // The same, of which other processes can map what handle_of gives for it.
    virtual void* allocate_shareable(std::uint64_t bytes) = 0;
    // A descriptor of memory that allocate_shareable gave, and how many bytes the other process is
    // to map. The caller closes it. Negative errno.
    virtual int handle_of(const void* shareable, std::uint64_t& mapped_bytes) = 0;
    // Can page frames lie in this memory of the caller? False, with the rest of a sentence about it
    // and the cure in `why`. On cpu always: a process cannot ask what its memory is for.
    virtual bool may_hold_frames(const void* memory, std::uint64_t bytes, std::string& why) = 0;
    // Host memory that groups can reach too (pinned on a GPU), zeroed, page-aligned, at the same
    // address on both sides.
    virtual void* allocate_shared(std::uint64_t bytes) = 0;
    // Of the last allocation that gave null: how much of what was refused, by which error, and how
    // much is free.
    [[nodiscard]] virtual std::string shortage() const = 0;
    // Makes host memory reachable for groups, at its own address, and takes that back. Reading
    // only. `for_all`: for groups of all other devices too. False, with the reason in `why`:
    // refused. Only while no kernel waits for the host; conceal only while none uses the memory.
    virtual bool expose(void* host_memory, std::uint64_t bytes, bool for_all, std::string& why) = 0;
    virtual void conceal(void* host_memory) = 0;
    // Host to device and back; 0, -EIO, or -ENODEV after a reset. Only while no kernel uses the
    // memory, or for counters.
    virtual int upload(void* to, const void* from, std::uint64_t bytes) = 0;
    virtual int download(void* to, const void* from, std::uint64_t bytes) = 0;
    // To be called once the view is complete: loads the kernels behind the calls below, since
    // loading one while another kernel waits for the host would block for good. -ENOMEM: the device
    // has no memory for them; -EIO.
    virtual status prepare(const runtime_ref& fs) = 0;
    // Why prepare() may take long, as a line for the log; empty if it does not.
    [[nodiscard]] virtual std::string slow_start() const { return {}; }

    virtual int open(const runtime_ref& fs, const char* path, int flags) = 0;
    virtual int close(const runtime_ref& fs, int fd) = 0;
    virtual int duplicate(const runtime_ref& fs, int fd) = 0;  // one reference more to an open file
    virtual int msync(const runtime_ref& fs, int fd, std::int64_t offset, std::int64_t bytes) = 0;
    // The next open of the name asks the host.
    virtual int forget(const runtime_ref& fs, const char* path) = 0;
    // Writes back the dirty pages of a file slot. 0, or the first error.
    virtual int flush(const runtime_ref& fs, std::uint32_t slot) = 0;
    // read, write, append, prefetch, advise, stat, fsync, truncate
#define PENSTOCK_DECLARE(Result, verb, parameters, names) \
    virtual Result verb(const runtime_ref& fs, int fd PENSTOCK_REST parameters) = 0;
    PENSTOCK_FILE_VERBS(PENSTOCK_DECLARE)
#undef PENSTOCK_DECLARE

    // gpu only: runtime::gather runs the cpu back end's on the worker threads. Ordered after what
    // is on the caller's stream; null: there is none.
    virtual std::int64_t gather(const runtime_ref& fs, const gather_job& job,
                                device_stream stream) = 0;

    // gpu only: on cpu the worker threads share the rows. Puts the job on the stream and returns.
    // 0, or a negative errno, and then nothing was begun.
    virtual int run_table(const runtime_ref& fs, const table_job& job, device_stream stream) = 0;

    // gpu only: calls it with the device current, and then the thread has again what was current
    // before: a context of the program's, or none. It disturbs no capture, and leaves no error
    // behind. What it returns; -ENODEV after a reset, and then it was not called.
    virtual int while_current(const std::function<int()>& call) = 0;

    // gpu only: is the stream one of this device? Null: is it the calling thread's current device?
    [[nodiscard]] virtual bool is_of(device_stream stream) const = 0;

    // How groups of this device would reach the other's memory. Changes nothing.
    [[nodiscard]] virtual device_link link_to(const cache_device& other) const = 0;
    // Lets groups of this device read device memory of the other, at its own address; also memory
    // that the other allocates later. Again is no error, and nothing takes it back while both
    // contexts live. False, with the reason in `why`. Call it while no kernel waits for the host.
    virtual bool reach(const cache_device& other, std::string& why) = 0;
    // What tells this device from all others of the machine, in up to 63 characters.
    [[nodiscard]] virtual std::string identity() const = 0;
    // The same for a device that another process has, by its identity().
    [[nodiscard]] virtual device_link link_to(const std::string& identity) const = 0;
    // Maps memory of such a device, by a descriptor of handle_of, for groups of this one to read.
    // Null, with the reason in `why`: it is smaller than that, or out of reach. Beside running
    // kernels too. Not thread-safe.
    virtual const void* map_foreign(int handle, std::uint64_t bytes, std::string& why) = 0;
    // Once no group looks at it.
    virtual void unmap_foreign(const void* mapped) = 0;
    // In a child of fork(): its copy of this writes to no memory that other processes have, and
    // holds none of theirs. System calls alone.
    virtual void part_from_parent() = 0;
    // Looks at counters that groups change meanwhile. A group that changes one after this look also
    // sees what upload() brought before it; what groups loaded before a change that is seen, they
    // loaded before this returns. At most most_sampled bytes.
    static constexpr std::uint64_t most_sampled = 4096;
    virtual int sample(std::uint64_t* out, std::uint64_t* counters, std::uint64_t count) = 0;
    // gpu only: returns when the work has ended that was put on the device before. Disturbs no
    // stream capture. 0, also if a fault has ended the work; -ENOMEM or -EBUSY, after ten seconds:
    // some of it may still run. On cpu the groups are threads of the program, which has ended them
    // before it ends a runtime.
    virtual int wait_for_groups() = 0;

    // Has the parts of a loan copied by groups of this device. It ends with the device.
    virtual page_lender& lender() = 0;

    // Ok, or what broke the device for good: -EIO, a kernel faulted; -ENODEV, the program reset it.
    virtual status health() = 0;
};

std::unique_ptr<cache_device> make_cpu_device();
// Null, with the reason in `why`: -ENODEV, there is no usable GPU of that number or Penstock was
// built without CUDA; -ENOMEM, its memory is used up.
std::unique_ptr<cache_device> make_gpu_device(int device, status& why);
// The number of the GPU that the memory is of, or was pinned for; -1: the driver knows of none.
int gpu_of_memory(const void* memory);
// cache_device::wait_for_groups, where there may be no runtime any more.
int wait_for_gpu(int device);

}  // namespace penstock::host
