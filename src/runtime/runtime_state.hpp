// Everything a runtime owns for one of its devices. What ends it is in the destructor, in this
// order: reads for programs, monitor, services, device, registry (of which the device may have
// slots that are lent).
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "peers/cached_reads.hpp"
#include "device/device.hpp"
#include "device/direct_storage.hpp"
#include "files/deleted_files.hpp"
#include "files/file_registry.hpp"
#include "links/process_links.hpp"
#include "os/env.hpp"
#include "os/exceptions.hpp"
#include "os/process_owner.hpp"
#include "runtime/statistics_publisher.hpp"
#include "runtime/table_room.hpp"
#include "service/asked_chunks.hpp"
#include "service/service.hpp"
#include "service/windows.hpp"
#include "settings/log_lines.hpp"
#include "store/block_reader.hpp"
#include "penstock/runtime.hpp"

namespace penstock::host {

// What a test may put in place of the real thing.
struct runtime_hooks {
    environment* env = nullptr;          // null: the operating system
    hub* shared = nullptr;               // null: the one of the process
    page_lender* lender = nullptr;       // of pages to reads of programs; null: the device
    direct_storage* direct = nullptr;    // null: cuFile of the process, on a GPU
    std::size_t max_handles = 0;         // 0: from the process's limit
    std::uint32_t ring_slots = 0;        // a power of two; 0: from staging_bytes
    std::uint32_t rings_per_thread = 0;  // 0: one on CPU threads, several on a GPU
    // For kernels too. The host would be killed by a file that shrinks under a window; tests know
    // theirs.
    bool windows_on_cpu = false;
    bool no_doorbells = false;  // service threads find requests by looking, as they must on a GPU
    std::uint64_t beat_ns = 20'000'000;
    std::uint64_t frame_copy_wait_ns = 0;  // for a copy from frames of a buffer; 0: the usual time
    std::uint64_t drain_ns = 0;            // for reads under way at the end; 0: the usual time
    std::uint64_t thread_retry_ns = 5'000'000'000;  // after the system refused a helper thread
    // Of blocks between nodes; without it a store is an agent. The settings are changed in place.
    block_reader::store_maker make_store;
    std::function<void(block_settings&)> set_blocks;
    // Pages of closed files that were written stay valid, also of files larger than the cache.
    bool keeps_large_files = false;
};

// A word for every 2 MiB of all files that have windows at a time: 2 TiB.
inline constexpr std::uint64_t window_chunk_words = std::uint64_t{1} << 20;

// cpu: windows for rows of tables. Threads of a program call `read` and views wherever they like,
// and each copy through a window must be a visit, so the view that they have knows no windows.
struct row_windows {
    engine::cache_view view{};  // with the words of these windows
    window_visits visits;
    std::shared_ptr<window_runs> runs;
    std::unique_ptr<window_set> set;  // null: there are none
};

// Of device memory; false: there is not enough.
template <typename T>
bool allocate(cache_device& device, T*& out, std::uint64_t count) {
    out = static_cast<T*>(device.allocate_device(count * sizeof(T)));
    return out != nullptr;
}

// Of a ring, which several service threads may take from: no two in a line of the processor's
// cache.
struct alignas(64) ring_head {
    std::uint64_t next_ticket = 0;
};

// Rings in all, and slots of each.
struct ring_shape {
    std::uint32_t rings, slots;
};

struct runtime_state {
    const process_owner owner{};     // a child of fork() has neither the threads nor the device
    std::uint32_t device_index = 0;  // the place of `device` among those of the runtime
    std::uint32_t device_count = 1;  // how many the runtime has
    // The runtime's first device, which is made first and ends last; null: this one.
    const runtime_state* first_device = nullptr;
    options settings;
    runtime_hooks hooks;
    std::unique_ptr<cache_device> device;
    runtime_ref ref{};
    // The view at an address that groups reach, for iterators, which are too small to hold it.
    const engine::cache_view* resident_view = nullptr;
    engine::control_block* control = nullptr;
    std::uint64_t* tier_done_marks = nullptr;
    std::vector<std::unique_ptr<host_doorbell>> doorbells;
    std::unique_ptr<file_registry> files;
    std::unique_ptr<process_links> share;          // null: no other process reads this cache
    std::shared_ptr<window_runs> runs_of_windows;  // as of all devices
    std::unique_ptr<window_set> windows;           // null: the cpu back end reads its files itself
    row_windows windows_of_rows;
    std::unique_ptr<asked_chunks> asked;   // null: there are no windows
    std::shared_ptr<block_reader> blocks;  // of all devices; null: there is no store of blocks
    table_room tables;
    std::shared_ptr<write_error_log> write_errors;
    std::vector<ring_head> heads;
    std::vector<host_ring> all_rings;
    std::shared_ptr<idle_watch> watch;   // of the service threads
    std::unique_ptr<service_crew> crew;  // its helpers are made by the monitor
    std::vector<std::unique_ptr<service>> services, helpers;
    std::vector<std::uint64_t> seen_rounds;  // of the monitor, for each thread
    // Null: no other program reads the statistics. Made before the monitor, which looks after it.
    std::unique_ptr<statistics_publisher> published;
    std::unique_ptr<deleted_files> deleted;  // of the monitor
    std::unique_ptr<cached_reads> reads;     // for programs; from when the runtime is made
    std::atomic<bool> register_refusal_said{false}, uring_refusal_said{false};

