#include "context.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>

#include "common/command_line.hpp"
#include "common/message.hpp"

namespace penstock::bench {

double series::median() const {
    if (values_.empty()) return 0;
    std::vector<double> sorted = values_;
    std::sort(sorted.begin(), sorted.end());
    const std::size_t middle = sorted.size() / 2;
    return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

series series::times(double factor) const {
    series out = *this;
    for (double& value : out.values_) value *= factor;
    return out;
}

std::string series::spread() const {
    const double middle = median();
    if (values_.empty() || middle == 0) return "none";
    const auto [least, most] = std::minmax_element(values_.begin(), values_.end());
    char text[64];
    std::snprintf(text, sizeof text, "%+.1f to %+.1f %%", 100 * (*least / middle - 1),
                  100 * (*most / middle - 1));
    return text;
}

bool smaller_is_better(const std::string& unit) {
    return unit == "us" || unit == "ms" || unit == "s" || unit == "bytes loaded per byte asked for";
}

double ratio_of(const figure& row) {
    const double ours = row.value.median(), theirs = row.baseline_value.median();
    return smaller_is_better(row.unit) ? theirs / ours : ours / theirs;
}

std::string note_of(const figure& row) {
    if (row.value.size() < 2) return row.note;
    std::string out =
        "median of " + std::to_string(row.value.size()) + ", spread " + row.value.spread();
    if (row.baseline_value.size() > 1) out += ", baseline " + row.baseline_value.spread();
    return row.note.empty() ? out : out + "; " + row.note;
}

std::vector<std::uint64_t> context::pages(std::initializer_list<std::uint64_t> own) const {
    if (!asked_.page_bytes.empty()) return asked_.page_bytes;
    if (!asked_.sweep) return own;
    return {4 * kib, 16 * kib, 64 * kib, 256 * kib, mib};
}

std::vector<std::uint64_t> context::caches(std::uint64_t file_bytes,
                                           std::uint64_t page_bytes) const {
    if (!asked_.cache_bytes.empty()) return asked_.cache_bytes;
    std::vector<std::uint64_t> out;
    for (const std::uint64_t part :
         asked_.sweep ? std::vector<std::uint64_t>{64, 16, 4, 2} : std::vector<std::uint64_t>{16}) {
        const std::uint64_t bytes = std::max(file_bytes / part, 16 * page_bytes);
        if (out.empty() || out.back() != bytes) out.push_back(bytes);
    }
    return out;
}

std::vector<std::uint64_t> context::service_threads() const {
    if (!asked_.service_threads.empty()) return asked_.service_threads;
    return asked_.sweep ? std::vector<std::uint64_t>{1, 2, 4, 8} : std::vector<std::uint64_t>{0};
}

status context::use_file(std::uint64_t bytes) {
    if (file_.bytes() != bytes) {
        progress("writing a file of " + format_size(bytes));
        if (status s = file_.make(asked_.directory, bytes); !s) return s;
    }
    double share = 0;
    if (status s = file_.resident_share(share); !s) return s;
    if (share == 1) return {};
    // The case before may have dropped it.
    if (status s = file_.bring_into_page_cache(); !s) return s;
    if (status s = file_.resident_share(share); !s) return s;
    if (share < 0.999)
        apps::say("bench: only " + std::to_string(static_cast<int>(100 * share)) +
                  " % of the file stays in the page cache, so the disk has a part in what is "
                  "measured; give a smaller --file");
    return {};
}

status context::make_runtime(const runtime_shape& shape, std::unique_ptr<runtime>& out) {
    out.reset();
    options o;
    if (status s = options::from_environment(o); !s) return s;
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
    if (status s = o.check(); !s) return s;
    std::vector<std::string> notes;
    if (status s = apps::create_runtime(o, notes, out); !s) return s;
    for (const std::string& note : notes)
        if (!asked_.quiet && said_.insert(note).second) apps::say(note);
    return {};
}

status context::make_runtime(const runtime_shape& shape, std::unique_ptr<runtime>& out, int& fd) {
    if (status s = make_runtime(shape, out); !s) return s;
    fd = out->open(file_.path());
    if (fd < 0)
        return {fd, "file " + apps::shown(file_.path()) + ": " + error_text(fd) +
                        "; it must stay while it is measured"};
    return {};
}

void context::progress(const std::string& text) const {
    if (!asked_.quiet) apps::say("bench: " + text);
}

void context::leave_out(const std::string& text, const std::string& why) const {
    apps::say("bench: " + text + " left out: " + why);
}

status context::add(figure row) {
    if (row.backend.empty()) row.backend = backend_name();
    const double value = row.value.median(), baseline = row.baseline_value.median();
    // A policy may well have no hit at all.
    const bool good = std::isfinite(value) && (row.unit == "hit ratio" ? value >= 0 : value > 0) &&
                      std::isfinite(baseline) && baseline > 0;
    if (!good)
        return {-ERANGE, "bench: '" + row.name + "' gave " + std::to_string(value) + " beside " +
                             std::to_string(baseline) +
                             "; nothing was measured, give a larger --file or more --repeats"};
    figures_.push_back(std::move(row));
    return {};
}

std::string cache_label(std::uint64_t cache_bytes, std::uint64_t file_bytes) {
    if (cache_bytes != 0 && file_bytes % cache_bytes == 0 && file_bytes / cache_bytes <= 1024)
        return "cache 1/" + std::to_string(file_bytes / cache_bytes) + " of the file";
    return "cache " + format_size(cache_bytes);
}

}  // namespace penstock::bench
