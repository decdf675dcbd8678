// Names of files in commands that people copy from a message into a shell.
#pragma once

#include <string>
#include <string_view>

namespace penstock::host {

// The name as one word of bash: as it is where the shell takes it so, else in quotes. A message
// stays one line. A name that begins as an option gets its folder.
inline std::string shell_word(const std::string& name) {
    constexpr std::string_view safe =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%+,-./:=@_";
    if (!name.empty() && name.front() == '-') return shell_word("./" + name);
    if (!name.empty() && name.find_first_not_of(safe) == std::string::npos) return name;
    const auto is_control = [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return byte < 32 || byte == 127;
    };
    bool has_control = false;
    for (const char c : name) has_control = has_control || is_control(c);
    std::string out = has_control ? "$'" : "'";
    for (const char c : name) {
        const auto byte = static_cast<unsigned char>(c);
        if (!has_control && c == '\'') {
            out += "'\\''";
        } else if (is_control(c)) {
            out += {'\\', static_cast<char>('0' + byte / 64), static_cast<char>('0' + byte / 8 % 8),
                    static_cast<char>('0' + byte % 8)};
        } else {
            if (has_control && (c == '\'' || c == '\\')) out += '\\';
            out += c;
        }
    }
    return out += '\'';
}

}  // namespace penstock::host
