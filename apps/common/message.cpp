// Writes messages and the progress bar, which make way for each other, to standard error.
#include "common/message.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <system_error>
#include <unistd.h>

namespace penstock::apps {

namespace {

std::string& program_name() {
    static std::string name = "penstock";
    return name;
}

std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '\n') {
            out += "\\n";
        } else if (byte < 32 || byte == 127) {
            char code[8];
            std::snprintf(code, sizeof code, "\\x%02x", byte);
            out += code;
        } else {
            out += c;
        }
    }
    return out;
}

std::atomic<bool> bar_stands{false};

void draw(const std::string& label, std::uint64_t done, std::uint64_t total) {
    constexpr std::size_t width = 40;
    const double share =
        total == 0 ? 1 : static_cast<double>(std::min(done, total)) / static_cast<double>(total);
    std::string bar(static_cast<std::size_t>(share * width), '#');
    bar.resize(width, '.');
    std::fprintf(stderr, "\r%s [%s] %3d%%", label.c_str(), bar.c_str(),
                 static_cast<int>(share * 100));
    std::fflush(stderr);
    bar_stands = true;
}

}  // namespace

void set_program_name(const std::string& name) { program_name() = name; }

void say(const std::string& text) {
    if (text.empty()) return;
    clear_progress();
    const std::string line = program_name() + ": " + escaped(text) + "\n";
    // If standard error is gone, this failure cannot be reported either.
    static_cast<void>(!::write(STDERR_FILENO, line.data(), line.size()));
}

// In one write, as by say(): another thread may end the program at any time. The name was set
// before any handler was. If standard error is gone, this cannot be reported.
void say_in_handler(const char* text) {
    char line[512];
    std::size_t bytes = 0;
    const auto put = [&](const char* from, std::size_t count) {
        count = std::min(count, sizeof line - 1 - bytes);  // the line end has room
        std::memcpy(line + bytes, from, count);
        bytes += count;
    };
    const std::string& name = program_name();
    if (bar_stands.exchange(false)) put("\r\033[K", 4);
    put(name.data(), name.size());
    put(": ", 2);
    put(text, std::strlen(text));
    line[bytes++] = '\n';
    static_cast<void>(!::write(STDERR_FILENO, line, bytes));
}

std::string shown(const std::string& value) {
    std::string out(1, '\'');
    return out.append(escaped(value)).append(1, '\'');
}

std::string cure_for(int code, const std::string& usual) {
    switch (-code) {
        case EMFILE: return "raise the limit on open files (ulimit -n)";
        case ENFILE: return "the machine has no more open files; end some programs";
        case ENOMEM: return "free some memory";
        case ENOSPC: return "make room";
        case EDQUOT: return "make room below your quota";
        case EFBIG: return "make room: raise the limit on file sizes (ulimit -f)";
        case ETIMEDOUT: return "run again while the program gets processor time";
        default: return usual;
    }
}

std::string with_commas(unsigned long long number) {
    const std::string digits = std::to_string(number);
    std::string out;
    for (std::size_t i = 0; i < digits.size(); ++i) {
        if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
        out += digits[i];
    }
    return out;
}

void clear_progress() {
    if (!bar_stands.exchange(false)) return;
    std::fputs("\r\033[K", stderr);
    std::fflush(stderr);
}

progress::progress(const std::string& label, std::uint64_t total,
                   const std::function<std::uint64_t()>& done, bool wanted) {
    if (!wanted || ::isatty(STDERR_FILENO) != 1) return;
    const auto loop = [label, total, done](const std::stop_token& stop) {
        std::mutex mutex;
        std::condition_variable_any wake;
        std::unique_lock lock(mutex);
        // Work that ends within the first moments needs no bar.
        while (!wake.wait_for(lock, stop, std::chrono::milliseconds(250),
                              [&] { return stop.stop_requested(); }))
            draw(label, done(), total);
    };
    try {
        thread_ = std::jthread(loop);
    } catch (const std::system_error&) {
        return;  // no thread, no bar; the work has its own to ask for
    }
}

progress::~progress() {
    if (!thread_.joinable()) return;
    thread_.request_stop();
    thread_.join();
    clear_progress();
}

}  // namespace penstock::apps
