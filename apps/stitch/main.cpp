// penstock-stitch: puts tiles of a microscope together. See request.cpp for what it promises.
#include <utility>

#include "common/command_line.hpp"
#include "common/message.hpp"
#include "common/report_text.hpp"
#include "report.hpp"

namespace penstock::stitch {

status make_runtime(session& s, options settings) {
    return apps::create_runtime(std::move(settings), s.notes, s.rt);
}

namespace {

status run(session& s) {
    // First, so that no signal leaves a passing file behind.
    if (status failed = apps::watch_signals(); !failed) return failed;
    if (status failed = open_files(s); !failed) return failed;
    if (status failed = stitch(s); !failed) return failed;
    if (status failed = s.image.commit(); !failed) return failed;
    if (s.asked.json)
        if (status failed = apps::print_json(json_of(s)); !failed) return failed;
    if (!s.asked.quiet) say_summary(s);
    return {};
}

status make(const request& asked) {
    make_report report;
    if (status failed = apps::watch_signals(); !failed) return failed;
    if (status failed = make_tiles(asked, report); !failed) return failed;
    if (asked.json)
        if (status failed = apps::print_json(json_of(asked, report)); !failed) return failed;
    if (!asked.quiet) say_summary(asked, report);
    return {};
}

}  // namespace
}  // namespace penstock::stitch

int main(int argc, char** argv) {
    using namespace penstock;
    return apps::run_process("penstock-stitch", "use fewer tiles", [&] {
        stitch::session s;
        if (const auto ended = stitch::read_request(argc, argv, s.asked)) return *ended;
        const status ended = s.asked.is_make ? stitch::make(s.asked) : stitch::run(s);
        apps::say(ended.message);
        return ended.ok() ? apps::exit_done : apps::exit_failed;
    });
}
