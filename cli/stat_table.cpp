#include "stat_table.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "settings/utf8.hpp"

namespace penstock::cli {

namespace {

// The numbers of a line, in the order of its columns.
struct figures {
    double hits, window, tier, neighbour, request, read_bytes, waits, errors;
};

figures figures_of(const statistics& s) {
    const auto number = [](std::uint64_t value) { return static_cast<double>(value); };
    return {number(s.hits),
            number(s.window_loads + s.through_reads),
            number(s.tier_loads),
            number(s.neighbour_loads + s.neighbour_reads),
            number(s.request_loads),
            number(s.bytes_read),
            number(s.load_waits + s.neighbour_waits + s.frame_waits + s.ring_waits),
            number(s.errors + s.file_read_errors + s.file_write_errors + s.write_back_errors)};
}

std::size_t letters_of(std::string_view text) {
    std::size_t out = 0;
    for (; !text.empty(); ++out)
        text.remove_prefix(std::max<std::size_t>(1, settings::letter_bytes(text)));
    return out;
}

// Padded to its column, a blank for each letter that is missing. What is longer stays whole: a
// number that is cut is another number.
std::string column(std::string text, std::size_t width, bool to_right) {
    const std::size_t letters = letters_of(text);
    if (letters < width) text.insert(to_right ? 0 : text.size(), width - letters, ' ');
    return text;
}

// A name of at most `width` letters; the last is "+" where the name was longer.
std::string short_name(const std::string& name, std::size_t width) {
    const std::string text = settings::in_letters(name);
    if (letters_of(text) <= width) return text;
    std::size_t end = 0;
    for (std::size_t i = 0; i + 1 < width; ++i)
        end += settings::letter_bytes(std::string_view(text).substr(end));
    return text.substr(0, end) + "+";
}

std::string begin_of_line(const std::string& pid, const std::string& program,
                          const std::string& device) {
    return column(pid, 7, true) + " " + column(short_name(program, 9), 9, false) + " " +
           column(device, 5, false);
}

// "100%", "3%"; "-" for a cache that did not say how large it is.
std::string share_of(const host::published_statistics& now) {
    if (now.cache_pages == 0) return "-";
    const std::uint64_t part = std::min(now.counted.resident_pages, now.cache_pages);
    return std::to_string(part * 100 / now.cache_pages) + "%";
}

}  // namespace

void number_caches(std::vector<cache_report>& all) {
    // Stable: the caller finds the pages of a process in the same order each time.
    std::stable_sort(all.begin(), all.end(), [](const cache_report& a, const cache_report& b) {
        return std::pair(a.pid, a.now.cache_number) < std::pair(b.pid, b.now.cache_number);
    });
    for (std::size_t i = 1; i < all.size(); ++i) {
        const cache_report& before = all[i - 1];
        if (all[i].pid == before.pid && all[i].now.cache_number <= before.now.cache_number)
            all[i].now.cache_number = before.now.cache_number + 1;
    }
}

std::string device_of(const cache_report& report) {
    return report.now.is_gpu != 0 ? "gpu" + std::to_string(report.now.device_number) : "cpu";
}

std::string short_number(double value) {
    constexpr std::array<const char*, 7> units = {"", "k", "M", "G", "T", "P", "E"};
    std::size_t unit = 0;
    // What would be rounded to 1000 takes the next unit.
    while (value >= 999.5 && unit + 1 < units.size()) {
        value /= 1000;
        ++unit;
    }
    char text[32];
    const bool is_small = unit > 0 && value < 9.95;
    std::snprintf(text, sizeof text, is_small ? "%.1f%s" : "%.0f%s", value, units[unit]);
    return text;
}

std::string table_head() {
    return begin_of_line("PID", "PROGRAM", "ON") +
           " HITS WINDOW  TIER NEIGHB REQUEST  READ WAITS CACHE ERRS\n";
}

std::string table_line(const cache_report& report, const cache_report* before) {
    const std::string begin =
        begin_of_line(std::to_string(report.pid), report.program, device_of(report));
    figures now = figures_of(report.now.counted);
    if (before != nullptr) {
        if (!report.answers || report.taken_ns <= before->taken_ns)
            return begin + "  no answer; is the program stopped?\n";
        const figures old = figures_of(before->now.counted);
        const double seconds = static_cast<double>(report.taken_ns - before->taken_ns) * 1e-9;
        const auto rate = [&](double figures::*member) {
            now.*member = std::max(now.*member - old.*member, 0.0) / seconds;
        };
        for (const auto member :
             {&figures::hits, &figures::window, &figures::tier, &figures::neighbour,
              &figures::request, &figures::read_bytes, &figures::waits})
            rate(member);
        now.errors = std::max(now.errors - old.errors, 0.0);
    }
    const auto number = [](double value, std::size_t width) {
        return " " + column(short_number(value), width, true);
    };
    return begin + number(now.hits, 4) + number(now.window, 6) + number(now.tier, 5) +
           number(now.neighbour, 6) + number(now.request, 7) + number(now.read_bytes, 5) +
           number(now.waits, 5) + " " + column(share_of(report.now), 5, true) +
           number(now.errors, 4) + "\n";
}

}  // namespace penstock::cli
