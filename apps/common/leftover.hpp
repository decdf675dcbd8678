// What a program has made and must not leave behind. Destructors tidy when it ends by itself; this
// is for a signal that ends it at once: its handler takes away everything that is noted here.
#pragma once

#include <string>
#include <sys/types.h>

#include "penstock/error.hpp"

namespace penstock::apps {

// One thing that exists now. Noted until forget() or the end of the object; one object notes one
// thing at a time. A path is noted as it stands, so the working directory must stay. When all room
// for notes is taken, nothing is noted.
class leftover {
public:
    leftover() = default;
    ~leftover() { forget(); }
    leftover(leftover&& other) noexcept : place_(other.place_) { other.place_ = none; }
    leftover& operator=(leftover&& other) noexcept;
    leftover(const leftover&) = delete;
    leftover& operator=(const leftover&) = delete;

    void file(const std::string& path);    // is removed
    void folder(const std::string& path);  // is removed, with the files that lie directly in it
    void mount(const std::string& point);  // is taken away
    void process(pid_t child);             // is killed
    void forget();

private:
    static constexpr int none = -1;
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

}  // namespace penstock::apps
