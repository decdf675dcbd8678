// Memory of the device that computes, and the baseline on CPU threads.
#include "methods.hpp"

#include <cerrno>

#include "common/kernel_files.hpp"
#include "common/message.hpp"
#include "common/report_text.hpp"
#include "common/threads.hpp"
#include "common/files.hpp"
#include "penstock/options.hpp"
#include "sum_items.hpp"

namespace penstock::matvec {

namespace {

status copy_failed() {
    return {-EIO,
            "vector or result could not be copied to or from the device; is the GPU in order?"};
}

// Baseline: all cores, vector code, a memory map.

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

status matvec_memory::place(const matvec_job& job) {
    view_ = {};
    view_.rows = job.rows;
    view_.columns = job.columns;
    view_.segments = pieces_of(job.columns, segment_columns);
    view_.item_rows = rows_of_item(job.columns);
    view_.add_products = chosen_products().add_products;
    const bool whole = view_.segments == 1;
    if (memory_ != nullptr && memory_->allocate(x_, view_.columns) &&
        memory_->allocate(view_.sums, view_.rows * view_.segments) &&
        (whole || memory_->allocate(view_.y, view_.rows)) &&
        memory_->allocate(view_.ended, view_.band_count()) && memory_->allocate(view_.totals, 1)) {
        view_.x = x_;
        if (whole) view_.y = view_.sums;
        return {};
    }
    return {
        -ENOMEM,
        "the vector and the sums of " + apps::with_commas(view_.rows) + " rows need " +
            format_size((view_.columns + view_.rows * (view_.segments + (whole ? 0 : 1))) *
                        sizeof(float)) +
            " of memory that is not free; use a smaller --cache, or multiply fewer rows at a time"};
}

status matvec_memory::reset() {
    const apps::work_totals zero{};
    return memory_->upload(view_.totals, &zero, sizeof zero) ? status{} : copy_failed();
}

status matvec_memory::outcome(const matvec_job& job) {
    apps::work_totals totals{};
    if (!memory_->download(&totals, view_.totals, sizeof totals)) return copy_failed();
    if (totals.code == 0) return {};
    const auto failed = static_cast<bad_file>(totals.failed);
    return failed == bad_file::result
               ? apps::write_error(totals.code)
               : apps::read_error(failed == bad_file::vector ? job.vector : job.matrix,
                                  totals.code);
}

status matvec_memory::upload_vector(const float* from) {
    return memory_->upload(x_, from, view_.columns * sizeof(float)) ? status{} : copy_failed();
}

status matvec_memory::download_result(float* to) {
    return memory_->download(to, view_.y, view_.rows * sizeof(float)) ? status{} : copy_failed();
}

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
