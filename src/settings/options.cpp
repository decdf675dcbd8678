// Options: reading the environment, checking ranges.
#include "penstock/options.hpp"

#include <charconv>
#include <cstdlib>
#include <limits>

namespace penstock {

namespace {

// Applies one variable if it is set; keeps the first error.
class environment_reader {
public:
    void size(const char* name, std::uint64_t& out) {
        if (const char* text = value_of(name)) result_ = parse_size(name, text, out);
    }

    template <typename Integer>
    void number(const char* name, Integer& out) {
        const char* text = value_of(name);
        if (text == nullptr) return;
        const std::string given(text);
        const auto parsed = std::from_chars(given.data(), given.data() + given.size(), out);
        if (parsed.ec != std::errc() || parsed.ptr != given.data() + given.size())
            result_ = {-EINVAL, std::string(name) + ": '" + given +
                                    "' is not a whole number; give one, such as 4"};
    }

    void flag(const char* name, bool& out) {
        const char* text = value_of(name);
        if (text == nullptr) return;
        const std::string given(text);
        if (given == "0" || given == "1") out = given == "1";
        else
            result_ = {-EINVAL, std::string(name) + ": '" + given +
                                    "' is neither 0 nor 1; give 1 for on, 0 for off"};
    }

    void choice(const char* name, backend& out) {
        if (const char* text = value_of(name)) result_ = parse_backend(name, text, out);
    }
    void choice(const char* name, io_method& out) {
        if (const char* text = value_of(name)) result_ = parse_io_method(name, text, out);
    }
    void choice(const char* name, direct_mode& out) {
        if (const char* text = value_of(name)) result_ = parse_direct_mode(name, text, out);
    }
    void choice(const char* name, bool& out) {
        if (const char* text = value_of(name)) result_ = parse_switch(name, text, out);
    }

    void list(const char* name, std::vector<std::string>& out) {
        const char* text = value_of(name);
        if (text == nullptr) return;
        out.clear();
        std::string part;
        for (const char* at = text;; ++at) {
            if (*at == ':' || *at == '\0') {
                if (!part.empty()) out.push_back(part);
                part.clear();
                if (*at == '\0') return;
            } else {
                part += *at;
            }
        }
    }

    [[nodiscard]] const status& result() const { return result_; }

private:
    const char* value_of(const char* name) const {
        if (!result_.ok()) return nullptr;
        const char* text = std::getenv(name);
        return text != nullptr && *text != '\0' ? text : nullptr;
    }
    status result_;
};

status out_of_range(const char* name, const std::string& value, const std::string& range) {
    return {-EINVAL, std::string(name) + ": " + value + " is out of range; use " + range};
}

status check_number(const char* name, std::uint64_t value, std::uint64_t least,
                    std::uint64_t most) {
    if (value >= least && value <= most) return {};
    return out_of_range(name, std::to_string(value),
                        std::to_string(least) + " to " + std::to_string(most));
}

status check_size(const char* name, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
    if (value >= least && value <= most) return {};
    return out_of_range(name, format_size(value), format_size(least) + " to " + format_size(most));
}

}  // namespace

status options::from_environment(options& out) {
    environment_reader reader;
    reader.choice("PENSTOCK_BACKEND", out.where);
    reader.number("PENSTOCK_DEVICE", out.device);
    reader.size("PENSTOCK_CACHE", out.cache_bytes);
    reader.size("PENSTOCK_PAGE", out.page_bytes);
    reader.size("PENSTOCK_TABLE", out.table_bytes);
    reader.number("PENSTOCK_MAX_FILES", out.max_files);
    reader.number("PENSTOCK_SERVICE_THREADS", out.service_threads);
    reader.size("PENSTOCK_STAGING", out.staging_bytes);
    reader.size("PENSTOCK_WINDOW", out.window_bytes);
    reader.size("PENSTOCK_TIER", out.tier_bytes);
    reader.flag("PENSTOCK_WRITABLE", out.writable);
    reader.size("PENSTOCK_WRITE_BEHIND", out.write_behind_bytes);
    reader.number("PENSTOCK_WORKERS", out.worker_threads);
    reader.choice("PENSTOCK_IO", out.io);
    reader.choice("PENSTOCK_DIRECT_IO", out.direct_io);
    reader.choice("PENSTOCK_REGISTERED_BUFFERS", out.registered_buffers);
    reader.number("PENSTOCK_FRAME_WAIT_MS", out.frame_wait_ms);
    reader.number("PENSTOCK_REQUEST_WAIT_MS", out.request_wait_ms);
    reader.number("PENSTOCK_HOST_WAIT_MS", out.host_wait_ms);
    reader.list("PENSTOCK_ROOTS", out.roots);
    return reader.result();
}

status options::check() const {
    constexpr std::uint64_t kib = 1024, mib = kib * 1024, gib = mib * 1024;
    if (page_bytes < 512 || page_bytes > 2 * mib || (page_bytes & (page_bytes - 1)) != 0)
        return {-EINVAL, "page_bytes: " + std::to_string(page_bytes) +
                             " is not usable; give a power of two from 512 to 2097152 (2 MiB)"};
    if (cache_bytes != 0 && cache_bytes < 8 * page_bytes)
        return {-EINVAL, "cache_bytes: " + format_size(cache_bytes) + " is less than 8 pages of " +
                             format_size(page_bytes) + "; give at least " +
                             format_size(8 * page_bytes)};
    if (device < 0)
        return {-EINVAL,
                "device: " + std::to_string(device) + " is negative; device numbers start at 0"};
    if (status s = check_size("table_bytes", table_bytes, 64 * kib, 1024 * gib); !s) return s;
    if (status s = check_number("max_files", max_files, 16, 1u << 19); !s) return s;
    if (status s = check_number("service_threads", service_threads, 0, 64); !s) return s;
    if (staging_bytes != 0)
        if (status s = check_size("staging_bytes", staging_bytes, mib, 16 * gib); !s) return s;
    if (window_bytes != 0)
        if (status s = check_size("window_bytes", window_bytes, 2 * mib, 1024 * gib); !s) return s;
    if (status s = check_size("tier_bytes", tier_bytes, 0, 1024 * gib); !s) return s;
    if (status s = check_size("write_behind_bytes", write_behind_bytes, 0, 1024 * gib); !s)
        return s;
    if (status s = check_number("worker_threads", worker_threads, 0, 1024); !s) return s;
    if (status s = check_number("frame_wait_ms", frame_wait_ms, 1, 600000); !s) return s;
    if (status s = check_number("request_wait_ms", request_wait_ms, 1, 600000); !s) return s;
    return check_number("host_wait_ms", host_wait_ms, 100, 600000);
}

}  // namespace penstock
