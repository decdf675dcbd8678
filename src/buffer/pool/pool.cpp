// The buffer pool of programs: a manager of pages, its frames, and the files that it reads and
// writes.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <exception>
#include <map>
#include <mutex>
#include <new>

#include "buffer/pool/device_frames.hpp"
#include "buffer/pool/manager.hpp"
#include "os/file_kind.hpp"
#include "os/own_mounts.hpp"
#include "os/patient_open.hpp"
#include "os/process_owner.hpp"
#include "os/size_signal.hpp"
#include "penstock/buffer.hpp"
#include "settings/log_lines.hpp"

namespace penstock {

namespace buffer {

namespace {

constexpr std::uint32_t least_page_bytes = 512, most_page_bytes = 2u << 20;
// Any disk reads and writes so much at a time past the page cache.
constexpr std::uint64_t direct_grain = 4096;
constexpr std::uint64_t least_pages = 2, most_pages = std::uint64_t{1} << 30;

int set_size(int fd, std::uint64_t bytes) {
    return host::tried_again(
        [&] { return ::ftruncate(fd, static_cast<off_t>(bytes)) == 0 ? 0 : -errno; });
}

struct descriptor {
    const int number;
    explicit descriptor(int which) : number(which) {}
    ~descriptor() { ::close(number); }
    descriptor(const descriptor&) = delete;
    descriptor& operator=(const descriptor&) = delete;
};

struct pool_file {
    std::shared_ptr<const descriptor> fd{};
    file_access access = file_access::read;
    bool is_direct = false;
    bool is_closing = false;  // one thread does that
    std::uint64_t bytes = 0;
    std::uint64_t device = 0, inode = 0;
    std::string path{};
};

status check_pages(const char* name, std::uint64_t bytes, std::uint32_t page_bytes) {
    const std::string told = std::string("buffer_options::") + name + ": " + format_size(bytes);
    if (bytes / page_bytes < least_pages)
        return {-EINVAL, told + " is less than two pages of " + format_size(page_bytes) +
                             "; give at least " + format_size(least_pages * page_bytes)};
    if (bytes / page_bytes > most_pages)
        return {-EINVAL, told + " is more than " + std::to_string(most_pages) +
                             " pages; give less, or larger pages"};
    return {};
}

// The host's part, of which the pool itself is a session more.
status check_host_pages(const buffer_options& wanted) {
    const std::uint64_t sessions = std::uint64_t{wanted.sessions} + 1;
    const std::uint64_t needed = least_host_pages(sessions, wanted.fixed_pages);
    const std::uint64_t pages = wanted.host_bytes / wanted.page_bytes;
    const std::string users = std::to_string(wanted.sessions) + " sessions that fix " +
                              std::to_string(wanted.fixed_pages) + " pages each";
    if (needed > most_pages)
        return {-EINVAL,
                "buffer_options::sessions and fixed_pages: " + users + " are too many; give fewer"};
    if (pages >= needed) return {};
    return {-EINVAL, "buffer_options::host_bytes: " + format_size(wanted.host_bytes) + " is " +
                         std::to_string(pages) + " pages of " + format_size(wanted.page_bytes) +
                         ", and " + users + " need " + std::to_string(needed) + "; give at least " +
                         std::to_string(needed * wanted.page_bytes) +
                         " bytes, or less with buffer_options::sessions or fixed_pages"};
}

status check_options(const buffer_options& wanted) {
    if (wanted.page_bytes < least_page_bytes || wanted.page_bytes > most_page_bytes ||
        !std::has_single_bit(wanted.page_bytes))
        return {-EINVAL, "buffer_options::page_bytes: " + format_size(wanted.page_bytes) +
                             " is no page; give a power of two from " +
                             format_size(least_page_bytes) + " to " + format_size(most_page_bytes)};
    if (status s = check_pages("host_bytes", wanted.host_bytes, wanted.page_bytes); !s) return s;
    if (wanted.policy != policy_kind::native)
        if (status s = check_pages("device_bytes", wanted.device_bytes, wanted.page_bytes); !s)
            return s;
    if (wanted.sessions == 0 || wanted.fixed_pages == 0 || wanted.max_files == 0)
        return {-EINVAL,
                "buffer_options::sessions, fixed_pages and max_files: at least one of each is "
                "needed"};
    return check_host_pages(wanted);
}

manager_settings settings_of(const buffer_options& wanted, const manager_settings& tuning) {
    manager_settings out = tuning;
    out.page_bytes = wanted.page_bytes;
    out.host_pages = static_cast<std::uint32_t>(wanted.host_bytes / wanted.page_bytes);
    out.device_pages = wanted.policy == policy_kind::native
                           ? 0
                           : static_cast<std::uint32_t>(wanted.device_bytes / wanted.page_bytes);
    out.sessions = wanted.sessions + 1;  // one is the pool's own
    out.fixed_pages = wanted.fixed_pages;
    out.files = wanted.max_files;
    out.wait_ms = wanted.wait_ms;
    out.order = wanted.order;
    out.policy = wanted.policy;
    out.dedu.blocks_per_page = wanted.blocks_per_page;
    return out;
}

}  // namespace

class open_pool {
public:
    open_pool(const buffer_options& wanted, host::hub& shared)
        : how_(wanted), lines_(wanted.log), shared_(shared) {}
    ~open_pool() {
        if (own_ != nullptr) all_->leave(shared_);
        own_.reset();
        all_.reset();
    }

