#include "session.hpp"

#include <cerrno>

#include "common/message.hpp"

namespace penstock::matmul {

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
