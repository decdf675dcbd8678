// The frame of every program: how its process starts, which errors end it, and what a signal leaves
// behind (nothing).
#pragma once

#include <functional>
#include <string>

#include "penstock/error.hpp"

namespace penstock::apps {

// Runs a program: sets its name, opens /dev/null on descriptors 0 to 2 that the caller closed (so
// that no data file gets one of these numbers, and messages end nowhere), raises the soft limit on
// open files to the hard one, and makes writes to a closed pipe or past the limit on file sizes
// errors in place of signals. Then calls `body`.
//
// A signal that ends programs first tidies (leftover.hpp) and then ends this one, until
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

}  // namespace penstock::apps
