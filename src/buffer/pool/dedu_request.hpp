// What a session asks the manager of shared blocks for (dedu_state.hpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "buffer/pool/content_finder.hpp"
#include "buffer/core/types.hpp"

namespace penstock::buffer {

struct dedu_request {
    enum class kind : std::uint8_t {
        tell,   // of hits, and nothing else
        touch,  // the page, which is in the buffer, is copied to `bytes`; -EAGAIN: it is not there
                // any more
        load,   // the page, which the asker owns and which is nowhere or incomplete, has the bytes
                // at `bytes` in its file
        replace,  // the page, which the asker owns, has the bytes at `bytes` from now on
        rescue,   // pages that could not be written are, if that goes; else the page comes to
                  // `bytes` if it is one of them (-EAGAIN: it is not), and `bytes` may be null
        flush,    // some dirty pages of the page's file to that, as long as `left` says that there
                  // are more
        forget,   // the page, which the asker owns, leaves and is not written; -EBUSY with
                  // `spares_dirty`: it was changed, and stays
    };

    kind what = kind::tell;
    page_id id{};
    std::byte* bytes = nullptr;
    bool counts = true;  // as an access
    bool spares_dirty = false;
    bool is_signed = false;  // `blocks` have their signatures, or wait for the device to make them
    bool wants_signs = false;                    // the latter
    bool is_prepared = false;                    // and were looked for
    std::vector<content_finder::wanted> blocks;  // of the page; made with as many as it has
    std::vector<content_id> contents;            // the same
    std::vector<page_id>* hits = nullptr;        // that the order is to be told of before
    std::uint64_t read_ns = 0;                   // that a load's page took to be read; 0: not known
    std::uint64_t look_ns = 0;  // by how much the asker was later since blocks are signed and
                                // looked for (sharing_watch.hpp)
    bool disowns = false;       // the page, once it was done: the asker does not wait for that

    std::uint32_t left = nothing;  // of a flush: dirty pages to come; nothing: not counted yet
    [[nodiscard]] bool brings_page() const {
        return what == kind::touch || what == kind::load || what == kind::replace;
    }

    int code = 0;
    std::uint64_t search_ns = 0;  // its share of what it took to look for the blocks of the batch
    bool done = false;            // the combiner's
};

}  // namespace penstock::buffer
