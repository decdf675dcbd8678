// The file registry's calls that change names: create, unlink, rename. And those about files that
// lost their names.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "files/file_registry.hpp"
#include "os/file_kind.hpp"

namespace penstock::host {

// The directory of the name is found first, and judged by where it really lies; what follows is
// done in exactly what was found.
int file_registry::find_place(const std::string& name, bool check_roots, place& out) {
    if (!limits_.writable) return -EROFS;
    if (name.empty()) return -ENOENT;
    const std::size_t slash = name.rfind('/');
    out.base = slash == std::string::npos ? name : name.substr(slash + 1);
    if (out.base.empty() || out.base == "." || out.base == "..") return -EISDIR;
    const std::string parent = slash == std::string::npos ? "."
                               : slash == 0               ? "/"
                                                          : name.substr(0, slash);
    out.directory.fd = env_.find(first_root_, parent);
    if (out.directory.fd < 0) return out.directory.fd;
    if (const int code = env_.real_path(out.directory.fd, out.path); code != 0) return code;
    if (out.path != "/") out.path += '/';
    out.path += out.base;
    return check_roots && !permitted(out.path, true) ? -EACCES : 0;
}

int file_registry::create(const std::string& name, bool check_roots) {
    place at(env_);
    if (const int code = find_place(name, check_roots, at); code != 0) return code;
    return env_.create(at.directory.fd, at.base);
}

// Kernels may make a file anew that the host allowed them to write and that they took away.
int file_registry::unlink(const std::string& name, bool check_roots, std::string* path) {
    place at(env_);
    if (const int code = find_place(name, check_roots, at); code != 0) return code;
    keep_without_name(name);
    const int code = env_.unlink(at.directory.fd, at.base);
    // What follows needs no memory: the name is gone, and no error may say otherwise.
    if (code == 0 && !check_roots) after_unlink(at.path);
    if (code == 0 && path != nullptr) *path = std::move(at.path);
    return code;
}

// Else a program that makes and removes files outside the roots would leave more and more paths.
void file_registry::forbid(const std::string& path, bool with_all_below) {
    const std::string below = with_all_below ? path + '/' : std::string();
    const std::lock_guard lock(mutex_);
    for (auto* const all : {&allowed_, &allowed_to_write_}) {
        all->erase(path);
        while (with_all_below) {
            const auto first = all->lower_bound(below);
            if (first == all->end() || !first->starts_with(below)) break;
            all->erase(first);
        }
    }
}

// Another program may have written the file since, or have put another in its place.
void file_registry::take_back_new(const std::string& name) {
    if (name.empty()) return;
    const int found = env_.find(first_root_, name);
    if (found < 0) return;
    file_facts facts;
    const bool as_made =
        env_.facts(found, facts) == 0 && facts.is_regular && facts.identity.size_bytes == 0;
    env_.close(found);
    if (as_made) unlink(name, false);
}

// A find handle follows links. What a link leads to keeps its name when the link gets another.
bool file_registry::was_link(int handle, const std::string& path) {
    std::string real;
    return env_.real_path(handle, real) == 0 && real != path;
}

int file_registry::rename(const std::string& from, const std::string& to, bool check_roots,
                          renamed_file* done) {
    place old_place(env_), new_place(env_);
    if (const int code = find_place(from, check_roots, old_place); code != 0) return code;
    if (const int code = find_place(to, check_roots, new_place); code != 0) return code;
    renamed_file all;
    const own_handle file(env_, env_.find(first_root_, from));
    keep_without_name(to);
    const bool known =
        file.fd >= 0 && !was_link(file.fd, old_place.path) && env_.facts(file.fd, all.before) == 0;
    const int code =
        env_.rename(old_place.directory.fd, old_place.base, new_place.directory.fd, new_place.base);
    if (code == 0 && known && env_.facts(file.fd, all.after) == 0) {
        all.is_known = true;
        all.from = std::move(old_place.path);
        all.to = std::move(new_place.path);
        after_rename(all);
        if (done != nullptr) *done = std::move(all);
    }
    return code;
}

void file_registry::after_rename(const renamed_file& done) {
    if (!done.is_known) return;
    forbid(done.from, done.after.is_directory);
    if (done.after.is_directory) note_renamed_directory(done.from, done.to);
    else if (note_rename(done.before.identity, done.after, done.to)) settle_lives();
}

// The files below it are the same, and so are their times.
void file_registry::note_renamed_directory(const std::string& from, const std::string& to) {
    const std::string below = from + '/';
    std::lock_guard lock(mutex_);
    ++renames_;
    for (entry& e : entries_) {
        if (!e.live || !e.path.starts_with(below)) continue;
        e.path.replace(0, from.size(), to);
        e.renamed_at = renames_;
    }
}

// Before a file loses its name: a reader that has it open reads on, so its handle has to be there
// and is not parked. If it keeps the name after all, or has another, that costs a handle. What goes
// wrong here shows when it is read.
void file_registry::keep_without_name(const std::string& name) {
    file_facts facts;
    const int found = env_.find(first_root_, name);
    if (found < 0) return;
    const bool known = env_.facts(found, facts) == 0;
    env_.close(found);
    if (!known) return;
    const auto key = key_of(facts.identity);
    const looking look(*this);
    found_file again;  // opened without the lock, if the handle was parked
    handles parked;
    for (int attempt = 0; attempt < 2; ++attempt) {
        {
            std::lock_guard lock(mutex_);
            const auto entry_of = current_.find(key);
            if (entry_of == current_.end()) return;
            entry& e = entries_[entry_of->second];
            if (e.gone || !facts.may_be_of(e.identity, e.made_ns)) return;
            if (e.handle == nullptr && again.handle != nullptr)
                keep_handle(entry_of->second, again.handle, parked);
            if (e.handle != nullptr) {
                if (!std::exchange(e.nameless, true)) ++nameless_;
                return;
            }
        }
        if (look_up(name, false, again) != 0 ||
            !again.facts.may_be_of(facts.identity, facts.made_ns))
            return;
    }
}

// Eight are enough to go on with, however many registries there are.
std::size_t file_registry::most_handles() const {
    const std::size_t all =
        std::max<std::size_t>(1, hub_.registries.load(std::memory_order_relaxed));
    return std::min(limits_.max_handles, std::max<std::size_t>(8, limits_.shared_handles / all));
}

// Over the limit, a hand goes round the handles and parks the first that was not used since it last
// came by, but for that of `kept`.
void file_registry::take_excess(const entry* kept, handles& out, std::size_t count) {
    const std::size_t most = most_handles(), at_most = 2 * handles_.size();
    for (std::size_t step = 0; handles_.size() > most && step < at_most && count != 0; ++step) {
        const std::uint32_t next = handles_.next();
        entry& other = entries_[next];
        if (&other == kept || std::exchange(other.used_lately, false)) continue;
        // Each of them is out of reach without its handle. Too many would leave none for others.
        if (other.nameless && nameless_ <= most / 2) continue;
        out.push_back(take_handle(next));
        --count;
    }
}

void file_registry::give_up_excess(handles& out, std::size_t count) {
    out.reserve(out.size() + count);
    const std::lock_guard lock(mutex_);
    take_excess(nullptr, out, count);
}

std::size_t file_registry::held_handles() {
    const std::lock_guard lock(mutex_);
    return handles_.size();
}

std::vector<file_registry::held_handle> file_registry::some_handles(std::size_t& place,
                                                                    std::size_t count) {
    std::vector<held_handle> out;
    out.reserve(count);
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < std::min(count, handles_.size()); ++i) {
        if (place >= handles_.size()) place = 0;
        const std::uint32_t slot = handles_.slot_at(place++);
        const entry& e = entries_[slot];
        if (!e.is_local || e.writer != nullptr) continue;
        const auto newest = current_.find(key_of(e.identity));
        const bool is_older = newest != current_.end() && newest->second != slot;
        out.push_back({{slot, e.generation}, e.epoch, e.handle, is_older});
    }
    return out;
}

