#include "bench.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <unistd.h>

#include "common/message.hpp"

namespace penstock::bench {

namespace {

std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> out;
    for (std::size_t at = 0; at <= text.size();) {
        const std::size_t comma = std::min(text.find(',', at), text.size());
        out.push_back(text.substr(at, comma - at));
        at = comma + 1;
    }
    return out;
}

status refuse(const char* flag, const std::string& text, const std::string& why) {
    return {-EINVAL, std::string(flag) + ": " + apps::shown(text) + " " + why};
}

status sizes(const char* flag, const std::string& text, std::vector<std::uint64_t>& out) {
    if (text.empty()) return {};
    for (const std::string& word : split(text)) {
        std::uint64_t bytes = 0;
        if (status s = parse_size(flag, word, bytes); !s) return s;
        if (bytes == 0) return refuse(flag, word, "is no usable size; give one, such as 64KiB");
        out.push_back(bytes);
    }
    return {};
}

status number(const char* flag, const std::string& text, std::uint64_t most, std::uint64_t& out) {
    if (text.empty()) return {};
    const char* const end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, out);
    if (parsed.ec == std::errc() && parsed.ptr == end && out >= 1 && out <= most) return {};
    return refuse(flag, text,
                  "is no whole number from 1 to " + std::to_string(most) + "; give one, such as 2");
}

status page_sizes(const request& asked, settings& out) {
    if (status s = sizes("--page", asked.page, out.page_bytes); !s) return s;
    for (const std::uint64_t page : out.page_bytes)
        if (page < 512 || page > (2u << 20) || (page & (page - 1)) != 0)
            return refuse("--page", asked.page,
                          "holds " + std::to_string(page) +
                              ", which is no page size; give powers of two from 512 to 2MiB");
    if (status s = sizes("--cache", asked.cache, out.cache_bytes); !s) return s;
    const std::uint64_t largest =
        out.page_bytes.empty() ? 65536
                               : *std::max_element(out.page_bytes.begin(), out.page_bytes.end());
    for (const std::uint64_t cache : out.cache_bytes)
        if (cache / 8 < largest)
            return refuse("--cache", asked.cache,
                          "holds " + format_size(cache) + ", less than 8 pages of " +
                              format_size(largest) + "; give " + format_size(8 * largest) +
                              " or more");
    return {};
}

status file_place(const request& asked, settings& out) {
    std::vector<std::uint64_t> bytes;
    if (status s = sizes("--file", asked.file, bytes); !s) return s;
    if (bytes.size() > 1)
        return refuse("--file", asked.file, "is more than one size; give one, such as 8GiB");
    if (!bytes.empty() && bytes[0] < file_step_bytes)
        return refuse("--file", asked.file, "is too small to measure; give 2MiB or more");
    if (!bytes.empty())
        out.file_bytes = (bytes[0] + file_step_bytes - 1) / file_step_bytes * file_step_bytes;
    std::error_code ignored;
    out.directory = asked.directory.empty() ? std::filesystem::temp_directory_path(ignored).string()
                                            : asked.directory;
    if (!std::filesystem::is_directory(out.directory, ignored))
        return refuse("--dir", out.directory,
                      "is no directory; name one that exists and has room for the file");
    if (::access(out.directory.c_str(), W_OK) != 0)
        return refuse("--dir", out.directory, "cannot be written to; name a directory that can");
    return {};
}

status case_names(const request& asked, const std::vector<std::string>& known, settings& out) {
    std::string all;
    for (const std::string& name : known) all += (all.empty() ? "" : ", ") + name;
    for (const std::string& name : asked.cases) {
        if (name == "all") {
            out.cases = known;
            return {};
        }
        if (std::find(known.begin(), known.end(), name) == known.end())
            return {-EINVAL, "bench: " + apps::shown(name) + " is no case; give some of " + all +
                                 ", or all"};
        if (std::find(out.cases.begin(), out.cases.end(), name) == out.cases.end())
            out.cases.push_back(name);
    }
    return {};
}

}  // namespace

status settle(const request& asked, const std::vector<std::string>& known, settings& out) {
    if (status s = case_names(asked, known, out); !s) return s;
    if (!asked.backend.empty())
        if (status s = parse_backend("--backend", asked.backend, out.where); !s) return s;
    if (status s = page_sizes(asked, out); !s) return s;
    if (status s = file_place(asked, out); !s) return s;
    if (status s = number("--repeats", asked.repeats, 1000, out.repeats); !s) return s;
    if (status s = number("--threads", asked.threads, 1024, out.threads); !s) return s;
    if (!asked.service_threads.empty())
        for (const std::string& word : split(asked.service_threads)) {
            std::uint64_t threads = 0;
            if (word.empty())
                return refuse("--service-threads", asked.service_threads,
                              "has an empty part; give numbers such as 1,2,4");
            if (status s = number("--service-threads", word, 64, threads); !s) return s;
            out.service_threads.push_back(threads);
        }
    out.commit = asked.commit.empty() ? "unknown" : asked.commit;
    out.sweep = asked.sweep;
    out.quiet = asked.quiet;
    return {};
}

}  // namespace penstock::bench
