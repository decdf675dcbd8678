#include "mount/pooled_reads.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <iterator>
#include <new>
#include <utility>

#include "mount/tree.hpp"
#include "os/file_kind.hpp"
#include "os/process_owner.hpp"

namespace penstock::mount {

namespace {

constexpr std::uint64_t every_page = ~std::uint64_t{0}, least_ahead = 128u << 10,
                        room_bytes = 256u << 10;
constexpr std::size_t most_orders = 256;
constexpr std::uint32_t direct_grain = 4096;
// Of reads that the pool answered: pages that are used stay in it, if a session reads them too.
constexpr std::uint64_t told_reads = 4;
// A file that has no name any more keeps its space on the disk while it has a descriptor.
constexpr auto longest_kept = std::chrono::seconds(1);
constexpr auto longest_copy = std::chrono::milliseconds(20),
               no_copies = std::chrono::milliseconds(100);

std::int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

}  // namespace

status pooled_reads::make(const buffer_pool& pool, std::function<void(const std::string&)> note,
                          std::unique_ptr<pooled_reads>& out) try {
    out.reset();
    const buffer::shared_manager shared = buffer::pool_access::of(pool);
    if (shared.all == nullptr)
        return {-ECHILD,
                "mount_options::buffer: the pool belongs to the parent of this process; make one "
                "of the child's own after fork()"};
    std::unique_ptr<pooled_reads> made(new pooled_reads);
    made->note_ = std::move(note);
    made->all_ = shared.all;
    made->on_gpu_ = shared.on_gpu;
    const buffer::manager_settings& shape = shared.all->settings();
    made->direct_io_ = shared.direct_io && shape.page_bytes % direct_grain == 0;
    made->most_files_ = std::max(1u, shape.files / 2);
    made->page_bytes_ = shape.page_bytes;
    made->most_pages_ = most_known_pages(shape.host_pages * shape.page_bytes);
    made->session_ = shared.all->open_session();
    if (made->session_ == nullptr)
        return {-EINVAL,
                "mount_options::buffer: the program has all sessions of the pool; end one, or make "
                "the pool with one more (buffer_options::sessions)"};
    made->room_.resize(room_bytes);
    made->thread_ = std::thread([all = made.get()] { all->run(); });
    out = std::move(made);
    return {};
} catch (const std::exception&) {
    return {-ENOMEM,
            "mount_options::buffer: the host has no memory or no thread for the mount's part of "
            "the pool; free some"};
}

pooled_reads::~pooled_reads() {
    {
        const std::lock_guard hold(mutex_);
        stops_ = true;
    }
    news_.notify_all();
    if (thread_.joinable()) thread_.join();
    for (auto& [key, file] : files_) drop(file);
}

buffer_report pooled_reads::report() const {
    return {all_->counts(), reads_outside_, on_gpu_, direct_io_ && !cached_, copies_};
}

void pooled_reads::say_copies() {
    if (copies_.exchange(true)) return;
    note_(
        "this kernel has no mappings of files that it keeps no pages of (Linux 6.6 has), so it "
        "keeps copies of what programs read, beside the buffer");
}

std::uint64_t pooled_reads::read(host::hub& shared, const inode_key& key, int fd,
                                 std::uint64_t offset, std::byte* to, std::uint64_t bytes) {
    const std::int64_t size = host::linux_environment().size_bytes(fd);
    if (size <= 0 || offset >= static_cast<std::uint64_t>(size)) return 0;
    bytes = std::min(bytes, static_cast<std::uint64_t>(size) - offset);
    std::uint64_t done = 0;
    host::frame_sources& frames = shared.frames;
    for (std::uint64_t got = 1; got != 0 && done < bytes; done += got) {
        const host::frame_wish wanted{
            {key.device, key.inode}, host::linux_environment(), fd, offset + done, bytes - done};
        got = frames.known.may_have(wanted.file) ? frames.first_of([&](host::frame_source& source) {
            return source.copy(wanted, to + done);
        })
                                                 : 0;
        if (got != 0 || now_ns() < no_copies_until_ns_) continue;
        const auto copy =
            frames.first_of([&](host::frame_source& source) { return source.begin(wanted); });
        if (copy == nullptr) break;
        const auto until = std::chrono::steady_clock::now() + longest_copy;
        while (!copy->has_ended() && std::chrono::steady_clock::now() < until)
            std::this_thread::yield();
        if (copy->has_ended()) got = copy->take(wanted, to + done);
        else no_copies_until_ns_ = now_ns() + std::chrono::nanoseconds(no_copies).count();
    }
    const bool is_there = done == bytes;
    if (!is_there) reads_outside_.fetch_add(1, std::memory_order_relaxed);
    if (!is_there || reads_.fetch_add(1, std::memory_order_relaxed) % told_reads == 0)
        post(shared.passed, key, fd, offset, bytes);
    return is_there ? done : 0;
}

void pooled_reads::removed(const inode_key& key) try {
    const std::lock_guard hold(mutex_);
    queue_.push_back({key, {}, 0, 0, nullptr});
    news_.notify_one();
} catch (const std::bad_alloc&) {
    // It leaves when another file needs its number.
}

// What does not find room is not brought: a hint.
void pooled_reads::post(const host::passed_files& passed, const inode_key& key, int fd,
                        std::uint64_t offset, std::uint64_t bytes) try {
    {
        const std::lock_guard hold(mutex_);
        if (stops_ || queue_.size() >= most_orders) return;
    }
    host::owned_fd file(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!file) return;
    const std::lock_guard hold(mutex_);
    queue_.push_back({key, std::move(file), offset, bytes, &passed});
    news_.notify_one();
} catch (const std::bad_alloc&) {
}

void pooled_reads::run() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
    auto looked = std::chrono::steady_clock::now();
    for (order next; wait_for_order(next); next = {}) {
        if (const auto now = std::chrono::steady_clock::now(); now - looked >= longest_kept) {
            drop_removed();
            looked = now;
        }
        try {
            carry_out(next);
        } catch (const std::bad_alloc&) {
            // Programs read the source.
        }
    }
}

