#include "context.hpp"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <nlohmann/json.hpp>
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

series series::under(double amount) const {
    series out = *this;
    for (double& value : out.values_) value = amount / value;
    return out;
}

std::string series::spread() const {
    const double middle = median();
    if (values_.empty() || middle == 0) return "none";
    const auto [least, most] = std::minmax_element(values_.begin(), values_.end());
    return text_of("%+.1f to %+.1f %%", 100 * (*least / middle - 1), 100 * (*most / middle - 1));
}

namespace {

using json = nlohmann::ordered_json;

// "median of 5, spread -1 to +2 %, baseline -1 to +1 %; NOTE"
std::string note_of(const measured& values, const std::string& note) {
    if (values.ours.size() < 2) return note;
    std::string out =
        "median of " + std::to_string(values.ours.size()) + ", spread " + values.ours.spread();
    if (values.baseline.size() > 1) out += ", baseline " + values.baseline.spread();
    return note.empty() ? out : out + "; " + note;
}

}  // namespace

std::string text_of(const char* form, ...) {
    char text[256];
    std::va_list values;
    va_start(values, form);
    std::vsnprintf(text, sizeof text, form, values);
    va_end(values);
    return text;
}

void row_printer::begin() {
    if (began_) return;
    require(out_.open(""));
    began_ = true;
    print("{\"machine\":" + machine_ + ",\n\"results\":[");
}

// A line for each row, so that two files of results can be compared line by line.
void row_printer::add(const std::string& row) {
    begin();
    print((has_rows_ ? ",\n" : "\n") + row);
    has_rows_ = true;
}

void row_printer::end() {
    begin();
    print("\n]}\n");
}

void row_printer::end_early() {
    if (began_) end();
}

void row_printer::print(const std::string& text) { require(out_.write(text.data(), text.size())); }

std::string counted(std::uint64_t count, const std::string& noun) {
    return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string context::cache_label(std::uint64_t cache_bytes) const {
    if (cache_bytes != 0 && bytes() % cache_bytes == 0 && bytes() / cache_bytes <= 1024)
        return "cache 1/" + std::to_string(bytes() / cache_bytes) + " of the file";
    return "cache " + format_size(cache_bytes);
}

std::vector<std::uint64_t> context::pages(std::initializer_list<std::uint64_t> own) const {
    if (!asked_.page_bytes.empty()) return asked_.page_bytes;
    if (!asked_.sweep) return own;
    return {4 * kib, 16 * kib, 64 * kib, 256 * kib, mib};
}

std::vector<std::uint64_t> context::caches(std::uint64_t page_bytes) const {
    if (!asked_.cache_bytes.empty()) return asked_.cache_bytes;
    if (!asked_.sweep) return {small_cache(page_bytes)};
    std::vector<std::uint64_t> out;
    for (const unsigned part : {64u, 16u, 4u, 2u}) out.push_back(small_cache(page_bytes, part));
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

std::uint64_t context::use_file(std::uint64_t bytes) {
    if (file_.bytes() != bytes) {
        progress("writing a file of " + format_size(bytes));
        file_.make(asked_.directory, bytes);
    }
    if (file_.resident_share() == 1) return bytes;
    // The case before may have dropped it.
    file_.bring_into_page_cache();
    if (const double share = file_.resident_share(); share < 0.999)
        apps::say("bench: only " + std::to_string(static_cast<int>(100 * share)) +
                  " % of the file stays in the page cache, so the disk has a part in what is "
                  "measured; give a smaller --file");
    return bytes;
}

std::unique_ptr<runtime> context::make_runtime(const runtime_shape& shape) {
    options o = own_options();
    o.page_bytes = shape.page_bytes;
    o.cache_bytes.reset();
    if (shape.cache_bytes != 0) o.cache_bytes = shape.cache_bytes;
    o.writable = o.writable || shape.writable;
    if (shape.write_behind_bytes != 0) o.write_behind_bytes = shape.write_behind_bytes;
    // A table of more than a quarter would have two levels.
    const std::uint64_t file_bytes = shape.file_bytes != 0 ? shape.file_bytes : bytes();
    o.table_bytes = std::max<std::uint64_t>(mib, file_bytes / shape.page_bytes * 8 * 4 + 64 * kib);
    if (shape.service_threads != 0)
        o.service_threads = static_cast<std::uint32_t>(shape.service_threads);
    if (shape.worker_threads != 0)
        o.worker_threads = static_cast<std::uint32_t>(shape.worker_threads);
    return start(o);
}

std::unique_ptr<runtime> context::start(const options& o) {
    require(o.check());
    std::vector<std::string> notes;
    std::unique_ptr<runtime> out;
    require(apps::create_runtime(o, notes, out));
    for (const std::string& note : notes)
        if (!asked_.quiet && said_.insert(note).second) apps::say(note);
    return out;
}

options context::own_options() const {
    options o;
    require(options::from_environment(o));
    o.where = where_;
    return o;
}

opened_file context::open(const runtime_shape& shape, int flags) {
    return open(make_runtime(shape), flags);
}

opened_file context::open(std::unique_ptr<runtime> rt, int flags) {
    opened_file out{std::move(rt), -1, bytes()};
    out.fd = out.rt->open(file_.path(), flags);
    if (out.fd < 0) file_.fail(out.fd, "it must stay while it is measured");
    return out;
}

void context::progress(const std::string& text) const {
    if (!asked_.quiet) apps::say("bench: " + text);
}

void context::leave_out(const std::string& text, const std::string& why) const {
    apps::say("bench: " + text + " left out: " + why);
}

bool context::is_cold(const std::string& text, double stayed) const {
    if (stayed <= 0.01) return true;
    leave_out(text, text_of("%.1f %% of the file stayed in memory when it was dropped, so it would "
                            "not be the disk that is measured; name a --dir on a disk",
                            100 * stayed));
    return false;
}

void context::add(const std::string& goal, const std::string& name, std::uint64_t page_bytes,
                  const std::string& unit, const measured& values, const std::string& baseline,
                  const std::string& note, const std::string& where) {
    const double ours = values.ours.median(), theirs = values.baseline.median();
    // A policy may well have no hit at all.
    if (!std::isfinite(ours) || ours < 0 || (ours == 0 && unit != "hit ratio") ||
        !std::isfinite(theirs) || theirs <= 0)
        throw failure(-ERANGE,
                      "bench: '" + name + "' gave " + std::to_string(ours) + " beside " +
                          std::to_string(theirs) +
                          "; nothing was measured, give a larger --file or more --repeats");
    // Times and ratios of waste: the quotient is turned round, so that more is better in every row.
    const bool less_is_better = unit == "us" || unit == "ms" || unit == "s" ||
                                unit == "bytes loaded per byte asked for" ||
                                unit == "% of the file";
    // Four digits are more than any of these figures is good for, and fewer hide a change of a
    // tenth of a percent.
    const auto rounded = [](double value) { return json::parse(text_of("%.5g", value)); };
    const json row{{"goal", goal},
                   {"case", name},
                   {"backend", where.empty() ? name_of(where_) : where},
                   {"page_bytes", page_bytes},
                   {"value", rounded(ours)},
                   {"unit", unit},
                   {"baseline", baseline},
                   {"baseline_value", rounded(theirs)},
                   {"ratio", rounded(less_is_better ? theirs / ours : ours / theirs)},
                   {"cpu_cores_used", rounded(values.cores.median())},
                   {"note", note_of(values, note)}};
    printer_.add(row.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace penstock::bench
