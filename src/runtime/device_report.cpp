// What a runtime tells about one of its devices: its health, the first error of its views, its
// statistics.
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

namespace {

void add_counters(statistics& out, const service_counters& from) {
    out.file_writes += from.file_writes.writes.load(std::memory_order_relaxed);
    out.file_write_bytes += from.file_writes.bytes.load(std::memory_order_relaxed);
    out.file_write_errors += from.file_writes.errors.load(std::memory_order_relaxed);
    out.file_syncs += from.file_syncs.load(std::memory_order_relaxed);
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

}  // namespace

statistics runtime_state::stats() const {
    statistics out;
    const engine::cache_view& c = ref.view;
    std::vector<engine::counter_shard> shards(c.counter_shards);
    device->download(shards.data(), c.counters, shards.size() * sizeof(engine::counter_shard));
    std::uint64_t sum[engine::count_kinds] = {};
    for (const engine::counter_shard& shard : shards) {
        for (std::uint32_t i = 0; i < engine::count_kinds; ++i) sum[i] += shard.count[i];
        for (std::uint32_t i = 0; i < engine::latency_buckets; ++i)
            out.latency_ns[i] += shard.latency[i];
    }
    for (const settings::statistic_entry& entry : settings::statistic_entries())
        if (entry.counter != engine::count_kinds) out.*entry.member = sum[entry.counter];
    out.device_bytes = device->allocated_bytes();
    for (window_set* const set : {windows.get(), windows_of_rows.set.get()})
        if (set != nullptr) out.window_bytes += set->open_bytes();
    for (const auto& service : services) add_counters(out, service->counters());
    out.kept_files = files->kept_files();
    return out;
}

}  // namespace penstock::host
