// Building a runtime, step by step. Every step leaves the state so that its destructor undoes what
// was done.
#include "runtime/runtime_state.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <optional>
#include <pthread.h>
#include <sys/resource.h>
#include <thread>

#include "penstock/engine/clock.hpp"
#include "runtime/late_line.hpp"

namespace penstock::host {

namespace {

std::size_t default_handles(bool direct, std::size_t devices) {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return 65536;
    return registry_handles(limit.rlim_cur, direct, devices);
}

constexpr std::uint64_t read_ahead_bytes = 16u << 20;

// Shards of at least 256 frames: fewer would let the pages of one shard be dropped long before
// those of its neighbour.
std::uint32_t shards_for(std::uint64_t frames) {
    return static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>(std::bit_floor(frames / 256), 1, 1024));
}

// Pages that are written back together: 2 MiB of a file, since the operating system takes long for
// each call, but no large part of the cache. 512 KiB and 1 MiB were slower, 4 MiB no faster with
// pages of 64 KiB (bench/results/h200/2026-11-22-write-offers.txt).
std::uint32_t write_behind_shift_for(std::uint32_t page_shift, std::uint64_t frames) {
    constexpr std::uint64_t most_bytes = 2u << 20, most_pages = 512;
    static_assert(most_pages <= engine::most_run_pages);
    const std::uint64_t pages = std::min({most_bytes >> page_shift, most_pages, frames / 4});
    return static_cast<std::uint32_t>(std::bit_width(std::max<std::uint64_t>(pages, 1)) - 1);
}

// 0: all frames may be dirty before anything is written behind.
std::uint32_t write_behind_pages_for(std::uint64_t bytes, std::uint32_t page_shift,
                                     std::uint32_t frames) {
    const std::uint64_t pages = std::max<std::uint64_t>(bytes >> page_shift, 1);
    return pages >= frames ? 0 : static_cast<std::uint32_t>(pages);
}

// What a close leaves to each close that is to come: as many pages as one group has under way at a
// time, so that it brings its part to the file without waiting for a free place, but not much of a
// file of large pages, nor of a small cache.
std::uint32_t close_leaves_pages_for(std::uint32_t page_shift, std::uint64_t frames) {
    constexpr std::uint64_t most_bytes = 4u << 20;
    return static_cast<std::uint32_t>(
        std::max<std::uint64_t>(std::min({std::uint64_t{engine::write_queue::depth},
                                          most_bytes >> page_shift, frames / 32}),
                                1));
}

}  // namespace

namespace {

// The runtimes of this process, held still while it forks.
struct forked_runtimes {
    std::mutex mutex;
    std::vector<runtime_state*> all;
};
forked_runtimes& forked() {
    static auto* const instance = new forked_runtimes;
    return *instance;
}

void hold_for_fork() {
    forked().mutex.lock();
    for (runtime_state* const state : forked().all)
        if (state->share != nullptr) state->share->hold_for_fork();
}
void go_on_after_fork() {
    for (runtime_state* const state : forked().all)
        if (state->share != nullptr) state->share->go_on_after_fork();
    forked().mutex.unlock();
}

// The memory that the child shares with a GPU it does not have. What other processes read must not
// change with the child's copy, and they must see when the parent ends.
void end_waits_of_child() {
    for (runtime_state* const state : forked().all) {
        if (state->settings.where == backend::cpu) state->set_abort(-ECHILD);
        if (state->share == nullptr) continue;
        state->device->part_from_parent();
        state->share->close_in_child();
    }
    forked().all.clear();
    forked().mutex.unlock();
}

}  // namespace

std::unique_lock<std::mutex> between_forks() { return std::unique_lock(forked().mutex); }

void watch_forks(runtime_state& made) {
    static const int watching =
        ::pthread_atfork(hold_for_fork, go_on_after_fork, end_waits_of_child);
    static_cast<void>(watching);
    const std::lock_guard lock(forked().mutex);
    forked().all.push_back(&made);
}

