// Reads and checks a library of tiles, maps it, and makes the hash family that fits it.
#include "library.hpp"

#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/files.hpp"
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
                const std::uint64_t random = mix(
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
        out.offsets.push_back(static_cast<std::uint32_t>(mix(~seed + (p + 1) * golden) % width));
    return out;
}

namespace {

status damaged(const std::string& path, const std::string& defect) {
    return {-EBADMSG, apps::shown(path) + ": " + defect +
                          "; make the library again with penstock-collage index"};
}

// The first `bytes` of a regular file, and its size.
status read_head(const std::string& path, void* to, std::uint64_t bytes,
                 std::uint64_t& size_bytes) {
    struct stat info {};
    if (status s = apps::look_at_input(path, "name a library made by penstock-collage index", info);
        !s)
        return s;
    const apps::unique_fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    int code = fd < 0 || ::fstat(fd, &info) != 0 ? -errno : 0;
    size_bytes = static_cast<std::uint64_t>(info.st_size);
    ssize_t got = 0;
    if (code == 0) got = ::pread(fd, to, bytes, 0);
    if (got < 0) code = -errno;
    if (code != 0)
        return {code, apps::shown(path) + ": " + error_text(code) +
                          "; name a library made by penstock-collage index"};
    if (static_cast<std::uint64_t>(got) < bytes)
        return damaged(path, "it has " + std::to_string(size_bytes) + " bytes and should have " +
                                 std::to_string(bytes) + " or more");
    return {};
}

status check_size(const std::string& path, std::uint64_t is_bytes, std::uint64_t want_bytes) {
    if (is_bytes == want_bytes) return {};
    return damaged(path, "it has " + std::to_string(is_bytes) + " bytes and should have " +
                             std::to_string(want_bytes));
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

std::uint64_t table_bytes(const library_header& h, std::uint32_t table) {
    return entries_at(h.slots) + h.table_entries[table] * sizeof(table_entry);
}

}  // namespace

std::uint32_t slots_for(std::uint64_t tile_count) {
    return static_cast<std::uint32_t>(
        std::bit_ceil(tile_count < 16 ? std::uint64_t{1} : tile_count / 16));
}

std::string table_name(std::uint32_t table) {
    char text[16];
    std::snprintf(text, sizeof text, "lsh-%02u", table);
    return text;
}

std::uint64_t checksum_of(const library_header& h) {
    const auto* const bytes = reinterpret_cast<const unsigned char*>(&h);
    std::uint64_t sum = golden;
    for (std::size_t i = 0; i < offsetof(library_header, checksum); ++i) sum = mix(sum + bytes[i]);
    return sum;
}

std::uint64_t library::bytes() const {
    std::uint64_t sum =
        header.tile_count * (record_stride_bytes + tile_bytes) + sizeof(library_header);
    for (std::uint32_t t = 0; t < tables; ++t) sum += table_bytes(header, t);
    return sum;
}

status open_library(const std::string& path, library& out) {
    out.path = path;
    library_header& h = out.header;
    std::uint64_t size_bytes = 0;
    const std::string head = out.file(header_name);
    if (status failed = read_head(head, &h, sizeof h, size_bytes); !failed) return failed;
    if (status failed = check_header(head, h); !failed) return failed;
    if (status failed = check_size(head, size_bytes, sizeof h); !failed) return failed;
    char first = 0;
    for (const auto& [name, bytes] :
         {std::pair{histograms_name, std::uint64_t{record_stride_bytes}},
          std::pair{tiles_name, std::uint64_t{tile_bytes}}}) {
        if (status failed = read_head(out.file(name), &first, 1, size_bytes); !failed)
            return failed;
        if (status failed = check_size(out.file(name), size_bytes, h.tile_count * bytes); !failed)
            return failed;
    }
    for (std::uint32_t t = 0; t < tables; ++t) {
        table_head table;
        const std::string name = out.file(table_name(t));
        if (status failed = read_head(name, &table, sizeof table, size_bytes); !failed)
            return failed;
        if (table.magic != table_magic || table.table != t || table.slots != h.slots ||
            table.entries != h.table_entries[t] || table.tile_count != h.tile_count)
            return damaged(name, "its head does not belong to this library");
        if (status failed = check_size(name, size_bytes, table_bytes(h, t)); !failed) return failed;
    }
    return {};
}

mapped_library::~mapped_library() {
    for (const auto& [address, bytes] : maps_) ::munmap(address, bytes);
}

status mapped_library::map(const std::string& path, const char*& out, apps::unique_fd* keep_fd) {
    apps::unique_fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat info {};
    if (fd < 0 || ::fstat(fd, &info) != 0) {
        const int code = -errno;
        return {code,
                apps::shown(path) + ": " + error_text(code) + "; name a library that can be read"};
    }
    const auto bytes = static_cast<std::size_t>(info.st_size);
    void* const at = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    const int code = at == MAP_FAILED ? -errno : 0;
    if (keep_fd != nullptr && code == 0) *keep_fd = std::move(fd);
    if (code != 0)
        return {code, apps::shown(path) + ": " + error_text(code) +
                          " while mapping it; free some address space"};
    maps_.emplace_back(at, bytes);
    out = static_cast<const char*>(at);
    return {};
}

status mapped_library::open(const library& of) {
    entries_at_ = entries_at(of.header.slots);
    if (status s = map(of.file(histograms_name), histograms_, &histograms_fd_); !s) return s;
    if (status s = map(of.file(tiles_name), tiles_, nullptr); !s) return s;
    for (std::uint32_t t = 0; t < tables; ++t)
        if (status s = map(of.file(table_name(t)), tables_[t], nullptr); !s) return s;
    return {};
}

}  // namespace penstock::collage