// False: it is over. An order of no file after a while without others, if there are files.
bool pooled_reads::wait_for_order(order& next) {
    std::unique_lock hold(mutex_);
    const auto is_news = [&] { return stops_ || !queue_.empty(); };
    if (files_.empty()) news_.wait(hold, is_news);
    else if (!news_.wait_for(hold, longest_kept, is_news)) return true;
    if (stops_) return false;
    next = std::move(queue_.front());
    queue_.pop_front();
    return true;
}

// Not those that were read since the last look: a program has such a file open. No server is asked:
// what this machine knows of the names is enough, and comes at once.
void pooled_reads::drop_removed() {
    const std::uint64_t before = std::exchange(orders_at_look_, orders_);
    for (auto at = files_.begin(); at != files_.end();) {
        struct statx facts {};
        const bool is_removed = at->second.used <= before &&
                                ::statx(at->second.fd.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC,
                                        STATX_NLINK, &facts) == 0 &&
                                facts.stx_nlink == 0;
        if (is_removed) drop(at->second);
        at = is_removed ? files_.erase(at) : std::next(at);
    }
}

void pooled_reads::carry_out(const order& wanted) {
    if (!wanted.file) {
        if (const auto found = files_.find(wanted.key); found != files_.end()) {
            drop(found->second);
            files_.erase(found);
        }
        return;
    }
    pooled_file* const file = find(wanted);
    if (file == nullptr || !bring_up_to_date(*file, wanted)) return;
    // What comes next, too: the kernel of the operating system reads nothing ahead here.
    const std::uint64_t end = wanted.offset + std::max(2 * wanted.bytes, least_ahead);
    for (std::uint64_t at = wanted.offset; at < end;) {
        const std::int64_t got =
            session_->read(static_cast<std::uint32_t>(file->number), at, room_.data(),
                           std::min<std::uint64_t>(room_.size(), end - at));
        if (got <= 0) return;
        at += static_cast<std::uint64_t>(got);
    }
}

