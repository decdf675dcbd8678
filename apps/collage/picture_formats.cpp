// Readers: JPEG through libjpeg-turbo and PNG through libpng, each where the program was built with
// it, and binary PPM.
#include <algorithm>
#include <cerrno>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <string_view>
#include <unistd.h>

#include "common/message.hpp"
#include "os/file_kind.hpp"
#include "picture.hpp"

#if defined(PENSTOCK_WITH_JPEG)
#include <jpeglib.h>
#include <jerror.h>
#endif
#if defined(PENSTOCK_WITH_PNG)
#include <png.h>
#endif

namespace penstock::collage {

namespace {

constexpr std::uint32_t most_side = 1u << 24;

// What all readers have: the open file, and the text of what was wrong with it. Messages are
// without the path.
class file_reader : public picture_reader {
public:
    // `bytes`: the size of the file, which can be believed.
    status open(apps::unique_fd fd, std::uint64_t bytes) {
        file_.reset(::fdopen(fd, "rb"));
        if (file_ == nullptr) return {-errno, error_text(-errno) + "; free some memory"};
        fd.release();
        file_bytes_ = bytes;
        return open_head();
    }

protected:
    explicit file_reader(const char* kind) : kind_(kind) {}
    // Reads the size of the picture.
    virtual status open_head() = 0;

    [[nodiscard]] status damage(const std::string& defect) const {
        return {-EBADMSG, std::string("damaged ") + kind_ + ": " + defect};
    }
    // Refuses a picture that claims more pixels than its file can hold.
    [[nodiscard]] status check_bytes(std::uint64_t needed) const {
        if (file_bytes_ >= needed) return {};
        return damage("it says that it has " + apps::with_commas(width_) + " by " +
                      apps::with_commas(height_) + " pixels, which take " +
                      apps::with_commas(needed) + " bytes at least, and it has " +
                      apps::with_commas(file_bytes_));
    }

