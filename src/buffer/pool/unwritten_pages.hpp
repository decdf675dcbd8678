// The pages of a buffer of shared blocks that had to go and could not be written: kept beside the
// buffer until they can.
//
// Such a page is in no frame, and its entry says `unwritten`, so no session reads it from its file.
// Whether there is any sessions ask without a lock; all else is the batch's.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "buffer/pool/dedu_directory.hpp"

namespace penstock::buffer {

class unwritten_pages {
public:
    unwritten_pages(dedu_directory& pages, std::uint64_t page_bytes)
        : pages_(pages), page_bytes_(page_bytes) {}

    // By any thread.
    [[nodiscard]] bool has_any() const { return has_any_; }

    // If there is no memory for it the page is lost, and every flush of its file says so. 0, or
    // -ENOMEM: not even its name could be noted, and the core would take it for written.
    int keep(page_id id, const std::byte* bytes) try {
        failed_.push_back(id);
        unwritten_page kept{id, std::make_unique<std::byte[]>(page_bytes_)};
        std::memcpy(kept.bytes.get(), bytes, page_bytes_);
        kept_.push_back(std::move(kept));
        has_any_ = true;
        return 0;
    } catch (const std::bad_alloc&) {
        pages_.file_at(id.file)->has_lost = true;
        return failed_.empty() || failed_.back() != id ? -ENOMEM : 0;
    }
    // The page's bytes, or null: it is none of them.
    [[nodiscard]] const std::byte* find(page_id id) const {
        for (const unwritten_page& kept : kept_)
            if (kept.id == id) return kept.bytes.get();
        return nullptr;
    }
    void forget(page_id id) {
        std::erase_if(kept_, [&](const unwritten_page& kept) { return kept.id == id; });
        has_any_ = !kept_.empty();
    }
    // Those of a file, or of all (`nothing`), are tried again. 0, or the last error.
    int rescue(std::uint32_t file) {
        int failed = 0;
        std::erase_if(kept_, [&](const unwritten_page& kept) {
            if (file != nothing && kept.id.file != file) return false;
            if (const int code = pages_.write_page(kept.id, kept.bytes.get()); code != 0) {
                failed = code;
                return false;
            }
            pages_.page(kept.id).set_where(owned_entry::nowhere);
            return true;
        });
        has_any_ = !kept_.empty();
        return failed;
    }
    // Calls with each page that keep() was called with since.
    template <typename Call>
    void take_failed(const Call& call) {
        for (const page_id id : failed_) call(id);
        failed_.clear();
    }

private:
    struct unwritten_page {
        page_id id{};
        std::unique_ptr<std::byte[]> bytes;
    };

    dedu_directory& pages_;
    const std::uint64_t page_bytes_;
    std::atomic<bool> has_any_{false};
    std::vector<unwritten_page> kept_;
    std::vector<page_id> failed_;  // of the request that is handled
};

}  // namespace penstock::buffer
