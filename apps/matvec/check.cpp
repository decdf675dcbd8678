#include "check.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <fcntl.h>
#include <mutex>
#include <unistd.h>
#include <vector>

#include "common/float_judge.hpp"
#include "common/message.hpp"
#include "common/report_text.hpp"
#include "common/stopwatch.hpp"
#include "common/threads.hpp"
#include "common/files.hpp"
#include "matvec_view.hpp"

namespace penstock::matvec {

namespace {

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

status verdict(const apps::float_judge& judge, check_report& out) {
    out.greatest_deviation = judge.worst();
    out.worst_row = judge.place();
    out.tolerance = judge.limit();
    out.not_judged = judge.not_judged();
    if (judge.passes()) return {};
    return {-EILSEQ, "--check: row " + std::to_string(judge.place()) + " is " +
                         apps::text_of("%.9g", judge.found()) + " and should be " +
                         apps::text_of("%.9g", judge.expected()) + ", a deviation of " +
                         apps::text_of("%.3g", judge.worst()) + " of its products, more than " +
                         apps::text_of("%.3g", judge.limit()) +
                         "; nothing was written, please report this"};
}

status read_result(const matvec_job& job, std::vector<float>& y) {
    y.resize(job.rows);
    const std::string& path = job.result->passing_path();
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return {-errno, apps::shown(path) + ": " + error_text(-errno) +
                            "; the result could not be read to be checked"};
    const off_t bytes = ::lseek(fd, 0, SEEK_END);
    status ended = apps::read_exactly(path, fd, y.data(), y.size() * sizeof(float), 0);
    ::close(fd);
    if (ended.ok() && static_cast<std::uint64_t>(bytes) != y.size() * sizeof(float))
        return {-EILSEQ,
                "--check: the result has " + apps::with_commas(static_cast<std::uint64_t>(bytes)) +
                    " bytes and should have " + apps::with_commas(y.size() * sizeof(float)) +
                    "; nothing was written, please report this"};
    return ended;
}

}  // namespace

double tolerance_of(std::uint64_t columns) {
    const std::uint64_t segments = pieces_of(columns, segment_columns),
                        of_part = pieces_of(std::min(columns, segment_columns), part_count) + 1;
    // A part: one rounding a product. Then 2 and 5 additions of the tree; those of segments and
    // their 5; and the rounding of the reference.
    const std::uint64_t roundings =
        of_part + 7 + (segments == 1 ? 0 : pieces_of(segments, part_count / 4) + 5) + 1;
    return static_cast<double>(roundings) * 0x1p-24;
}

status check_result(const matvec_job& job, check_report& out) {
    apps::stopwatch watch;
    std::vector<float> y;
    if (status s = read_result(job, y); !s) return s;
    apps::mapped_file matrix, vector;
    if (status s = matrix.open(job.matrix.path, job.matrix.bytes); !s) return s;
    if (status s = vector.open(job.vector.path, job.vector.bytes); !s) return s;
    const auto* const a = reinterpret_cast<const float*>(matrix.data());
    const auto* const x = reinterpret_cast<const float*>(vector.data());
    const std::uint64_t segments = pieces_of(job.columns, segment_columns),
                        rows_at_once = rows_of_item(job.columns);
    // All threads for a row that is long, a thread for several that are short.
    std::vector<apps::exact_sum> parts(segments == 1 ? 0 : job.rows * segments);
    std::atomic<std::uint64_t> next{0};
    std::mutex mutex;
    apps::float_judge all(tolerance_of(job.columns), job.columns);
    const std::uint64_t items = segments == 1 ? pieces_of(job.rows, rows_at_once) : parts.size();
    apps::on_threads(apps::thread_count(job.settings.worker_threads), [&](std::uint32_t) {
        apps::float_judge mine(all.limit(), job.columns);
        for (std::uint64_t item = next.fetch_add(1); item < items && !was_interrupted();
             item = next.fetch_add(1)) {
            if (segments != 1) {
                const std::uint64_t row = item / segments,
                                    first = item % segments * segment_columns;
                parts[item] = sum_exactly(a + row * job.columns + first, x + first,
                                          std::min(segment_columns, job.columns - first));
                continue;
            }
            for (std::uint64_t row = item * rows_at_once;
                 row < std::min((item + 1) * rows_at_once, job.rows); ++row)
                mine.look(row, y[row], sum_exactly(a + row * job.columns, x, job.columns));
        }
        std::lock_guard lock(mutex);
        all.add(mine);
    });
    if (was_interrupted()) return {-ECANCELED, "interrupted; nothing was written"};
    for (std::uint64_t row = 0; row < job.rows && segments != 1; ++row) {
        apps::exact_sum sum;
        for (std::uint64_t i = row * segments; i < (row + 1) * segments; ++i)
            sum.value += parts[i].value, sum.size += parts[i].size;
        all.look(row, y[row], sum);
    }
    out.seconds = watch.lap();
    return verdict(all, out);
}

}  // namespace penstock::matvec