// The file with a number in the pool, or null.
pooled_reads::pooled_file* pooled_reads::find(const order& wanted) {
    if (const auto found = files_.find(wanted.key); found != files_.end()) {
        found->second.used = ++orders_;
        return &found->second;
    }
    if (files_.size() >= most_files_ && !drop_oldest()) return nullptr;
    pooled_file made;
    made.fd = host::owned_fd(open_source(wanted.file.get()));
    struct stat facts {};
    if (!made.fd || ::fstat(made.fd.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return nullptr;
    if (!take_room(made, static_cast<std::uint64_t>(facts.st_size))) return nullptr;
    do
        made.number = all_->add_file(made.fd.get(), static_cast<std::uint64_t>(facts.st_size),
                                     buffer::file_access::read);
    while ((made.number == -EMFILE || made.number == -ENOMEM) && drop_oldest());
    if (made.number < 0) {
        drop(made);
        return nullptr;
    }
    made.used = ++orders_;
    return &files_.emplace(wanted.key, std::move(made)).first->second;
}

// Pages of a version before leave, and the file is lent anew. Not while it has a writer: then none
// of its pages is lent.
bool pooled_reads::bring_up_to_date(pooled_file& file, const order& wanted) {
    host::file_version now;
    if (host::look_at_version(host::linux_environment(), *wanted.passed,
                              {wanted.key.device, wanted.key.inode}, file.fd.get(), now) != 0 ||
        !now.is_proof)
        return false;
    if (file.version.is_proof && file.version.is_same(now)) return true;
    const auto number = static_cast<std::uint32_t>(file.number);
    if (!take_room(file, now.identity.size_bytes) ||
        session_->resize(number, now.identity.size_bytes) != 0 ||
        session_->forget(number, 0, every_page) != 0)
        return false;
    file.version = now;
    return true;
}

// Past the operating system's page cache, unless the file system cannot.
int pooled_reads::open_source(int file) {
    const std::string path = path_of(file);
    constexpr int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    const int fd = direct_io_ ? ::open(path.c_str(), flags | O_DIRECT) : -1;
    if (direct_io_ && (fd >= 0 || errno != EINVAL)) return fd;
    if (direct_io_ && !cached_.exchange(true))
        note_(
            "a file system of the source cannot read past the operating system's page cache, which "
            "keeps its files beside the buffer");
    return ::open(path.c_str(), flags);
}

// False: the file is too large, and programs read the source. What a file once had it keeps.
bool pooled_reads::take_room(pooled_file& file, std::uint64_t bytes) {
    const std::uint64_t wanted = std::max(bytes / page_bytes_ + 1, file.known_pages);
    if (wanted > most_pages_) return false;
    while (known_pages_ - file.known_pages + wanted > most_pages_)
        if (!drop_oldest(&file)) return false;
    known_pages_ += wanted - file.known_pages;
    file.known_pages = wanted;
    return true;
}

bool pooled_reads::drop_oldest(const pooled_file* but) {
    auto oldest = files_.end();
    for (auto at = files_.begin(); at != files_.end(); ++at)
        if (&at->second != but && (oldest == files_.end() || at->second.used < oldest->second.used))
            oldest = at;
    if (oldest == files_.end()) return false;
    drop(oldest->second);
    files_.erase(oldest);
    return true;
}

// A number that the pool does not give up keeps its descriptor.
void pooled_reads::drop(pooled_file& file) {
    known_pages_ -= file.known_pages;
    if (file.number >= 0 && all_->remove_file(static_cast<std::uint32_t>(file.number)) != 0)
        host::abandon(
            std::unique_ptr<host::owned_fd>(new (std::nothrow) host::owned_fd(std::move(file.fd))));
}

}  // namespace penstock::mount
