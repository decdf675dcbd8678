// Pictures, told apart by their first bytes and opened; binary PPM needs no library.
#include "picture_reader.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "common/files.hpp"
#include "common/message.hpp"
#include "os/file_kind.hpp"
#include "penstock/runtime.hpp"

namespace penstock::collage {

picture_kind kind_of_file(const std::string& path, int& code) {
    code = 0;
    // Without O_NONBLOCK a named pipe would hold the program until a writer opens it.
    const int fd = apps::open_long(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat info {};
    unsigned char first[8] = {};
    ssize_t got = -1;
    if (fd >= 0 && ::fstat(fd, &info) == 0) {
        if (S_ISDIR(info.st_mode)) errno = EISDIR;
        else if (!S_ISREG(info.st_mode)) errno = EOPNOTSUPP;
        else got = ::pread(fd, first, sizeof first, 0);
    }
    if (got < 0) code = -errno;
    if (fd >= 0) ::close(fd);
    if (got >= 3 && std::memcmp(first, "\xff\xd8\xff", 3) == 0) return picture_kind::jpeg;
    if (got >= 8 && std::memcmp(first, "\x89PNG\r\n\x1a\n", 8) == 0) return picture_kind::png;
    if (got >= 3 && first[0] == 'P' && first[1] == '6' &&
        std::strchr(" \t\r\n", first[2]) != nullptr)
        return picture_kind::ppm;
    return picture_kind::other;
}

status open_picture_file(const std::string& path, std::FILE*& out, std::uint64_t& bytes) {
    const int fd = apps::open_long(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat info {};
    if (fd < 0 || ::fstat(fd, &info) != 0) {
        const int code = -errno;
        if (fd >= 0) ::close(fd);
        return {code, error_text(code) + "; name a picture that can be read"};
    }
    const std::string why = host::why_not_by_size(host::kind_of(fd, info));
    out = why.empty() ? ::fdopen(fd, "rb") : nullptr;
    const int code = why.empty() ? -errno : -EOPNOTSUPP;
    if (out == nullptr) ::close(fd);
    if (out == nullptr) return {code, why.empty() ? error_text(code) + "; free some memory" : why};
    bytes = static_cast<std::uint64_t>(info.st_size);
    return {};
}

status holds_too_little(const char* kind, std::uint32_t width, std::uint32_t height,
                        std::uint64_t bytes, std::uint64_t needed) {
    return {-EBADMSG, std::string("damaged ") + kind + ": it says that it has " +
                          apps::with_commas(width) + " by " + apps::with_commas(height) +
                          " pixels, which take " + apps::with_commas(needed) +
                          " bytes at least, and it has " + apps::with_commas(bytes)};
}

status read_to_the_end(picture_reader& of) {
    std::vector<std::uint8_t> row(std::size_t{of.width()} * 3);
    for (std::uint32_t y = 0; y < of.height(); ++y) {
        if (was_interrupted()) return {-ECANCELED, "interrupted"};
        if (status s = of.read_row(row.data()); !s) return s;
    }
    return {};
}

bool can_read(picture_kind kind) {
    switch (kind) {
#if defined(PENSTOCK_WITH_JPEG)
        case picture_kind::jpeg: return true;
#endif
#if defined(PENSTOCK_WITH_PNG)
        case picture_kind::png: return true;
#endif
        case picture_kind::ppm: return true;
        default: return false;
    }
}

const char* name_of(picture_kind kind) {
    switch (kind) {
        case picture_kind::jpeg: return "JPEG";
        case picture_kind::png: return "PNG";
        case picture_kind::ppm: return "PPM";
        default: return "unknown";
    }
}

status open_picture(const std::string& path, std::unique_ptr<picture_reader>& out) {
    int code = 0;
    const picture_kind kind = kind_of_file(path, code);
    if (code != 0)
        return {code,
                apps::shown(path) + ": " + error_text(code) + "; name a picture that can be read"};
    if (kind == picture_kind::other)
        return {-EBADMSG,
                apps::shown(path) +
                    ": neither JPEG, PNG nor binary PPM (P6); convert it to one of these"};
    if (!can_read(kind))
        return {-EOPNOTSUPP,
                apps::shown(path) + ": this program was built without the " + name_of(kind) +
                    " library; build it with that library, or convert the picture to binary PPM"};
    status opened = kind == picture_kind::jpeg  ? open_jpeg(path, out)
                    : kind == picture_kind::png ? open_png(path, out)
                                                : open_ppm(path, out);
    if (!opened.ok()) opened.message = apps::shown(path) + ": " + opened.message;
    return opened;
}

// Binary PPM: "P6", width, height, 255, one blank, then the pixels.

namespace {

constexpr std::uint32_t ppm_most_side = 1u << 24;

class ppm_reader final : public picture_reader {
public:
    ~ppm_reader() override {
        if (file_ != nullptr) std::fclose(file_);
    }

    status open(const std::string& path) {
        std::uint64_t bytes = 0;
        if (status s = open_picture_file(path, file_, bytes); !s) return s;
        std::uint32_t most = 0;
        std::fseek(file_, 2, SEEK_SET);
        if (!number(width_) || !number(height_) || !number(most) || width_ == 0 || height_ == 0)
            return {-EBADMSG,
                    "damaged PPM: no usable width, height and largest value in its first lines"};
        if (most != 255)
            return {-EOPNOTSUPP, "PPM with largest value " + std::to_string(most) +
                                     "; only 255 is read: convert it"};
        const auto needed =
            static_cast<std::uint64_t>(std::ftell(file_)) + std::uint64_t{3} * width_ * height_;
        if (bytes < needed) return holds_too_little("PPM", width_, height_, bytes, needed);
        return {};
    }

    status read_row(std::uint8_t* rgb) override {
        const std::size_t bytes = std::size_t{width_} * 3;
        if (std::fread(rgb, 1, bytes, file_) == bytes) return {};
        if (std::ferror(file_) != 0) return {-EIO, error_text(-errno) + " while reading"};
        return {-EBADMSG, "damaged PPM: it ends before its last row"};
    }

private:
    // A number behind blanks and comments, and the one character after it.
    bool number(std::uint32_t& out) {
        int c = std::fgetc(file_);
        while (c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '#') {
            if (c == '#')
                while (c != '\n' && c != EOF) c = std::fgetc(file_);
            else c = std::fgetc(file_);
        }
        out = 0;
        bool any = false;
        for (; c >= '0' && c <= '9' && out < ppm_most_side; c = std::fgetc(file_), any = true)
            out = out * 10 + static_cast<std::uint32_t>(c - '0');
        return any && out < ppm_most_side && (c == ' ' || c == '\t' || c == '\r' || c == '\n');
    }

    std::FILE* file_ = nullptr;
};

}  // namespace

status open_ppm(const std::string& path, std::unique_ptr<picture_reader>& out) {
    auto reader = std::make_unique<ppm_reader>();
    if (status failed = reader->open(path); !failed) return failed;
    out = std::move(reader);
    return {};
}

}  // namespace penstock::collage
