#include "report.hpp"

#include <nlohmann/json.hpp>

#include "common/message.hpp"
#include "common/report_text.hpp"
#include "penstock/version.hpp"

namespace penstock::matvec {

namespace {

using apps::text_of;
using nlohmann::json;

double gigabytes_of(const session& s) { return 1e-9 * static_cast<double>(s.job.matrix.bytes); }

}  // namespace

std::string json_of(const session& s) {
    const method_report& r = s.report;
    const double median = r.median_seconds();
    json out = {{"program", "penstock-matvec"},
                {"version", version()},
                {"command", "run"},
                {"rows", s.job.rows},
                {"columns", s.job.columns},
                {"matrix", s.job.matrix.path},
                {"matrix_bytes", s.job.matrix.bytes},
                {"vector", s.job.vector.path},
                {"result", s.asked.run.out},
                {"result_bytes", s.job.rows * sizeof(float)},
                {"gigabytes_a_second", median > 0 ? gigabytes_of(s) / median : 0.0}};
    out.update(apps::json_of(r));
    out["check"] = nullptr;
    if (s.asked.run.check)
        out["check"] = {{"greatest_deviation", s.check.greatest_deviation},
                        {"row", s.check.worst_row},
                        {"tolerance", s.check.tolerance},
                        {"rows_not_judged", s.check.not_judged},
                        {"seconds", s.check.seconds}};
    return apps::line_of(out);
}

std::string json_of(const request& asked, const make_report& r) {
    const make_request& m = asked.make;
    return apps::line_of({{"program", "penstock-matvec"},
                          {"version", version()},
                          {"command", "make"},
                          {"matrix", m.matrix},
                          {"vector", m.vector},
                          {"rows", m.rows},
                          {"columns", m.columns},
                          {"seed", m.seed},
                          {"bytes", r.bytes},
                          {"threads", r.threads},
                          {"seconds", {{"total", r.seconds}}}});
}

void say_summary(const session& s) {
    for (const std::string& note : s.notes) apps::say(note);
    const method_report& r = s.report;
    apps::say(r.name + " on " + r.backend + " (" + r.note + "): " + apps::with_commas(s.job.rows) +
              " rows of " + apps::with_commas(s.job.columns) + " columns, " +
              format_size(s.job.matrix.bytes) + ", in " +
              apps::times_of(r, gigabytes_of(s), "GB/s"));
    if (s.asked.run.check)
        apps::say("checked in " + text_of("%.2f s", s.check.seconds) + ": greatest deviation " +
                  text_of("%.3g", s.check.greatest_deviation) + " of the products of row " +
                  apps::with_commas(s.check.worst_row) + ", allowed " +
                  text_of("%.3g", s.check.tolerance) +
                  (s.check.not_judged == 0 ? ""
                                           : "; rows that could not be judged: " +
                                                 apps::with_commas(s.check.not_judged)));
}

void say_summary(const request& asked, const make_report& r) {
    apps::say(asked.make.matrix + " and " + asked.make.vector + ": " + format_size(r.bytes) +
              " in " + text_of("%.2f s", r.seconds) + " by " + std::to_string(r.threads) +
              " threads");
}

}  // namespace penstock::matvec
