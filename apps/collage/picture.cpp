// Pictures: told apart by their first bytes, opened, read whole, and written. Binary PPM needs no
// library.
#include "picture.hpp"

#include <algorithm>
#include <cerrno>
#include <csetjmp>
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

#if defined(PENSTOCK_WITH_PNG)
#include <png.h>
#endif

namespace penstock::collage {

namespace {

constexpr std::uint64_t most_pixels = std::uint64_t{1} << 32;
constexpr std::size_t reserved_bytes = std::size_t{1} << 30;

bool ends_with(const std::string& text, const std::string& end) {
    return text.size() >= end.size() &&
           text.compare(text.size() - end.size(), end.size(), end) == 0;
}

status write_ppm(const picture& image, apps::output_file& to) {
    const std::string head =
        "P6\n" + std::to_string(image.width) + " " + std::to_string(image.height) + "\n255\n";
    if (status failed = to.write(head.data(), head.size()); !failed) return failed;
    return to.write(reinterpret_cast<const char*>(image.rgb.data()), image.rgb.size());
}

#if defined(PENSTOCK_WITH_PNG)
// What the library's call-backs share with write_png.
struct png_output {
    apps::output_file* to;
    status ended;
    char text[160];
};

void put(png_structp png, png_bytep data, std::size_t bytes) {
    auto* const out = static_cast<png_output*>(png_get_io_ptr(png));
    out->ended = out->to->write(reinterpret_cast<const char*>(data), bytes);
    if (!out->ended.ok()) png_error(png, "write");
}

void flush(png_structp) {}

[[noreturn]] void on_error(png_structp png, png_const_charp text) {
    std::snprintf(static_cast<png_output*>(png_get_error_ptr(png))->text, sizeof png_output::text,
                  "%s", text);
    png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}

// Holds nothing with a destructor, for the library leaves it by a jump.
bool encode(png_structp png, png_infop info, const picture& image) {
    if (setjmp(png_jmpbuf(png)) != 0) return false;
    png_set_IHDR(png, info, image.width, image.height, 8, PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    // Large collages are written in seconds this way; trying all filters at the usual level takes
    // many times as long.
    png_set_compression_level(png, 2);
    png_set_filter(png, 0, PNG_FILTER_SUB);
    png_write_info(png, info);
    for (std::uint32_t y = 0; y < image.height; ++y)
        png_write_row(png, image.rgb.data() + std::size_t{y} * image.width * 3);
    png_write_end(png, info);
    return true;
}

status write_png(const picture& image, apps::output_file& to) {
    png_output out{&to, {}, {}};
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &out, on_error, on_warning);
    png_infop info = png != nullptr ? png_create_info_struct(png) : nullptr;
    bool done = false;
    if (info != nullptr) {
        png_set_write_fn(png, &out, put, flush);
        done = encode(png, info, image);
    }
    if (png != nullptr) png_destroy_write_struct(&png, &info);
    if (done || !out.ended.ok()) return out.ended;
    return {-EIO, std::string("writing the PNG: ") +
                      (info == nullptr ? "no memory for the PNG library" : out.text)};
}
#endif

}  // namespace

status load_picture(const std::string& path, picture& out) {
    std::unique_ptr<picture_reader> reader;
    if (status failed = open_picture(path, reader); !failed) return failed;
    out.width = reader->width();
    out.height = reader->height();
    if (std::uint64_t{out.width} * out.height > most_pixels)
        return {-EFBIG,
                apps::shown(path) + ": " + std::to_string(out.width) + " by " +
                    std::to_string(out.height) +
                    " pixels are more than a picture may have here (4 G); cut it into parts"};
    const std::size_t stride = std::size_t{out.width} * 3;
    out.rgb.reserve(std::min(stride * out.height, reserved_bytes));
    for (std::uint32_t y = 0; y < out.height; ++y) {
        // Grown as the rows come, so that a damaged head cannot ask for memory that its file does
        // not fill.
        out.rgb.resize(out.rgb.size() + stride);
        if (status failed = reader->read_row(out.rgb.data() + y * stride); !failed)
            return {failed.code, apps::shown(path) + ": " + failed.message};
    }
    return {};
}

status check_output_name(const std::string& path) {
    if (ends_with(path, ".ppm")) return {};
#if defined(PENSTOCK_WITH_PNG)
    if (ends_with(path, ".png")) return {};
    return {-EINVAL, "--out: " + apps::shown(path) +
                         " ends neither in .png nor in .ppm; give a name that does"};
#else
    return {-EINVAL, "--out: " + apps::shown(path) +
                         " does not end in .ppm, and this program was built without libpng; give a "
                         "name that does"};
#endif
}

status write_picture([[maybe_unused]] const std::string& path, const picture& image,
                     apps::output_file& to) {
#if defined(PENSTOCK_WITH_PNG)
    const status written = ends_with(path, ".png") ? write_png(image, to) : write_ppm(image, to);
#else
    const status written = write_ppm(image, to);
#endif
    return written.ok() ? to.commit() : written;
}

picture_kind kind_of_file(const std::string& path, int& code) {
    code = 0;
    // Without O_NONBLOCK a named pipe would hold the program until a writer opens it.
    const apps::unique_fd fd(apps::open_long(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    struct stat info {};
    unsigned char first[8] = {};
    ssize_t got = -1;
    if (fd >= 0 && ::fstat(fd, &info) == 0) {
        if (S_ISDIR(info.st_mode)) errno = EISDIR;
        else if (!S_ISREG(info.st_mode)) errno = EOPNOTSUPP;
        else got = ::pread(fd, first, sizeof first, 0);
    }
    if (got < 0) code = -errno;
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
