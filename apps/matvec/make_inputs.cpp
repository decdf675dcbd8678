#include "make_inputs.hpp"

#include <cerrno>

#include "common/message.hpp"
#include "common/random_file.hpp"
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

}  // namespace penstock::matvec
