// Reads a file into memory and counts its lines: 01_read FILE.
//
// The work is a function object over a group: the same body runs on GPU warps and on CPU threads.
#include <penstock/launch.hpp>

#include "support.hpp"

constexpr std::int64_t piece_bytes = 65536;

struct count_lines {
    int fd;
    char* text;
    std::uint64_t* lines;
    std::uint64_t* failures;

    // Piece number `index`, read by the whole group together.
    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const penstock::runtime_ref& fs,
                                std::uint64_t index) const {
        const std::int64_t at = static_cast<std::int64_t>(index) * piece_bytes;
        const std::int64_t bytes = penstock::read(g, fs, fd, text + at, piece_bytes, at);
        std::uint64_t found = 0;
        for (std::int64_t i = g.rank(); i < bytes; i += g.size()) found += text[at + i] == '\n';
        penstock::atomic_add_relaxed(lines, found);
        if (bytes < 0) penstock::atomic_add_relaxed(failures, std::uint64_t{1});
    }
};

int main(int argc, char** argv) {
    if (argc != 2) return std::fprintf(stderr, "usage: 01_read FILE\n"), 2;
    const auto rt = make_runtime();
    if (rt == nullptr) return 1;
    penstock::file_stat facts{};
    const int fd = rt->open(argv[1]);
    if (fd < 0 || rt->stat(fd, &facts) != 0)
        return std::fprintf(stderr, "%s: %s\n", argv[1], penstock::error_text(fd).c_str()), 1;

    const std::uint64_t pieces = (facts.size_bytes + piece_bytes - 1) / piece_bytes;
    const shared_array<char> text(*rt, pieces * piece_bytes);
    const shared_array<std::uint64_t> counts(*rt, 2);
    const count_lines work{fd, text.data(), counts.data(), counts.data() + 1};
    const int launched = penstock::launch<penstock::width::warp>(*rt, pieces, work);
    rt->close(fd);
    if (launched != 0 || counts[1] != 0)
        return std::fprintf(stderr, "%s could not be read\n", argv[1]), 1;
    std::printf("%llu %s\n", static_cast<unsigned long long>(counts[0]), argv[1]);
}
