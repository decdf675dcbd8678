// Fills in flight: requests to read pages into frames of the host tier (engine/fill.hpp). One
// service thread owns them.
//
// The device says which frames a request uses; frames that follow each other in memory are read
// together. The device may be wrong or hostile: every frame number is checked, so the device can
// spoil pages of its own tier and nothing else.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "os/env.hpp"
#include "files/file_registry.hpp"
#include "penstock/engine/fill.hpp"

namespace penstock::host {

// The host's view of the tier; without frames there is no tier.
struct host_tier {
    std::byte* frames = nullptr;
    std::uint64_t* done_marks = nullptr;
    std::uint32_t frame_count = 0;
};

// The fields of a fill request, copied out of shared memory.
struct fill_order {
    engine::ring_ticket at{};  // the request to answer
    std::uint64_t stamp = 0, offset = 0;
    std::uint32_t bytes = 0, pages = 0;
    std::array<std::uint32_t, engine::max_fill_pages> frames{};
};

class fill_set {
public:
    // Reads whose tag has this bit belong to this class.
    static constexpr std::uint64_t tag_bit = std::uint64_t{1} << 63;

    fill_set(const host_tier& tier, std::uint32_t page_shift)
        : tier_(tier), page_shift_(page_shift) {}

    // May the frames be written to? An order with a wrong frame is refused as a whole.
    [[nodiscard]] bool permits(const fill_order& order) const;
    // Tells groups that wait for these pages that the pages will not come.
    void refuse(const fill_order& order) const;
    // Starts the reads. Returns how many it started, and in `direct` how many of these go past the
    // page cache.
    std::uint32_t begin(const fill_order& order, std::shared_ptr<shared_handle> file, io_engine& io,
                        std::uint32_t& direct);

    // The bytes of an order, from somewhere else than its file: copy(to, offset, bytes) for parts
    // of it, in order. False: one of the copies said so; its pages and those after it do not come.
    template <typename Copy>
    bool take(const fill_order& order, const Copy& copy) const {
        bool good = true;
        for (std::uint32_t page = 0; page < order.pages; ++page) {
            const std::uint32_t begins = page << page_shift_;
            good = good &&
                   copy(tier_.frames + (std::uint64_t{order.frames[page]} << page_shift_),
                        order.offset + begins, std::min(order.bytes - begins, 1u << page_shift_));
            mark(order, page, good);
        }
        return good;
    }

    enum class progress { another_way, again, read_done, order_done };
    // Handles a read that has ended. `another_way`: the read is started anew and still counts as
    // one read. `again`: the missing bytes were requested. `order_done`: it was the order's last
    // read; `at` is the order's place.
    progress finish(const read_result& result, io_engine& io, engine::ring_ticket& at);

private:
    // A read of pages whose frames follow each other.
    struct part {
        std::uint32_t first = 0, pages = 0, bytes = 0, done = 0;
        read_way way = read_way::queued;
        int attempts = 0;  // one after the other that storage said to try again
    };
    struct flight {
        fill_order order;
        std::shared_ptr<shared_handle> file;
        std::vector<part> parts;
        std::uint32_t left = 0;
    };

    [[nodiscard]] std::uint32_t free_flight();
    [[nodiscard]] read_operation rest_of(std::uint32_t flight_index,
                                         std::uint32_t part_index) const;
    void start(std::uint32_t flight_index, std::uint32_t part_index, io_engine& io);
    void mark(const fill_order& order, std::uint32_t page, bool good) const;
    void mark_part(const flight& f, const part& p) const;

    const host_tier tier_;
    const std::uint32_t page_shift_;
    std::vector<flight> flights_;
};

}  // namespace penstock::host
