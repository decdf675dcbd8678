// Where a region is to lie (region_placement): what automatic comes to, with the reason, and what
// refuses a placement.
#pragma once

#include <cstdint>
#include <string>

#include "penstock/region.hpp"
#include "region/mapping_reader.hpp"

namespace penstock::region {

struct placement_facts {
    region_placement wanted = region_placement::filled;
    std::uint64_t bytes = 0;  // of the part of the file
    bool writable = false, promote_hot = false, outside_writers = true;
    reading_device device;
    std::uint64_t device_bytes = UINT64_MAX;    // region_options::device_bytes
    std::uint64_t pinnable_bytes = UINT64_MAX;  // of host memory; 0: not known
    bool changes_elsewhere = false;             // host::environment::changes_elsewhere
    bool has_mounts = false;                    // the process serves files through FUSE
    // For automatic: why the placement failed when it was tried ("failed: ..."), or ok.
    status in_place_tried, system_tried;
};

struct placement_choice {
    region_placement where = region_placement::filled;
    std::string reason;  // the rest of "filled, because "
};

// Depends on the facts alone. An error if what is wanted cannot be had, with the cure.
status choose_placement(const placement_facts& facts, placement_choice& out);

// The name of the enumerator, with a blank for a line.
const char* name_of(region_placement placement);

}  // namespace penstock::region
