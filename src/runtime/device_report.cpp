// What a runtime tells about one of its devices: its health, the first error of its views, its
// statistics.
#include <algorithm>
#include <atomic>
#include <vector>

#include "runtime/runtime_state.hpp"
#include "settings/tables.hpp"

namespace penstock::host {

std::string runtime_state::label() const {
    if (device_count == 1 || settings.where == backend::automatic) return {};
    return settings.where == backend::gpu ? "GPU " + std::to_string(settings.device) + ": "
                                          : "cache " + std::to_string(device_index) + ": ";
}

status runtime_state::health() {
    look_after();
    std::lock_guard lock(health_mutex);
    return broken;
}

status runtime_state::view_status() {
    engine::fault_record fault{};
    if (device->download(&fault, ref.view.fault, sizeof fault) != 0) return health();
    if (fault.claimed == 0) return {};
    const std::string path =
        files->path_of(fault.slot, static_cast<std::uint32_t>(fault.generation));
    const std::string subject = fault.is_row != 0
                                    ? "row " + std::to_string(fault.row)
                                    : "element at byte " + std::to_string(fault.offset);
    return {static_cast<int>(fault.code), (path.empty() ? "a file that is not open" : path) + ": " +
                                              subject + ": " + error_text(fault.code)};
}

void runtime_state::clear_view_status() {
    const engine::fault_record none{};
    device->upload(ref.view.fault, &none, sizeof none);
}

namespace {

// The kinds of loads are counted one after the other, so a difference of them may be too small for
// a moment. Relaxed: nothing else is read by it.
std::uint64_t most_so_far(std::atomic<std::uint64_t>& most, std::uint64_t value) {
    std::uint64_t before = most.load(std::memory_order_relaxed);
    while (before < value &&
           !most.compare_exchange_weak(before, value, std::memory_order_relaxed)) {
    }
    return std::max(before, value);
}

void add_counters(statistics& out, const service_counters& from) {
    out.file_writes += from.file_writes.writes.load(std::memory_order_relaxed);
    out.file_write_bytes += from.file_writes.bytes.load(std::memory_order_relaxed);
    out.file_write_errors += from.file_writes.errors.load(std::memory_order_relaxed);
    out.file_syncs += from.file_syncs.load(std::memory_order_relaxed);
    out.buffer_loads += from.buffer_loads.load(std::memory_order_relaxed);
    out.buffer_device_loads += from.buffer_device_loads.load(std::memory_order_relaxed);
    out.file_reads += from.file_reads.load(std::memory_order_relaxed);
    out.file_read_bytes += from.file_read_bytes.load(std::memory_order_relaxed);
    out.file_read_errors += from.file_read_errors.load(std::memory_order_relaxed);
    out.direct_reads += from.direct_reads.load(std::memory_order_relaxed);
    out.registered_reads += from.registered_reads.load(std::memory_order_relaxed);
    out.wishes += from.wishes.load(std::memory_order_relaxed);
    out.wishes_dropped += from.wishes_dropped.load(std::memory_order_relaxed);
    out.bad_requests += from.bad_requests.load(std::memory_order_relaxed);
    out.batches += from.batches.load(std::memory_order_relaxed);
    for (std::size_t i = 0; i < out.batch_size.size(); ++i)
        out.batch_size[i] += from.batch_size[i].load(std::memory_order_relaxed);
}

void add_counters(statistics& out, const block_reader& from) {
    const block_counters& all = from.counters();
    out.store_hits += all.hits.load(std::memory_order_relaxed);
    out.store_misses += all.misses.load(std::memory_order_relaxed);
    out.store_errors += all.errors.load(std::memory_order_relaxed);
    out.store_bad_blocks += all.bad.load(std::memory_order_relaxed);
    out.store_bytes += all.bytes.load(std::memory_order_relaxed);
    out.store_puts += all.puts.load(std::memory_order_relaxed);
    out.store_pauses += all.pauses.load(std::memory_order_relaxed);
    out.store_is_paused += from.is_paused() ? 1 : 0;
    out.file_reads += all.file_reads.load(std::memory_order_relaxed);
    out.file_read_bytes += all.file_read_bytes.load(std::memory_order_relaxed);
}

}  // namespace

statistics runtime_state::stats() const {
    statistics out;
    count(out);
    return out;
}

bool runtime_state::count(statistics& out) const {
    const engine::cache_view& c = ref.view;
    std::vector<engine::counter_shard> shards(c.counter_shards);
    std::vector<std::uint32_t> hands(std::size_t{c.clock_shards} * engine::clock_hand_stride);
    const bool answers =
        device->download(shards.data(), c.counters,
                         shards.size() * sizeof(engine::counter_shard)) == 0 &&
        device->download(hands.data(), c.clock_hands, hands.size() * sizeof hands[0]) == 0;
    std::uint64_t sum[engine::count_kinds] = {};
    for (const engine::counter_shard& shard : shards) {
        for (std::uint32_t i = 0; i < engine::count_kinds; ++i) sum[i] += shard.count[i];
        for (std::uint32_t i = 0; i < engine::latency_buckets; ++i)
            out.latency_ns[i] += shard.latency[i];
    }
    for (const settings::statistic_entry& entry : settings::statistic_entries())
        if (entry.counter != engine::count_kinds) out.*entry.member = sum[entry.counter];
    for (std::uint32_t i = 0; i < c.clock_shards; ++i)
        out.resident_pages += std::min(hands[std::size_t{i} * engine::clock_hand_stride + 1],
                                       c.frame_count / c.clock_shards);
    out.request_loads = most_so_far(
        request_loads,
        out.misses - std::min(out.misses, out.window_loads + out.neighbour_loads + out.tier_loads));
    out.device_bytes = device->allocated_bytes();
    for (window_set* const set : {windows.get(), windows_of_rows.set.get()})
        if (set != nullptr) out.window_bytes += set->open_bytes();
    for_each_thread([&](const service& each, bool) {
        add_counters(out, each.counters());
        ++out.service_threads;
    });
    out.helpers_for_backlog = crew->for_backlog();
    out.helpers_for_stalls = crew->for_stalls();
    out.kept_files = files->kept_files();
    if (first_device == nullptr && blocks != nullptr) add_counters(out, *blocks);
    return answers;
}

void runtime_state::publish_statistics() {
    published = std::make_unique<statistics_publisher>();
    const auto take = [this](published_statistics& out) {
        out.counted = {};
        if (!count(out.counted)) return false;
        out.page_bytes = settings.page_bytes;
        out.cache_pages = ref.view.frame_count;
        out.device_index = device_index;
        out.device_number = static_cast<std::uint64_t>(settings.device);
        out.is_gpu = device->is_gpu() ? 1 : 0;
        return true;
    };
    const int code = published->start(take);
    if (code == 0) return;
    published.reset();
    if (first_device == nullptr)
        say("statistics: no other program can read them: " + error_text(code) +
            "; PENSTOCK_STATISTICS=off leaves it out");
}

}  // namespace penstock::host