    // Of all devices of the runtime, and of its regions and pieces, which may outlive it.
    std::shared_ptr<penstock::settings::log_lines> log;
    std::mutex health_mutex;
    status broken;  // guarded by health_mutex; sticky

    // Monitor thread: heartbeat, signals, dead services, device faults.
    std::mutex monitor_mutex;
    std::condition_variable monitor_wake;
    bool monitor_stop = false, monitor_called = false;  // guarded by monitor_mutex
    std::thread monitor;

    ~runtime_state();

    // Steps of creation, in order; each returns what went wrong and the cure.
    status choose_device();
    status settle_sizes();
    void settle_threads(unsigned processors);
    [[nodiscard]] status check_memory() const;  // of the device: do frames and page tables fit?
    // The parts of build_cache(), in this order.
    void shape_cache();
    status allocate_cache();
    bool place_frames();  // in memory of the caller, or of the device
    // What neighbours read. Of other processes too if there is a share name.
    template <typename T>
    bool allocate_readable(T*& out, std::uint64_t count) {
        out =
            static_cast<T*>(settings.share.empty() ? device->allocate_device(count * sizeof(T))
                                                   : device->allocate_shareable(count * sizeof(T)));
        return out != nullptr;
    }
    status build_control();
    status build_cache();
    // Of a life of a file slot: does the device have it, and no group the file open?
    [[nodiscard]] bool is_closed(const slot_life& of);
    std::uint64_t path_units() const { return std::uint64_t{settings.max_files} * 16; }
    // On CPU threads a large file of small pages has leaves: rows that come from windows leave no
    // page in the cache, and then one word of the directory says so for many pages. With larger
    // pages there are few page words, and a directory would make a hit a tenth slower.
    std::uint64_t flat_pages() const {
        return device->is_gpu() || settings.page_bytes >= 4096
                   ? UINT64_MAX
                   : std::uint64_t{1} << ref.view.leaf_shift;
    }
    bool has_windows() const { return device->is_gpu() || hooks.windows_on_cpu; }
    status build_windows();
    status build_tier();
    [[nodiscard]] ring_shape shape_of_rings(std::uint64_t stride) const;
    status build_rings();
    // What a service thread is to know in order to register memory with io_uring.
    void let_register(service_settings& of_service, const std::vector<host_ring>& rings);
    void build_blocks();
    status build_services(const std::vector<std::vector<host_ring>>& rings_of_thread);
    void say_reads_with_pread(const std::string& why);
    std::unique_ptr<io_engine> make_queue(bool want_uring, const std::vector<host_ring>& rings,
                                          std::string& why);
    [[nodiscard]] service_settings settings_of_service();
    void build_crew();
    // By the monitor.
    void make_helper(bool for_stall);
    void look_at_threads();
    void make_wished_helpers();
    // Calls use(service, is_helper) for all service threads that were made.
    template <typename Use>
    void for_each_thread(const Use& use) const {
        for (const auto& each : services) use(*each, false);
        const std::uint32_t made = crew != nullptr ? crew->made() : 0;
        for (std::uint32_t i = 0; i < made; ++i) use(*helpers[i], true);
    }
    status start_services();
    void end_services();
    status place_view();  // once the view is complete

