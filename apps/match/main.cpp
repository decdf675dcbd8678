// penstock-match: finds the first image like each query in databases of images. See request.cpp for
// what it promises.
#include "common/message.hpp"
#include "common/process.hpp"
#include "common/report_text.hpp"
#include "common/stopwatch.hpp"
#include "report.hpp"

namespace {

using namespace penstock::match;
using penstock::status;
namespace apps = penstock::apps;

int failed_with(const status& why) {
    apps::say(why.message);
    return apps::exit_failed;
}

// Everything that can be wrong with what was named is found before any work is done.
status search(session& s) {
    apps::output_file lines;
    if (status failed = open_files(s); !failed) return failed;
    if (status failed = lines.open(s.asked.search.out); !failed) return failed;
    if (status failed = apps::watch_signals(); !failed) return failed;
    if (status failed =
            s.asked.search.compare ? compare_methods(s) : run_method(s, s.asked.search.method);
        !failed)
        return failed;
    apps::stopwatch watch;
    if (!s.asked.search.out.empty() || !s.asked.common.json) {
        if (status failed = write_lines(s, lines); !failed) return failed;
        if (status failed = lines.commit(); !failed) return failed;
    }
    s.output_seconds = watch.lap();
    return s.asked.common.json ? apps::print_json(json_of(s)) : status{};
}

int run_search(request& asked) {
    session s;
    s.asked = asked;
    if (status failed = search(s); !failed) return failed_with(failed);
    if (!asked.common.quiet) say_summary(s);
    return apps::exit_done;
}

int run_make(const request& asked) {
    make_report report;
    if (status failed = apps::watch_signals(); !failed) return failed_with(failed);
    if (status failed = make_images(asked, report); !failed) return failed_with(failed);
    if (asked.common.json)
        if (status failed = apps::print_json(json_of(asked, report)); !failed)
            return failed_with(failed);
    if (!asked.common.quiet) say_summary(asked, report);
    return apps::exit_done;
}

}  // namespace

int main(int argc, char** argv) {
    return apps::run_process("penstock-match", "search for fewer images at a time", [&] {
        request asked;
        if (const auto ended = read_request(argc, argv, asked)) return *ended;
        return asked.is_make ? run_make(asked) : run_search(asked);
    });
}