status runtime_state::choose_device() {
    if (settings.where != backend::cpu) {
        status why;
        device = make_gpu_device(settings.device, why);
        const std::string number = std::to_string(settings.device);
        if (device == nullptr && settings.where == backend::gpu)
            return {why.code,
                    why.code == -ENOMEM
                        ? "GPU " + number + ": " + why.message + "; free some of its memory"
                        : "no usable GPU " + number + ": " + why.message +
                              "; take CPU threads (--backend cpu or auto; in Python "
                              "device=\"cpu\" or \"auto\")"};
        if (device == nullptr)
            say("using CPU threads: " + (device_count > 1 ? "GPU " + number + ": " : "") +
                why.message);
    }
    if (device == nullptr) device = make_cpu_device();
    settings.where = device->is_gpu() ? backend::gpu : backend::cpu;
    return {};
}

// How large everything is and how long groups wait, from the settings.
void runtime_state::shape_cache() {
    engine::cache_view& c = ref.view;
    c.page_shift = static_cast<std::uint32_t>(std::countr_zero(settings.page_bytes));
    const std::uint64_t frames = *settings.cache_bytes >> c.page_shift;
    c.clock_shards = shards_for(frames);
    c.frame_count = static_cast<std::uint32_t>(frames / c.clock_shards * c.clock_shards);
    c.word_count = settings.table_bytes / sizeof(engine::page_word);
    c.leaf_shift = static_cast<std::uint32_t>(std::min<std::uint64_t>(
        15, static_cast<std::uint64_t>(std::bit_width(c.word_count / 64)) - 1));
    // As far as a file may grow while it is open: 1 TiB, or what a part of the table has room for.
    c.growth_entries = static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>((std::uint64_t{1} << 40 >> c.page_shift) >> c.leaf_shift, 1,
                                  std::max<std::uint64_t>(c.word_count / 256, 1)));
    c.file_slots = settings.max_files;
    c.number_bits = c.file_slots <= engine::max_file_slots >> engine::descriptor_number_bits
                        ? engine::descriptor_number_bits
                        : 0;
    c.write_behind_shift = write_behind_shift_for(c.page_shift, frames);
    if (!settings.write_behind_bytes)
        settings.write_behind_bytes = std::uint64_t{c.frame_count / 4} << c.page_shift;
    if (settings.writable) c.close_leaves_pages = close_leaves_pages_for(c.page_shift, frames);
    if (settings.writable)
        c.write_behind_pages =
            write_behind_pages_for(*settings.write_behind_bytes, c.page_shift, c.frame_count);
    c.admit_one_in = settings.admit_one_in;
    c.neighbour_places = !settings.share.empty() ? engine::most_neighbours
                         : settings.links        ? device_count - 1
                                                 : 0;
    // Guests are ranked beside it (process_links).
    c.link_rank = settings.share.empty() ? device_index : process_links::own_rank;
    c.name_slots = std::bit_ceil(settings.max_files * 2);
    c.name_lock_count = 1024;
    c.counter_shards = device->is_gpu() ? 1024 : 64;
    c.frame_wait_ns = std::uint64_t{settings.frame_wait_ms} * 1000000;
    c.request_wait_ns = std::uint64_t{settings.request_wait_ms} * 1000000;
    c.look_ns = device->is_gpu() ? 20'000'000 : 1'000'000;
    c.host_wait_ns = std::uint64_t{settings.host_wait_ms} * 1000000;
}

bool runtime_state::place_frames() {
    engine::cache_view& c = ref.view;
    c.frames = static_cast<std::byte*>(settings.cache_memory);
    return c.frames != nullptr ||
           allocate_readable(c.frames, std::uint64_t{c.frame_count} << c.page_shift);
}

