// What is done for a batch of requests, by one thread at a time (dedu_state.hpp).
#pragma once

#include <thread>

#include "buffer/pool/dedu_state.hpp"

namespace penstock::buffer {

template <typename Order>
void dedu_state<Order>::handle(const batch& all) {
    const std::lock_guard hold(counting_);
    wave_code_ = broken_ ? -EIO : prepare(all);
    const bool performs = wave_code_ == 0;
    for (dedu_request* const one : all) {
        if (one->hits != nullptr) tell_hits(*one->hits);
        if (performs) perform(*one);
    }
    note(wave_.run());
    finder_.end_batch();
    counts_.compared_blocks = finder_.counted().compared;
    counts_.differing_blocks = finder_.counted().differed;
    if (wave_code_ != 0) {
        broken_ = true;
        for (dedu_request* const one : all) one->code = -EIO;
    }
    for (dedu_request* const one : all) {
        if (one->code == 0 && one->brings_page()) publish(one->id);
        if (one->disowns) page(one->id).disown();
    }
}

template <typename Order>
void dedu_state<Order>::note(int code) {
    if (wave_code_ == 0) wave_code_ = code;
}

// Uses of pages that were in the host then. One that is not there any more is not fetched for it.
template <typename Order>
void dedu_state<Order>::tell_hits(std::vector<page_id>& hits) {
    counts_.host_hits += hits.size();
    for (const page_id id : hits) {
        const std::uint32_t slot = core_.inside().pages.find(id);
        bool in_host = slot != nothing;
        for (std::uint32_t i = 0; in_host && i < how_.blocks_per_page; ++i)
            in_host = core_.inside().block_of(id, i)->where == side::host;
        found at{};
        if (in_host)
            core_.touch(
                id, [](const action&) {}, at);
        if (slot != nothing) files_[id.file]->watch.hit();  // else the file may be there no more
    }
    hits.clear();
}

// Signatures, and what of the buffer has the same bytes: all that reads frames before the batch
// moves any.
template <typename Order>
int dedu_state<Order>::prepare(const batch& all) {
    if (const int code = sign_on_device(all); code != 0) return code;
    has_compared_ = false;
    const stopwatch watch;
    std::uint64_t prepared = 0;
    for (dedu_request* const one : all) {
        // Of a page in the table a load knows the contents.
        one->is_prepared = one->is_signed && (one->what != dedu_request::kind::load ||
                                              core_.inside().pages.find(one->id) == nothing);
        if (!one->is_prepared) continue;
        ++prepared;
        if (const int code = look_for(*one); code != 0) return code;
    }
    const int code = finder_.compare();
    for (dedu_request* const one : all)
        one->search_ns = one->is_prepared ? watch.ns() / prepared : 0;
    return code;
}

template <typename Order>
int dedu_state<Order>::sign_on_device(const batch& all) {
    if (!how_.sign_on_device) return 0;
    for (std::size_t next = 0; next < all.size();) {
        to_sign_.clear();
        std::size_t end = next;
        for (; end < all.size() && to_sign_.size() + how_.blocks_per_page <= shape_.most_moves;
             ++end)
            for (const content_finder::wanted& block : all[end]->blocks)
                if (all[end]->wants_signs) to_sign_.push_back(block.frame);
        if (const int code =
                to_sign_.empty() ? 0 : frames_.sign(0, how_.signature, to_sign_, signs_);
            code != 0)
            return code;
        std::size_t at = 0;
        for (; next < end; ++next) {
            dedu_request& one = *all[next];
            if (!one.wants_signs) continue;
            for (content_finder::wanted& block : one.blocks) block.sign = masked(signs_[at++]);
            remember(one);
        }
    }
    return 0;
}

// By its owner, or for it: what is remembered is of the page as it will be in its file.
template <typename Order>
void dedu_state<Order>::remember(dedu_request& one) {
    signature* const signs = files_[one.id.file]->signs.note(one.id.page, remembered_left_);
    for (std::uint32_t i = 0; signs != nullptr && i < how_.blocks_per_page; ++i)
        signs[i] = one.blocks[i].sign;
}

template <typename Order>
void dedu_state<Order>::perform(dedu_request& one) {
    one.code = 0;
    switch (one.what) {
        case dedu_request::kind::tell: break;
        case dedu_request::kind::touch: touch(one); break;
        case dedu_request::kind::load: load(one); break;
        case dedu_request::kind::replace: replace(one); break;
        case dedu_request::kind::rescue: rescue(one); break;
        case dedu_request::kind::flush: flush(one); break;
        case dedu_request::kind::forget: forget_page(one); break;
    }
    drop_unwritten();
}

template <typename Order>
void dedu_state<Order>::touch(dedu_request& one) {
    found at{};
    one.code = -EAGAIN;
    one.code = core_.touch(
        one.id, [&](const action& what) { move_bytes(what, nullptr); }, at);
    if (at == found::nowhere) one.code = -EAGAIN;
    if (one.code != 0) return;
    ++(at == found::device ? counts_.device_hits : counts_.host_hits);
    files_[one.id.file]->watch.hit();
    for (std::uint32_t i = 0; i < how_.blocks_per_page; ++i)
        note(wave_.copy_out(core_.inside().block_of(one.id, i)->frame,
                            one.bytes + i * shape_.frame_bytes));
}

template <typename Order>
void dedu_state<Order>::load(dedu_request& one) {
    if (core_.inside().pages.find(one.id) != nothing && load_known(one)) return;
    if (one.is_signed && !one.is_prepared) {
        note(wave_.run());  // what frames hold is looked at
        has_compared_ = false;
        note(look_for(one));
        note(finder_.compare());
    }
    one.code = core_.load(one.id, contents_for(one),
                          [&](const action& what) { move_bytes(what, one.bytes); });
    if (one.code != 0) return;
    note_load(one);
}

template <typename Order>
void dedu_state<Order>::note_load(const dedu_request& one) {
    if (one.counts) ++counts_.misses, ++counts_.loads;
    else ++counts_.prefetched;
    page(one.id).set_where(owned_entry::elsewhere);
    if (!one.is_signed) return;
    const auto& inside = core_.inside();
    const double places = static_cast<double>(inside.pages.in_use()) * how_.blocks_per_page;
    dedu_file& file = *files_[one.id.file];
    file.watch.loaded(how_.blocks_per_page, one.read_ns,
                      one.look_ns + (one.disowns ? 0 : one.search_ns),
                      1 - static_cast<double>(inside.blocks.in_use()) / places);
    file.rests = how_.adaptive && file.watch.rests();
}

template <typename Order>
void dedu_state<Order>::replace(dedu_request& one) {
    const content_id* const contents = contents_for(one);
    if (core_.inside().is_complete(one.id)) unpublish(one.id, owned_entry::elsewhere);
    found at{};
    one.code = core_.replace(
        one.id, contents, [&](const action& what) { move_bytes(what, one.bytes); }, at);
    if (one.code != 0) return;
    if (one.counts)
        ++(at == found::host     ? counts_.host_hits
           : at == found::device ? counts_.device_hits
                                 : counts_.misses);
    forget_unwritten(one.id);
    page(one.id).set_where(owned_entry::elsewhere);
}

template <typename Order>
void dedu_state<Order>::forget_page(dedu_request& one) {
    const bool is_here = core_.inside().pages.find(one.id) != nothing;
    if (one.spares_dirty && (find_unwritten(one.id) != nullptr || core_.is_dirty(one.id))) {
        one.code = -EBUSY;
        return;
    }
    forget_unwritten(one.id);
    if (is_here)
        one.code = core_.forget(one.id, [&](const action& what) { move_bytes(what, nullptr); });
    page(one.id).set_where(owned_entry::nowhere);
}

// Null: all alone.
template <typename Order>
const content_id* dedu_state<Order>::contents_for(dedu_request& one) {
    dedu_file& file = *files_[one.id.file];
    if (!one.is_signed) {
        file.watch.rested(how_.blocks_per_page);
        file.rests = file.watch.rests();
        return nullptr;
    }
    std::uint32_t shared = 0;
    for (std::size_t i = 0; i < one.blocks.size(); ++i) {
        bool found = false;
        one.contents[i] = finder_.choose(core_.inside().blocks, one.blocks[i], found);
        shared += found ? 1 : 0;
    }
    counts_.looked_blocks += one.blocks.size();
    counts_.shared_blocks += shared;
    file.watch.looked(how_.blocks_per_page, shared);
    file.rests = how_.adaptive && file.watch.rests();
    return one.contents.data();
}

template <typename Order>
void dedu_state<Order>::publish(page_id id) {
    const std::uint32_t slot = core_.inside().pages.find(id);
    if (slot == nothing || published_[slot] || !note_places(slot, id)) return;
    latches_[slot].open();
    page(id).set_where(owned_entry::first_slot + slot);
}

// Where a page that is about to be readable is in the host, if all of it is.
template <typename Order>
bool dedu_state<Order>::note_places(std::uint32_t slot, page_id id) {
    for (std::uint32_t i = 0; i < how_.blocks_per_page; ++i) {
        const block* const one = core_.inside().block_of(id, i);
        if (one->where != side::host) return false;
        host_places_[slot * how_.blocks_per_page + i] = one->frame;
    }
    return published_[slot] = true;
}

// A thread that copies it just now is waited for: that is a copy of a page and nothing else.
template <typename Order>
void dedu_state<Order>::unpublish(page_id id, std::uint32_t where) {
    const std::uint32_t slot = core_.inside().pages.find(id);
    if (published_[slot]) {
        latches_[slot].begin_close();
        while (!latches_[slot].is_closed()) std::this_thread::yield();
        published_[slot] = false;
    }
    page(id).set_where(where);
}

template <typename Order>
void dedu_state<Order>::unpublish_all_of(std::uint32_t block) {
    core_.inside().each_page_of(block, [&](page_id id, std::uint32_t) {
        if (page(id).where() >= owned_entry::first_slot) unpublish(id, owned_entry::elsewhere);
    });
}

// Something of the page, or all, is in its file alone from here on; unless it could not be written,
// and then no thread may read it there.
template <typename Order>
void dedu_state<Order>::leave(page_id id, std::uint32_t where) {
    unpublish(id, find_unwritten(id) != nullptr ? owned_entry::unwritten : where);
}

template <typename Order>
void dedu_state<Order>::move_bytes(const action& one, const std::byte* from) {
    switch (one.what) {
        case move::fill:
            note(wave_.fill(one.host, from + one.place * shape_.frame_bytes));
            complete_others(one);
            break;
        case move::demote:
            unpublish_all_of(one.block);
            ++counts_.demotions;
            note(wave_.move(one.host, one.device, direction::to_device));
            break;
        case move::promote:
            ++counts_.promotions;
            note(wave_.move(one.host, one.device, direction::to_host));
            break;
        case move::exchange:
            unpublish_all_of(one.other);
            ++counts_.promotions, ++counts_.demotions;
            note(wave_.move(one.host, one.device, direction::exchange));
            break;
        case move::write_back:
            if (one.place == 0)
                write_victim(one);  // all of the page, whose other blocks are told of next
            break;
        case move::drop: leave(one.page, owned_entry::nowhere); break;
        case move::vanish:
            core_.inside().each_page_of(
                one.block, [&](page_id id, std::uint32_t) { leave(id, owned_entry::incomplete); });
            break;
    }
}

}  // namespace penstock::buffer