    // Closed after the reader below gave back what its library has of the file.
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{nullptr, std::fclose};
    std::uint64_t file_bytes_ = 0;
    char text_[200] = {};  // what the library said; JPEG's messages have room for so much

private:
    const char* kind_;
};

template <typename Reader>
std::unique_ptr<file_reader> make_reader() {
    return std::make_unique<Reader>();
}
using reader_maker = std::unique_ptr<file_reader>();

// JPEG: grey becomes three equal bytes; the orientation that a camera notes is not applied.

#if defined(PENSTOCK_WITH_JPEG)
// What the library said that keeps a picture from being used.
enum class jpeg_end { none, damaged, not_read, no_memory };

// The library reports by jumping out of the call; functions that call it hold nothing that has a
// destructor.
struct jpeg_errors {
    jpeg_error_mgr base;
    std::jmp_buf jump;
    char* text;  // of JMSG_LENGTH_MAX bytes
    jpeg_end end;
};

// Errors that are about the kind of picture and not about its bytes.
jpeg_end end_of_error(int code) {
    switch (code) {
#if JPEG_LIB_VERSION < 70  // later versions read arithmetic coding and have no such error
        case JERR_ARITH_NOTIMPL:
#endif
        case JERR_BAD_PRECISION:
        case JERR_CCIR601_NOTIMPL:
        case JERR_COMPONENT_COUNT:
        case JERR_CONVERSION_NOTIMPL:
        case JERR_EMPTY_IMAGE:  // the height follows the pixels
        case JERR_FRACT_SAMPLE_NOTIMPL:
        case JERR_NOT_COMPILED:
        case JERR_NOTIMPL:
        case JERR_SOF_UNSUPPORTED: return jpeg_end::not_read;
        case JERR_NO_BACKING_STORE:
        case JERR_OUT_OF_MEMORY: return jpeg_end::no_memory;
        default: return jpeg_end::damaged;
    }
}

[[noreturn]] void jump_out(j_common_ptr info) {
    auto* const errors = reinterpret_cast<jpeg_errors*>(info->err);
    info->err->format_message(info, errors->text);
    errors->end = end_of_error(info->err->msg_code);
    std::longjmp(errors->jump, 1);
}

// Of the warnings, these say that the library filled in pixels that it could not read. Others are
// about what it passes over or reads all the same: bytes too many, an unknown revision, a scan's
// parameters that do not matter, no end mark.
bool lost_pixels(j_common_ptr info) {
    switch (info->err->msg_code) {
        case JWRN_HIT_MARKER:
        case JWRN_HUFF_BAD_CODE:
        case JWRN_ARITH_BAD_CODE:
        case JWRN_MUST_RESYNC: return true;
        // An arithmetic decoder goes on with zeros and says nothing else.
        case JWRN_JPEG_EOF: return reinterpret_cast<j_decompress_ptr>(info)->arith_code != FALSE;
        default: return false;
    }
}

void note_message(j_common_ptr info, int level) {
    auto* const errors = reinterpret_cast<jpeg_errors*>(info->err);
    if (level >= 0 || errors->end != jpeg_end::none || !lost_pixels(info)) return;
    errors->end = jpeg_end::damaged;
    info->err->format_message(info, errors->text);
}

// Every block of 8 by 8 pixels of every colour takes one bit at least; an arithmetic coder can do
// with next to nothing.
std::uint64_t blocks_of(const jpeg_decompress_struct& info) {
    const auto pieces = [](std::uint64_t pixels, int factor, int most) {
        const std::uint64_t whole = 8u * static_cast<std::uint64_t>(most);
        return (pixels * static_cast<std::uint64_t>(factor) + whole - 1) / whole;
    };
    std::uint64_t sum = 0;
    for (int i = 0; i < info.num_components; ++i) {
        const jpeg_component_info& component = info.comp_info[i];
        sum += pieces(info.image_width, component.h_samp_factor, info.max_h_samp_factor) *
               pieces(info.image_height, component.v_samp_factor, info.max_v_samp_factor);
    }
    return sum;
}

// Of a progressive picture's coefficients, all of which are held.
constexpr std::uint64_t block_bytes = 128;

class jpeg_reader final : public file_reader {
public:
    jpeg_reader() : file_reader("JPEG") {
        static_assert(sizeof text_ >= JMSG_LENGTH_MAX);
        info_.err = jpeg_std_error(&errors_.base);
        errors_.base.error_exit = jump_out;
        errors_.base.emit_message = note_message;
        errors_.end = jpeg_end::none;
        errors_.text = text_;
    }
    ~jpeg_reader() override {
        if (made_) jpeg_destroy_decompress(&info_);
    }

    status open_head() override {
        if (!start()) return failure();
        width_ = info_.output_width;
        height_ = info_.output_height;
        if (info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK ||
            info_.num_components == 2)
            return not_read(std::to_string(info_.num_components) + " colours, as for printing");
        const std::uint64_t blocks = blocks_of(info_), needed = blocks / 8;
        if (info_.arith_code == FALSE) return check_bytes(needed);
        needs_proof_ = file_bytes_ < needed;
        if (needs_proof_ && info_.progressive_mode != FALSE &&
            blocks * block_bytes > most_unproved_bytes)
            return not_read(
                "arithmetic coding of several scans, of so many pixels in so few bytes");
        return {};
    }

    status read_row(std::uint8_t* rgb) override {
        if (!read(rgb) || errors_.end != jpeg_end::none) return failure();
        return info_.output_scanline < info_.output_height || !lacks_a_colour() ? status{}
                                                                                : failure();
    }

private:
    static constexpr std::uint64_t most_unproved_bytes = std::uint64_t{256} << 20;

    static status not_read(const std::string& variant) {
        return {-EOPNOTSUPP, "a kind of JPEG that is not read (" + variant + "); convert it"};
    }

