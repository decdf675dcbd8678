#include "bench.hpp"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <unistd.h>

#include "common/message.hpp"
#include "common/numbers.hpp"

namespace penstock::bench {

namespace {

std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> out;
    for (std::size_t at = 0; !text.empty() && at <= text.size();) {
        const std::size_t comma = std::min(text.find(',', at), text.size());
        out.push_back(text.substr(at, comma - at));
        at = comma + 1;
    }
    return out;
}

[[noreturn]] void refuse(const std::string& flag, const std::string& text, const std::string& why) {
    throw failure(-EINVAL, flag + ": " + apps::shown(text) + " " + why);
}

std::vector<std::uint64_t> sizes(const std::string& flag, const std::string& text) {
    std::vector<std::uint64_t> out;
    for (const std::string& word : split(text)) {
        require(parse_size(flag, word, out.emplace_back()));
        if (out.back() == 0) refuse(flag, word, "is no usable size; give one, such as 64KiB");
    }
    return out;
}

// 0 if nothing was given.
std::uint64_t number(const char* flag, const std::string& text, std::uint64_t most) {
    std::uint64_t out = 0;
    require(apps::parse_number<std::uint64_t>(
        flag, text, 1, most, "from 1 to " + std::to_string(most) + "; give one, such as 2", out));
    return out;
}

void settle_pages(const request& asked, settings& out) {
    out.page_bytes = sizes("--page", asked.page);
    std::uint64_t largest = out.page_bytes.empty() ? 65536 : 0;
    for (const std::uint64_t page : out.page_bytes) {
        if (page < 512 || page > (2u << 20) || !std::has_single_bit(page))
            refuse("--page", asked.page,
                   "holds " + std::to_string(page) +
                       ", which is no page size; give powers of two from 512 to 2MiB");
        largest = std::max(largest, page);
    }
    out.cache_bytes = sizes("--cache", asked.cache);
    for (const std::uint64_t cache : out.cache_bytes)
        if (cache / 8 < largest)
            refuse("--cache", asked.cache,
                   "holds " + format_size(cache) + ", less than 8 pages of " +
                       format_size(largest) + "; give " + format_size(8 * largest) + " or more");
}

void settle_file(const request& asked, settings& out) {
    const std::vector<std::uint64_t> bytes = sizes("--file", asked.file);
    if (bytes.size() > 1)
        refuse("--file", asked.file, "is more than one size; give one, such as 8GiB");
    if (!bytes.empty() && bytes[0] < file_step_bytes)
        refuse("--file", asked.file, "is too small to measure; give 2MiB or more");
    if (!bytes.empty())
        out.file_bytes = (bytes[0] + file_step_bytes - 1) / file_step_bytes * file_step_bytes;
    std::error_code ignored;
    out.directory = asked.directory.empty() ? std::filesystem::temp_directory_path(ignored).string()
                                            : asked.directory;
    if (!std::filesystem::is_directory(out.directory, ignored))
        refuse("--dir", out.directory,
               "is no directory; name one that exists and has room for the file");
    if (::access(out.directory.c_str(), W_OK) != 0)
        refuse("--dir", out.directory, "cannot be written to; name a directory that can");
}

std::vector<std::string> settle_cases(const request& asked, const std::vector<std::string>& known) {
    const auto has = [](const std::vector<std::string>& names, const std::string& name) {
        return std::find(names.begin(), names.end(), name) != names.end();
    };
    std::string all;
    for (const std::string& name : known) all += (all.empty() ? "" : ", ") + name;
    std::vector<std::string> out;
    for (const std::string& name : asked.cases) {
        if (name == "all") return known;
        if (!has(known, name))
            throw failure(-EINVAL, "bench: " + apps::shown(name) + " is no case; give some of " +
                                       all + ", or all");
        if (!has(out, name)) out.push_back(name);
    }
    return out;
}

}  // namespace

settings settle(const request& asked, const std::vector<std::string>& known) {
    settings out;
    out.cases = settle_cases(asked, known);
    if (!asked.backend.empty()) require(parse_backend("--backend", asked.backend, out.where));
    settle_pages(asked, out);
    settle_file(asked, out);
    out.repeats = number("--repeats", asked.repeats, 1000);
    out.threads = number("--threads", asked.threads, 1024);
    for (const std::string& word : split(asked.service_threads)) {
        if (word.empty())
            refuse("--service-threads", asked.service_threads,
                   "has an empty part; give numbers such as 1,2,4");
        out.service_threads.push_back(number("--service-threads", word, 64));
    }
    out.commit = asked.commit.empty() ? "unknown" : asked.commit;
    out.sweep = asked.sweep;
    out.quiet = asked.quiet;
    return out;
}

}  // namespace penstock::bench
