// Baseline: all cores, vector code, a memory map.
#include <cerrno>

#include "common/progress.hpp"
#include "common/repetitions.hpp"
#include "common/threads.hpp"
#include "common/whole_file.hpp"
#include "matvec_memory.hpp"
#include "methods.hpp"
#include "sum_items.hpp"

namespace penstock::matvec {

namespace {

status multiply_once(const matvec_job& job, const matvec_view& view,
                     const numbers_in_memory& matrix, std::uint32_t threads) {
    apps::first_error errors;
    const apps::progress bar(
        "items", view.item_count(),
        [&] { return atomic_load<order::relaxed>(&view.totals->items_taken); }, !job.quiet);
    apps::on_threads(threads, [&](std::uint32_t) {
        const auto write = [&](const stretch& rows) -> std::int64_t {
            const status written = job.result->write_at(
                view.y + rows.begin, rows.count() * sizeof(float), rows.begin * sizeof(float));
            errors.note(written);
            return written.code;
        };
        sum_items(
            lane{}, matrix, view, [] { return was_interrupted(); }, write);
    });
    return errors.get();
}

}  // namespace

status multiply_with_cpu(const matvec_job& job, method_report& report) {
    apps::stopwatch watch;
    const std::uint32_t threads = apps::thread_count(job.settings.worker_threads);
    apps::mapped_file matrix, vector;
    if (status s = matrix.open(job.matrix.path, job.matrix.bytes); !s) return s;
    if (status s = vector.open(job.vector.path, job.vector.bytes); !s) return s;
    matvec_memory memory(apps::make_host_memory());
    if (status s = memory.place(job); !s) return s;
    report.note = std::to_string(threads) + " threads, " + chosen_products().name;
    matvec_view view = memory.view();
    view.x = reinterpret_cast<const float*>(vector.data());
    report.start_seconds = watch.lap();
    return apps::repeat_timed(job.repeats, report, [&]() -> status {
        if (status s = memory.reset(); !s) return s;
        return multiply_once(job, view, {reinterpret_cast<const float*>(matrix.data()), 0},
                             threads);
    });
}

}  // namespace penstock::matvec
