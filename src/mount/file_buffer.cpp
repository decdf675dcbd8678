// The buffer of a mount: how it begins and ends, and what it does at each operation.
#include "mount/file_buffer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

#include "mount/tree.hpp"

namespace penstock::mount {

status file_buffer::make(const buffer_options& wanted, unsigned threads,
                         std::function<void(const std::string&)> note,
                         std::unique_ptr<file_buffer>& out) try {
    out.reset();
    if (status s = check(wanted, threads); !s) return s;
    std::unique_ptr<file_buffer> made(new file_buffer);
    made->options_ = wanted;
    made->note_ = std::move(note);
    const buffer::manager_settings shape = settings_of(wanted, threads);
    if (status s = make_frames(wanted, buffer::frames_for(shape), made->frames_, made->on_gpu_); !s)
        return s;
    if (status s =
            buffer::manager::make(shape, *made->frames_, host::linux_environment(), made->all_);
        !s)
        return s;
    if (!made->sessions_.fill(*made->all_, threads))
        return {-ENOMEM, "the host has no memory for the buffer's sessions; give fewer --threads"};
    made->nowhere_ = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (made->nowhere_ < 0)
        return {-errno, "/dev/null: " + error_text(-errno) + "; the buffer needs it"};
    made->most_pages_ = most_known_pages(wanted.ram_bytes);
    out = std::move(made);
    return {};
} catch (const std::bad_alloc&) {
    return {-ENOMEM,
            "the host has no memory for the buffer's tables; give less with --ram or --gpu"};
}

file_buffer::~file_buffer() {
    for (const auto& [key, file] : files_)
        if (file->fd >= 0) ::close(file->fd);
    if (nowhere_ >= 0) ::close(nowhere_);
}

void file_buffer::say_cached(const std::string& path) {
    if (cached_.exchange(true)) return;
    std::error_code failed;
    const std::filesystem::path name = std::filesystem::read_symlink(path, failed);
    note_("the file system of '" + (failed ? path : name.string()) +
          "' cannot read past the operating system's page cache, which keeps its files beside the "
          "buffer");
}

void file_buffer::say_no_memory() {
    if (!no_memory_.exchange(true))
        note_(
            "the host has no memory for what the buffer knows of files; those that are opened now "
            "are read from the source");
}

void file_buffer::say_copies() {
    if (copies_.exchange(true)) return;
    note_(
        "this kernel has no mappings of files that it keeps no pages of (Linux 6.6 has), so it "
        "keeps copies of what programs read, beside the buffer");
}

// By the first regular file that is found near the top; without one, the first that is read tells.
void file_buffer::try_directory(const std::string& path) {
    constexpr int most_names = 1000;
    std::error_code failed;
    int names = 0;
    for (std::filesystem::recursive_directory_iterator
             at(path, std::filesystem::directory_options::skip_permission_denied, failed),
         end;
         !failed && at != end && names < most_names; at.increment(failed), ++names) {
        if (!at->is_regular_file(failed) || at->is_symlink(failed)) continue;
        const int fd = ::open(at->path().c_str(),
                              O_RDONLY | O_DIRECT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW);
        if (fd < 0 && errno != EINVAL) continue;
        if (fd < 0) say_cached(at->path().string());
        else ::close(fd);
        return;
    }
}

buffer_report file_buffer::report() {
    sessions_.tell_hits();
    return {all_->counts(), reads_outside_, on_gpu_, !cached_, copies_};
}

namespace {

bool facts_of(const node& file_node, struct stat& facts) {
    return ::fstatat(file_node.fd, "", &facts, AT_EMPTY_PATH) == 0;
}

constexpr std::uint64_t all_pages = ~std::uint64_t{0};

// The size and the pages of a file change one after the other. What is read from the buffer
// meanwhile may be bytes that the file never had: the rest of a page that was the last one.
class change_in_steps {
public:
    explicit change_in_steps(buffered_file& file) : steps_(file.steps) { ++steps_; }
    ~change_in_steps() { ++steps_; }
    change_in_steps(const change_in_steps&) = delete;
    change_in_steps& operator=(const change_in_steps&) = delete;

private:
    std::atomic<std::uint64_t>& steps_;
};

}  // namespace

std::shared_ptr<buffered_file> file_buffer::file_of(node& file_node) {
    const std::lock_guard hold(file_node.lock);
    return file_node.buffered;
}

void file_buffer::opened(node& file_node, int fd) try {
    file_pointer file;
    {
        const std::lock_guard hold(table_);
        const inode_key key{file_node.device, file_node.inode};
        auto found = files_.find(key);
        if (found == files_.end())
            found = files_.emplace(key, std::make_shared<buffered_file>(key)).first;
        file = found->second;
        if (file->opens++ == 0 && file->number >= 0) wake(*file, file_node);
        const std::lock_guard node_hold(file_node.lock);
        file_node.buffered = file;
    }
    look_again(*file, file_node, fd);
} catch (const std::bad_alloc&) {
    say_no_memory();
}

void file_buffer::closed(node& file_node) {
    const std::lock_guard hold(table_);
    const auto found = files_.find({file_node.device, file_node.inode});
    if (found == files_.end() || found->second->opens == 0) return;
    const file_pointer file = found->second;
    if (--file->opens != 0) return;
    {
        const std::lock_guard node_hold(file_node.lock);
        file_node.buffered.reset();
    }
    struct stat facts {};
    const bool is_gone = !facts_of(file_node, facts) || facts.st_nlink == 0;
    if (file->number < 0 || ((is_gone || file->outside) && drop(*file))) files_.erase(found);
    else park(file);
}

// With the table's lock. A thread that still reads ahead finds nothing there.
void file_buffer::park(const file_pointer& file) try {
    ::dup3(nowhere_, file->fd, O_CLOEXEC);
    file->place = parked_.insert(parked_.end(), file);
    file->is_parked = true;
} catch (const std::bad_alloc&) {
    say_no_memory();  // it keeps its number until it is opened and closed again
}

// With the table's lock.
void file_buffer::wake(buffered_file& file, const node& file_node) {
    if (file.is_parked) parked_.erase(file.place);
    file.is_parked = false;
    const int fd = open_source(file_node);
    if (fd < 0 || ::dup3(fd, file.fd, O_CLOEXEC) < 0) drop(file);  // its first read tries again
    if (fd >= 0) ::close(fd);
}

// With the table's lock. False: another thread is at it.
bool file_buffer::drop(buffered_file& file) {
    const std::unique_lock alone(file.in_use, std::try_to_lock);
    if (!alone.owns_lock() || all_->remove_file(static_cast<std::uint32_t>(file.number)) != 0)
        return false;
    ::close(file.fd);
    file.fd = -1;
    file.number = -1;
    pages_ -= std::exchange(file.room, 0);
    return true;
}

// With the table's lock. The file that was closed longest ago gives its number.
bool file_buffer::give_up_another() {
    for (auto at = parked_.begin(); at != parked_.end(); ++at) {
        const file_pointer oldest = *at;
        if (!drop(*oldest)) continue;
        parked_.erase(at);
        files_.erase(oldest->key);
        return true;
    }
    return false;
}

bool file_buffer::take_room(buffered_file& file, std::uint64_t bytes) {
    const std::uint64_t wanted = std::max(bytes / options_.page_bytes + 1, file.room);
    const std::lock_guard hold(table_);
    while (pages_ - file.room + wanted > most_pages_)
        if (wanted > most_pages_ || !give_up_another()) return false;
    pages_ += wanted - file.room;
    file.room = wanted;
    return true;
}

int file_buffer::add(int fd, std::uint64_t bytes) {
    const std::lock_guard hold(table_);
    for (;;) {
        const int number = all_->add_file(fd, bytes);
        if ((number != -EMFILE && number != -ENOMEM) || !give_up_another()) return number;
    }
}

// Past the operating system's page cache, unless the file system cannot.
int file_buffer::open_source(const node& file_node) {
    const std::string path = path_of(file_node.fd);
    const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd >= 0 || errno != EINVAL) return fd;
    say_cached(path);
    return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
}

