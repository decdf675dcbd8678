// A picture in memory, how it is read and written, its readers for each kind of file, and the order
// in which its blocks are made.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "common/files.hpp"
#include "penstock/error.hpp"

namespace penstock::collage {

// A whole picture in memory, and writing one.

struct picture {
    std::uint32_t width = 0;
    std::uint32_t height = 0;
    std::vector<std::uint8_t> rgb;  // rows from top to bottom, three bytes a pixel
};

status load_picture(const std::string& path, picture& out);

// The form is chosen by the end of the name: .png, where the program was built with libpng, or
// .ppm. Found out before any work is done: -EINVAL and a message.
status check_output_name(const std::string& path);

// Appears whole or not at all.
status write_picture(const std::string& path, const picture& image, apps::output_file& to);

// In which order the blocks of a picture are made: blocks of like colours one after the other, for
// they are compared with the same tiles, which should still be in the cache.

// Smaller pictures are made row by row: their blocks are nearly all under way at once, whatever the
// order.
inline constexpr std::uint64_t least_ordered_blocks = 1024;

// Every block's number once; the same for any number of threads.
std::vector<std::uint32_t> block_order(const picture& of, std::uint32_t threads);

// Readers: JPEG and PNG where the program was built with their libraries, and binary PPM
// everywhere.

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
