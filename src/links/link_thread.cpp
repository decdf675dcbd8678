// The thread of process_links: newcomers, messages, directories, and places of those that left.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

#include "links/process_links.hpp"
#include "penstock/engine/ring.hpp"
#include "penstock/group/lane.hpp"

namespace penstock::host {

namespace {

// How long a place that is waited for goes without a look.
constexpr std::uint64_t drain_beat_ns = 2'000'000;
// Without neighbours there is nothing to look at, and the poll hears a newcomer at once.
constexpr std::uint64_t lonely_beat_ns = 1'000'000'000;
// Between two looks whether newcomers find the socket.
constexpr std::uint64_t found_beat_ns = 1'000'000'000;

}  // namespace

// Without memory it does nothing, until there is some.
void process_links::run() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
        try {
            beat(lock);
        } catch (const std::exception&) {
            if (!lock.owns_lock()) lock.lock();
            answered_.wait_for(lock, std::chrono::nanoseconds(settings_.beat_ns),
                               [this] { return stop_; });
        }
    }
}

void process_links::beat(std::unique_lock<std::mutex>& lock) {
    std::vector<pollfd> looks{{wake_.get(), POLLIN, 0},
                              {is_deaf_ ? -1 : meeting_.listener(), POLLIN, 0}};
    for (const auto& n : neighbours_) {
        looks.push_back({n->socket.get(), POLLIN, 0});
        looks.push_back({n->process.get(), POLLIN, 0});  // -1: not looked at
    }
    const std::uint64_t beat_ns = !drain_.is_idle() ? std::min(settings_.beat_ns, drain_beat_ns)
                                  : neighbours_.empty() && !is_deaf_
                                      ? std::max(settings_.beat_ns, lonely_beat_ns)
                                      : settings_.beat_ns;
    lock.unlock();
    ::poll(looks.data(), looks.size(), static_cast<int>((beat_ns + 999'999) / 1'000'000));
    lock.lock();
    if (stop_) return;
    std::uint64_t woken = 0;
    static_cast<void>(!::read(wake_.get(), &woken, sizeof woken));
    // Neighbours leave the list in this thread alone, and new ones come behind.
    for (std::size_t i = 0; 2 * i + 3 < looks.size(); ++i) {
        neighbour& n = *neighbours_[i];
        if (looks[2 * i + 2].revents != 0) hear(n);
        // Words that it sent before its end are heard first.
        else if (looks[2 * i + 3].revents != 0) n.is_lost = true;
    }
    is_deaf_ = (looks[1].revents & POLLIN) != 0;
    for (owned_fd came = meeting_.accept(); came; came = meeting_.accept()) {
        is_deaf_ = false;
        greet(std::move(came), maker::other);
    }
    stay_found();
    drain();
    for (const auto& n : neighbours_) go_on(*n);
    lock.unlock();
    remove_lost();
    answer();
    say_notes();
    lock.lock();
}

// The folder may go while its processes run (os/link_socket.hpp). Links that are there stay.
// Without a place for the folder the next look tries again, and the log has it once.
void process_links::stay_found() {
    const std::uint64_t now = penstock::detail::host_now_ns();
    if (now - looked_ns_ < found_beat_ns) return;
    looked_ns_ = now;
    if (meeting_.is_found()) return;
    const std::string share = "share: '" + settings_.name + "' ";
    const auto fail = [&](const std::string& why) {
        if (!std::exchange(is_unfound_said_, true))
            note(why + "; processes that start now do not find this cache");
    };
    if (const status s = meeting_.open(settings_.name); !s) return fail(s.message);
    if (!meeting_.take_turn()) return;
    const struct turn_end {  // also without memory for what follows
        rendezvous& of;
        ~turn_end() { of.end_turn(); }
    } ends{meeting_};
    const int code = meeting_.listen();
    if (code == 0) {
        is_unfound_said_ = false;
        note(share + "had lost its socket in '" + meeting_.path() + "' and has one there again");
        std::size_t busy = 0;
        for (owned_fd& other : meeting_.connect_to_others(true, busy))
            greet(std::move(other), maker::self, true);
    }
    if (code != 0 && code != -ENOENT)  // -ENOENT: another took the folder away as it left
        fail(share + "has no socket in '" + meeting_.path() + "': " + error_text(code));
}

// A connection, made here or there: our hello goes first.
void process_links::greet(owned_fd socket, maker made_by, bool comes_again) {
    auto n = std::make_unique<neighbour>();
    n->socket = std::move(socket);
    n->made_by = made_by;
    n->comes_again = comes_again;
    if (peer_of(n->socket.get(), n->peer) != 0) return;
    if (n->peer.user != ::geteuid())
        return note(name_of(*n) + " belongs to user " + std::to_string(n->peer.user) +
                    " and is not linked; give each user a share of its own");
    n->process = watch_process(n->peer.process);
    n->looked_ns = penstock::detail::host_now_ns();
    n->deadline_ns = n->looked_ns + settings_.wait_ns;
    // What the directory says by now it finds when it first reads it.
    n->acked = directory_.version();
    std::array<int, most_passed_fds> fds{};
    std::size_t count = 0;
    for (; count < hello_.fds.count; ++count) fds[count] = hello_.fds.fd[count].get();
    fds[count++] = directory_.memory().fd();
    link_hello hello = hello_.message;
    hello.comes_again = comes_again ? 1 : 0;
    if (const int code = send_message(n->socket.get(), &hello, sizeof hello, fds.data(), count);
        code != 0) {
        if (code == -EPIPE || code == -ECONNRESET) return;  // it has ended by now
        return note(name_of(*n) + " is not linked: " + error_text(code));
    }
    neighbours_.push_back(std::move(n));
}

void process_links::hear(neighbour& n) {
    constexpr int most_at_once = 64;  // then others have their turn
    for (int i = 0; i < most_at_once && !n.is_lost; ++i) {
        alignas(8) std::array<std::byte, sizeof(link_hello)> room{};
        const auto& hello = *reinterpret_cast<const link_hello*>(room.data());
        received_fds fds;
        const std::int64_t size = receive_message(n.socket.get(), room.data(), room.size(), fds);
        if (size == -EAGAIN) return;
        if (size <= 0) {
            n.is_lost = true;
            if (size == -EMFILE)
                note(name_of(n) + " is not linked: " + error_text(-EMFILE) +
                     "; raise the limit of open files (ulimit -n)");
            else if (size == -EBADMSG && n.at == neighbour::stage::greeted &&
                     is_begin_of_hello(hello))
                note(name_of(n) + " is not linked: it is of another version of Penstock");
            else if (size < 0 && size != -ECONNRESET && size != -EPIPE)
                note(name_of(n) + " sends what is no message of a link: " +
                     error_text(static_cast<int>(size)) + "; it is no longer linked");
            return;
        }
        if (n.at == neighbour::stage::greeted &&
            static_cast<std::size_t>(size) > sizeof(link_message)) {
            take_hello(n, hello, static_cast<std::size_t>(size), fds);
            continue;
        }
        if (size != sizeof(link_message)) return drop(n, "sends what is no message of a link");
        const auto& said = *reinterpret_cast<const link_message*>(room.data());
        switch (said.verb) {
            case link_verb::changed:
                n.owes_answer = true;
                n.asked = std::max(n.asked, said.version);
                break;
            case link_verb::seen:
                // Not more than there is: it would count for what is to come.
                n.acked = std::max(n.acked, std::min(said.version, directory_.version()));
                answered_.notify_all();
                break;
            case link_verb::bye: n.is_lost = true; break;
            default: return drop(n, "sends what is no message of a link");
        }
    }
}

// All places are taken, and that of a neighbour which has left will be free. A process that comes
// for a killed one would else be one too many.
bool process_links::waits_for_a_place() const {
    const auto is = [this](place::state wanted) {
        return std::any_of(places_.begin(), places_.end(),
                           [wanted](const place& p) { return p.is == wanted; });
    };
    return !is(place::state::free) &&
           (is(place::state::draining) ||
            std::any_of(neighbours_.begin(), neighbours_.end(),
                        [](const auto& n) { return n->is_lost && n->place != no_place; }));
}

// Of two connections to the process of this id: is `n` the one that both sides keep? The other side
// finds the same ranks. No process takes the link of another one by its id.
bool process_links::replaces(const neighbour& n, const neighbour& known, std::uint64_t id) const {
    const auto rank = [&](const neighbour& one) {
        const bool is_of_lower_id = (one.made_by == maker::other) == (id < hello_.message.id);
        return (one.comes_again ? 0 : 2) + (is_of_lower_id ? 1 : 0);
    };
    return rank(n) > rank(known) && n.peer.process == known.peer.process;
}

void process_links::take_hello(neighbour& n, const link_hello& hello, std::size_t size,
                               received_fds& fds, bool is_late) {
    std::string why = why_not(hello, size, fds.count, view_.page_shift);
    const auto known = std::find_if(neighbours_.begin(), neighbours_.end(), [&](const auto& other) {
        return other.get() != &n && !other->is_lost && other->id == hello.id;
    });
    if (why.empty() && hello.id == hello_.message.id) return drop(n, "");
    n.comes_again |= n.made_by == maker::other && hello.comes_again != 0;
    if (why.empty() && known != neighbours_.end()) {
        if (!replaces(n, **known, hello.id)) return drop(n, "");
        drop(**known, "");
    }
    if (why.empty() && !is_late && waits_for_a_place()) {
        n.waiting = std::make_unique<waiting_hello>(waiting_hello{hello, std::move(fds)});
        return;
    }
    const auto free = std::find_if(places_.begin(), places_.end(),
                                   [](const place& p) { return p.is == place::state::free; });
    if (why.empty() && free == places_.end())
        why = "there are " + std::to_string(places_.size()) +
              " neighbours already, and more are not asked";
    if (why.empty()) {
        n.id = hello.id;
        n.place = static_cast<std::uint32_t>(free - places_.begin());
        why = map(n, hello, fds);
    }
    if (!why.empty()) {
        note(name_of(n) + " is not linked: " + why);
        return drop(n, "");
    }
    n.at = neighbour::stage::placed;
    n.ticket = drain_.begin();
}

// Takes the place. Empty, or why not; then nothing is mapped.
std::string process_links::map(neighbour& n, const link_hello& hello, received_fds& fds) {
    const device_link link = device_.link_to(std::string(hello.identity));
    if (link.kind == link_kind::none) return link.reason;
    place& at = places_[n.place];
    const std::array<std::uint64_t, mapped_arrays> bytes{hello.words_bytes, hello.file_words_bytes,
                                                         hello.frames_bytes, hello.writes_bytes};
    std::string why;
    mapping& mapped = at.mapped;
    for (std::size_t i = 0; i < mapped_arrays && why.empty(); ++i) {
        if (bytes[i] == 0) continue;
        mapped.array[i] = device_.map_foreign(fds.fd[i].get(), bytes[i], why);
        if (mapped.array[i] != nullptr) why.clear();
    }
    int code = 0;
    if (why.empty()) {
        mapped.directory_bytes = directory_bytes(hello.file_slots);
        mapped.directory = map_memory_of(fds.fd[fds.count - 1].get(), mapped.directory_bytes, code);
        if (mapped.directory == nullptr)
            why = "its directory cannot be mapped: " + error_text(code);
    }
    if (why.empty()) {
        const auto address = [&](std::size_t i) {
            return reinterpret_cast<std::uint64_t>(mapped.array[i]);
        };
        code = links_.place(n.place,
                            {address(0), address(1), address(3), address(2), hello.word_count,
                             static_cast<std::uint32_t>(hello.frame_count),
                             static_cast<std::uint32_t>(hello.file_slots),
                             static_cast<std::uint32_t>(hello.leaf_shift), distance_of(link.kind),
                             hello.id < hello_.message.id ? own_rank - 1 : own_rank + 1});
        if (code != 0) why = error_text(code);
    }
    if (!why.empty()) {
        unmap(mapped);
        n.place = no_place;
        return why;
    }
    at.is = place::state::taken;
    n.reach = link.reason;
    n.lives.emplace(
        mapped.directory,
        life_reader::bounds{static_cast<std::uint32_t>(hello.file_slots), hello.word_count});
    return {};
}

void process_links::unmap(mapping& mapped) {
    for (const void*& array : mapped.array)
        if (array != nullptr) device_.unmap_foreign(std::exchange(array, nullptr));
    if (mapped.directory != nullptr)
        unmap_memory_of(std::exchange(mapped.directory, nullptr), mapped.directory_bytes);
}

void process_links::go_on(neighbour& n) {
    if (n.is_lost) return;
    if (n.at == neighbour::stage::greeted) {
        const std::uint64_t now = penstock::detail::host_now_ns();
        n.deadline_ns += engine::time_away(now - n.looked_ns, settings_.wait_ns);
        n.looked_ns = now;
        const bool is_late = now > n.deadline_ns;
        if (n.waiting != nullptr && (is_late || !waits_for_a_place())) {
            const std::unique_ptr<waiting_hello> said = std::move(n.waiting);
            take_hello(n, said->message, sizeof said->message, said->fds, is_late);
        } else if (is_late) {
            return drop(n, "does not say what it shares");
        }
    }
    if (n.at == neighbour::stage::placed && drain_.cycles() >= n.ticket) {
        links_.connect_guest(n.place);
        n.at = neighbour::stage::linked;
        answered_.notify_all();
        note(name_of(n) + " is linked (" + n.reach + ")");
    }
    refresh(n);
}

void process_links::refresh(neighbour& n) {
    if (n.is_lost || n.at != neighbour::stage::linked) return;
    n.lives->read([&](offered state, const file_life& life) {
        if (state == offered::nothing) links_.guest_has_none(n.place, life.slot);
        else links_.guest_has(n.place, life, state == offered::written);
    });
}

// Each answer says which version of the asker's directory is withdrawn here. For one that is not
// linked yet there are no entries here, so that is the version of which it asks, and none above:
// the link may be made, and have entries, before the answer is read.
void process_links::answer() {
    std::vector<std::pair<neighbour*, std::uint64_t>> owed;
    {
        const std::lock_guard lock(mutex_);
        for (const auto& n : neighbours_) {
            if (!n->owes_answer || n->is_lost) continue;
            refresh(*n);
            const std::uint64_t seen =
                n->at == neighbour::stage::linked ? n->lives->version() : n->asked;
            owed.emplace_back(n.get(), seen);
        }
    }
    links_.settle();
    const std::lock_guard lock(mutex_);
    for (const auto& [n, version] : owed) {
        const link_message seen{link_verb::seen, version};
        // -EAGAIN: with the next beat.
        n->owes_answer = send_message(n->socket.get(), &seen, sizeof seen) == -EAGAIN;
    }
}

// By the thread, without the lock: entries go first, then the place waits for its readers.
void process_links::remove_lost() {
    neighbours lost;
    {
        const std::lock_guard lock(mutex_);
        lost.reserve(neighbours_.size());
        for (auto& n : neighbours_)
            if (n->is_lost) lost.push_back(std::move(n));
        std::erase(neighbours_, nullptr);
        if (!lost.empty()) answered_.notify_all();
    }
    for (const auto& n : lost)
        if (n->place != no_place) links_.withdraw(n->place);
    const std::lock_guard lock(mutex_);
    for (const auto& n : lost) {
        if (n->place == no_place) continue;
        places_[n->place].is = place::state::draining;
        places_[n->place].ticket = drain_.begin();
    }
}

void process_links::drain() {
    // With no reader inside, all stages are over at once.
    constexpr int most_steps = 4;
    for (int i = 0; i < most_steps && !drain_.is_idle(); ++i) drain_.step();
    for (place& p : places_) {
        if (p.is != place::state::draining || drain_.cycles() < p.ticket) continue;
        unmap(p.mapped);
        p.is = place::state::free;
    }
}

}  // namespace penstock::host
