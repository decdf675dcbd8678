// What a session asks the buffer of shared blocks for: one struct for each operation.
//
// A request belongs to its session until it is handed to the combiner, and to the thread that runs
// the batch from then until it is done. So does all that it points at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "buffer/core/types.hpp"
#include "buffer/pool/content_hash.hpp"

namespace penstock::buffer {

// A block whose content is wanted. Its bytes, in a host frame, lie still until the batch ends.
struct wanted_block {
    static constexpr std::uint8_t variants = 4, none = variants;

    content_hash hash;
    const std::byte* bytes = nullptr;
    std::uint32_t frame = 0;
    std::uint8_t equal = none;  // which variant of the content hash it was found equal to
};

// The blocks of a page that comes with new bytes: first hashed by the page's owner
// (content_search::hash), then looked for by the batch.
struct hashed_blocks {
    explicit hashed_blocks(std::uint32_t blocks_per_page)
        : blocks(blocks_per_page), contents(blocks_per_page) {}

    // Of a page at `bytes`, which is `frame` and those behind it.
    void name(const std::byte* bytes, std::uint32_t frame, std::uint64_t block_bytes) {
        for (std::uint32_t i = 0; i < blocks.size(); ++i)
            blocks[i] = {{}, bytes + i * block_bytes, frame + i};
    }

    std::vector<wanted_block> blocks;
    std::vector<content_id> contents;
    bool is_hashed = false;  // they have their content hashes, or wait for the device to make them
    bool wants_hashes = false;    // the latter
    bool is_prepared = false;     // and were looked for
    std::uint64_t search_ns = 0;  // their share of what it took to look for the batch's blocks
};

// Of hits, and nothing else.
struct tell_hits {};

// The page, which is in the buffer, is copied to `bytes`. -EAGAIN: it is not there any more.
struct touch_page {
    std::byte* bytes;
};

// The page, which the asker owns and which is nowhere or incomplete, has the bytes at `bytes` in
// its file.
struct load_page {
    const std::byte* bytes;
    hashed_blocks* blocks;
    bool counts = true;         // as an access
    bool disowns = false;       // the page when it was done: the asker does not wait for that
    std::uint64_t read_ns = 0;  // that the page took to be read; 0: not known
    // By how much the asker was later since blocks are hashed and looked for (sharing_watch).
    std::uint64_t look_ns = 0;
};

// The page, which the asker owns, has the bytes at `bytes` from now on.
struct replace_page {
    const std::byte* bytes;
    hashed_blocks* blocks;
    bool counts;  // as an access
};

// Pages that could not be written are, if that goes. Else the page comes to `bytes` if it is one of
// them (-EAGAIN: it is not); `bytes` may be null.
struct rescue_pages {
    std::byte* bytes;
};

// Some dirty pages of the page's file go to it. To be asked again while `left` says that there are
// more.
struct flush_pages {
    std::uint32_t left = nothing;  // dirty pages to come; nothing: not counted yet
};

// The page, which the asker owns, leaves and is not written. -EBUSY with `spares_dirty`: it was
// changed, and stays.
struct forget_page {
    bool spares_dirty = false;
};

struct dedu_request {
    using operation = std::variant<tell_hits, touch_page, load_page, replace_page, rescue_pages,
                                   flush_pages, forget_page>;

    page_id id{};
    operation task;
    std::vector<page_id>* hits = nullptr;  // that the order is to be told of before
    int code = 0;
    bool done = false;  // the combiner's

    // Null: the page has no new bytes by this.
    [[nodiscard]] hashed_blocks* blocks() {
        if (auto* const load = std::get_if<load_page>(&task)) return load->blocks;
        if (auto* const replace = std::get_if<replace_page>(&task)) return replace->blocks;
        return nullptr;
    }
    [[nodiscard]] bool brings_page() {
        return std::holds_alternative<touch_page>(task) || blocks() != nullptr;
    }
};

using dedu_batch = std::vector<dedu_request*>;

}  // namespace penstock::buffer
