// The inside of a file_region: a filled one (mapped_region) or one in the page cache
// (in_place_region).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "os/process_owner.hpp"
#include "penstock/region.hpp"
#include "region/request_thread.hpp"

namespace penstock::region {

class region_body {
public:
    // Not called in a child of fork() (belongs_here).
    virtual ~region_body() = default;
    region_body(const region_body&) = delete;
    region_body& operator=(const region_body&) = delete;

    [[nodiscard]] bool belongs_here() const { return owner_.here(); }
    // Before the owner has the region; not changed after that.
    void placed(region_placement where, std::string reason) {
        placement_ = where;
        reason_ = std::move(reason);
    }
    [[nodiscard]] region_placement placement() const { return placement_; }
    [[nodiscard]] const std::string& placement_reason() const { return reason_; }

    // As file_region has them.
    [[nodiscard]] virtual void* data() const = 0;
    [[nodiscard]] virtual std::uint64_t size_bytes() const = 0;
    virtual std::int64_t acquire(const region_part& part, void* stream) = 0;
    virtual std::int64_t release(const region_part& part, void* stream) = 0;
    virtual std::shared_ptr<request_end> acquire_async(const region_part& part, void* stream) = 0;
    virtual std::shared_ptr<request_end> release_async(const region_part& part, void* stream) = 0;
    virtual int sync() = 0;
    virtual std::int64_t prefer(std::uint64_t offset, std::uint64_t bytes, void* stream) = 0;
    virtual int close(void* stream) = 0;
    virtual int detach(void* stream) = 0;
    [[nodiscard]] virtual region_traffic traffic() const = 0;

protected:
    region_body() = default;
    [[nodiscard]] bool contains(const region_part& part) const {
        return part.offset <= size_bytes() && part.bytes.value_or(0) <= size_bytes() - part.offset;
    }

private:
    const host::process_owner owner_{};
    region_placement placement_ = region_placement::filled;
    std::string reason_;
};

}  // namespace penstock::region
