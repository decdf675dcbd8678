// The session with the kernel: from opening the source to taking the mount away.
#include "mount/background_session.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <future>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "mount/mounted_views.hpp"
#include "mount/pooled_reads.hpp"
#include "mount/file_buffer.hpp"
#include "mount/first_exchange.hpp"
#include "mount/tree.hpp"
#include "os/file_system.hpp"
#include "os/not_inherited.hpp"
#include "os/own_mounts.hpp"
#include "os/shared_memory.hpp"

namespace penstock::mount {

namespace {

constexpr std::chrono::seconds longest_end{5};

// Clearing set-id bits when a file is written or cut is left to the kernel: done by us as root,
// they would stay. So it cuts a file in a request of its own, not with the opening. The kernel
// reads the source's access control lists and judges by them. Without that agreement it would take
// the mask of a list for the rights of the group.
void agree(void* files, fuse_conn_info* kernel) {
    kernel->want &= ~static_cast<unsigned>(FUSE_CAP_HANDLE_KILLPRIV | FUSE_CAP_ATOMIC_O_TRUNC);
    kernel->want |=
        kernel->capable & static_cast<unsigned>(FUSE_CAP_POSIX_ACL | FUSE_CAP_DONT_MASK);
    const tree& t = *static_cast<const tree*>(files);
    kernel->max_background = t.agreed.background_requests;
    kernel->congestion_threshold = t.agreed.background_requests / 4 * 3;
    // The kernel takes the smaller of what it allows and what it is answered.
    allow_read_ahead(t.point, t.read_ahead_bytes);
    kernel->max_readahead =
        static_cast<unsigned>(std::min<std::uint64_t>(t.read_ahead_bytes, UINT32_MAX));
}

fuse_lowlevel_ops operations() {
    fuse_lowlevel_ops table{};
    table.init = agree;
    add_names(table);
    add_attributes(table);
    add_files(table);
    add_directories(table);
    return table;
}

// The mount holds every inode open that the kernel knows. Root in a container often may not pass
// the hard limit, nor may other users.
void raise_file_limit() {
    constexpr rlim_t wanted = 1u << 20;
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    const rlimit higher{std::max(limit.rlim_max, wanted), std::max(limit.rlim_max, wanted)};
    if (::geteuid() == 0 && ::setrlimit(RLIMIT_NOFILE, &higher) == 0) return;
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

struct arguments {
    explicit arguments(const std::string& options) : all(FUSE_ARGS_INIT(0, nullptr)) {
        fuse_opt_add_arg(&all, "penstock");
        fuse_opt_add_arg(&all, "-o");
        fuse_opt_add_arg(&all, options.c_str());
    }
    ~arguments() { fuse_opt_free_args(&all); }
    arguments(const arguments&) = delete;
    arguments& operator=(const arguments&) = delete;
    fuse_args all;
};

// A comma would begin another option.
std::string escaped(const std::string& path) {
    std::string out;
    for (const char c : path) {
        if (c == ',' || c == '\\') out.push_back('\\');
        out.push_back(c);
    }
    return out;
}

// A mount gives no right that the source's file system refuses.
bool is_without_programs(int root) {
    struct statvfs facts {};
    return ::fstatvfs(root, &facts) == 0 && (facts.f_flag & ST_NOEXEC) != 0;
}

std::string absolute(const std::string& path) {
    return std::filesystem::absolute(path).lexically_normal().string();
}

// What lies at the point is taken away. Users that are not root need the program for it.
bool detach(const std::string& point) {
    if (::umount2(point.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0) return true;
    if (::geteuid() == 0) return false;
    std::string words[] = {"fusermount3", "-u", "-z", "-q", "--", point};
    char* arguments[7] = {};
    for (int i = 0; i < 6; ++i) arguments[i] = words[i].data();
    pid_t child = 0;
    if (::posix_spawnp(&child, "fusermount3", nullptr, nullptr, arguments, environ) != 0)
        return false;
    int ended = 0;
    while (::waitpid(child, &ended, 0) < 0)
        if (errno != EINTR) return false;
    return ended == 0;
}

struct end_session {
    void operator()(fuse_session* session) const { fuse_session_destroy(session); }
};
struct end_config {
    void operator()(fuse_loop_config* config) const { fuse_loop_cfg_destroy(config); }
};

// How many threads serve: `most` while others wait for the source, of which more than `kept` end
// when they have nothing to do. To make and end a thread costs as much as a request.
struct thread_counts {
    std::uint32_t kept = 0, most = 0;
};
thread_counts threads_of(std::optional<std::uint32_t> wanted) {
    const std::uint32_t usual = serving_threads(wanted);
    if (wanted) return {usual, usual};
    return {std::max(usual, 16u), std::max(usual, 128u)};
}

// By its own choice the kernel sends 12, and no read by way of its pages while 12 wait for a server
// that does not answer.
std::uint32_t background_requests_of(thread_counts threads) {
    constexpr std::uint32_t usual = 12;
    return std::max(threads.most, usual);
}

int run_loop(fuse_session* session, thread_counts threads) {
    const std::unique_ptr<fuse_loop_config, end_config> config(fuse_loop_cfg_create());
    fuse_loop_cfg_set_max_threads(config.get(), threads.most);
    fuse_loop_cfg_set_idle_threads(config.get(), threads.kept);
    // One descriptor for all threads, whose number is known: a child of fork() has to close it.
    // With one for each, 2 and 16 processors answered no more requests of 16 clients
    // (bench/results/h200/2026-11-30-end.txt).
    fuse_loop_cfg_set_clone_fd(config.get(), 0);
    return fuse_session_loop_mt(session, config.get());
}

// Threads of libfuse are made by the one that this is called by, and take from it: no signals,
// which are the program's, and a mask of permissions of their own, since the kernel has applied the
// caller's.
void keep_to_itself() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
    if (::unshare(CLONE_FS) == 0) ::umask(0);
}

}  // namespace

struct session_parts {
    explicit session_parts(int root_fd) : files(root_fd) {}
    ~session_parts() {
        leave_own();
        keep_device();
    }
    session_parts(const session_parts&) = delete;
    session_parts& operator=(const session_parts&) = delete;

