// The part of a region's first fill that comes by cuFile (device/direct_storage.hpp): which batches
// are read so, and what the log is to say about it.
//
// Only of the first fill, when the region is mapped: it is large and cold as a rule, and no kernel
// of the region runs, so device memory may come and go. Pages that an acquire brings later were
// written a moment before, so they are in the page cache.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "device/direct_storage.hpp"
#include "os/env.hpp"
#include "region/home_writer.hpp"
#include "region/region_memory.hpp"
#include "region/version_map.hpp"

namespace penstock::region {

// A read costs a call of the driver, so small ones do not pay.
inline constexpr std::uint64_t least_direct_read_bytes = std::uint64_t{512} << 10;

struct direct_order {
    host::direct_storage* storage = nullptr;  // null: nothing comes so
    direct_mode mode = direct_mode::off;
};

class direct_fill {
public:
    // `fd` is the file as it is open for reading, `fill_bytes` all that is to be filled.
    direct_fill(const direct_order& order, host::environment& env, int fd, region_memory& memory,
                std::uint64_t fill_bytes);
    // When all workers are at rest.
    ~direct_fill();
    direct_fill(const direct_fill&) = delete;
    direct_fill& operator=(const direct_fill&) = delete;

    // Where the bytes of these pages of the file lie for region_memory::fill, one page after the
    // other. Null: they are to be read the ordinary way. Thread-safe, for one worker each.
    const std::byte* read(unsigned worker, const page_list& batch);
    [[nodiscard]] std::uint64_t pages() const { return pages_.load(); }
    // The rest of a line about the region for the log; empty: there is nothing new to say.
    [[nodiscard]] std::string news();

private:
    host::direct_file* file();

    const direct_order order_;
    host::environment& env_;
    const int fd_;
    region_memory& memory_;
    const bool is_wanted_;
    const std::uint64_t size_bytes_;
    std::atomic<std::uint64_t> pages_{0};
    std::mutex mutex_;  // guards all below
    bool was_tried_ = false;
    std::unique_ptr<host::direct_file> file_;
    std::string why_not_;
};

}  // namespace penstock::region
