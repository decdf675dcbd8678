// One open file of the drill as bytes: what its inode holds, and what each place that serves a page
// would deliver of it.
//
// The places, best first: the cache, a window, a request. Another kind of place is one more branch
// of `expect`.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "model/pinning_environment.hpp"
#include "model/shadow.hpp"

namespace penstock::model {

// All bytes of a version.
inline std::vector<std::uint8_t> image_of(const world& w, std::uint32_t file,
                                          std::uint64_t version) {
    std::vector<std::uint8_t> bytes(size_of(w, file, version));
    for (std::uint64_t at = 0; at < bytes.size(); at += 8) {
        const std::uint64_t word = word_of(w, file, version, at / 8);
        for (std::uint64_t i = at; i < bytes.size() && i < at + 8; ++i)
            bytes[i] = static_cast<std::uint8_t>(word >> (8 * (i - at)));
    }
    return bytes;
}

enum class place { cache, window, orphan, request };

class drilled_file {
public:
    drilled_file(const world& w, std::uint32_t file, std::uint64_t version)
        : w_(w),
          file_(file),
          inode_(image_of(w, file, version)),
          opened_(inode_),
          size_bytes_(inode_.size()),
          newest_(version) {
        frozen_.resize(first_orphan(size_bytes_) / os_page_bytes);
    }

    [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }  // when it was opened
    [[nodiscard]] std::uint64_t pages() const {
        return (size_bytes_ + w_.page_bytes - 1) / w_.page_bytes;
    }
    [[nodiscard]] std::uint64_t end_of(std::uint64_t page) const {
        return std::min((page + 1) * w_.page_bytes, size_bytes_);
    }

    // The last version that the open file took. Once the file is replaced, no writer changes
    // it any more.
    [[nodiscard]] std::uint64_t newest() const { return newest_; }
    // Was some of the page cut off below the window?
    [[nodiscard]] bool has_orphans(std::uint64_t page) const {
        for (std::uint64_t at = page * w_.page_bytes; at < end_of(page); at = first_orphan(at + 1))
            if (!frozen_[at / os_page_bytes].empty()) return true;
        return false;
    }

    // The host has made this version of the file, the one after the last.
    void changed_to(std::uint64_t version, bool has_window) {
        const bool in_place = exists(w_, file_, version) && exists(w_, file_, version - 1) &&
                              made_in_place(w_, file_, version);
        attached_ = attached_ && in_place;
        if (!attached_) return;  // the open file is not the one that the name leads to any more
        std::vector<std::uint8_t> next = image_of(w_, file_, version);
        if (has_window)
            for (std::uint64_t i = first_orphan(next.size()) / os_page_bytes; i < frozen_.size();
                 ++i)
                if (frozen_[i].empty())
                    frozen_[i] = bytes_of(i * os_page_bytes, (i + 1) * os_page_bytes);
        inode_ = std::move(next);
        newest_ = version;
    }

    // What a page must deliver that `cached` says is in the cache, or that has to come from
    // elsewhere; nothing: -ESTALE.
    std::optional<std::vector<std::uint8_t>> expect(std::uint64_t page, bool cached,
                                                    bool has_window, place& from) {
        const std::uint64_t begin = page * w_.page_bytes, end = end_of(page);
        if (cached) {
            from = place::cache;
            if (const auto known = in_cache_.find(page); known != in_cache_.end())
                return known->second;
            return std::vector<std::uint8_t>(opened_.begin() + static_cast<std::ptrdiff_t>(begin),
                                             opened_.begin() + static_cast<std::ptrdiff_t>(end));
        }
        std::vector<std::uint8_t> bytes = bytes_of(begin, end);
        if (has_window) {
            from = place::window;
            for (std::uint64_t at = begin; at < end; ++at) {
                const std::vector<std::uint8_t>& old = frozen_[at / os_page_bytes];
                if (old.empty()) continue;
                bytes[at - begin] = old[at % os_page_bytes];
                from = place::orphan;
            }
        } else {
            from = place::request;
            if (inode_.size() < end) return std::nullopt;
        }
        return in_cache_[page] = bytes;
    }

private:
    // Of the inode as it is, and zeros behind its end.
    [[nodiscard]] std::vector<std::uint8_t> bytes_of(std::uint64_t begin, std::uint64_t end) const {
        std::vector<std::uint8_t> out(end - begin, 0);
        for (std::uint64_t at = begin; at < end && at < inode_.size(); ++at)
            out[at - begin] = inode_[at];
        return out;
    }

    const world w_;
    const std::uint32_t file_;
    std::vector<std::uint8_t> inode_;
    const std::vector<std::uint8_t>
        opened_;  // the same when it was opened: what was in the cache already
    const std::uint64_t size_bytes_;
    std::uint64_t newest_;
    bool attached_ = true;
    std::vector<std::vector<std::uint8_t>>
        frozen_;  // pages of the operating system that were cut off; empty: not so
    std::unordered_map<std::uint64_t, std::vector<std::uint8_t>> in_cache_;  // as last loaded
};

}  // namespace penstock::model
