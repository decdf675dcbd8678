#include "service/service.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "service/trace.hpp"
#include "penstock/base/atomic.hpp"
#include "penstock/engine/name_table.hpp"
#include "penstock/engine/wish.hpp"

namespace penstock::host {

using engine::file_request;
using engine::fill_request;
using engine::leaf_request;
using engine::op;
using engine::open_request;
using engine::read_request;
using engine::ring_reply;
using engine::ring_request;
using engine::ring_ticket;
using engine::unlink_request;
using engine::wish_request;
using engine::write_request;

namespace {
std::vector<host_ring> with_heads(std::vector<host_ring> rings, std::vector<std::uint64_t>& own) {
    for (std::size_t i = 0; i < rings.size(); ++i)
        if (rings[i].head == nullptr) rings[i].head = &own[i];
    return rings;
}

std::unique_ptr<io_engine> with_registered_memory(std::unique_ptr<io_engine> io,
                                                  const service_settings& settings,
                                                  std::atomic<std::uint64_t>& reads) {
    if (settings.to_register.empty()) return io;
    return std::make_unique<registering_engine>(std::move(io), settings.to_register, reads,
                                                settings.register_refused);
}
}  // namespace

int handle_cache::find(std::uint32_t slot, std::uint32_t generation,
                       std::shared_ptr<shared_handle>& out, std::uint64_t& size_bytes) {
    forget_stale();
    place& p = places_[slot % places_.size()];
    if (p.handle == nullptr || p.slot != slot || p.generation != generation) {
        std::shared_ptr<shared_handle> found;
        if (const int code = files_.handle_of(slot, generation, found, size_bytes); code != 0)
            return code;
        const auto holder = std::make_shared<std::shared_ptr<shared_handle>>(found);
        p = {slot, generation, size_bytes, std::shared_ptr<shared_handle>(holder, found.get())};
    }
    out = p.handle;
    size_bytes = p.size_bytes;
    return 0;
}

void handle_cache::forget_stale() {
    const std::uint64_t changes = files_.handle_changes();
    if (changes == seen_changes_) return;
    places_ = {};
    seen_changes_ = changes;
}

service::service(const std::vector<host_ring>& rings, file_registry& files, environment& env,
                 std::unique_ptr<io_engine> io, host_doorbell* doorbell,
                 const service_settings& settings)
    : own_heads_(rings.size()),
      rings_(with_heads(rings, own_heads_)),
      slots_(rings.front().slots),
      files_(files),
      env_(env),
      io_(with_registered_memory(std::move(io), settings, counters_.registered_reads)),
      posters_ring_(doorbell != nullptr),
      doorbell_(doorbell != nullptr ? doorbell : &own_doorbell_),
      settings_(settings),
      flights_(rings.size() * slots_),
      fills_(settings.tier, settings.page_shift),
      handles_(files),
      wishes_(env) {}

ring_reply& service::reply_of(const ring_ticket& at) const {
    return rings_[at.ring].replies[at.ticket & (slots_ - 1)];
}

std::byte* service::staging_of(const ring_ticket& at) const {
    const host_ring& ring = rings_[at.ring];
    return ring.staging + ring.staging_stride * (at.ticket & (slots_ - 1));
}

std::uint32_t service::flight_of(const ring_ticket& at) const {
    return at.ring * slots_ + (static_cast<std::uint32_t>(at.ticket) & (slots_ - 1));
}

// Reads that wait for a block or a copy are not with the engine. Should all of them go there at
// once, the engine gives some of them back to be tried again.
bool service::has_room_for_reads() const {
    const std::size_t elsewhere = awaiting_.size() + waiting_fills_.size() + copying_.size();
    return in_flight_ - elsewhere < io_->capacity();
}

// Takes the requests of one ring, but at most as many as it has slots, so that the other rings get
// their turn.
std::uint32_t service::take_from(std::uint32_t ring) {
    std::uint32_t taken = 0;
    for (ring_ticket at{ring, 0};
         taken < slots_ && has_room_for_reads() && take_next(rings_[ring], at.ticket); ++taken) {
        const ring_request request = rings_[ring].requests[at.ticket & (slots_ - 1)];
        if (request.operation != op::write) ++worth_helpers_;
        serve(request, at);
        if (io_->has_finished())
            finish_all(0);  // requests for cached bytes need not wait for the rest
    }
    return taken;
}

// Starts at another ring each time, so that no ring is left waiting when there are more requests
// than can be in flight.
std::uint32_t service::take_requests() {
    std::uint32_t taken = 0;
    const auto rings = static_cast<std::uint32_t>(rings_.size());
    for (std::uint32_t i = 0; i < rings; ++i) taken += take_from((first_ring_ + i) % rings);
    first_ring_ = (first_ring_ + 1) % rings;
    if (taken > 0) {
        counters_.batches.fetch_add(1, std::memory_order_relaxed);
        std::uint32_t bucket = 0;
        while (bucket < 15 && (taken >> (bucket + 1)) != 0) ++bucket;
        counters_.batch_size[bucket].fetch_add(1, std::memory_order_relaxed);
    }
    return taken;
}

void service::serve(const ring_request& request, const ring_ticket& at) {
    if (request.lost_extent != 0) take_back_open(request.lost_extent, at);
    switch (request.operation) {
        case op::read: return serve_read(read_request::of(request), at);
        case op::fill: return serve_fill(fill_request::of(request), at);
        case op::wish: return serve_wish(wish_request::of(request), at);
        case op::open: return serve_open(open_request::of(request), at);
        case op::write: return serve_write(write_request::of(request), at);
        case op::leaf: return serve_leaf(leaf_request::of(request), at);
        case op::unlink: return serve_unlink(unlink_request::of(request), at);
        case op::sync: return serve_sync(file_request::of(request), at);
        case op::truncate: return serve_truncate(file_request::of(request), at);
        case op::retire:
        case op::settle: return serve_end(file_request::of(request), at);
        case op::ping: return answer(at, 0);
        default: return refuse(at, -EINVAL);
    }
}

// The last owner of the ring slot did not wait for its answer, which lies here still.
void service::take_back_open(std::uint64_t lost, const ring_ticket& at) {
    files_.give_back_path(lost & ~(engine::lost_open_bit | engine::lost_write_bit));
    if ((lost & engine::lost_open_bit) == 0) return;
    const engine::open_answer answer = engine::answer_of(reply_of(at));
    files_.take_back_open({answer.file_slot, answer.generation}, answer.epoch,
                          (lost & engine::lost_write_bit) != 0);
}

// The end of a file's life in its slot, or of its life as a written file.
void service::serve_end(const file_request& request, const ring_ticket& at) {
    settings_.write_errors->forget({request.file_slot, request.generation});
    if (request.operation == op::retire)
        return answer(at, files_.retire(request.file_slot, request.generation));
    settling_.push_back({request, at});
    settle_files();
}

// Some files have to be asked again, once all threads have let go of their handles.
void service::settle_files() {
    handles_.forget_stale();
    std::erase_if(settling_, [this](const settling_file& s) {
        if (!files_.settle(s.request.file_slot, s.request.generation, s.request.answers,
                           s.request.size_bytes))
            return false;
        answer(s.at, 0);
        return true;
    });
}

void service::serve_leaf(const leaf_request& request, const ring_ticket& at) {
    std::uint64_t word_index = 0;
    const std::int64_t code = files_.leaf(request.file_slot, request.generation, request.kind,
                                          request.number, word_index);
    reply_of(at).words[0] = word_index;
    answer(at, code);
}

// The name of a request, or an empty string if it cannot be a name. It is a copy: the device could
// change the name while it is looked up.
std::string service::name_in(std::uint32_t name_bytes, const ring_ticket& at) const {
    if (name_bytes == 0 || name_bytes > engine::max_path_bytes) return {};
    std::string name(name_bytes, '\0');
    std::memcpy(name.data(), staging_of(at), name_bytes);
    return name.find('\0') == std::string::npos ? name : std::string();
}

void service::serve_unlink(const unlink_request& request, const ring_ticket& at) {
    const trace_range range("unlink");
    const std::string name = name_in(request.name_bytes, at);
    if (name.empty()) return refuse(at, -EINVAL);
    answer(at, files_.unlink(name, true));
}

void service::serve_open(const open_request& request, const ring_ticket& at) {
    const trace_range range("open");
    const std::string name = name_in(request.name_bytes, at);
    if (name.empty()) return refuse(at, -EINVAL);
    const bool is_open = request.known_slot != 0 && request.known_slot <= engine::max_file_slots;
    const slot_life open_now = is_open
                                   ? slot_life{static_cast<std::uint32_t>(request.known_slot - 1),
                                               request.known_generation}
                                   : slot_life{};
    const open_reply opened =
        files_.open(name, request.old_extent, request.old_units, request.flags, open_now);
    ring_reply& reply = reply_of(at);
    reply.words[engine::reply_slot_and_generation] =
        std::uint64_t{opened.generation} << 32 | opened.slot;
    reply.words[engine::reply_size_bytes] = opened.identity.size_bytes;
    reply.words[engine::reply_table] = opened.table;
    reply.words[engine::reply_path_and_flags] = std::uint64_t{opened.epoch} << 33 |
                                                std::uint64_t{opened.two_level} << 32 |
                                                opened.path_extent;
    reply.words[engine::reply_inode] = opened.identity.inode;
    reply.words[engine::reply_modified_ns] =
        static_cast<std::uint64_t>(opened.identity.modified_ns);
    answer(at, opened.result);
}

void service::serve_read(const read_request& request, const ring_ticket& at) {
    const std::uint64_t page_bytes = std::uint64_t{1} << settings_.page_shift;
    flight& f = flights_[flight_of(at)];
    // A correct device uses a slot again only after it has read the answer. A second read here
    // would mix with the first.
    if (f.file != nullptr) return refuse(at, -EBUSY);
    std::uint64_t size_bytes = 0;
    if (const int code = handles_.find(request.file_slot, request.generation, f.file, size_bytes);
        code != 0)
        return code == -EBADF ? refuse(at, code) : answer(at, code);
    if (request.bytes == 0 || request.bytes > page_bytes || request.offset >= size_bytes ||
        request.bytes > size_bytes - request.offset || (request.offset & (page_bytes - 1)) != 0) {
        f.file.reset();
        return refuse(at, -EINVAL);
    }
    note_asked(request.file_slot, request.generation, request.offset, request.bytes);
    f.at = at;
    f.offset = request.offset;
    f.wanted = request.bytes;
    f.done = 0;
    f.attempts = 0;
    f.pads = request.pads && size_bytes == size_of_written;
    f.stored = {};
    f.slot = request.file_slot;
    f.generation = request.generation;
    f.asked_store = false;
    ++in_flight_;
    if (files_.shared().frames.any()) start_at_frames(flight_of(at));
    else start_flight(flight_of(at));
}

// Queues the marked bytes of a page, run by run, and no other bytes: bytes in between may belong to
// another writer by now. They are written when all requests of this look were taken
// (files/file_writer.hpp).
void service::serve_write(const write_request& request, const ring_ticket& at) {
    const std::uint64_t page_bytes = std::uint64_t{1} << settings_.page_shift;
    auto batch = std::find_if(batches_.begin(), batches_.end(), [&](const write_batch& b) {
        return b.slot == request.file_slot && b.generation == request.generation;
    });
    if (batch == batches_.end()) {
        std::shared_ptr<file_writer> writer;
        if (const int code = files_.writer_of(request.file_slot, request.generation, writer);
            code != 0)
            return refuse(at, code);
        batch =
            batches_.insert(batch, {request.file_slot, request.generation, std::move(writer), {}});
    }
    if (request.bytes != page_bytes || (request.offset & (page_bytes - 1)) != 0 ||
        request.offset > INT64_MAX - page_bytes ||
        rings_[at.ring].staging_stride < page_bytes + page_bytes / 8)
        return refuse(at, -EINVAL);
    batch->orders.push_back(
        {staging_of(at), request.offset, request.is_whole == 1, &reply_of(at), at.ticket});
}

void service::run_writers() {
    for (write_batch& batch : batches_) {
        batch.writer->put(batch.orders);
        if (std::find(writers_.begin(), writers_.end(), batch.writer) == writers_.end())
            writers_.push_back(std::move(batch.writer));
    }
    batches_.clear();
    if (writers_.empty()) return;
    const trace_range range("write");
    std::erase_if(writers_, [this](const auto& writer) {
        return !writer->run(scratch_, counters_.file_writes, *settings_.write_errors);
    });
}

void service::serve_truncate(const file_request& request, const ring_ticket& at) {
    const trace_range range("truncate");
    std::shared_ptr<file_writer> file;
    if (const int code = files_.writer_of(request.file_slot, request.generation, file); code != 0)
        return refuse(at, code);
    if (request.size_bytes > INT64_MAX) return refuse(at, -EINVAL);
    const auto cut = [&] {
        return tried_again([&] { return env_.truncate(file->fd(), request.size_bytes); });
    };
    file->begin_cut();
    const std::int64_t code =
        files_.shared().change_told(env_, file->fd(), {request.size_bytes, 0, true}, cut);
    file->end_cut(code == 0 ? request.size_bytes : UINT64_MAX);
    if (code == 0 && request.size_bytes == 0 && request.answers == engine::cut_alone)
        files_.cut_to_nothing(request.file_slot, request.generation);
    answer(at, code);
}

// A reader may ask for it too, before any group has written the file or after the last close of one
// that did: what was written then may still be in the operating system's memory alone.
void service::serve_sync(const file_request& request, const ring_ticket& at) {
    const trace_range range("sync");
    std::shared_ptr<shared_handle> file;
    if (const int code = files_.handle_to_sync(request.file_slot, request.generation, file);
        code != 0)
        return code == -EBADF ? refuse(at, code) : answer(at, code);
    counters_.file_syncs.fetch_add(1, std::memory_order_relaxed);
    const int code = sync_file(env_, file->fd());
    const write_error_log::file_key key{request.file_slot, request.generation};
    if (code != 0)
        settings_.write_errors->sync_failed(
            key, files_.path_of(request.file_slot, request.generation), code);
    else settings_.write_errors->synced(key);
    answer(at, code);
}

// No group waits for the answer, only for the marks; the answer says that the ring slot can be used
// again.
void service::serve_fill(const fill_request& request, const ring_ticket& at) {
    const std::uint64_t page_bytes = std::uint64_t{1} << settings_.page_shift;
    const std::uint64_t pages =
        (std::uint64_t{request.bytes} + page_bytes - 1) >> settings_.page_shift;
    if (pages == 0 || pages > engine::max_fill_pages) return refuse(at, -EINVAL);
    fill_order order{
        at, request.stamp, request.offset, request.bytes, static_cast<std::uint32_t>(pages), {}};
    std::memcpy(order.frames.data(), staging_of(at), pages * sizeof order.frames[0]);
    std::shared_ptr<shared_handle> file;
    std::uint64_t size_bytes = 0;
    const int code = handles_.find(request.file_slot, request.generation, file, size_bytes);
    const bool fits = code == 0 && request.offset < size_bytes &&
                      request.bytes <= size_bytes - request.offset &&
                      (request.offset & (page_bytes - 1)) == 0;
    if (!fits || !fills_.permits(order)) {
        fills_.refuse(order);
        return code != 0 && code != -EBADF ? answer(at, code)
                                           : refuse(at, code != 0 ? code : -EINVAL);
    }
    note_asked(request.file_slot, request.generation, request.offset, request.bytes);
    if (!has_store() || !start_fill_at_store(order, request.file_slot, request.generation, file))
        start_fill(order, std::move(file));
}

void service::start_fill(const fill_order& order, std::shared_ptr<shared_handle> file) {
    std::uint32_t direct = 0;
    const std::uint32_t reads = fills_.begin(order, std::move(file), *io_, direct);
    in_flight_ += reads;
    counters_.direct_reads.fetch_add(direct, std::memory_order_relaxed);
    counters_.file_reads.fetch_add(reads, std::memory_order_relaxed);
}

// Answers before the wishes come true: no group waits, but the ring slot can be used again once the
// list is copied.
void service::serve_wish(const wish_request& request, const ring_ticket& at) {
    if (request.runs == 0 || request.runs > engine::max_wished_runs) return refuse(at, -EINVAL);
    std::array<engine::wished_run, engine::max_wished_runs> runs;
    std::memcpy(runs.data(), staging_of(at), request.runs * sizeof runs[0]);
    answer(at, 0);
    const std::uint64_t most_pages = static_cast<std::uint64_t>(INT64_MAX) >> settings_.page_shift;
    for (std::uint32_t i = 0; i < request.runs; ++i) {
        const engine::wished_run& r = runs[i];
        const std::uint64_t pages = engine::pages_of(r), first = engine::first_page_of(r);
        std::shared_ptr<shared_handle> file;
        std::uint64_t size_bytes = 0;
        if (pages == 0 || first > most_pages ||
            handles_.find(r.file_slot, r.generation, file, size_bytes) != 0)
            continue;
        wish wanted{r.file_slot, r.generation, first << settings_.page_shift,
                    pages << settings_.page_shift};
        if (wanted.offset >= size_bytes) continue;
        wanted.bytes = std::min(wanted.bytes, size_bytes - wanted.offset);
        note_asked(wanted.slot, wanted.generation, wanted.offset, wanted.bytes);
        if (has_store() && wish_from_store(wanted, file)) continue;
        if (!wishes_.add(wanted)) counters_.wishes_dropped.fetch_add(1, std::memory_order_relaxed);
    }
}

// Few at a time while requests keep coming, whose groups wait.
void service::ask_for_wishes(std::uint32_t calls) {
    const trace_range range("wishes");
    const std::uint32_t made =
        wishes_.ask(calls, [this](std::uint32_t slot, std::uint32_t generation,
                                  std::shared_ptr<shared_handle>& file, std::uint64_t& size_bytes) {
            return handles_.find(slot, generation, file, size_bytes);
        });
    counters_.wishes.fetch_add(made, std::memory_order_relaxed);
}

void service::note_asked(std::uint32_t slot, std::uint32_t generation, std::uint64_t offset,
                         std::uint64_t bytes) const {
    if (settings_.asked != nullptr) settings_.asked->note(slot, generation, offset, bytes);
}

read_operation service::rest_of(std::uint32_t number) const {
    const flight& f = flights_[number];
    return {-1, staging_of(f.at) + f.done, f.wanted - f.done, f.offset + f.done, number};
}

void service::start_flight(std::uint32_t number) {
    if (has_store() && start_at_store(number)) return;
    read_operation operation = rest_of(number);
    flights_[number].way = flights_[number].file->choose(operation, *io_);
    if (flights_[number].way == read_way::direct)
        counters_.direct_reads.fetch_add(1, std::memory_order_relaxed);
    io_->start(operation);
    counters_.file_reads.fetch_add(1, std::memory_order_relaxed);
}

void service::finish_all(std::uint64_t wait_ns) {
    finished_.clear();
    io_->reap(finished_, wait_ns);
    for (const read_result& result : finished_) finish(result);
}

void service::count_read(const read_result& result) {
    if (result.result > 0)
        counters_.file_read_bytes.fetch_add(static_cast<std::uint64_t>(result.result),
                                            std::memory_order_relaxed);
    else if (result.result < 0) counters_.file_read_errors.fetch_add(1, std::memory_order_relaxed);
}

void service::finish_fill(const read_result& result) {
    ring_ticket at{};
    const fill_set::progress progress = fills_.finish(result, *io_, at);
    if (progress == fill_set::progress::another_way) return;
    if (!says_again(result.result) || progress != fill_set::progress::again) count_read(result);
    if (progress == fill_set::progress::again) {
        counters_.file_reads.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    --in_flight_;
    if (progress == fill_set::progress::order_done) answer(at, 0);
}

// The file ended before all was read. May the rest count as zeros, since the file never got it? No,
// if the file had it before a read that was begun afterwards, and this runtime did not cut it
// meanwhile: then another program did. So a read that is the first to meet the end is made again.
bool service::may_pad(flight& f, bool& begin_again) {
    std::shared_ptr<file_writer> writer;
    if (files_.writer_of(f.slot, f.generation, writer) != 0) return false;
    const file_writer::stored_part now = writer->stored();
    const std::uint64_t end = f.offset + f.done;
    if (end >= now.bytes) return true;
    begin_again = end >= f.stored.bytes || f.stored.cuts != now.cuts;
    f.stored = now;
    return false;
}

void service::finish(const read_result& result) {
    if ((result.tag & fill_set::tag_bit) != 0) return finish_fill(result);
    const auto number = static_cast<std::uint32_t>(result.tag);
    flight& f = flights_[number];
    if (f.file->must_go_another_way(f.way, result.result)) {
        read_operation operation = rest_of(number);
        f.way = f.file->choose_other(operation);
        return io_->start(operation);
    }
    if (says_again(result.result) && ++f.attempts < most_attempts) return start_flight(number);
    count_read(result);
    if (result.result > 0) {
        f.attempts = 0;
        // A direct read may return more bytes than wanted: the file has grown since.
        f.done +=
            static_cast<std::uint32_t>(std::min<std::int64_t>(result.result, f.wanted - f.done));
        if (f.done < f.wanted)
            return start_flight(number);  // a short read; only 0 means the end of the file
    }
    bool begin_again = false;
    const bool pads = result.result == 0 && f.pads && f.done < f.wanted && may_pad(f, begin_again);
    if (begin_again) return start_flight(number);
    --in_flight_;
    f.file.reset();
    if (pads) {
        std::memset(staging_of(f.at) + f.done, 0, f.wanted - f.done);
        f.done = f.wanted;
    }
    if (result.result < 0) answer(f.at, result.result);
    else answer_read(f);
}

void service::answer_read(const flight& f) {
    answer(f.at, f.done, f.done == f.wanted ? engine::whole_bit : 0);
}

// Release: pairs with await; the group sees result, words and staging bytes.
void service::answer(const ring_ticket& at, std::int64_t result, std::uint64_t whole_bit) {
    ring_reply& reply = reply_of(at);
    reply.result = result;
    atomic_store<order::release, scope::system>(&reply.completed, (at.ticket + 1) | whole_bit);
}

void service::refuse(const ring_ticket& at, std::int64_t code) {
    counters_.bad_requests.fetch_add(1, std::memory_order_relaxed);
    answer(at, code);
}

}  // namespace penstock::host
