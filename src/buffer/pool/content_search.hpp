// The search for equal blocks of a buffer that keeps each once: hashes blocks, remembers content
// hashes by page, and finds the block of the buffer with the same bytes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "buffer/core/movement.hpp"
#include "buffer/pool/dedu_directory.hpp"
#include "buffer/pool/dedu_request.hpp"
#include "buffer/pool/device_frames.hpp"
#include "buffer/pool/content_hash.hpp"
#include "buffer/pool/page_io.hpp"

namespace penstock::buffer {

// Which content a block has: finds the block of the buffer with the same bytes. By content hash
// first, and then always byte for byte.
//
// Blocks of one content hash and different bytes are told apart by two bits of their content_id
// that are taken from the content hash: up to four of them are in the buffer as four contents, and
// what comes on top is alone.
//
// A batch goes in two steps. ask() and compare() find what was in the buffer before the batch,
// whose bytes lie still: with those in the host at once, with those in the device by one call.
// choose(), in the order of the batch, takes what came and went meanwhile into account:
// (1) A content that is made in a batch is remembered with its bytes until the batch ends; the
//     thread that wants to share it compares with these.
// (2) A content that was found equal before the batch stands for these bytes unless it is one of
//     (1). If it went meanwhile it is made again, and is one of (1) from its choice on: other
//     blocks of the page, whose contents are chosen before the core hears of any, must not take it
//     for free.
class content_finder {
public:
    static constexpr std::uint8_t variants = wanted_block::variants, none = wanted_block::none;

    struct counts {
        std::uint64_t compared = 0, differed = 0;  // blocks of one content hash
    };

    // `blocks`: that are made in one batch, at most.
    content_finder(device_frames& frames, const frames_shape& shape, std::uint32_t blocks)
        : frames_(frames),
          block_bytes_(shape.frame_bytes),
          most_pairs_(shape.most_moves),
          by_content_(blocks) {
        made_.reserve(blocks);
        pairs_.reserve(most_pairs_);
        asked_.reserve(most_pairs_);
        equal_.reserve(most_pairs_);
    }

    // 0, or the device's error. read_absent(number): the bytes of a block that is absent, or null.
    template <typename ReadAbsent>
    int ask(const block_table& blocks, wanted_block& part, const ReadAbsent& read_absent) {
        part.equal = none;
        for (std::uint8_t k = 0; k < variants && part.equal == none; ++k) {
            const std::uint32_t number = blocks.find(content_of(part.hash, k));
            if (number == nothing) continue;
            const std::uint32_t frame = blocks[number].frame;
            if (blocks[number].where == side::host) {
                if (same(frames_.host_frames() + frame * block_bytes_, part.bytes)) part.equal = k;
            } else if (blocks[number].where == side::absent) {
                if (const std::byte* const bytes = read_absent(number);
                    bytes != nullptr && same(bytes, part.bytes))
                    part.equal = k;
            } else {
                pairs_.push_back({part.frame, frame});
                asked_.push_back({&part, k});
                if (pairs_.size() == most_pairs_)
                    if (const int code = compare(); code != 0) return code;
            }
        }
        return 0;
    }
    // Whether a block with this content hash may have the content.
    static bool is_of(const content_id& content, const content_hash& hash) {
        const content_id other = content_of(hash, 0);
        return content.first == other.first &&
               (content.second & ~std::uint64_t{variants - 1}) == other.second;
    }
    // What ask() has left.
    int compare() {
        if (pairs_.empty()) return 0;
        const int code = frames_.compare(0, pairs_, equal_);
        for (std::size_t i = 0; code == 0 && i < pairs_.size(); ++i) {
            note(equal_[i] != 0);
            if (equal_[i] != 0) asked_[i].first->equal = asked_[i].second;
        }
        pairs_.clear();
        asked_.clear();
        return code;
    }