status runtime_state::allocate_cache() {
    engine::cache_view& c = ref.view;
    // A search that meets a name slot under change may take the length of one path for another's;
    // it must not run out of the arena before it notices.
    const std::uint64_t path_slack = (engine::max_path_bytes + 7) / 8;
    const bool all =
        place_frames() && allocate_readable(c.words, c.word_count) &&
        allocate(*device, c.frame_words, c.frame_count) &&
        allocate(*device, c.clock_hands,
                 std::uint64_t{c.clock_shards} * engine::clock_hand_stride) &&
        allocate(*device, c.fill_done, 1) && allocate_readable(c.file_words, c.file_slots) &&
        allocate(*device, c.openings, c.file_slots) &&
        allocate(*device, c.file_records, c.file_slots) &&
        allocate(*device, c.names, c.name_slots) &&
        allocate(*device, c.name_locks, c.name_lock_count) &&
        allocate(*device, c.paths, path_units() + path_slack) &&
        allocate(*device, c.retire_hand, 1) && allocate(*device, c.counters, c.counter_shards) &&
        allocate(*device, c.fault, 1) && allocate(*device, c.advice, c.file_slots) &&
        (c.neighbour_places == 0 || (allocate(*device, c.neighbours, c.neighbour_places) &&
                                     allocate(*device, c.neighbour_entries,
                                              std::uint64_t{c.file_slots} * c.neighbour_places))) &&
        (settings.share.empty() || allocate(*device, c.visits, 1)) &&
        (!settings.writable ||
         (allocate_readable(c.writes, c.file_slots) &&
          allocate(*device, c.frame_pages, c.frame_count) &&
          allocate(*device, c.write_locks, c.frame_count) && allocate(*device, c.offered_run, 1) &&
          allocate(*device, c.pristine, c.frame_count) &&
          allocate(*device, c.dirty_bits, (std::uint64_t{c.frame_count} << c.page_shift) / 64))) &&
        (!has_windows() || (allocate(*device, c.windows, c.file_slots) &&
                            allocate(*device, c.window_chunks, window_chunk_words)));
    if (all) return {};
    const std::string cache = settings.cache_memory == nullptr
                                  ? "cache_bytes: " + format_size(*settings.cache_bytes) + ", "
                                  : "";
    return {-ENOMEM, cache + "table_bytes: " + format_size(settings.table_bytes) +
                         " and the tables of " + std::to_string(settings.max_files) +
                         " files could not be allocated on " + device->name() + ": " +
                         device->shortage() + "; give less, or smaller max_files"};
}

status runtime_state::build_control() {
    engine::cache_view& c = ref.view;
    control =
        static_cast<engine::control_block*>(device->allocate_shared(sizeof(engine::control_block)));
    if (control == nullptr)
        return {-ENOMEM, "no host memory for the control block: " + device->shortage() +
                             "; free some memory"};
    control->heartbeat = 1;
    c.control = control;
    c.stop = &control->abort_code;  // where device memory is host memory, the word itself
    if (device->is_gpu()) {
        if (!allocate(*device, device_stop, 1))
            return {-ENOMEM, "no device memory for the abort word on " + device->name() +
                                 "; give less cache_bytes"};
        c.stop = device_stop;
    }
    return {};
}

status runtime_state::build_cache() {
    shape_cache();
    if (const status s = allocate_cache(); !s) return s;
    if (const status s = build_control(); !s) return s;
    const engine::cache_view& c = ref.view;
    const registry_limits limits{
        c.file_slots,
        c.page_shift,
        c.leaf_shift,
        c.word_count,
        path_units(),
        hooks.max_handles != 0
            ? hooks.max_handles
            : default_handles(settings.direct_io != direct_mode::off, device_count),
        settings.direct_io,
        settings.writable,
        c.growth_entries,
        flat_pages(),
        hooks.keeps_large_files ? UINT64_MAX : std::uint64_t{c.frame_count} << c.page_shift,
        settings.trust_times,
        hooks.max_handles != 0 ? SIZE_MAX
                               : default_handles(settings.direct_io != direct_mode::off, 1)};
    files = std::make_unique<file_registry>(*hooks.env, *hooks.shared, limits,
                                            [this](const std::string& line) { say(line); });
    deleted = std::make_unique<deleted_files>(
        *hooks.env, *files, [this](const slot_life& of) { return is_closed(of); });
    if (const status s = build_windows(); !s) return s;
    if (const status s = build_tier(); !s) return s;
    if (device->is_gpu())
        if (const status s = build_launch_counts(); !s) return s;
    return files->set_roots(settings.roots);
}

