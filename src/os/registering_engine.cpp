#include "os/registering_engine.hpp"

#include <algorithm>

namespace penstock::host {

namespace {

constexpr std::uint64_t most_piece_bytes = std::uint64_t{1} << 30;  // the kernel's limit
constexpr std::uint64_t most_tier_bytes = std::uint64_t{1}
                                          << 30;  // pinned within a tenth of a second

void add_pieces(std::vector<memory_area>& out, const memory_area& area) {
    for (std::uint64_t at = 0; at < area.bytes; at += most_piece_bytes)
        out.push_back({area.begin + at, std::min(most_piece_bytes, area.bytes - at)});
}

}  // namespace

std::vector<memory_area> areas_to_register(const std::vector<memory_area>& staging,
                                           const memory_area& tier, std::uint32_t threads,
                                           std::uint64_t locked_limit_bytes) {
    std::vector<memory_area> out;
    std::uint64_t staging_bytes = 0;
    for (const memory_area& area : staging) {
        add_pieces(out, area);
        staging_bytes += area.bytes;
    }
    const bool tier_is_little = tier.bytes <= most_tier_bytes &&
                                (staging_bytes + tier.bytes) * threads <= locked_limit_bytes;
    if (tier_is_little) add_pieces(out, tier);
    return out;
}

registering_engine::registering_engine(std::unique_ptr<io_engine> below,
                                       std::vector<memory_area> areas,
                                       std::atomic<std::uint64_t>& reads, refusal refused)
    : below_(std::move(below)),
      areas_(std::move(areas)),
      reads_(reads),
      refused_(std::move(refused)) {
    std::sort(areas_.begin(), areas_.end(),
              [](const memory_area& a, const memory_area& b) { return a.begin < b.begin; });
    for (const memory_area& area : areas_) area_bytes_ += area.bytes;
}

void registering_engine::start(const read_operation& operation) {
    if (!operation.direct || areas_.empty() || !is_registered(operation.bytes))
        return below_->start(operation);
    read_operation named = operation;
    named.area = area_of(operation);
    if (named.area >= 0) reads_.fetch_add(1, std::memory_order_relaxed);
    below_->start(named);
}

bool registering_engine::is_registered(std::uint32_t more_bytes) {
    if (registered_) return true;
    if (direct_bytes_ < area_bytes_) {
        direct_bytes_ += more_bytes;
        return false;
    }
    const int code = below_->register_memory(areas_);
    registered_ = code == 0;
    if (registered_) return true;
    areas_.clear();
    if (refused_) refused_(area_bytes_, code);
    return false;
}

// The area that has all of the operation's place; -1: none.
std::int32_t registering_engine::area_of(const read_operation& operation) const {
    const auto after = std::upper_bound(
        areas_.begin(), areas_.end(), operation.to,
        [](const std::byte* to, const memory_area& area) { return to < area.begin; });
    if (after == areas_.begin()) return -1;
    const memory_area& area = *(after - 1);
    const auto at = static_cast<std::uint64_t>(operation.to - area.begin);
    return at < area.bytes && operation.bytes <= area.bytes - at
               ? static_cast<std::int32_t>(after - 1 - areas_.begin())
               : -1;
}

}  // namespace penstock::host
