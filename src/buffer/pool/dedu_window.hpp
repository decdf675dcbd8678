// Pages that follow one another in a file, brought by one session at once (dedu_manager.hpp): what
// is nowhere is read from the file in as few reads as possible, and all is asked of the manager
// together.
//
// Several pages are owned at a time, and so no thread is waited for meanwhile: a page that another
// thread owns is left out.
#pragma once

#include <algorithm>
#include <cstring>

#include "buffer/pool/dedu_manager.hpp"
#include "buffer/pool/page_io.hpp"

namespace penstock::buffer {

class dedu_window {
public:
    dedu_window(dedu_shared& all, std::uint32_t first_frame)
        : all_(all), first_frame_(first_frame) {
        for (std::uint32_t i = 0; i < all.dedu.window_pages; ++i)
            parts_.emplace_back(all.dedu.blocks_per_page);
        asking_.reserve(parts_.size());
    }
    [[nodiscard]] std::uint64_t most_pages() const { return parts_.size(); }

    // Pages from `first` on, most_pages() at most, that the file has: brought, and their bytes then
    // lie at bytes_of(i), or an error at code_of(i): -EAGAIN, the page was left out. `hits`: of
    // pages that were there, and of others to be told before.
    void bring(dedu_file& file, page_id first, std::uint64_t pages, std::vector<page_id>& hits) {
        pages_ = pages;
        for (std::uint64_t i = 0; i < pages; ++i) {
            part& page = begin(i, first);
            page.code = -EAGAIN;
            if (all_.pages.copy(page.asked.id, bytes_of(i), 0, all_.settings.page_bytes) ==
                found_by_entry::taken) {
                hits.push_back(page.asked.id);
                page.code = 0;
            } else if (const std::uint32_t where = all_.pages.page(page.asked.id).where();
                       where == owned_entry::elsewhere) {
                page.asked.task = touch_page{bytes_of(i)};
                page.is_asked = true;
            } else if (owned_entry::is_in_its_file(where)) {
                own(page);
            }
        }
        read_all(file, true);
        ask(hits);
    }
    // Those that are nowhere are read, and are among neither hits nor misses. False: reading
    // further makes no sense.
    bool bring_ahead(dedu_file& file, page_id first, std::uint64_t pages,
                     std::vector<page_id>& hits) {
        pages_ = pages;
        for (std::uint64_t i = 0; i < pages; ++i)
            if (part& page = begin(i, first);
                owned_entry::is_in_its_file(all_.pages.page(page.asked.id).where()))
                own(page);
        read_all(file, false);
        ask(hits);
        return std::all_of(parts_.begin(), parts_.begin() + static_cast<std::ptrdiff_t>(pages),
                           [](const part& page) { return page.code == 0 || page.code == -EAGAIN; });
    }

    [[nodiscard]] int code_of(std::uint64_t i) const { return parts_[i].code; }
    [[nodiscard]] std::byte* bytes_of(std::uint64_t i) const {
        return all_.pages.frame_at(frame_of(i));
    }

private:
    struct part {
        explicit part(std::uint32_t blocks_per_page) : blocks(blocks_per_page) {}

        dedu_request asked;
        hashed_blocks blocks;
        int code = 0;
        bool is_owned = false, is_asked = false, is_known = false;
    };

    [[nodiscard]] std::uint32_t frame_of(std::uint64_t i) const {
        return first_frame_ + static_cast<std::uint32_t>(i) * all_.dedu.blocks_per_page;
    }
    part& begin(std::uint64_t i, page_id first) {
        part& page = parts_[i];
        page.asked.id = {first.page + i, first.file};
        page.asked.hits = nullptr;
        page.code = 0;
        page.is_owned = page.is_asked = false;
        return page;
    }
    // No thread owns it and it is nowhere still, and so it stays until we have brought it.
    void own(part& page) {
        std::uint32_t where = 0;
        page.is_owned = !all_.unwritten.has_any() && all_.pages.page(page.asked.id).own(where);
        page.is_known = where == owned_entry::incomplete;
        if (page.is_owned && !owned_entry::is_in_its_file(where)) disown(page);
    }
    void disown(part& page) {
        all_.pages.page(page.asked.id).disown();
        page.is_owned = false;
    }

    // The size is looked at after the pages are owned: the thread that makes the file shorter says
    // so first, and then waits for owners.
    void read_all(dedu_file& file, bool counts) {
        const std::uint64_t end = file.bytes;
        for (std::uint64_t i = 0; i < pages_;) {
            std::uint64_t count = 0;
            while (i + count < pages_ && parts_[i + count].is_owned) ++count;
            if (count != 0) read_some(file, i, count, end, counts);
            i += std::max<std::uint64_t>(count, 1);
        }
    }
    void read_some(dedu_file& file, std::uint64_t i, std::uint64_t count, std::uint64_t end,
                   bool counts) {
        const std::uint64_t page_bytes = all_.settings.page_bytes,
                            from = parts_[i].asked.id.page * page_bytes, all = count * page_bytes,
                            wanted = end <= from ? 0 : std::min(all, end - from);
        stopwatch watch;
        const int code =
            wanted == 0 ? -EAGAIN : all_.pages.read(file, bytes_of(i), wanted, all, from);
        clear_behind(bytes_of(i), wanted, all);
        const std::uint64_t read_ns = watch.ns() / count;
        for (std::uint64_t k = i; k < i + count; ++k) {
            part& page = parts_[k];
            // An error may be of one page only: each is asked for alone then. So is one that the
            // file does not have any more.
            page.code = code == 0 && (page.asked.id.page * page_bytes < end) ? 0 : -EAGAIN;
            if (page.code != 0) {
                disown(page);
                continue;
            }
            page.blocks.name(bytes_of(k), frame_of(k), all_.shape.frame_bytes);
            watch = {};
            all_.search.hash(page.asked.id, page.blocks, page.is_known);  // content_search (3)
            page.asked.task = load_page{.bytes = bytes_of(k),
                                        .blocks = &page.blocks,
                                        .counts = counts,
                                        .read_ns = read_ns,
                                        .look_ns = watch.ns()};
            page.is_asked = true;
        }
    }

    void ask(std::vector<page_id>& hits) {
        asking_.clear();
        for (std::uint64_t i = 0; i < pages_; ++i)
            if (parts_[i].is_asked) asking_.push_back(&parts_[i].asked);
        if (asking_.empty()) return;
        asking_.front()->hits = &hits;
        all_.requests.submit(asking_.data(), asking_.size());
        for (std::uint64_t i = 0; i < pages_; ++i) {
            part& page = parts_[i];
            if (page.is_asked) page.code = page.asked.code;
            if (page.is_owned) disown(page);
        }
    }

    dedu_shared& all_;
    const std::uint32_t first_frame_;
    std::uint64_t pages_ = 0;
    std::vector<part> parts_;
    std::vector<dedu_request*> asking_;
};

}  // namespace penstock::buffer
