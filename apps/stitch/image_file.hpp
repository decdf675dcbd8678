// The image that is made: a PGM file under a passing name, at its full size from the beginning,
// which threads store to through a mapping.
#pragma once

#include <cstdint>
#include <string>

#include "common/files.hpp"
#include "penstock/error.hpp"

namespace penstock::stitch {

// So many bytes of header, so that pixels lie as a processor likes them.
inline constexpr std::uint64_t image_header_bytes = 64;

class image_file {
public:
    image_file() = default;
    ~image_file();
    image_file(const image_file&) = delete;
    image_file& operator=(const image_file&) = delete;

    // Checks that `path` can be written; the file stands beside it until commit().
    status open(const std::string& path, std::uint32_t width, std::uint32_t height);
    // Nothing is in it. Threads have no mapping.
    status clear();
    // Full size, all background, mapped. -ENOSPC and a message if the file system has no room, for
    // a store to a mapping could not say so.
    status extend();
    void unmap();

    [[nodiscard]] std::uint16_t* pixels() const { return pixels_; }
    [[nodiscard]] std::uint64_t bytes() const {
        return image_header_bytes + 2 * std::uint64_t{width_} * height_;
    }
    [[nodiscard]] const std::string& path() const { return file_.passing_path(); }
    // Of rows: from memory to their place.
    [[nodiscard]] status write_at(const void* from, std::uint64_t bytes,
                                  std::uint64_t offset) const;

    // Of all bytes, as programs read them.
    status hash(std::uint32_t threads, std::uint64_t& out) const;
    status commit() { return file_.commit(); }

private:
    [[nodiscard]] status failed(int code, const std::string& cure) const;

    apps::output_file file_;
    std::string shown_;  // the name as given, for messages
    apps::unique_fd fd_;
    std::uint32_t width_ = 0, height_ = 0;
    char* mapped_ = nullptr;
    std::uint16_t* pixels_ = nullptr;
};

}  // namespace penstock::stitch
