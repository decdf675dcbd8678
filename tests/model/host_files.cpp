#include "model/host_files.hpp"

#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "os/env.hpp"

namespace penstock::model {

namespace {

void require(bool good, const std::string& action) {
    if (good) return;
    std::perror(("model: the host could not " + action).c_str());
    std::abort();
}

}  // namespace

host_files::host_files(const world& w, const std::string& folder, file_state* states)
    : w_(w), folder_(folder), states_(states) {
    for (std::uint32_t file = 0; file < w_.files(); ++file) {
        if (w_.is_big(file)) create_big(file);
        else create_whole(path_of(file), file, 0);
        const std::string name = "f" + std::to_string(file),
                          link = folder_ + "/l" + std::to_string(file);
        require(::symlink(name.c_str(), link.c_str()) == 0, "link " + link);
    }
}

std::string host_files::path_of(std::uint32_t file) const {
    return folder_ + "/f" + std::to_string(file);
}

bool host_files::can_be_read_directly() const {
    host::environment& system = host::linux_environment();
    const int fd = ::open(path_of(0).c_str(), O_RDONLY | O_CLOEXEC);
    require(fd >= 0, "open " + path_of(0));
    std::uint32_t grain_bytes = 0;
    const int direct = system.open_direct(fd, grain_bytes);
    ::close(fd);
    if (direct < 0) return false;
    alignas(4096) static std::byte place[65536];
    const bool good = grain_bytes <= std::min<std::uint64_t>(w_.page_bytes, sizeof place) &&
                      system.read(direct, place, grain_bytes, 0) >= 0;
    system.close(direct);
    return good;
}

void host_files::write_range(int fd, std::uint32_t file, std::uint64_t version, std::uint64_t begin,
                             std::uint64_t end) {
    buffer_.resize(end - begin);
    for (std::uint64_t at = begin; at < end; ++at)
        buffer_[at - begin] = byte_of(w_, file, version, at);
    for (std::uint64_t done = 0; done < buffer_.size();) {
        const ssize_t got = ::pwrite(fd, buffer_.data() + done, buffer_.size() - done,
                                     static_cast<off_t>(begin + done));
        require(got > 0, "write");
        done += static_cast<std::uint64_t>(got);
    }
}

void host_files::create_whole(const std::string& path, std::uint32_t file, std::uint64_t version) {
    const int fd = ::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    require(fd >= 0, "create " + path);
    write_range(fd, file, version, 0, size_of(w_, file, version));
    ::close(fd);
}

void host_files::create_big(std::uint32_t file) {
    const int fd = ::open(path_of(file).c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
    const std::uint64_t size = size_of(w_, file, 0);
    require(fd >= 0 && ::ftruncate(fd, static_cast<off_t>(size)) == 0, "create a big file");
    for (std::uint32_t i = 0; i < big_regions; ++i) {
        const std::uint64_t begin = region_start(w_, file, i) * w_.page_bytes;
        const std::uint64_t end = begin + region_pages * w_.page_bytes;
        write_range(fd, file, 0, begin, end < size ? end : size);
    }
    ::close(fd);
}

// The order of the steps keeps every size that can be seen between the old and the new one, and
// every byte inside it a byte of one of the two.
void host_files::rewrite(std::uint32_t file, std::uint64_t version) {
    const int fd = ::open(path_of(file).c_str(), O_WRONLY | O_CLOEXEC);
    require(fd >= 0, "open " + path_of(file));
    const std::uint64_t old_size = size_of(w_, file, version - 1),
                        new_size = size_of(w_, file, version);
    if (new_size < old_size) {
        before_shrink(path_of(file), new_size);
        require(::ftruncate(fd, static_cast<off_t>(new_size)) == 0, "shrink");
    }
    write_range(fd, file, version, 0, new_size);
    ::close(fd);
}

void host_files::change(std::uint32_t file) {
    if (w_.is_big(file)) return;
    file_state& state = states_[file];
    const std::uint64_t version = atomic_load<order::relaxed>(&state.done) + 1;
    const std::string path = path_of(file);
    atomic_store<order::release, scope::system>(&state.begun, version);
    atomic_fence();
    if (!exists(w_, file, version)) {
        if (exists(w_, file, version - 1)) require(::unlink(path.c_str()) == 0, "remove " + path);
    } else if (exists(w_, file, version - 1) && made_in_place(w_, file, version)) {
        rewrite(file, version);
    } else {
        create_whole(path + ".new", file, version);
        require(::rename((path + ".new").c_str(), path.c_str()) == 0, "rename");
    }
    atomic_store<order::release, scope::system>(&state.done, version);
    ++changes_;
}

}  // namespace penstock::model