    // `found`: a block with these bytes is in the buffer, or was made in this batch.
    content_id choose(const block_table& blocks, const wanted_block& part, bool& found) {
        found = true;
        std::uint8_t free = none;
        for (std::uint8_t k = 0; k < variants; ++k) {
            const content_id content = content_of(part.hash, k);
            const bool is_here = blocks.find(content) != nothing;
            if (const std::uint32_t number = made(content); number != nothing) {
                if (same(made_[number].bytes, part.bytes)) return content;
            } else if (k == part.equal) {
                found = is_here;
                if (!is_here) make(content, part.bytes);
                return content;
            } else if (!is_here && free == none) {
                free = k;
            }
        }
        found = false;
        if (free == none) return content_id::alone();
        make(content_of(part.hash, free), part.bytes);
        return content_of(part.hash, free);
    }
    void end_batch() {
        for (std::uint32_t number = 0; number < made_.size(); ++number)
            by_content_.remove(hash(made_[number].content), number);
        made_.clear();
    }
    [[nodiscard]] const counts& counted() const { return counts_; }

private:
    struct made_block {
        content_id content;
        const std::byte* bytes;
    };

    static content_id content_of(const content_hash& hash, std::uint8_t k) {
        return {hash.low, (hash.high & ~std::uint64_t{variants - 1}) | k};
    }
    static std::uint64_t hash(const content_id& content) {
        return mix64(content.first + mix64(content.second));
    }
    [[nodiscard]] std::uint32_t made(const content_id& content) const {
        return by_content_.find(
            hash(content), [&](std::uint32_t number) { return made_[number].content == content; });
    }
    void make(const content_id& content, const std::byte* bytes) {
        by_content_.add(hash(content), static_cast<std::uint32_t>(made_.size()));
        made_.push_back({content, bytes});
    }
    bool same(const std::byte* a, const std::byte* b) {
        const bool equal = std::memcmp(a, b, block_bytes_) == 0;
        note(equal);
        return equal;
    }
    void note(bool equal) {
        ++counts_.compared;
        if (!equal) ++counts_.differed;
    }

    device_frames& frames_;
    const std::uint64_t block_bytes_;
    const std::size_t most_pairs_;
    std::vector<made_block> made_;
    number_index by_content_;
    std::vector<frame_pair> pairs_;
    std::vector<std::pair<wanted_block*, std::uint8_t>> asked_;
    std::vector<std::uint8_t> equal_;
    counts counts_;
};

// Which contents the blocks of a page have.
//
// (1) The owner of a page hashes its blocks, or leaves that to the device (hash).
// (2) The batch finds blocks with equal bytes before it moves any (prepare), and gives each block
//     its content in the order of the batch (contents_for).
// (3) The file of a page may have been changed by others that have not said so yet
//     (session::forget). So what the load of an incomplete page brings for an absent block is taken
//     only if its content hash is that of the block's content (is_content).
// (4) A page that was not seen before is compared with an absent block byte for byte, as with
//     others: by reading a page from its file that points at the block (read_absent).
class content_search {
public:
    struct counts {
        std::uint64_t looked = 0, shared = 0;
    };

    // `slots`: of the core's page table. `scratch_frame`: the first of a page of the batch's own,
    // which others use between two batches' steps too.
    content_search(const manager_settings& settings, const frames_shape& shape, std::uint32_t slots,
                   std::uint32_t scratch_frame, device_frames& frames, dedu_directory& pages,
                   const core_tables& known)
        : how_(settings.dedu),
          mask_(settings.hash_mask),
          block_bytes_(shape.frame_bytes),
          most_hashed_(shape.most_moves),
          scratch_frame_(scratch_frame),
          frames_(frames),
          pages_(pages),
          known_(known),
          remembered_left_(static_cast<std::int64_t>(
              how_.remembered_pages ? *how_.remembered_pages : std::uint64_t{16} * slots)),
          finder_(frames, shape, settings.batch_pages * how_.blocks_per_page) {
        if (!how_.sign_on_device) return;
        to_hash_.reserve(most_hashed_);
        hashes_.reserve(most_hashed_);
    }

