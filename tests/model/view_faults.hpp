// What the runtime says about elements of views that could not be had, against what the actors of a
// round know of them.
#pragma once

#include <string>

#include "model/report.hpp"
#include "penstock/engine/layout.hpp"
#include "penstock/error.hpp"

namespace penstock::model {

// After a round that began with a clear view status. What is wrong, or an empty string.
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
