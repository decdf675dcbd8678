// Files that every device of a runtime has open, and their windows.
#include "penstock/shared_file.hpp"

#include <algorithm>
#include <cerrno>
#include <glob.h>

#include "runtime/runtime_state.hpp"

namespace penstock {

int runtime::allow_on_all(const std::string& path, int flags) {
    for (std::uint32_t i = 0; i < device_count(); ++i) {
        const int wanted = i == 0 ? flags : flags & static_cast<int>(engine::access_mask);
        const int code = state(i).files->allow(path, static_cast<std::uint32_t>(wanted));
        if (code != 0) return code;
    }
    return 0;
}

int runtime::open_allowed(std::uint32_t device, const std::string& path, int flags) {
    // The file was made just now, so it may be there.
    const int wanted =
        flags & (device == 0 ? ~open_exclusive : static_cast<int>(engine::access_mask));
    return state(device).device->open(state(device).ref, path.c_str(), wanted);
}

// allow_on_all made the file, if these flags ask for a new one, and there was no room to open it.
void runtime::take_back_new(const std::string& path, int flags, int code) {
    if ((flags & open_exclusive) != 0 && (code == -ENFILE || code == -ENOMEM))
        state().files->take_back_new(path);
}

shared_file runtime::open_everywhere(const std::string& path, int flags) {
    shared_file out;
    const bool sound = flags >= 0 && engine::sound_flags(static_cast<std::uint32_t>(flags));
    bool is_allowed = false;
    const auto open_all = [&] {
        int code = sound ? allow_on_all(path, flags) : -EINVAL;
        is_allowed = code == 0;
        for (std::uint32_t i = 0; i < device_count() && code >= 0; ++i)
            code = out.fds[i] = open_allowed(i, path, flags);
        return std::min(code, 0);
    };
    const int code = host::checked(state(), open_all);
    if (code == 0) return out;
    close(out);
    if (is_allowed) take_back_new(path, flags, code);
    std::fill_n(out.fds, most_runtime_devices, code);
    return out;
}

int runtime::close(const shared_file& file) {
    return host::checked(state(), [&] {
        if (file.code() != 0) return -EBADF;
        int first = 0;
        for (std::uint32_t i = 0; i < device_count(); ++i) {
            if (file.fds[i] < 0) continue;
            const int code = state(i).device->close(state(i).ref, file.fds[i]);
            if (first == 0) first = code;
        }
        return first;
    });
}

std::int64_t runtime::open_windows(int fd, std::int64_t offset, std::int64_t bytes) {
    shared_file file;
    file.fds[0] = fd;
    return open_windows_of(file, 1, offset, bytes);
}

std::int64_t runtime::open_windows(const shared_file& file, std::int64_t offset,
                                   std::int64_t bytes) {
    return open_windows_of(file, device_count(), offset, bytes);
}

std::int64_t runtime::open_windows_of(const shared_file& file, std::uint32_t devices,
                                      std::int64_t offset, std::int64_t bytes) {
    if (offset < 0 || bytes < 0) return -EINVAL;
    return host::checked(state(), [&]() -> std::int64_t {
        std::int64_t least = INT64_MAX;
        for (std::uint32_t i = 0; i < devices; ++i) {
            host::runtime_state& state = this->state(i);
            if (state.windows == nullptr) return -EOPNOTSUPP;
            const std::int64_t inside =
                state.open_windows(*state.windows, file.fds[i], static_cast<std::uint64_t>(offset),
                                   static_cast<std::uint64_t>(bytes), nullptr);
            if (inside < 0) return inside;
            least = std::min(least, inside);
        }
        return least;
    });
}

std::int64_t runtime::open_windows(const std::string& pattern) try {
    if (const int code = process_code(); code != 0) return code;
    if (pattern.find('\0') != std::string::npos) return -EINVAL;
    if (state().windows == nullptr) return -EOPNOTSUPP;
    glob_t found{};
    const int globbed = ::glob(pattern.c_str(), 0, nullptr, &found);
    std::int64_t sum = 0, first_error = 0;
    bool any = false;
    for (std::size_t i = 0; globbed == 0 && i < found.gl_pathc; ++i) {
        const shared_file file = open_everywhere(found.gl_pathv[i]);
        if (file.code() == -EISDIR || file.code() == -EOPNOTSUPP) continue;  // not a regular file
        const std::int64_t inside = file.code() != 0 ? file.code() : open_windows(file);
        if (file.code() == 0) close(file);
        any = any || inside >= 0;
        if (inside > 0) sum += inside;
        if (inside < 0 && first_error == 0) first_error = inside;
    }
    ::globfree(&found);
    if (globbed == GLOB_NOSPACE) return -ENOMEM;
    return any ? sum : first_error != 0 ? first_error : -ENOENT;
} catch (...) {
    return host::status_of_exception("").code;
}

}  // namespace penstock
