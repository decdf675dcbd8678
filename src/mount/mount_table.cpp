#include "mount/mount_table.hpp"

#include <fstream>
#include <sstream>

namespace penstock::mount {

namespace {

// As /proc has it: blanks and such as \040.
std::string unescaped(const std::string& text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\\' && i + 3 < text.size()) {
            out.push_back(static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                            (text[i + 3] - '0')));
            i += 3;
        } else {
            out.push_back(text[i]);
        }
    }
    return out;
}

}  // namespace

mount_entry mounted_at(const std::string& path) {
    mount_entry found;
    std::ifstream table("/proc/self/mountinfo");
    for (std::string line; std::getline(table, line);) {
        std::istringstream words(line);
        std::string word, point;
        mount_entry one;
        for (int i = 0; i < 5 && words >> word; ++i) (i == 2 ? one.device : point) = word;
        while (words >> word && word != "-") {
        }
        words >> one.type;
        if (unescaped(point) == path) found = one;
    }
    return found;
}

}  // namespace penstock::mount
