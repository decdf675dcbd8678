#include "mount_command.hpp"

#include <cerrno>

#include "common/message.hpp"
#include "common/number.hpp"
#include "common/report_text.hpp"
#include "penstock/options.hpp"
#include "penstock/version.hpp"

namespace penstock::mount_command {

namespace {

bool quiet = false;
constexpr std::uint64_t most_read_ahead_bytes = 1u << 30;

void say_ready(const mount::serve_options& wanted) {
    if (!quiet) apps::say(apps::shown(wanted.source) + " is at " + apps::shown(wanted.point) + "; it goes with: fusermount3 -u " + wanted.point + ", or Ctrl-C");
}

status settle(const request& wanted, mount::serve_options& out) {
    out = wanted.how;
    if (status s = apps::parse_number<std::uint32_t>("--threads", wanted.threads, 1, 1024, "from 1 to 1024", out.threads); !s) return s;
    if (!wanted.read_ahead.empty())
        if (status s = parse_size("--read-ahead", wanted.read_ahead, out.read_ahead_bytes); !s) return s;
    if (!wanted.read_ahead.empty() && out.read_ahead_bytes > most_read_ahead_bytes)
        return {-EINVAL, "--read-ahead: " + wanted.read_ahead + " is further than anybody reads; give at most " + format_size(most_read_ahead_bytes)};
    if (wanted.json && out.background) return {-EINVAL, "--json reports when the mount is gone, and --background ends before; give one of them"};
    return mount::check(out);
}

status report(const request& wanted, const mount_report& done) {
    if (!wanted.json) return {};
    return apps::print_json(apps::line_of({{"program", "penstock mount"},
                                           {"version", version()},
                                           {"source", wanted.how.source},
                                           {"mount_point", wanted.how.point},
                                           {"requests", done.requests},
                                           {"errors", done.errors},
                                           {"reads", done.reads},
                                           {"bytes_asked", done.bytes_asked},
                                           {"writes", done.writes},
                                           {"bytes_written", done.bytes_written}}));
}

}  // namespace

int run(const request& wanted) {
    quiet = wanted.quiet;
    mount::serve_options how;
    mount_report done;
    status s = settle(wanted, how);
    if (s) s = mount::serve(how, say_ready, done);
    if (s) s = report(wanted, done);
    if (s) return apps::exit_done;
    apps::say("mount: " + s.message);
    return apps::exit_failed;
}

}  // namespace penstock::mount_command
