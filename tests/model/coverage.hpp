// What a run of the model test has met. A check that met nothing proves nothing, so a long run must
// have met everything.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>

#include "model/report.hpp"

namespace penstock::model {

struct coverage {
    std::uint64_t operations = 0;
    std::uint64_t window_loads = 0, tier_loads = 0,
                  request_loads = 0;                         // pages, by where they came from
    std::uint64_t through_reads = 0;                         // pages that were read past the cache
    std::uint64_t neighbour_reads = 0, neighbour_loads = 0;  // pages of another device's cache
    bool is_alone = false;                                   // there is one device
    std::uint64_t tier_saves = 0, pages_read_ahead = 0;
    std::uint64_t direct_reads = 0;  // past the operating system's page cache
    bool no_direct_reads = false;    // the file system has none
    std::uint64_t windows_opened = 0, windows_refused = 0, windows_closed = 0;
    std::uint64_t orphan_pages = 0;  // of the operating system, cut off below a window
    std::uint64_t view_elements = 0, view_visits = 0;
    std::uint64_t view_faults = 0;  // rounds in which the runtime had noted one
    std::uint64_t table_hits = 0, table_misses = 0, table_through = 0;  // by tables
    std::uint64_t table_outside = 0, table_padded = 0;                  // rows of zeros
    std::uint64_t table_straddling = 0;
    std::uint64_t drill_cached = 0, drill_window = 0, drill_orphan = 0, drill_request = 0,
                  drill_stale = 0;  // accesses

    // What the actors have counted so far: a report, or the sum of several.
    template <typename Counts>
    void take(const Counts& r) {
        if constexpr (std::is_same_v<Counts, report>) operations = r.steps;
        else operations = r.operations;
        view_elements = r.view_elements, view_visits = r.view_visits;
        table_hits = r.table_hits, table_misses = r.table_misses, table_through = r.table_through;
        table_outside = r.table_outside, table_padded = r.table_padded;
        table_straddling = r.table_straddling;
    }

    template <typename Visit>
    void visit(const Visit& each) {
        each("operations", operations), each("window_loads", window_loads),
            each("request_loads", request_loads);
        each("through_reads", through_reads);
        each("neighbour_reads", neighbour_reads), each("neighbour_loads", neighbour_loads);
        each("tier_loads", tier_loads), each("tier_saves", tier_saves),
            each("pages_read_ahead", pages_read_ahead);
        each("direct_reads", direct_reads);
        each("windows_opened", windows_opened), each("windows_refused", windows_refused),
            each("windows_closed", windows_closed);
        each("orphan_pages", orphan_pages), each("view_elements", view_elements),
            each("view_visits", view_visits);
        each("view_faults", view_faults);
        each("table_hits", table_hits), each("table_misses", table_misses),
            each("table_through", table_through);
        each("table_outside", table_outside), each("table_padded", table_padded),
            each("table_straddling", table_straddling);
        each("drill_cached", drill_cached), each("drill_window", drill_window);
        each("drill_orphan", drill_orphan), each("drill_request", drill_request),
            each("drill_stale", drill_stale);
    }

    void add(coverage other) {
        std::uint64_t from[32] = {}, count = 0;
        other.visit([&](const char*, std::uint64_t value) { from[count++] = value; });
        count = 0;
        visit([&](const char*, std::uint64_t& value) { value += from[count++]; });
        no_direct_reads = no_direct_reads || other.no_direct_reads;
        is_alone = is_alone || other.is_alone;
    }

    [[nodiscard]] std::string text() {
        std::ostringstream out;
        visit([&](const char* name, std::uint64_t value) { out << ' ' << name << ' ' << value; });
        return out.str();
    }

    [[nodiscard]] std::uint64_t operations_done() const { return operations; }

    // What was never met, or an empty string.
    [[nodiscard]] std::string missing() {
        std::string names;
        visit([&](const char* name, std::uint64_t value) {
            const std::string_view part(name);
            const bool impossible =
                (no_direct_reads && part == "direct_reads") ||
                part.starts_with(is_alone ? "neighbour_" : "drill_") ||
                (!is_alone && (part == "orphan_pages" || part == "windows_refused"));
            if (value == 0 && !impossible) names += std::string(names.empty() ? "" : ", ") + name;
        });
        return names;
    }
};

}  // namespace penstock::model
