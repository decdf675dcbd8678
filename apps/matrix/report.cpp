// What penstock-matrix prints of a product and of made files: the JSON object, the summary.
#include <nlohmann/json.hpp>

#include "common/message.hpp"
#include "common/report_text.hpp"
#include "session.hpp"

namespace penstock::matrix {

namespace {

using apps::text_of;
using nlohmann::json;

std::string text_of_size(std::uint64_t rows, std::uint64_t columns) {
    return apps::with_commas(rows) + " x " + apps::with_commas(columns);
}

// A product with a vector is measured by the reading of the matrix.
double gigabytes_of(const matrix_job& job) {
    return 1e-9 * static_cast<double>(job.shape == product_shape::vector
                                          ? job.a.bytes
                                          : job.a.bytes + job.b.bytes + job.result_bytes());
}

// A multiplication and an addition for each product.
double gigaflop_of(const matrix_job& job) {
    return 2e-9 * static_cast<double>(job.size.m) * static_cast<double>(job.size.n) *
           static_cast<double>(job.size.k);
}

json json_of_check(const check_report& checked) {
    return {{"rows", checked.rows},           {"greatest_deviation", checked.greatest_deviation},
            {"row", checked.worst_row},       {"column", checked.worst_column},
            {"tolerance", checked.tolerance}, {"numbers_not_judged", checked.not_judged},
            {"seconds", checked.seconds}};
}

}  // namespace

json product_command::json_of() const {
    const double median = report.median_seconds();
    json all = {{"m", job.size.m},
                {"n", job.size.n},
                {"k", job.size.k},
                {"a", job.a.path},
                {"b", job.b.path},
                {"result", out},
                {"a_bytes", job.a.bytes},
                {"b_bytes", job.b.bytes},
                {"result_bytes", job.result_bytes()},
                {"gflops", median > 0 ? gigaflop_of(job) / median : 0.0},
                {"gigabytes_a_second", median > 0 ? gigabytes_of(job) / median : 0.0}};
    all.update(apps::json_of(report));
    all["check"] = wants_check ? json_of_check(checked) : json(nullptr);
    return all;
}

void product_command::say_summary() const {
    apps::say_notes(report);
    const matrix_sizes& size = job.size;
    const std::string work =
        is_vector() ? apps::with_commas(size.m) + " rows of " + apps::with_commas(size.k) +
                          " columns, " + format_size(job.a.bytes) + ","
                    : text_of_size(size.m, size.k) + " by " + text_of_size(size.k, size.n);
    apps::say(report.name + " on " + report.backend + " (" + report.note + "): " + work + " in " +
              apps::times_of(report, is_vector() ? gigabytes_of(job) : gigaflop_of(job),
                             is_vector() ? "GB/s" : "GFLOP/s"));
    if (!wants_check) return;
    apps::say("checked " + apps::with_commas(checked.rows) + " rows in " +
              text_of("%.2f s", checked.seconds) + ": greatest deviation " +
              text_of("%.3g", checked.greatest_deviation) + " of the products of row " +
              apps::with_commas(checked.worst_row) +
              (is_vector() ? "" : ", column " + apps::with_commas(checked.worst_column)) +
              ", allowed " + text_of("%.3g", checked.tolerance) +
              (checked.not_judged == 0 ? ""
                                       : "; numbers that could not be judged: " +
                                             apps::with_commas(checked.not_judged)));
}

json make_command::json_of() const {
    return {{"m", size.m},    {"n", size.n},        {"k", size.k},
            {"a", a_path},    {"b", b_path},        {"seed", seed},
            {"bytes", bytes}, {"threads", threads}, {"seconds", {{"total", seconds}}}};
}

void make_command::say_summary() const {
    apps::say(a_path + " and " + b_path + ": " + format_size(bytes) + " in " +
              text_of("%.2f s", seconds) + " by " + std::to_string(threads) + " threads");
}

}  // namespace penstock::matrix
