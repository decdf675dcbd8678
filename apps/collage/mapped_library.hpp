// The library in this process's address space, for the baselines: plain memory maps of the
// operating system's page cache. A library that is cut short while it is mapped ends the program by
// SIGBUS, as with every memory map.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "library.hpp"
#include "penstock/error.hpp"

namespace penstock::collage {

class mapped_library {
public:
    mapped_library() = default;
    ~mapped_library();
    mapped_library(const mapped_library&) = delete;
    mapped_library& operator=(const mapped_library&) = delete;

    status open(const library& of);
    [[nodiscard]] int histograms_fd() const { return histograms_fd_; }

    // A source for make_block.
    template <typename Member>
    int slot(const Member&, std::uint32_t table, std::uint32_t slot, table_entry*,
             std::uint32_t& begin, std::uint32_t& end) const {
        const auto* const begins =
            reinterpret_cast<const std::uint32_t*>(tables_[table] + table_head_bytes);
        begin = begins[slot];
        end = begins[slot + 1];
        return 0;
    }
    template <typename Member>
    int entries(const Member&, std::uint32_t table, std::uint32_t first, std::uint32_t,
                table_entry*, const table_entry*& out) const {
        out = reinterpret_cast<const table_entry*>(tables_[table] + entries_at_) + first;
        return 0;
    }
    template <typename Member, typename Visit>
    int record(const Member&, std::uint32_t id, const Visit& visit) const {
        visit(reinterpret_cast<const std::uint32_t*>(histograms_ +
                                                     std::uint64_t{id} * record_stride_bytes),
              0, bins);
        return 0;
    }
    template <typename Member>
    int tile(const Member&, std::uint32_t id, std::uint8_t*, const std::uint8_t*& out) const {
        out = reinterpret_cast<const std::uint8_t*>(tiles_ + std::uint64_t{id} * tile_bytes);
        return 0;
    }

private:
    status map(const std::string& path, const char*& out, int* keep_fd);
    std::vector<std::pair<void*, std::size_t>> maps_;
    const char* histograms_ = nullptr;
    const char* tiles_ = nullptr;
    const char* tables_[tables] = {};
    std::uint64_t entries_at_ = 0;
    int histograms_fd_ = -1;
};

}  // namespace penstock::collage
