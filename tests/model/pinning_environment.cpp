#include "model/pinning_environment.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <sys/stat.h>

#include "penstock/base/hash.hpp"
#include "penstock/engine/layout.hpp"

namespace penstock::model {

namespace {

// A page that could not be kept would end the program by SIGBUS later, with nothing to tell why.
void require(bool good, const char* action) {
    if (good) return;
    std::perror((std::string("model: the environment could not ") + action).c_str());
    std::abort();
}

// Zeros follow a mapping up to the end of its last chunk. A reader that goes astray there is
// judged by the bytes it read, and not ended by a signal that tells nothing.
std::uint64_t room_of(std::uint64_t bytes) {
    constexpr std::uint64_t chunk = engine::window_chunk_bytes;
    return (bytes + chunk - 1) / chunk * chunk;
}

}  // namespace

int pinning_environment::map_file(int fd, std::uint64_t offset, std::uint64_t bytes,
                                  void*& address) {
    struct stat info {};
    if (::fstat(fd, &info) != 0) return -errno;
    void* mapping = nullptr;
    if (const int code = real_.map_file(fd, offset, bytes, mapping); code != 0) return code;
    const std::uint64_t length = first_orphan(bytes);
    address = ::mmap(nullptr, room_of(bytes), PROT_READ,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    require(address != MAP_FAILED, "reserve room for a mapping");
    require(::mremap(mapping, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, address) == address,
            "move a mapping");
    const auto size = static_cast<std::uint64_t>(info.st_size);
    const std::uint64_t reached = size <= offset ? 0 : std::min(bytes, size - offset);
    const std::lock_guard lock(mutex_);
    mapped_.push_back({static_cast<std::byte*>(address), offset, reached, info.st_dev, info.st_ino,
                       reached == bytes});
    return 0;
}

void pinning_environment::unmap_file(void* address, std::uint64_t bytes) {
    {
        const std::lock_guard lock(mutex_);
        std::erase_if(mapped_, [&](const mapped& m) { return m.address == address; });
    }
    real_.unmap_file(address, bytes);
    const std::uint64_t length = first_orphan(bytes);
    if (room_of(bytes) > length)
        ::munmap(static_cast<std::byte*>(address) + length, room_of(bytes) - length);
}

// Every piece of a mapping that the file fills can be read, in memory or not; of any other the
// system has the word.
int pinning_environment::resident(void* address, std::uint64_t bytes, std::uint64_t piece_bytes,
                                  std::vector<bool>& out) {
    if (const int code = real_.resident(address, bytes, piece_bytes, out); code != 0) return code;
    const std::lock_guard lock(mutex_);
    for (const mapped& m : mapped_) {
        if (m.address != address || !m.whole) continue;
        const residency mode = residency_.load();
        const std::uint64_t h = mix64(seed_ + ++asked_);
        for (std::size_t i = 0; i < out.size(); ++i)
            out[i] = mode == residency::everything ||
                     (mode == residency::by_chance && mix64(h + i) % 8 != 0);
    }
    return 0;
}

void pinning_environment::before_shrink(const std::string& path, std::uint64_t new_size_bytes) {
    struct stat info {};
    require(::stat(path.c_str(), &info) == 0, "look at a file that is going to shrink");
    const std::lock_guard lock(mutex_);
    for (const mapped& m : mapped_)
        if (m.device == info.st_dev && m.inode == info.st_ino)
            keep(m, first_orphan(new_size_bytes));
}

// Orphans of earlier times are copied along: their bytes stay what they are.
void pinning_environment::keep(const mapped& m, std::uint64_t from) {
    const std::uint64_t end = first_orphan(m.offset + m.bytes);
    if (from < m.offset) from = m.offset;
    if (from >= end) return;
    const std::uint64_t length = end - from;
    orphans_ += length / os_page_bytes;
    if (device_pins_) return;
    std::byte* const place = m.address + (from - m.offset);
    void* const copy =
        ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(copy != MAP_FAILED, "make a copy of mapped pages");
    std::memcpy(copy, place, length);
    require(::mprotect(copy, length, PROT_READ) == 0, "protect a copy");
    require(::mremap(copy, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place,
            "put a copy in place");
}

}  // namespace penstock::model
