// JPEG through libjpeg-turbo. Grey becomes three equal bytes; the orientation that a camera notes is not applied.
#include <cerrno>

#include "library_reader.hpp"

#if defined(PENSTOCK_WITH_JPEG)
#include <csetjmp>
#include <cstdio>
#include <jpeglib.h>
#include <jerror.h>

namespace penstock::collage {

namespace {

// The library reports by jumping out of the call; functions that call it hold nothing that has a destructor.
struct jpeg_errors {
    jpeg_error_mgr base;
    std::jmp_buf jump;
    char* text;  // of JMSG_LENGTH_MAX bytes
    bool damaged;
};

[[noreturn]] void jump_out(j_common_ptr info) {
    auto* const errors = reinterpret_cast<jpeg_errors*>(info->err);
    info->err->format_message(info, errors->text);
    std::longjmp(errors->jump, 1);
}

// A warning means that the library filled in what it could not read, except for bytes too many between markers.
void note_message(j_common_ptr info, int level) {
    auto* const errors = reinterpret_cast<jpeg_errors*>(info->err);
    if (level >= 0 || errors->damaged || info->err->msg_code == JWRN_EXTRANEOUS_DATA) return;
    errors->damaged = true;
    info->err->format_message(info, errors->text);
}

class jpeg_reader final : public library_reader {
public:
    jpeg_reader() : library_reader("JPEG") {
        static_assert(sizeof text_ >= JMSG_LENGTH_MAX);
        info_.err = jpeg_std_error(&errors_.base);
        errors_.base.error_exit = jump_out;
        errors_.base.emit_message = note_message;
        errors_.damaged = false;
        errors_.text = text_;
    }
    ~jpeg_reader() override {
        if (made_) jpeg_destroy_decompress(&info_);
    }

    status open(const std::string& path) {
        if (status failed = open_file(path); !failed) return failed;
        if (!start()) return damage();
        width_ = info_.output_width;
        height_ = info_.output_height;
        return {};
    }

    status read_row(std::uint8_t* rgb) override { return read(rgb) && !errors_.damaged ? status{} : damage(); }

private:
    bool start() {
        if (setjmp(errors_.jump) != 0) return false;
        jpeg_create_decompress(&info_);
        made_ = true;
        jpeg_stdio_src(&info_, file_);
        jpeg_read_header(&info_, TRUE);
        info_.out_color_space = JCS_RGB;
        jpeg_calc_output_dimensions(&info_);
        return true;
    }

    bool read(std::uint8_t* rgb) {
        if (setjmp(errors_.jump) != 0) return false;
        // Only now: this is where the work of a progressive picture is done, and sizes are asked for more often.
        if (!started_) started_ = jpeg_start_decompress(&info_) != 0;
        JSAMPROW row = rgb;
        return started_ && jpeg_read_scanlines(&info_, &row, 1) == 1;
    }

    jpeg_decompress_struct info_{};
    jpeg_errors errors_{};
    bool made_ = false;
    bool started_ = false;
};

}  // namespace

status open_jpeg(const std::string& path, std::unique_ptr<picture_reader>& out) {
    return open_with<jpeg_reader>(path, out);
}

}  // namespace penstock::collage

#else

namespace penstock::collage {

status open_jpeg(const std::string&, std::unique_ptr<picture_reader>&) {
    return {-EOPNOTSUPP, "built without the JPEG library"};
}

}  // namespace penstock::collage

#endif
