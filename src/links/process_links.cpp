#include "links/process_links.hpp"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "os/file_kind.hpp"
#include "penstock/engine/ring.hpp"
#include "penstock/group/lane.hpp"

namespace penstock::host {

process_links::process_links(cache_device& device, const engine::cache_view& view,
                             process_link_settings settings)
    : device_(device),
      view_(view),
      settings_(std::move(settings)),
      links_({{&device, view}}, engine::most_neighbours),
      drain_(device, view.visits) {}

process_links::~process_links() {
    leave();
    end();
}

status process_links::start() {
    {
        std::unique_lock lock(mutex_);
        if (status s = meet(lock); !s) return s;
        thread_ = std::thread([this] {
            pthread_setname_np(pthread_self(), "penstock-links");
            run();
        });
    }
    await_first();
    say_notes();
    return {};
}

// Until host_wait_ms. It naps without the lock, which a fork of another thread waits for.
bool process_links::await_turn(std::unique_lock<std::mutex>& lock) {
    std::uint64_t looked = penstock::detail::host_now_ns(), end = looked + settings_.wait_ns;
    while (!meeting_.take_turn()) {
        const std::uint64_t now = penstock::detail::host_now_ns();
        end += engine::time_away(now - looked, settings_.wait_ns);
        looked = now;
        if (now > end) return false;
        lock.unlock();
        penstock::detail::host_nap();
        lock.lock();
    }
    return true;
}

// Makes what others are told of, finds them, and has a socket for those that come later.
status process_links::meet(std::unique_lock<std::mutex>& lock) {
    const std::string share = "share: '" + settings_.name + "' ";
    if (status s = meeting_.open(settings_.name); !s) return s;
    int code = directory_.make(view_.file_slots);
    if (code == 0) code = prepare_hello(device_, view_, hello_);
    if (code == 0) {
        hello_.message.directory_bytes = directory_.memory().bytes();
        wake_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        if (!wake_) code = -errno;
    }
    if (code != 0)
        return {code, share + "cannot be shared: " + error_text(code) +
                          (code == -EFBIG  // its memory is a file of the system's
                               ? "; raise the limit on file sizes (ulimit -f)"
                               : "; raise the limits of open files and memory (ulimit -n, -v)")};
    bool has_turn = await_turn(lock);
    code = meeting_.listen();
    constexpr int most_tries = 100;
    for (int i = 0; code == -ENOENT && i < most_tries; ++i) {  // another took it away as it left
        if (status s = meeting_.open(settings_.name); !s) return s;
        has_turn = await_turn(lock);
        code = meeting_.listen();
    }
    hello_.message.id = meeting_.id();
    is_running_ = code == 0;
    if (code == 0) {
        std::size_t busy = 0;
        for (owned_fd& other : meeting_.connect_to_others(has_turn, busy))
            greet(std::move(other), maker::self);
        if (busy != 0)
            note(share + "is shared with " + std::to_string(busy) +
                 " more processes that do not answer; they are not linked");
    }
    if (has_turn) meeting_.end_turn();
    if (code != 0)
        return {code, share + "has no socket in '" + meeting_.path() +
                          "': " + error_and_cure(code, "is /proc mounted, and is there space?")};
    looked_ns_ = penstock::detail::host_now_ns();
    return {};
}

void process_links::say_notes() {
    std::vector<std::string> lines;
    {
        const std::lock_guard lock(mutex_);
        lines.swap(unsaid_);
    }
    for (const std::string& line : lines) settings_.say(line);
}

// A program that runs for a moment only would otherwise end before it finds the pages. Those that
// do not answer in this time are linked when they do.
void process_links::await_first() {
    constexpr std::uint64_t most_ns = 200'000'000;
    std::unique_lock lock(mutex_);
    answered_.wait_for(lock, std::chrono::nanoseconds(std::min(most_ns, settings_.wait_ns)), [&] {
        return std::all_of(neighbours_.begin(), neighbours_.end(), [](const auto& n) {
            return n->is_lost || n->at == neighbour::stage::linked;
        });
    });
}

void process_links::leave() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
        const link_message bye{link_verb::bye, 0};
        for (const auto& n : neighbours_) send_message(n->socket.get(), &bye, sizeof bye);
    }
    is_running_ = false;
    answered_.notify_all();
    if (thread_.joinable()) {
        const std::uint64_t wakes = 1;
        static_cast<void>(::write(wake_.get(), &wakes, sizeof wakes));
        thread_.join();
    }
    links_.withdraw_all();
    const std::lock_guard lock(mutex_);
    neighbours_.clear();
}

