// The heat of the pieces of a region: which pieces are used, as far as can be told, and which
// should change places, so that hot pieces move from host to device memory and cold pieces move
// back.
//
// Reads through plain pointers are not counted. Two things are known: which pages kernels changed,
// by comparing; and which pages were fetched after other writers changed them, which kernels will
// want. The heat of a piece is the number of such pages in it; each earlier round counts half as
// much as the round after it. This class does not touch the memory itself.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace penstock::region {

class piece_heat {
public:
    // An exchange moves a piece over the bus in either direction, which takes time. So the piece
    // that comes must be warm by itself, and clearly warmer than the piece that goes. A piece is
    // hot if at least one in this many of its pages is used.
    static constexpr std::uint32_t least_share = 8;
    static constexpr std::uint32_t times_as_warm = 2;
    // The most exchanges in a round, so that no acquire takes much longer for them.
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

    // Ends a round, if any piece was used in it. Returns pairs of a piece on the device and a piece
    // in host memory that should change places, the hottest first. Each piece is in at most one
    // pair.
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
