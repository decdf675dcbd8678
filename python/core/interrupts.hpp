// Ctrl-C in a call that waits for a disk.
//
// Python's handler of SIGINT only notes the signal; the note is looked at when the call is back in
// Python. So while the main thread is in such a call, a handler of ours stands before Python's: it
// calls that, and wakes a thread which interrupts the runtime. The call then ends with -ECANCELED,
// and raise_pending() runs Python's handlers.
#pragma once

#include <csignal>
#include <memory>

namespace penstock {

class runtime;

namespace python {

// Lives while a thread is in a call of the runtime that may wait. Does nothing on threads other
// than the main thread, or where the program ignores SIGINT or lets it end the process. A signal
// that came just before is Python's alone, so run_handlers() comes between this and the call.
class interruptible_call {
public:
    explicit interruptible_call(runtime& rt);
    ~interruptible_call();
    interruptible_call(const interruptible_call&) = delete;
    interruptible_call& operator=(const interruptible_call&) = delete;

    // As raise_pending(). A handler may choose what SIGINT does from now on: that stays, and is
    // watched, or not, as if it had been there before.
    void run_handlers();

    // Ends the watch. True: a signal came, so the runtime may be interrupted and has been resumed,
    // and the call may have failed with -ECANCELED for that reason alone.
    bool end();

private:
    void begin();
    bool end_and(bool is_ours);  // does our handler stand before Python's still?

    runtime& rt_;
    bool watching_ = false;
    struct sigaction before_ = {};
};

// The caller holds the GIL. Runs Python's handlers of signals; throws what they raise.
void raise_pending();

}  // namespace python
}  // namespace penstock
