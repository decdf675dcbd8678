// penstock-matvec: multiplies a matrix in a file with a vector. See request.cpp for what it promises.
#include <new>

#include "common/message.hpp"
#include "common/report_text.hpp"
#include "report.hpp"

namespace {

using namespace penstock::matvec;
using penstock::status;
namespace apps = penstock::apps;

int failed_with(const status& why) {
    apps::say(why.message);
    return apps::exit_failed;
}

// Everything that can be wrong with what was named is found before any work is done.
status run(session& s) {
    if (status failed = open_files(s); !failed) return failed;
    if (status failed = apps::watch_signals(); !failed) return failed;
    if (status failed = multiply(s); !failed) return failed;
    if (status failed = s.result.commit(); !failed) return failed;
    return s.asked.common.json ? apps::print_json(json_of(s)) : status{};
}

int run_product(const request& asked) {
    session s;
    s.asked = asked;
    if (status failed = run(s); !failed) return failed_with(failed);
    if (!asked.common.quiet) say_summary(s);
    return apps::exit_done;
}

int run_make(const request& asked) {
    make_report report;
    if (status failed = apps::watch_signals(); !failed) return failed_with(failed);
    if (status failed = make_inputs(asked, report); !failed) return failed_with(failed);
    if (asked.common.json)
        if (status failed = apps::print_json(json_of(asked, report)); !failed) return failed_with(failed);
    if (!asked.common.quiet) say_summary(asked, report);
    return apps::exit_done;
}

}  // namespace

int main(int argc, char** argv) {
    apps::set_program_name("penstock-matvec");
    request asked;
    if (const auto ended = read_request(argc, argv, asked)) return *ended;
    try {
        return asked.is_make ? run_make(asked) : run_product(asked);
    } catch (const std::bad_alloc&) {
        apps::say("out of memory; free some, or multiply fewer rows at a time");
        return apps::exit_failed;
    }
}
