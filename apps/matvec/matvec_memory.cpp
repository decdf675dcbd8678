#include "matvec_memory.hpp"

#include <cerrno>

#include "common/kernel_files.hpp"
#include "common/message.hpp"
#include "penstock/options.hpp"

namespace penstock::matvec {

namespace {

status copy_failed() {
    return {-EIO,
            "vector or result could not be copied to or from the device; is the GPU in order?"};
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

}  // namespace penstock::matvec
