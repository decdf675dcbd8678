// The text of statistics for Prometheus. Each number of it only grows while its runtime lives, but
// for the gauges.
#include "penstock/prometheus.hpp"

#include <cstdio>

#include "settings/utf8.hpp"

namespace penstock {

namespace {

using value_of = std::uint64_t (*)(const statistics&);

struct sample {
    const char* label;  // "" for a metric that has one line for each runtime
    const char* value;
    value_of of;
};

struct metric {
    const char *name, *kind, *help;
    std::vector<sample> samples;
};

using counts = const statistics&;

const std::vector<metric>& metrics_of_pages() {
    static const std::vector<metric> all = {
        {"penstock_hits_total",
         "counter",
         "Page accesses that the cache served.",
         {{"", "", [](counts c) { return c.hits; }}}},
        {"penstock_misses_total",
         "counter",
         "Page accesses that the cache did not serve, by the source of the bytes.",
         {{"source", "window", [](counts c) { return c.window_loads + c.through_reads; }},
          {"source", "tier", [](counts c) { return c.tier_loads; }},
          {"source", "neighbour", [](counts c) { return c.neighbour_loads + c.neighbour_reads; }},
          {"source", "request", [](counts c) { return c.request_loads; }}}},
        {"penstock_waits_total",
         "counter",
         "Waits of groups by what they waited for: the load of another group, a load of a linked "
         "cache, a free frame, room in the ring.",
         {{"for", "load", [](counts c) { return c.load_waits; }},
          {"for", "neighbour", [](counts c) { return c.neighbour_waits; }},
          {"for", "frame", [](counts c) { return c.frame_waits; }},
          {"for", "ring", [](counts c) { return c.ring_waits; }}}},
        {"penstock_errors_total",
         "counter",
         "Errors by where they came up: calls that returned a negative errno, reads, writes and "
         "write-backs of files, reads ahead, calls of a store between nodes, malformed requests.",
         {{"where", "call", [](counts c) { return c.errors; }},
          {"where", "file_read", [](counts c) { return c.file_read_errors; }},
          {"where", "file_write", [](counts c) { return c.file_write_errors; }},
          {"where", "write_back", [](counts c) { return c.write_back_errors; }},
          {"where", "read_ahead", [](counts c) { return c.read_ahead_failures; }},
          {"where", "store", [](counts c) { return c.store_errors; }},
          {"where", "request", [](counts c) { return c.bad_requests; }}}}};
    return all;
}

const std::vector<metric>& metrics_of_files() {
    static const std::vector<metric> all = {
        {"penstock_bytes_total",
         "counter",
         "Bytes by their way: loaded into the cache, read and written by callers, read from and "
         "written to files by the operating system, and from a store between nodes.",
         {{"way", "loaded", [](counts c) { return c.bytes_loaded; }},
          {"way", "read", [](counts c) { return c.bytes_read; }},
          {"way", "written", [](counts c) { return c.bytes_written; }},
          {"way", "file_read", [](counts c) { return c.file_read_bytes; }},
          {"way", "file_written", [](counts c) { return c.file_write_bytes; }},
          {"way", "store", [](counts c) { return c.store_bytes; }}}},
        {"penstock_evictions_total",
         "counter",
         "Pages that left the cache for another page.",
         {{"", "", [](counts c) { return c.evictions; }}}},
        {"penstock_opens_total",
         "counter",
         "Open calls of groups.",
         {{"", "", [](counts c) { return c.opens; }}}},
        {"penstock_file_operations_total",
         "counter",
         "Operations on files that the operating system was asked for.",
         {{"operation", "read", [](counts c) { return c.file_reads; }},
          {"operation", "write", [](counts c) { return c.file_writes; }},
          {"operation", "sync", [](counts c) { return c.file_syncs; }}}},
        {"penstock_direct_reads_total",
         "counter",
         "Reads past the page cache of the operating system.",
         {{"", "", [](counts c) { return c.direct_reads; }}}},
        {"penstock_resident_pages",
         "gauge",
         "Frames of the cache that have or had a page.",
         {{"", "", [](counts c) { return c.resident_pages; }}}},
        {"penstock_window_bytes",
         "gauge",
         "Bytes of files that are open in windows.",
         {{"", "", [](counts c) { return c.window_bytes; }}}},
        {"penstock_device_bytes",
         "gauge",
         "Device memory that the runtime has allocated.",
         {{"", "", [](counts c) { return c.device_bytes; }}}}};
    return all;
}

const std::vector<metric>& metrics_of_store() {
    static const std::vector<metric> all = {
        {"penstock_store_blocks_total",
         "counter",
         "Blocks of 2 MiB that were asked of a store between nodes or put there.",
         {{"outcome", "hit", [](counts c) { return c.store_hits; }},
          {"outcome", "miss", [](counts c) { return c.store_misses; }},
          {"outcome", "bad", [](counts c) { return c.store_bad_blocks; }},
          {"outcome", "put", [](counts c) { return c.store_puts; }}}},
        {"penstock_store_paused",
         "gauge",
         "1: the store between nodes failed and is left alone for a while.",
         {{"", "", [](counts c) { return c.store_is_paused; }}}}};
    return all;
}

const std::vector<metric>& metrics_of_threads() {
    static const std::vector<metric> all = {
        {"penstock_service_threads",
         "gauge",
         "Service threads that were made, helpers too; they sleep when no request is there.",
         {{"", "", [](counts c) { return c.service_threads; }}}},
        {"penstock_helpers_total",
         "counter",
         "Helpers that were made or woken, by why: requests came faster than they were served, or "
         "a system call held a thread up while requests waited behind it.",
         {{"cause", "backlog", [](counts c) { return c.helpers_for_backlog; }},
          {"cause", "stall", [](counts c) { return c.helpers_for_stalls; }}}}};
    return all;
}

// Of a value of a label, and without the quotation mark of a help. A reader refuses the whole text
// for one byte that is no UTF-8.
std::string escaped(const std::string& text, bool is_label) {
    std::string out;
    for (const char c : settings::in_letters(text)) {
        if (c == '\\') out += "\\\\";
        else if (c == '\n') out += "\\n";
        else if (c == '"' && is_label) out += "\\\"";
        else out += c;
    }
    return out;
}

std::string head_of(const std::string& name, const std::string& kind, const std::string& help) {
    return "# HELP " + name + " " + escaped(help, false) + "\n# TYPE " + name + " " + kind + "\n";
}

std::string line_of(const std::string& name, const metric_labels& labels, const char* label,
                    const std::string& label_value, const std::string& value) {
    std::string list;
    const auto add = [&](const std::string& key, const std::string& text) {
        list += (list.empty() ? "" : ",") + key + "=\"" + escaped(text, true) + "\"";
    };
    for (const auto& [key, text] : labels) add(key, text);
    if (*label != '\0') add(label, label_value);
    return name + (list.empty() ? "" : "{" + list + "}") + " " + value + "\n";
}

std::string seconds_of(double ns) {
    char text[32];
    std::snprintf(text, sizeof text, "%.9g", ns * 1e-9);
    return text;
}

// The bounds are powers of two of a nanosecond. The sum takes each wait for three quarters of the
// upper bound of its bucket, which is the middle.
std::string histogram_of(std::span<const labelled_statistics> all) {
    const std::string name = "penstock_request_seconds";
    std::string out = head_of(
        name, "histogram",
        "Time from a request of a group to its answer; the sum is that of the buckets' middles.");
    for (const labelled_statistics& each : all) {
        const auto& buckets = each.counted.latency_ns;
        std::uint64_t count = 0;
        double sum_ns = 0, bound_ns = 1;
        for (std::size_t i = 0; i < buckets.size(); ++i) {
            bound_ns *= 2;
            count += buckets[i];
            sum_ns += static_cast<double>(buckets[i]) * bound_ns * 0.75;
            if (i + 1 < buckets.size())  // the last one has no upper bound
                out += line_of(name + "_bucket", each.labels, "le", seconds_of(bound_ns),
                               std::to_string(count));
        }
        out += line_of(name + "_bucket", each.labels, "le", "+Inf", std::to_string(count));
        out += line_of(name + "_sum", each.labels, "", "", seconds_of(sum_ns));
        out += line_of(name + "_count", each.labels, "", "", std::to_string(count));
    }
    return out;
}

}  // namespace

std::string prometheus_text(std::span<const labelled_statistics> all) {
    std::string out;
    if (all.empty()) return out;
    for (const std::vector<metric>* const metrics :
         {&metrics_of_pages(), &metrics_of_files(), &metrics_of_store(), &metrics_of_threads()})
        for (const metric& each : *metrics) {
            out += head_of(each.name, each.kind, each.help);
            for (const labelled_statistics& runtime : all)
                for (const sample& sample : each.samples)
                    out += line_of(each.name, runtime.labels, sample.label, sample.value,
                                   std::to_string(sample.of(runtime.counted)));
        }
    return out + histogram_of(all);
}

std::string prometheus_text(const statistics& counted, const metric_labels& labels) {
    const labelled_statistics alone{counted, labels};
    return prometheus_text(std::span(&alone, 1));
}

std::string prometheus_metric(const std::string& name, const std::string& kind,
                              const std::string& help, std::span<const metric_value> values) {
    std::string out = values.empty() ? "" : head_of(name, kind, help);
    for (const metric_value& each : values)
        out += line_of(name, each.labels, "", "", std::to_string(each.value));
    return out;
}

}  // namespace penstock
