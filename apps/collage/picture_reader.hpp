// Readers of pictures, row by row: JPEG and PNG where the program was built with their libraries,
// and binary PPM everywhere.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "penstock/error.hpp"

namespace penstock::collage {

// Pictures, read row by row: JPEG and PNG where the program was built with their libraries, and
// binary PPM everywhere.

// Rows of a picture from top to bottom, three bytes a pixel: red, green, blue. Used by one thread
// at a time.
class picture_reader {
public:
    virtual ~picture_reader() = default;
    // The next row, 3 * width() bytes. -EBADMSG and a message without the path if the picture is
    // damaged.
    virtual status read_row(std::uint8_t* rgb) = 0;
    [[nodiscard]] std::uint32_t width() const { return width_; }
    [[nodiscard]] std::uint32_t height() const { return height_; }
    // What the picture claims cannot be judged by the size of its file: read it once before room is
    // taken for its tiles.
    [[nodiscard]] bool needs_proof() const { return needs_proof_; }

protected:
    bool needs_proof_ = false;
    std::uint32_t width_ = 0;
    std::uint32_t height_ = 0;
};

// What the first bytes of a file say. `other` is no picture that this program knows.
enum class picture_kind { jpeg, png, ppm, other };

// Looks at the first bytes. A negative errno of the file system goes to `code`.
picture_kind kind_of_file(const std::string& path, int& code);

// Opens a picture and reads its size. Messages name the path and the cure.
status open_picture(const std::string& path, std::unique_ptr<picture_reader>& out);

// All rows. The error of read_row().
status read_to_the_end(picture_reader& of);

// True if pictures of the kind can be read by this build.
bool can_read(picture_kind kind);
const char* name_of(picture_kind kind);

// One for each kind; used by open_picture. Refuses a picture that claims more pixels than its file
// can hold.
status open_jpeg(const std::string& path, std::unique_ptr<picture_reader>& out);
status open_png(const std::string& path, std::unique_ptr<picture_reader>& out);
status open_ppm(const std::string& path, std::unique_ptr<picture_reader>& out);

// For them: a stream of a regular file whose size can be believed. Messages without the path.
status open_picture_file(const std::string& path, std::FILE*& out, std::uint64_t& bytes);
status holds_too_little(const char* kind, std::uint32_t width, std::uint32_t height,
                        std::uint64_t bytes, std::uint64_t needed);

// What readers have in common that use a library which reports errors by jumping out of its calls:
// the open file, and the text of what was wrong.

class library_reader : public picture_reader {
public:
    library_reader(const library_reader&) = delete;
    library_reader& operator=(const library_reader&) = delete;
    // After the one below it, which gives back what the library has of the file.
    ~library_reader() override {
        if (file_ != nullptr) std::fclose(file_);
    }

protected:
    explicit library_reader(const char* kind) : kind_(kind) {}

    status open_file(const std::string& path) {
        return open_picture_file(path, file_, file_bytes_);
    }
    [[nodiscard]] status damage() const {
        return {-EBADMSG, std::string("damaged ") + kind_ + ": " + text_};
    }

    std::FILE* file_ = nullptr;
    std::uint64_t file_bytes_ = 0;
    char text_[200] = {};  // what the library said; JPEG's messages have room for so much

private:
    const char* kind_;
};

// For open_jpeg and open_png.
template <typename Reader>
status open_with(const std::string& path, std::unique_ptr<picture_reader>& out) {
    auto reader = std::make_unique<Reader>();
    if (status failed = reader->open(path); !failed) return failed;
    out = std::move(reader);
    return {};
}

}  // namespace penstock::collage
