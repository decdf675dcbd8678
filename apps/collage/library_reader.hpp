// What readers have in common that use a library which reports errors by jumping out of its calls:
// the open file, and the text of what was wrong.
#pragma once

#include <cerrno>
#include <cstdio>
#include <string>

#include "picture_reader.hpp"

namespace penstock::collage {

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