    // By the page's owner. `is_new`: these are not the bytes that the page's content hashes are
    // remembered of, or may not be.
    void hash(page_id id, hashed_blocks& page, bool is_new) {
        dedu_file& file = *pages_.file_at(id.file);
        page.is_hashed = !file.rests;
        page.wants_hashes = false;
        if (!page.is_hashed) {
            if (is_new) file.hashes.forget(id.page);
            return;
        }
        if (const content_hash* const known = is_new ? nullptr : file.hashes.find(id.page);
            known != nullptr) {
            for (std::uint32_t i = 0; i < how_.blocks_per_page; ++i) page.blocks[i].hash = known[i];
        } else if (how_.sign_on_device) {
            page.wants_hashes = true;
        } else {
            for (wanted_block& part : page.blocks)
                part.hash = masked(hash_of(how_.signature, part.bytes, block_bytes_));
            remember(id, page);
        }
    }

    // By the batch, from here on. Content hashes, and what of the buffer has the same bytes: all
    // that reads frames before the batch moves any. 0, or the device's error.
    int prepare(const dedu_batch& batch) {
        if (const int code = hash_on_device(batch); code != 0) return code;
        has_compared_ = false;
        const stopwatch watch;
        std::uint64_t prepared = 0;
        for (dedu_request* const each : batch) {
            hashed_blocks* const page = each->blocks();
            if (page == nullptr) continue;
            // Of a page in the table a load knows the contents.
            page->is_prepared =
                page->is_hashed && (!std::holds_alternative<load_page>(each->task) ||
                                    known_.pages.find(each->id) == nothing);
            if (!page->is_prepared) continue;
            ++prepared;
            if (const int code = look_for(*page); code != 0) return code;
        }
        const int code = finder_.compare();
        for (dedu_request* const each : batch)
            if (hashed_blocks* const page = each->blocks(); page != nullptr)
                page->search_ns = page->is_prepared ? watch.ns() / prepared : 0;
        return code;
    }
    // Of a page that came to be a new one after prepare(); all moves before it were made.
    int prepare_late(hashed_blocks& page) {
        has_compared_ = false;
        const int looked = look_for(page), compared = finder_.compare();
        return looked != 0 ? looked : compared;
    }
    // Null: all alone.
    const content_id* contents_for(page_id id, hashed_blocks& page) {
        dedu_file& file = *pages_.file_at(id.file);
        if (!page.is_hashed) {
            file.watch.rested(how_.blocks_per_page);
            file.rests = file.watch.rests();
            return nullptr;
        }
        std::uint32_t shared = 0;
        for (std::size_t i = 0; i < page.blocks.size(); ++i) {
            bool found = false;
            page.contents[i] = finder_.choose(known_.blocks, page.blocks[i], found);
            shared += found ? 1 : 0;
        }
        counts_.looked += page.blocks.size();
        counts_.shared += shared;
        file.watch.looked(how_.blocks_per_page, shared);
        file.rests = how_.adaptive && file.watch.rests();
        return page.contents.data();
    }
    // A page was loaded that took so long: whether the search in its file goes on.
    void note_load(page_id id, const load_page& load) {
        if (!load.blocks->is_hashed) return;
        const double places =
            static_cast<double>(known_.pages.in_use()) * static_cast<double>(how_.blocks_per_page);
        dedu_file& file = *pages_.file_at(id.file);
        file.watch.loaded(how_.blocks_per_page, load.read_ns,
                          load.look_ns + (load.disowns ? 0 : load.blocks->search_ns),
                          1 - static_cast<double>(known_.blocks.in_use()) / places);
        file.rests = how_.adaptive && file.watch.rests();
    }
    // Whether every absent block of an incomplete page is one that the load brings.
    [[nodiscard]] bool has_what_is_absent(page_id id, const hashed_blocks& page) const {
        for (std::uint32_t i = 0; i < how_.blocks_per_page; ++i)
            if (const block* const known = known_.block_of(id, i);
                known->where == side::absent &&
                !(page.is_hashed && content_finder::is_of(known->content, page.blocks[i].hash)))
                return false;
        return true;
    }
    void end_batch() { finder_.end_batch(); }
    [[nodiscard]] const counts& counted() const { return counts_; }
    [[nodiscard]] const content_finder::counts& compared() const { return finder_.counted(); }

private:
    [[nodiscard]] content_hash masked(const content_hash& full) const {
        return {full.low & mask_, full.high & mask_};
    }
    // By its owner, or for it: what is remembered is of the page as it will be in its file.
    void remember(page_id id, const hashed_blocks& page) {
        content_hash* const hashes =
            pages_.file_at(id.file)->hashes.note(id.page, remembered_left_);
        for (std::uint32_t i = 0; hashes != nullptr && i < how_.blocks_per_page; ++i)
            hashes[i] = page.blocks[i].hash;
    }
    int hash_on_device(const dedu_batch& batch) {
        if (!how_.sign_on_device) return 0;
        const auto wants_hashes = [](dedu_request& asked) {
            hashed_blocks* const page = asked.blocks();
            return page != nullptr && page->wants_hashes ? page : nullptr;
        };
        for (std::size_t next = 0; next < batch.size();) {
            to_hash_.clear();
            std::size_t end = next;
            for (; end < batch.size() && to_hash_.size() + how_.blocks_per_page <= most_hashed_;
                 ++end)
                if (const hashed_blocks* const page = wants_hashes(*batch[end]); page != nullptr)
                    for (const wanted_block& part : page->blocks) to_hash_.push_back(part.frame);
            if (const int code =
                    to_hash_.empty() ? 0 : frames_.hash(0, how_.signature, to_hash_, hashes_);
                code != 0)
                return code;
            std::size_t at = 0;
            for (; next < end; ++next) {
                hashed_blocks* const page = wants_hashes(*batch[next]);
                if (page == nullptr) continue;
                for (wanted_block& part : page->blocks) part.hash = masked(hashes_[at++]);
                remember(batch[next]->id, *page);
            }
        }
        return 0;
    }
    int look_for(hashed_blocks& page) {
        const auto read = [&](std::uint32_t number) { return read_absent(number); };
        for (wanted_block& part : page.blocks)
            if (const int code = finder_.ask(known_.blocks, part, read); code != 0) return code;
        return 0;
    }
    // The block's bytes until something else is read there; null: they could not be read, and
    // nothing is found equal to them. Pages often have several blocks in common, so the page that
    // was read last is remembered. Its file is as its blocks are: it is clean, and no thread writes
    // pages but the batch that asks.
    const std::byte* read_absent(std::uint32_t number) {
        const std::uint32_t at = known_.blocks[number].references.newest;
        const page_id id = known_.pages.id(known_.pages.slot_of(at));
        std::byte* const to = pages_.frame_at(scratch_frame_);
        if (!has_compared_ || compared_ != id)
            has_compared_ =
                id.page < pages_.file_at(id.file)->pages && pages_.read_page(id, to) == 0;
        compared_ = id;
        return has_compared_ ? to + at % how_.blocks_per_page * block_bytes_ : nullptr;
    }

    const dedu_settings how_;
    const std::uint64_t mask_, block_bytes_;
    const std::size_t most_hashed_;
    const std::uint32_t scratch_frame_;
    device_frames& frames_;
    dedu_directory& pages_;
    const core_tables& known_;
    std::atomic<std::int64_t> remembered_left_;  // pages whose content hashes there is room for
    // The batch's:
    content_finder finder_;
    page_id compared_{};  // whose bytes read_absent() has read, while has_compared_
    bool has_compared_ = false;
    std::vector<std::uint32_t> to_hash_;
    std::vector<content_hash> hashes_;
    counts counts_;
};

}  // namespace penstock::buffer
