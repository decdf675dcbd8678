// Databases in this process's address space, for the baseline: plain memory maps of the operating system's page cache.
// A file that is cut short while it is mapped ends the program by SIGBUS, as with every memory map.
#pragma once

#include <cstdint>
#include <vector>

#include "image_file.hpp"
#include "match_view.hpp"

namespace penstock::match {

class mapped_images {
public:
    mapped_images() = default;
    ~mapped_images();
    mapped_images(const mapped_images&) = delete;
    mapped_images& operator=(const mapped_images&) = delete;

    status open(const std::vector<image_file>& files);

    // A source for compare_on_lane.
    template <typename Visit>
    int visit(const tile_place& at, std::uint64_t first_byte, std::uint64_t bytes, const Visit& visit) const {
        visit(reinterpret_cast<const float*>(maps_[at.database].data + first_byte), 0, bytes / sizeof(float));
        return 0;
    }

private:
    struct one_map {
        char* data;
        std::uint64_t bytes;
    };
    std::vector<one_map> maps_;
};

}  // namespace penstock::match
