// Dirty pages on their way to their files, and those that could not be written (dedu_state.hpp).
#pragma once

#include <cstring>

#include "buffer/pool/dedu_batch.hpp"

namespace penstock::buffer {

// The page's bytes, from wherever its blocks are, until the next one's.
template <typename Order>
std::byte* dedu_state<Order>::gather(page_id id) {
    const std::uint32_t own = first_own_frame(settings_.sessions);
    for (std::uint32_t i = 0; i < how_.blocks_per_page; ++i) {
        const block& from = *core_.inside().block_of(id, i);
        counts_.device_write_backs += from.where == side::device ? 1 : 0;
        note(from.where == side::host ? wave_.copy_out(from.frame, frame_at(own + i))
                                      : wave_.move(own + i, from.frame, direction::to_host));
    }
    note(wave_.run());
    return frame_at(own);
}

template <typename Order>
int dedu_state<Order>::write_page(page_id id, const std::byte* from) {
    return write_whole(env_, files_[id.file]->fd, from, bytes_in_file(id),
                       id.page * settings_.page_bytes);
}

// It goes next, or a block of it becomes absent; then one that could not be written goes too
// (drop_unwritten).
template <typename Order>
void dedu_state<Order>::write_victim(const action& one) {
    const std::byte* const bytes = gather(one.page);
    if (wave_code_ != 0) return;
    ++counts_.write_backs;
    if (write_page(one.page, bytes) != 0) keep_unwritten(one.page, bytes);
}

// If there is no memory for it either it is lost, and every flush of its file says so.
template <typename Order>
void dedu_state<Order>::keep_unwritten(page_id id, const std::byte* bytes) try {
    failed_.push_back(id);
    unwritten_page kept{id, std::make_unique<std::byte[]>(settings_.page_bytes)};
    std::memcpy(kept.bytes.get(), bytes, settings_.page_bytes);
    unwritten_.push_back(std::move(kept));
    has_unwritten_ = true;
} catch (const std::bad_alloc&) {
    files_[id.file]->has_lost = true;
    if (failed_.empty() || failed_.back() != id)
        note(-ENOMEM);  // else it would be taken for written
}

template <typename Order>
unwritten_page* dedu_state<Order>::find_unwritten(page_id id) {
    for (unwritten_page& one : unwritten_)
        if (one.id == id) return &one;
    return nullptr;
}

template <typename Order>
void dedu_state<Order>::forget_unwritten(page_id id) {
    std::erase_if(unwritten_, [&](const unwritten_page& one) { return one.id == id; });
    has_unwritten_ = !unwritten_.empty();
}

// Those of a file, or of all: tried again. 0, or the last error.
template <typename Order>
int dedu_state<Order>::rescue_all(std::uint32_t file) {
    int failed = 0;
    std::erase_if(unwritten_, [&](const unwritten_page& one) {
        if (file != nothing && one.id.file != file) return false;
        if (const int code = write_page(one.id, one.bytes.get()); code != 0) {
            failed = code;
            return false;
        }
        page(one.id).set_where(owned_entry::nowhere);
        return true;
    });
    has_unwritten_ = !unwritten_.empty();
    return failed;
}

template <typename Order>
void dedu_state<Order>::rescue(dedu_request& one) {
    one.code = rescue_all(nothing);
    if (one.bytes == nullptr) return;
    const unwritten_page* const kept = find_unwritten(one.id);
    one.code = kept == nullptr ? -EAGAIN : 0;
    if (kept == nullptr) return;
    std::memcpy(one.bytes, kept->bytes.get(), settings_.page_bytes);
    ++counts_.misses;
}

template <typename Order>
int dedu_state<Order>::flush_page(page_id id) {
    const std::byte* const bytes = gather(id);
    if (wave_code_ != 0) return -EIO;
    if (const int code = write_page(id, bytes); code != 0) return code;
    ++counts_.write_backs;
    core_.mark_clean(id);
    return 0;
}

// What became dirty first, first; others wait while this goes on, so it is a few pages at a time.
template <typename Order>
void dedu_state<Order>::flush(dedu_request& one) {
    constexpr std::uint32_t at_once = 32;
    const std::uint32_t file = one.id.file;
    if (one.left == nothing) {
        one.code = rescue_all(file);
        if (one.code == 0 && files_[file]->has_lost) one.code = -EIO;
        if (one.code != 0) return;
        one.left = core_.dirty_pages(file);
    }
    for (std::uint32_t i = 0; i < at_once && one.left > 0 && one.code == 0; ++i) {
        page_id id;
        if (!core_.first_dirty(file, id)) one.left = 0;
        else if (one.code = flush_page(id); one.code == 0) --one.left;
    }
}

}  // namespace penstock::buffer