// With `changing`. The file gets a number; the size and version are those of before any page of it
// is loaded.
bool file_buffer::enter(buffered_file& file, const node& file_node) {
    source_version now;
    const int fd = open_source(file_node);
    if (fd < 0) return false;
    int number = -EINVAL;
    if (look_at_source(file_node, fd, false, now) == 0 && now.is_regular &&
        take_room(file, now.identity.size_bytes))
        number = add(fd, now.identity.size_bytes);
    if (number < 0) {
        ::close(fd);
        const std::lock_guard hold(table_);
        pages_ -= std::exchange(file.room, 0);
        return false;
    }
    file.version = now.is_proof ? now.identity : host::file_identity{};
    file.size_bytes = now.identity.size_bytes;
    file.fd = fd;
    file.number = number;
    return true;
}

// With `changing`.
bool file_buffer::take_over_size(buffered_file& file, std::uint64_t size_bytes) {
    if (size_bytes == file.size_bytes) return true;
    if (!take_room(file, size_bytes)) return false;
    session_pool::lent session(sessions_);
    if (session->resize(static_cast<std::uint32_t>(file.number), size_bytes) != 0) return false;
    file.size_bytes = size_bytes;
    return true;
}

// At each open: what was changed in the source since its pages were loaded is seen from now on.
void file_buffer::look_again(buffered_file& file, const node& file_node, int fd) {
    const std::lock_guard hold(file.changing);
    const std::shared_lock number_stays(file.in_use);
    if (file.number < 0) {
        file.outside = false;  // tried again
        return;
    }
    source_version now;
    const bool is_known = look_at_source(file_node, fd, false, now) == 0;
    if (is_known && now.is_proof && !file.stale && !file.outside && file.version == now.identity)
        return;
    const change_in_steps until_right(file);
    bool right = is_known && take_over_size(file, now.identity.size_bytes);
    if (right) {
        session_pool::lent session(sessions_);
        right = session->forget(static_cast<std::uint32_t>(file.number), 0, all_pages) == 0;
    }
    file.version = now.is_proof ? now.identity : host::file_identity{};
    file.stale = !right;
    file.outside = !right;
}

