// The monitor thread of a device: heartbeat, signals, dead service threads, faults of the device,
// windows of files that change, files that were deleted. It beats seldom while the runtime rests.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "runtime/runtime_state.hpp"

namespace penstock::host {

namespace {

// A part of a beat. What there is no memory for, the next beat does: an exception that left the
// monitor would end the program.
template <typename Part>
void tried(const Part& part) {
    try {
        part();
    } catch (...) {
    }
}

}  // namespace

void runtime_state::monitor_loop() {
    std::unique_lock lock(monitor_mutex);
    for (bool is_called = false; !monitor_stop;) {
        lock.unlock();
        tried([&] { look_after(); });
        tried([&] {
            if (!is_called) look_at_threads();
            make_wished_helpers();
        });
        tried([&] { tell_stop(); });
        for (window_set* const set : {windows.get(), windows_of_rows.set.get()})
            if (set != nullptr) tried([&] { set->watch(); });
        tried([&] { lender().end_late_loans(); });
        if (published != nullptr) tried([&] { published->look(); });
        tried([&] { deleted->look(); });
        atomic_store<order::relaxed, scope::system>(&control->heartbeat, control->heartbeat + 1);
        lock.lock();
        monitor_wake.wait_for(lock, std::chrono::nanoseconds(next_beat_ns()),
                              [this] { return monitor_stop || monitor_called; });
        is_called = std::exchange(monitor_called, false);
    }
}

// On a GPU threads are asleep between two requests of a kernel too, so there it takes a long time
// without any. A runtime that is busy again has its next beat after the longest time, which is far
// from the patience of its groups; after the longest rest the thread that wakes calls the monitor.
std::uint64_t runtime_state::next_beat_ns() const {
    if (!is_at_rest()) return hooks.beat_ns;
    const std::uint64_t patience_ns = std::uint64_t{settings.host_wait_ms} * 1'000'000;
    const std::uint64_t longest_ns = !posters_ring() && watch->is_rarest()
                                         ? std::min<std::uint64_t>(300'000'000, patience_ns / 3)
                                         : std::min<std::uint64_t>(100'000'000, patience_ns / 9);
    return std::max(hooks.beat_ns, longest_ns);
}

bool runtime_state::is_at_rest() const {
    for (window_set* const set : {windows.get(), windows_of_rows.set.get()})
        if (set != nullptr && set->open_files() != 0) return false;
    bool all_sleep = posters_ring() || watch->is_rare();
    for_each_thread([&](const service& each, bool) {
        all_sleep = all_sleep && each.alive() && each.is_asleep();
    });
    return all_sleep;
}

bool runtime_state::is_closed(const slot_life& of) {
    engine::file_word* const at = &ref.view.file_words[of.slot];
    engine::file_word word = 0;
    // A word of a moment ago will do, since an open that was answered meanwhile is seen elsewhere.
    // On CPU threads sample() would write it.
    if (!device->is_gpu()) word = engine::load_file_relaxed(at);
    else if (device->sample(&word, at, 1) != 0) return false;
    return engine::is_closed(word) && engine::file_generation(word) == of.generation;
}

void runtime_state::call_monitor() {
    {
        const std::lock_guard lock(monitor_mutex);
        monitor_called = true;
    }
    monitor_wake.notify_one();
}

void runtime_state::look_after() {
    if (was_interrupted() && !interrupted.exchange(true)) cancel_waits();
    for_each_thread([this](const service& each, bool) {
        if (!each.alive()) break_with(-ESHUTDOWN, "a service thread died; create a new runtime");
    });
    if (const status device_health = device->health(); !device_health.ok()) {
        if (break_with(device_health.code, device_health.message.c_str())) say_what_is_lost();
    }
}

// Waits end first, whatever there is memory for. Then the next beat says why.
bool runtime_state::break_with(int code, const char* message) {
    {
        std::lock_guard lock(health_mutex);
        if (!broken.ok()) return false;
        set_abort(code);
        broken = {code, message};
    }
    say(message);
    return true;
}

void runtime_state::cancel_waits() {
    const std::lock_guard lock(health_mutex);
    if (!last_write_back) set_abort(-ECANCELED);
}

// An interrupt from before ended the waits of kernels; one that comes later is noted and ends
// nothing. The lock decides which it is: cancel_waits() has stored the word, and it is cleared
// here, or finds the flag and stores nothing. What breaks the runtime ends these waits too.
void runtime_state::begin_last_write_back() {
    const std::lock_guard lock(health_mutex);
    last_write_back = true;
    if (broken.ok()) set_abort(0);
}

// Which bytes were changed only the device knew.
void runtime_state::say_what_is_lost() {
    if (files == nullptr) return;
    for (const written_file& file : files->written_files())
        say("'" + file.path + "' was open for writing: what was written to its bytes (0 to " +
            std::to_string(file.size_bytes) +
            " are in the file) and not brought there by fsync, msync or close is lost; write it "
            "once more");
}

void runtime_state::set_abort(std::int64_t code) {
    atomic_store<order::relaxed, scope::system>(&control->abort_code, code);
}

// A device that does not take it is asked again with the next beat.
void runtime_state::tell_stop() {
    if (device_stop == nullptr) return;
    const std::lock_guard lock(stop_mutex);
    const std::int64_t code = atomic_load<order::relaxed, scope::system>(&control->abort_code);
    if (code != told_stop && device->upload(device_stop, &code, sizeof code) == 0) told_stop = code;
}

}  // namespace penstock::host
