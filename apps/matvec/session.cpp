// Makes the inputs of a product, or opens them and multiplies.
#include "report.hpp"

#include <cerrno>

#include "common/message.hpp"
#include "common/random_numbers.hpp"
#include "common/stopwatch.hpp"
#include "common/threads.hpp"

namespace penstock::matvec {

status make_inputs(const request& asked, make_report& report) {
    apps::stopwatch watch;
    const make_request& m = asked.make;
    if (apps::same_file(m.matrix, m.vector))
        return {-EINVAL, "-x: " + apps::shown(m.vector) +
                             " is the file of the matrix too; give another name"};
    report.threads = apps::thread_count(asked.settings.worker_threads);
    apps::output_file matrix, vector;
    if (status s = matrix.open_named(m.matrix); !s) return s;
    if (status s = vector.open_named(m.vector); !s) return s;
    if (status s = apps::fill_with_numbers(matrix, apps::random_start(m.seed, 0),
                                           m.rows * m.columns, report.threads);
        !s)
        return s;
    if (status s = apps::fill_with_numbers(vector, apps::random_start(m.seed, 1), m.columns,
                                           report.threads);
        !s)
        return s;
    if (status s = matrix.commit(); !s) return s;
    if (status s = vector.commit(); !s) return s;
    report.bytes = (m.rows + 1) * m.columns * sizeof(float);
    report.seconds = watch.lap();
    return {};
}

status open_files(session& s) {
    const run_request& asked = s.asked.run;
    matvec_job& job = s.job;
    if (status failed = apps::open_numbers(asked.matrix, "matrix", job.matrix); !failed)
        return failed;
    if (status failed = apps::open_numbers(asked.vector, "vector", job.vector); !failed)
        return failed;
    job.columns = job.vector.count();
    if (job.matrix.count() % job.columns != 0)
        return {-EINVAL, apps::shown(asked.matrix) + ": has " +
                             apps::with_commas(job.matrix.bytes) +
                             " bytes, which are no whole number of rows of " +
                             apps::with_commas(job.columns) + " columns (" +
                             apps::with_commas(job.vector.bytes) + " bytes) as " +
                             apps::shown(asked.vector) +
                             " says; copy the matrix again if it was cut short, or name the vector "
                             "that belongs to it"};
    job.rows = job.matrix.count() / job.columns;
    job.repeats = asked.repeats;
    job.windows = asked.windows;
    job.quiet = s.asked.common.quiet;
    job.settings = s.asked.settings;
    if (status failed = apps::check_not_input(asked.out, {&job.matrix, &job.vector}); !failed)
        return failed;
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

}  // namespace penstock::matvec
