#include "service/fills.hpp"

#include <algorithm>
#include <cerrno>

#include "penstock/base/atomic.hpp"

namespace penstock::host {

bool fill_set::permits(const fill_order& order) const {
    if (tier_.frames == nullptr) return false;
    return std::all_of(order.frames.begin(), order.frames.begin() + order.pages,
                       [this](std::uint32_t frame) { return frame < tier_.frame_count; });
}

// Release: pairs with look_at_fill; a group that sees the mark sees the bytes.
void fill_set::mark(const fill_order& order, std::uint32_t page, bool good) const {
    const std::uint64_t done =
        (order.stamp & ~engine::fill_failed) | (good ? 0 : engine::fill_failed);
    atomic_store<order::release, scope::system>(&tier_.done_marks[order.frames[page]], done);
}

void fill_set::refuse(const fill_order& order) const {
    for (std::uint32_t i = 0; i < order.pages; ++i)
        if (order.frames[i] < tier_.frame_count) mark(order, i, false);
}

std::uint32_t fill_set::free_flight() {
    for (std::uint32_t i = 0; i < flights_.size(); ++i)
        if (flights_[i].left == 0) return i;
    flights_.emplace_back();
    return static_cast<std::uint32_t>(flights_.size() - 1);
}

std::uint32_t fill_set::begin(const fill_order& order, std::shared_ptr<shared_handle> file,
                              io_engine& io, std::uint32_t& direct) {
    const std::uint32_t index = free_flight();
    flight& f = flights_[index];
    f.order = order;
    f.file = std::move(file);
    f.parts.clear();
    for (std::uint32_t page = 0; page < order.pages; ++page) {
        const std::uint32_t begins = page << page_shift_,
                            page_bytes = std::min(order.bytes - begins, 1u << page_shift_);
        const bool follows = page > 0 && order.frames[page] == order.frames[page - 1] + 1;
        if (!follows) f.parts.push_back({page});
        ++f.parts.back().pages;
        f.parts.back().bytes += page_bytes;
    }
    f.left = static_cast<std::uint32_t>(f.parts.size());
    for (std::uint32_t i = 0; i < f.left; ++i) {
        start(index, i, io);
        direct += f.parts[i].way == read_way::direct ? 1 : 0;
    }
    return f.left;
}

read_operation fill_set::rest_of(std::uint32_t flight_index, std::uint32_t part_index) const {
    const flight& f = flights_[flight_index];
    const part& p = f.parts[part_index];
    std::byte* const to = tier_.frames + (std::uint64_t{f.order.frames[p.first]} << page_shift_);
    const std::uint64_t offset = f.order.offset + (std::uint64_t{p.first} << page_shift_);
    return {-1, to + p.done, p.bytes - p.done, offset + p.done,
            tag_bit | std::uint64_t{flight_index} << 8 | part_index};
}

void fill_set::start(std::uint32_t flight_index, std::uint32_t part_index, io_engine& io) {
    flight& f = flights_[flight_index];
    read_operation operation = rest_of(flight_index, part_index);
    f.parts[part_index].way = f.file->choose(operation, io);
    io.start(operation);
}

// Marks the pages of a part. A page of which only a part could be read counts as failed: the file
// shrank, or the read failed half way.
void fill_set::mark_part(const flight& f, const part& p) const {
    for (std::uint32_t i = 0; i < p.pages; ++i) {
        const std::uint32_t until = std::min((i + 1) << page_shift_, p.bytes);
        mark(f.order, p.first + i, p.done >= until);
    }
}

fill_set::progress fill_set::finish(const read_result& result, io_engine& io,
                                    engine::ring_ticket& at) {
    const auto flight_index = static_cast<std::uint32_t>((result.tag & ~tag_bit) >> 8),
               part_index = static_cast<std::uint32_t>(result.tag & 255);
    flight& f = flights_[flight_index];
    part& p = f.parts[part_index];
    if (f.file->must_go_another_way(p.way, result.result)) {
        read_operation operation = rest_of(flight_index, part_index);
        p.way = f.file->choose_other(operation);
        io.start(operation);
        return progress::another_way;
    }
    if (result.result > 0) {
        p.attempts = 0;
        p.done +=
            static_cast<std::uint32_t>(std::min<std::int64_t>(result.result, p.bytes - p.done));
    }
    if ((says_again(result.result) && ++p.attempts < most_attempts) ||
        (result.result > 0 && p.done < p.bytes)) {
        start(flight_index, part_index, io);
        return progress::again;
    }
    mark_part(f, p);
    if (--f.left > 0) return progress::read_done;
    f.file.reset();
    at = f.order.at;
    return progress::order_done;
}

}  // namespace penstock::host
