// Files that are nothing but numbers: checks them, and writes random ones.
#include "common/numbers.hpp"

#include <algorithm>
#include <sys/stat.h>

#include "common/threads.hpp"

namespace penstock::apps {

status open_numbers(const std::string& path, const std::string& content, number_file& out) {
    out.path = path;
    struct stat info {};
    if (status s = look_at_input(path, "name a file of numbers that can be read", info); !s)
        return s;
    out.bytes = static_cast<std::uint64_t>(info.st_size);
    if (out.bytes == 0)
        return {-EINVAL, shown(path) + ": is empty; name a " + content + " of at least one number"};
    if (out.bytes % sizeof(float) != 0)
        return {-EINVAL, shown(path) + ": has " + with_commas(out.bytes) +
                             " bytes, which are no whole number of numbers of 4 bytes; copy it "
                             "again or make it again"};
    return {};
}

status fill_with_numbers(const output_file& file, std::uint64_t start, std::uint64_t count,
                         std::uint32_t threads) {
    constexpr std::uint64_t piece_numbers = 1u << 20;
    return on_pieces(
        threads, count, piece_numbers, [&](std::uint32_t, std::uint64_t first, std::uint64_t here) {
            std::vector<float> piece(here);
            for (std::uint64_t i = 0; i < here; ++i)
                piece[i] = 2 * even_number(start, first + i) - 1;
            return file.write_at(piece.data(), here * sizeof(float), first * sizeof(float));
        });
}

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
    return write_error(closed, why.ok() ? error_text(closed) : why.message);
}

namespace {

template <typename File>
std::uint64_t open_windows_of(runtime& rt, const std::vector<File>& files) {
    std::uint64_t bytes = 0;
    for (const File& file : files) {
        const std::int64_t got = rt.open_windows(file);
        if (got > 0) bytes += static_cast<std::uint64_t>(got);
    }
    return bytes;
}

}  // namespace

std::uint64_t open_windows(runtime& rt, const std::vector<int>& fds) {
    return open_windows_of(rt, fds);
}

std::uint64_t open_windows(runtime& rt, const std::vector<shared_file>& files) {
    return open_windows_of(rt, files);
}

status read_error(const number_file& file, int code) {
    const bool changed = code == -ESTALE || code == -ERANGE;
    return {code,
            shown(file.path) + ": " +
                (changed ? "changed while it was read; run again when no program writes to it"
                 : code == -ENOBUFS ? "all pages of the cache are in use; use a larger --cache"
                                    : error_text(code))};
}

status write_error(int code, const std::string& reason) {
    return {code, "writing the result: " + (reason.empty() ? error_text(code) : reason) +
                      "; make room, or give another name"};
}

}  // namespace penstock::apps
