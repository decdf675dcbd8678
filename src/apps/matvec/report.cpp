#include "report.hpp"

#include <algorithm>

#include "common/message.hpp"
#include "common/report_text.hpp"
#include "penstock/version.hpp"

namespace penstock::matvec {

namespace {

using apps::text_of;
using nlohmann::json;

double median_of(std::vector<double> numbers) {
    std::sort(numbers.begin(), numbers.end());
    const std::size_t half = numbers.size() / 2;
    return numbers.size() % 2 == 1 ? numbers[half] : (numbers[half - 1] + numbers[half]) / 2;
}

double gigabytes_a_second(std::uint64_t bytes, double seconds) { return seconds > 0 ? 1e-9 * static_cast<double>(bytes) / seconds : 0.0; }

double sum_of(const std::vector<double>& numbers) {
    double sum = 0;
    for (const double one : numbers) sum += one;
    return sum;
}

}  // namespace

std::string json_of(const session& s) {
    const method_report& r = s.report;
    const double all = sum_of(r.seconds);
    json out = {{"program", "penstock-matvec"}, {"version", version()}, {"command", "run"}, {"method", r.name}, {"backend", r.backend}, {"how", r.note},
                {"rows", s.job.rows}, {"columns", s.job.columns}, {"matrix", s.job.matrix.path}, {"matrix_bytes", s.job.matrix.bytes},
                {"vector", s.job.vector.path}, {"result", s.asked.run.out}, {"result_bytes", s.job.rows * sizeof(float)},
                {"gigabytes_a_second", gigabytes_a_second(s.job.matrix.bytes, median_of(r.seconds))}, {"bytes_read", r.bytes_read},
                {"window_bytes", r.window_bytes}, {"cpu_seconds", r.cpu_seconds}, {"cpu_cores_used", all > 0 ? r.cpu_seconds / all : 0.0},
                {"seconds", {{"start", r.start_seconds}, {"windows", r.window_seconds}, {"runs", r.seconds}, {"median", median_of(r.seconds)}}}};
    out["check"] = nullptr;
    if (s.asked.run.check)
        out["check"] = {{"greatest_deviation", s.check.greatest_deviation}, {"row", s.check.worst_row}, {"tolerance", s.check.tolerance},
                        {"rows_not_judged", s.check.not_judged}, {"seconds", s.check.seconds}};
    out["runtime"] = r.rt != nullptr ? apps::json_of(*r.rt) : json(nullptr);
    return apps::line_of(out);
}

std::string json_of(const request& asked, const make_report& r) {
    const make_request& m = asked.make;
    return apps::line_of({{"program", "penstock-matvec"}, {"version", version()}, {"command", "make"}, {"matrix", m.matrix}, {"vector", m.vector}, {"rows", m.rows},
                          {"columns", m.columns}, {"seed", m.seed}, {"bytes", r.bytes}, {"threads", r.threads}, {"seconds", {{"total", r.seconds}}}});
}

void say_summary(const session& s) {
    for (const std::string& note : s.notes) apps::say(note);
    const method_report& r = s.report;
    std::string times;
    for (const double one : r.seconds) times += (times.empty() ? "" : ", ") + text_of("%.3f s", one);
    apps::say(r.name + " on " + r.backend + " (" + r.note + "): " + apps::with_commas(s.job.rows) + " rows of " + apps::with_commas(s.job.columns) + " columns, " +
              format_size(s.job.matrix.bytes) + ", in " + times + " (" + text_of("%.2f GB/s", gigabytes_a_second(s.job.matrix.bytes, median_of(r.seconds))) +
              "), windows " + text_of("%.3f s", r.window_seconds) + ", start " + text_of("%.3f s", r.start_seconds));
    if (s.asked.run.check)
        apps::say("checked in " + text_of("%.2f s", s.check.seconds) + ": greatest deviation " + text_of("%.3g", s.check.greatest_deviation) + " of the products of row " +
                  apps::with_commas(s.check.worst_row) + ", allowed " + text_of("%.3g", s.check.tolerance) +
                  (s.check.not_judged == 0 ? "" : "; rows that could not be judged: " + apps::with_commas(s.check.not_judged)));
}

void say_summary(const request& asked, const make_report& r) {
    apps::say(asked.make.matrix + " and " + asked.make.vector + ": " + format_size(r.bytes) + " in " + text_of("%.2f s", r.seconds) + " by " + std::to_string(r.threads) +
              " threads");
}

}  // namespace penstock::matvec