    status failure() {
        if (errors_.end == jpeg_end::not_read) return not_read(text_);
        if (errors_.end == jpeg_end::no_memory)
            return {-ENOMEM, std::string("no memory for this JPEG: ") + text_ + "; free some"};
        return damage(text_);
    }

    // A progressive picture that ends between its scans is whole, only coarser, but each colour
    // must have had its first one.
    bool lacks_a_colour() {
        if (info_.coef_bits == nullptr) return false;
        for (int i = 0; i < info_.num_components; ++i)
            if (info_.coef_bits[i][0] < 0) {
                std::snprintf(text_, sizeof text_, "it ends before the first scan of its colour %d",
                              i + 1);
                return true;
            }
        return false;
    }

    bool start() {
        if (setjmp(errors_.jump) != 0) return false;
        jpeg_create_decompress(&info_);
        made_ = true;
        jpeg_stdio_src(&info_, file_.get());
        jpeg_read_header(&info_, TRUE);
        info_.out_color_space = JCS_RGB;
        jpeg_calc_output_dimensions(&info_);
        return true;
    }

    bool read(std::uint8_t* rgb) {
        if (setjmp(errors_.jump) != 0) return false;
        // Only now: this is where the work of a progressive picture is done, and sizes are asked
        // for more often.
        if (!started_) started_ = jpeg_start_decompress(&info_) != 0;
        JSAMPROW row = rgb;
        return started_ && jpeg_read_scanlines(&info_, &row, 1) == 1;
    }

    jpeg_decompress_struct info_{};
    jpeg_errors errors_{};
    bool made_ = false;
    bool started_ = false;
};

constexpr reader_maker* make_jpeg = make_reader<jpeg_reader>;
#else
constexpr reader_maker* make_jpeg = nullptr;
#endif

// PNG: any kind of it, as 8 bits of red, green and blue. Transparency is dropped, not blended.

#if defined(PENSTOCK_WITH_PNG)
constexpr std::uint64_t most_ratio = 1032;  // by which deflate can shrink

// Interlaced pictures are complete only after their last pass and are held whole.
constexpr std::uint64_t most_interlaced_bytes = std::uint64_t{3} << 30;

class png_reader final : public file_reader {
public:
    png_reader() : file_reader("PNG") {}
    ~png_reader() override {
        if (png_ != nullptr) png_destroy_read_struct(&png_, &info_, nullptr);
    }

    status open_head() override {
        png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
        info_ = png_ != nullptr ? png_create_info_struct(png_) : nullptr;
        if (info_ == nullptr) return {-ENOMEM, "no memory for the PNG library; free some"};
        if (!start()) return damage(text_);
        return check_bytes((raw_bytes_ + most_ratio - 1) / most_ratio);
    }

