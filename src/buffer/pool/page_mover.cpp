#include "buffer/pool/page_mover.hpp"

#include <algorithm>
#include <cstring>

#include "buffer/pool/page_io.hpp"

namespace penstock::buffer {

page_mover::page_mover(const manager_settings& settings, device_frames& frames,
                       host::environment& env, frame_directory& pages)
    : settings_(settings), frames_(frames), env_(env), pages_(pages) {
    for (std::uint32_t desk = 0; desk < most_desks; ++desk)
        desks_.push_back(std::make_unique<move_desk>(
            settings, [this, desk](const auto& batch) { move_desk_batch(desk, batch); }));
}

page_mover::outcome page_mover::carry_out(move_room& s, bool fresh) {
    outcome out = carry_out_all(s, fresh);
    s.begun.end();  // where a move has failed: the frame is another page's from here on
    if (const int code = end_demotion(s); code != 0) out.code = code;
    return out;
}

page_mover::outcome page_mover::carry_out_all(move_room& s, bool fresh) {
    outcome out;
    for (std::size_t i = 0; i < s.actions.size(); ++i) {
        const action& told = s.actions[i];
        int code = 0;
        switch (told.kind) {
            case move::drop: break;
            case move::write_back:
                if (told.device != nothing)
                    code =
                        move_bytes(s, {move::promote, nothing, nothing, own_frame(s), told.device});
                out.bytes = pages_.data_of(told.device != nothing ? own_frame(s) : told.host);
                if (code == 0) out.write_code = write_page(told.page, out.bytes);
                out.unwritten = told.page;
                break;
            case move::fill:
                // A page that could not be written stays in its place.
                if (out.write_code == 0 && !fresh) code = read_page(s, told.page, told.host);
                out.loaded = code == 0 && !fresh && out.write_code == 0;
                break;
            case move::demote:
                if (out.write_code == 0) {
                    code = begin_demotion(
                        s, told,
                        !fresh && i + 1 < s.actions.size() && s.actions[i + 1].kind == move::fill
                            ? &s.actions[i + 1]
                            : nullptr);
                    break;
                }
                [[fallthrough]];  // our own frame holds what could not be written
            default: code = move_bytes(s, told);
        }
        if (code != 0) {
            out.code = code;
            return out;
        }
    }
    return out;
}

int page_mover::move_bytes(move_room& s, const action& told) {
    const direction way = told.kind == move::exchange  ? direction::exchange
                          : told.kind == move::promote ? direction::to_host
                                                       : direction::to_device;
    const int code = end_demotion(s);  // it may be of our own frame, too
    return code != 0 ? code : move_together(s, {told.host, told.device, way});
}

// A call of the device takes as long for many pages as for one, and threads that call at once keep
// each other waiting. No two of a batch are of one frame, as each has the turn on its own.
int page_mover::move_together(move_room& s, const frame_move& transfer) {
    const device_time timed(*this, s);
    s.asked.transfer = transfer;
    desks_[s.number % most_desks]->together.submit(s.asked);
    return broken(s.asked.code);  // also where the batch threw: it did not move what the core says
}

void page_mover::move_desk_batch(std::uint32_t desk, const combiner<move_request>::batch& batch) {
    std::vector<frame_move>& moves = desks_[desk]->moves;
    moves.clear();
    for (const move_request* const each : batch) moves.push_back(each->transfer);
    const int code = broken(frames_.move(settings_.sessions + desk, moves));
    for (move_request* const each : batch) each->code = code;
}

// Its frame is free when this returns: what goes to the device is a copy of it in our own frame, so
// that the disk is read meanwhile; also while the device is told, if that goes (`next_read`: the
// page that comes in its place). Where many threads do so it goes afterwards, with those of others.
int page_mover::begin_demotion(move_room& s, const action& told, const action* next_read) {
    if (settings_.page_bytes > most_copied_bytes) return move_bytes(s, told);
    if (const int code = end_demotion(s); code != 0) return code;
    {
        const device_time timed(*this, s);
        std::memcpy(pages_.data_of(own_frame(s)), pages_.data_of(told.host), settings_.page_bytes);
    }
    s.victim_frame = told.device;
    if (demotions_.fetch_add(1) >= most_desks) {
        --demotions_;
        s.victim = move_room::demotion::postponed;
        return 0;
    }
    if (next_read != nullptr) begin_read(s, *next_read);
    s.victim = move_room::demotion::begun;
    s.batch.assign(1, {own_frame(s), told.device, direction::to_device});
    const device_time timed(*this, s);
    return broken(frames_.begin(s.number, s.batch));
}

// The victim is in the device, and our own frame is free.
int page_mover::end_demotion(move_room& s) {
    switch (std::exchange(s.victim, move_room::demotion::none)) {
        case move_room::demotion::none: return 0;
        case move_room::demotion::postponed:
            return move_together(s, {own_frame(s), s.victim_frame, direction::to_device});
        case move_room::demotion::begun: break;
    }
    const device_time timed(*this, s);
    const int code = broken(frames_.end(s.number));
    --demotions_;
    return code;
}

int page_mover::broken(int code) {
    if (code != 0) broken_ = true;
    return code;
}

void page_mover::begin_read(move_room& s, const action& fill) {
    const frame_directory::file& from = pages_.file_at(fill.page.file);
    if (!from.begins_reads || s.filled_from != nullptr) return;
    const std::uint64_t begun = now();
    s.begun.begin(env_, from.fd, pages_.data_of(fill.host), settings_.page_bytes,
                  fill.page.page * settings_.page_bytes);
    s.begin_ns += now() - begun;
}

int page_mover::read_page(move_room& s, page_id id, std::uint32_t frame) {
    const std::uint64_t wanted = pages_.bytes_in_file(id);
    if (s.filled_from != nullptr && wanted <= s.filled_bytes)
        std::memcpy(pages_.data_of(frame), s.filled_from, wanted);
    else if (const int code =
                 end_whole(s.begun, env_, pages_.file_at(id.file).fd, pages_.data_of(frame), wanted,
                           settings_.page_bytes, id.page * settings_.page_bytes);
             code != 0)
        return code;
    clear_behind(pages_.data_of(frame), wanted, settings_.page_bytes);
    return 0;
}

int page_mover::write_page(page_id id, const std::byte* from) {
    return failures_.note(
        id, write_whole(env_, pages_.file_at(id.file).fd, from, pages_.bytes_in_file(id),
                        id.page * settings_.page_bytes));
}

}  // namespace penstock::buffer
