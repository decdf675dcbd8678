// PNG through libpng: any kind of it, as 8 bits of red, green and blue. Transparency is dropped,
// not blended.
#include <cerrno>

#include "picture_reader.hpp"

#if defined(PENSTOCK_WITH_PNG)
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <png.h>
#include <vector>

namespace penstock::collage {

namespace {

constexpr std::uint32_t most_side = 1u << 24;
constexpr std::uint64_t most_ratio = 1032;  // by which deflate can shrink

// Interlaced pictures are complete only after their last pass and are held whole.
constexpr std::uint64_t most_interlaced_bytes = std::uint64_t{3} << 30;

class png_reader final : public library_reader {
public:
    png_reader() : library_reader("PNG") {}
    ~png_reader() override {
        if (png_ != nullptr) png_destroy_read_struct(&png_, &info_, nullptr);
    }

    status open(const std::string& path) {
        if (status failed = open_file(path); !failed) return failed;
        png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
        info_ = png_ != nullptr ? png_create_info_struct(png_) : nullptr;
        if (info_ == nullptr) return {-ENOMEM, "no memory for the PNG library; free some"};
        if (!start()) return damage();
        const std::uint64_t needed = (raw_bytes_ + most_ratio - 1) / most_ratio;
        return file_bytes_ >= needed
                   ? status{}
                   : holds_too_little("PNG", width_, height_, file_bytes_, needed);
    }

    status read_row(std::uint8_t* rgb) override {
        if (passes_ == 1) return read(rgb) ? status{} : damage();
        const std::size_t stride = std::size_t{width_} * 3;
        if (whole_.empty()) {
            if (std::uint64_t{stride} * height_ > most_interlaced_bytes)
                return {-EFBIG,
                        "an interlaced PNG of more than 1 G pixels; store it without interlacing"};
            whole_.resize(stride * height_);
            for (int pass = 0; pass < passes_; ++pass)
                for (std::uint32_t y = 0; y < height_; ++y)
                    if (!read(whole_.data() + y * stride)) return damage();
        }
        std::memcpy(rgb, whole_.data() + next_row_++ * stride, stride);
        return {};
    }

private:
    [[noreturn]] static void on_error(png_structp png, png_const_charp text) {
        auto* const self = static_cast<png_reader*>(png_get_error_ptr(png));
        std::snprintf(self->text_, sizeof self->text_, "%s", text);
        png_longjmp(png, 1);
    }
    static void on_warning(png_structp, png_const_charp) {}

    bool start() {
        if (setjmp(png_jmpbuf(png_)) != 0) return false;
        png_init_io(png_, file_);
        png_set_user_limits(png_, most_side, most_side);
        png_read_info(png_, info_);
        width_ = png_get_image_width(png_, info_);
        height_ = png_get_image_height(png_, info_);
        raw_bytes_ = (png_get_rowbytes(png_, info_) + 1) * std::uint64_t{height_};
        png_set_expand(png_);
        png_set_scale_16(png_);
        png_set_gray_to_rgb(png_);
        png_set_strip_alpha(png_);
        passes_ = png_set_interlace_handling(png_);
        png_read_update_info(png_, info_);
        if (png_get_rowbytes(png_, info_) != std::size_t{width_} * 3)
            png_error(png_, "a kind of pixel that is not known");
        return true;
    }

    bool read(std::uint8_t* rgb) {
        if (setjmp(png_jmpbuf(png_)) != 0) return false;
        png_read_row(png_, rgb, nullptr);
        return true;
    }

    png_structp png_ = nullptr;
    png_infop info_ = nullptr;
    int passes_ = 1;
    std::uint64_t raw_bytes_ = 0;  // of all rows before they are shrunk
    std::vector<std::uint8_t> whole_;
    std::size_t next_row_ = 0;
};

}  // namespace

status open_png(const std::string& path, std::unique_ptr<picture_reader>& out) {
    return open_with<png_reader>(path, out);
}

}  // namespace penstock::collage

#else

namespace penstock::collage {

status open_png(const std::string&, std::unique_ptr<picture_reader>&) {
    return {-EOPNOTSUPP, "built without the PNG library"};
}

}  // namespace penstock::collage

#endif
