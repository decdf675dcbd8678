// Compares a result with a reference in double precision.
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <sys/stat.h>
#include <vector>

#include "common/float_judge.hpp"
#include "common/message.hpp"
#include "common/process.hpp"
#include "common/threads.hpp"
#include "methods.hpp"
#include "penstock/base/hash.hpp"
#include "views.hpp"

namespace penstock::matrix {

namespace {

constexpr std::uint64_t rows_together = 32,
                        columns_together = 128;  // their sums are in the cache of a processor
constexpr std::uint64_t rows_of_sample = 128;    // of which one is checked

struct three_maps {
    apps::mapped_file a_file, b_file, c_file;
    const float* a = nullptr;
    const float* b = nullptr;
    const float* c = nullptr;

    status open(const matrix_job& job) {
        const std::string& path = job.result->passing_path();
        struct stat info {};
        if (::stat(path.c_str(), &info) != 0)
            return {-errno, apps::shown(path) + ": " + error_text(-errno) +
                                "; the result could not be read to be checked"};
        if (info.st_size != static_cast<off_t>(job.result_bytes()))
            return apps::failure(-EILSEQ, "--check: the result has ", info.st_size,
                                 " bytes and should have ", job.result_bytes(),
                                 "; nothing was written, please report this");
        if (status s = a_file.open(job.a.path, job.a.bytes); !s) return s;
        if (status s = b_file.open(job.b.path, job.b.bytes); !s) return s;
        if (status s = c_file.open(path, job.result_bytes()); !s) return s;
        a = reinterpret_cast<const float*>(a_file.data());
        b = reinterpret_cast<const float*>(b_file.data());
        c = reinterpret_cast<const float*>(c_file.data());
        return {};
    }
};

// Items by all threads, each with a judge of its own; `look(item, judge)`.
template <typename Look>
void judge_all(const matrix_job& job, std::uint64_t items, apps::float_judge& all,
               const Look& look) {
    const std::uint32_t threads = apps::thread_count(job.settings.worker_threads);
    std::vector<apps::float_judge> judges(threads, apps::float_judge(all.limit(), job.size.k));
    // An interrupt ends it; the caller asks for that.
    static_cast<void>(apps::on_pieces(threads, items, 1,
                                      [&](std::uint32_t thread, std::uint64_t item, std::uint64_t) {
                                          look(item, judges[thread]);
                                          return status{};
                                      }));
    for (const apps::float_judge& own : judges) all.add(own);
}

// Sixteen sums side by side, for the vectors of the processor.
apps::exact_sum sum_exactly(const float* a, const float* x, std::uint64_t count) {
    constexpr std::uint64_t side = 16;
    double value[side] = {}, size[side] = {};
    std::uint64_t i = 0;
    for (; i + side <= count; i += side)
        for (std::uint64_t k = 0; k < side; ++k) {
            const double product = static_cast<double>(a[i + k]) * static_cast<double>(x[i + k]);
            value[k] += product;
            size[k] += std::fabs(product);
        }
    for (std::uint64_t k = 0; i < count; ++i, ++k) {
        const double product = static_cast<double>(a[i]) * static_cast<double>(x[i]);
        value[k] += product;
        size[k] += std::fabs(product);
    }
    apps::exact_sum out;
    for (std::uint64_t k = 0; k < side; ++k) out.value += value[k], out.size += size[k];
    return out;
}

// All rows: several short ones by a thread, a long one by all threads.
void judge_vector(const matrix_job& job, const three_maps& maps, apps::float_judge& judge) {
    const std::uint64_t columns = job.size.k, rows = job.size.m,
                        segments = pieces_of(columns, segment_columns),
                        rows_at_once = rows_of_item(columns);
    if (segments == 1) {
        judge_all(job, pieces_of(rows, rows_at_once), judge,
                  [&](std::uint64_t item, apps::float_judge& own) {
                      const std::uint64_t end = std::min((item + 1) * rows_at_once, rows);
                      for (std::uint64_t row = item * rows_at_once; row < end; ++row)
                          own.look(row, maps.c[row],
                                   sum_exactly(maps.a + row * columns, maps.b, columns));
                  });
        return;
    }
    std::vector<apps::exact_sum> parts(rows * segments);
    judge_all(job, parts.size(), judge, [&](std::uint64_t item, apps::float_judge&) {
        const std::uint64_t first = item % segments * segment_columns;
        parts[item] = sum_exactly(maps.a + item / segments * columns + first, maps.b + first,
                                  std::min(segment_columns, columns - first));
    });
    for (std::uint64_t row = 0; row < rows; ++row) {
        apps::exact_sum sum;
        for (std::uint64_t i = row * segments; i < (row + 1) * segments; ++i)
            sum.value += parts[i].value, sum.size += parts[i].size;
        judge.look(row, maps.c[row], sum);
    }
}

std::vector<std::uint64_t> rows_to_check(const matrix_sizes& size, double most_products) {
    std::vector<std::uint64_t> out;
    if (static_cast<double>(size.m) * static_cast<double>(size.n) * static_cast<double>(size.k) <=
        most_products) {
        for (std::uint64_t row = 0; row < size.m; ++row) out.push_back(row);
        return out;
    }
    for (std::uint64_t first = 0; first < size.m; first += rows_of_sample)
        out.push_back(first +
                      mix64(first + size.n + size.k) % std::min(rows_of_sample, size.m - first));
    return out;
}

// Some rows and columns of the result.
void judge_block(const matrix_sizes& size, const three_maps& maps, const std::uint64_t* rows,
                 std::uint64_t row_count, std::uint64_t column, apps::float_judge& judge) {
    const std::uint64_t width = std::min(columns_together, size.n - column);
    std::vector<double> values(row_count * columns_together, 0.0),
        sizes(row_count * columns_together, 0.0);
    for (std::uint64_t k = 0; k < size.k; ++k) {
        const float* const b = maps.b + k * size.n + column;
        for (std::uint64_t i = 0; i < row_count; ++i) {
            const double factor = maps.a[rows[i] * size.k + k];
            double *const v = &values[i * columns_together], *const s =
                                                                 &sizes[i * columns_together];
            for (std::uint64_t j = 0; j < width; ++j) {
                const double product = factor * static_cast<double>(b[j]);
                v[j] += product;
                s[j] += std::fabs(product);
            }
        }
    }
    for (std::uint64_t i = 0; i < row_count; ++i)
        for (std::uint64_t j = 0; j < width; ++j) {
            const std::uint64_t place = rows[i] * size.n + column + j;
            judge.look(place, maps.c[place],
                       {values[i * columns_together + j], sizes[i * columns_together + j]});
        }
}

void judge_matrix(const matrix_job& job, const three_maps& maps,
                  const std::vector<std::uint64_t>& rows, apps::float_judge& judge) {
    const std::uint64_t groups = pieces_of(rows.size(), rows_together),
                        blocks = groups * pieces_of(job.size.n, columns_together);
    judge_all(job, blocks, judge, [&](std::uint64_t block, apps::float_judge& own) {
        const std::uint64_t first = block % groups * rows_together;
        judge_block(job.size, maps, &rows[first],
                    std::min<std::uint64_t>(rows_together, rows.size() - first),
                    block / groups * columns_together, own);
    });
}

status verdict(const matrix_job& job, const apps::float_judge& judge, check_report& out) {
    out.greatest_deviation = judge.worst();
    out.worst_row = judge.place() / job.size.n;
    out.worst_column = judge.place() % job.size.n;
    out.tolerance = judge.limit();
    out.not_judged = judge.not_judged();
    if (judge.passes()) return {};
    return apps::failure(-EILSEQ, "--check: row ", std::to_string(out.worst_row),
                         job.is_vector() ? "" : ", column " + std::to_string(out.worst_column),
                         " is ", apps::text_of("%.9g", judge.found()), " and should be ",
                         apps::text_of("%.9g", judge.expected()), ", a deviation of ",
                         apps::text_of("%.3g", judge.worst()), " of its products, more than ",
                         apps::text_of("%.3g", judge.limit()),
                         "; nothing was written, please report this");
}

// A rounding at most changes a number by this part of it.
double of_roundings(std::uint64_t count) { return static_cast<double>(count) * 0x1p-24; }

}  // namespace

double vector_tolerance(std::uint64_t k) {
    const std::uint64_t segments = pieces_of(k, segment_columns),
                        of_part = pieces_of(std::min(k, segment_columns), part_count) + 1;
    // A part: one rounding a product. Then 2 and 5 additions of the tree; those of segments and
    // their 5; and the rounding of the reference.
    return of_roundings(of_part + 7 +
                        (segments == 1 ? 0 : pieces_of(segments, part_count / 4) + 5) + 1);
}

double product_tolerance(std::uint64_t k) {
    // One a product of a slab, one for each slab, and the rounding of the reference.
    return of_roundings(std::min<std::uint64_t>(k, slab_depth) + pieces_of(k, slab_depth) + 1);
}

double any_order_tolerance(std::uint64_t k) {
    // A product and its part of k - 1 additions, at most, and the rounding of the reference.
    return of_roundings(k + 1);
}

status check_result(const matrix_job& job, bool in_order, check_report& out, double most_products) {
    apps::stopwatch watch;
    three_maps maps;
    if (status s = maps.open(job); !s) return s;
    const std::uint64_t k = job.size.k;
    apps::float_judge judge(!in_order         ? any_order_tolerance(k)
                            : job.is_vector() ? vector_tolerance(k)
                                              : product_tolerance(k),
                            k);
    out.rows = job.size.m;
    if (job.is_vector()) {
        judge_vector(job, maps, judge);
    } else {
        const std::vector<std::uint64_t> rows = rows_to_check(job.size, most_products);
        out.rows = rows.size();
        judge_matrix(job, maps, rows, judge);
    }
    if (was_interrupted()) return {-ECANCELED, "interrupted; nothing was written"};
    out.seconds = watch.lap();
    return verdict(job, judge, out);
}

}  // namespace penstock::matrix