    status make(const manager_settings& tuning) {
        const manager_settings settings = settings_of(how_, tuning);
        if (status s = check_counts(settings); !s)
            return {s.code, s.message + " (buffer_options::max_files, blocks_per_page)"};
        if (status s =
                choose_frames(how_.where, how_.device, frames_for(settings), frames_, on_gpu_);
            !s)
            return {s.code, s.message + (s.code == -ENODEV
                                             ? "; set buffer_options::where to backend::cpu"
                                             : "; give less with buffer_options::host_bytes or "
                                               "device_bytes")};
        if (status s = manager::make(settings, *frames_, host::linux_environment(), all_); !s)
            return {s.code,
                    s.message +
                        " (buffer_options::host_bytes, sessions, fixed_pages, blocks_per_page)"};
        own_ = all_->open_session();
        if (own_ == nullptr)
            return {-ENOMEM,
                    "the host has no memory for the buffer's tables; give less with "
                    "buffer_options::host_bytes or device_bytes"};
        all_->lend_to(shared_);
        return {};
    }

    status open_file(const std::string& path, file_access access, std::uint32_t& number) {
        pool_file opened{.access = access, .path = path};
        if (status s = open_below(opened); !s) return s;
        const std::lock_guard hold(table_);
        for (const auto& [other, file] : files_)
            if (file.device == opened.device && file.inode == opened.inode)
                return {-EBUSY, "'" + path + "' is open in this buffer as '" + file.path +
                                    "', number " + std::to_string(other) +
                                    "; use that, or close it first"};
        std::map<std::uint32_t, pool_file>
            staging;  // so that nothing is left to fail once it has its number
        auto place = staging.extract(staging.try_emplace(0, std::move(opened)).first);
        const int added =
            all_->add_file(place.mapped().fd->number, place.mapped().bytes, place.mapped().access);
        if (added < 0)
            return {added, "'" + path + "': " + error_text(added) +
                               (added == -EMFILE
                                    ? "; close another, or give more with buffer_options::max_files"
                                    : "; is there memory for four bytes a page?")};
        place.key() = number = static_cast<std::uint32_t>(added);
        files_.insert(std::move(place));
        return {};
    }

    // The steps of file_states.hpp. Only (1) and (3) need the pool's own session. The list of files
    // loses the file as its number becomes free: an open_file() sees both or neither.
    int close_file(std::uint32_t number, bool flush) {
        {
            const std::lock_guard hold(table_);
            const auto found = files_.find(number);
            if (found == files_.end() || found->second.is_closing) return -EBADF;
            found->second.is_closing = true;
        }
        int code = 0;
        try {
            code = empty_file(number, flush);
        } catch (const std::exception&) {  // no memory; another close has to find the file
            code = -ENOMEM;
        }
        std::map<std::uint32_t, pool_file>::node_type closed;  // ends without the lock
        const std::lock_guard hold(table_);
        if (code != 0) {
            files_.at(number).is_closing = false;
        } else {
            closed = files_.extract(number);
            all_->free_number(number);
        }
        return code;
    }

    int resize_file(std::uint32_t number, std::uint64_t bytes) {
        const host::without_size_signal guard;
        const std::lock_guard own_hold(in_own_);
        pool_file file;
        if (!find(number, file) || file.is_closing) return -EBADF;
        if (file.access == file_access::read) return -EACCES;
        if (bytes > static_cast<std::uint64_t>(INT64_MAX) ||
            (file.is_direct && bytes % how_.page_bytes != 0))
            return -EINVAL;
        const int fd = file.fd->number;
        const bool grows = bytes > file.bytes;
        // No page is read behind the end of the file, and none written there: so it grows first
        // here below, and shrinks last.
        int code = grows ? set_size(fd, bytes) : 0;
        if (code != 0) return code;
        code = own_->resize(number, bytes);
        if (code != 0 && grows) static_cast<void>(set_size(fd, file.bytes));
        if (!grows && code == 0) {
            code = set_size(fd, bytes);
            if (code != 0) take_back_cut(number, file, bytes, code);
        }
        if (code == 0) {
            const std::lock_guard hold(table_);
            files_.at(number).bytes = bytes;
        }
        return code;
    }

