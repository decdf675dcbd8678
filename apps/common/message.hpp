// Messages and progress of programs, on standard error.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <type_traits>

#include "penstock/error.hpp"

namespace penstock::apps {

// Exit statuses of every program.
inline constexpr int exit_done = 0;
inline constexpr int exit_failed = 1;
inline constexpr int exit_usage = 2;

// Sets the name that say() begins with; run_process() does.
void set_program_name(const std::string& name);

// The same line as by say(), for the handler of a signal after which the program ends: allocates
// nothing and takes no lock. `text` has no characters to escape; the line ends after 511 bytes.
void say_in_handler(const char* text);

// Prints "NAME: text" as one line in one write. Line ends inside the text are shown as \n, so that
// a line stays a line. Thread-safe; clears a progress bar that stands there. An empty text prints
// nothing: what it would say has been said, or is not worth a line.
void say(const std::string& text);

// A name or value as it appears in a message: in quotes, control characters escaped.
std::string shown(const std::string& value);

// The cure for a negative errno that is about a limit of the process or the machine, and not about
// the file that met it; for others `usual`.
std::string cure_for(int code, const std::string& usual);

// 1234567 -> "1,234,567".
std::string with_commas(unsigned long long number);

// The parts of a text, one after the other; whole numbers get commas.
template <typename... Parts>
std::string words(const Parts&... parts) {
    std::string out;
    const auto add = [&out](const auto& part) {
        if constexpr (std::is_integral_v<std::decay_t<decltype(part)>>) out += with_commas(part);
        else out += part;
    };
    (add(parts), ...);
    return out;
}

// A negative errno, and the words of its message.
template <typename... Parts>
status failure(int code, const Parts&... parts) {
    return {code, words(parts...)};
}

// A bar on standard error while long work runs; nothing at all unless that is a terminal. Shows how
// much of `total` is done, asking `done` about four times a second from a thread of its own, until
// destroyed. `done` must be callable from that thread all that time.
class progress {
public:
    progress(const std::string& label, std::uint64_t total,
             const std::function<std::uint64_t()>& done, bool wanted = true);
    ~progress();
    progress(const progress&) = delete;
    progress& operator=(const progress&) = delete;

private:
    std::jthread thread_;
};

// Wipes a bar off the line it stands on. Thread-safe.
void clear_progress();

}  // namespace penstock::apps
