#include "service/windows.hpp"

#include <algorithm>
#include <cerrno>
#include <sys/resource.h>
#include <thread>
#include <utility>

#include "os/exceptions.hpp"
#include "os/file_kind.hpp"
#include "penstock/engine/window.hpp"

namespace penstock::host {

namespace {

constexpr std::uint64_t chunk_bytes = engine::window_chunk_bytes;
constexpr std::uint64_t os_page_bytes = 4096;
// Of one file, in one call: 32 MiB.
constexpr std::size_t most_completed = 16;
// The operating system may heed no more of one call (environment::will_need).
constexpr std::uint64_t most_ahead_bytes = 128 << 10;

std::uint64_t chunks_of(std::uint64_t bytes) { return (bytes + chunk_bytes - 1) / chunk_bytes; }

std::uint64_t most_descriptors() {
    rlimit limit{};
    return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 512;
}

bool has_any(const std::vector<std::uint64_t>& chunks) {
    return std::any_of(chunks.begin(), chunks.end(), [](std::uint64_t c) { return c != 0; });
}

// Of chunks [first, end).
bool has_closed(const std::vector<std::uint64_t>& chunks, std::uint64_t first, std::uint64_t end) {
    const auto last = chunks.begin() + static_cast<std::ptrdiff_t>(end);
    return std::find(chunks.begin() + static_cast<std::ptrdiff_t>(first), last, 0) != last;
}

}  // namespace

window_set::window_set(environment& env, cache_device& device, const engine::cache_view& view,
                       std::uint64_t chunk_words, const window_rules& rules)
    : env_(env),
      device_(device),
      view_(view),
      rules_(rules),
      asker_(env),
      chunk_words_(chunk_words) {}

window_set::~window_set() { close_all(); }

window_set::opened* window_set::entry_of(const window_file& file) {
    if (const auto known = files_.find(file.slot); known != files_.end()) {
        if (known->second.generation == file.generation) return &known->second;
        clear_word(file.slot);
        put_aside(file.slot);  // from an earlier life of the slot
    }
    // So that all that are open can be put aside without memory.
    if (const std::size_t all = files_.size() + aside_.size() + 1; all > aside_.capacity())
        aside_.reserve(2 * all);
    const std::uint64_t chunks = chunks_of(file.size_bytes);
    // First, for a file that is written has no end: more chunks than there is memory.
    const auto first = chunk_words_.take(chunks);
    if (!first) return nullptr;
    try {
        opened& made = files_
                           .emplace(file.slot, opened{*first, std::vector<std::uint64_t>(chunks, 0),
                                                      file.generation, file.size_bytes})
                           .first->second;
        ++open_files_;
        return &made;
    } catch (...) {
        chunk_words_.give(*first, chunks);
        throw;
    }
}

// A set has its part of what all may have, as long as those of other runtimes leave it that.
bool window_set::take_share() {
    const std::uint64_t limit = most_descriptors();
    if (watched_ >= window_handles(limit, rules_.sets)) return false;
    if (rules_.watched != nullptr && ++*rules_.watched > window_handles(limit, 1)) {
        --*rules_.watched;
        return false;
    }
    ++watched_;
    return true;
}

void window_set::give_share() {
    if (rules_.watched != nullptr) --*rules_.watched;
    --watched_;
}

// Called before anything is mapped: with the lease no program can cut the file unseen. An error:
// there is nothing to watch the file by.
status window_set::begin_watch(const window_file& file, opened& entry) {
    if (entry.watch_fd >= 0 || entry.looked_after) return {};
    const bool has_share = take_share();
    const int fd = has_share ? env_.open_found(file.fd) : -EMFILE;
    if (fd < 0) {
        if (has_share) give_share();
        return {fd, error_and_cure(fd, "name a file that may be read")};
    }
    entry.watch_fd = fd;
    const int code = env_.take_lease(fd);
    entry.leased = code == 0;
    // An environment that stands between others looks after its files by itself.
    entry.looked_after = code == -EOPNOTSUPP;
    if (entry.looked_after) end_watch(entry);
    else if (!entry.leased && rules_.visits == nullptr && env_.changes_elsewhere(fd)) try {
            asker_.add(fd, entry.size_bytes);
            entry.is_asked = true;
        } catch (...) {
            end_watch(entry);
            return status_of_exception("");
        }
    return {};
}

void window_set::end_watch(opened& entry) {
    if (entry.watch_fd < 0) return;
    if (entry.leased) env_.end_lease(entry.watch_fd);
    if (entry.is_asked) asker_.close(entry.watch_fd);
    else env_.close(entry.watch_fd);
    entry.watch_fd = -1;
    give_share();
}

void window_set::clear_word(std::uint32_t slot) {
    const std::uint64_t nothing = 0;
    device_.upload(view_.windows + slot, &nothing, 8);
}

// The word was cleared before. It needs no memory: there is room for it since entry_of.
void window_set::put_aside(std::uint32_t slot) {
    const auto known = files_.find(slot);
    opened& entry = known->second;
    --open_files_;
    for (const auto& run : entry.runs) rules_.runs->withdraw(*run);
    if (rules_.visits == nullptr) end_watch(entry);  // a GPU keeps the pages themselves
    else entry.free_from = rules_.visits->free_from();
    aside_.push_back(std::move(entry));
    files_.erase(known);
}

void window_set::free_aside() {
    if (rules_.visits == nullptr || aside_.empty()) return;
    const std::uint64_t round = rules_.visits->pass();
    for (std::size_t i = 0; i < aside_.size();) {
        if (aside_[i].free_from > round) {
            ++i;
            continue;
        }
        release(aside_[i]);
        std::swap(aside_[i], aside_.back());
        aside_.pop_back();
    }
}

void window_set::release(opened& entry) {
    entry.runs.clear();
    open_bytes_ -= std::exchange(entry.open_bytes, 0);
    end_watch(entry);  // after the mapping is gone, or belongs to sets with leases of their own
    chunk_words_.give(entry.first_chunk, entry.chunks.size());
}

void window_set::watch() {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return;  // a window is being opened; the next beat comes
    asker_.ask();
    for (auto next = files_.begin(); next != files_.end();) {
        const auto& [slot, entry] = *next++;
        if (entry.watch_fd < 0 || !is_lost(entry)) continue;
        const std::uint32_t of = slot;  // the entry goes
        clear_word(of);  // before the lease ends: a copy that finds the word as it was is older
        put_aside(of);
    }
    free_aside();
}

// The file is to be written or cut, or became shorter.
bool window_set::is_lost(const opened& entry) {
    if (entry.leased) return env_.is_lease_awaited(entry.watch_fd);
    if (entry.is_asked) return asker_.is_shorter(entry.watch_fd);
    const std::int64_t size = env_.known_size_bytes(entry.watch_fd);
    return size >= 0 && static_cast<std::uint64_t>(size) < entry.size_bytes;
}

int window_set::publish(const window_file& file, const opened& entry) {
    // The chunk words first: a group that sees the window word finds them in place.
    int code = device_.upload(view_.window_chunks + entry.first_chunk, entry.chunks.data(),
                              entry.chunks.size() * 8);
    const std::uint64_t word = engine::make_window_word(file.generation, entry.first_chunk);
    if (code == 0) code = device_.upload(view_.windows + file.slot, &word, 8);
    return code;
}

void window_set::adopt(const file_identity& identity, opened& entry, std::uint64_t first,
                       std::uint64_t last) {
    for (std::uint64_t chunk = first; chunk < last; ++chunk) {
        if (entry.chunks[chunk] != 0) continue;
        const std::shared_ptr<exposed_run> run = rules_.runs->find(identity, chunk);
        if (run == nullptr) continue;
        entry.runs.push_back(run);
        for (; chunk < last; ++chunk) {
            const std::uint64_t address = run->address_of(chunk);
            if (address == 0 || entry.chunks[chunk] != 0) break;
            entry.chunks[chunk] = address;
            const std::uint64_t bytes =
                std::min((chunk + 1) * chunk_bytes, entry.size_bytes) - chunk * chunk_bytes;
            open_bytes_ += bytes;
            entry.open_bytes += bytes;
        }
        --chunk;
    }
}

int window_set::open_run(const window_file& file, opened& entry, std::uint64_t first,
                         std::uint64_t last, const file_identity* identity, std::string& note) {
    const std::uint64_t begin = first * chunk_bytes,
                        bytes = std::min(last * chunk_bytes, file.size_bytes) - begin;
    void* address = nullptr;
    if (const int code = env_.map_file(file.fd, begin, bytes, address); code != 0) return code;
    std::shared_ptr<exposed_run> run;
    try {
        run = std::make_shared<exposed_run>(*rules_.runs, address, bytes, first);
    } catch (...) {
        env_.unmap_file(address, bytes);
        throw;
    }
    std::vector<bool> resident;
    int code = env_.resident(address, bytes, chunk_bytes, resident);
    // Before a chunk has an address in it, whatever there is no memory for.
    entry.runs.push_back(run);
    for (std::uint64_t at = first; code == 0 && at < last;) {
        std::uint64_t end = at;
        const std::uint64_t room = rules_.runs->room();
        while (end < last && entry.chunks[end] == 0 && resident[end - first] &&
               (end + 1 - at) * chunk_bytes <= room)
            ++end;
        if (end == at) {
            ++at;
            continue;
        }
        const std::uint64_t length =
            std::min(end * chunk_bytes, file.size_bytes) - at * chunk_bytes;
        if (!run->expose(at, length, note)) {
            rules_.runs->refuse();
            break;
        }
        for (std::uint64_t chunk = at; chunk < end; ++chunk)
            entry.chunks[chunk] = run->address_of(chunk);
        open_bytes_ += length;
        entry.open_bytes += length;
        at = end;
    }
    if (run->is_empty()) entry.runs.pop_back();
    else if (identity != nullptr) rules_.runs->offer(*identity, run);
    return code;
}

// No group saw its window word.
void window_set::drop(std::uint32_t slot) {
    const auto known = files_.find(slot);
    end_watch(known->second);
    chunk_words_.give(known->second.first_chunk, known->second.chunks.size());
    files_.erase(known);
    --open_files_;
}

// Of a call without memory: what it opened for the first time no group has seen.
window_set::admission::~admission() {
    const auto known = of.files_.find(slot);
    if (known == of.files_.end() || !known->second.owners.empty()) return;
    for (const auto& run : known->second.runs) of.rules_.runs->withdraw(*run);
    known->second.runs.clear();
    of.open_bytes_ -= std::exchange(known->second.open_bytes, 0);
    of.drop(slot);
}

// Of a call that opened nothing, after mapping gave `code`.
std::int64_t window_set::why_nothing(int code) const {
    return code != 0                           ? code
           : rules_.runs->are_refused()        ? -EOPNOTSUPP
           : rules_.runs->room() < chunk_bytes ? -ENOSPC
                                               : 0;
}

window_set::opened* window_set::admit(const window_file& file, std::string& note,
                                      std::int64_t& code) {
    opened* const entry = entry_of(file);
    code = -ENOSPC;
    if (entry == nullptr) return nullptr;
    const status watched = begin_watch(file, *entry);
    if (rules_.visits != nullptr && !entry->leased) {
        drop(file.slot);
        if (rules_.runs->is_first_to_miss_lease())
            note =
                "a file has no read lease, so its rows are read by a system call each "
                "(docs/guide/tables.md has the reasons)";
        code = -EOPNOTSUPP;
        return nullptr;
    }
    if (!watched.ok()) {  // a cut would never be seen; the entry is new and has no window
        drop(file.slot);
        if (!std::exchange(said_unwatched_, true))
            note =
                "of a file that cannot be watched, whose pages come by request: " + watched.message;
        code = watched.code;
        return nullptr;
    }
    const std::int64_t size_now = env_.size_bytes(file.fd);
    if (size_now < 0 || static_cast<std::uint64_t>(size_now) >= file.size_bytes) return entry;
    clear_word(file.slot);  // cut already: its pages come by request
    put_aside(file.slot);
    code = 0;
    return nullptr;
}

bool window_set::may_share(const window_file& file, const opened& entry, file_facts& facts) {
    return rules_.runs->are_shared() && entry.leased && env_.facts(file.fd, facts) == 0;
}

std::int64_t window_set::show(const window_file& file, opened& entry, const void* owner, int code) {
    // A file without an open chunk has no window: a window would keep its slot from other files.
    if (!has_any(entry.chunks)) {
        drop(file.slot);
        return why_nothing(code);
    }
    if (std::find(entry.owners.begin(), entry.owners.end(), owner) == entry.owners.end())
        entry.owners.push_back(owner);
    return publish(file, entry);
}

std::int64_t window_set::open(const window_file& file, std::uint64_t offset, std::uint64_t bytes,
                              std::string& note, const void* owner) {
    if (offset >= file.size_bytes || bytes == 0) return 0;
    bytes = std::min(bytes, file.size_bytes - offset);
    const std::lock_guard lock(mutex_);
    std::int64_t refused = 0;
    const admission unless_shown{*this, file.slot};
    opened* const entry = admit(file, note, refused);
    if (entry == nullptr) return refused;
    const std::uint64_t first = offset / chunk_bytes, last = chunks_of(offset + bytes);
    file_facts facts;
    const file_identity* const shared = may_share(file, *entry, facts) ? &facts.identity : nullptr;
    if (shared != nullptr) adopt(*shared, *entry, first, last);
    int code = 0;
    for (std::uint64_t at = first; at < last && code == 0 && !rules_.runs->are_refused();
         at += most_run_chunks)
        if (const std::uint64_t end = std::min(at + most_run_chunks, last);
            has_closed(entry->chunks, at, end))
            code = open_run(file, *entry, at, end, shared, note);
    const bool any = has_any(entry->chunks);
    if (const std::int64_t shown = show(file, *entry, owner, code); !any || shown != 0)
        return shown;
    std::uint64_t inside = 0;
    for (std::uint64_t chunk = first; chunk < last; ++chunk)
        if (entry->chunks[chunk] != 0)
            inside += std::min((chunk + 1) * chunk_bytes, offset + bytes) -
                      std::max(chunk * chunk_bytes, offset);
    return inside > 0 ? static_cast<std::int64_t>(inside) : why_nothing(code);
}

bool window_set::is_half_resident(const window_file& file, std::uint64_t chunk) {
    const std::uint64_t begin = chunk * chunk_bytes,
                        bytes = std::min(chunk_bytes, file.size_bytes - begin);
    void* address = nullptr;
    if (env_.map_file(file.fd, begin, bytes, address) != 0) return false;
    std::vector<bool> pages;
    const int code = env_.resident(address, bytes, os_page_bytes, pages);
    env_.unmap_file(address, bytes);
    return code == 0 &&
           2 * static_cast<std::uint64_t>(std::count(pages.begin(), pages.end(), true)) >=
               pages.size();
}

// The rest costs the disk no more than what it has read of the chunk already.
void window_set::complete(const window_file& file, const opened& entry,
                          const std::vector<std::uint64_t>& chunks,
                          std::vector<std::uint64_t>& later) {
    for (const std::uint64_t chunk : chunks) {
        const bool has_room = later.size() < most_completed &&
                              (later.size() + 1) * chunk_bytes <= rules_.runs->room();
        if (!has_room) return;
        if (chunk >= entry.chunks.size() || entry.chunks[chunk] != 0 ||
            !is_half_resident(file, chunk))
            continue;
        const std::uint64_t end = std::min((chunk + 1) * chunk_bytes, file.size_bytes);
        for (std::uint64_t at = chunk * chunk_bytes; at < end; at += most_ahead_bytes)
            env_.will_need(file.fd, at, std::min(most_ahead_bytes, end - at));
        later.push_back(chunk);
    }
}

std::int64_t window_set::open_chunks(const window_file& file,
                                     const std::vector<std::uint64_t>& chunks, std::string& note,
                                     const void* owner, std::vector<std::uint64_t>* later) {
    const std::lock_guard lock(mutex_);
    std::int64_t refused = 0;
    const admission unless_shown{*this, file.slot};
    opened* const entry = admit(file, note, refused);
    if (entry == nullptr) return refused;
    file_facts facts;
    const file_identity* const shared = may_share(file, *entry, facts) ? &facts.identity : nullptr;
    const std::uint64_t before = entry->open_bytes;
    int code = 0;
    for (std::size_t i = 0; i < chunks.size() && code == 0;) {
        const std::uint64_t first = chunks[i];
        std::uint64_t end = first;
        for (; i < chunks.size() && chunks[i] == end && end - first < most_run_chunks; ++i) ++end;
        end = std::min<std::uint64_t>(end, entry->chunks.size());
        if (shared != nullptr) adopt(*shared, *entry, first, end);
        if (first < end && has_closed(entry->chunks, first, end) && !rules_.runs->are_refused())
            code = open_run(file, *entry, first, end, shared, note);
    }
    const std::uint64_t taken = entry->open_bytes - before;
    if (later != nullptr && code == 0 && !rules_.runs->are_refused())
        complete(file, *entry, chunks, *later);
    const bool any = has_any(entry->chunks);
    if (const std::int64_t shown = show(file, *entry, owner, code); !any || shown != 0)
        return shown;
    return taken > 0 ? static_cast<std::int64_t>(taken) : why_nothing(code);
}

void window_set::close_of(const void* owner) {
    const std::lock_guard lock(mutex_);
    for (auto next = files_.begin(); next != files_.end();) {
        auto& [slot, entry] = *next++;
        if (std::erase(entry.owners, owner) == 0 || !entry.owners.empty()) continue;
        const std::uint32_t of = slot;  // the entry goes
        clear_word(of);
        put_aside(of);
    }
    free_aside();
}

void window_set::close_all() {
    const std::lock_guard lock(mutex_);
    while (!files_.empty()) {
        const std::uint32_t slot = files_.begin()->first;
        clear_word(slot);
        put_aside(slot);
    }
    if (rules_.visits == nullptr) {
        for (opened& entry : aside_) release(entry);
        aside_.clear();
    }
    for (; !aside_.empty(); std::this_thread::yield()) free_aside();  // for the visits of now
}

// The memory behind windows of a GPU stays: to take it away would wait for kernels.
void window_set::end_leases() {
    if (rules_.visits != nullptr) return close_all();
    const std::lock_guard lock(mutex_);
    for (auto& [slot, entry] : files_) {
        clear_word(slot);
        end_watch(entry);
    }
}

std::uint64_t window_set::open_bytes() {
    const std::lock_guard lock(mutex_);
    return open_bytes_;
}

}  // namespace penstock::host
