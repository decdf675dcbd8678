#include "region/page_masks.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

namespace penstock::region {

namespace {

bool is_marked(const std::array<std::byte, mark_bytes>& marks, std::uint64_t byte) {
    return (std::to_integer<unsigned>(marks[byte / 8]) >> byte % 8 & 1) != 0;
}

// All of it, or a negative errno.
std::int64_t write_all(int fd, const std::byte* from, std::uint64_t bytes, std::uint64_t offset) {
    for (std::uint64_t done = 0; done < bytes;) {
        const ssize_t count =
            ::pwrite(fd, from + done, bytes - done, static_cast<off_t>(offset + done));
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return count < 0 ? -errno : -EIO;
        done += static_cast<std::uint64_t>(count);
    }
    return static_cast<std::int64_t>(bytes);
}

}  // namespace

page_masks::mask* page_masks::of(owner holder, std::uint64_t page) {
    const auto [first, end] = masks_.equal_range(page);
    const auto found =
        std::find_if(first, end, [&](const auto& entry) { return entry.second.holder == holder; });
    return found == end ? nullptr : &found->second;
}

void page_masks::add(owner holder, const page_list& pages, const std::byte* marks) {
    const std::lock_guard hold(lock_);
    for (std::size_t i = 0; i < pages.size(); ++i) {
        mask* found = of(holder, pages[i]);
        if (found == nullptr) found = &masks_.emplace(pages[i], mask{holder})->second;
        for (std::size_t b = 0; b < mark_bytes; ++b) found->marks[b] |= marks[i * mark_bytes + b];
        found->settled = false;
    }
}

void page_masks::settle(owner holder, const page_list& pages) {
    const std::lock_guard hold(lock_);
    for (const std::uint64_t page : pages)
        if (mask* const found = of(holder, page); found != nullptr) found->settled = true;
}

void page_masks::forget_settled(const page_range& pages) {
    const std::lock_guard hold(lock_);
    for (std::uint64_t page = pages.begin; page < pages.end && !masks_.empty(); ++page) {
        const auto [first, end] = masks_.equal_range(page);
        for (auto at = first; at != end;)
            at = at->second.settled ? masks_.erase(at) : std::next(at);
    }
}

void page_masks::remove(owner holder, const page_list& pages) {
    const std::lock_guard hold(lock_);
    for (const std::uint64_t page : pages) {
        const auto [first, end] = masks_.equal_range(page);
        for (auto at = first; at != end;)
            at = at->second.holder == holder ? masks_.erase(at) : std::next(at);
    }
}

std::int64_t page_masks::write_around(int fd, const std::byte* from, std::uint64_t bytes,
                                      std::uint64_t offset) {
    const std::lock_guard hold(lock_);
    std::uint64_t begin = 0;  // what lies before is written, or masked
    const auto write_up_to = [&](std::uint64_t end) {
        return begin < end ? write_all(fd, from + begin, end - begin, offset + begin) : 0;
    };
    if (!masks_.empty())
        for (std::uint64_t at = 0; at < bytes;) {
            const std::uint64_t page = (offset + at) / page_bytes,
                                end = std::min(bytes, (page + 1) * page_bytes - offset);
            const auto [first, last] = masks_.equal_range(page);
            std::array<std::byte, mark_bytes> marks{};
            for (auto entry = first; entry != last; ++entry)
                for (std::size_t b = 0; b < mark_bytes; ++b) marks[b] |= entry->second.marks[b];
            for (; first != last && at < end; ++at) {
                if (!is_marked(marks, (offset + at) % page_bytes)) continue;
                if (const std::int64_t code = write_up_to(at); code < 0) return code;
                begin = at + 1;
            }
            at = end;
        }
    const std::int64_t code = write_up_to(bytes);
    return code < 0 ? code : static_cast<std::int64_t>(bytes);
}

}  // namespace penstock::region
