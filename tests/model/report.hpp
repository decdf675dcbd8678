// What the actors of a model run share besides the files: what they found, and how much they may
// hold.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>

#include "penstock/base/atomic.hpp"
#include "penstock/engine/layout.hpp"
#include "penstock/error.hpp"

namespace penstock::model {

// One thing that was not as it should be.
struct failure {
    std::uint64_t actor, step;
    std::uint32_t kind;  // a verb
    std::uint32_t file;
    std::uint64_t offset, length;
    std::int64_t got, expected;
    std::uint64_t floor, newest;  // versions that were allowed
};
inline constexpr std::uint32_t kept_failures = 16;

// An element of a view that could not be had, or may not have been: zero where the file was
// changing.
struct missing_element {
    std::int32_t fd, code;
    std::uint64_t offset;  // in the file
};
inline constexpr std::uint32_t kept_missing = 4096;

// Lies in memory that all actors reach, zeroed at the start. Every field is only ever added to, but
// for the two budgets and what the host takes out.
struct report {
    std::uint64_t wrong_bytes;
    std::uint64_t wrong_results;
    std::uint64_t written_outside;   // reads that touched bytes beside the buffer
    std::uint64_t changed_mappings;  // mapped bytes that did not stay what they were
    std::uint64_t failures;          // all of the above, as events
    failure kept[kept_failures];

    std::uint64_t steps;
    std::uint64_t checks,
        exact_checks;     // judged calls, and those where only one version was allowed
    std::uint64_t stale;  // calls that said -ESTALE, where that was allowed
    // To be compared with the runtime's own statistics.
    std::uint64_t opens, bytes_read, errors;
    std::uint64_t view_elements;  // through v[i]
    std::uint64_t view_visits;    // through for_each

    // Rows of tables: all, those of numbers outside, padding, those that straddle pages, and those
    // that a changing file did not give. Of one row of each call: found in the cache, loaded
    // meanwhile, read through a window.
    std::uint64_t table_rows, table_outside, table_padded, table_straddling, table_stale;
    std::uint64_t table_hits, table_misses, table_through;
    std::uint64_t table_wishes;  // the most lists of wishes that were posted

    // What runtime::view_status may be about. The host takes them out between launches.
    std::uint64_t missing;       // as events
    std::uint64_t out_of_range;  // of these, elements that are not there: the runtime must have
                                 // noted one of all
    missing_element missed[kept_missing];

    // How many descriptors and mappings all actors hold together.
    std::uint64_t open_held, maps_held;
};

// Takes one of `limit` units; false if all are taken.
inline PENSTOCK_HD bool try_take(std::uint64_t* held, std::uint64_t limit) {
    for (;;) {
        const std::uint64_t seen = atomic_load<order::relaxed>(held);
        if (seen >= limit) return false;
        if (atomic_compare_swap<order::acq_rel>(held, seen, seen + 1)) return true;
    }
}
inline PENSTOCK_HD void give_one(std::uint64_t* held) {
    atomic_fetch_add<order::acq_rel>(held, ~std::uint64_t{0});
}

inline PENSTOCK_HD void note(report* out, const failure& f) {
    const std::uint64_t place = atomic_fetch_add<order::relaxed>(&out->failures, std::uint64_t{1});
    if (place < kept_failures) out->kept[place] = f;
}

inline PENSTOCK_HD void note_missing(report* out, const missing_element& e) {
    const std::uint64_t place = atomic_fetch_add<order::relaxed>(&out->missing, std::uint64_t{1});
    if (place < kept_missing) out->missed[place] = e;
    if (e.code == -ERANGE) atomic_add_relaxed(&out->out_of_range, std::uint64_t{1});
}

// What the runtime says about elements of views that could not be had, against what the actors of a
// round know of them, after a round that began with a clear view status. What is wrong, or an empty
// string.
//
// An element outside of its file must have been noted, so the record cannot be empty. Whatever is
// in it must be one of the elements that actors know: outside, or zero in a file that was changing.
// Where too many are known to keep, only the code is.
inline std::string judge_view_status(const engine::fault_record& fault, const status& said,
                                     const report& seen) {
    if (fault.claimed == 0) {
        if (!said.ok()) return "view_status without a record: " + said.message;
        return seen.out_of_range == 0 ? "" : "an element outside of its file was not noted";
    }
    if (said.code != fault.code ||
        said.message.find("byte " + std::to_string(fault.offset) + ":") == std::string::npos)
        return "view_status does not tell its record: " + said.message;
    // Whatever the descriptor's number.
    constexpr auto number =
        static_cast<int>((engine::max_file_slots - 1) &
                         ~((engine::max_file_slots - 1) >> engine::descriptor_number_bits));
    const int fd =
        engine::make_descriptor(fault.slot, static_cast<std::uint32_t>(fault.generation));
    for (std::uint64_t i = 0; i < seen.missing && i < kept_missing; ++i) {
        const missing_element& e = seen.missed[i];
        if ((e.fd & ~number) == fd && e.offset == fault.offset && e.code == fault.code) return "";
    }
    if (seen.missing > kept_missing && (fault.code == -ERANGE || fault.code == -ESTALE)) return "";
    return "no actor missed the element that view_status names: " + said.message;
}

}  // namespace penstock::model
