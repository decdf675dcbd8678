#include "tile_set.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/files.hpp"
#include "common/message.hpp"

namespace penstock::stitch {

namespace {

using apps::with_commas;

status wrong(const std::string& path, const std::string& what) {
    return {-EINVAL, apps::shown(path) + ": " + what};
}

// A header that passes gives sizes with which nothing overflows.
status check_header(const std::string& path, const tile_header& h) {
    if (std::memcmp(h.magic, tile_magic, sizeof h.magic) != 0)
        return wrong(path, "is no file of tiles; make one with penstock-stitch make");
    if (h.version != tile_version)
        return wrong(path, "has version " + std::to_string(h.version) +
                               " of the format, and this program reads " +
                               std::to_string(tile_version) + "; make it again");
    const auto in_range = [&](const char* name, std::uint64_t value, std::uint64_t most) {
        if (value >= 1 && value <= most) return status{};
        return wrong(path, std::string("its ") + name + " of " + with_commas(value) +
                               " is not from 1 to " + with_commas(most) +
                               "; copy it again or make it again");
    };
    if (status s = in_range("tile width", h.tile_width, most_tile_side); !s) return s;
    if (status s = in_range("tile height", h.tile_height, most_tile_side); !s) return s;
    if (status s = in_range("number of tiles", h.tile_count, most_tiles); !s) return s;
    if (status s = in_range("image width", h.image_width, most_image_side); !s) return s;
    return in_range("image height", h.image_height, most_image_side);
}

status check_sizes(const std::string& path, const tile_header& h, const tile_set& tiles) {
    const tile_header should = header_of(tiles);
    if (h.first_tile != should.first_tile || h.tile_stride != should.tile_stride ||
        h.file_bytes != should.file_bytes)
        return wrong(path, "its header says that tiles begin at " + with_commas(h.first_tile) +
                               ", " + with_commas(h.tile_stride) + " apart, and end at " +
                               with_commas(h.file_bytes) + ", which should be " +
                               with_commas(should.first_tile) + ", " +
                               with_commas(should.tile_stride) + " and " +
                               with_commas(should.file_bytes) + "; copy it again or make it again");
    if (tiles.file.bytes == should.file_bytes) return {};
    return wrong(path, "has " + with_commas(tiles.file.bytes) + " bytes and should have " +
                           with_commas(should.file_bytes) + "; copy it again or make it again");
}

status check_places(const tile_set& tiles) {
    for (std::size_t i = 0; i < tiles.places.size(); ++i) {
        const tile_place& at = tiles.places[i];
        if (std::uint64_t{at.x} + tiles.tile_width <= tiles.image_width &&
            std::uint64_t{at.y} + tiles.tile_height <= tiles.image_height)
            continue;
        return wrong(tiles.file.path,
                     "tile " + std::to_string(i) + " at " + with_commas(at.x) + ", " +
                         with_commas(at.y) + " does not lie in the image of " +
                         with_commas(tiles.image_width) + " by " + with_commas(tiles.image_height) +
                         "; correct its place, or make the file again");
    }
    return {};
}

status read_tiles(int fd, tile_set& out) {
    const std::string& path = out.file.path;
    struct stat info {};
    if (::fstat(fd, &info) != 0)
        return {-errno, apps::shown(path) + ": " + error_text(-errno) + "; name a file of tiles"};
    out.file.bytes = static_cast<std::uint64_t>(info.st_size);
    out.file.device = info.st_dev;
    out.file.inode = info.st_ino;
    if (out.file.bytes < page_bytes)
        return wrong(
            path,
            "has " + with_commas(out.file.bytes) +
                " bytes, which is too short for a file of tiles; copy it again or make it again");
    tile_header h;
    if (status s = apps::read_exactly(path, fd, &h, sizeof h, 0); !s) return s;
    if (status s = check_header(path, h); !s) return s;
    out.tile_width = h.tile_width;
    out.tile_height = h.tile_height;
    out.image_width = h.image_width;
    out.image_height = h.image_height;
    if (out.file.bytes < page_bytes + h.tile_count * sizeof(tile_place))
        return wrong(path, "has " + with_commas(out.file.bytes) +
                               " bytes, too few for the places of " + with_commas(h.tile_count) +
                               " tiles; copy it again or make it again");
    out.places.resize(h.tile_count);
    if (status s = check_sizes(path, h, out); !s) return s;
    if (status s = apps::read_exactly(path, fd, out.places.data(),
                                      out.places.size() * sizeof(tile_place), page_bytes);
        !s)
        return s;
    return check_places(out);
}

}  // namespace

tile_header header_of(const tile_set& tiles) {
    tile_header out{{},
                    tile_version,
                    tiles.tile_width,
                    tiles.tile_height,
                    static_cast<std::uint32_t>(tiles.places.size()),
                    tiles.image_width,
                    tiles.image_height,
                    tiles.first_tile(),
                    tiles.tile_stride(),
                    tiles.file_bytes()};
    std::memcpy(out.magic, tile_magic, sizeof out.magic);
    return out;
}

status open_tiles(const std::string& path, tile_set& out) {
    out.file.path = path;
    struct stat info {};
    if (status s = apps::look_at_input(path, "name a file of tiles that can be read", info); !s)
        return s;
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return {-errno, apps::shown(path) + ": " + error_text(-errno) +
                            "; name a file of tiles that can be read"};
    status ended = read_tiles(fd, out);
    ::close(fd);
    return ended;
}

}  // namespace penstock::stitch