std::int64_t file_buffer::read(buffered_file& file, const node& file_node, int fd,
                               std::uint64_t offset, std::byte* to, std::uint64_t bytes) {
    if (file.number < 0) {
        const std::lock_guard hold(file.changing);
        if (file.number < 0 && !file.outside && !enter(file, file_node)) file.outside = true;
    }
    const std::uint64_t before = file.steps;
    if (before % 2 != 0 || file.outside) return -EAGAIN;
    const std::shared_lock number_stays(file.in_use);
    session_pool::lent session(sessions_);
    const std::int64_t got =
        session->read(static_cast<std::uint32_t>(file.number), offset, to, bytes);
    if (file.steps != before) return -EAGAIN;
    if (got < 0 || static_cast<std::uint64_t>(got) == bytes) return got;
    // The end, as far as we know: others may have written behind it in the source.
    const auto done = static_cast<std::uint64_t>(got);
    const ssize_t more = ::pread(fd, to + done, bytes - done, static_cast<off_t>(offset + done));
    return more < 0 ? -EAGAIN : got + more;
}

void file_buffer::read_ahead(buffered_file& file, std::uint64_t offset, std::uint64_t bytes) {
    constexpr std::uint64_t least_ahead = 128u << 10;
    const bool in_order = file.read_to.exchange(offset + bytes) == offset;
    if (!in_order || file.outside) return;
    const std::shared_lock number_stays(file.in_use);
    if (file.number < 0) return;
    session_pool::lent session(sessions_);
    session->prefetch(static_cast<std::uint32_t>(file.number),
                      (offset + bytes) / options_.page_bytes,
                      std::max(bytes, least_ahead) / options_.page_bytes + 1);
}

// The file, if a program has it open. If not, it is looked at again in any case when it is opened.
// Other nodes of the file do not matter: a program may have it open by another one than this.
std::shared_ptr<buffered_file> file_buffer::find_changed(const node& file_node) {
    const std::lock_guard hold(table_);
    const auto found = files_.find({file_node.device, file_node.inode});
    if (found == files_.end()) return nullptr;
    if (found->second->opens != 0) return found->second;
    found->second->stale = true;
    return nullptr;
}

// A thread that gets the file its number now sees what was changed, for it was changed before this
// lock; one that did before has told it.
void file_buffer::changed(const node& file_node, std::uint64_t offset, std::uint64_t bytes) {
    const file_pointer file = find_changed(file_node);
    if (file == nullptr || bytes == 0) return;
    const std::lock_guard hold(file->changing);
    const std::shared_lock number_stays(file->in_use);
    if (file->number < 0 || file->outside) return;
    const change_in_steps until_right(*file);
    const std::uint64_t size_before = file->size_bytes;
    struct stat facts {};
    bool right = facts_of(file_node, facts) &&
                 take_over_size(*file, static_cast<std::uint64_t>(facts.st_size));
    if (right) {
        // Another writer may have filled the page that was the last one, and comes after this.
        const std::uint64_t first = std::min(offset, size_before) / options_.page_bytes,
                            last = bytes > ~offset ? all_pages
                                                   : (offset + bytes - 1) / options_.page_bytes;
        session_pool::lent session(sessions_);
        right = session->forget(static_cast<std::uint32_t>(file->number), first,
                                last == all_pages ? all_pages : last - first + 1) == 0;
    }
    if (!right) file->outside = true;  // until it is opened again and all of it could be forgotten
}

}  // namespace penstock::mount
