#include "files/file_registry.hpp"

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "os/file_kind.hpp"
#include "os/own_mounts.hpp"

namespace penstock::host {

namespace {

bool below(const std::string& path, const std::string& root) {
    if (root == "/") return !path.empty() && path[0] == '/';
    return path.size() > root.size() && path.compare(0, root.size(), root) == 0 &&
           path[root.size()] == '/';
}

// Adds the parts of `name` to the real path of a directory. False if the letters do not tell where
// that leads.
bool append_plain(const std::string& name, std::string& path) {
    for (std::size_t at = 0; at < name.size();) {
        const std::size_t end = std::min(name.find('/', at), name.size());
        const std::string_view part(name.data() + at, end - at);
        if (part == "..") return false;
        if (!part.empty() && part != ".") {
            if (path.empty() || path.back() != '/') path += '/';
            path += part;
        }
        at = end + 1;
    }
    return true;
}

// More would only be used by programs that keep tens of thousands of files open.
constexpr std::size_t most_reserved_handles = 16384;

}  // namespace

file_registry::file_registry(environment& env, hub& shared, const registry_limits& limits,
                             std::function<void(const std::string&)> say)
    : env_(env),
      hub_(shared),
      limits_(limits),
      watch_(env),
      paths_(limits.path_units),
      words_(limits.word_count),
      handles_(limits.file_slots) {
    hub_.registries.fetch_add(1, std::memory_order_relaxed);
    reads_.direct = limits.direct;
    reads_.page_bytes = std::uint64_t{1} << limits.page_shift;
    reads_.say = std::move(say);
    // To grow these would stop all threads that open files.
    free_slots_.reserve(limits.file_slots);
    current_.reserve(limits.file_slots);
}

file_registry::~file_registry() {
    for (const auto& file : current_) hub_.known.remove(file.first);
    hub_.registries.fetch_sub(1, std::memory_order_relaxed);
    if (first_root_ >= 0) env_.close(first_root_);
}

status file_registry::set_roots(const std::vector<std::string>& roots) {
    std::vector<std::string> real;
    for (const std::string& root : roots) {
        own_handle found(env_, env_.find(-1, root));
        if (found.fd < 0)
            return {found.fd, "root '" + root +
                                  "': " + error_and_cure(found.fd, "name an existing directory")};
        file_facts facts;
        std::string path;
        int code = env_.facts(found.fd, facts);
        if (code == 0 && !facts.is_directory) code = -ENOTDIR;
        if (code == 0) code = env_.real_path(found.fd, path);
        if (code == 0 && first_root_ < 0) {
            first_root_path_ = path;
            first_root_ = std::exchange(found.fd, -1);
        }
        if (code != 0)
            return {code,
                    "root '" + root + "': " + error_and_cure(code, "name an existing directory")};
        real.push_back(path);
    }
    if (first_root_ >= 0)
        env_.reserve_handles(first_root_, std::min(limits_.max_handles, most_reserved_handles));
    roots_ = std::move(real);
    return {};
}

bool file_registry::is_below_root(const std::string& real_path) const {
    return std::any_of(roots_.begin(), roots_.end(),
                       [&](const std::string& root) { return below(real_path, root); });
}

bool file_registry::permitted(const std::string& real_path, bool for_writing) {
    if (is_below_root(real_path)) return true;
    std::lock_guard lock(mutex_);
    return (for_writing ? allowed_to_write_ : allowed_).count(real_path) != 0;
}

int file_registry::look_up(const std::string& name, bool check_roots, found_file& out) {
    return look_up_plain(name, check_roots, out) ? 0 : look_up_thoroughly(name, check_roots, out);
}

// False: nothing was opened, and nothing is said about the name.
bool file_registry::look_up_plain(const std::string& name, bool check_roots, found_file& out) {
    const bool absolute = !name.empty() && name[0] == '/';
    if (!absolute && first_root_ < 0) return false;
    std::string path = absolute ? std::string() : first_root_path_;
    if (!append_plain(name, path) || (check_roots && !permitted(path))) return false;
    const int fd = env_.open_plain(first_root_, name);
    if (fd < 0) return false;
    auto handle = share(fd, &reads_);
    file_facts facts;
    if (env_.facts(fd, facts) != 0 || !facts.is_regular || facts.false_size) return false;
    out.handle = std::move(handle);
    out.facts = facts;
    out.path = std::move(path);
    return true;
}

// Finds the file first without opening it, judges by where it really lies, and opens exactly what
// was found: a link or a
// ".." that leads outside is refused, and nothing can be exchanged in between.
int file_registry::look_up_thoroughly(const std::string& name, bool check_roots, found_file& out) {
    const own_handle found(env_, env_.find(first_root_, name));
    if (found.fd < 0) return found.fd;
    int code = env_.real_path(found.fd, out.path);
    if (code == 0 && check_roots && !permitted(out.path)) code = -EACCES;
    if (code == 0) code = env_.facts(found.fd, out.facts);
    if (code == 0 && out.facts.is_directory) code = -EISDIR;
    if (code == 0 && !out.facts.is_regular) code = -EOPNOTSUPP;
    if (code == 0) {
        const int fd = env_.open_found(found.fd);
        if (fd == -EDEADLK && reads_.say) reads_.say(out.path + " " + why_own(out.path));
        if (fd >= 0) out.handle = share(fd, &reads_);
        else code = fd;
    }
    // Again on the open handle: the facts must belong to what is going to be read.
    if (code == 0) code = env_.facts(out.handle->fd(), out.facts);
    if (code != 0 || !out.facts.false_size) return code;
    // By its size it would be empty or end in an error. The code says little, so a line names it.
    if (reads_.say) reads_.say(out.path + ": " + why_not_by_size(file_kind::false_size));
    return -EOPNOTSUPP;
}

// A file that is made may be taken away again before it is opened; that ends with -ENOENT, as if it
// had never been.
int file_registry::look_up_to_write(const std::string& name, bool check_roots, std::uint32_t flags,
                                    found_file& out) {
    if (!limits_.writable) return -EROFS;
    int code = (flags & engine::flag_exclusive) != 0 ? create(name, check_roots)
                                                     : look_up(name, check_roots, out);
    if (code == -ENOENT && (flags & engine::flag_create) != 0 &&
        (flags & engine::flag_exclusive) == 0) {
        code = create(name, check_roots);
        if (code == -EEXIST)
            code = 0;  // another process was faster, or it is a link that leads to nothing
    }
    if (code == 0 && out.handle == nullptr) code = look_up(name, check_roots, out);
    if (code == 0 && check_roots && !permitted(out.path, true)) code = -EACCES;
    if (code != 0) return code;
    return open_to_write(out);
}

// The watch begins before the facts are asked again, so that a change shows in one or the other.
int file_registry::open_to_write(found_file& file) {
    file.writer = handle_in_use(key_of(file.facts.identity));
    if (file.writer != nullptr) return 0;
    const int fd = env_.open_writing(file.handle->fd());
    if (fd < 0) return fd;
    file.writer = share(fd, nullptr);
    file.watch = watch_hold(watch_, fd);
    file_facts again;
    file.is_as_told = file.watch.is_held() && env_.facts(file.handle->fd(), again) == 0 &&
                      again.exact_times && again.identity == file.facts.identity;
    return 0;
}

// With which the file is being written already: the close of another one would look to the watch
// like that of another program.
std::shared_ptr<shared_handle> file_registry::handle_in_use(const file_key& file) {
    std::lock_guard lock(mutex_);
    const auto known = current_.find(file);
    if (known == current_.end() || entries_[known->second].writer == nullptr) return nullptr;
    return entries_[known->second].writer->file();
}

int file_registry::allow(const std::string& path, std::uint32_t flags) {
    const bool to_write = (flags & engine::access_mask) != engine::may_read;
    const looking look(*this);
    found_file file;
    const int code =
        to_write ? look_up_to_write(path, false, flags, file) : look_up(path, false, file);
    if (code != 0 || is_below_root(file.path)) return code;
    std::lock_guard lock(mutex_);
    allowed_.insert(file.path);
    if (to_write) allowed_to_write_.insert(file.path);
    return 0;
}

bool file_registry::take_table(entry& e) {
    const std::uint64_t page_bytes = std::uint64_t{1} << limits_.page_shift;
    const std::uint64_t pages =
        std::max<std::uint64_t>(1, (e.identity.size_bytes + page_bytes - 1) >> limits_.page_shift);
    const std::uint64_t leaf_words = std::uint64_t{1} << limits_.leaf_shift,
                        directory_words = ((pages - 1) >> limits_.leaf_shift) + 1;
    e.two_level = pages > std::min(limits_.word_count / 2, limits_.flat_pages);
    e.table_words = e.two_level ? directory_words : pages;
    auto start = words_.take(e.table_words);
    // Room enough, and only none in one piece: files that come and go leave the arena so.
    if (!start && !e.two_level && pages > leaf_words &&
        words_.free_units() >= directory_words * (leaf_words + 1)) {
        e.two_level = true;
        e.table_words = directory_words;
        start = words_.take(e.table_words);
    }
    if (start) e.table = *start;
    return start.has_value();
}

void file_registry::keep_handle(std::uint32_t slot, std::shared_ptr<shared_handle> handle,
                                handles& parked) {
    entry& e = entries_[slot];
    if (e.handle == nullptr) handles_.add(slot);
    e.handle = std::move(handle);
    if (std::exchange(e.wants_handle, false)) --wanted_handles_;
    take_excess(&e, parked, handles_.size());
    e.used_lately = true;
}

// From an entry that has one.
std::shared_ptr<shared_handle> file_registry::take_handle(std::uint32_t slot) {
    entry& e = entries_[slot];
    handles_.remove(slot);
    if (std::exchange(e.nameless, false)) --nameless_;
    handle_changes_.fetch_add(1, std::memory_order_release);
    return std::move(e.handle);
}

// False: every slot has a file.
bool file_registry::ensure_free_slot() {
    if (!free_slots_.empty()) return true;
    if (entries_.size() == limits_.file_slots) return false;
    entries_.emplace_back();
    free_slots_.push_back(static_cast<std::uint32_t>(entries_.size() - 1));
    return true;
}

open_reply file_registry::enter(found_file& file, const slot_life& open_now, handles& parked) {
    const auto key = key_of(file.facts.identity);
    const auto known = current_.find(key);
    if (known != current_.end()) {
        entry& e = entries_[known->second];
        const bool is_open = !e.gone && file.facts.may_be_of(e.identity, e.made_ns) &&
                             e.generation == open_now.generation && known->second == open_now.slot;
        // A file that is being written is the same file, however it looks by now.
        if (is_open || e.writer != nullptr ||
            (e.identity == file.facts.identity && !e.uncertain &&
             e.passed_opens == file.passed_opens)) {
            if (e.handle == nullptr) keep_handle(known->second, file.handle, parked);
            return join(e, known->second, file, false);
        }
    }
    if (!ensure_free_slot()) return {-ENFILE, 0, 0, {}, 0, false, 0, 0};
    const std::uint32_t slot = free_slots_.back();
    entry& e = entries_[slot];
    e.identity = file.facts.identity;
    if (!take_table(e)) return {engine::no_table_room, 0, 0, {}, 0, false, 0, 0};
    free_slots_.pop_back();
    // Generation 0 is the mark of a slot that was never filled, so it is left out.
    e.generation = (e.generation + 1) & engine::file_generation_mask;
    if (e.generation == 0) e.generation = 1;
    e.live = true;
    e.gone = false;
    e.made_ns = file.facts.made_ns;
    e.uncertain = may_change_unseen(file.facts, limits_.trust_times);
    e.tells_version = tells_version(file.facts, limits_.trust_times);
    e.is_local = file.facts.times == file_times::local;
    e.passed_opens = file.passed_opens;
    e.path.swap(file.path);  // the old one goes without the lock
    e.born = e.epoch;
    e.lost.clear();
    keep_handle(slot, file.handle, parked);
    if (observer_ != nullptr && !e.uncertain) observer_->entered(life_of(e, slot));
    // Else the older versions have its path already.
    bool is_new_path = true;
    if (known != current_.end()) {
        const entry& before = entries_[known->second];
        is_new_path = before.path != e.path;
        if (!before.gone) older_.emplace(key, known->second);
        known->second = slot;
    } else if (current_.emplace(key, slot).second) {
        hub_.known.add(key);
    }
    if (is_new_path) renew_older_paths(e);
    return join(e, slot, file, true);
}

open_reply file_registry::join(entry& e, std::uint32_t slot, found_file& file, bool is_fresh) {
    if (!is_fresh) renew_path(e, file);
    if (file.writer != nullptr) {
        if (e.writer == nullptr) begin_writing(e, slot, file, is_fresh);
        ++e.writers_answered;
    }
    ++e.epoch;
    return {0, slot, e.generation, e.identity, e.table, e.two_level, 0, e.epoch};
}

// Fetches the stores of programs that have mapped the file through a mount of this process. An open
// sees stores to a mapping of any other file too. Programs to which the kernel passes the file
// through may store to it without changing its times.
int file_registry::bring_home(found_file& file) {
    file.passed_opens = hub_.passed.look(key_of(file.facts.identity)).opens;
    const int code = hub_.bring_stores_home(key_of(file.facts.identity));
    return code <= 0 ? code : env_.facts(file.handle->fd(), file.facts);
}

void file_registry::tell_of_file_system(const found_file& file) {
    if (file.facts.times == file_times::local || !reads_.say) return;
    {
        const std::lock_guard lock(told_mutex_);
        if (!told_file_systems_.insert(file.facts.identity.device).second) return;
    }
    const mount_facts mount = mount_of_device(file.facts.identity.device);
    reads_.say(file.path + " lies on " + file.facts.file_system +
               (mount.type.empty() ? "" : " (" + mount.type + " at " + mount.point + ")") +
               ": other machines may change files there, and leases do not tell of it; pages " +
               when_used_again(file.facts.times, limits_.trust_times));
}

open_reply file_registry::open(const std::string& name, std::uint64_t old_extent,
                               std::uint64_t old_units, std::uint32_t flags, slot_life open_now) {
    const looking look(*this);
    found_file file;
    file.renames_before = renames_.load();
    handles parked;
    const bool to_write = (flags & engine::access_mask) != engine::may_read;
    int code = -ENOENT;
    if (!engine::sound_flags(flags)) code = -EINVAL;
    else if (!name.empty())
        code = to_write ? look_up_to_write(name, true, flags, file) : look_up(name, true, file);
    if (code == 0) code = bring_home(file);
    open_reply reply;
    if (code == 0) {
        tell_of_file_system(file);
        std::lock_guard lock(mutex_);
        reply = enter(file, open_now, parked);
    }
    if (code == 0) {
        settle_lives();
    } else {
        // -ENFILE tells the asker that the file is there and only a slot is wanting. The machine's
        // own may come before the file was made.
        reply.result = code == -ENFILE && (flags & engine::flag_exclusive) != 0 ? -EMFILE : code;
    }
    std::lock_guard lock(paths_mutex_);
    if (old_extent != 0) paths_.give(old_extent - 1, old_units);
    const auto extent = paths_.take((name.size() + 7) / 8);
    if (extent && *extent < UINT32_MAX) reply.path_extent = static_cast<std::uint32_t>(*extent) + 1;
    return reply;
}

void file_registry::give_back_path(std::uint64_t lost_extent) {
    const auto extent = static_cast<std::uint32_t>(lost_extent);
    if (extent == 0) return;
    std::lock_guard lock(paths_mutex_);
    paths_.give(extent - 1, lost_extent >> 32);
}

file_registry::entry* file_registry::live_entry(std::uint32_t slot, std::uint32_t generation) {
    if (slot >= entries_.size()) return nullptr;
    entry& e = entries_[slot];
    return e.live && e.generation == generation ? &e : nullptr;
}

std::int64_t file_registry::retire(std::uint32_t slot, std::uint32_t generation) {
    std::shared_ptr<shared_handle> closed;  // without the lock, and so is what was written to
    std::shared_ptr<file_writer> written;
    watch_hold watched;
    if (limits_.writable) give_to_older({slot, generation}, nullptr);  // an attempt may end by this
    {
        std::lock_guard lock(mutex_);
        entry* const e = live_entry(slot, generation);
        if (e == nullptr) return -EBADF;
        written = std::move(e->writer);
        watched = std::move(e->watch);
        const auto known = current_.find(key_of(e->identity));
        if (known != current_.end() && known->second == slot) {
            hub_.known.remove(known->first);
            current_.erase(known);
        } else {
            older_.erase({key_of(e->identity), slot});
        }
        if (std::exchange(e->wants_handle, false)) --wanted_handles_;
        if (e->handle != nullptr) closed = take_handle(slot);
        else handle_changes_.fetch_add(1, std::memory_order_release);
        e->live = false;
        if (observer_ != nullptr) observer_->ended(life_of(*e, slot));
        if (e->loans == 0) give_back_slot(*e, slot);
    }
    settle_lives();
    return 0;
}

void file_registry::give_back_slot(entry& e, std::uint32_t slot) {
    words_.give(e.table, e.table_words);
    for (const auto* leaves : {&e.leaves, &e.growth_leaves})
        for (const auto& [number, start] : *leaves)
            words_.give(start, std::uint64_t{1} << limits_.leaf_shift);
    e.leaves.clear();
    e.growth_leaves.clear();
    if (e.growth_words != 0) words_.give(e.growth, e.growth_words);
    e.growth_words = 0;
    free_slots_.push_back(slot);
}

bool file_registry::lend(const file_identity& now, slot_life& out) {
    std::lock_guard lock(mutex_);
    const auto known = current_.find(key_of(now));
    if (known == current_.end()) return false;
    entry& e = entries_[known->second];
    if (!(e.identity == now) || e.uncertain || e.writer != nullptr || e.written_while_lent ||
        was_passed(e))
        return false;
    ++e.loans;
    out = {known->second, e.generation};
    return true;
}

bool file_registry::is_lent_as_is(const slot_life& lent) {
    std::lock_guard lock(mutex_);
    const entry* const e = live_entry(lent.slot, lent.generation);
    return e != nullptr && !e->uncertain && e->writer == nullptr && !e->written_while_lent;
}

void file_registry::end_loan(const slot_life& lent) {
    std::lock_guard lock(mutex_);
    entry& e = entries_[lent.slot];
    if (--e.loans != 0) return;
    e.written_while_lent = false;
    if (!e.live) give_back_slot(e, lent.slot);
}

int file_registry::writer_of(std::uint32_t slot, std::uint32_t generation,
                             std::shared_ptr<file_writer>& out) {
    std::lock_guard lock(mutex_);
    const entry* const e = live_entry(slot, generation);
    if (e == nullptr || e->writer == nullptr) return -EBADF;
    out = e->writer;
    return 0;
}

int file_registry::handle_to_sync(std::uint32_t slot, std::uint32_t generation,
                                  std::shared_ptr<shared_handle>& out) {
    std::shared_ptr<file_writer> writer;
    std::uint64_t size_bytes = 0;
    if (writer_of(slot, generation, writer) != 0)
        return handle_of(slot, generation, out, size_bytes);
    out = writer->file();
    return 0;
}

std::int64_t file_registry::take_leaf(std::unordered_map<std::uint64_t, std::uint64_t>& leaves,
                                      std::uint64_t number, extent_allocator& words,
                                      std::uint64_t leaf_words, std::uint64_t& word_index) {
    const auto known = leaves.find(number);
    if (known != leaves.end()) {
        word_index = known->second;
        return 0;
    }
    const auto start = words.take(leaf_words);
    if (!start) return -ENOSPC;
    leaves[number] = word_index = *start;
    return 0;
}

std::int64_t file_registry::leaf(std::uint32_t slot, std::uint32_t generation, std::uint64_t kind,
                                 std::uint64_t number, std::uint64_t& word_index) {
    const std::uint64_t leaf_words = std::uint64_t{1} << limits_.leaf_shift;
    std::lock_guard lock(mutex_);
    entry* const e = live_entry(slot, generation);
    if (e == nullptr) return -EBADF;
    if (kind == engine::leaf_of_table)
        return e->two_level && number < e->table_words
                   ? take_leaf(e->leaves, number, words_, leaf_words, word_index)
                   : -EINVAL;
    // For readers too: a file may have grown by more leaves than were written to.
    if (kind == engine::leaf_of_growth)
        return number < e->growth_words
                   ? take_leaf(e->growth_leaves, number, words_, leaf_words, word_index)
                   : -EINVAL;
    if (kind != engine::growth_directory || e->writer == nullptr) return -EINVAL;
    if (e->growth_words == 0) {
        const auto start = words_.take(limits_.growth_entries);
        if (!start) return -ENOSPC;
        e->growth = *start;
        e->growth_words = limits_.growth_entries;
    }
    word_index = e->growth;
    return 0;
}

int file_registry::handle_of(std::uint32_t slot, std::uint32_t generation,
                             std::shared_ptr<shared_handle>& out, std::uint64_t& size_bytes) {
    std::string path;
    file_identity identity;
    std::int64_t made_ns = 0;
    {
        std::lock_guard lock(mutex_);
        entry* const e = live_entry(slot, generation);
        if (e == nullptr) return -EBADF;
        size_bytes = e->writer != nullptr ? size_of_written : e->identity.size_bytes;
        if (e->handle != nullptr) {
            e->used_lately = true;
            out = e->handle;
            return 0;
        }
        if (e->gone) return -ESTALE;
        path = e->path;
        identity = e->identity;
        made_ns = e->made_ns;
    }
    // The handle was parked. The path was judged when the file was first opened; only the same file
    // is taken again.
    const looking look(*this);
    found_file file;
    if (const int code = look_up(path, false, file); code != 0)
        return code == -ENOENT ? -ESTALE : code;
    if (!file.facts.may_be_of(identity, made_ns)) return -ESTALE;
    handles parked;
    std::lock_guard lock(mutex_);
    if (entry* const e = live_entry(slot, generation); e != nullptr && e->handle == nullptr) {
        if (e->gone) return -ESTALE;  // meanwhile, so this may be the next file with its inode
        keep_handle(slot, file.handle, parked);
    }
    out = std::move(file.handle);
    return 0;
}

std::optional<file_registry::opened_version> file_registry::version_of(std::uint32_t slot,
                                                                       std::uint32_t generation) {
    const std::lock_guard lock(mutex_);
    const entry* const e = live_entry(slot, generation);
    if (e == nullptr || e->writer != nullptr || (e->uncertain && !e->tells_version)) return {};
    return opened_version{e->identity, !e->uncertain};
}

std::string file_registry::path_of(std::uint32_t slot, std::uint32_t generation) {
    std::lock_guard lock(mutex_);
    const entry* const e = live_entry(slot, generation);
    return e != nullptr ? e->path : std::string();
}

std::string file_registry::path_in(std::uint32_t slot) {
    std::lock_guard lock(mutex_);
    return slot < entries_.size() && entries_[slot].live ? entries_[slot].path : std::string();
}

std::vector<written_file> file_registry::written_files() {
    std::vector<written_file> out;
    std::vector<std::shared_ptr<file_writer>> writers;
    {
        std::lock_guard lock(mutex_);
        for (const entry& e : entries_) {
            if (!e.live || e.writer == nullptr) continue;
            out.push_back({e.path, 0});
            writers.push_back(e.writer);
        }
    }
    for (std::size_t i = 0; i < out.size(); ++i)
        out[i].size_bytes = static_cast<std::uint64_t>(
            std::max<std::int64_t>(env_.size_bytes(writers[i]->fd()), 0));
    return out;
}

std::size_t file_registry::live_files() {
    std::lock_guard lock(mutex_);
    return entries_.size() - free_slots_.size();
}

std::uint32_t file_registry::used_slots() {
    std::lock_guard lock(mutex_);
    return static_cast<std::uint32_t>(entries_.size());
}

std::uint64_t file_registry::free_path_units() {
    std::lock_guard lock(paths_mutex_);
    return paths_.free_units();
}

}  // namespace penstock::host
