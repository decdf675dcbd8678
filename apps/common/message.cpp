// Writes messages and the progress bar, which make way for each other, to standard error.
#include "common/message.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
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
    constexpr int width = 40;
    const std::uint64_t shown = std::min(done, total);
    const int filled =
        total == 0
            ? width
            : static_cast<int>(static_cast<double>(shown) / static_cast<double>(total) * width);
    const std::string bar = std::string(static_cast<std::size_t>(filled), '#') +
                            std::string(static_cast<std::size_t>(width - filled), '.');
    std::fprintf(stderr, "\r%s [%s] %3d%%", label.c_str(), bar.c_str(),
                 total == 0 ? 100
                            : static_cast<int>(static_cast<double>(shown) /
                                               static_cast<double>(total) * 100));
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

progress::progress(std::string label, std::uint64_t total, std::function<std::uint64_t()> done,
                   bool wanted)
    : label_(std::move(label)), total_(total), done_(std::move(done)) {
    if (!wanted || ::isatty(STDERR_FILENO) != 1) return;
    try {
        thread_ = std::thread([this] { loop(); });
    } catch (const std::system_error&) {
        return;  // no thread, no bar; the work has its own to ask for
    }
}

progress::~progress() {
    if (!thread_.joinable()) return;
    {
        std::lock_guard lock(mutex_);
        stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
    clear_progress();
}

void progress::loop() {
    std::unique_lock lock(mutex_);
    // Work that ends within the first moments needs no bar.
    while (!wake_.wait_for(lock, std::chrono::milliseconds(250), [this] { return stop_; })) {
        lock.unlock();
        draw(label_, done_(), total_);
        lock.lock();
    }
}

}  // namespace penstock::apps
