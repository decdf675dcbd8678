// The session with the kernel: from opening the source to taking the mount away.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <thread>

#include "mount/mount.hpp"
#include "mount/tree.hpp"

namespace penstock::mount {

namespace {

// Clearing set-id bits when a file is written or cut is left to the kernel: done by us as root, they would stay. So it cuts a file in a request of its own, not
// with the opening.
void agree(void*, fuse_conn_info* kernel) { kernel->want &= ~static_cast<unsigned>(FUSE_CAP_HANDLE_KILLPRIV | FUSE_CAP_ATOMIC_O_TRUNC); }

fuse_lowlevel_ops operations() {
    fuse_lowlevel_ops table{};
    table.init = agree;
    add_names(table);
    add_attributes(table);
    add_files(table);
    add_directories(table);
    return table;
}

// Every inode that the kernel knows is held open.
void raise_file_limit() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    if (::geteuid() == 0) limit.rlim_cur = limit.rlim_max = std::max<rlim_t>(limit.rlim_max, 1u << 20);
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

struct end_session {
    void operator()(fuse_session* session) const { fuse_session_destroy(session); }
};
struct end_config {
    void operator()(fuse_loop_config* config) const { fuse_loop_cfg_destroy(config); }
};

int run_loop(fuse_session* session, std::uint32_t threads) {
    const std::unique_ptr<fuse_loop_config, end_config> config(fuse_loop_cfg_create());
    if (threads == 0) threads = std::max(4u, std::thread::hardware_concurrency());
    fuse_loop_cfg_set_max_threads(config.get(), threads);
    fuse_loop_cfg_set_idle_threads(config.get(), threads);
    fuse_loop_cfg_set_clone_fd(config.get(), 1);
    return fuse_session_loop_mt(session, config.get());
}

mount_report report_of(const counters& from) {
    const auto now = [](const std::atomic<std::uint64_t>& x) { return x.load(std::memory_order_relaxed); };
    return {now(from.requests), now(from.errors), now(from.reads), now(from.bytes_asked), now(from.writes), now(from.bytes_written)};
}

}  // namespace

status can_mount() {
    const int device = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (device >= 0) {
        ::close(device);
        return {};
    }
    const std::string cure = errno == EACCES || errno == EPERM ? "be root, or have the package fuse3 installed and a device that you may open"
                                                               : "load the kernel's module fuse; in a container, pass the device on (--device /dev/fuse --cap-add SYS_ADMIN)";
    return {-errno, "/dev/fuse: " + error_text(-errno) + "; " + cure};
}

status serve(const mount_options& wanted, void (*ready)(const mount_options&), mount_report& done) {
    const int root = ::open(wanted.source.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) return {-errno, "the source '" + wanted.source + "': " + error_text(-errno)};
    tree files(root);
    raise_file_limit();
    ::umask(0);  // the kernel has applied the program's
    std::string options = "default_permissions,subtype=penstock,fsname=" + escaped(std::filesystem::absolute(wanted.source).lexically_normal().string());
    if (wanted.read_only) options += ",ro";
    if (wanted.allow_other) options += ",allow_other";
    arguments given(options);
    const fuse_lowlevel_ops table = operations();
    const std::unique_ptr<fuse_session, end_session> session(fuse_session_new(&given.all, &table, sizeof table, &files));
    if (!session) return {-EINVAL, "libfuse refused the options " + options};
    if (fuse_set_signal_handlers(session.get()) != 0) return {-EINVAL, "signals cannot be caught: has this process handlers of its own?"};
    if (fuse_session_mount(session.get(), wanted.point.c_str()) != 0) {
        fuse_remove_signal_handlers(session.get());
        return {-EPERM, "'" + wanted.point + "' cannot be mounted; libfuse said why above" + (wanted.allow_other && ::geteuid() != 0 ? " (allow_other needs user_allow_other in /etc/fuse.conf)" : "")};
    }
    ready(wanted);
    if (wanted.background) fuse_daemonize(0);
    const int ended = run_loop(session.get(), wanted.threads);  // 0: unmounted by others; a signal's number
    fuse_session_unmount(session.get());
    fuse_remove_signal_handlers(session.get());
    done = report_of(files.counted);
    if (ended < 0) return {ended, "the session with the kernel ended: " + error_text(ended)};
    return {};
}

}  // namespace penstock::mount
