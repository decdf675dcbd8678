#include "option_table.hpp"

#include <cstdlib>

namespace penstock::info {

namespace {

class table_builder {
public:
    explicit table_builder(std::vector<option_row>& rows) : rows_(rows) {}

    // `flag` is the text given on the command line, empty if there is no such flag or it was not
    // given. An `automatic` value is one for which the options say "choose", and the runtime chose.
    void text(const char* name, const char* variable, const std::string& value,
              const std::string& flag, bool automatic) {
        const char* const set = std::getenv(variable);
        const char* const source = !flag.empty()                    ? "command line"
                                   : set != nullptr && *set != '\0' ? "environment"
                                   : automatic                      ? "automatic"
                                                                    : "default";
        rows_.push_back({name, variable, "", value, value, source});
    }
    void size(const char* name, const char* variable, std::uint64_t bytes, const std::string& flag,
              bool automatic) {
        text(name, variable, std::to_string(bytes), flag, automatic);
        rows_.back().unit = "bytes";
        rows_.back().shown = automatic && bytes == 0 ? "chosen by the runtime" : format_size(bytes);
    }
    void milliseconds(const char* name, const char* variable, std::uint32_t ms) {
        text(name, variable, std::to_string(ms), "", false);
        rows_.back().unit = "ms";
        rows_.back().shown = std::to_string(ms) + " ms";
    }
    void number(const char* name, const char* variable, std::uint64_t value,
                const std::string& flag, bool automatic) {
        text(name, variable, std::to_string(value), flag, automatic);
        if (automatic && value == 0) rows_.back().shown = "chosen by the runtime";
    }

private:
    std::vector<option_row>& rows_;
};

std::string joined(const std::vector<std::string>& parts) {
    std::string out;
    for (const std::string& part : parts) out += (out.empty() ? "" : ":") + part;
    return out;
}

}  // namespace

std::vector<option_row> option_table(const apps::common_flags& flags, const options& asked,
                                     const options& in_force) {
    std::vector<option_row> rows;
    table_builder add(rows);
    const options& o = in_force;
    add.text("where", "PENSTOCK_BACKEND", name_of(o.where), flags.backend,
             asked.where == backend::automatic);
    add.number("device", "PENSTOCK_DEVICE", static_cast<std::uint64_t>(o.device), flags.device,
               false);
    add.size("cache_bytes", "PENSTOCK_CACHE", o.cache_bytes, flags.cache, asked.cache_bytes == 0);
    add.size("page_bytes", "PENSTOCK_PAGE", o.page_bytes, flags.page, false);
    add.size("table_bytes", "PENSTOCK_TABLE", o.table_bytes, "", false);
    add.number("max_files", "PENSTOCK_MAX_FILES", o.max_files, "", false);
    add.number("service_threads", "PENSTOCK_SERVICE_THREADS", o.service_threads, "",
               asked.service_threads == 0);
    add.size("staging_bytes", "PENSTOCK_STAGING", o.staging_bytes, "", asked.staging_bytes == 0);
    add.size("window_bytes", "PENSTOCK_WINDOW", o.window_bytes, "", asked.window_bytes == 0);
    add.size("tier_bytes", "PENSTOCK_TIER", o.tier_bytes, "", false);
    add.text("writable", "PENSTOCK_WRITABLE", o.writable ? "1" : "0", "", false);
    add.size("write_behind_bytes", "PENSTOCK_WRITE_BEHIND", o.write_behind_bytes, "",
             asked.write_behind_bytes == 0);
    add.number("worker_threads", "PENSTOCK_WORKERS", o.worker_threads, flags.workers,
               asked.worker_threads == 0);
    add.text("io", "PENSTOCK_IO", name_of(o.io), "", asked.io == io_method::automatic);
    add.text("direct_io", "PENSTOCK_DIRECT_IO", name_of(o.direct_io), "", false);
    add.text("registered_buffers", "PENSTOCK_REGISTERED_BUFFERS",
             o.registered_buffers ? "on" : "off", "", false);
    add.milliseconds("frame_wait_ms", "PENSTOCK_FRAME_WAIT_MS", o.frame_wait_ms);
    add.milliseconds("request_wait_ms", "PENSTOCK_REQUEST_WAIT_MS", o.request_wait_ms);
    add.milliseconds("host_wait_ms", "PENSTOCK_HOST_WAIT_MS", o.host_wait_ms);
    add.text("roots", "PENSTOCK_ROOTS", joined(o.roots), "", asked.roots.empty());
    return rows;
}

}  // namespace penstock::info
