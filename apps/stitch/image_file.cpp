#include "image_file.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <vector>

#include "common/message.hpp"
#include "common/threads.hpp"
#include "common/files.hpp"
#include "penstock/base/hash.hpp"
#include "penstock/options.hpp"

namespace penstock::stitch {

namespace {

// A comment fills what is left.
std::string header_of(std::uint32_t width, std::uint32_t height) {
    const std::string sizes = std::to_string(width) + " " + std::to_string(height) + "\n65535\n";
    std::string out = "P5\n# penstock-stitch";
    out.append(image_header_bytes - out.size() - 1 - sizes.size(), ' ');
    return out + "\n" + sizes;
}

constexpr std::uint64_t piece_bytes = 1u << 20;

// Four words at a time, each in a chain of its own.
std::uint64_t hash_piece(const std::vector<char>& bytes) {
    std::uint64_t chains[4] = {1, 2, 3, 4};
    for (std::size_t at = 0; at < bytes.size(); at += sizeof chains) {
        std::uint64_t words[4];
        std::memcpy(words, bytes.data() + at, sizeof words);
        for (int i = 0; i < 4; ++i)
            chains[i] = std::rotl(chains[i] ^ words[i], 29) * 0x9e3779b97f4a7c15ull;
    }
    return mix64(chains[0] ^ mix64(chains[1] ^ mix64(chains[2] ^ mix64(chains[3]))));
}

}  // namespace

image_file::~image_file() { unmap(); }

status image_file::failed(int code, const std::string& cure) const {
    return {code, "output file " + shown_ + ": " + error_text(code) + "; " + cure};
}

status image_file::open(const std::string& path, std::uint32_t width, std::uint32_t height) {
    shown_ = apps::shown(path);
    width_ = width;
    height_ = height;
    if (status s = file_.open_named(path); !s) return s;
    fd_ = apps::unique_fd(::open(file_.passing_path().c_str(), O_RDWR | O_CLOEXEC));
    return fd_ >= 0 ? status{} : failed(-errno, "give another name");
}

status image_file::clear() {
    unmap();
    return ::ftruncate(fd_, 0) == 0 ? status{} : failed(-errno, "give another name");
}

status image_file::extend() {
    struct statvfs room {};
    if (::fstatvfs(fd_, &room) == 0 && room.f_blocks != 0 &&
        std::uint64_t{room.f_bavail} * room.f_frsize < bytes())
        return failed(-ENOSPC, "it gets " + format_size(bytes()) + " and " +
                                   format_size(std::uint64_t{room.f_bavail} * room.f_frsize) +
                                   " are free; make room or give another name");
    if (::ftruncate(fd_, static_cast<off_t>(bytes())) != 0)
        return failed(-errno, "make room or give another name");
    const std::string header = header_of(width_, height_);
    if (status s = write_at(header.data(), header.size(), 0); !s) return s;
    void* const at = ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (at == MAP_FAILED) return failed(-errno, "free some address space");
    mapped_ = static_cast<char*>(at);
    pixels_ = reinterpret_cast<std::uint16_t*>(mapped_ + image_header_bytes);
    return {};
}

void image_file::unmap() {
    if (mapped_ != nullptr) ::munmap(mapped_, bytes());
    mapped_ = nullptr;
    pixels_ = nullptr;
}

status image_file::write_at(const void* from, std::uint64_t bytes, std::uint64_t offset) const {
    return file_.write_at(from, bytes, offset);
}

status image_file::hash(std::uint32_t threads, std::uint64_t& out) const {
    std::atomic<std::uint64_t> all{bytes()};
    std::vector<std::vector<char>> rooms(threads);
    status ended = apps::on_pieces(
        threads, bytes(), piece_bytes,
        [&](std::uint32_t thread, std::uint64_t at, std::uint64_t count) {
            std::vector<char>& room = rooms[thread];
            room.resize(piece_bytes);
            std::fill(room.begin() + static_cast<std::ptrdiff_t>(count), room.end(), '\0');
            status s = apps::read_exactly(path(), fd_, room.data(), count, at);
            all.fetch_xor(mix64(hash_piece(room) + at));
            return s;
        });
    out = all;
    return ended;
}

}  // namespace penstock::stitch