// With the lock a copy of a handle that its entry has is not the last share.
void file_registry::give_back(std::vector<held_handle>& some) {
    const std::lock_guard lock(mutex_);
    std::erase_if(some, [this](const held_handle& file) {
        const entry* const e = live_entry(file.of.slot, file.of.generation);
        return e != nullptr && e->handle == file.handle;
    });
}

// The next open of the inode is that of a new file, and no reader of the old one comes any more.
void file_registry::let_go(const slot_life& of, std::uint32_t epoch) {
    std::shared_ptr<shared_handle> closed;  // without the lock
    {
        const std::lock_guard lock(mutex_);
        entry* const e = live_entry(of.slot, of.generation);
        if (e == nullptr || e->handle == nullptr || e->writer != nullptr || e->epoch != epoch)
            return;
        closed = take_handle(of.slot);
        e->gone = true;
        e->uncertain = true;
        e->tells_version = false;
        older_.erase({key_of(e->identity), of.slot});
        if (observer_ != nullptr) observer_->ended(life_of(*e, of.slot));
    }
    settle_lives();
}

// Another program may have renamed the file, or a directory above it, since the path was taken: it
// was opened by this one just now. Of several hard links each is right while it is there. But not
// if the name was looked up before a rename here gave the path.
void file_registry::renew_path(entry& e, found_file& file) {
    if (e.renamed_at > file.renames_before || e.path == file.path) return;
    e.path.swap(file.path);
    renew_older_paths(e);
}

// A group may have an older version open. Its inode may be that of another file by now, so it has
// to be known that it is the same one.
void file_registry::renew_older_paths(const entry& newest) {
    for_each_older(newest.identity, [&](std::uint32_t slot) {
        entry& older = entries_[slot];
        if (older.made_ns != 0 && older.made_ns == newest.made_ns) older.path = newest.path;
    });
}

std::uint64_t file_registry::older_looks() {
    const std::lock_guard lock(mutex_);
    return older_looks_;
}

// A change time that is new alone tells of the new name, so it is the same version as before. A new
// size or modification time tells of another program that wrote beside the rename: then the next
// open finds another version. Times of a network file system are no proof until the file has rested
// with them. True: its pages count as old from now on.
bool file_registry::note_rename(const file_identity& before, const file_facts& after,
                                const std::string& path) {
    std::lock_guard lock(mutex_);
    const auto known = current_.find(key_of(before));
    if (known == current_.end()) return false;
    entry& e = entries_[known->second];
    if (e.gone || !after.may_be_of(e.identity, e.made_ns)) return false;
    e.path = path;
    e.renamed_at = ++renames_;
    renew_older_paths(e);
    if (!(e.identity == before)) return false;
    if (after.identity.size_bytes != before.size_bytes ||
        after.identity.modified_ns != before.modified_ns)
        return false;
    const bool is_doubtful = after.times != file_times::local && !e.uncertain &&
                             may_change_unseen(after, limits_.trust_times);
    if (is_doubtful) {
        e.uncertain = true;
        e.tells_version = false;
        if (observer_ != nullptr) observer_->ended(life_of(e, known->second));
    }
    e.identity = after.identity;
    return is_doubtful;
}

}  // namespace penstock::host
