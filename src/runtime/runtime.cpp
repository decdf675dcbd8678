// The public face of the runtime.
#include "penstock/runtime.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <glob.h>
#include <thread>
#include <vector>

#include "os/exceptions.hpp"
#include "runtime/runtime_state.hpp"
#include "settings/tables.hpp"

namespace penstock {

status runtime::make(const options& settings, std::unique_ptr<runtime>& out) {
    return make(settings, host::runtime_hooks{}, out);
}

status runtime::make(const options& settings, const host::runtime_hooks& hooks,
                     std::unique_ptr<runtime>& out) try {
    out.reset();
    if (status s = settings.check(); !s) return s;
    auto state = std::make_unique<host::runtime_state>();
    state->settings = settings;
    state->hooks = hooks;
    if (state->hooks.env == nullptr) state->hooks.env = &host::linux_environment();
    if (state->hooks.shared == nullptr) state->hooks.shared = &host::hub::of_process();
    using step = status (host::runtime_state::*)();
    for (const step next : {&host::runtime_state::choose_device, &host::runtime_state::settle_sizes,
                            &host::runtime_state::build_cache, &host::runtime_state::build_rings,
                            &host::runtime_state::start_services})
        if (status s = (state.get()->*next)(); !s) return s;
    host::watch_forks(*state);
    out.reset(new runtime(std::move(state)));
    return {};
} catch (...) {
    return host::status_of_exception("runtime: ");
}

runtime::runtime(std::unique_ptr<host::runtime_state> state) : state_(std::move(state)) {}
runtime::~runtime() {
    if (!state_->owner.here()) host::abandon(std::move(state_));
}

namespace {

// A call of the host: at once -ECHILD in a child of fork(), and no exception leaves it.
template <typename Call>
auto checked(const host::runtime_state& state, const Call& call) -> decltype(call()) {
    if (!state.owner.here()) return -ECHILD;
    try {
        return call();
    } catch (...) {
        return host::status_of_exception("").code;
    }
}

status not_here() {
    return {-ECHILD,
            "the runtime belongs to the parent of this process; make one of the child's own after "
            "fork()"};
}

}  // namespace

runtime_ref runtime::ref() const { return state_->ref; }
backend runtime::where() const { return state_->settings.where; }
const options& runtime::settings() const { return state_->settings; }
std::string runtime::device_name() const { return state_->device->name(); }
const char* runtime::io_name() const { return state_->services[0]->io_name(); }
int runtime::process_code() const { return state_->owner.here() ? 0 : -ECHILD; }

int runtime::open(const std::string& path, int flags) {
    if (flags < 0 || !engine::sound_flags(static_cast<std::uint32_t>(flags))) return -EINVAL;
    return checked(*state_, [&] {
        const int code = state_->files->allow(path, static_cast<std::uint32_t>(flags));
        // The file was made just now, by this call; the device only has to open it.
        return code != 0 ? code
                         : state_->device->open(state_->ref, path.c_str(), flags & ~open_exclusive);
    });
}
int runtime::close(int fd) {
    return checked(*state_, [&] { return state_->device->close(state_->ref, fd); });
}
std::int64_t runtime::read(cursor& at, void* buffer, std::int64_t bytes) {
    const std::int64_t done =
        read(at.fd, buffer, bytes, static_cast<std::int64_t>(at.offset_bytes));
    if (done > 0) at.offset_bytes += static_cast<std::uint64_t>(done);
    return done;
}
int runtime::msync(int fd, std::int64_t offset, std::int64_t bytes) {
    return checked(*state_, [&] { return state_->device->msync(state_->ref, fd, offset, bytes); });
}
// read, write, append, prefetch, advise, stat, fsync, truncate
#define PENSTOCK_ASK_DEVICE(Result, verb, parameters, names)                                       \
    Result runtime::verb(int fd PENSTOCK_REST parameters) {                                        \
        return checked(*state_,                                                                    \
                       [&] { return state_->device->verb(state_->ref, fd PENSTOCK_REST names); }); \
    }
PENSTOCK_FILE_VERBS(PENSTOCK_ASK_DEVICE)
#undef PENSTOCK_ASK_DEVICE
int runtime::unlink(const std::string& path) {
    return checked(*state_, [&] {
        const int code = state_->files->unlink(path, false);
        return code != 0 ? code : state_->device->forget(state_->ref, path.c_str());
    });
}
int runtime::rename(const std::string& from, const std::string& to) {
    return checked(*state_, [&] {
        if (const int code = state_->files->rename(from, to, false); code != 0) return code;
        const int forgotten = state_->device->forget(state_->ref, from.c_str());
        const int also = state_->device->forget(state_->ref, to.c_str());
        return forgotten != 0 ? forgotten : also;
    });
}
mapping runtime::map(int fd, std::int64_t offset, std::int64_t bytes) {
    if (const int code = process_code(); code != 0) return {nullptr, code, engine::no_word, 0};
    if (state_->device->is_gpu()) return {nullptr, -EOPNOTSUPP, engine::no_word, 0};
    return penstock::map(lane{}, state_->ref, fd, offset, bytes);
}
int runtime::unmap(const mapping& mapped) {
    if (const int code = process_code(); code != 0) return code;
    if (state_->device->is_gpu()) return -EOPNOTSUPP;
    return penstock::unmap(lane{}, state_->ref, mapped);
}

std::int64_t runtime::open_windows(int fd, std::int64_t offset, std::int64_t bytes) {
    if (offset < 0 || bytes < 0) return -EINVAL;
    return checked(*state_, [&]() -> std::int64_t {
        if (state_->windows == nullptr) return -EOPNOTSUPP;
        return state_->open_windows(*state_->windows, fd, static_cast<std::uint64_t>(offset),
                                    static_cast<std::uint64_t>(bytes), nullptr);
    });
}

std::int64_t runtime::open_windows(const std::string& pattern) try {
    if (const int code = process_code(); code != 0) return code;
    if (state_->windows == nullptr) return -EOPNOTSUPP;
    glob_t found{};
    const int globbed = ::glob(pattern.c_str(), 0, nullptr, &found);
    std::int64_t sum = 0, first_error = 0;
    bool any = false;
    for (std::size_t i = 0; globbed == 0 && i < found.gl_pathc; ++i) {
        const int fd = open(found.gl_pathv[i]);
        if (fd == -EISDIR || fd == -EOPNOTSUPP) continue;  // not a regular file
        const std::int64_t inside = fd < 0 ? fd : open_windows(fd);
        if (fd >= 0) close(fd);
        any = any || inside >= 0;
        if (inside > 0) sum += inside;
        if (inside < 0 && first_error == 0) first_error = inside;
    }
    ::globfree(&found);
    if (globbed == GLOB_NOSPACE) return -ENOMEM;
    return any ? sum : first_error != 0 ? first_error : -ENOENT;
} catch (...) {
    return host::status_of_exception("").code;
}

void runtime::close_windows() {
    if (process_code() != 0) return;
    for (host::window_set* const set : {state_->windows.get(), state_->windows_of_rows.set.get()})
        if (set != nullptr) set->close_all();
}

int runtime::allow(const std::string& path) {
    return checked(*state_, [&] { return state_->files->allow(path); });
}

void runtime::interrupt() {
    if (process_code() != 0) return;
    state_->interrupted.store(true);
    state_->set_abort(-ECANCELED);
}

void runtime::resume() {
    if (process_code() != 0) return;
    {
        std::lock_guard lock(state_->health_mutex);
        state_->set_abort(state_->broken.code);
        if (!was_interrupted()) state_->interrupted.store(false);
    }
    state_->tell_stop();
}

status runtime::health() const {
    if (process_code() != 0) return not_here();
    state_->look_after();
    std::lock_guard lock(state_->health_mutex);
    return state_->broken;
}

status runtime::view_status() const try {
    if (process_code() != 0) return not_here();
    engine::fault_record fault{};
    if (state_->device->download(&fault, state_->ref.view.fault, sizeof fault) != 0)
        return health();
    if (fault.claimed == 0) return {};
    const std::string path =
        state_->files->path_of(fault.slot, static_cast<std::uint32_t>(fault.generation));
    const std::string subject = fault.is_row != 0
                                    ? "row " + std::to_string(fault.row)
                                    : "element at byte " + std::to_string(fault.offset);
    return {static_cast<int>(fault.code), (path.empty() ? "a file that is not open" : path) + ": " +
                                              subject + ": " + error_text(fault.code)};
} catch (...) {
    return host::status_of_exception("view_status: ");
}

void runtime::clear_view_status() {
    if (process_code() != 0) return;
    const engine::fault_record none{};
    state_->device->upload(state_->ref.view.fault, &none, sizeof none);
}

status runtime::write_status() const {
    return process_code() != 0 ? not_here() : state_->write_errors->first();
}
void runtime::clear_write_status() {
    if (process_code() == 0) state_->write_errors->clear();
}

statistics runtime::stats() const {
    statistics out;
    if (process_code() != 0) return out;
    const engine::cache_view& c = state_->ref.view;
    std::vector<engine::counter_shard> shards(c.counter_shards);
    state_->device->download(shards.data(), c.counters,
                             shards.size() * sizeof(engine::counter_shard));
    std::uint64_t sum[engine::count_kinds] = {};
    for (const engine::counter_shard& shard : shards) {
        for (std::uint32_t i = 0; i < engine::count_kinds; ++i) sum[i] += shard.count[i];
        for (std::uint32_t i = 0; i < engine::latency_buckets; ++i)
            out.latency_ns[i] += shard.latency[i];
    }
    for (const settings::statistic_entry& entry : settings::statistic_entries())
        if (entry.counter != engine::count_kinds) out.*entry.member = sum[entry.counter];
    out.device_bytes = state_->device->allocated_bytes();
    for (host::window_set* const set : {state_->windows.get(), state_->windows_of_rows.set.get()})
        if (set != nullptr) out.window_bytes += set->open_bytes();
    for (const auto& service : state_->services) {
        const host::service_counters& from = service->counters();
        out.file_writes += from.file_writes.writes.load(std::memory_order_relaxed);
        out.file_write_bytes += from.file_writes.bytes.load(std::memory_order_relaxed);
        out.file_write_errors += from.file_writes.errors.load(std::memory_order_relaxed);
        out.file_syncs += from.file_syncs.load(std::memory_order_relaxed);
        out.file_reads += from.file_reads.load(std::memory_order_relaxed);
        out.file_read_bytes += from.file_read_bytes.load(std::memory_order_relaxed);
        out.file_read_errors += from.file_read_errors.load(std::memory_order_relaxed);
        out.direct_reads += from.direct_reads.load(std::memory_order_relaxed);
        out.registered_reads += from.registered_reads.load(std::memory_order_relaxed);
        out.bad_requests += from.bad_requests.load(std::memory_order_relaxed);
        out.batches += from.batches.load(std::memory_order_relaxed);
        for (std::size_t i = 0; i < out.batch_size.size(); ++i)
            out.batch_size[i] += from.batch_size[i].load(std::memory_order_relaxed);
    }
    return out;
}

launch_count* runtime::take_launch_count() {
    if (process_code() != 0) return nullptr;
    const std::lock_guard lock(state_->launch_mutex);
    if (state_->free_launch_counts.empty()) return nullptr;
    launch_count* const words = state_->free_launch_counts.back();
    state_->free_launch_counts.pop_back();
    return words;
}

void runtime::give_back(launch_count* words) {
    if (process_code() != 0) return;
    const std::lock_guard lock(state_->launch_mutex);
    state_->free_launch_counts.push_back(words);
}

int runtime::run_on_workers(const std::function<void(std::uint32_t, std::uint32_t)>& body) {
    if (const int code = process_code(); code != 0) return code;
    const std::uint32_t workers = *state_->settings.worker_threads;
    std::vector<std::thread> threads;
    std::uint32_t made = 0;
    try {
        threads.reserve(workers);
        for (; made < workers; ++made) threads.emplace_back(body, made, workers);
    } catch (const std::exception&) {  // no more threads or memory: the caller does their part
    }
    for (std::uint32_t i = made; i < workers; ++i) body(i, workers);
    for (std::thread& thread : threads) thread.join();
    return 0;
}

namespace {

// SIGINT and SIGTERM become an interrupt of every runtime. The handler only sets a flag; each
// runtime's monitor thread looks at it with every heartbeat.
std::atomic<bool> signal_came{false};
static_assert(std::atomic<bool>::is_always_lock_free,
              "the handler may only touch lock-free atomics");

void on_signal(int) { signal_came.store(true, std::memory_order_relaxed); }

}  // namespace

int interrupt_on_signals() {
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second signal kills
    if (sigaction(SIGINT, &action, nullptr) != 0 || sigaction(SIGTERM, &action, nullptr) != 0)
        return -errno;
    return 0;
}

bool was_interrupted() { return signal_came.load(std::memory_order_relaxed); }

}  // namespace penstock
