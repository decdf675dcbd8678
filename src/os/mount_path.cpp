#include "os/mount_path.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace penstock::host {

namespace {

// Blanks, line ends and backslashes stand there as octal numbers: "\040".
std::string plain(const std::string& text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const bool is_number = text[i] == '\\' && i + 3 < text.size() &&
                               text.find_first_not_of("01234567", i + 1) > i + 3;
        if (!is_number) {
            out += text[i];
            continue;
        }
        out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                 (text[i + 3] - '0'));
        i += 3;
    }
    return out;
}

bool lies_below(const std::string& path, const std::string& directory) {
    if (directory == "/") return true;
    return path.compare(0, directory.size(), directory) == 0 &&
           (path.size() == directory.size() || path[directory.size()] == '/');
}

}  // namespace

mounted_place place_in_file_system(const std::string& real_path, const std::string& mounts) {
    std::istringstream lines(mounts);
    std::string line, best_point, best_root, file_system;
    while (std::getline(lines, line)) {
        std::istringstream fields(line);
        std::string number, parent, device, root, point, type, source;
        if (!(fields >> number >> parent >> device >> root >> point)) continue;
        point = plain(point);
        // Of two mounts at one place the later hides the earlier.
        if (point.size() < best_point.size() || !lies_below(real_path, point)) continue;
        best_point = point;
        best_root = plain(root);
        // A single "-" ends the fields of which there may be any number.
        std::istringstream rest(line.substr(std::min(line.find(" - "), line.size())));
        rest >> type >> type >> source;
        file_system = plain(type) + " " + plain(source);
    }
    if (best_point.empty()) return {};
    const std::string rest = best_point == "/" ? real_path : real_path.substr(best_point.size());
    return {best_root == "/" ? rest : best_root + rest, file_system};
}

mounted_place place_in_file_system(const std::string& real_path) {
    std::ifstream file("/proc/thread-self/mountinfo");
    std::ostringstream text;
    text << file.rdbuf();
    return place_in_file_system(real_path, text.str());
}

}  // namespace penstock::host
