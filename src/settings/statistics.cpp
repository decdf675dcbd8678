// Statistics: the table of their names, and JSON. Written by hand: the library itself needs no JSON
// package for one flat object.
#include "settings/tables.hpp"

namespace penstock {

namespace settings {

namespace {

constexpr statistic_entry statistics_rows[] = {
    {"hits", &statistics::hits, engine::count_hits},
    {"misses", &statistics::misses, engine::count_misses},
    {"window_loads", &statistics::window_loads, engine::count_window_loads},
    {"through_reads", &statistics::through_reads, engine::count_through_reads},
    {"neighbour_reads", &statistics::neighbour_reads, engine::count_neighbour_reads},
    {"neighbour_loads", &statistics::neighbour_loads, engine::count_neighbour_loads},
    {"neighbour_waits", &statistics::neighbour_waits, engine::count_neighbour_waits},
    {"window_bytes", &statistics::window_bytes},
    {"device_bytes", &statistics::device_bytes},
    {"tier_loads", &statistics::tier_loads, engine::count_tier_loads},
    {"request_loads", &statistics::request_loads},
    {"resident_pages", &statistics::resident_pages},
    {"tier_saves", &statistics::tier_saves, engine::count_tier_saves},
    {"tier_evictions", &statistics::tier_evictions, engine::count_tier_evictions},
    {"read_ahead_pages", &statistics::read_ahead_pages, engine::count_fill_pages},
    {"read_ahead_failures", &statistics::read_ahead_failures, engine::count_fill_failures},
    {"load_waits", &statistics::load_waits, engine::count_load_waits},
    {"evictions", &statistics::evictions, engine::count_evictions},
    {"clock_steps", &statistics::clock_steps, engine::count_clock_steps},
    {"frame_waits", &statistics::frame_waits, engine::count_frame_waits},
    {"ring_waits", &statistics::ring_waits, engine::count_ring_waits},
    {"copy_retries", &statistics::copy_retries, engine::count_retries},
    {"requests", &statistics::requests, engine::count_requests},
    {"opens", &statistics::opens, engine::count_opens},
    {"open_requests", &statistics::open_requests, engine::count_open_requests},
    {"errors", &statistics::errors, engine::count_errors},
    {"bytes_loaded", &statistics::bytes_loaded, engine::count_bytes_loaded},
    {"bytes_read", &statistics::bytes_read, engine::count_bytes_read},
    {"bytes_written", &statistics::bytes_written, engine::count_bytes_written},
    {"write_backs", &statistics::write_backs, engine::count_write_backs},
    {"write_back_errors", &statistics::write_back_errors, engine::count_write_back_errors},
    {"dirty_victims", &statistics::dirty_victims, engine::count_dirty_victims},
    {"written_behind", &statistics::written_behind, engine::count_written_behind},
    {"file_writes", &statistics::file_writes},
    {"file_write_bytes", &statistics::file_write_bytes},
    {"file_write_errors", &statistics::file_write_errors},
    {"file_syncs", &statistics::file_syncs},
    {"kept_files", &statistics::kept_files},
    {"buffer_loads", &statistics::buffer_loads},
    {"buffer_device_loads", &statistics::buffer_device_loads},
    {"file_reads", &statistics::file_reads},
    {"file_read_bytes", &statistics::file_read_bytes},
    {"file_read_errors", &statistics::file_read_errors},
    {"direct_reads", &statistics::direct_reads},
    {"registered_reads", &statistics::registered_reads},
    {"wishes", &statistics::wishes},
    {"wishes_dropped", &statistics::wishes_dropped},
    {"store_hits", &statistics::store_hits},
    {"store_misses", &statistics::store_misses},
    {"store_errors", &statistics::store_errors},
    {"store_bad_blocks", &statistics::store_bad_blocks},
    {"store_bytes", &statistics::store_bytes},
    {"store_puts", &statistics::store_puts},
    {"store_pauses", &statistics::store_pauses},
    {"store_is_paused", &statistics::store_is_paused},
    {"bad_requests", &statistics::bad_requests},
    {"service_threads", &statistics::service_threads},
    {"helpers_for_backlog", &statistics::helpers_for_backlog},
    {"helpers_for_stalls", &statistics::helpers_for_stalls},
    {"batches", &statistics::batches}};

template <std::size_t Size>
std::string list_of(const std::array<std::uint64_t, Size>& values) {
    std::string out = "[";
    for (std::size_t i = 0; i < Size; ++i) out += (i == 0 ? "" : ",") + std::to_string(values[i]);
    return out + "]";
}

}  // namespace

std::span<const statistic_entry> statistic_entries() { return statistics_rows; }

void add(statistics& to, const statistics& more) {
    for (const statistic_entry& entry : statistics_rows) to.*entry.member += more.*entry.member;
    for (std::size_t i = 0; i < to.batch_size.size(); ++i) to.batch_size[i] += more.batch_size[i];
    for (std::size_t i = 0; i < to.latency_ns.size(); ++i) to.latency_ns[i] += more.latency_ns[i];
}

}  // namespace settings

std::string statistics::to_json() const {
    std::string out = "{";
    for (const settings::statistic_entry& entry : settings::statistic_entries())
        out += std::string("\"") + entry.name + "\":" + std::to_string(this->*entry.member) + ",";
    return out + "\"batch_size\":" + settings::list_of(batch_size) +
           ",\"latency_ns\":" + settings::list_of(latency_ns) + "}";
}

}  // namespace penstock
