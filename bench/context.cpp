#include "context.hpp"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <thread>

#include "common/command_line.hpp"
#include "common/message.hpp"
#include "common/report_text.hpp"

namespace penstock::bench {

double series::median() const { return apps::median(values_); }

series series::times(double factor) const {
    series out = *this;
    for (double& value : out.values_) value *= factor;
    return out;
}

std::string series::spread() const {
    const double middle = median();
    if (values_.empty() || middle == 0) return "none";
    const auto [least, most] = std::minmax_element(values_.begin(), values_.end());
    return text_of("%+.1f to %+.1f %%", 100 * (*least / middle - 1), 100 * (*most / middle - 1));
}

double ratio_of(const figure& row) {
    const double ours = row.values.ours.median(), theirs = row.values.baseline.median();
    for (const char* const unit : {"us", "ms", "s", "bytes loaded per byte asked for"})
        if (row.unit == unit) return theirs / ours;
    return ours / theirs;
}

std::string note_of(const figure& row) {
    const series &ours = row.values.ours, &theirs = row.values.baseline;
    if (ours.size() < 2) return row.note;
    std::string out = "median of " + std::to_string(ours.size()) + ", spread " + ours.spread();
    if (theirs.size() > 1) out += ", baseline " + theirs.spread();
    return row.note.empty() ? out : out + "; " + row.note;
}

std::string text_of(const char* form, ...) {
    char text[256];
    std::va_list values;
    va_start(values, form);
    std::vsnprintf(text, sizeof text, form, values);
    va_end(values);
    return text;
}

std::string counted(std::uint64_t count, const std::string& noun) {
    return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string cache_label(std::uint64_t cache_bytes, std::uint64_t file_bytes) {
    if (cache_bytes != 0 && file_bytes % cache_bytes == 0 && file_bytes / cache_bytes <= 1024)
        return "cache 1/" + std::to_string(file_bytes / cache_bytes) + " of the file";
    return "cache " + format_size(cache_bytes);
}

std::vector<std::uint64_t> context::pages(std::initializer_list<std::uint64_t> own) const {
    if (!asked_.page_bytes.empty()) return asked_.page_bytes;
    if (!asked_.sweep) return own;
    return {4 * kib, 16 * kib, 64 * kib, 256 * kib, mib};
}

std::vector<std::uint64_t> context::caches(std::uint64_t file_bytes,
                                           std::uint64_t page_bytes) const {
    if (!asked_.cache_bytes.empty()) return asked_.cache_bytes;
    if (!asked_.sweep) return {small_cache(file_bytes, page_bytes)};
    std::vector<std::uint64_t> out;
    for (const std::uint64_t part : {64, 16, 4, 2})
        out.push_back(std::max(file_bytes / part, 16 * page_bytes));
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
}

std::vector<std::uint64_t> context::service_threads() const {
    if (!asked_.service_threads.empty()) return asked_.service_threads;
    return asked_.sweep ? std::vector<std::uint64_t>{1, 2, 4, 8} : std::vector<std::uint64_t>{0};
}

std::uint64_t context::host_threads() const {
    return threads(std::max(1u, std::thread::hardware_concurrency()));
}

void context::use_file(std::uint64_t bytes) {
    if (file_.bytes() != bytes) {
        progress("writing a file of " + format_size(bytes));
        file_.make(asked_.directory, bytes);
    }
    if (file_.resident_share() == 1) return;
    // The case before may have dropped it.
    file_.bring_into_page_cache();
    if (const double share = file_.resident_share(); share < 0.999)
        apps::say("bench: only " + std::to_string(static_cast<int>(100 * share)) +
                  " % of the file stays in the page cache, so the disk has a part in what is "
                  "measured; give a smaller --file");
}

std::unique_ptr<runtime> context::make_runtime(const runtime_shape& shape) {
    options o;
    require(options::from_environment(o));
    o.where = where_;
    o.page_bytes = shape.page_bytes;
    o.cache_bytes.reset();
    if (shape.cache_bytes != 0) o.cache_bytes = shape.cache_bytes;
    o.writable = o.writable || shape.writable;
    if (shape.write_behind_bytes != 0) o.write_behind_bytes = shape.write_behind_bytes;
    // A table of more than a quarter would have two levels.
    o.table_bytes =
        std::max<std::uint64_t>(mib, shape.file_bytes / shape.page_bytes * 8 * 4 + 64 * kib);
    if (shape.service_threads != 0)
        o.service_threads = static_cast<std::uint32_t>(shape.service_threads);
    if (shape.worker_threads != 0)
        o.worker_threads = static_cast<std::uint32_t>(shape.worker_threads);
    require(o.check());
    std::vector<std::string> notes;
    std::unique_ptr<runtime> out;
    require(apps::create_runtime(o, notes, out));
    for (const std::string& note : notes)
        if (!asked_.quiet && said_.insert(note).second) apps::say(note);
    return out;
}

opened_file context::open(const runtime_shape& shape) {
    opened_file out{make_runtime(shape), -1};
    out.fd = out.rt->open(file_.path());
    if (out.fd < 0) file_.fail(out.fd, "it must stay while it is measured");
    return out;
}

void context::progress(const std::string& text) const {
    if (!asked_.quiet) apps::say("bench: " + text);
}

void context::leave_out(const std::string& text, const std::string& why) const {
    apps::say("bench: " + text + " left out: " + why);
}

void context::add(figure row) {
    if (row.backend.empty()) row.backend = backend_name();
    const double value = row.values.ours.median(), baseline = row.values.baseline.median();
    // A policy may well have no hit at all.
    const bool good = std::isfinite(value) && (row.unit == "hit ratio" ? value >= 0 : value > 0) &&
                      std::isfinite(baseline) && baseline > 0;
    if (!good)
        throw failure(-ERANGE,
                      "bench: '" + row.name + "' gave " + std::to_string(value) + " beside " +
                          std::to_string(baseline) +
                          "; nothing was measured, give a larger --file or more --repeats");
    figures_.push_back(std::move(row));
}

}  // namespace penstock::bench
