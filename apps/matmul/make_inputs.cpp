#include "make_inputs.hpp"

#include <cerrno>

#include "common/message.hpp"
#include "common/random_file.hpp"
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

}  // namespace penstock::matmul
