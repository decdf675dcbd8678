// Reads and checks a library of tiles, maps it, and makes the hash family that fits it.
#include "library.hpp"

#include <bit>
#include <cerrno>
#include <cstddef>
#include <fcntl.h>

#include "common/message.hpp"

namespace penstock::collage {

lsh_family make_family(std::uint64_t seed, std::uint32_t width) {
    lsh_family out;
    out.width = width;
    out.coefficients.resize(std::size_t{features} * projections);
    for (std::uint32_t p = 0; p < projections; ++p)
        for (std::uint32_t channel = 0; channel < 3; ++channel) {
            std::int32_t knots[knots_per_channel];
            for (std::uint32_t k = 0; k < knots_per_channel; ++k) {
                // The sum of four bytes is near enough to a normal distribution: the p-stable one
                // of Euclidean distance.
                const std::uint64_t random = mix64(
                    seed + ((std::uint64_t{p} * 3 + channel) * knots_per_channel + k + 1) * golden);
                const auto byte = [random](int i) {
                    return static_cast<std::int32_t>(random >> (8 * i) & 255);
                };
                knots[k] = byte(0) + byte(1) + byte(2) + byte(3) - 510;
            }
            for (std::uint32_t f = 0; f < features_per_channel; ++f) {
                const std::uint32_t k = f / features_per_knot;
                const auto behind = static_cast<std::int32_t>(f % features_per_knot);
                const std::int32_t value =
                    knots[k] * (static_cast<std::int32_t>(features_per_knot) - behind) +
                    knots[k + 1] * behind;
                out.coefficients[std::size_t{channel * features_per_channel + f} * projections +
                                 p] = static_cast<std::int16_t>(value);
            }
        }
    for (std::uint32_t p = 0; p < projections; ++p)
        out.offsets.push_back(static_cast<std::uint32_t>(mix64(~seed + (p + 1) * golden) % width));
    return out;
}

namespace {

status damaged(const std::string& path, const std::string& defect) {
    return {-EBADMSG, apps::shown(path) + ": " + defect +
                          "; make the library again with penstock-collage index"};
}

// A regular file of so many bytes, or of more.
status check_size(const std::string& path, std::uint64_t bytes, bool or_more) {
    struct stat info {};
    const std::string cure = "name a library made by penstock-collage index";
    if (status s = apps::look_at_input(path, cure, info); !s) return s;
    const auto found = static_cast<std::uint64_t>(info.st_size);
    if (found == bytes || (or_more && found > bytes)) return {};
    return damaged(path, "it has " + std::to_string(found) + " bytes and should have " +
                             std::to_string(bytes) + (or_more ? " or more" : ""));
}

status read_head(const std::string& path, void* to, std::uint64_t bytes) {
    if (status s = check_size(path, bytes, true); !s) return s;
    apps::unique_fd fd;
    if (status s = apps::open_to_read(path, "a library", fd, O_NOCTTY | O_NONBLOCK); !s) return s;
    return apps::read_exactly(path, fd, to, bytes, 0);
}

status check_header(const std::string& path, const library_header& h) {
    if (h.magic != library_magic) return damaged(path, "not the header of a collage library");
    if (h.version != library_version)
        return damaged(path, "library of version " + std::to_string(h.version) +
                                 ", and this program reads version " +
                                 std::to_string(library_version));
    if (h.header_bytes != sizeof(library_header) || h.checksum != checksum_of(h))
        return damaged(path, "the header is damaged (its checksum does not fit)");
    const bool known = h.table_count == tables && h.projection_count == projections_per_table &&
                       h.feature_count == features && h.cap == bucket_cap &&
                       h.fallback_count == fallback_candidates &&
                       h.record_stride == record_stride_bytes;
    const bool usable = h.tile_count >= 1 && h.tile_count <= most_tiles && h.width >= 1 &&
                        h.width <= most_width && h.slots == slots_for(h.tile_count);
    if (!known || !usable)
        return damaged(path, "its parameters are not those that this program works with");
    return {};
}

}  // namespace

std::uint32_t slots_for(std::uint64_t tile_count) {
    return static_cast<std::uint32_t>(
        std::bit_ceil(tile_count < 16 ? std::uint64_t{1} : tile_count / 16));
}

std::string table_name(std::uint32_t table) {
    return (table < 10 ? "lsh-0" : "lsh-") + std::to_string(table);
}

std::uint64_t checksum_of(const library_header& h) {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(&h);
    std::uint64_t sum = golden;
    for (std::size_t i = 0; i < offsetof(library_header, checksum); ++i)
        sum = mix64(sum + bytes[i]);
    return sum;
}

std::vector<library_file> library::files() const {
    std::vector<library_file> out{{file(histograms_name), header.tile_count * record_stride_bytes}};
    for (std::uint32_t t = 0; t < tables; ++t)
        out.push_back({file(table_name(t)),
                       entries_at(header.slots) + header.table_entries[t] * sizeof(table_entry)});
    out.push_back({file(tiles_name), header.tile_count * tile_bytes});
    return out;
}

std::uint64_t library::bytes() const {
    std::uint64_t sum = sizeof(library_header);
    for (const library_file& each : files()) sum += each.bytes;
    return sum;
}

status open_library(const std::string& path, library& out) {
    out.path = path;
    library_header& h = out.header;
    const std::string head = out.file(header_name);
    if (status s = read_head(head, &h, sizeof h); !s) return s;
    if (status s = check_header(head, h); !s) return s;
    if (status s = check_size(head, sizeof h, false); !s) return s;
    for (std::uint32_t t = 0; t < tables; ++t) {
        table_head table;
        const std::string name = out.file(table_name(t));
        if (status s = read_head(name, &table, sizeof table); !s) return s;
        if (table.magic != table_magic || table.table != t || table.slots != h.slots ||
            table.entries != h.table_entries[t] || table.tile_count != h.tile_count)
            return damaged(name, "its head does not belong to this library");
    }
    for (const library_file& each : out.files())
        if (status s = check_size(each.path, each.bytes, false); !s) return s;
    return {};
}

status mapped_library::open(const library& of) {
    const std::vector<library_file> files = of.files();
    for (std::uint32_t i = 0; i < file_count; ++i) {
        if (status s = files_[i].open(files[i].path, files[i].bytes, "a library"); !s) return s;
        place(i, files_[i].data());
    }
    place_entries(entries_at(of.header.slots));
    return apps::open_to_read(files[histograms_place].path, "a library", histograms_fd_);
}

}  // namespace penstock::collage
