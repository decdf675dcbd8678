// Statistics as JSON. Written by hand: the library itself needs no JSON package for one flat
// object.
#include "penstock/statistics.hpp"

namespace penstock {

namespace {

template <std::size_t Size>
std::string list_of(const std::array<std::uint64_t, Size>& values) {
    std::string out = "[";
    for (std::size_t i = 0; i < Size; ++i) out += (i == 0 ? "" : ",") + std::to_string(values[i]);
    return out + "]";
}

}  // namespace

std::string statistics::to_json() const {
    std::string out = "{";
    const auto add = [&out](const char* name, const std::string& value) {
        out += (out.size() == 1 ? "\"" : ",\"") + std::string(name) + "\":" + value;
    };
    const auto number = [&add](const char* name, std::uint64_t value) {
        add(name, std::to_string(value));
    };
    number("hits", hits);
    number("misses", misses);
    number("window_loads", window_loads);
    number("window_bytes", window_bytes);
    number("tier_loads", tier_loads);
    number("tier_saves", tier_saves);
    number("tier_evictions", tier_evictions);
    number("read_ahead_pages", read_ahead_pages);
    number("read_ahead_failures", read_ahead_failures);
    number("load_waits", load_waits);
    number("evictions", evictions);
    number("clock_steps", clock_steps);
    number("frame_waits", frame_waits);
    number("ring_waits", ring_waits);
    number("copy_retries", copy_retries);
    number("requests", requests);
    number("opens", opens);
    number("open_requests", open_requests);
    number("errors", errors);
    number("bytes_loaded", bytes_loaded);
    number("bytes_read", bytes_read);
    number("bytes_written", bytes_written);
    number("write_backs", write_backs);
    number("write_back_errors", write_back_errors);
    number("dirty_victims", dirty_victims);
    number("written_behind", written_behind);
    number("file_writes", file_writes);
    number("file_write_bytes", file_write_bytes);
    number("file_write_errors", file_write_errors);
    number("file_syncs", file_syncs);
    number("file_reads", file_reads);
    number("file_read_bytes", file_read_bytes);
    number("file_read_errors", file_read_errors);
    number("direct_reads", direct_reads);
    number("registered_reads", registered_reads);
    number("bad_requests", bad_requests);
    number("batches", batches);
    add("batch_size", list_of(batch_size));
    add("latency_ns", list_of(latency_ns));
    return out + "}";
}

}  // namespace penstock
