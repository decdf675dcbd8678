// A word for each page of a file that may grow: found without a lock, and never moved. The pages
// lie in chunks, each twice as large as the one before it, so that growing copies nothing.
#pragma once

#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "penstock/base/atomic.hpp"

namespace penstock::buffer {

// Entry: made with no argument, of a page that nothing is known of. FirstBits: the first chunk has
// so many bits' pages.
template <typename Entry, unsigned FirstBits = 6>
class file_pages {
public:
    static constexpr std::uint64_t most_pages = 1ull << 40;

    // Of a page that grow() has made room for. By anybody, also while it grows.
    [[nodiscard]] Entry& operator[](std::uint64_t page) const {
        const unsigned chunk = chunk_of(page);
        // The thread that knows that the file has the page was told so after grow() had returned;
        // acquire takes over what it made.
        return atomic_load<order::acquire>(&found_[chunk])[page - first_of(chunk)];
    }

    // At least so many pages; one caller at a time. 0, -ENOMEM or -EINVAL, and then it is as it
    // was.
    int grow(std::uint64_t pages) {
        if (pages > most_pages) return -EINVAL;
        for (unsigned chunk = 0; chunk < chunks && first_of(chunk) < pages; ++chunk) {
            if (made_[chunk] != nullptr) continue;
            made_[chunk].reset(new (std::nothrow) Entry[size_of(chunk)]);
            if (made_[chunk] == nullptr) return -ENOMEM;
            atomic_store<order::release>(&found_[chunk], made_[chunk].get());  // see above
        }
        return 0;
    }

private:
    static constexpr unsigned first_bits = FirstBits,
                              // 64 pages, then 64, 128, ...: up to most_pages.
        chunks = 41 - FirstBits;

    static unsigned chunk_of(std::uint64_t page) {
        return page >> first_bits == 0 ? 0
                                       : static_cast<unsigned>(std::bit_width(page)) - first_bits;
    }
    static std::uint64_t first_of(unsigned chunk) {
        return chunk == 0 ? 0 : 1ull << (first_bits + chunk - 1);
    }
    static std::uint64_t size_of(unsigned chunk) {
        return chunk == 0 ? 1ull << first_bits : first_of(chunk);
    }

    std::unique_ptr<Entry[]> made_[chunks];
    Entry* found_[chunks] = {};
};

}  // namespace penstock::buffer
