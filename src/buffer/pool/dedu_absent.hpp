// Pages that are in the table though some of their blocks are absent (dedu_state.hpp): what a load
// of one has to do, and how blocks are compared with one that is in no frame.
//
// (1) The file of a page may have been changed by others that have not said so yet
//     (session::forget). So what its load brings for an absent block, which other pages point at
//     too, is taken only if its signature is that of the block's content; else, and where its file
//     is left in peace and nothing is signed, the page is loaded as one that was never seen.
// (2) A page that was not seen before is compared with an absent block byte for byte, as with
//     others: by reading a page from its file that points at the block.
#pragma once

#include "buffer/pool/dedu_batch.hpp"

namespace penstock::buffer {

// The page is in the table. False: not any more, and it has to be loaded as a new one.
template <typename Order>
bool dedu_state<Order>::load_known(dedu_request& one) {
    const auto sink = [&](const action& what) { move_bytes(what, one.bytes); };
    if (core_.inside().is_complete(
            one.id)) {  // what it lacked came with another page meanwhile: a hit
        found at{};
        if (one.counts) {
            one.code = core_.touch(one.id, sink, at);
            ++(at == found::device ? counts_.device_hits : counts_.host_hits);
        }
        return true;
    }
    if (!holds_what_is_absent(one)) {
        core_.forget(one.id, sink);
        return false;
    }
    one.code = core_.load(one.id, nullptr, sink);
    if (one.code == 0) note_load(one);
    return true;
}

template <typename Order>
bool dedu_state<Order>::holds_what_is_absent(const dedu_request& one) const {
    for (std::uint32_t i = 0; i < how_.blocks_per_page; ++i)
        if (const block* const known = core_.inside().block_of(one.id, i);
            known->where == side::absent &&
            !(one.is_signed && content_finder::is_of(known->content, one.blocks[i].sign)))
            return false;
    return true;
}

template <typename Order>
int dedu_state<Order>::look_for(dedu_request& one) {
    for (content_finder::wanted& block : one.blocks)
        if (const int code = finder_.ask(core_.inside().blocks, block,
                                         [&](std::uint32_t number) { return read_absent(number); });
            code != 0)
            return code;
    return 0;
}

// The block's bytes until something else is read there; null: they could not be read, and nothing
// is found equal to them. Pages often have several blocks in common, so the page that was read last
// is remembered. Its file is as its blocks are: it is clean, and no thread writes pages but the
// batch that asks.
template <typename Order>
const std::byte* dedu_state<Order>::read_absent(std::uint32_t number) {
    const page_table& pages = core_.inside().pages;
    const std::uint32_t at = core_.inside().blocks[number].references.newest;
    const page_id id = pages.id(pages.slot_of(at));
    std::byte* const to = frame_at(first_own_frame(settings_.sessions));
    if (!has_compared_ || compared_ != id)
        has_compared_ = id.page < files_[id.file]->pages && read_page(id, to) == 0;
    compared_ = id;
    return has_compared_ ? to + at % how_.blocks_per_page * shape_.frame_bytes : nullptr;
}

// A block that was absent, or is new, has come to a frame: other pages that lacked it and nothing
// else can be had here from now on.
template <typename Order>
void dedu_state<Order>::complete_others(const action& filled) {
    core_.inside().each_page_of(filled.block, [&](page_id id, std::uint32_t) {
        if (page(id).where() == owned_entry::incomplete && id != filled.page &&
            core_.inside().is_complete(id))
            page(id).set_where(owned_entry::elsewhere);
    });
}

// The core takes a page for written when it has said so. What could not be written must not stay in
// the table then: its file does not have what its blocks are.
template <typename Order>
void dedu_state<Order>::drop_unwritten() {
    for (const page_id id : failed_)
        if (core_.inside().pages.find(id) != nothing)
            core_.forget(id, [&](const action& what) { move_bytes(what, nullptr); });
    failed_.clear();
}

}  // namespace penstock::buffer
