// penstock-grep: counts the words of a dictionary in files. See request.cpp for what it promises.
#include <cstdio>

#include "common/message.hpp"
#include "common/process.hpp"
#include "report.hpp"

namespace {

using namespace penstock::grep;
using penstock::status;
namespace apps = penstock::apps;

// Everything that can be wrong with what was named is found before any work is done.
status read_inputs(session& s, apps::output_file& lines) {
    stopwatch watch;
    if (status failed = load_dictionary(s.asked.dictionary, s.asked.strict, s.words); !failed)
        return failed;
    s.seconds.dictionary = watch.lap();
    if (status failed = find_files(s.asked.paths, s.files); !failed) return failed;
    for (const input_file& file : s.files.files) s.total_bytes += file.bytes;
    s.seconds.find_files = watch.lap();
    return lines.open(s.asked.out);
}

status search(session& s) {
    if (status failed = apps::watch_signals(); !failed) return failed;
    const status ended = s.asked.compare ? compare_methods(s) : run_method(s, s.asked.method);
    if (penstock::was_interrupted()) return {-ECANCELED, "interrupted; nothing was written"};
    if (!ended.ok()) return ended;
    s.seconds.start = s.runs.back().start_seconds;
    s.seconds.search = s.runs.back().search_seconds;
    return {};
}

status print(session& s, apps::output_file& lines) {
    stopwatch watch;
    const bool to_file = !s.asked.out.empty();
    if (to_file || !s.asked.common.json) {
        if (status failed = write_lines(s, lines); !failed) return failed;
        if (status failed = lines.commit(); !failed) return failed;
    }
    s.seconds.output = watch.lap();
    if (s.asked.common.json) {
        apps::output_file standard_output;
        const std::string text = json_of(s);
        if (status failed = standard_output.open(""); !failed) return failed;
        if (status failed = standard_output.write(text.data(), text.size()); !failed) return failed;
    }
    return {};
}

int run(session& s) {
    apps::output_file lines;
    status ended = read_inputs(s, lines);
    if (ended.ok()) ended = search(s);
    if (!ended.ok()) {
        apps::say(ended.message);
        return apps::exit_failed;
    }
    if (!s.words.warning.empty()) apps::say(s.words.warning);
    for (const std::string& complaint : s.files.complaints) apps::say(complaint);
    say_left_out(s);
    if (status failed = print(s, lines); !failed) {
        apps::say(failed.message);
        return apps::exit_failed;
    }
    if (!s.asked.common.quiet) say_summary(s);
    return s.files.complaints.empty() && s.runs.back().found.errors.empty() ? apps::exit_done
                                                                            : apps::exit_failed;
}

}  // namespace

int main(int argc, char** argv) {
    return apps::run_process("penstock-grep", "search fewer files at a time", [&] {
        session s;
        if (const auto ended = read_request(argc, argv, s.asked)) return *ended;
        return run(s);
    });
}