    // Before the threads stop: what was written goes to its files; what cannot is named in the log.
    void write_back_all();
    // The same of files that are open, while groups use the runtime. The first error. `left` names
    // the files that have changed pages all the same: of calls that write meanwhile, and of files
    // whose close failed.
    status write_back_open_files(std::vector<std::string>& left);
    // Windows of an open file: how many bytes of the range lie in them then, or a negative errno.
    std::int64_t open_windows(window_set& set, int fd, std::uint64_t offset, std::uint64_t bytes,
                              const void* owner);
    // Takes the chunks, in order, into windows where they are resident and their files open.
    // Returns how many bytes, or the first error if no file could be looked at. `completes`: chunks
    // of which half is resident are asked for, and noted for the next growth.
    std::int64_t grow_windows(window_set& set, const std::vector<asked_chunks::chunk>& chunks,
                              const void* owner, bool completes);
    [[nodiscard]] page_lender& lender() const {
        return hooks.lender != nullptr ? *hooks.lender : device->lender();
    }
    void monitor_loop();
    // How long the monitor may wait now. It must come soon where files with windows may be changed
    // by other programs, or where a service thread works or has died.
    [[nodiscard]] std::uint64_t next_beat_ns() const;
    [[nodiscard]] bool is_at_rest() const;
    // Groups wake service threads: as those of CPU threads do, and those of a GPU cannot.
    [[nodiscard]] bool posters_ring() const { return doorbells.front() != nullptr; }
    void call_monitor();  // has it look at once
    // The host does something to the device, or hands the runtime to a kernel: requests may come.
    void expect_requests() const {
        if (watch != nullptr && watch->is_rare() && owner.here()) watch->expect();
    }
    void look_after();
    void say(const std::string& line) const;
    // "GPU 1: " or "cache 1: " before messages of one of several devices, else nothing.
    [[nodiscard]] std::string label() const;
    [[nodiscard]] status labelled(const status& s) const {
        return s.ok() ? s : status{s.code, label() + s.message};
    }
    // Of this device, as runtime has them for all.
    [[nodiscard]] status health();
    [[nodiscard]] status view_status();
    void clear_view_status();
    [[nodiscard]] statistics stats() const;
    // False: the device does not answer, and what it counted is missing in `out`.
    bool count(statistics& out) const;
    void publish_statistics();
    mutable std::atomic<std::uint64_t> request_loads{0};  // the most that count() has found
    // True: it was whole before.
    bool break_with(int code, const char* message);
    // After the device was lost: the files that were being written, a line each.
    void say_what_is_lost();
    // Every wait on the device ends with this code from now on; 0 lets waits go on.
    void set_abort(std::int64_t code);
    // By an interrupt: every wait ends, but for those of the last write-back, which end by
    // themselves. A second signal has its usual effect on the program.
    void cancel_waits();
    void begin_last_write_back();
    bool last_write_back = false;  // guarded by health_mutex, as what is stored for it
    std::atomic<bool> interrupted{false};
    // Copies the abort word to device memory, for groups that wait for nothing. By the monitor with
    // each beat, and when waits go on.
    void tell_stop();
    std::int64_t* device_stop = nullptr;  // of a gpu
    std::mutex stop_mutex;
    std::int64_t told_stop = 0;  // guarded by stop_mutex

    // Of a gpu: for each launch under way, how many of its groups have begun (penstock/launch.hpp).
    status build_launch_counts();
    std::mutex launch_mutex;
    std::vector<launch_count*> free_launch_counts;  // guarded by launch_mutex
};

// A call of the host: at once -ECHILD in a child of fork(), and no exception leaves it.
template <typename Call>
auto checked(const runtime_state& state, const Call& call) -> decltype(call()) {
    if (!state.owner.here()) return -ECHILD;
    state.expect_requests();
    try {
        return call();
    } catch (...) {
        return status_of_exception("").code;
    }
}

// Of a call that every device does a part of: the least of the counts, or the first error.
class least_of_devices {
public:
    void add(std::int64_t result) {
        if (result < 0 && first_error_ == 0) first_error_ = result;
        least_ = std::min(least_, result);
    }
    [[nodiscard]] std::int64_t result() const { return first_error_ != 0 ? first_error_ : least_; }

private:
    std::int64_t least_ = INT64_MAX, first_error_ = 0;
};

// Of a runtime whose memory is there, until it is destroyed: in a child of fork() every wait on its
// copy ends with -ECHILD.
void watch_forks(runtime_state& made);
// No fork begins while the lock is held. For what a fork looks at: `share`.
std::unique_lock<std::mutex> between_forks();

}  // namespace penstock::host