    [[nodiscard]] std::int64_t file_bytes(std::uint32_t number) const {
        const std::lock_guard hold(table_);
        const auto found = files_.find(number);
        return found != files_.end() ? static_cast<std::int64_t>(found->second.bytes) : -EBADF;
    }

    // False in a child of fork(): locks may be held there for ever, and the files are the parent's
    // to write.
    [[nodiscard]] bool here() const { return owner_.here(); }

    // In a destructor, so nothing throws. What keeps one file back is told and is not the end of
    // the others.
    void close_all() {
        for (auto at = files_.begin(); at != files_.end();) {
            const std::uint32_t number = at->first;
            if (const int code = close_file(number, true); code != 0) {
                say_lost(number, code);
                static_cast<void>(close_file(number, false));
            }
            at = files_.upper_bound(number);
        }
    }

    manager& all() { return *all_; }
    [[nodiscard]] const buffer_options& options() const { return how_; }
    [[nodiscard]] bool is_on_gpu() const { return on_gpu_; }

private:
    static status refuse(const pool_file& file, host::file_kind kind) {
        return {-EINVAL, "'" + file.path + "' " + host::why_not_by_size(kind)};
    }
    static std::string cure_for(int error, file_access access) {
        if (error == EMFILE) return "raise the limit on open files (ulimit -n), or close some";
        if (error == ENFILE) return "close files, in this or other programs";
        const bool reads = access == file_access::read;
        return std::string("give a file that may be ") + (reads ? "read" : "read and written");
    }
    // A descriptor, and what the file is.
    status open_below(pool_file& file) const {
        const int flags = (file.access == file_access::read_write ? O_RDWR : O_RDONLY) | O_NOCTTY;
        struct stat facts {};
        // To open a device or a pipe may already do something.
        if (::stat(file.path.c_str(), &facts) == 0) {
            if (host::kind_of(facts.st_mode) == host::file_kind::special)
                return refuse(file, host::file_kind::special);
            if (const int code = host::check_not_own(facts.st_dev); code != 0)
                return {code, "'" + file.path + "' " + host::why_own(file.path)};
        }
        const int fd = host::open_past_leases(file.path, flags);
        if (fd < 0) {
            const int error = errno;
            return {-error, "'" + file.path + "': " + error_text(-error) + "; " +
                                cure_for(error, file.access)};
        }
        file.fd = std::make_shared<const descriptor>(fd);
        if (::fstat(fd, &facts) != 0) return {-errno, "'" + file.path + "': " + error_text(-errno)};
        if (const host::file_kind kind = host::kind_of(fd, facts); kind != host::file_kind::regular)
            return refuse(file, kind);
        file.bytes = static_cast<std::uint64_t>(facts.st_size);
        file.device = facts.st_dev;
        file.inode = facts.st_ino;
        const bool may_be = how_.direct_io && how_.page_bytes % direct_grain == 0 &&
                            (file.access == file_access::read || file.bytes % how_.page_bytes == 0);
        // The same file, whatever has its name by now; where that cannot be, through the page
        // cache.
        const int current = may_be ? ::fcntl(fd, F_GETFL) : -1;
        file.is_direct = current >= 0 && ::fcntl(fd, F_SETFL, current | O_DIRECT) == 0;
        return {};
    }

    void say_lost(std::uint32_t number, int code) {
        try {
            lines_.say("'" + files_.at(number).path + "': " + error_text(code) + what_is_lost_);
        } catch (const std::exception&) {  // no memory for more words
            lines_.say(what_is_lost_);
        }
    }

    // All pages of a file that is to be closed leave, written before if that is wanted.
    int empty_file(std::uint32_t number, bool flush) {
        int code = 0;
        if (flush) {
            const std::lock_guard own_hold(in_own_);
            code = own_->flush(number);
        }
        if (code == 0) code = all_->begin_close(own_.get(), number);
        if (code == 0) {
            const std::lock_guard own_hold(in_own_);
            code = all_->end_close(own_.get(), number, flush);
        }
        return code;
    }

