// Databases in this process's address space, for the baseline.
#pragma once

#include <cstdint>
#include <vector>

#include "common/whole_file.hpp"
#include "image_file.hpp"
#include "match_view.hpp"

namespace penstock::match {

class mapped_images {
public:
    status open(const std::vector<image_file>& files) {
        for (const image_file& file : files)
            if (status s = maps_.emplace_back().open(
                    file.path, file.header.data_offset + file.header.data_bytes());
                !s)
                return s;
        return {};
    }

    // A source for compare_on_lane.
    template <typename Visit>
    int visit(const tile_place& at, std::uint64_t first_byte, std::uint64_t bytes,
              const Visit& visit) const {
        visit(reinterpret_cast<const float*>(maps_[at.database].data() + first_byte), 0,
              bytes / sizeof(float));
        return 0;
    }

private:
    std::vector<apps::mapped_file> maps_;
};

}  // namespace penstock::match
