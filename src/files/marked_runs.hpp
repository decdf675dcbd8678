// The runs of marked bytes of a page: a bit for each byte, in 64-bit words, first byte in the
// lowest bit.
//
// The words lie in memory that the device can change meanwhile. Each is copied once and what is
// made of it stays within the page.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace penstock::host {

class marked_runs {
public:
    // `whole`: every byte is marked, whatever the words say.
    marked_runs(const std::byte* words, std::uint64_t page_bytes, bool whole) : bytes_(page_bytes) {
        if (whole) return;
        words_.resize(page_bytes / 64);
        std::memcpy(words_.data(), words, page_bytes / 8);
    }

    // The first run that begins at `from` or later: true, and it is [begin, end).
    bool next(std::uint64_t from, std::uint64_t& begin, std::uint64_t& end) const {
        if (words_.empty()) {
            begin = from;
            end = bytes_;
            return from < bytes_;
        }
        begin = first(from, true);
        end = begin < bytes_ ? first(begin, false) : bytes_;
        return begin < bytes_;
    }

private:
    // The first byte from `from` on that is marked, or is not; the size of the page if there is
    // none.
    [[nodiscard]] std::uint64_t first(std::uint64_t from, bool marked) const {
        for (std::uint64_t i = from / 64; i < words_.size(); ++i) {
            std::uint64_t word = marked ? words_[i] : ~words_[i];
            if (i == from / 64) word &= ~std::uint64_t{0} << (from % 64);
            if (word != 0) return i * 64 + static_cast<std::uint64_t>(std::countr_zero(word));
        }
        return bytes_;
    }

    std::uint64_t bytes_;
    std::vector<std::uint64_t> words_;
};

}  // namespace penstock::host
