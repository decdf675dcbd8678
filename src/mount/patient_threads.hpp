// Threads for work that may wait as long as the source of a mount does: one, and more while that
// one waits.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace penstock::mount {

// Thread-safe, but for begin() and end().
class patient_threads {
public:
    // Pieces of work that wait for the source at one time. A further one waits for one of these.
    static constexpr std::size_t most_at_once = 16;

    patient_threads() = default;
    ~patient_threads() { end(); }
    patient_threads(const patient_threads&) = delete;
    patient_threads& operator=(const patient_threads&) = delete;

    // Makes the first thread, which prepares itself before it takes work. It makes the others,
    // which have its mask of signals, its rights and its descriptors. Without this call the first
    // put() makes a thread that has those of its caller. Throws what std::thread throws.
    void begin(const std::function<void()>& prepare);

    // Takes the work over; pieces begin in the order in which they came. False: no memory, no
    // thread, or end() was called.
    bool put(std::function<void()> work);

    // Does what was put and takes no more.
    void end();

private:
    void serve();
    void add_thread();

    std::mutex lock_;
    std::condition_variable changed_;
    // Guarded by lock_:
    std::deque<std::function<void()>> waiting_;
    std::vector<std::thread> threads_;
    unsigned idle_ = 0;
    bool is_ending_ = false;
};

}  // namespace penstock::mount
