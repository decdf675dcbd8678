// The bytes of a request of the buffer, moved without its lock: between host and device, from files
// and to them (manager_state.hpp).
#pragma once

#include <algorithm>
#include <cstring>
#include <utility>

#include "buffer/pool/manager_state.hpp"
#include "buffer/pool/page_io.hpp"

namespace penstock::buffer {

template <typename Order>
typename manager_state<Order>::outcome manager_state<Order>::carry_out(session_room& s,
                                                                       bool fresh) {
    outcome out = carry_out_all(s, fresh);
    s.begun.end();  // where a move has failed: the frame is another page's from here on
    if (const int code = end_demotion(s); code != 0) out.code = code;
    return out;
}

template <typename Order>
typename manager_state<Order>::outcome manager_state<Order>::carry_out_all(session_room& s,
                                                                           bool fresh) {
    outcome out;
    for (std::size_t i = 0; i < s.actions.size(); ++i) {
        const action& one = s.actions[i];
        int code = 0;
        switch (one.what) {
            case move::drop: break;
            case move::write_back:
                if (one.device != nothing)
                    code =
                        move_bytes(s, {move::promote, nothing, nothing, own_frame(s), one.device});
                out.bytes = data_of(one.device != nothing ? own_frame(s) : one.host);
                if (code == 0) out.write_code = write_page(one.page, out.bytes);
                out.unwritten = one.page;
                break;
            case move::fill:
                // A page that could not be written stays in its place.
                if (out.write_code == 0 && !fresh) code = read_page(s, one.page, one.host);
                out.loaded = code == 0 && !fresh && out.write_code == 0;
                break;
            case move::demote:
                if (out.write_code == 0) {
                    code = begin_demotion(
                        s, one,
                        !fresh && i + 1 < s.actions.size() && s.actions[i + 1].what == move::fill
                            ? &s.actions[i + 1]
                            : nullptr);
                    break;
                }
                [[fallthrough]];  // our own frame holds what could not be written
            default: code = move_bytes(s, one);
        }
        if (code != 0) {
            out.code = code;
            return out;
        }
    }
    return out;
}

template <typename Order>
int manager_state<Order>::move_bytes(session_room& s, const action& one) {
    const direction way = one.what == move::exchange  ? direction::exchange
                          : one.what == move::promote ? direction::to_host
                                                      : direction::to_device;
    const int code = end_demotion(s);  // it may be of our own frame, too
    return code != 0 ? code : move_together(s, {one.host, one.device, way});
}

// A call of the device takes as long for many pages as for one, and threads that call at once keep
// each other waiting. No two of a batch are of one frame, as each has the turn on its own.
template <typename Order>
int manager_state<Order>::move_together(session_room& s, const frame_move& what) {
    s.asked.what = what;
    move_request* const mine = &s.asked;
    desks_[s.number % most_desks]->together.submit(&mine, 1);
    return s.asked.code;
}

template <typename Order>
void manager_state<Order>::move_batch_of(std::uint32_t number,
                                         const std::vector<move_request*>& batch) {
    std::vector<frame_move>& moves = desks_[number]->moves;
    moves.clear();
    for (const move_request* const each : batch) moves.push_back(each->what);
    const int code = broken(frames_.move(settings_.sessions + number, moves));
    for (move_request* const each : batch) each->code = code;
}

// Its frame is free when this returns: what goes to the device is a copy of it in our own frame, so
// that the disk is read meanwhile; also while the device is told, if that goes (`next_read`: the
// page that comes in its place). Where many threads do so it goes afterwards, with those of others.
template <typename Order>
int manager_state<Order>::begin_demotion(session_room& s, const action& one,
                                         const action* next_read) {
    if (settings_.page_bytes > most_copied_bytes) return move_bytes(s, one);
    if (const int code = end_demotion(s); code != 0) return code;
    std::memcpy(data_of(own_frame(s)), data_of(one.host), settings_.page_bytes);
    s.victim_frame = one.device;
    if (demotions_.fetch_add(1) >= most_desks) {
        --demotions_;
        s.victim = session_room::demotion::postponed;
        return 0;
    }
    if (next_read != nullptr) begin_read(s, *next_read);
    s.victim = session_room::demotion::begun;
    s.batch.assign(1, {own_frame(s), one.device, direction::to_device});
    return broken(frames_.begin(s.number, s.batch));
}

// The victim is in the device, and our own frame is free.
template <typename Order>
int manager_state<Order>::end_demotion(session_room& s) {
    switch (std::exchange(s.victim, session_room::demotion::none)) {
        case session_room::demotion::none: return 0;
        case session_room::demotion::postponed:
            return move_together(s, {own_frame(s), s.victim_frame, direction::to_device});
        case session_room::demotion::begun: break;
    }
    const int code = broken(frames_.end(s.number));
    --demotions_;
    return code;
}

template <typename Order>
int manager_state<Order>::broken(int code) {
    if (code != 0) broken_ = true;
    return code;
}

// The frame that the other page was to have is free, and the page that must not go has left one: it
// gets this one.
template <typename Order>
void manager_state<Order>::keep_unwritten(const outcome& ended) {
    note_failure(ended.unwritten, ended.write_code);
    std::uint32_t frame = nothing;
    core_.load(ended.unwritten, nullptr, [&](const action& one) {
        if (one.what == move::fill) frame = one.host;
    });
    count_page(ended.unwritten, true);
    core_.mark_dirty(ended.unwritten);
    if (data_of(frame) != ended.bytes)
        std::memcpy(data_of(frame), ended.bytes, settings_.page_bytes);
    page_in_[frame] = ended.unwritten;
    latches_[frame].open();
    entry(ended.unwritten).publish(frame);
}

template <typename Order>
std::uint64_t manager_state<Order>::bytes_in_file(page_id id) const {
    const std::uint64_t end = files_[id.file].bytes, first = id.page * settings_.page_bytes;
    return first >= end ? 0 : std::min(settings_.page_bytes, end - first);
}

template <typename Order>
void manager_state<Order>::begin_read(session_room& s, const action& fill) {
    const file& from = files_[fill.page.file];
    if (from.begins_reads && s.filled_from == nullptr)
        s.begun.begin(env_, from.fd, data_of(fill.host), settings_.page_bytes,
                      fill.page.page * settings_.page_bytes);
}

template <typename Order>
int manager_state<Order>::read_page(session_room& s, page_id id, std::uint32_t frame) {
    const std::uint64_t wanted = bytes_in_file(id);
    if (s.filled_from != nullptr && wanted <= s.filled_bytes)
        std::memcpy(data_of(frame), s.filled_from, wanted);
    else if (const int code = end_whole(s.begun, env_, files_[id.file].fd, data_of(frame), wanted,
                                        settings_.page_bytes, id.page * settings_.page_bytes);
             code != 0)
        return code;
    clear_behind(data_of(frame), wanted, settings_.page_bytes);
    return 0;
}

template <typename Order>
int manager_state<Order>::write_page(page_id id, const std::byte* from) {
    return write_whole(env_, files_[id.file].fd, from, bytes_in_file(id),
                       id.page * settings_.page_bytes);
}

}  // namespace penstock::buffer
