// penstock-sssp: shortest paths over a graph whose file another program changes. See request.cpp
// for what it promises.
#include "common/message.hpp"
#include "common/process.hpp"
#include "report.hpp"

namespace penstock::sssp {

namespace {

status run(const request& asked) {
    session s;
    s.asked = asked;
    if (status failed = watch_for_signals(); !failed) return failed;
    if (status failed = open_files(s); !failed) return failed;
    if (status failed = run_all(s); !failed) return failed;
    return report(s);
}

status make(const request& asked) {
    make_report made;
    if (status failed = watch_for_signals(); !failed) return failed;
    if (status failed = make_graph(asked.make, made); !failed) return failed;
    return report(asked, made);
}

// The updater is ended by signals as any program is.
status follow(const request& asked) {
    return asked.what == command::make     ? make(asked)
           : asked.what == command::update ? update_weights(asked.update)
                                           : run(asked);
}

}  // namespace

}  // namespace penstock::sssp

int main(int argc, char** argv) {
    using namespace penstock;
    return apps::run_process("penstock-sssp", "use a smaller graph", [&] {
        sssp::request asked;
        if (const auto ended = sssp::read_request(argc, argv, asked)) return *ended;
        const status ended = sssp::follow(asked);
        apps::say(ended.message);
        return ended.ok() ? apps::exit_done : apps::exit_failed;
    });
}
