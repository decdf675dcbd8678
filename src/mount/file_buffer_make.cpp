// How the buffer of a mount begins and ends, and what it tells.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <new>
#include <system_error>

#include "mount/file_buffer.hpp"

namespace penstock::mount {

status file_buffer::make(const buffer_options& wanted, unsigned threads,
                         std::function<void(const std::string&)> note,
                         std::unique_ptr<file_buffer>& out) try {
    out.reset();
    if (status s = check(wanted, threads); !s) return s;
    std::unique_ptr<file_buffer> made(new file_buffer);
    made->how_ = wanted;
    made->note_ = std::move(note);
    const buffer::manager_settings shape = settings_of(wanted, threads);
    if (status s = make_frames(wanted, buffer::frames_for(shape), made->frames_, made->on_gpu_); !s)
        return s;
    if (status s =
            buffer::manager::make(shape, *made->frames_, host::linux_environment(), made->all_);
        !s)
        return s;
    if (!made->sessions_.fill(*made->all_, threads))
        return {-ENOMEM, "the host has no memory for the buffer's sessions; give fewer --threads"};
    made->nowhere_ = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (made->nowhere_ < 0)
        return {-errno, "/dev/null: " + error_text(-errno) + "; the buffer needs it"};
    constexpr std::uint64_t least_bytes = 16u << 20, word_bytes = 4;
    made->most_pages_ = std::max(least_bytes, wanted.ram_bytes / 8) / word_bytes;
    out = std::move(made);
    return {};
} catch (const std::bad_alloc&) {
    return {-ENOMEM,
            "the host has no memory for the buffer's tables; give less with --ram or --gpu"};
}

file_buffer::~file_buffer() {
    for (const auto& [key, file] : files_)
        if (file->fd >= 0) ::close(file->fd);
    if (nowhere_ >= 0) ::close(nowhere_);
}

void file_buffer::say_cached(const std::string& path) {
    if (cached_.exchange(true)) return;
    std::error_code failed;
    const std::filesystem::path name = std::filesystem::read_symlink(path, failed);
    note_("the file system of '" + (failed ? path : name.string()) +
          "' cannot read past the operating system's page cache, which keeps its files beside the "
          "buffer");
}

void file_buffer::say_no_memory() {
    if (!no_memory_.exchange(true))
        note_(
            "the host has no memory for what the buffer knows of files; those that are opened now "
            "are read from the source");
}

void file_buffer::say_copies() {
    if (copies_.exchange(true)) return;
    note_(
        "this kernel has no mappings of files that it keeps no pages of (Linux 6.6 has), so it "
        "keeps copies of what programs read, beside the buffer");
}

// By the first regular file that is found near the top; without one, the first that is read tells.
void file_buffer::try_directory(const std::string& path) {
    constexpr int most_names = 1000;
    std::error_code failed;
    int names = 0;
    for (std::filesystem::recursive_directory_iterator
             at(path, std::filesystem::directory_options::skip_permission_denied, failed),
         end;
         !failed && at != end && names < most_names; at.increment(failed), ++names) {
        if (!at->is_regular_file(failed) || at->is_symlink(failed)) continue;
        const int fd = ::open(at->path().c_str(),
                              O_RDONLY | O_DIRECT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW);
        if (fd < 0 && errno != EINVAL) continue;
        if (fd < 0) say_cached(at->path().string());
        else ::close(fd);
        return;
    }
}

buffer_report file_buffer::report() {
    sessions_.tell_hits();
    return {all_->counts(), reads_outside_, on_gpu_, !cached_, copies_};
}

}  // namespace penstock::mount
