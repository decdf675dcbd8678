// Fills files with random numbers, on several threads.
#include "common/random_numbers.hpp"

#include <algorithm>
#include <atomic>
#include <sys/stat.h>
#include <vector>

#include "common/threads.hpp"

namespace penstock::apps {

status fill_with_numbers(const output_file& file, std::uint64_t start, std::uint64_t count,
                         std::uint32_t threads) {
    constexpr std::uint64_t piece_numbers = 1u << 20;
    std::atomic<std::uint64_t> next{0};
    first_error errors;
    on_threads(threads, [&](std::uint32_t) {
        std::vector<float> piece(std::min(piece_numbers, count));
        for (std::uint64_t first = next.fetch_add(piece_numbers); first < count && !errors.stop();
             first = next.fetch_add(piece_numbers)) {
            const std::uint64_t here = std::min(piece_numbers, count - first);
            for (std::uint64_t i = 0; i < here; ++i)
                piece[i] = 2 * even_number(start, first + i) - 1;
            errors.note(file.write_at(piece.data(), here * sizeof(float), first * sizeof(float)));
        }
    });
    return errors.get();
}

bool same_file(const std::string& one, const std::string& other) {
    struct stat a {
    }, b{};
    return one == other || (::stat(one.c_str(), &a) == 0 && ::stat(other.c_str(), &b) == 0 &&
                            a.st_dev == b.st_dev && a.st_ino == b.st_ino);
}

}  // namespace penstock::apps
