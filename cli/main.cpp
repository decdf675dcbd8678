// penstock: looks at what Penstock can do here (info), reads files through it (cat), copies them
// (cp), keeps them in a cache for other processes (keep), tells what running programs do with it
// (stat), measures it (bench), serves a directory at another place (mount), makes traces of page
// accesses (trace), and plays them through a buffer of host and device memory (replay).
#include <CLI/CLI.hpp>

#include "bench/bench.hpp"
#include "command.hpp"
#include "common/manual.hpp"
#include "penstock/version.hpp"

namespace penstock::cli {

std::string command::line_of(nlohmann::json object) const {
    const std::string name = text.name;
    const std::size_t blank = name.find(' ');
    object["program"] = "penstock " + name.substr(0, blank);
    object["version"] = version();
    if (blank != std::string::npos) object["command"] = name.substr(blank + 1);
    return apps::line_of(object);
}

status command::report(const nlohmann::json& object, const std::string& shown) const {
    return common.json    ? apps::print_json(line_of(object))
           : common.quiet ? status{}
                          : apps::print_json(shown);
}

namespace {

constexpr const char* about_program =
    "Penstock: files for GPU kernels and CPU threads, through one page cache.\n";

constexpr const char* exit_statuses = "\nExit status: 0 done; 1 failed; 2 wrong usage.\n";

constexpr const char* about_trace =
    "Makes, converts and describes traces: which pages of which files were read, written "
    "and flushed, and when.\n";

class bench_command : public command {
public:
    bench_command()
        : command(
              {"bench",
               "Measures Penstock and what it is compared with in one run, again and again, and "
               "prints medians as one JSON object.\n",
               "\nCases:\n" + bench::about_cases() +
                   "  all         every one of them\n\nThe file that is read is made in --dir and "
                   "removed at the end, also after an error or Ctrl-C.\n"}) {}

    void add_options(apps::option_list& add) override {
        add.operands("CASE", asked_.cases, "What to measure, in this order");
        add.text("--backend", asked_.backend,
                 "Where kernels run: gpu, cpu, or auto (gpu if there is one)", "WHERE");
        add.text("--page", asked_.page,
                 "Page sizes in place of each case's own: powers of two, 512 to 2MiB",
                 "SIZE[,SIZE]");
        add.text("--cache", asked_.cache,
                 "Cache sizes of the cases that miss, in place of a 16th of the file",
                 "SIZE[,SIZE]");
        add.text("--file", asked_.file,
                 "Size of the file in place of each case's own; rounded up to a multiple of 2MiB",
                 "SIZE");
        add.text("--repeats", asked_.repeats,
                 "How often each figure is measured, in place of each case's own number", "N");
        add.text("--dir", asked_.directory,
                 "Where the file is made (default: the directory for temporary files)", "DIR");
        add.flag("--sweep", asked_.sweep,
                 "Measure over page sizes, cache sizes and service threads, for tools/plots.py");
        add.text("--threads", asked_.threads,
                 "Threads of the host that read, in place of each case's own number", "N");
        add.text("--service-threads", asked_.service_threads,
                 "Numbers of threads that serve requests, for the case request", "N[,N]");
        add.text("--commit", asked_.commit, "What was built, for the report", "ID");
        add.flag("--json", asked_.json,
                 "Does nothing: the report is always one JSON object on standard output");
        add.flag("--quiet", asked_.quiet,
                 "Say nothing about progress; errors and what was left out still appear");
    }

    status run() override {
        const int code = bench::run(asked_);
        used_wrongly = code == apps::exit_usage;
        return code == apps::exit_done ? status{} : status{-EIO, ""};  // it has been said
    }

private:
    bench::request asked_;
};

// When the options of a command are declared: all of them take longer than the copy of a small
// file, and only what describes every command needs them.
enum class options_of { named_command, every_command };

options_of needed_options(int argc, char** argv) {
    const std::string first = argc > 1 ? argv[1] : "";
    return first == "man" || first == "completion" || first == apps::manual_option
               ? options_of::every_command
               : options_of::named_command;
}

void declare_options(CLI::App& to, command& added, status& wrong) {
    apps::option_list options(to, wrong);
    added.add_options(options);
    if (added.text.makes_runtime) apps::add_common_flags(to, added.common, added.text.devices);
    if (added.text.about_json != nullptr)
        to.get_option("--json")->description(added.text.about_json);
}

CLI::App* declare(CLI::App& parent, command& added, status& wrong, options_of needed) {
    const std::string name = added.text.name;
    CLI::App* const out = parent.add_subcommand(name.substr(name.rfind(' ') + 1), added.text.about);
    out->footer(added.text.details + exit_statuses);
    if (needed == options_of::every_command) declare_options(*out, added, wrong);
    else
        out->preparse_callback(
            [out, &added, &wrong](std::size_t) { declare_options(*out, added, wrong); });
    return out;
}

int run_command(command& chosen, status wrong) {
    if (wrong.ok() && chosen.text.makes_runtime)
        wrong = apps::settle_options(chosen.common, chosen.settings, chosen.text.devices);
    if (wrong.ok()) wrong = chosen.check();
    const status ended = wrong.ok() ? chosen.run() : wrong;
    if (ended.ok()) return apps::exit_done;
    // Without a message: it has been said, or the reader of standard output has what it wanted.
    if (!ended.message.empty()) apps::say(chosen.text.message_prefix + ended.message);
    return wrong.ok() && !chosen.used_wrongly ? apps::exit_failed : apps::exit_usage;
}

int run(int argc, char** argv) {
    CLI::App app(about_program, "penstock");
    app.set_version_flag("--version", std::string("penstock ") + version());
    app.require_subcommand(0, 1);
    status wrong;
    std::vector<std::unique_ptr<command>> commands;
    commands.push_back(make_info());
    commands.push_back(make_cat());
    commands.push_back(make_cp());
    commands.push_back(make_keep());
    commands.push_back(make_stat());
    commands.push_back(make_mount());
    commands.push_back(std::make_unique<bench_command>());
    commands.push_back(make_replay());
    commands.push_back(make_man(app));
    commands.push_back(make_completion(app));
    const options_of needed = needed_options(argc, argv);
    std::vector<const CLI::App*> declared;
    for (const auto& added : commands) declared.push_back(declare(app, *added, wrong, needed));
    CLI::App* const trace = app.add_subcommand("trace", about_trace)->require_subcommand(1);
    for (auto& added : make_trace_commands()) {
        declared.push_back(declare(*trace, *added, wrong, needed));
        trace->footer(added->text.details + exit_statuses);  // the same for all of them
        commands.push_back(std::move(added));
    }
    if (const auto ended = apps::manual_asked(app, argc, argv)) return *ended;
    if (const auto ended = apps::parse_command_line(app, argc, argv)) return *ended;
    for (std::size_t i = 0; i < commands.size(); ++i)
        if (declared[i]->parsed()) return run_command(*commands[i], wrong);
    apps::say(
        "no command given; give info, cat, cp, keep, stat, mount, trace, replay, bench, man or "
        "completion, see --help");
    return apps::exit_usage;
}

}  // namespace

}  // namespace penstock::cli

int main(int argc, char** argv) {
    return penstock::apps::run_process("penstock", "do less at a time",
                                       [&] { return penstock::cli::run(argc, argv); });
}
