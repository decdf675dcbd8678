// penstock-collage: makes libraries of tiles and collages from them. See request.cpp for what it
// promises.
#include "common/message.hpp"
#include "common/files.hpp"
#include "common/process.hpp"
#include "common/stopwatch.hpp"
#include "report.hpp"

namespace {

using namespace penstock::collage;
using penstock::status;
namespace apps = penstock::apps;

status print_json(const std::string& text) {
    apps::output_file standard_output;
    if (status failed = standard_output.open(""); !failed) return failed;
    return standard_output.write(text.data(), text.size());
}

int failed_with(const status& why) {
    apps::say(why.message);
    return apps::exit_failed;
}

int run_index(const request& asked) {
    index_report report;
    if (status failed = apps::watch_signals(); !failed) return failed_with(failed);
    const status ended = index_library(asked, report);
    if (!asked.index.strict || ended.ok())
        for (const std::string& one : report.left_out) apps::say(one);
    if (!ended.ok()) return failed_with(ended);
    if (asked.common.json)
        if (status failed = print_json(json_of(asked, report)); !failed) return failed_with(failed);
    if (!asked.common.quiet) say_summary(report);
    return apps::exit_done;
}

status run_method(const request& asked, const picture& in, picture& out, make_report& report) {
    const collage_job job{report.from, in, asked.settings, asked.common.quiet};
    if (asked.make.method == "cpu") return make_with_cpu(job, out, report.method);
    if (asked.make.method == "cuda") return make_with_cuda(job, out, report.method);
    return make_with_penstock(job, out, report.method, report.rt, report.notes);
}

// Everything that can be wrong with what was named is found before any work is done.
status make(const request& asked, make_report& report) {
    apps::stopwatch watch;
    apps::output_file file;
    if (status failed = open_library(asked.make.library, report.from); !failed) return failed;
    report.library_seconds = watch.lap();
    picture in, out;
    if (status failed = file.open(asked.make.out); !failed) return failed;
    if (status failed = load_picture(asked.make.input, in); !failed) return failed;
    report.width = in.width;
    report.height = in.height;
    report.decode_seconds = watch.lap();
    if (status failed = apps::watch_signals(); !failed) return failed;
    if (status failed = run_method(asked, in, out, report); !failed) return failed;
    watch.lap();
    if (status failed = write_picture(asked.make.out, out, file); !failed) return failed;
    report.encode_seconds = watch.lap();
    return {};
}

int run_make(const request& asked) {
    make_report report;
    if (status failed = make(asked, report); !failed) return failed_with(failed);
    if (asked.common.json)
        if (status failed = print_json(json_of(asked, report)); !failed) return failed_with(failed);
    if (!asked.common.quiet) say_summary(asked, report);
    return apps::exit_done;
}

}  // namespace

int main(int argc, char** argv) {
    return apps::run_process("penstock-collage", "use a smaller picture or library", [&] {
        request asked;
        if (const auto ended = read_request(argc, argv, asked)) return *ended;
        return asked.is_index ? run_index(asked) : run_make(asked);
    });
}
