// Makes the inputs of a product, or opens them and multiplies.
#include "report.hpp"

#include <cerrno>

#include "common/message.hpp"
#include "common/random_numbers.hpp"
#include "common/stopwatch.hpp"
#include "common/threads.hpp"

namespace penstock::matmul {

status make_inputs(const request& asked, make_report& report) {
    apps::stopwatch watch;
    const make_request& make = asked.make;
    const matrix_sizes& size = asked.size;
    if (apps::same_file(make.a, make.b))
        return {-EINVAL, "-b: " + apps::shown(make.b) + " is the file of A too; give another name"};
    report.threads = apps::thread_count(asked.settings.worker_threads);
    apps::output_file a, b;
    if (status s = a.open_named(make.a); !s) return s;
    if (status s = b.open_named(make.b); !s) return s;
    if (status s = apps::fill_with_numbers(a, apps::random_start(make.seed, 0), size.m * size.k,
                                           report.threads);
        !s)
        return s;
    if (status s = apps::fill_with_numbers(b, apps::random_start(make.seed, 1), size.k * size.n,
                                           report.threads);
        !s)
        return s;
    if (status s = a.commit(); !s) return s;
    if (status s = b.commit(); !s) return s;
    report.bytes = (size.m + size.n) * size.k * sizeof(float);
    report.seconds = watch.lap();
    return {};
}

namespace {

status open_matrix(const std::string& path, std::uint64_t rows, std::uint64_t columns,
                   const std::string& flags, apps::number_file& out) {
    if (status failed = apps::open_numbers(path, "matrix", out); !failed) return failed;
    const std::uint64_t expected = rows * columns * sizeof(float);
    if (out.bytes == expected) return {};
    return {-EINVAL, apps::shown(path) + ": has " + apps::with_commas(out.bytes) +
                         " bytes and should have " + apps::with_commas(expected) + " for " +
                         apps::with_commas(rows) + " rows of " + apps::with_commas(columns) +
                         "; give " + flags +
                         " as it was made, or copy it again if it was cut short"};
}

}  // namespace

status open_files(session& s) {
    const run_request& asked = s.asked.run;
    const matrix_sizes& size = s.asked.size;
    matmul_job& job = s.job;
    job.m = size.m, job.n = size.n, job.k = size.k;
    job.repeats = asked.repeats;
    job.windows = asked.windows;
    job.quiet = s.asked.common.quiet;
    job.settings = s.asked.settings;
    if (status failed = open_matrix(asked.a, size.m, size.k, "--m and --k", job.a); !failed)
        return failed;
    if (status failed = open_matrix(asked.b, size.k, size.n, "--k and --n", job.b); !failed)
        return failed;
    if (status failed = apps::check_not_input(asked.out, {&job.a, &job.b}); !failed) return failed;
    job.result = &s.result;
    return s.result.open_named(asked.out);
}

status multiply(session& s) {
    s.report.name = s.asked.run.method;
    const std::string& name = s.report.name;
    const status ended = name == "cpu"    ? multiply_with_cpu(s.job, s.report)
                         : name == "cuda" ? multiply_with_cuda(s.job, s.report)
                                          : multiply_with_penstock(s.job, s.report, s.notes);
    if (was_interrupted()) return {-ECANCELED, "interrupted; nothing was written"};
    if (!ended.ok() || !s.asked.run.check) return ended;
    return check_result(s.job, s.check);
}

}  // namespace penstock::matmul
