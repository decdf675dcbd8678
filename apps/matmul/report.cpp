#include "report.hpp"

#include <nlohmann/json.hpp>

#include "common/message.hpp"
#include "common/report_text.hpp"
#include "penstock/version.hpp"

namespace penstock::matmul {

namespace {

using apps::text_of;
using nlohmann::json;

// A multiplication and an addition for each product.
double gigaflop_of(const session& s) {
    return 2e-9 * static_cast<double>(s.job.m) * static_cast<double>(s.job.n) *
           static_cast<double>(s.job.k);
}

std::string shape_of(std::uint64_t rows, std::uint64_t columns) {
    return apps::with_commas(rows) + " x " + apps::with_commas(columns);
}

}  // namespace

std::string json_of(const session& s) {
    const matmul_job& job = s.job;
    const double median = s.report.median_seconds();
    const std::uint64_t result_bytes = job.m * job.n * sizeof(float);
    json out = {
        {"program", "penstock-matmul"},
        {"version", version()},
        {"command", "run"},
        {"m", job.m},
        {"n", job.n},
        {"k", job.k},
        {"a", job.a.path},
        {"b", job.b.path},
        {"result", s.asked.run.out},
        {"input_bytes", job.a.bytes + job.b.bytes},
        {"result_bytes", result_bytes},
        {"gflops", median > 0 ? gigaflop_of(s) / median : 0.0},
        {"gigabytes_a_second",
         median > 0 ? 1e-9 * static_cast<double>(job.a.bytes + job.b.bytes + result_bytes) / median
                    : 0.0}};
    out.update(apps::json_of(s.report));
    out["check"] = nullptr;
    if (s.asked.run.check)
        out["check"] = {
            {"rows", s.check.rows},           {"greatest_deviation", s.check.greatest_deviation},
            {"row", s.check.worst_row},       {"column", s.check.worst_column},
            {"tolerance", s.check.tolerance}, {"numbers_not_judged", s.check.not_judged},
            {"seconds", s.check.seconds}};
    return apps::line_of(out);
}

std::string json_of(const request& asked, const make_report& r) {
    return apps::line_of({{"program", "penstock-matmul"},
                          {"version", version()},
                          {"command", "make"},
                          {"a", asked.make.a},
                          {"b", asked.make.b},
                          {"m", asked.size.m},
                          {"n", asked.size.n},
                          {"k", asked.size.k},
                          {"seed", asked.make.seed},
                          {"bytes", r.bytes},
                          {"threads", r.threads},
                          {"seconds", {{"total", r.seconds}}}});
}

void say_summary(const session& s) {
    for (const std::string& note : s.notes) apps::say(note);
    const method_report& r = s.report;
    apps::say(r.name + " on " + r.backend + " (" + r.note + "): " + shape_of(s.job.m, s.job.k) +
              " by " + shape_of(s.job.k, s.job.n) + " in " +
              apps::times_of(r, gigaflop_of(s), "GFLOP/s"));
    if (s.asked.run.check)
        apps::say("checked " + apps::with_commas(s.check.rows) + " rows in " +
                  text_of("%.2f s", s.check.seconds) + ": greatest deviation " +
                  text_of("%.3g", s.check.greatest_deviation) + " of the products of row " +
                  apps::with_commas(s.check.worst_row) + ", column " +
                  apps::with_commas(s.check.worst_column) + ", allowed " +
                  text_of("%.3g", s.check.tolerance) +
                  (s.check.not_judged == 0 ? ""
                                           : "; numbers that could not be judged: " +
                                                 apps::with_commas(s.check.not_judged)));
}

void say_summary(const request& asked, const make_report& r) {
    apps::say(asked.make.a + " and " + asked.make.b + ": " + format_size(r.bytes) + " in " +
              text_of("%.2f s", r.seconds) + " by " + std::to_string(r.threads) + " threads");
}

}  // namespace penstock::matmul
