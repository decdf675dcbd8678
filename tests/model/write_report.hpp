// What the actors of the model test of writes found and met. Lies in memory that all of them reach,
// zeroed at the start.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>

#include "model/report.hpp"

namespace penstock::model {

enum class write_verb : std::uint32_t {
    open,
    close,
    write,
    read,
    map,
    append,
    look_back,
    truncate,
    msync,
    fsync,
    stat,
    refused,
    change
};
inline const char* name_of(write_verb kind) {
    constexpr const char* names[] = {"open",
                                     "close",
                                     "write",
                                     "read",
                                     "map",
                                     "append",
                                     "look back at a record",
                                     "truncate",
                                     "msync",
                                     "fsync",
                                     "stat",
                                     "a call that must be refused",
                                     "change through a mapping"};
    return names[static_cast<std::uint32_t>(kind)];
}

// Every count is only ever added to.
struct write_report {
    std::uint64_t wrong_bytes, wrong_results, failures;
    failure kept[kept_failures];

    std::uint64_t steps, writes, changes, reads, maps, appends, cuts, growths, msyncs, fsyncs,
        creates, reopens, refusals;
    std::uint64_t exact_bytes, judged_bytes;  // own ones, and all
    std::uint64_t
        short_tails;  // writes into the last page of a file that does not end with its page
    std::uint64_t
        cut_written;  // cuts in front of bytes that were written since the last synchronisation
    std::uint64_t
        seen_in_file;  // bytes that an ordinary program found in the file, while others wrote it
};

struct write_coverage {
    write_report found{};
    std::uint64_t dirty_victims = 0, written_behind = 0, write_backs = 0;  // of the runtime
    std::uint64_t overlaps = 0;  // pages written from begin to end while an older state of them was
                                 // on its way to the file
    std::uint64_t grown_tables = 0, two_level_tables = 0;  // of files that were written
    std::uint64_t tier_loads = 0, tier_saves = 0;
    std::uint64_t ordinary_bytes = 0, second_bytes = 0;  // written beside the runtime
    std::uint64_t records = 0;                           // found whole in logs
    bool watches_write_backs = true;                     // overlaps can be met

    template <typename Visit>
    void visit(const Visit& each) {
        each("steps", found.steps), each("writes", found.writes), each("changes", found.changes),
            each("reads", found.reads), each("maps", found.maps);
        each("appends", found.appends), each("cuts", found.cuts), each("growths", found.growths),
            each("msyncs", found.msyncs);
        each("fsyncs", found.fsyncs), each("creates", found.creates),
            each("reopens", found.reopens), each("refusals", found.refusals);
        each("exact_bytes", found.exact_bytes), each("judged_bytes", found.judged_bytes),
            each("short_tails", found.short_tails);
        each("cut_written", found.cut_written), each("seen_in_file", found.seen_in_file);
        each("dirty_victims", dirty_victims), each("written_behind", written_behind),
            each("write_backs", write_backs), each("overlaps", overlaps);
        each("grown_tables", grown_tables), each("two_level_tables", two_level_tables),
            each("tier_loads", tier_loads);
        each("tier_saves", tier_saves), each("ordinary_bytes", ordinary_bytes),
            each("second_bytes", second_bytes), each("records", records);
    }
    void add(write_coverage other) {
        std::uint64_t from[32] = {}, count = 0;
        other.visit([&](const char*, std::uint64_t value) { from[count++] = value; });
        count = 0;
        visit([&](const char*, std::uint64_t& value) { value += from[count++]; });
        watches_write_backs = watches_write_backs && other.watches_write_backs;
    }
    [[nodiscard]] std::string text() {
        std::ostringstream out;
        visit([&](const char* name, std::uint64_t value) { out << ' ' << name << ' ' << value; });
        return out.str();
    }
    [[nodiscard]] std::uint64_t operations_done() const { return found.steps; }
    // What was never met, or an empty string.
    [[nodiscard]] std::string missing() {
        std::string names;
        visit([&](const char* name, std::uint64_t value) {
            const std::string text = name;
            const bool impossible =
                !watches_write_backs && (text == "overlaps" || text == "seen_in_file");
            if (value == 0 && !impossible) names += (names.empty() ? "" : ", ") + text;
        });
        return names;
    }
};

}  // namespace penstock::model
