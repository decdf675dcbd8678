// Links of a cache with those of other processes that have its share name. Of a runtime of several
// devices each cache has links of its own, by which it finds the runtime's other caches too.
//
// A thread has the sockets: it takes newcomers, exchanges hellos (links/link_hello.hpp), maps the
// caches of others for reading, and with each beat reads their directories. A neighbour goes
// through these stages:
//
//   greeted     connected, and our hello is sent; its own must come within host_wait_ms, and may
//               wait that long for the place of one that leaves
//   placed      its memory is mapped and its view is on the device; readers that began before that
//               are waited for, so that each reader that finds an entry also finds the view
//   linked      its directory is read, and files that both have the same get entries
//   (left)      a bye, the socket's end, the process's end, or no answer in time: no entry leads to
//               it. Its memory stays mapped until no reader is inside, and then the place is free
//
// Two processes that start without the turn of newcomers may each connect to the other. Of two
// connections both sides keep the one that the side of the lower id made, whichever they hear
// first: else each might drop the one that the other keeps. A process that comes again, for its
// folder was gone, says so in its hello, and the link that is there stays.
//
// An open for writing is answered when all neighbours have withdrawn the file: the directory says
// it, a message asks for an answer, and the thread that serves the open waits for the answers for
// up to host_wait_ms. A neighbour that does not answer is left. What its groups still read of the
// file counts for nothing, since `granted` is set in the write record. A neighbour owes an answer
// from the time when it was sent a hello, for it may map and read from then on; what was said
// before that it finds in the directory.
//
// Nothing waits in a circle: the thread answers others without waiting for any service thread, and
// it holds no lock while it uploads for an answer.
//
// Locks: the registry's -> the table of links (observers); mutex_ -> the table. A fork holds
// mutex_, and its child closes the sockets: the others must see when this process ends. start()
// holds it too, but for naps, so that the child finds all sockets.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "links/life_directory.hpp"
#include "links/link_hello.hpp"
#include "links/links.hpp"
#include "links/visit_drain.hpp"
#include "os/link_socket.hpp"

namespace penstock::host {

struct process_link_settings {
    std::string name;
    std::uint64_t beat_ns = 20'000'000;
    std::uint64_t wait_ns = 900'000'000;
    std::function<void(const std::string&)> say;
};

class process_links final : public life_observer {
public:
    // Neighbours have a lower or a higher one, by the numbers of their hellos.
    static constexpr std::uint32_t own_rank = 1;

    // The cache's arrays are of allocate_shareable, and it has most_neighbours places and visits.
    process_links(cache_device& device, const engine::cache_view& view,
                  process_link_settings settings);
    ~process_links() override;

    // Finds the others, starts the thread, and waits for the links for a moment. What stands in the
    // way; then nothing is shared.
    status start();
    // No entry leads to another cache any more, and the others are told. Groups may still be inside
    // until the caller has waited for them; then end() unmaps.
    void leave();
    void end();

    // Of the file registry.
    void entered(const file_life& life) override;
    void written(const file_life& life) override;
    void ended(const file_life& life) override;
    void settle() override;

    // Around fork().
    void hold_for_fork() { mutex_.lock(); }
    void go_on_after_fork() { mutex_.unlock(); }
    void close_in_child();

    // How many neighbours are linked now, and in how many slots files are shared with them.
    [[nodiscard]] std::size_t linked();
    // The same, counted in processes other than this.
    [[nodiscard]] std::size_t linked_processes();
    [[nodiscard]] std::size_t shared_lives() { return links_.shared_lives(); }

private:
    static constexpr std::uint32_t no_place = UINT32_MAX;
    static constexpr std::size_t mapped_arrays = 4;

    struct mapping {
        std::array<const void*, mapped_arrays> array{};
        const std::byte* directory = nullptr;
        std::uint64_t directory_bytes = 0;
    };
    struct waiting_hello {
        link_hello message;
        received_fds fds;
    };
    enum class maker { other, self };  // of a connection
    struct neighbour {
        enum class stage { greeted, placed, linked } at = stage::greeted;
        maker made_by = maker::other;
        bool comes_again = false;  // its maker made it after the folder had gone
        owned_fd socket, process;
        link_peer peer;
        std::uint64_t id = 0;
        std::uint64_t deadline_ns = 0;      // greeted: until when
        std::uint64_t looked_ns = 0;        // greeted: when that was looked at
        std::uint64_t told = 0, acked = 0;  // versions of our directory
        std::uint64_t asked = 0;            // of its directory: of which it wants an answer
        std::uint64_t ticket = 0;           // placed: the cycle of the drain
        std::uint32_t place = no_place;
        bool owes_answer = false, is_lost = false;
        std::unique_ptr<waiting_hello> waiting;  // greeted: it waits for a place
        std::string reach;                       // for the log
        std::optional<life_reader> lives;
    };
    struct place {
        enum class state { free, taken, draining } is = state::free;
        mapping mapped;
        std::uint64_t ticket = 0;
    };
    using neighbours = std::vector<std::unique_ptr<neighbour>>;

    void run();
    void beat(std::unique_lock<std::mutex>& lock);
    // The rest: of the thread, with the lock, unless it says otherwise.
    void stay_found();
    void greet(owned_fd socket, maker made_by, bool comes_again = false);
    void hear(neighbour& n);
    [[nodiscard]] bool waits_for_a_place() const;
    [[nodiscard]] bool replaces(const neighbour& n, const neighbour& known, std::uint64_t id) const;
    void take_hello(neighbour& n, const link_hello& hello, std::size_t size, received_fds& fds,
                    bool is_late = false);
    [[nodiscard]] std::string map(neighbour& n, const link_hello& hello, received_fds& fds);
    void unmap(mapping& mapped);
    void go_on(neighbour& n);
    void refresh(neighbour& n);  // its directory
    void answer();               // without the lock
    void drop(neighbour& n, const std::string& why);
    void remove_lost();  // without the lock
    void drain();
    // By start().
    status meet(std::unique_lock<std::mutex>& lock);
    bool await_turn(std::unique_lock<std::mutex>& lock);
    [[nodiscard]] std::string name_of(const neighbour& n) const;
    // A line for the log, which is not called with the lock.
    void note(std::string line) { unsaid_.push_back(std::move(line)); }
    void say_notes();  // without the lock
    void await_answers();
    void ask(std::uint64_t version);  // with the lock
    void await_first();
    bool is_answered(std::uint64_t version) const;

    cache_device& device_;
    const engine::cache_view view_;
    const process_link_settings settings_;
    links links_;
    life_directory directory_;
    prepared_hello hello_;
    rendezvous meeting_;
    owned_fd wake_;

    std::atomic<std::uint64_t> written_version_{0};  // of the directory, with the last `written`
    std::atomic<bool> is_running_{false};

    std::mutex mutex_;  // guards the rest
    std::condition_variable answered_;
    bool stop_ = false;
    std::vector<std::string> unsaid_;
    neighbours neighbours_;
    std::array<place, engine::most_neighbours> places_;
    visit_drain<> drain_;
    bool is_deaf_ = false;         // to newcomers, for a beat: there are no descriptors for them
    std::uint64_t looked_ns_ = 0;  // when it was last seen that newcomers find the socket
    bool is_unfound_said_ = false;
    std::thread thread_;
};

}  // namespace penstock::host