    // While a child of fork() has the device open, the kernel waits for answers after this process
    // was killed, and every program in the mount with it.
    void close_device_in_children() {
        device_fd = fuse_session_fd(session.get());
        host::close_in_children(device_fd);
    }
    // From now on no part of this process opens files of the mount (os/own_mounts.hpp).
    void enter_own() {
        if (const std::uint64_t number = device_number(device); number != 0)
            own = host::own_mounts::of_process().enter(number, source);
    }
    void leave_own() {
        if (const std::uint64_t number = own.exchange(0); number != 0)
            host::own_mounts::of_process().leave(number);
    }
    // Before libfuse closes it.
    void keep_device() { host::keep_in_children(std::exchange(device_fd, -1)); }
    // While it is, the file system is there, mounted or only in use, and no other has its device
    // number.
    [[nodiscard]] bool is_connected() const {
        pollfd device_file{fuse_session_fd(session.get()), 0, 0};
        return ::poll(&device_file, 1, 0) <= 0 || (device_file.revents & (POLLERR | POLLNVAL)) == 0;
    }
    [[nodiscard]] mount_place place() const {
        if (device.empty()) return {files.point, true};  // the table of mounts could not be read
        return is_connected() ? place_of(mounts.get(), device, files.point) : mount_place{};
    }
    // libfuse unmounts by name, but nothing if the connection has ended. What lies at the name by
    // now may be another's mount, and this one may have another name. Without the session nothing
    // waits for an answer. (A session that is not unmounted by libfuse loses the copy of the name.)
    void unmount() {
        leave_own();
        keep_device();
        const mount_place now = place();
        if (!is_connected() || (now.is_on_top && now.point == files.point))
            return fuse_session_unmount(session.get());
        session.reset();
        if (now.is_on_top) detach(now.point);
    }

