// The signatures of a file's pages, for those that were made: so that a page that is read again and
// again is signed once. Room is taken for 256 pages at a time, when the first of them is signed.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <new>

#include "buffer/pool/file_pages.hpp"
#include "buffer/pool/signature.hpp"

namespace penstock::buffer {

class remembered_signatures {
public:
    explicit remembered_signatures(std::uint32_t blocks_per_page) : blocks_(blocks_per_page) {}

    int grow(std::uint64_t pages) { return leaves_.grow((pages + leaf_pages - 1) / leaf_pages); }

    // All by the page's owner. Null: none are known, until they are changed next.
    [[nodiscard]] const signature* find(std::uint64_t page) const {
        const leaf* const found = leaves_[page / leaf_pages].made.load();
        return found != nullptr && found->known[page % leaf_pages] != 0
                   ? found->signs.get() + page % leaf_pages * blocks_
                   : nullptr;
    }
    // Room for those of a page, to be written at once; null: there is no memory for it, or `left`,
    // how many pages' room may still be taken by all files, is used up.
    signature* note(std::uint64_t page, std::atomic<std::int64_t>& left) {
        leaf* found = leaves_[page / leaf_pages].made.load();
        if (found == nullptr) found = make(leaves_[page / leaf_pages], left);
        if (found == nullptr) return nullptr;
        found->known[page % leaf_pages] = 1;
        return found->signs.get() + page % leaf_pages * blocks_;
    }
    void forget(std::uint64_t page) {
        if (leaf* const found = leaves_[page / leaf_pages].made.load(); found != nullptr)
            found->known[page % leaf_pages] = 0;
    }

private:
    static constexpr std::uint64_t leaf_pages = 256;
    struct leaf {
        std::uint8_t known[leaf_pages] = {};
        std::unique_ptr<signature[]> signs;
    };
    struct place {
        std::atomic<leaf*> made{nullptr};
        ~place() { delete made.load(); }
    };

    leaf* make(place& at, std::atomic<std::int64_t>& left) {
        if (left.fetch_sub(leaf_pages) < static_cast<std::int64_t>(leaf_pages)) {
            left += leaf_pages;
            return nullptr;
        }
        std::unique_ptr<leaf> made(new (std::nothrow) leaf);
        if (made != nullptr) made->signs.reset(new (std::nothrow) signature[leaf_pages * blocks_]);
        leaf* other = nullptr;
        if (made != nullptr && made->signs != nullptr &&
            at.made.compare_exchange_strong(other, made.get()))
            return made.release();
        left += leaf_pages;
        return other;  // of the thread that was faster, if that is why
    }

    const std::uint32_t blocks_;
    file_pages<place> leaves_;
};

}  // namespace penstock::buffer
