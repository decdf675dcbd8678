#include "image_file.hpp"

#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/files.hpp"
#include "common/message.hpp"

namespace penstock::match {

namespace {

constexpr const char* cure =
    "; name a file made by penstock-match make, or one of the form that docs/apps/match.md "
    "describes";

status unusable(const std::string& path, const std::string& defect) {
    return {-EINVAL, apps::shown(path) + ": " + defect + cure};
}

status check_header(const std::string& path, const image_header& h) {
    if (h.magic != image_magic)
        return unusable(path, "does not begin with PIMAGES1, so it is no file of images");
    if (h.version != image_version)
        return unusable(path, "has version " + std::to_string(h.version) +
                                  ", and this program reads version " +
                                  std::to_string(image_version));
    if (h.header_bytes != sizeof(image_header))
        return unusable(path, "its header says that it has " + std::to_string(h.header_bytes) +
                                  " bytes, and it has 64");
    // One at a time, so that the product cannot overflow.
    if (h.width == 0 || h.height == 0 || h.channels == 0 || h.width > most_floats ||
        h.height > most_floats || h.channels > 16 || h.floats() > most_floats)
        return unusable(path,
                        "images of " + shape_of(h) + " numbers cannot be compared: from 1 to " +
                            apps::with_commas(most_floats) + " in all, of at most 16 channels");
    if (h.stride_floats < h.floats() || h.stride_floats % stride_unit_floats != 0 ||
        h.stride_floats > 2 * most_floats)
        return unusable(path, "images of " + shape_of(h) + " numbers cannot lie " +
                                  std::to_string(h.stride_floats) +
                                  " numbers apart: a multiple of 16, no less than the image");
    if (h.data_offset < sizeof(image_header) || h.data_offset % data_alignment_bytes != 0 ||
        h.data_offset > (std::uint64_t{1} << 40))
        return unusable(path, "its images cannot begin at byte " + std::to_string(h.data_offset) +
                                  ": a multiple of 4096 behind the header");
    if (h.image_count > most_images)
        return unusable(path, "has " + apps::with_commas(h.image_count) + " images; at most " +
                                  apps::with_commas(most_images) + " can be told apart");
    return {};
}

}  // namespace

std::string shape_of(const image_header& h) {
    return std::to_string(h.width) + "x" + std::to_string(h.height) + "x" +
           std::to_string(h.channels);
}

status open_images(const std::string& path, image_file& out) {
    out.path = path;
    struct stat info {};
    if (status s = apps::look_at_input(path, "name a file of images that can be read", info); !s)
        return s;
    const apps::unique_fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    int code = fd < 0 || ::fstat(fd, &info) != 0 ? -errno : 0;
    ssize_t got = 0;
    if (code == 0 && (got = ::pread(fd, &out.header, sizeof out.header, 0)) < 0) code = -errno;
    if (code != 0)
        return {code, apps::shown(path) + ": " + error_text(code) +
                          "; name a file of images that can be read"};
    const auto bytes = static_cast<std::uint64_t>(info.st_size);
    if (got != static_cast<ssize_t>(sizeof out.header))
        return unusable(
            path, "has " + std::to_string(bytes) + " bytes, which is less than a header of 64");
    if (status s = check_header(path, out.header); !s) return s;
    const std::uint64_t expected = out.header.data_offset + out.header.data_bytes();
    if (bytes == expected) return {};
    return {-EINVAL, apps::shown(path) + ": has " + apps::with_commas(bytes) +
                         " bytes and should have " + apps::with_commas(expected) + " for " +
                         apps::with_commas(out.header.image_count) + " images of " +
                         shape_of(out.header) + "; copy it again or make it again"};
}

status check_shapes(const image_file& first, const image_file& other) {
    const image_header &a = first.header, &b = other.header;
    if (a.width == b.width && a.height == b.height && a.channels == b.channels) return {};
    return {-EINVAL, apps::shown(other.path) + ": has images of " + shape_of(b) +
                         ", and the queries in " + apps::shown(first.path) + " are of " +
                         shape_of(a) + "; name databases of images of the queries' shape"};
}

}  // namespace penstock::match
