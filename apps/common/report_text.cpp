// Prints JSON and numbers of reports, and the part that says what one method did.
#include "common/report_text.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

#include "common/command_line.hpp"
#include "common/files.hpp"
#include "common/message.hpp"

namespace penstock::apps {

using nlohmann::json;

std::string text_of(const char* form, double number) {
    char text[64];
    std::snprintf(text, sizeof text, form, number);
    return text;
}

std::string field_of(const std::string& text) {
    if (text.find_first_of("\\\t\n") == std::string::npos) return text;
    std::string out;
    for (const char c : text) {
        if (c == '\\') out += "\\\\";
        else if (c == '\t') out += "\\t";
        else if (c == '\n') out += "\\n";
        else out += c;
    }
    return out;
}

double median(std::vector<double> of) {
    if (of.empty()) return 0;
    std::sort(of.begin(), of.end());
    const std::size_t half = of.size() / 2;
    return of.size() % 2 == 1 ? of[half] : (of[half - 1] + of[half]) / 2;
}

std::string line_of(const json& value) {
    return value.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

json json_of(const runtime& rt) {
    const options& o = rt.settings();
    return {{"backend", name_of(rt.where())},
            {"device", rt.device_name()},
            {"devices", rt.device_count()},
            {"io", rt.io_name()},
            {"cache_bytes", *o.cache_bytes},
            {"page_bytes", o.page_bytes},
            {"statistics", json::parse(rt.stats().to_json())}};
}

status print_json(const std::string& text) {
    output_file standard_output;
    if (status failed = standard_output.open(""); !failed) return failed;
    return standard_output.write(text.data(), text.size());
}

double method_report::median_seconds() const { return median(seconds); }

status no_cuda() {
    return {-ENODEV,
            "--method cuda: this program was built without CUDA; use --method penstock or cpu"};
}

status start_runtime(const options& settings, method_report& report, device_use use) {
    if (status failed = create_runtime(settings, report.notes, report.rt, use); !failed)
        return failed;
    report.backend = name_of(report.rt->where());
    return {};
}

void say_notes(const method_report& r) {
    for (const std::string& note : r.notes) say(note);
}

json runtime_of(const method_report& r) { return r.rt != nullptr ? json_of(*r.rt) : json(nullptr); }

json json_of_work(const method_report& r) {
    const double all = std::accumulate(r.seconds.begin(), r.seconds.end(), 0.0);
    return {{"method", r.name},
            {"backend", r.backend},
            {"how", r.note},
            {"window_bytes", r.window_bytes},
            {"cpu_seconds", r.cpu_seconds},
            {"cpu_cores_used", all > 0 ? r.cpu_seconds / all : 0.0},
            {"seconds", {{"start", r.start_seconds}, {"windows", r.window_seconds}}}};
}

json json_of(const method_report& r) {
    json out = json_of_work(r);
    out["bytes_read"] = r.bytes_read;
    out["seconds"]["runs"] = r.seconds;
    out["seconds"]["median"] = r.median_seconds();
    out["runtime"] = runtime_of(r);
    return out;
}

std::string times_of(const method_report& r, double amount, const std::string& unit) {
    std::string out;
    for (const double seconds : r.seconds)
        out += (out.empty() ? "" : ", ") + text_of("%.3f s", seconds);
    const double median = r.median_seconds();
    return out + " (" + text_of("%.2f ", median > 0 ? amount / median : 0.0) + unit +
           "), windows " + text_of("%.3f s", r.window_seconds) + ", start " +
           text_of("%.3f s", r.start_seconds);
}

}  // namespace penstock::apps
