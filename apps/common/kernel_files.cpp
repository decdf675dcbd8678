#include "common/kernel_files.hpp"

#include <cerrno>

#include "common/message.hpp"

namespace penstock::apps {

status open_input(runtime& rt, const number_file& file, int& fd) {
    fd = rt.open(file.path);
    if (fd < 0)
        return {fd, shown(file.path) + ": " + error_text(fd) +
                        "; name a file of numbers that can be read"};
    file_stat now{};
    if (const int code = rt.stat(fd, &now); code != 0)
        return {code, shown(file.path) + ": " + error_text(code)};
    if (now.size_bytes == file.bytes) return {};
    return {-ESTALE, shown(file.path) + ": changed its size from " + with_commas(file.bytes) +
                         " to " + with_commas(now.size_bytes) +
                         " bytes; run again when no program writes to it"};
}

status open_result(runtime& rt, const output_file& file, int& fd) {
    fd = rt.open(file.passing_path(), open_write | open_truncate);
    if (fd >= 0) return {};
    return {fd, "output file " + shown(file.passing_path()) + ": " + error_text(fd) +
                    "; give another name"};
}

status close_result(runtime& rt, int fd, const status& written) {
    const int closed = rt.close(fd);
    if (!written.ok() || closed == 0) return written;
    const status why = rt.write_status();
    return {closed, "writing the result: " + (why.ok() ? error_text(closed) : why.message) +
                        "; make room, or give another name"};
}

std::uint64_t open_windows(runtime& rt, const std::vector<int>& fds) {
    std::uint64_t bytes = 0;
    for (const int fd : fds) {
        const std::int64_t got = rt.open_windows(fd);
        if (got > 0) bytes += static_cast<std::uint64_t>(got);
    }
    return bytes;
}

status read_error(const number_file& file, int code) {
    if (code == -ESTALE || code == -ERANGE)
        return {code, shown(file.path) +
                          ": changed while it was read; run again when no program writes to it"};
    if (code == -ENOBUFS)
        return {code,
                shown(file.path) + ": all pages of the cache are in use; use a larger --cache"};
    return {code, shown(file.path) + ": " + error_text(code)};
}

status write_error(int code) {
    return {code, "writing the result: " + error_text(code) + "; make room, or give another name"};
}

}  // namespace penstock::apps
