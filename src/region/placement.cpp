#include "region/placement.hpp"

#include <algorithm>
#include <cerrno>

#include "penstock/options.hpp"

namespace penstock::region {

namespace {

constexpr const char* back_to_filled = "leave region_options::placement at filled";

// What forbids a mapping of the file in place of a copy, in either way.
status why_not_mapped(const placement_facts& facts) {
    if (facts.writable)
        return {-EINVAL, std::string("kernels only read a region that is not filled; ask for "
                                     "protection::read, or ") +
                             back_to_filled};
    if (facts.promote_hot)
        return {-EINVAL, std::string("region_options::promote_hot moves pieces of a filled region; "
                                     "leave it out, or ") +
                             back_to_filled};
    if (facts.changes_elsewhere && facts.has_mounts)
        return {-EOPNOTSUPP,
                std::string("the file's system may be served by this process, whose mounts could "
                            "then wait for themselves; map the file under its own name, or ") +
                    back_to_filled};
    if (facts.changes_elsewhere && facts.outside_writers)
        return {-EOPNOTSUPP,
                std::string("other machines or a server may change files of its file system, which "
                            "is not seen in pages that are mapped; if no program writes it, set "
                            "region_options::outside_writers to false, or ") +
                    back_to_filled};
    return {};
}

status why_not_in_place(const placement_facts& facts) {
    if (status s = why_not_mapped(facts); !s.ok() || !facts.device.is_gpu) return s;
    if (!facts.device.registers)
        return {-EOPNOTSUPP, std::string("the device takes no memory for reading only "
                                         "(cudaDevAttrHostRegisterReadOnlySupported); ") +
                                 back_to_filled};
    if (facts.pinnable_bytes != 0 && facts.bytes > facts.pinnable_bytes)
        return {-ENOMEM, "its " + format_size(facts.bytes) +
                             " would be pinned in host memory, which has room for " +
                             format_size(facts.pinnable_bytes) +
                             " of that; map a smaller part of the file"};
    return {};
}

status why_not_system(const placement_facts& facts) {
    if (status s = why_not_mapped(facts); !s.ok() || facts.device.reads_pageable) return s;
    return {-EOPNOTSUPP, std::string("the device does not read pageable memory (HMM, ATS: "
                                     "cudaDevAttrPageableMemoryAccess is 0); use in_place, or ") +
                             back_to_filled};
}

placement_choice choose_automatically(const placement_facts& facts) {
    using enum region_placement;
    if (facts.writable) return {filled, "it is written"};
    if (facts.promote_hot) return {filled, "promote_hot is set"};
    const std::uint64_t room = std::min(facts.device_bytes, facts.device.free_bytes);
    if (facts.bytes <= room)
        return {filled, "its " + format_size(facts.bytes) +
                            " fit in the device memory that it may use" +
                            (room == UINT64_MAX ? "" : ", " + format_size(room))};
    std::string reason = "its " + format_size(facts.bytes) + " do not fit in the " +
                         format_size(room) + " of device memory that it may use";
    const status no_place =
        facts.in_place_tried.ok() ? why_not_in_place(facts) : facts.in_place_tried;
    if (no_place.ok()) return {in_place, reason};
    reason += ", and in place " + no_place.message;
    const status no_system = facts.system_tried.ok() ? why_not_system(facts) : facts.system_tried;
    if (no_system.ok()) return {system, reason};
    if (!facts.system_tried.ok()) reason += ", and system " + no_system.message;
    return {filled, reason};
}

}  // namespace

const char* name_of(region_placement placement) {
    switch (placement) {
        case region_placement::filled: return "filled";
        case region_placement::in_place: return "in place";
        case region_placement::system: return "system";
        case region_placement::automatic: return "automatic";
    }
    return "unknown";
}

status choose_placement(const placement_facts& facts, placement_choice& out) {
    out = {facts.wanted, "it was asked for"};
    switch (facts.wanted) {
        case region_placement::filled: return {};
        case region_placement::in_place: return why_not_in_place(facts);
        case region_placement::system: return why_not_system(facts);
        case region_placement::automatic: out = choose_automatically(facts); return {};
    }
    return {-EINVAL,
            "region_options::placement has no such value; use an enumerator of "
            "region_placement"};
}

}  // namespace penstock::region