    status read_row(std::uint8_t* rgb) override {
        if (passes_ == 1) return read(rgb) ? status{} : damage(text_);
        const std::size_t stride = std::size_t{width_} * 3;
        if (whole_.empty()) {
            if (std::uint64_t{stride} * height_ > most_interlaced_bytes)
                return {-EFBIG,
                        "an interlaced PNG of more than 1 G pixels; store it without interlacing"};
            whole_.resize(stride * height_);
            for (int pass = 0; pass < passes_; ++pass)
                for (std::uint32_t y = 0; y < height_; ++y)
                    if (!read(whole_.data() + y * stride)) return damage(text_);
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
        png_init_io(png_, file_.get());
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

constexpr reader_maker* make_png = make_reader<png_reader>;
#else
constexpr reader_maker* make_png = nullptr;
#endif

// Binary PPM: "P6", width, height, 255, one blank, then the pixels.

class ppm_reader final : public file_reader {
public:
    ppm_reader() : file_reader("PPM") {}

    status open_head() override {
        std::uint32_t most = 0;
        std::fseek(file_.get(), 2, SEEK_SET);
        if (!number(width_) || !number(height_) || !number(most) || width_ == 0 || height_ == 0)
            return damage("no usable width, height and largest value in its first lines");
        if (most != 255)
            return {-EOPNOTSUPP, "PPM with largest value " + std::to_string(most) +
                                     "; only 255 is read: convert it"};
        return check_bytes(static_cast<std::uint64_t>(std::ftell(file_.get())) +
                           std::uint64_t{3} * width_ * height_);
    }

    status read_row(std::uint8_t* rgb) override {
        const std::size_t bytes = std::size_t{width_} * 3;
        if (std::fread(rgb, 1, bytes, file_.get()) == bytes) return {};
        if (std::ferror(file_.get()) != 0) return {-EIO, error_text(-errno) + " while reading"};
        return damage("it ends before its last row");
    }

private:
    static bool is_blank(int c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

    // A number behind blanks and comments, and the one character after it.
    bool number(std::uint32_t& out) {
        int c = std::fgetc(file_.get());
        for (bool in_comment = false; is_blank(c) || c == '#' || (in_comment && c != EOF);
             c = std::fgetc(file_.get()))
            in_comment = c == '#' || (in_comment && c != '\n');
        out = 0;
        bool any = false;
        for (; c >= '0' && c <= '9' && out < most_side; c = std::fgetc(file_.get()), any = true)
            out = out * 10 + static_cast<std::uint32_t>(c - '0');
        return any && out < most_side && is_blank(c);
    }
};

struct picture_format {
    std::string_view first_bytes;
    const char* name;
    reader_maker* make;  // null: the program was built without its library
};

constexpr picture_format formats[] = {
    {"\xff\xd8\xff", "JPEG", make_jpeg},      {"\x89PNG\r\n\x1a\n", "PNG", make_png},
    {"P6 ", "PPM", make_reader<ppm_reader>},  {"P6\t", "PPM", make_reader<ppm_reader>},
    {"P6\r", "PPM", make_reader<ppm_reader>}, {"P6\n", "PPM", make_reader<ppm_reader>},
};

}  // namespace

status open_picture(const std::string& path, std::unique_ptr<picture_reader>& out) {
    const auto failed = [&](int code, const std::string& reason) -> status {
        return {code, apps::shown(path) + ": " + reason};
    };
    // Without O_NONBLOCK a named pipe would hold the program until a writer opens it.
    apps::unique_fd fd(apps::open_long(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    struct stat info {};
    char first[8] = {};
    int code = fd < 0 || ::fstat(fd, &info) != 0 ? -errno : 0;
    if (code == 0 && S_ISDIR(info.st_mode)) code = -EISDIR;
    if (code == 0 && !S_ISREG(info.st_mode)) code = -EOPNOTSUPP;
    if (code == 0 && ::pread(fd, first, sizeof first, 0) < 0) code = -errno;
    if (code != 0) return failed(code, error_text(code) + "; name a picture that can be read");
    const auto* const format =
        std::find_if(std::begin(formats), std::end(formats), [&](const picture_format& known) {
            return std::string_view(first, sizeof first).starts_with(known.first_bytes);
        });
    if (format == std::end(formats))
        return failed(-EMEDIUMTYPE,
                      "neither JPEG, PNG nor binary PPM (P6); convert it to one of these");
    if (format->make == nullptr)
        return failed(-EOPNOTSUPP, std::string("this program was built without the ") +
                                       format->name +
                                       " library; build it with that library, or convert the "
                                       "picture to binary PPM");
    if (const std::string why = host::why_not_by_size(host::kind_of(fd, info)); !why.empty())
        return failed(-EOPNOTSUPP, why);
    auto reader = format->make();
    if (status s = reader->open(std::move(fd), static_cast<std::uint64_t>(info.st_size)); !s)
        return failed(s.code, s.message);
    out = std::move(reader);
    return {};
}

}  // namespace penstock::collage
