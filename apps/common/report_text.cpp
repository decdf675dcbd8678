#include "common/report_text.hpp"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/output_file.hpp"

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

std::string line_of(const json& what) {
    return what.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

json json_of(const runtime& rt) {
    const options& o = rt.settings();
    return {{"backend", name_of(rt.where())},
            {"device", rt.device_name()},
            {"io", rt.io_name()},
            {"cache_bytes", o.cache_bytes},
            {"page_bytes", o.page_bytes},
            {"statistics", json::parse(rt.stats().to_json())}};
}

status print_json(const std::string& text) {
    output_file standard_output;
    if (status failed = standard_output.open(""); !failed) return failed;
    return standard_output.write(text.data(), text.size());
}

}  // namespace penstock::apps
