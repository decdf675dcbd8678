// The file registry's calls about files that are being written: the begin, the cut to nothing, and
// the proof at the end that lets a file's pages outlive its last close
// (docs/protocol/closed_files.md).
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "files/file_registry.hpp"
#include "os/file_kind.hpp"

namespace penstock::host {

namespace {

// How long a settled file waits for handles that this registry has of it: for those that service
// threads have kept, until all have looked at handle_changes(); and for those of threads that look
// names up, which may be other names. New looks may come for ever, so they count only so often.
constexpr std::int64_t longest_wait_ns = 100'000'000;
constexpr std::uint32_t most_refusals = 16;

std::int64_t steady_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// A file system that keeps whole seconds has no exact times, whatever the kernel has.
bool has_exact_identity(const file_facts& facts) {
    return facts.exact_times && facts.identity.changed_ns % 1'000'000'000 != 0;
}

// A lease that this thread has taken, until its end.
class taken_lease {
public:
    taken_lease(environment& env, int fd) : env_(env), fd_(fd) {}
    ~taken_lease() { env_.end_lease(fd_); }
    taken_lease(const taken_lease&) = delete;
    taken_lease& operator=(const taken_lease&) = delete;

private:
    environment& env_;
    const int fd_;
};

}  // namespace

// Readers of the slot count on the size that its identity has, unless that may be long ago.
void file_registry::begin_writing(entry& e, std::uint32_t slot, found_file& file, bool is_fresh) {
    e.writer = std::make_shared<file_writer>(
        env_, hub_, file.writer, std::uint64_t{1} << limits_.page_shift,
        write_error_log::file_key{slot, e.generation}, e.path, file.watch.is_held(),
        e.uncertain ? std::min(e.identity.size_bytes, file.facts.identity.size_bytes)
                    : e.identity.size_bytes);
    // A fresh slot has no page yet. Any other has pages of the version that its identity names.
    e.was_as_file =
        file.is_as_told && (is_fresh || (!e.uncertain && e.identity == file.facts.identity &&
                                         e.passed_opens == file.passed_opens));
    e.watch = std::move(file.watch);
    e.written_from = e.epoch;
    e.writers_answered = e.closed_taken = 0;
    e.settling = {};
    if (e.loans != 0) e.written_while_lent = true;
    // Its size is no longer what was given out with its handle.
    handle_changes_.fetch_add(1, std::memory_order_release);
    if (observer_ != nullptr) observer_->written(life_of(e, slot));
}

// The cut itself came into the watch, so the count begins anew after it. A file that is empty then
// has nothing that the cache could have otherwise, whatever others did to it before.
void file_registry::cut_to_nothing(std::uint32_t slot, std::uint32_t generation) {
    std::shared_ptr<file_writer> writer;
    int number = -1;
    {
        std::lock_guard lock(mutex_);
        const entry* const e = live_entry(slot, generation);
        if (e == nullptr || e->writer == nullptr || !e->watch.is_held()) return;
        writer = e->writer;
        number = e->watch.mark().number;
    }
    const std::uint64_t events = watch_.events_of(number);
    const bool is_empty = env_.size_bytes(writer->fd()) == 0;
    std::lock_guard lock(mutex_);
    entry* const e = live_entry(slot, generation);
    if (e == nullptr || e->writer != writer || e->watch.mark().number != number) return;
    e->watch.pass_over(events);
    e->was_as_file = is_empty;
}

// Programs to which the kernel passes a file through write it without an event of the watch, it may
// be, and store to mappings of it without new times.
bool file_registry::was_passed(const entry& e) const {
    return hub_.passed.look(key_of(e.identity)).opens != e.passed_opens;
}

// Has every answer to an open of the file been taken, and given back since, or lost? Those that are
// under way are neither. There are never more taken than the others, so equal numbers say it.
bool file_registry::none_under_way(const entry& e, std::uint64_t taken) {
    return static_cast<std::uint32_t>(e.epoch - e.born - e.lost.size()) ==
           static_cast<std::uint32_t>(taken);
}

file_registry::entry* file_registry::closing_entry(const closing& of) {
    entry* const e = live_entry(of.slot, of.generation);
    if (e == nullptr || e->writer == nullptr) return nullptr;
    if (none_under_way(*e, of.taken)) return e;
    e->closed_taken = std::max(e->closed_taken, of.taken);
    return nullptr;
}

void file_registry::take_back_open(const slot_life& of, std::uint32_t epoch, bool to_write) {
    written_end ended;
    {
        std::lock_guard lock(mutex_);
        entry* const e = live_entry(of.slot, of.generation);
        if (e == nullptr) return;
        // The reply had 31 bits of the number. Another life may have had the same generation.
        const std::uint32_t ago = (e->epoch - epoch) & 0x7fffffff, answer = e->epoch - ago;
        if (ago >= e->epoch - e->born || std::count(e->lost.begin(), e->lost.end(), answer) != 0)
            return;
        e->lost.push_back(answer);
        if (e->writer == nullptr) return;
        if (to_write && ago < e->epoch - e->written_from && e->writers_answered != 0)
            --e->writers_answered;
        if (e->writers_answered != 0 && !none_under_way(*e, e->closed_taken)) return;
        ended = forget_pages(*e, of.slot);
    }
    give_to_older(of, ended.writer);
    settle_lives();
}

bool file_registry::settle(std::uint32_t slot, std::uint32_t generation, std::uint64_t taken,
                           std::uint64_t size_bytes) {
    const closing of{slot, generation, taken, size_bytes};
    std::shared_ptr<file_writer> writer;
    proof got = proof::none;
    {
        write_watch::mark seen;
        handles parked;
        got = begin_proof(of, writer, seen, parked);
        parked.clear();
        if (got == proof::given) got = try_proof(of, writer, seen);
    }
    if (got == proof::not_yet) return false;
    give_to_older({slot, generation}, std::move(writer));
    if (got == proof::none) {
        written_end ended;
        std::lock_guard lock(mutex_);
        if (entry* const e = closing_entry(of); e != nullptr) ended = forget_pages(*e, slot);
    }
    settle_lives();
    return true;
}

// `given`: the attempt may begin. Takes the registry's own handles to read the file away, since the
// proof finds no other handle than the writer's; the next reader brings one. Versions from before
// another program changed the file have handles too.
file_registry::proof file_registry::begin_proof(const closing& of,
                                                std::shared_ptr<file_writer>& writer,
                                                write_watch::mark& seen, handles& parked) {
    std::lock_guard lock(mutex_);
    entry* const e = closing_entry(of);
    if (e == nullptr) return proof::none;
    if (!e->was_as_file || !e->watch.is_held() || e->nameless || was_passed(*e) ||
        of.size_bytes > limits_.most_kept_bytes)
        return proof::none;
    if (e->settling.since_ns == 0 || e->settling.taken != of.taken)
        e->settling = {of.taken, steady_ns(), 0, 0};
    if (looks_ended_.load() < e->settling.looks_awaited &&
        steady_ns() - e->settling.since_ns < longest_wait_ns)
        return proof::not_yet;
    take_for_proof(of.slot, parked);
    for_each_older(e->identity, [&](std::uint32_t slot) {
        if (!take_for_proof(slot, parked)) return;
        entries_[slot].wants_handle = true;
        ++wanted_handles_;
    });
    writer = e->writer;
    seen = e->watch.mark();
    return proof::given;
}

// One without a name stays, at the cost of the proof. False: nothing was taken.
bool file_registry::take_for_proof(std::uint32_t slot, handles& parked) {
    entry& e = entries_[slot];
    if (e.handle == nullptr || e.nameless) return false;
    e.last_handle = e.handle->open_mark();
    parked.push_back(take_handle(slot));
    return true;
}

// A group that has an older version open reads on, whatever happens to the file's name from now on;
// during the attempts its reads open the file by its path.
// `writer`: of the attempt, or null if there was none. Without a writer, and should the open fail,
// reads open the file by its path.
void file_registry::give_to_older(const slot_life& of, std::shared_ptr<file_writer> writer) {
    const auto for_each = [&](auto&& act) {  // with the lock
        const entry* const e = live_entry(of.slot, of.generation);
        if (e == nullptr || wanted_handles_ == 0) return;
        if (writer == nullptr) writer = e->writer;
        for_each_older(e->identity, [&](std::uint32_t slot) {
            const entry& older = entries_[slot];
            if (older.wants_handle && older.made_ns == e->made_ns) act(slot);
        });
    };
    bool is_wanted = false;
    {
        std::lock_guard lock(mutex_);
        for_each([&](std::uint32_t) { is_wanted = true; });
    }
    if (!is_wanted || writer == nullptr) return;
    const int fd = env_.open_found(writer->fd());
    if (fd < 0) return;
    const auto handle = share(fd, &reads_);
    handles parked;
    std::lock_guard lock(mutex_);
    for_each([&](std::uint32_t slot) { keep_handle(slot, handle, parked); });
}

// Does this registry have the file open, but for the writer's handle? Time and counts, here and
// below, decide only between two safe answers.
bool file_registry::is_held_here(const closing& of) {
    std::lock_guard lock(mutex_);
    const entry* const e = closing_entry(of);
    if (e == nullptr) return true;  // the next call finds out why
    if (steady_ns() - e->settling.since_ns >= longest_wait_ns) return false;
    bool is_held = !e->last_handle.expired() || e->writer.use_count() > 2;
    for_each_older(e->identity, [&](std::uint32_t slot) {
        is_held = is_held || !entries_[slot].last_handle.expired();
    });
    return is_held;
}

// Was the lease refused, perhaps, because a thread of this registry was looking up a name?
bool file_registry::was_looked_up(const closing& of, std::uint64_t looks_before) {
    const std::uint64_t begun = looks_begun_.load();
    const bool looked = looks_ended_.load() != begun || begun != looks_before;
    std::lock_guard lock(mutex_);
    entry* const e = closing_entry(of);
    if (e == nullptr) return true;
    if (steady_ns() - e->settling.since_ns >= longest_wait_ns) return false;
    if (!looked || ++e->settling.attempts > most_refusals) return false;
    e->settling.looks_awaited = begun;
    return true;
}

// While the lease is held no other handle of the file is open anywhere, and none can be opened. A
// writer that closed its handle before has left an event in the watch. So without an event nothing
// but our writes changed the file since the watch began, and the facts now are those of what the
// cache has. The writer is gone from the entry before the lease ends: an opener comes after both.
file_registry::proof file_registry::try_proof(const closing& of,
                                              std::shared_ptr<file_writer>& writer,
                                              const write_watch::mark& seen) {
    const std::uint64_t looks_before = looks_ended_.load();
    // Asked before the lease is: a handle that goes afterwards would still have it refused.
    if (is_held_here(of)) return proof::not_yet;
    const int code = env_.take_sole_lease(writer->fd());
    if (code == -EAGAIN && was_looked_up(of, looks_before)) return proof::not_yet;
    if (code != 0) return proof::none;
    const taken_lease lease(env_, writer->fd());
    file_facts now;
    const bool is_whole = env_.facts(writer->fd(), now) == 0 && has_exact_identity(now) &&
                          now.identity.size_bytes == of.size_bytes &&
                          watch_.events_of(seen.number) == seen.events;
    return is_whole ? keep(of, now.identity, writer) : proof::none;
}

// `none` also if an open was answered since: then the file goes on being written.
file_registry::proof file_registry::keep(const closing& of, const file_identity& now,
                                         const std::shared_ptr<file_writer>& writer) {
    watch_hold ended;  // goes without the lock
    std::lock_guard lock(mutex_);
    entry* const e = closing_entry(of);
    if (e == nullptr || e->writer != writer || !e->identity.same_file(now)) return proof::none;
    if (observer_ != nullptr) observer_->ended(life_of(*e, of.slot));
    e->identity = now;
    e->uncertain = false;
    e->writer.reset();  // the caller has it too
    ended = std::move(e->watch);
    handle_changes_.fetch_add(1, std::memory_order_release);
    kept_files_.fetch_add(1, std::memory_order_relaxed);
    return proof::given;
}

file_registry::written_end file_registry::forget_pages(entry& e, std::uint32_t slot) {
    e.uncertain = true;
    e.tells_version = false;
    handle_changes_.fetch_add(1, std::memory_order_release);
    if (observer_ != nullptr) observer_->ended(life_of(e, slot));
    return {std::move(e.writer), std::move(e.watch)};
}

}  // namespace penstock::host
