// Which pieces of a region are used, as far as can be told, and which should change places: those
// in host memory that are hot for cold ones in device memory.
//
// What plain pointers read is not counted. What is known is which pages kernels changed, by
// comparing, and which were fetched since others had changed them, which kernels will want. So the
// heat of a piece is how many of its pages these were, of the rounds before half as much for each
// round. Knows no memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace penstock::region {

class piece_heat {
public:
    // An exchange brings one piece over the bus in either direction, for as long as it lasts; so
    // the one that comes must be warm by itself, and clearly warmer than the one that goes.
    // Of a piece's pages: a hot one has so large a part of them.
    static constexpr std::uint32_t least_share = 8;
    static constexpr std::uint32_t times_as_warm = 2;
    // In a round, so that no acquire takes much longer for it.
    static constexpr std::size_t most_exchanges = 8;

    struct piece {
        std::uint64_t pages = 0;
        bool on_device = false;
        bool may_move = true;
        std::uint64_t heat = 0;
    };

    void add(piece part) { pieces_.push_back(part); }
    [[nodiscard]] std::size_t size() const { return pieces_.size(); }
    piece& at(std::size_t i) { return pieces_[i]; }
    void used(std::size_t i, std::uint64_t pages) {
        pieces_[i].heat += pages;
        is_told_ = is_told_ || pages != 0;
    }

    // The end of a round, if anything was used in it: pairs of a piece on the device and one in
    // host memory that are to change places, the hottest first. Each piece is in one pair at most.
    std::vector<std::pair<std::size_t, std::size_t>> next_exchanges() {
        std::vector<std::pair<std::size_t, std::size_t>> out;
        if (!is_told_) return out;
        is_told_ = false;
        std::vector<std::size_t> near, far;
        for (std::size_t i = 0; i < pieces_.size(); ++i)
            if (pieces_[i].may_move) (pieces_[i].on_device ? near : far).push_back(i);
        std::stable_sort(near.begin(), near.end(), [&](std::size_t a, std::size_t b) {
            return pieces_[a].heat < pieces_[b].heat;
        });
        std::stable_sort(far.begin(), far.end(), [&](std::size_t a, std::size_t b) {
            return pieces_[a].heat > pieces_[b].heat;
        });
        for (std::size_t i = 0; i < std::min({near.size(), far.size(), most_exchanges}); ++i) {
            const piece& goes = pieces_[near[i]];
            const piece& comes = pieces_[far[i]];
            if (comes.heat * least_share < comes.pages || comes.heat <= goes.heat * times_as_warm)
                break;
            out.emplace_back(near[i], far[i]);
        }
        for (piece& part : pieces_) part.heat /= 2;
        return out;
    }

private:
    std::vector<piece> pieces_;
    bool is_told_ = false;
};

}  // namespace penstock::region