status runtime_state::build_launch_counts() {
    constexpr std::size_t most_launches = 1024;
    launch_count* words = nullptr;
    if (!allocate(*device, words, most_launches))
        return {-ENOMEM, "1024 counters of launches could not be allocated on " + device->name() +
                             ": " + device->shortage() + "; give less cache_bytes"};
    for (std::size_t i = most_launches; i > 0; --i) free_launch_counts.push_back(words + i - 1);
    return {};
}

status runtime_state::build_tier() {
    engine::cache_view& c = ref.view;
    engine::tier_view& t = c.tier;
    const std::uint64_t frames = settings.tier_bytes >> c.page_shift;
    if (frames == 0) return {};
    t.clock_shards = shards_for(frames);
    t.frame_count = static_cast<std::uint32_t>(frames / t.clock_shards * t.clock_shards);
    const std::uint64_t bytes = std::uint64_t{t.frame_count} << c.page_shift;
    t.frames = static_cast<std::byte*>(device->allocate_shared(bytes));
    tier_done_marks =
        static_cast<std::uint64_t*>(device->allocate_shared(t.frame_count * sizeof(std::uint64_t)));
    t.done_marks = tier_done_marks;
    if (t.frames == nullptr || tier_done_marks == nullptr ||
        !allocate(*device, t.words, c.word_count) ||
        !allocate(*device, t.frame_words, t.frame_count) ||
        !allocate(*device, t.fill_marks, t.frame_count) ||
        !allocate(*device, t.clock_hands,
                  std::uint64_t{t.clock_shards} * engine::clock_hand_stride) ||
        !allocate(*device, t.fill_done, 1))
        return {-ENOMEM, "tier_bytes: " + format_size(settings.tier_bytes) +
                             " of host memory, or its tables, could not be allocated: " +
                             device->shortage() + "; give less, or 0 for none"};
    // No more than an eighth of the tier for one reader, so that several do not drop each other's
    // pages.
    c.read_ahead_pages = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(read_ahead_bytes >> c.page_shift, t.frame_count / 8));
    return {};
}

status runtime_state::start_services() {
    for (auto& service : services) service->start();
    if (settings.publish_statistics) publish_statistics();
    monitor = std::thread([this] {
        pthread_setname_np(pthread_self(), "penstock-beat");
        monitor_loop();
    });
    {
        const late_line translating(device->slow_start(), std::chrono::seconds(2),
                                    [this](const std::string& line) { say(line); });
        if (status s = device->prepare(ref); !s) return s;
    }
    if (status s = place_view(); !s) return s;
    reads = std::make_unique<cached_reads>(
        *hooks.env, *hooks.shared, *files, lender(), ref,
        device->is_gpu() ? std::optional(settings.device) : std::nullopt);
    return {};
}

status runtime_state::place_view() {
    resident_view = &ref.view;
    if (!device->is_gpu()) return {};
    engine::cache_view* copy = nullptr;
    if (!allocate(*device, copy, 1))
        return {-ENOMEM, "no device memory for the view of the cache on " + device->name() + ": " +
                             device->shortage() + "; give less cache_bytes"};
    if (const int code = device->upload(copy, &ref.view, sizeof *copy); code != 0)
        return {code,
                "the view of the cache did not reach " + device->name() + ": " + error_text(code)};
    resident_view = copy;
    return {};
}

void runtime_state::say(const std::string& line) const { log->say(label() + line); }

