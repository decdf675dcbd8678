// The process of a program: how it starts, which errors end it, what a signal leaves behind
// (nothing), and how long it takes.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <sys/resource.h>
#include <sys/types.h>
#include <utility>

#include "penstock/error.hpp"

namespace penstock::apps {

// Runs a program: sets its name, takes the numbers of descriptors 0 to 2 that the caller closed (so
// that no data file gets one of them; a write to them is the error EBADF), raises the soft limit on
// open files to the hard one, and makes writes to a closed pipe or past the limit on file sizes
// errors in place of signals. Then calls `body`.
//
// A signal that ends programs first tidies (class leftover) and then ends this one, until
// watch_signals() says otherwise. Memory or threads that cannot be had end the program with one
// line; `smaller` is the cure: "use a smaller graph".
int run_process(const char* name, const char* smaller, const std::function<int()>& body);

// From now on the first signal that ends programs (SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, ...)
// makes was_interrupted() true, so that the program ends in order. The second one tidies and ends
// it at once. -errno and a message if that cannot be set up.
status watch_signals();

// -ECANCELED and a message for a result that is not written, if was_interrupted(); else 0.
status not_interrupted();

// For a program whose main thread waits for `number`, which it has blocked: every other signal that
// ends programs becomes this one.
void turn_signals_into(int number);

enum class leftover_kind : int { unused, reserved, mount, process, file, folder };

// One thing that a program has made and must not leave behind. Destructors tidy when it ends by
// itself; this is for a signal that ends it at once: its handler takes away everything that is
// noted here. Noted until forget() or the end of the object; one object notes one thing at a time.
// A path is noted as it stands, so the working directory must stay. When all room for notes is
// taken, nothing is noted.
class leftover {
public:
    leftover() = default;
    ~leftover() { forget(); }
    leftover(leftover&& other) noexcept : place_(std::exchange(other.place_, none)) {}
    leftover& operator=(leftover&& other) noexcept {
        std::swap(place_, other.place_);
        return *this;
    }

    // Is removed.
    void file(const std::string& path) { note(leftover_kind::file, path); }
    // Is removed, with the files that lie directly in it.
    void folder(const std::string& path) { note(leftover_kind::folder, path); }
    // Is taken away, if it is there then. To be noted when it is mounted.
    void mount(const std::string& point) { note(leftover_kind::mount, point); }
    // Is killed.
    void process(pid_t child) { note(leftover_kind::process, {}, child); }
    void forget();

private:
    static constexpr int none = -1;
    void note(leftover_kind state, const std::string& path, pid_t child = 0);
    int place_ = none;
};

// While it lives, no signal ends the program: for making a thing and noting it. Short, and without
// waits.
class signal_pause {
public:
    signal_pause();
    ~signal_pause();
    signal_pause(const signal_pause&) = delete;
    signal_pause& operator=(const signal_pause&) = delete;

private:
    unsigned long before_[16];  // the thread's signal mask
};

// Takes away all that is noted. For signal handlers: allocates nothing and takes no lock. Once; a
// second caller waits until the first is done, at most some seconds.
void tidy_leftovers();

// What all threads of this process have used of the processors.
inline double cpu_seconds() {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    const auto seconds = [](const timeval& t) {
        return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    return seconds(used.ru_utime) + seconds(used.ru_stime);
}

class stopwatch {
public:
    // Seconds since the last lap, or since it was made.
    double lap() {
        const auto now = std::chrono::steady_clock::now();
        const double seconds = std::chrono::duration<double>(now - last_).count();
        last_ = now;
        return seconds;
    }

private:
    std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace penstock::apps
