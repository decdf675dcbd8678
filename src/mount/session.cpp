// A mount as a program of its own, or beside others in a process.
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "os/exceptions.hpp"
#include "mount/background_session.hpp"
#include "mount/tree.hpp"
#include "os/shared_memory.hpp"
#include "penstock/runtime.hpp"
#include "runtime/runtime_state.hpp"

namespace penstock {

namespace mount {

status can_mount() {
    const int device = ::open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (device >= 0) {
        ::close(device);
        return {};
    }
    const std::string cure =
        errno == EACCES || errno == EPERM
            ? "be root, or have the package fuse3 installed and a device that you may open"
            : "load the kernel's module fuse; in a container, pass the device on (--device "
              "/dev/fuse --cap-add SYS_ADMIN)";
    return {-errno, "/dev/fuse: " + error_text(-errno) + "; " + cure};
}

namespace {

bool is_ignored(int number) {
    struct sigaction now {};
    return ::sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

// A mount in the background is made by a child of the process, because no child can use what its
// parent has made: a buffer, threads, a GPU (os/process_owner.hpp). The parent waits for it.
class background_child {
public:
    // Returns in the child alone, or with an error. The parent ends with 0 when the mount is there,
    // and else as the child does, which says why.
    status begin(const std::string& point) {
        int both[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both) != 0)
            return {-errno, "--background: " + error_text(-errno)};
        host::owned_fd parents(both[0]);
        parent_ = host::owned_fd(both[1]);
        const pid_t child = ::fork();
        if (child < 0) return {-errno, "--background: no process: " + error_text(-errno)};
        if (child == 0) return {};
        parent_.reset();
        char told = 0;
        ssize_t came = 0;
        do came = ::recv(parents.get(), &told, 1, MSG_WAITALL);
        while (came < 0 && errno == EINTR);
        if (came == 1) ::_exit(0);
        int ended = 0;
        while (::waitpid(child, &ended, 0) < 0 && errno == EINTR) {
        }
        if (!WIFSIGNALED(ended)) ::_exit(WEXITSTATUS(ended));
        return {-ECANCELED, "'" + point + "': signal " + std::to_string(WTERMSIG(ended)) +
                                " ended the process in the background before the mount was there"};
    }
    // Before there are threads, which keep the working directory.
    void leave_session() const {
        if (!parent_) return;
        ::setsid();
        static_cast<void>(!::chdir("/"));
    }
    // The mount is there. What is said from now on goes nowhere.
    void end_parent() {
        if (!parent_) return;
        if (const int nowhere = ::open("/dev/null", O_RDWR | O_CLOEXEC); nowhere >= 0) {
            for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) ::dup2(nowhere, fd);
            ::close(nowhere);
        }
        ::send(parent_.get(), "", 1, MSG_NOSIGNAL);  // it may be gone
        parent_.reset();
    }

private:
    host::owned_fd parent_;  // of the child
};

}  // namespace

status serve(const serve_options& wanted, const serve_calls& calls, serve_report& done) {
    sigset_t ends;
    ::sigemptyset(&ends);
    for (const int number : {SIGINT, SIGTERM}) ::sigaddset(&ends, number);
    // The kernel keeps an ignored signal that is blocked, and sigwait would return it.
    if (!is_ignored(SIGHUP)) ::sigaddset(&ends, SIGHUP);
    if (calls.asked != nullptr) ::sigaddset(&ends, SIGUSR1);
    ::pthread_sigmask(SIG_BLOCK, &ends,
                      nullptr);  // before there are other threads, and anything to take away
    background_child child;
    if (wanted.background)
        if (status s = child.begin(wanted.point); !s) return s;
    std::unique_ptr<background_session> session;
    if (status s = background_session::open(wanted, session); !s) return s;
    calls.ready(wanted, session->report());
    child.leave_session();
    session->start(host::hub::of_process(), [] { ::kill(::getpid(), SIGTERM); });
    child.end_parent();
    int number = 0;
    while (::sigwait(&ends, &number) == 0 && number == SIGUSR1) calls.asked(session->report());
    const int ended = session->how_it_ended();
    const int code = session->stop();
    done = session->report();
    if (ended < 0) return {ended, "the session with the kernel ended: " + error_text(ended)};
    if (code == -EBUSY && !session->left().empty())
        return {code, "'" + wanted.point + "' " + session->left()};
    if (code < 0)
        return {code,
                "'" + wanted.point +
                    "': what programs had stored to mapped pages did not all come to the source: " +
                    error_text(code)};
    return {};
}

}  // namespace mount

file_mount::file_mount(std::unique_ptr<mount::background_session> session)
    : session_(std::move(session)) {}
file_mount::~file_mount() {
    if (!session_->belongs_here()) host::abandon(std::move(session_));
}
int file_mount::unmount() { return session_->belongs_here() ? session_->stop() : -ECHILD; }
bool file_mount::is_mounted() const { return session_->belongs_here() && session_->is_running(); }
mount_report file_mount::report() const {
    return session_->belongs_here() ? session_->report() : mount_report{};
}

inline namespace link_with_penstock_mount {

status mount_directory(runtime& rt, const std::string& source, const std::string& point,
                       const mount_options& settings, std::unique_ptr<file_mount>& out) try {
    out.reset();
    if (rt.process_code() != 0)
        return {-ECHILD, "'" + point +
                             "': the runtime belongs to the parent of this process; make one of "
                             "the child's own after fork()"};
    mount::serve_options wanted{settings, source, point};
    wanted.beside_kernels = true;
    if (status s = mount::check(wanted); !s) return s;
    std::unique_ptr<mount::background_session> session;
    if (status s = mount::background_session::open(wanted, session); !s) return s;
    session->start(*rt.state().hooks.shared, {});
    out = std::make_unique<file_mount>(std::move(session));
    return {};
} catch (...) {
    return host::status_of_exception("'" + point + "': ");
}

}  // namespace link_with_penstock_mount

}  // namespace penstock