void runtime_state::write_back_all() {
    const engine::cache_view& c = ref.view;
    if (c.writes == nullptr || files == nullptr || services.empty()) return;
    if (!device->health().ok()) return look_after();  // which has said what is lost
    const std::uint32_t slots = files->used_slots();
    if (slots == 0) return;
    std::vector<engine::write_record> records(slots);
    const auto download = [&] {
        return device->download(records.data(), c.writes, records.size() * sizeof records[0]) == 0;
    };
    if (!download()) {
        look_after();
        return say(
            "the device no longer answers: what was written since the last fsync or close may be "
            "lost");
    }
    bool any = false;
    for (const engine::write_record& record : records) any = any || record.dirty_pages != 0;
    if (!any) return;
    look_after();
    begin_last_write_back();
    tell_stop();
    std::vector<int> codes(slots);
    for (std::uint32_t slot = 0; slot < slots; ++slot)
        if (records[slot].dirty_pages != 0) codes[slot] = device->flush(ref, slot);
    const bool known = download();
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
        if (codes[slot] == 0 && (!known || records[slot].dirty_pages == 0)) continue;
        const std::string path = files->path_in(slot);
        say((path.empty() ? "file slot " + std::to_string(slot) : path) + ": " +
            std::to_string(records[slot].dirty_pages) + " pages of " +
            format_size(settings.page_bytes) +
            " could not be written back and are lost, the first at or after byte " +
            std::to_string(records[slot].error_offset) + ": " +
            error_text(codes[slot] != 0 ? codes[slot] : -EIO));
    }
}

// A reference to each file keeps its slot while its pages are looked for. A file that has none is
// closed, and its last close wrote its pages or failed.
status runtime_state::write_back_open_files(std::vector<std::string>& left) {
    const engine::cache_view& c = ref.view;
    if (c.writes == nullptr || !health().ok()) return {};  // what is lost was said
    const std::uint32_t slots = files->used_slots();
    std::vector<engine::write_record> records(slots);
    std::vector<engine::file_word> words(slots);
    status first;
    const auto name_of = [this](std::uint32_t slot) {
        const std::string path = files->path_in(slot);
        return path.empty() ? "file slot " + std::to_string(slot) : path;
    };
    const auto note = [&](std::uint32_t slot, int code) {
        if (code == 0 || !first.ok()) return;
        first = {code,
                 files->path_in(slot) + ": could not be brought to its file: " + error_text(code)};
    };
    expect_requests();
    if (device->download(records.data(), c.writes, slots * sizeof records[0]) != 0 ||
        device->download(words.data(), c.file_words, slots * sizeof words[0]) != 0)
        return {-EIO, "the device no longer answers"};
    for (std::uint32_t slot = 0; slot < slots; ++slot) {
        engine::write_record& record = records[slot];
        if (record.dirty_pages == 0) continue;
        const int fd = device->duplicate(
            ref, engine::make_descriptor(slot, engine::file_generation(words[slot])));
        const int code = fd < 0 ? 0 : device->flush(ref, slot);
        note(slot, code);
        const bool known = device->download(&record, c.writes + slot, sizeof record) == 0;
        if (code == 0 && (!known || record.dirty_pages != 0)) left.push_back(name_of(slot));
        if (fd >= 0) note(slot, device->close(ref, fd));
    }
    return first;
}

// All begin to end before any is waited for: each may have reads under way that storage does not
// answer.
void runtime_state::end_services() {
    for_each_thread([](service& each, bool) { each.begin_end(); });
    std::optional<late_line> waiting;
    try {
        if (!services.empty())
            waiting.emplace(
                "the end of a runtime waits for reads that storage has not answered, for up to "
                "100 s; see that the disk or the file server answers",
                std::chrono::seconds(2), [this](const std::string& line) { say(line); });
    } catch (...) {  // without a thread or memory for it the line is not said
    }
    helpers.clear();
    services.clear();
}

runtime_state::~runtime_state() {
    {
        const std::lock_guard lock(forked().mutex);
        std::erase(forked().all, this);
    }
    reads.reset();
    if (control != nullptr && monitor.joinable()) write_back_all();
    if (control != nullptr) set_abort(-ECANCELED);
    if (monitor.joinable()) {
        {
            std::lock_guard lock(monitor_mutex);
            monitor_stop = true;
        }
        monitor_wake.notify_one();
        monitor.join();
        // No beat gives a lease back from here on. An open for writing by a service thread, or by
        // another program while the threads end, would wait until the kernel takes it.
        for (window_set* const set : {windows.get(), windows_of_rows.set.get()})
            if (set != nullptr) set->end_leases();
    }
    published.reset();
    deleted.reset();
    end_services();
    blocks.reset();
    windows.reset();
    windows_of_rows.set.reset();
    share.reset();
    device.reset();
    files.reset();
}

}  // namespace penstock::host
