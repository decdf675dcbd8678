#include "region/piece_set.hpp"

#include <algorithm>
#include <cerrno>

#include "os/exceptions.hpp"
#include "os/file_kind.hpp"
#include "region/file_answer.hpp"

namespace penstock::region {

namespace {

// Of a piece, before those that have passed are looked for.
constexpr std::size_t enough_marks = 8;

constexpr int is_pending = 1;  // no errno

// What stands in the log after an error, which the caller has as a code only.
std::string cure_of(std::int64_t code) {
    switch (code) {
        case -ENOSPC:
            return "the pieces that are expected, and those that are in use, are more than there "
                   "is "
                   "room for; end uses with done() first, expect fewer, or give more device_bytes";
        case -ESTALE: return "the file is shorter now; close the pieces and map what is left";
        case -EBUSY:
            return "the stream is being captured, or it is the legacy stream and another one is; "
                   "end the capture first, or give a stream";
        case -EINVAL:
            return "a range does not lie in the file, or a piece is in no use; give ranges that "
                   "were expected";
        default: return error_text(code) + "; what was resident is so still, expect it again";
    }
}

}  // namespace

piece_set::piece_set(host::environment& env, host::hub& shared, int fd,
                     const host::file_facts& facts, std::unique_ptr<piece_memory> memory,
                     const piece_shape& shape, std::string path,
                     std::function<void(const std::string&)> say)
    : env_(env),
      hub_(shared),
      fd_(fd),
      key_{facts.identity.device, facts.identity.inode},
      size_bytes_(facts.identity.size_bytes),
      piece_bytes_(shape.piece_bytes),
      path_(std::move(path)),
      say_(std::move(say)),
      memory_(std::move(memory)),
      pieces_(shape.pieces),
      host_places_(shape.host_places) {
    for (std::uint32_t slot = memory_->slots(); slot > 0; --slot) free_slots_.push_back(slot - 1);
    residents_.resize(memory_->slots(), no_piece);
    traffic_.room_bytes = memory_->slots() * piece_bytes_;
}

piece_set::~piece_set() {
    const std::lock_guard lock(mutex_);
    for (piece& p : pieces_) static_cast<void>(memory_ == nullptr ? 0 : end_last_uses(p));
    if (memory_ == nullptr) return;  // closed
    memory_.reset();
    env_.close(fd_);
}

// The pieces of the ranges, each once, in order. False: a range does not lie in the file.
bool piece_set::numbers_of(std::span<const byte_range> ranges, number_list& out) const {
    for (const byte_range& range : ranges) {
        if (range.offset_bytes > size_bytes_ || range.bytes > size_bytes_ - range.offset_bytes)
            return false;
        if (range.bytes == 0) continue;
        const std::uint64_t last = (range.offset_bytes + range.bytes - 1) / piece_bytes_;
        for (std::uint64_t n = range.offset_bytes / piece_bytes_; n <= last; ++n) out.push_back(n);
    }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return true;
}

// Has the file changed since the last look?
int piece_set::look() {
    for (const auto& mount : hub_.views())
        if (const int code = mount->collect(key_); code != 0) return code;
    host::file_version now;
    if (const int code = host::look_at_version(env_, hub_.passed, key_, fd_, now); code != 0)
        return code;
    if (now.identity.size_bytes < size_bytes_) return -ESTALE;
    if (!known_.is_proof || !known_.is_same(now)) ++version_;
    known_ = now;
    return 0;
}

// False: there is no room.
bool piece_set::make_plan(const number_list& wanted, plan& out) const {
    std::uint64_t slots = free_slots_.size(), needed = 0;
    for (const std::uint64_t n : wanted) {
        if (is_current(pieces_[n])) continue;
        out.come.push_back(n);
        if (pieces_[n].slot == no_place) ++needed;
    }
    if (needed <= slots) return true;
    number_list others;
    for (const std::uint64_t n : residents_)
        if (n != no_piece && pieces_[n].uses == 0 &&
            !std::binary_search(wanted.begin(), wanted.end(), n))
            others.push_back(n);
    if (others.size() < needed - slots) return false;
    std::sort(others.begin(), others.end(), [&](std::uint64_t a, std::uint64_t b) {
        return pieces_[a].expected < pieces_[b].expected;
    });
    others.resize(needed - slots);
    out.leave = std::move(others);
    return true;
}

// Waits for work that may use the piece, and for its own bytes.
int piece_set::end_last_uses(piece& p) {
    int code = memory_->wait(p.filled);
    p.filled = nullptr;
    for (const stream_mark& mark : p.last_uses)
        if (const int waited = memory_->wait(mark); code == 0) code = waited;
    p.last_uses.clear();
    return code;
}

// An empty place, or else one whose piece is on the device too, or else the one that was used
// longest ago.
std::uint32_t piece_set::least_wanted_place() const {
    const auto worth = [&](const host_place& of) {
        if (of.piece >= pieces_.size()) return std::uint64_t{0};
        return of.used + (pieces_[of.piece].slot == no_place ? clock_ : 0);
    };
    std::uint32_t out = 0;
    for (std::uint32_t i = 1; i < host_places_.size(); ++i)
        if (worth(host_places_[i]) < worth(host_places_[out])) out = i;
    return out;
}

// A copy that cannot be made is none: the piece is read from the file when it is wanted again.
void piece_set::keep_in_host(std::uint64_t number) {
    piece& p = pieces_[number];
    if (host_places_.empty() || p.version != version_) return;
    if (p.host_place != no_place && p.host_version == p.version) return;
    const std::uint32_t chosen = p.host_place != no_place ? p.host_place : least_wanted_place();
    host_place& to = host_places_[chosen];
    if (to.piece < pieces_.size()) pieces_[to.piece].host_place = no_place;
    to.piece = no_piece;
    to.used = 0;
    if (memory_->wait(to.read) != 0 || memory_->to_host(number, chosen) != 0) return;
    to = {number, ++clock_, nullptr};
    p.host_place = chosen;
    p.host_version = p.version;
    ++traffic_.pieces_to_host;
}

int piece_set::drop(number_list leave) {
    std::sort(leave.begin(), leave.end());
    std::vector<placed_piece> gone;
    for (const std::uint64_t n : leave) {
        if (const int code = end_last_uses(pieces_[n]); code != 0) return code;
        keep_in_host(n);
        gone.push_back({n, pieces_[n].slot});
    }
    const int code = memory_->remove(gone);
    traffic_.pieces_dropped += gone.size();
    forget(gone);
    return code;
}

// Pieces that have no memory any more.
void piece_set::forget(const std::vector<placed_piece>& gone) {
    for (const placed_piece& p : gone) {
        free_slots_.push_back(p.slot);
        residents_[p.slot] = no_piece;
        pieces_[p.number].slot = no_place;
        traffic_.bytes_resident -= piece_bytes_;
    }
}

int piece_set::place(const number_list& come) {
    std::vector<placed_piece> fresh;
    for (const std::uint64_t n : come) {
        if (pieces_[n].slot == no_place)
            fresh.push_back({n, free_slots_[free_slots_.size() - 1 - fresh.size()]});
        else if (const int code = end_last_uses(pieces_[n]); code != 0) return code;
    }
    if (const int code = memory_->place(fresh); code != 0) return code;
    free_slots_.resize(free_slots_.size() - fresh.size());
    for (const placed_piece& p : fresh) {
        residents_[p.slot] = p.number;
        pieces_[p.number].slot = p.slot;
    }
    traffic_.bytes_resident += fresh.size() * piece_bytes_;
    // All of them first: where one fails to begin, the others count as absent too.
    for (const std::uint64_t n : come) pieces_[n].version = 0;  // it has the bytes of none
    for (const std::uint64_t n : come)
        if (const int code = memory_->begin_fill(n); code != 0) return code;
    return 0;
}

// The pieces that leave give up their memory, and those that come have it.
int piece_set::make_room(const plan& todo) try {
    int code = todo.leave.empty() ? 0 : drop(todo.leave);
    if (code == 0) code = place(todo.come);
    return code;
} catch (...) {
    return host::status_of_exception("").code;
}

// One worker: a part of a piece from the file. `room` is pending, or the result of make_room();
// until then the bytes go no further than the worker's buffer.
int piece_set::bring_part(unsigned worker, unsigned which, std::uint64_t offset,
                          const std::atomic<int>& room) {
    const std::uint64_t piece_end = (offset / piece_bytes_ + 1) * piece_bytes_,
                        end = std::min(offset + most_part_bytes, piece_end),
                        file_end = std::min(end, size_bytes_),
                        bytes = offset < file_end ? file_end - offset : 0;
    if (bytes > 0) {
        std::byte* const to = memory_->buffer(worker, which, offset);
        if (to == nullptr) return -EIO;
        const std::int64_t got = host::read_all(env_, fd_, to, bytes, offset);
        if (got < 0) return file_answer(static_cast<int>(got));
        if (static_cast<std::uint64_t>(got) < bytes) return -ESTALE;
    }
    // Acquire: what make_room() did comes before what the worker sends (release in fill).
    room.wait(is_pending, std::memory_order_acquire);
    if (const int code = room.load(std::memory_order_acquire); code != 0) return code;
    if (bytes > 0)
        if (const int code = memory_->send(worker, which, offset, bytes); code != 0) return code;
    const std::uint64_t zeros = std::max(offset, file_end);
    return zeros < end ? memory_->clear(worker, zeros, end - zeros) : 0;
}

// Changes of the device's address table take as long as a part of a fill, so the caller makes them
// while the other workers read. Where bytes are read into the pieces themselves, or a piece that
// leaves may take the place in host memory of one that comes, room is made before.
int piece_set::fill(const plan& todo) {
    const bool room_first = memory_->reads_in_place() || !host_places_.empty();
    std::atomic<int> room{room_first ? make_room(todo) : is_pending};
    if (room_first && room != 0) return room;
    const std::uint64_t parts_of_piece = (piece_bytes_ + most_part_bytes - 1) / most_part_bytes;
    number_list from_file, from_host;
    for (const std::uint64_t n : todo.come) {
        const piece& p = pieces_[n];
        if (p.host_place == no_place || p.host_version != version_) from_file.push_back(n);
        else from_host.push_back(n);
    }
    std::atomic<std::uint64_t> next{0};
    std::atomic<int> failed{0};
    for (const std::uint64_t n : from_host)
        if (failed == 0) failed = memory_->from_host(0, n, pieces_[n].host_place);
    const std::uint64_t parts = from_file.size() * parts_of_piece;
    const auto work = [&](unsigned worker) {
        if (worker == 0 && !room_first) {
            room.store(make_room(todo), std::memory_order_release);  // for bring_part
            room.notify_all();
        }
        unsigned which = 0;
        for (std::uint64_t i = next++; i < parts && failed == 0; i = next++, which ^= 1) {
            const std::uint64_t offset =
                from_file[i / parts_of_piece] * piece_bytes_ + i % parts_of_piece * most_part_bytes;
            int none = 0;
            if (const int code = bring_part(worker, which, offset, room); code != 0)
                failed.compare_exchange_strong(none, code);
        }
    };
    const auto wanted = static_cast<unsigned>(std::min<std::uint64_t>(memory_->workers(), parts));
    if (parts > 0) memory_->threads().run(wanted, work);
    stream_mark filled;
    if (const int code = memory_->mark_workers(filled); code != 0) return code;
    if (failed != 0) {
        memory_->wait(filled);
        return failed;
    }
    return finish(todo.come, from_file, filled);
}

// All bytes of the pieces are there, or on their way by what was marked.
int piece_set::finish(const number_list& come, const number_list& from_file,
                      const stream_mark& filled) {
    for (const std::uint64_t n : come) {
        if (const int code = memory_->end_fill(n); code != 0) return code;
        piece& p = pieces_[n];
        p.version = version_;
        p.filled = filled;
        if (p.host_place == no_place || p.host_version != version_) continue;
        host_places_[p.host_place].used = ++clock_;
        host_places_[p.host_place].read = filled;
    }
    traffic_.pieces_read += from_file.size();
    traffic_.pieces_from_host += come.size() - from_file.size();
    for (const std::uint64_t n : from_file)
        traffic_.bytes_read += std::min(size_bytes_ - n * piece_bytes_, piece_bytes_);
    return 0;
}

// After an error: what was to come is absent, as before or because it was outdated.
void piece_set::give_up(const number_list& come) {
    std::vector<placed_piece> gone;
    for (const std::uint64_t n : come)
        if (pieces_[n].slot != no_place && pieces_[n].version == 0)
            gone.push_back({n, pieces_[n].slot});
    static_cast<void>(memory_->remove(gone));
    forget(gone);
}

int piece_set::carry_out(const plan& todo) {
    const int code = todo.come.empty() ? 0 : fill(todo);  // none leaves unless some come
    if (code != 0) give_up(todo.come);
    return code;
}

std::int64_t piece_set::told(std::int64_t code, const char* operation) {
    if (code < 0) say_("pieces of '" + path_ + "', " + operation + ": " + cure_of(code));
    return code;
}

std::int64_t piece_set::expect(std::span<const byte_range> ranges, void* stream) try {
    if (!belongs_here()) return -ECHILD;
    const std::lock_guard lock(mutex_);
    if (memory_ == nullptr) return -EBADF;
    number_list wanted;
    if (!numbers_of(ranges, wanted)) return told(-EINVAL, "expect");
    if (const int code = memory_->check(stream); code != 0) return told(code, "expect");
    if (const int code = file_answer(look()); code != 0) return told(code, "expect");
    plan todo;
    if (!make_plan(wanted, todo)) return told(-ENOSPC, "expect");
    if (const int code = carry_out(todo); code != 0) return told(code, "expect");
    ++clock_;
    int code = 0;
    stream_mark ordered;  // most pieces came together
    for (const std::uint64_t n : wanted) {
        piece& p = pieces_[n];
        if (p.filled != nullptr && p.filled != ordered && code == 0)
            code = memory_->order(stream, ordered = p.filled);
    }
    if (code != 0) return told(code, "expect");
    for (const std::uint64_t n : wanted) {
        pieces_[n].expected = clock_;
        ++pieces_[n].uses;
    }
    return static_cast<std::int64_t>(todo.come.size());
} catch (...) {
    return host::status_of_exception("").code;
}

int piece_set::done(std::span<const byte_range> ranges, void* stream) try {
    if (!belongs_here()) return -ECHILD;
    const std::lock_guard lock(mutex_);
    if (memory_ == nullptr) return -EBADF;
    number_list ended;
    const bool sound = numbers_of(ranges, ended) &&
                       std::all_of(ended.begin(), ended.end(),
                                   [&](std::uint64_t n) { return pieces_[n].uses != 0; });
    if (!sound) return static_cast<int>(told(-EINVAL, "done"));
    if (const int code = memory_->check(stream); code != 0)
        return static_cast<int>(told(code, "done"));
    stream_mark last;
    if (const int code = memory_->mark(stream, last); code != 0)
        return static_cast<int>(told(code, "done"));
    for (const std::uint64_t n : ended) {
        std::vector<stream_mark>& of = pieces_[n].last_uses;
        if (of.size() >= enough_marks)
            std::erase_if(of, [&](const stream_mark& mark) { return memory_->has_passed(mark); });
        if (last != nullptr) of.push_back(last);
        --pieces_[n].uses;
    }
    return 0;
} catch (...) {
    return host::status_of_exception("").code;
}

bool piece_set::is_resident(std::span<const byte_range> ranges) const try {
    if (!belongs_here()) return false;
    const std::lock_guard lock(mutex_);
    number_list numbers;
    return memory_ != nullptr && numbers_of(ranges, numbers) &&
           std::all_of(numbers.begin(), numbers.end(),
                       [&](std::uint64_t n) { return pieces_[n].slot != no_place; });
} catch (...) {
    return false;
}

status piece_set::verify(std::span<const byte_range> ranges) const try {
    const std::string subject = "pieces of '" + path_ + "': ";
    if (!belongs_here()) return {-ECHILD, subject + "they belong to the parent of this process"};
    const std::lock_guard lock(mutex_);
    if (memory_ == nullptr) return {-EBADF, subject + "closed; map them again"};
    number_list numbers;
    if (!numbers_of(ranges, numbers)) return {-EINVAL, subject + cure_of(-EINVAL)};
    for (const std::uint64_t n : numbers)
        if (pieces_[n].uses == 0) {
            const std::uint64_t first = n * piece_bytes_;
            return {-ENODATA, subject + "bytes " + std::to_string(first) + " to " +
                                  std::to_string(std::min(first + piece_bytes_, size_bytes_) - 1) +
                                  (pieces_[n].slot == no_place ? " are absent" : " may leave") +
                                  "; expect() them before the launch, and call done() after it"};
        }
    return {};
} catch (...) {
    return host::status_of_exception("pieces: ");
}

piece_traffic piece_set::traffic() const {
    if (!belongs_here()) return {};
    const std::lock_guard lock(mutex_);
    return traffic_;
}

int piece_set::close() try {
    if (!belongs_here()) return -ECHILD;
    const std::lock_guard lock(mutex_);
    if (memory_ == nullptr) return -EBADF;
    if (std::any_of(pieces_.begin(), pieces_.end(), [](const piece& p) { return p.uses != 0; }))
        return -EBUSY;
    int code = 0;
    for (piece& p : pieces_)
        if (const int ended = end_last_uses(p); code == 0) code = ended;
    memory_.reset();
    env_.close(fd_);
    traffic_.bytes_resident = 0;
    return code;
} catch (...) {
    return host::status_of_exception("").code;
}

}  // namespace penstock::region