    tree files;
    host::hub* hub = nullptr;
    std::string source;
    std::atomic<std::uint64_t> own{0};  // the number of it among the process's mounts; 0: none
    host::owned_fd mounts;              // open_mount_table(), from before it is mounted
    std::string device;  // the number of the mount's file system, as mounted_at() has it
    thread_counts threads;
    std::unique_ptr<fuse_session, end_session> session;
    int device_fd = -1;  // the session's descriptor, while children are to close it
    std::shared_ptr<mounted_views> views;
    std::thread loop;
    std::mutex lock;
    std::condition_variable changed;
    bool running = false;  // guarded by lock, as the next
    int ended = 0;
};

background_session::background_session() = default;

namespace {

status make_buffer(const serve_options& wanted, tree& files) {
    const auto note = wanted.note ? wanted.note : [](const std::string&) {};
    files.agreed.uncached.wanted = true;
    if (!wanted.own_buffer) return pooled_reads::make(*wanted.buffer, note, files.pooled);
    if (status s = file_buffer::make(*wanted.own_buffer, serving_threads(wanted.threads), note,
                                     files.buffer);
        !s)
        return s;
    files.buffer->try_directory(wanted.source);
    return {};
}

// The first exchange with the kernel, and what comes of it for files that it is to read and write
// itself.
status greet(const serve_options& wanted, fuse_session& session, tree& files, int root) {
    passing_agreement& passing = files.agreed.passing;
    const bool is_buffered = files.buffer != nullptr || files.pooled != nullptr;
    passing.wanted = wanted.pass_through && !is_buffered && ::geteuid() == 0;
    // The kernel allows two file systems on one another.
    if (host::file_system_of(root).is_layered) passing.layers = 2;
    if (status s = exchange_first(&session, files.agreed); !s) return s;
    const bool allowed = passing.reached && files.passing.begin(fuse_session_fd(&session), root,
                                                                wanted.beside_kernels);
    files.not_passing = !wanted.pass_through ? "--pass-through=off"
                        : is_buffered        ? "they are read through the buffer"
                        : !passing.wanted    ? "that takes root"
                        : !passing.reached
                            ? "this kernel cannot (Linux 6.9 and newer can, with FUSE_PASSTHROUGH)"
                        : !allowed ? "that takes CAP_SYS_ADMIN in the first user namespace"
                                   : "";
    return {};
}

}  // namespace

status background_session::open(const serve_options& wanted,
                                std::unique_ptr<background_session>& out) {
    out.reset();
    if (wanted.threads == 0u)
        return {-EINVAL,
                "mount_options::threads: 0 threads serve nothing; give 1 or more, or leave it out"};
    const int root = ::open(wanted.source.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) return {-errno, "the source '" + wanted.source + "': " + error_text(-errno)};
    auto parts = std::make_shared<session_parts>(root);
    std::error_code failed;
    parts->files.point = std::filesystem::canonical(wanted.point, failed).string();
    if (failed)
        return {-failed.value(),
                "the mount point '" + wanted.point + "': " + error_text(-failed.value())};
    parts->files.read_ahead_bytes =
        wanted.read_ahead_bytes.value_or(usual_read_ahead(std::thread::hardware_concurrency()));
    raise_file_limit();
    parts->mounts = open_mount_table();
    if (!parts->mounts && (errno == EMFILE || errno == ENFILE))
        return {-errno, "'" + wanted.point + "': " + error_text(-errno) +
                            "; raise the limit on open files (ulimit -n)"};
    // Before anything is mounted, for it may be refused.
    if (wanted.own_buffer || wanted.buffer != nullptr)
        if (status s = make_buffer(wanted, parts->files); !s) return s;
    std::string options =
        "default_permissions,subtype=penstock,fsname=" + escaped(absolute(wanted.source));
    if (wanted.read_only) options += ",ro";
    if (wanted.allow_other) options += ",allow_other";
    if (is_without_programs(root)) options += ",noexec";
    arguments args(options);
    const fuse_lowlevel_ops table = operations();
    parts->session.reset(fuse_session_new(&args.all, &table, sizeof table, &parts->files));
    if (!parts->session) return {-EINVAL, "libfuse refused the options " + options};
    // By a name that means the same later, whatever the working directory and links are then.
    if (fuse_session_mount(parts->session.get(), parts->files.point.c_str()) != 0)
        return {-EPERM, "'" + wanted.point + "' cannot be mounted; libfuse said why above" +
                            (wanted.allow_other && ::geteuid() != 0
                                 ? " (allow_other needs user_allow_other in /etc/fuse.conf)"
                                 : "")};
    parts->files.session = parts->session.get();
    parts->threads = threads_of(wanted.threads);
    parts->files.agreed.background_requests = background_requests_of(parts->threads);
    if (status s = greet(wanted, *parts->session, parts->files, root); !s) {
        fuse_session_unmount(parts->session.get());
        return s;
    }
    parts->source = absolute(wanted.source);
    parts->device = mounted_at(parts->mounts.get(), parts->files.point).device;
    parts->views = std::make_shared<mounted_views>(
        parts->files, parts->session.get(), parts->files.point, device_number(parts->device));
    out.reset(new background_session);
    out->parts_ = std::move(parts);
    return {};
}

void background_session::start(host::hub& hub, std::function<void()> ended) {
    owner_ = {};
    parts_->hub = &hub;
    parts_->files.shared = &region::shared_files::of(hub);
    // Before any request is answered: a program that maps a region from now on must know that the
    // kernel may keep pages.
    hub.add_views(parts_->views);
    parts_->running = true;
    parts_->close_device_in_children();
    parts_->enter_own();
    const auto serve = [parts = parts_, ended = std::move(ended)] {
        keep_to_itself();
        const int code =
            run_loop(parts->session.get(),
                     parts->threads);  // 0, or a signal's number: unmounted by others, or stopped
        parts->hub->remove_views(*parts->views);
        parts->leave_own();
        {
            const std::lock_guard hold(parts->lock);
            parts->running = false;
            parts->ended = std::min(code, 0);
        }
        parts->changed.notify_all();
        if (ended) ended();
    };
    try {
        parts_->views->begin();
        parts_->loop = std::thread(serve);
    } catch (...) {
        parts_->hub->remove_views(*parts_->views);
        parts_->views->end();
        parts_->leave_own();
        parts_->running = false;
        throw;
    }
}

namespace {

// The threads that serve look whether it is over after each request, so this makes one. It may be
// answered by none any more until the session is gone. So the thread is on its own, and the future
// says when it has ended.
std::future<void> wake(const std::string& point) try {
    std::promise<void> over;
    std::future<void> out = over.get_future();
    std::thread([point, over = std::move(over)]() mutable {
        leave_descriptors();  // as own_files
        struct statvfs facts {};
        ::statvfs(point.c_str(), &facts);
        over.set_value();
    }).detach();
    return out;
} catch (const std::system_error&) {
    return {};  // some program's request wakes them
}

// Programs' stores come home, and what was to be answered later is: 0 or the first error of the
// stores. Each of it may wait for the source. So the thread is on its own, and the future says when
// it has ended, and has given its share of the parts back.
std::future<int> settle(std::shared_ptr<session_parts> parts, bool is_served) {
    const auto work = [is_served](session_parts& all) {
        const int code = is_served ? all.views->collect_all() : 0;
        all.views->end();
        all.files.late.end();  // while the session is served
        all.files.waiting.end();
        return code;
    };
    std::promise<int> over;
    std::future<int> out = over.get_future();
    try {
        std::thread([work, parts, over = std::move(over)]() mutable {
            keep_to_itself();
            const int code = work(*parts);
            parts.reset();
            over.set_value(code);
        }).detach();
        return out;
    } catch (const std::system_error&) {
        std::promise<int> done;
        done.set_value(work(*parts));
        return done.get_future();
    }
}

// False: for as long as an end may take, no more of what programs had stored came home.
bool await(const std::future<int>& settled, const counters& counted) {
    std::uint64_t before = counted.stores_written;
    while (settled.wait_for(longest_end) != std::future_status::ready) {
        const std::uint64_t now = counted.stores_written;
        if (now == before) return false;
        before = now;
    }
    return true;
}

constexpr long fsopen_number = 430, fsconfig_number = 431, fsmount_number = 432;  // Linux 5.2

// The kernel's folder of FUSE connections is at a usual place. Containers often lack it: root makes
// one that is mounted at no name.
host::owned_fd abort_file(const std::string& name) {
    host::owned_fd usual(
        ::open(("/sys/fs/fuse/connections/" + name).c_str(), O_WRONLY | O_CLOEXEC));
    if (usual) return usual;
    constexpr unsigned closed_by_exec = 1, create = 6;
    const auto number = [](long result) { return static_cast<int>(result); };
    const host::owned_fd context(number(::syscall(fsopen_number, "fusectl", closed_by_exec)));
    if (!context || ::syscall(fsconfig_number, context.get(), create, nullptr, nullptr, 0) != 0)
        return {};
    const host::owned_fd folder(
        number(::syscall(fsmount_number, context.get(), closed_by_exec, 0)));
    if (!folder) return {};
    return host::owned_fd(::openat(folder.get(), name.c_str(), O_WRONLY | O_CLOEXEC));
}

// The kernel gives an error to all that wait for an answer, and to those that serve, where this
// process may have it so.
void abort_connection(const std::string& device) {
    const host::owned_fd file = abort_file(device.substr(device.find(':') + 1) + "/abort");
    if (file) static_cast<void>(!::write(file.get(), "1", 1));
}

// Programs that wait for an answer get an error. Without that, a thread of this process that uses
// the mount (wake()) would keep the process from ending, and that the mount's descriptors open.
void unmount_by_force(const std::string& point, const std::string& device) {
    if (::umount2(point.c_str(), MNT_FORCE | MNT_DETACH | UMOUNT_NOFOLLOW) == 0) return;
    abort_connection(device);
    detach(point);
}

std::string covered(const std::string& point) {
    return "is still mounted, and answers nothing any more: another file system lies over it; take "
           "that away first, and then this mount with: " +
           unmount_command(point);
}

// Of a session whose threads did not end: they wait for requests, where no path leads to the mount
// to make one, or for the source.
std::string why_left(const mount_place& place, bool still_connected) {
    if (!place.is_on_top && !place.point.empty()) return covered(place.point);
    if (place.is_on_top || !still_connected)
        return "is mounted no more, but requests of programs still wait for the source, and get no "
               "answer";
    return "was taken away before, but programs still have files of it open, and get no answer";
}

}  // namespace

int background_session::stop() {
    if (!parts_) return 0;
    session_parts& parts = *parts_;
    int code = 0;
    if (parts.loop.joinable()) {
        parts.hub->remove_views(*parts.views);
        std::future<int> settled = settle(parts_, is_running());
        const bool is_settled = await(settled, parts.files.counted);
        if (is_settled) code = settled.get();
        fuse_session_exit(parts.session.get());
        const mount_place place = parts.place();
        std::future<void> woken;
        if (!place.is_on_top && parts.is_connected())
            abort_connection(parts.device);  // no path leads to it
        bool over = false;
        if (is_settled) {
            if (place.is_on_top) woken = wake(place.point);
            std::unique_lock hold(parts.lock);
            over = parts.changed.wait_for(hold, longest_end, [&] { return !parts.running; });
        }
        // What is mounted there meanwhile may be another mount.
        if (!over) {
            parts.keep_device();
            left_ = why_left(place, parts.is_connected());
            if (!is_settled)
                left_ +=
                    "; what they had stored to mapped pages may not all have come to the source";
            if (const mount_place now = parts.place(); now.is_on_top)
                unmount_by_force(now.point, parts.device);
            parts.loop.detach();
            last_ = report();
            parts_.reset();
            return -EBUSY;
        }
        parts.loop.join();
        parts.unmount();
        last_ = report();
        parts.session.reset();
        if (woken.valid()) woken.wait_for(longest_end);
        if (!place.is_on_top && !place.point.empty()) {
            left_ = covered(place.point);
            if (code == 0) code = -EBUSY;
        }
    } else {
        parts.unmount();
    }
    parts_.reset();
    return code;
}

background_session::~background_session() { stop(); }

bool background_session::is_running() const {
    if (!parts_) return false;
    const std::lock_guard hold(parts_->lock);
    return parts_->running;
}

int background_session::how_it_ended() const {
    if (!parts_) return 0;
    const std::lock_guard hold(parts_->lock);
    return parts_->ended;
}

serve_report background_session::report() const {
    if (!parts_) return last_;
    const tree& files = parts_->files;
    const counters& from = files.counted;
    const auto now = [](const std::atomic<std::uint64_t>& x) {
        return x.load(std::memory_order_relaxed);
    };
    serve_report out;
    static_cast<mount_report&>(out) = {
        now(from.requests),          now(from.errors), now(from.reads),
        now(from.bytes_asked),       now(from.writes), now(from.bytes_written),
        now(from.bytes_from_devices)};
    const std::uint64_t closes = now(from.closes);  // before the opens, so not more than they
    out.opens = now(from.opens);
    out.open_now = out.opens - closes;
    out.passed_opens = now(from.passed_opens);
    out.passes_through = files.passing.is_on();
    out.not_passing = files.not_passing;
    out.bytes_from_buffer = now(from.bytes_from_buffers);
    if (files.buffer == nullptr && files.pooled == nullptr) return out;
    out.buffer = files.buffer != nullptr ? files.buffer->report() : files.pooled->report();
    out.reads_outside = out.buffer->reads_outside;
    out.past_the_page_cache = out.buffer->past_the_cache;
    out.kernel_copies = out.buffer->kernel_copies;
    return out;
}

}  // namespace penstock::mount