// A fork of another thread has the lock: its child looks through what is mapped.
void process_links::end() {
    const std::lock_guard lock(mutex_);
    for (place& p : places_) unmap(p.mapped);
}

void process_links::close_in_child() {
    for (const auto& n : neighbours_) {
        n->socket.reset();
        n->process.reset();
        n->waiting.reset();
    }
    for (owned_fd& fd : hello_.fds.fd) fd.reset();
    wake_.reset();
    meeting_.close_in_child();
    mutex_.unlock();
}

void process_links::entered(const file_life& life) {
    if (!is_running_) return;
    directory_.set(life, offered::to_read);
    links_.observer(0).entered(life);
}

void process_links::written(const file_life& life) {
    if (!is_running_) return;
    const std::uint64_t version = directory_.set(life, offered::written);
    links_.observer(0).written(life);
    written_version_.store(version, std::memory_order_relaxed);
}

void process_links::ended(const file_life& life) {
    if (!is_running_) return;
    directory_.set(life, offered::nothing);
    links_.observer(0).ended(life);
}

void process_links::settle() {
    if (is_running_) {
        const std::lock_guard lock(mutex_);
        for (const auto& n : neighbours_) refresh(*n);
    }
    links_.settle();
    if (is_running_) await_answers();
}

bool process_links::is_answered(std::uint64_t version) const {
    return stop_ || std::all_of(neighbours_.begin(), neighbours_.end(),
                                [&](const auto& n) { return n->is_lost || n->acked >= version; });
}

// -EAGAIN: messages lie there that it has to answer. What it says to these may be of before this
// change, so it is asked again.
void process_links::ask(std::uint64_t version) {
    const link_message changed{link_verb::changed, version};
    for (const auto& n : neighbours_) {
        if (n->is_lost || n->acked >= version || n->told >= version) continue;
        if (send_message(n->socket.get(), &changed, sizeof changed) != -EAGAIN) n->told = version;
    }
}

// By a service thread, which has an open for writing to answer, or found that another has.
void process_links::await_answers() {
    const std::uint64_t wanted = written_version_.load(std::memory_order_relaxed);
    std::unique_lock lock(mutex_);
    if (is_answered(wanted)) return;
    // In quarters: should this process be stopped meanwhile, its thread still has the others to
    // hear the answers that came (engine::time_away).
    for (int quarter = 0; quarter < 4; ++quarter) {
        ask(wanted);
        if (answered_.wait_for(lock, std::chrono::nanoseconds(settings_.wait_ns / 4),
                               [&] { return is_answered(wanted); }))
            break;
    }
    for (const auto& n : neighbours_)
        if (!n->is_lost && n->acked < wanted && !stop_)
            drop(*n, "did not answer for " + std::to_string(settings_.wait_ns / 1000000) +
                         " ms when a file was opened for writing");
    lock.unlock();
    say_notes();
}

std::string process_links::name_of(const neighbour& n) const {
    return "share: '" + settings_.name + "': " +
           (n.peer.process > 0 ? "process " + std::to_string(n.peer.process)
                               : std::string("a process of another container"));
}

// The thread removes it, which the end of the socket wakes.
void process_links::drop(neighbour& n, const std::string& why) {
    if (n.is_lost) return;
    n.is_lost = true;
    if (!why.empty()) note(name_of(n) + " " + why + "; it is no longer linked");
    const link_message bye{link_verb::bye, 0};
    send_message(n.socket.get(), &bye, sizeof bye);
    const std::uint64_t wakes = 1;
    static_cast<void>(::write(wake_.get(), &wakes, sizeof wakes));
}

std::size_t process_links::linked() {
    const std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(std::count_if(
        neighbours_.begin(), neighbours_.end(),
        [](const auto& n) { return n->at == neighbour::stage::linked && !n->is_lost; }));
}

// Processes of other containers have no number here, so each of their caches counts.
std::size_t process_links::linked_processes() {
    const std::lock_guard lock(mutex_);
    std::set<pid_t> known;
    std::size_t unknown = 0;
    for (const auto& n : neighbours_) {
        if (n->at != neighbour::stage::linked || n->is_lost) continue;
        if (n->peer.process <= 0) ++unknown;
        else if (n->peer.process != ::getpid()) known.insert(n->peer.process);
    }
    return known.size() + unknown;
}

}  // namespace penstock::host
