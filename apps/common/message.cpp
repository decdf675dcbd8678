#include "common/message.hpp"

#include <cerrno>
#include <cstdio>
#include <unistd.h>

#include "common/progress.hpp"

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

}  // namespace penstock::apps
