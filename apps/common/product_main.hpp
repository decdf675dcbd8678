// What the main functions of programs with `make` and `run` have in common.
#pragma once

#include "common/command_line.hpp"
#include "common/message.hpp"
#include "common/report_text.hpp"

namespace penstock::apps {

// Everything that can be wrong with what was named is found before any work is done. `Session` has
// `asked` and `result`; the functions are found by its and the report's namespace.
template <typename Session>
status run_session(Session& s) {
    if (status failed = open_files(s); !failed) return failed;
    if (status failed = watch_signals(); !failed) return failed;
    if (status failed = multiply(s); !failed) return failed;
    if (status failed = s.result.commit(); !failed) return failed;
    if (s.asked.common.json)
        if (status failed = print_json(json_of(s)); !failed) return failed;
    if (!s.asked.common.quiet) say_summary(s);
    return {};
}

template <typename Request, typename Report>
status run_make(const Request& asked, Report report) {
    if (status failed = watch_signals(); !failed) return failed;
    if (status failed = make_inputs(asked, report); !failed) return failed;
    if (asked.common.json)
        if (status failed = print_json(json_of(asked, report)); !failed) return failed;
    if (!asked.common.quiet) say_summary(asked, report);
    return {};
}

// The exit status of the program.
template <typename Session, typename Report, typename Request>
int run_program(const char* name, int argc, char** argv) {
    return run_process(name, "use smaller matrices", [&] {
        Request asked;
        if (const auto ended = read_request(argc, argv, asked)) return *ended;
        Session s;
        s.asked = asked;
        const status ended = asked.is_make ? run_make(asked, Report{}) : run_session(s);
        say(ended.message);
        return ended.ok() ? exit_done : exit_failed;
    });
}

}  // namespace penstock::apps
