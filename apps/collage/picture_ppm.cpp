// Binary PPM: "P6", width, height, 255, one blank, then the pixels.
#include <cerrno>
#include <cstdio>

#include "picture_reader.hpp"

namespace penstock::collage {

namespace {

constexpr std::uint32_t most_side = 1u << 24;

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
        for (; c >= '0' && c <= '9' && out < most_side; c = std::fgetc(file_), any = true)
            out = out * 10 + static_cast<std::uint32_t>(c - '0');
        return any && out < most_side && (c == ' ' || c == '\t' || c == '\r' || c == '\n');
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
