// Runs a command: its signals, its errors, its report.
#include "common/program.hpp"

#include <nlohmann/json.hpp>

#include "common/message.hpp"
#include "common/report_text.hpp"
#include "penstock/version.hpp"

namespace penstock::apps {

namespace {

status report(const program_text& program, const command& ended) {
    if (ended.common.json) {
        nlohmann::json out = {{"program", program.name}, {"version", version()}};
        if (*ended.text.name != '\0') out["command"] = ended.text.name;
        out.update(ended.json_of());
        if (status failed = print_json(line_of(out)); !failed) return failed;
    }
    if (!ended.common.quiet) ended.say_summary();
    return {};
}

}  // namespace

nlohmann::json command::json_of() const { return nlohmann::json::object(); }

int run_command(const program_text& program, command& chosen) {
    status ended = chosen.open();
    if (ended.ok() && chosen.text.kind != command_kind::internal) ended = watch_signals();
    if (ended.ok()) ended = chosen.run();
    if (ended.ok()) ended = report(program, chosen);
    say(ended.message);
    return ended.ok() && chosen.complete() ? exit_done : exit_failed;
}

}  // namespace penstock::apps
