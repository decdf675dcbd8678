#include "make_inputs.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <sys/stat.h>
#include <vector>

#include "common/message.hpp"
#include "common/output_file.hpp"
#include "common/random_numbers.hpp"
#include "common/stopwatch.hpp"
#include "common/threads.hpp"

namespace penstock::matvec {

namespace {

constexpr std::uint64_t piece_numbers = 1u << 20;

status fill(apps::output_file& file, std::uint64_t start, std::uint64_t count, std::uint32_t threads) {
    std::atomic<std::uint64_t> next{0};
    apps::first_error errors;
    apps::on_threads(threads, [&](std::uint32_t) {
        std::vector<float> piece(std::min(piece_numbers, count));
        for (std::uint64_t first = next.fetch_add(piece_numbers); first < count && !errors.stop(); first = next.fetch_add(piece_numbers)) {
            const std::uint64_t here = std::min(piece_numbers, count - first);
            for (std::uint64_t i = 0; i < here; ++i) piece[i] = 2 * apps::even_number(start, first + i) - 1;
            errors.note(file.write_at(piece.data(), here * sizeof(float), first * sizeof(float)));
        }
    });
    return errors.get();
}

// By name, and by where the names lead to if both are there.
bool same_file(const std::string& one, const std::string& other) {
    struct stat a {}, b {};
    return one == other || (::stat(one.c_str(), &a) == 0 && ::stat(other.c_str(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino);
}

}  // namespace

status make_inputs(const request& asked, make_report& report) {
    apps::stopwatch watch;
    const make_request& m = asked.make;
    if (same_file(m.matrix, m.vector)) return {-EINVAL, "-x: " + apps::shown(m.vector) + " is the file of the matrix too; give another name"};
    report.threads = apps::thread_count(asked.settings.worker_threads);
    apps::output_file matrix, vector;
    if (status s = matrix.open_named(m.matrix); !s) return s;
    if (status s = vector.open_named(m.vector); !s) return s;
    if (status s = fill(matrix, apps::random_start(m.seed, 0), m.rows * m.columns, report.threads); !s) return s;
    if (status s = fill(vector, apps::random_start(m.seed, 1), m.columns, report.threads); !s) return s;
    if (status s = matrix.commit(); !s) return s;
    if (status s = vector.commit(); !s) return s;
    report.bytes = (m.rows + 1) * m.columns * sizeof(float);
    report.seconds = watch.lap();
    return {};
}

}  // namespace penstock::matvec
