// Whole pictures: reads them into memory, and writes them as PNG or binary PPM.
#include "picture.hpp"

#include <algorithm>
#include <cerrno>
#include <csetjmp>
#include <cstdio>

#include "common/message.hpp"

#if defined(PENSTOCK_WITH_PNG)
#include <png.h>
#endif

namespace penstock::collage {

namespace {

constexpr std::uint64_t most_pixels = std::uint64_t{1} << 32;
constexpr std::uint32_t most_png_side = 1u << 24;  // as of pictures that are read
constexpr std::size_t reserved_bytes = std::size_t{1} << 30;

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
    // The library refuses sides of more than a million unless told otherwise.
    png_set_user_limits(png, most_png_side, most_png_side);
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
    const bool had_room = info != nullptr;  // png_destroy_write_struct clears `info`
    bool done = false;
    if (had_room) {
        png_set_write_fn(png, &out, put, flush);
        done = encode(png, info, image);
    }
    if (png != nullptr) png_destroy_write_struct(&png, &info);
    if (done || !out.ended.ok()) return out.ended;
    return {-EIO, std::string("writing the PNG: ") +
                      (had_room ? out.text : "no memory for the PNG library")};
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
    if (path.ends_with(".ppm")) return {};
#if defined(PENSTOCK_WITH_PNG)
    if (path.ends_with(".png")) return {};
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
    const status written = path.ends_with(".png") ? write_png(image, to) : write_ppm(image, to);
#else
    const status written = write_ppm(image, to);
#endif
    return written.ok() ? to.commit() : written;
}

}  // namespace penstock::collage
