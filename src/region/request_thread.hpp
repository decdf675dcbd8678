// The requests of a region that go on by themselves, one after the other in the order in which they
// were made, on a thread that the first of them starts.
//
// Each wait of a stream is bounded. A request needs calls of the driver, and the driver may hold
// these up until the stream goes on: where a program loads a kernel or frees memory behind the
// request, say. So a second thread lets the stream go on without a request that takes too long,
// and without those behind it, for it may take until the stream is past all of them.
//
// A request, by its number, goes through these states:
//   entered   its turn has begun: the stream will come to it, and wait
//   came      the stream waits for it, since `came`
//   ended     the stream goes on, because its work is done, or because it is late: it came longer
//             than `longest` ago. Its result is then set. Requests end in order: none is late
//             before all that were made earlier have ended.
//   gone      its work is done too, which begins in order whether it is late or not
// Of the words by which the two threads and the streams tell each other:
//   - `came` of a turn is written by its stream alone. The thread that serves waits for that of the
//     first request, unless it is known to have come: once a request has ended, its stream may be
//     past it and its turn be that of a later request. The thread that watches looks at those
//     behind the first, from when the first has come until it is gone.
//   - `ended` of the turns is written under queue_, by both threads, and only grows: a late request
//     whose work is done at last has a smaller number than those that ended meanwhile, and streams
//     that have not looked yet would wait again.
//
// Locks: `calls_` while a request is made, so that its number, its place in the queue and its turn
// on the stream are in one order; `queue_` while the queue is changed. A caller that holds a lock
// which a request needs must not call anything here.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "region/stream_turns.hpp"

namespace penstock::region {

// How a request ended. Shared by the thread that serves it and by all that wait for it.
class request_end {
public:
    [[nodiscard]] bool is_done() const;
    std::int64_t wait() const;
    // The first result stays.
    void set(std::int64_t result);

private:
    mutable std::mutex mutex_;
    mutable std::condition_variable done_;
    bool is_set_ = false;  // both guarded by mutex_
    std::int64_t result_ = 0;
};

// A request that has ended with this result.
std::shared_ptr<request_end> ended(std::int64_t result);

class request_thread {
public:
    using work = std::function<std::int64_t()>;  // throws nothing
    using turns_maker = std::function<std::unique_ptr<stream_turns>(int& code)>;

    // A stream waits no longer than `longest` for a request to which it has come, or for the end of
    // the one before it if that comes later; then the request's end is -ETIMEDOUT, and `late` is
    // called. Where no stream waits, requests take as long as they take.
    request_thread(turns_maker make_turns, std::chrono::milliseconds longest,
                   std::function<void()> late)
        : make_turns_(std::move(make_turns)), longest_(longest), late_(std::move(late)) {}
    // Serves what was asked for.
    ~request_thread();
    request_thread(const request_thread&) = delete;
    request_thread& operator=(const request_thread&) = delete;

    // The work begins when the stream has come here, and the stream goes on when it has ended. Its
    // end is a negative errno if it was not begun: of the turn, of the stream, -EBADF after
    // refuse(), -ENOMEM or -EAGAIN without memory or a thread.
    std::shared_ptr<request_end> add(void* stream, work todo);
    // Waits until all that was asked for has ended.
    void drain();
    // The same, and from then on add() gives -EBADF until allow(), which makes all as it was.
    void refuse();
    void allow();
    // Ends the thread, after refuse(), and gives up the turns: their memory may end then.
    void stop();

private:
    struct request {
        std::uint32_t number;
        work todo;
        std::shared_ptr<request_end> end;
        // When its stream had come to it; guarded by queue_.
        std::optional<std::chrono::steady_clock::time_point> came;
    };
    std::int64_t enter(void* stream, work&& todo, const std::shared_ptr<request_end>& end);
    void start();
    void serve();
    void watch();
    // All under queue_. Numbers may begin again at 0 one day.
    static bool is_up_to(std::uint32_t number, std::uint32_t last) {
        return static_cast<std::int32_t>(last - number) >= 0;
    }
    [[nodiscard]] bool is_entered() const {
        return !waiting_.empty() && is_up_to(waiting_.front().number, entered_);
    }
    void note_arrivals(std::chrono::steady_clock::time_point now);
    [[nodiscard]] request* first_to_end();
    void let_go(const request& of);

    const turns_maker make_turns_;
    const std::chrono::milliseconds longest_;
    const std::function<void()> late_;
    std::mutex calls_;
    // Guarded by calls_; the thread reads turns_, which it is started after:
    std::unique_ptr<stream_turns> turns_;
    std::uint32_t last_number_ = 0;
    bool refuses_ = false;
    std::thread thread_, watch_;

    std::mutex queue_;
    // Apart, so that the caller of a request wakes one thread and no more, which costs it some
    // microseconds.
    std::condition_variable may_serve_;   // to the thread that serves
    std::condition_variable may_watch_;   // to the thread that watches: there is more to look at
    std::condition_variable fewer_wait_;  // to drain()
    // Guarded by queue_:
    std::deque<request> waiting_;  // the first is being served; the last may not be entered yet
    std::uint32_t entered_ = 0;    // the number of the last request whose turn has begun
    std::uint32_t ended_ = 0;      // and of the last that ended
    bool ends_ = false;
};

}  // namespace penstock::region
