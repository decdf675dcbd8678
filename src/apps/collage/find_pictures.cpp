#include "find_pictures.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "common/message.hpp"
#include "picture_reader.hpp"
#include "tile.hpp"

namespace penstock::collage {

namespace {

namespace fs = std::filesystem;

void list(const fs::path& folder, std::vector<std::string>& files, found_pictures& out) {
    std::error_code failed;
    for (fs::directory_iterator it(folder, failed), end; !failed && it != end; it.increment(failed)) {
        std::error_code unknown;
        const fs::file_status is = it->symlink_status(unknown);
        if (fs::is_directory(is)) list(it->path(), files, out);
        else if (fs::is_regular_file(is)) files.push_back(it->path().string());
    }
    if (failed) out.complaints.push_back(apps::shown(folder.string()) + ": " + error_text(-failed.value()) + "; the pictures in it are left out");
}

}  // namespace

status find_pictures(const std::string& folder, found_pictures& out) {
    std::error_code failed;
    const fs::file_status is = fs::status(folder, failed);
    const int code = failed ? -failed.value() : !fs::exists(is) ? -ENOENT : !fs::is_directory(is) ? -ENOTDIR : 0;
    if (code != 0) return {code, apps::shown(folder) + ": " + error_text(code) + "; name a folder of pictures"};
    std::vector<std::string> files;
    list(folder, files, out);
    std::sort(files.begin(), files.end());
    for (const std::string& path : files) {
        int error = 0;
        if (kind_of_file(path, error) == picture_kind::other && error == 0) {
            ++out.other_files;
            continue;
        }
        std::unique_ptr<picture_reader> reader;
        if (const status opened = open_picture(path, reader); !opened.ok()) {
            out.complaints.push_back(opened.message + "; left out");
            continue;
        }
        if (reader->width() < tile_side || reader->height() < tile_side) ++out.too_small;
        else out.pictures.push_back({path, reader->width(), reader->height()});
    }
    if (!out.pictures.empty()) return {};
    return {-ENOENT, apps::shown(folder) + ": no picture in it that can be used (" + std::to_string(out.other_files) +
                         " other files, " + std::to_string(out.too_small) + " too small, " + std::to_string(out.complaints.size()) +
                         " unreadable); name a folder with JPEG, PNG or PPM pictures of 32 by 32 pixels or more"};
}

}  // namespace penstock::collage