    // The file system has not cut the file, so its size is as before. The rest of the page in which
    // the cut was to be is not zero in the file.
    void take_back_cut(std::uint32_t number, const pool_file& file, std::uint64_t bytes, int code) {
        lines_.say("'" + file.path + "': cannot be cut to " + std::to_string(bytes) +
                   " bytes: " + error_text(code) +
                   "; what was changed in the buffer behind them and not flushed is lost");
        const bool is_flushed = own_->flush(number) == 0;
        if (own_->resize(number, file.bytes) != 0) {
            const std::lock_guard hold(table_);
            files_.at(number).bytes = bytes;
        } else if (is_flushed) {
            own_->forget(number, bytes / how_.page_bytes, 1);
        }
    }

    bool find(std::uint32_t number, pool_file& out) const {
        const std::lock_guard hold(table_);
        const auto found = files_.find(number);
        if (found == files_.end()) return false;
        out = found->second;
        return true;
    }

    const host::process_owner owner_;
    const buffer_options how_;
    settings::log_lines lines_;
    const std::string what_is_lost_ =
        "; what was changed in the buffer and is not in the file is lost with the end of the "
        "buffer";
    host::hub& shared_;
    std::unique_ptr<device_frames> frames_;
    std::unique_ptr<manager> all_;
    bool on_gpu_ = false;
    std::mutex in_own_;             // before table_
    std::unique_ptr<session> own_;  // guarded by in_own_
    mutable std::mutex table_;
    std::map<std::uint32_t, pool_file> files_;  // guarded by table_
};

status make_pool(const buffer_options& wanted, const manager_settings& tuning,
                 std::unique_ptr<buffer_pool>& out, host::hub& shared) try {
    out.reset();
    if (status s = check_options(wanted); !s) return s;
    auto made = std::make_unique<open_pool>(wanted, shared);
    if (status s = made->make(tuning); !s) return s;
    out = std::make_unique<buffer_pool>(std::move(made));
    return {};
} catch (const std::exception&) {  // no memory, or tables that no memory could hold
    return {-ENOMEM,
            "the host has no memory for the buffer's tables; give less with "
            "buffer_options::host_bytes, device_bytes, sessions or max_files"};
}

}  // namespace buffer

namespace buffer {

shared_manager pool_access::of(const buffer_pool& pool) {
    const std::shared_ptr<open_pool>& all = pool.pool_;
    if (!all->here()) return {};
    return {std::shared_ptr<manager>(all, &all->all()), all->options().direct_io, all->is_on_gpu()};
}

}  // namespace buffer

status buffer_pool::make(const buffer_options& wanted, std::unique_ptr<buffer_pool>& out) {
    return buffer::make_pool(wanted, {}, out);
}

buffer_pool::buffer_pool(std::unique_ptr<buffer::open_pool> made) : pool_(std::move(made)) {}
// In a child of fork() all is left as it is: the end of the process takes it.
buffer_pool::~buffer_pool() {
    if (pool_->here()) pool_->close_all();
    else
        host::abandon(std::unique_ptr<std::shared_ptr<buffer::open_pool>>(
            new (std::nothrow) std::shared_ptr<buffer::open_pool>(pool_)));
}

status buffer_pool::open_file(const std::string& path, buffer::file_access access,
                              std::uint32_t& number) try {
    if (!pool_->here())
        return {-ECHILD, "'" + path +
                             "': the buffer is that of the process that called fork(); make one in "
                             "this process"};
    return pool_->open_file(path, access, number);
} catch (const std::exception&) {
    return {-ENOMEM, "the host has no memory to open a file in the buffer; free some"};
}
int buffer_pool::close_file(std::uint32_t number) {
    return pool_->here() ? pool_->close_file(number, true) : -ECHILD;
}
int buffer_pool::discard_file(std::uint32_t number) {
    return pool_->here() ? pool_->close_file(number, false) : -ECHILD;
}
int buffer_pool::resize_file(std::uint32_t number, std::uint64_t bytes) try {
    return pool_->here() ? pool_->resize_file(number, bytes) : -ECHILD;
} catch (const std::exception&) {
    return -ENOMEM;
}
std::int64_t buffer_pool::file_bytes(std::uint32_t number) const {
    return pool_->here() ? pool_->file_bytes(number) : -ECHILD;
}
std::unique_ptr<buffer::session> buffer_pool::open_session() {
    return pool_->here() ? pool_->all().open_session() : nullptr;
}
buffer::manager_counts buffer_pool::counts() const {
    return pool_->here() ? pool_->all().counts() : buffer::manager_counts{};
}
buffer::manager_contents buffer_pool::contents() const {
    return pool_->here() ? pool_->all().contents() : buffer::manager_contents{};
}
bool buffer_pool::is_on_gpu() const { return pool_->is_on_gpu(); }

}  // namespace penstock
