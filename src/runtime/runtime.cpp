// The public face of the runtime.
#include "penstock/runtime.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "os/came_signal.hpp"
#include "os/exceptions.hpp"
#include "runtime/device_links.hpp"
#include "runtime/runtime_state.hpp"
#include "settings/tables.hpp"

namespace penstock {

status runtime::make(const options& settings, std::unique_ptr<runtime>& out) {
    return make(settings, host::runtime_hooks{}, out);
}

namespace {

using runtime_states = std::vector<std::unique_ptr<host::runtime_state>>;

runtime_states states_for(const options& settings, const host::runtime_hooks& hooks) {
    std::vector<int> devices = settings.devices;
    if (devices.empty()) devices.push_back(settings.device);
    runtime_states out;
    for (const int device : devices) {
        out.push_back(std::make_unique<host::runtime_state>());
        host::runtime_state& state = *out.back();
        state.settings = settings;
        state.settings.device = device;
        state.hooks = hooks;
        if (state.hooks.env == nullptr) state.hooks.env = &host::linux_environment();
        if (state.hooks.shared == nullptr) state.hooks.shared = &host::hub::of_process();
        state.device_index = state.ref.device = static_cast<std::uint32_t>(out.size() - 1);
        state.device_count = static_cast<std::uint32_t>(devices.size());
        state.log =
            out.size() > 1 ? out.front()->log : std::make_shared<settings::log_lines>(settings.log);
        if (out.size() > 1) state.first_device = out.front().get();
    }
    return out;
}

// All devices are GPUs or all are CPU threads, and the log says once why they are the latter.
status choose_devices(const runtime_states& states) {
    const host::runtime_state& first = *states.front();
    for (std::size_t i = 0; i < states.size(); ++i) {
        host::runtime_state& state = *states[i];
        if (first.settings.where == backend::cpu) state.settings.where = backend::cpu;
        if (status s = state.choose_device(); !s) return s;
        if (state.settings.where == first.settings.where) continue;
        for (std::size_t before = 0; before < i; ++before) {
            states[before]->device.reset();
            states[before]->settings.where = backend::cpu;
            if (status s = states[before]->choose_device(); !s) return s;
        }
    }
    return first.settings.where == backend::gpu ? settings::check_distinct(first.settings.devices)
                                                : status{};
}

}  // namespace

status runtime::make(const options& settings, const host::runtime_hooks& hooks,
                     std::unique_ptr<runtime>& out) try {
    out.reset();
    if (status s = settings.check(); !s) return s;
    std::unique_ptr<runtime> made(new runtime(states_for(settings, hooks)));
    if (status s = choose_devices(made->states_); !s) return s;
    using step = status (host::runtime_state::*)();
    for (const auto& state : made->states_)
        for (const step next :
             {&host::runtime_state::settle_sizes, &host::runtime_state::build_cache,
              &host::runtime_state::build_rings})
            if (status s = (state.get()->*next)(); !s) return state->labelled(s);
    made->links_ = host::link_caches(made->states_);
    // Before there is a socket: a child that kept one would stand for a process that has ended.
    for (const auto& state : made->states_) host::watch_forks(*state);
    for (const auto& state : made->states_) host::share_cache(*state);
    for (const auto& state : made->states_)
        if (status s = state->start_services(); !s) return state->labelled(s);
    out = std::move(made);
    return {};
} catch (...) {
    return host::status_of_exception("runtime: ");
}

runtime::runtime(std::vector<std::unique_ptr<host::runtime_state>> states)
    : states_(std::move(states)) {}

// Also of a runtime of which some devices could not be made.
runtime::~runtime() {
    if (!state().owner.here()) {
        for (auto& inherited : states_) host::abandon(std::move(inherited));
        if (links_ != nullptr) host::abandon(std::move(links_));
        return;
    }
    if (links_ != nullptr) host::unlink_caches(*links_, states_);
    for (const auto& state : states_) host::end_sharing(*state);
    // The devices end, the last one first.
    while (!states_.empty()) states_.pop_back();
}

namespace {

status not_here() {
    return {-ECHILD,
            "the runtime belongs to the parent of this process; make one of the child's own after "
            "fork()"};
}

}  // namespace

std::uint32_t runtime::device_count() const { return static_cast<std::uint32_t>(states_.size()); }
host::runtime_state& runtime::state(std::uint32_t device) const {
    PENSTOCK_ASSERT(device < states_.size());
    return *states_[device];
}
runtime_ref runtime::ref(std::uint32_t device) const {
    const host::runtime_state& of = state(device);
    of.expect_requests();
    return of.ref;
}
backend runtime::where() const { return state().settings.where; }
const options& runtime::settings(std::uint32_t device) const { return state(device).settings; }
std::string runtime::device_name(std::uint32_t device) const {
    return state(device).device->name();
}
const char* runtime::io_name() const { return state().services[0]->io_name(); }
bool runtime::is_shared() const { return state().share != nullptr; }
std::size_t runtime::linked_processes() const {
    return process_code() != 0 || !is_shared() ? 0 : state().share->linked_processes();
}
int runtime::process_code() const { return state().owner.here() ? 0 : -ECHILD; }

int runtime::open(const std::string& path, int flags) {
    if (flags < 0 || !engine::sound_flags(static_cast<std::uint32_t>(flags))) return -EINVAL;
    return host::checked(state(), [&] {
        if (const int code = allow_on_all(path, flags); code != 0) return code;
        const int fd = open_allowed(0, path, flags);
        take_back_new(path, flags, fd);
        return fd;
    });
}
int runtime::close(int fd) {
    return host::checked(state(), [&] { return state().device->close(state().ref, fd); });
}
std::int64_t runtime::read(cursor& at, void* buffer, std::int64_t bytes) {
    const std::int64_t done =
        read(at.fd, buffer, bytes, static_cast<std::int64_t>(at.offset_bytes));
    if (done > 0) at.offset_bytes += static_cast<std::uint64_t>(done);
    return done;
}
int runtime::msync(int fd, std::int64_t offset, std::int64_t bytes) {
    return host::checked(state(),
                         [&] { return state().device->msync(state().ref, fd, offset, bytes); });
}
// read, write, append, prefetch, advise, stat, fsync, truncate
#define PENSTOCK_ASK_DEVICE(Result, verb, parameters, names)                                     \
    Result runtime::verb(int fd PENSTOCK_REST parameters) {                                      \
        return host::checked(                                                                    \
            state(), [&] { return state().device->verb(state().ref, fd PENSTOCK_REST names); }); \
    }
PENSTOCK_FILE_VERBS(PENSTOCK_ASK_DEVICE)
#undef PENSTOCK_ASK_DEVICE
// The first device's registry changes the names, and the others keep their open files beside it.
int runtime::unlink(const std::string& path) {
    return host::checked(state(), [&] {
        for (std::size_t i = 1; i < states_.size(); ++i) states_[i]->files->before_name_goes(path);
        std::string gone;
        if (const int code = state().files->unlink(path, false, &gone); code != 0) return code;
        for (std::size_t i = 1; i < states_.size(); ++i) states_[i]->files->after_unlink(gone);
        return forget(path);
    });
}
int runtime::rename(const std::string& from, const std::string& to) {
    return host::checked(state(), [&] {
        for (std::size_t i = 1; i < states_.size(); ++i) states_[i]->files->before_name_goes(to);
        host::file_registry::renamed_file done;
        if (const int code = state().files->rename(from, to, false, &done); code != 0) return code;
        for (std::size_t i = 1; i < states_.size(); ++i) states_[i]->files->after_rename(done);
        const int forgotten = forget(from), also = forget(to);
        return forgotten != 0 ? forgotten : also;
    });
}
int runtime::forget(const std::string& path) {
    int first = 0;
    for (const auto& state : states_)
        if (const int code = state->device->forget(state->ref, path.c_str()); first == 0)
            first = code;
    return first;
}
mapping runtime::map(int fd, std::int64_t offset, std::int64_t bytes) {
    if (const int code = process_code(); code != 0) return {nullptr, code, engine::no_word, 0};
    if (state().device->is_gpu()) return {nullptr, -EOPNOTSUPP, engine::no_word, 0};
    return penstock::map(lane{}, state().ref, fd, offset, bytes);
}
int runtime::unmap(const mapping& mapped) {
    if (const int code = process_code(); code != 0) return code;
    if (state().device->is_gpu()) return -EOPNOTSUPP;
    return penstock::unmap(lane{}, state().ref, mapped);
}

std::int64_t runtime::grow_windows() {
    return host::checked(state(), [&]() -> std::int64_t {
        if (state().windows == nullptr) return -EOPNOTSUPP;  // the devices are of one kind
        const auto all = [](const host::asked_chunks::chunk&) { return true; };
        host::least_of_devices least;
        for (const auto& state : states_)
            least.add(state->grow_windows(*state->windows, state->asked->take(all), nullptr, true));
        return least.result();
    });
}

void runtime::close_windows() {
    if (process_code() != 0) return;
    for (const auto& state : states_)
        for (host::window_set* const set : {state->windows.get(), state->windows_of_rows.set.get()})
            if (set != nullptr) set->close_all();
}

int runtime::allow(const std::string& path) {
    return host::checked(state(), [&] { return allow_on_all(path, open_read); });
}

void runtime::interrupt() {
    if (process_code() != 0) return;
    for (const auto& state : states_) {
        state->interrupted.store(true);
        state->cancel_waits();
        state->call_monitor();  // which tells groups of a GPU
    }
}

void runtime::resume() {
    if (process_code() != 0) return;
    for (const auto& state : states_) {
        {
            std::lock_guard lock(state->health_mutex);
            state->set_abort(state->broken.code);
            if (!was_interrupted()) state->interrupted.store(false);
        }
        state->tell_stop();
    }
}

status runtime::health() const {
    if (process_code() != 0) return not_here();
    for (const auto& state : states_)
        if (status s = state->health(); !s) return state->labelled(s);
    return {};
}

status runtime::health(std::uint32_t device) const {
    return process_code() != 0 ? not_here() : state(device).labelled(state(device).health());
}

status runtime::view_status() const try {
    if (process_code() != 0) return not_here();
    for (const auto& state : states_)
        if (status s = state->view_status(); !s) return state->labelled(s);
    return {};
} catch (...) {
    return host::status_of_exception("view_status: ");
}

void runtime::clear_view_status() {
    if (process_code() != 0) return;
    for (const auto& state : states_) state->clear_view_status();
}

status runtime::write_status() const {
    if (process_code() != 0) return not_here();
    for (const auto& state : states_)
        if (status s = state->write_errors->first(); !s) return state->labelled(s);
    return {};
}
void runtime::clear_write_status() {
    if (process_code() != 0) return;
    for (const auto& state : states_) state->write_errors->clear();
}

statistics runtime::stats() const {
    statistics out;
    if (process_code() != 0) return out;
    for (const auto& state : states_) settings::add(out, state->stats());
    out.window_bytes = 0;  // the devices share the memory
    for (host::window_runs* const runs :
         {state().runs_of_windows.get(), state().windows_of_rows.runs.get()})
        if (runs != nullptr) out.window_bytes += runs->exposed_bytes();
    out.store_is_paused = std::min<std::uint64_t>(out.store_is_paused, 1);  // for each, or for some
    return out;
}

statistics runtime::stats(std::uint32_t device) const {
    return process_code() != 0 ? statistics{} : state(device).stats();
}

launch_count* runtime::take_launch_count(std::uint32_t device) {
    if (process_code() != 0) return nullptr;
    host::runtime_state& state = this->state(device);
    const std::lock_guard lock(state.launch_mutex);
    if (state.free_launch_counts.empty()) return nullptr;
    launch_count* const words = state.free_launch_counts.back();
    state.free_launch_counts.pop_back();
    return words;
}

void runtime::give_back(launch_count* words, std::uint32_t device) {
    if (process_code() != 0) return;
    host::runtime_state& state = this->state(device);
    const std::lock_guard lock(state.launch_mutex);
    state.free_launch_counts.push_back(words);
}

int runtime::run_on_workers(const std::function<void(std::uint32_t, std::uint32_t)>& body) {
    if (const int code = process_code(); code != 0) return code;
    const std::uint32_t workers = *state().settings.worker_threads;
    std::mutex mutex;
    std::exception_ptr thrown;  // guarded by mutex; the first
    const auto work = [&](std::uint32_t worker) {
        try {
            body(worker, workers);
        } catch (...) {
            const std::lock_guard lock(mutex);
            if (thrown == nullptr) thrown = std::current_exception();
        }
    };
    std::vector<std::thread> threads;
    std::uint32_t made = 0;
    try {
        threads.reserve(workers);
        for (; made < workers; ++made) threads.emplace_back(work, made);
    } catch (const std::exception&) {  // no more threads or memory: the caller does their part
    }
    for (std::uint32_t i = made; i < workers; ++i) work(i);
    for (std::thread& thread : threads) thread.join();
    if (thrown != nullptr) std::rethrow_exception(thrown);
    return 0;
}

int runtime::run_on_devices(const std::function<int(std::uint32_t)>& body) try {
    if (const int code = process_code(); code != 0) return code;
    std::vector<int> codes(device_count());
    const auto work = [&](std::uint32_t device) {
        try {
            codes[device] = body(device);
        } catch (...) {
            codes[device] = host::status_of_exception("").code;
        }
    };
    std::vector<std::thread> threads;
    try {
        threads.reserve(device_count());
        for (std::uint32_t i = 1; i < device_count(); ++i) threads.emplace_back(work, i);
    } catch (const std::exception&) {  // no more threads: the others do their part
    }
    work(0);
    for (std::thread& thread : threads) thread.join();
    for (const int code : codes)
        if (code != 0) return code;
    return 0;
} catch (...) {
    return host::status_of_exception("").code;
}

namespace {

// SIGINT and SIGTERM become an interrupt of every runtime. The handler only sets a flag; each
// runtime's monitor thread looks at it with every heartbeat.
void on_signal(int number) {
    if (!host::signal_came.exchange(true, std::memory_order_relaxed)) return;
    // The other of the two came before.
    std::signal(number, SIG_DFL);
    std::raise(number);
}

}  // namespace

int interrupt_on_signals() {
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second signal kills
    if (sigaction(SIGINT, &action, nullptr) != 0 || sigaction(SIGTERM, &action, nullptr) != 0)
        return -errno;
    return 0;
}

bool was_interrupted() { return host::signal_came.load(std::memory_order_relaxed); }

}  // namespace penstock
