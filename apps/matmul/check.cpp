#include "check.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <mutex>
#include <sys/stat.h>
#include <vector>

#include "common/float_judge.hpp"
#include "common/message.hpp"
#include "common/report_text.hpp"
#include "common/stopwatch.hpp"
#include "common/threads.hpp"
#include "common/files.hpp"
#include "matmul_view.hpp"
#include "penstock/base/hash.hpp"

namespace penstock::matmul {

namespace {

constexpr std::uint64_t rows_together = 32,
                        columns_together = 128;  // their sums are in the cache of a processor
constexpr std::uint64_t band_rows = 128;

std::vector<std::uint64_t> rows_to_check(const matmul_job& job, double most_products) {
    std::vector<std::uint64_t> out;
    if (static_cast<double>(job.m) * static_cast<double>(job.n) * static_cast<double>(job.k) <=
        most_products) {
        for (std::uint64_t row = 0; row < job.m; ++row) out.push_back(row);
        return out;
    }
    for (std::uint64_t first = 0; first < job.m; first += band_rows)
        out.push_back(first + mix64(first + job.n + job.k) % std::min(band_rows, job.m - first));
    return out;
}

struct three_maps {
    apps::mapped_file a, b, c;

    status open(const matmul_job& job) {
        const std::string& path = job.result->passing_path();
        struct stat info {};
        const std::uint64_t expected = job.m * job.n * sizeof(float);
        if (::stat(path.c_str(), &info) != 0)
            return {-errno, apps::shown(path) + ": " + error_text(-errno) +
                                "; the result could not be read to be checked"};
        if (static_cast<std::uint64_t>(info.st_size) != expected)
            return {-EILSEQ, "--check: the result has " +
                                 apps::with_commas(static_cast<std::uint64_t>(info.st_size)) +
                                 " bytes and should have " + apps::with_commas(expected) +
                                 "; nothing was written, please report this"};
        if (status s = a.open(job.a.path, job.a.bytes); !s) return s;
        if (status s = b.open(job.b.path, job.b.bytes); !s) return s;
        return c.open(path, expected);
    }
    static const float* numbers(const apps::mapped_file& file) {
        return reinterpret_cast<const float*>(file.data());
    }
};

// Some rows and columns of the result.
void judge_block(const matmul_job& job, const three_maps& maps, const std::uint64_t* rows,
                 std::uint64_t row_count, std::uint64_t column, apps::float_judge& judge) {
    const std::uint64_t width = std::min(columns_together, job.n - column);
    std::vector<double> value(row_count * columns_together, 0.0),
        size(row_count * columns_together, 0.0);
    const float *const a = three_maps::numbers(maps.a), *const c = three_maps::numbers(maps.c);
    for (std::uint64_t k = 0; k < job.k; ++k) {
        const float* const b = three_maps::numbers(maps.b) + k * job.n + column;
        for (std::uint64_t i = 0; i < row_count; ++i) {
            const double factor = a[rows[i] * job.k + k];
            double *const v = &value[i * columns_together], *const s = &size[i * columns_together];
            for (std::uint64_t j = 0; j < width; ++j) {
                const double product = factor * static_cast<double>(b[j]);
                v[j] += product;
                s[j] += std::fabs(product);
            }
        }
    }
    for (std::uint64_t i = 0; i < row_count; ++i)
        for (std::uint64_t j = 0; j < width; ++j) {
            const std::uint64_t place = rows[i] * job.n + column + j;
            judge.look(place, c[place],
                       {value[i * columns_together + j], size[i * columns_together + j]});
        }
}

status verdict(const matmul_job& job, const apps::float_judge& judge, check_report& out) {
    out.greatest_deviation = judge.worst();
    out.worst_row = judge.place() / job.n;
    out.worst_column = judge.place() % job.n;
    out.tolerance = judge.limit();
    out.not_judged = judge.not_judged();
    if (judge.passes()) return {};
    return {-EILSEQ,
            "--check: row " + std::to_string(out.worst_row) + ", column " +
                std::to_string(out.worst_column) + " is " + apps::text_of("%.9g", judge.found()) +
                " and should be " + apps::text_of("%.9g", judge.expected()) + ", a deviation of " +
                apps::text_of("%.3g", judge.worst()) + " of its products, more than " +
                apps::text_of("%.3g", judge.limit()) + "; nothing was written, please report this"};
}

}  // namespace

double tolerance_of(std::uint64_t k) {
    const std::uint64_t slabs = pieces_of(k, slab_depth);
    // One a product of a slab, one for each slab, and the rounding of the reference.
    return static_cast<double>(std::min<std::uint64_t>(k, slab_depth) + slabs + 1) * 0x1p-24;
}

status check_result(const matmul_job& job, check_report& out, double most_products) {
    apps::stopwatch watch;
    three_maps maps;
    if (status s = maps.open(job); !s) return s;
    const std::vector<std::uint64_t> rows = rows_to_check(job, most_products);
    const std::uint64_t groups = pieces_of(rows.size(), rows_together),
                        blocks = groups * pieces_of(job.n, columns_together);
    std::atomic<std::uint64_t> next{0};
    std::mutex mutex;
    apps::float_judge all(tolerance_of(job.k), job.k);
    apps::on_threads(apps::thread_count(job.settings.worker_threads), [&](std::uint32_t) {
        apps::float_judge mine(all.limit(), job.k);
        for (std::uint64_t block = next.fetch_add(1); block < blocks && !was_interrupted();
             block = next.fetch_add(1)) {
            const std::uint64_t first = block % groups * rows_together;
            judge_block(job, maps, &rows[first],
                        std::min<std::uint64_t>(rows_together, rows.size() - first),
                        block / groups * columns_together, mine);
        }
        std::lock_guard lock(mutex);
        all.add(mine);
    });
    if (was_interrupted()) return {-ECANCELED, "interrupted; nothing was written"};
    out.rows = rows.size();
    out.seconds = watch.lap();
    return verdict(job, all, out);
}

}  // namespace penstock::matmul
