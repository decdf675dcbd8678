// penstock: looks at what Penstock can do here (info), reads files through it (cat), copies them
// (cp), measures it (bench), serves a directory at another place (mount), makes traces of page
// accesses (trace), and plays them through a buffer of host and device memory (replay).
#include <CLI/CLI.hpp>
#include <unistd.h>

#include "bench/bench.hpp"
#include "commands.hpp"
#include "common/command_line.hpp"
#include "common/message.hpp"
#include "common/process.hpp"
#include "penstock/version.hpp"

namespace {

namespace apps = penstock::apps;

constexpr const char* about =
    "Penstock: files for GPU kernels and CPU threads, through one page cache.\n";

constexpr const char* about_info =
    "Says which devices there are, what works on this machine and why not, the limits, and the "
    "options in force.\n"
    "Makes a runtime with these options to find out; exit status 1 if that fails.\n";

constexpr const char* about_cat =
    "Writes files to standard output, read through the page cache; byte for byte what cat "
    "writes.\n";

constexpr const char* details_cat =
    "\nOnly regular files can be read. All are opened before the first byte is written; one that "
    "cannot be opened ends the\n"
    "program with nothing written. A file that is appended to meanwhile is written as long as it "
    "was when it was opened.\n"
    "With --out, the file appears whole or not at all. --json needs --out, since standard output "
    "can hold only one thing.\n"
    "\nExit status: 0 done; 1 failed; 2 wrong usage.\n";

constexpr const char* about_cp =
    "Copies files through the page cache, by a kernel on the GPU or by CPU threads.\n";

constexpr const char* details_cp =
    "\nOne file to another name, or files into a directory that exists. A copy that is there is "
    "overwritten and keeps its\n"
    "permissions; a new one gets its source's, less the umask. Links are followed, and holes stay "
    "holes. All names are looked at\n"
    "before the first byte is written; one that is wrong ends the program with nothing changed. If "
    "a file cannot be copied\n"
    "to its end, it is said how far it came, the copy ends there, and the other files are still "
    "copied.\n"
    "Without --fsync the copy is what other programs read, but may be lost if the machine fails.\n"
    "\nExit status: 0 done; 1 failed; 2 wrong usage.\n";

constexpr const char* about_bench =
    "Measures Penstock and what it is compared with in one run, again and again, and prints "
    "medians as one JSON object.\n";

constexpr const char* details_bench =
    "\nThe file that is read is made in --dir and removed at the end, also after an error or "
    "Ctrl-C.\n"
    "\nExit status: 0 done; 1 failed; 2 wrong usage.\n";

constexpr const char* about_mount =
    "Serves a directory at another place (FUSE), for programs that know nothing of Penstock.\n";

constexpr const char* details_mount =
    "\nEvery operation of files and directories goes through to SOURCE. Runs until the mount is "
    "taken away (fusermount3 -u MOUNTPOINT)\n"
    "or Ctrl-C. If this process is killed the source is as it was, and the mount point answers "
    "ENOTCONN until it is taken away.\n"
    "As root other users may use the mount too, each with its own rights. The signal SIGUSR1 has "
    "it say what it did so far.\n"
    "\nExit status: 0 done; 1 failed; 2 wrong usage.\n";

constexpr const char* about_replay =
    "Plays a trace of page accesses through a buffer of host and device memory, and says where the "
    "pages were found.\n";

constexpr const char* details_replay =
    "\nnative has the host's part alone; gram puts what it drops into the device's; dedu also "
    "keeps equal blocks only once.\n"
    "Sizes are whole pages of the trace, at least two. With --simulate the trace is read once and "
    "may be a pipe. Otherwise its files are read, and with\n"
    "--writes changed: past the operating system's page cache, so that the sizes mean something. "
    "However it ends, what was written is in the files.\n"
    "\nExit status: 0 done; 1 failed; 2 wrong usage.\n";

CLI::App* add_replay(CLI::App& app, penstock::replay::request& wanted) {
    CLI::App* const replay = app.add_subcommand("replay", about_replay);
    replay->footer(details_replay);
    replay->add_option("TRACE", wanted.trace, "The trace, in text or binary form")->required();
    replay->add_flag("--simulate", wanted.simulate,
                     "Only count; read and write none of the trace's files");
    apps::add_value(*replay, "--policy", wanted.policy, "native, gram or dedu", "POLICY");
    apps::add_value(*replay, "--order", wanted.order,
                    "How the host's part chooses what goes: lru or clock (default lru)", "ORDER");
    apps::add_value(*replay, "--ram", wanted.ram, "Size of the host's part", "SIZE");
    apps::add_value(*replay, "--gpu", wanted.gpu, "Size of the device's part; native does without",
                    "SIZE");
    apps::add_value(*replay, "--blocks", wanted.blocks,
                    "Blocks that dedu cuts a page into: a power of two (default 4)", "N");
    apps::add_value(
        *replay, "--table", wanted.table,
        "Pages that dedu knows at once, at least 2 (default: 8 times those of both parts)", "N");
    apps::add_value(*replay, "--absent", wanted.absent,
                    "Blocks that dedu knows beside those in memory (default: twice as many as in "
                    "memory; 0: none)",
                    "N");
    apps::add_value(*replay, "--threads", wanted.threads, "Threads that access pages (default 1)",
                    "N");
    apps::add_value(*replay, "--backend", wanted.backend,
                    "Where the device's part lies: gpu or cpu (default: a GPU if there is one)",
                    "NAME");
    apps::add_value(*replay, "--signature", wanted.signature,
                    "What dedu finds equal blocks by: quick or md5 (default quick)", "NAME");
    apps::add_value(*replay, "--sign-on", wanted.sign_on,
                    "Where dedu makes signatures: cpu, each thread its page's, or device, a "
                    "batch's at once (default cpu)",
                    "NAME");
    apps::add_value(*replay, "--batch", wanted.batch,
                    "Pages that gram moves or dedu handles at once, at most (default 256)", "N");
    apps::add_value(*replay, "--batch-wait", wanted.batch_wait,
                    "Microseconds in which others may join a batch (default 0)", "N");
    replay->add_flag("--always-dedu", wanted.always_dedu,
                     "Look for equal blocks also in files that have hardly any");
    replay->add_flag("--cached", wanted.cached,
                     "Read and write through the operating system's page cache, not past it");
    replay->add_flag("--writes", wanted.writes,
                     "The trace's files may be changed: its writes are done");
    replay->add_flag("--verify", wanted.verify,
                     "Compare each page that is read with what the trace says it holds");
    replay->add_flag("--json", wanted.json, "Print exactly one JSON object on standard output");
    replay->add_flag("--quiet", wanted.quiet, "Print nothing but errors, and what --json asks for");
    return replay;
}

CLI::App* add_mount(CLI::App& app, penstock::mount_command::request& wanted) {
    CLI::App* const mount = app.add_subcommand("mount", about_mount);
    mount->footer(details_mount);
    mount->add_option("SOURCE", wanted.options.source, "The directory to serve")->required();
    mount->add_option("MOUNTPOINT", wanted.options.point, "An empty directory outside it")
        ->required();
    mount->add_flag("--read-only", wanted.options.read_only, "Refuse every change");
    mount->add_flag("--allow-other,!--only-me", wanted.options.allow_other,
                    "Other users may use the mount, or not (default: as root they may)");
    mount->add_flag("--background", wanted.options.background, "Return once the mount is there");
    apps::add_value(*mount, "--threads", wanted.threads,
                    "Threads that serve requests (default: one for each processor, at least 4)",
                    "N");
    apps::add_value(*mount, "--read-ahead", wanted.read_ahead,
                    "How far the kernel reads ahead, as root (default 1M to 4M, by processors)",
                    "SIZE");
    apps::add_value(*mount, "--buffer", wanted.buffer,
                    "Read files through a buffer of host and device memory: native, gram or dedu",
                    "POLICY");
    apps::add_value(*mount, "--ram", wanted.ram, "Size of the buffer's part in the host", "SIZE");
    apps::add_value(*mount, "--gpu", wanted.gpu,
                    "Size of its part in the device; native does without", "SIZE");
    apps::add_value(*mount, "--page", wanted.page, "Size of its pages (default 4KiB)", "SIZE");
    apps::add_value(*mount, "--backend", wanted.backend,
                    "Where the device's part lies: gpu or cpu (default: a GPU if there is one)",
                    "NAME");
    mount->add_flag("--json", wanted.json,
                    "When the mount is gone, print exactly one JSON object on standard output");
    mount->add_flag("--quiet", wanted.quiet, "Do not say when the mount is there");
    return mount;
}

CLI::App* add_cp(CLI::App& app, penstock::cp::request& wanted) {
    CLI::App* const cp = app.add_subcommand("cp", about_cp);
    cp->footer(details_cp);
    cp->add_option("FILES", wanted.names,
                   "Files to copy, and last the name of the copy or a directory to copy into")
        ->required()
        ->option_text("...");
    cp->add_flag("--fsync", wanted.settings.fsync,
                 "End only when the copies and their names are on storage");
    cp->add_flag("--verify", wanted.settings.verify,
                 "Read every copy back and compare it with its source");
    cp->add_flag("!--no-windows", wanted.settings.windows,
                 "Read every page by a request to the host, even what the OS page cache has. GPU "
                 "only; for measuring");
    apps::add_common_flags(*cp, wanted.common);
    return cp;
}

CLI::App* add_bench(CLI::App& app, penstock::bench::request& wanted) {
    CLI::App* const bench = app.add_subcommand("bench", about_bench);
    bench->footer("\nCases:\n" + penstock::bench::about_cases() +
                  "  all         every one of them\n" + details_bench);
    bench->add_option("CASE", wanted.cases, "What to measure, in this order")->required();
    apps::add_value(*bench, "--backend", wanted.backend,
                    "Where kernels run: gpu, cpu, or auto (gpu if there is one)", "WHERE");
    apps::add_value(*bench, "--page", wanted.page,
                    "Page sizes in place of each case's own: powers of two, 512 to 2MiB",
                    "SIZE[,SIZE]");
    apps::add_value(*bench, "--cache", wanted.cache,
                    "Cache sizes of the cases that miss, in place of a 16th of the file",
                    "SIZE[,SIZE]");
    apps::add_value(
        *bench, "--file", wanted.file,
        "Size of the file in place of each case's own; rounded up to a multiple of 2MiB", "SIZE");
    apps::add_value(*bench, "--repeats", wanted.repeats,
                    "How often each figure is measured, in place of each case's own number", "N");
    apps::add_value(*bench, "--dir", wanted.directory,
                    "Where the file is made (default: the directory for temporary files)", "DIR");
    bench->add_flag("--sweep", wanted.sweep,
                    "Measure over page sizes, cache sizes and service threads, for tools/plots.py");
    apps::add_value(*bench, "--threads", wanted.threads,
                    "Threads of the host that read, in place of each case's own number", "N");
    apps::add_value(*bench, "--service-threads", wanted.service_threads,
                    "Numbers of threads that serve requests, for the case request", "N[,N]");
    apps::add_value(*bench, "--commit", wanted.commit, "What was built, for the report", "ID");
    bench->add_flag("--json", wanted.json,
                    "Does nothing: the report is always one JSON object on standard output");
    bench->add_flag("--quiet", wanted.quiet,
                    "Say nothing about progress; errors and what was left out still appear");
    return bench;
}

int run(int argc, char** argv) {
    CLI::App app(about, "penstock");
    app.set_version_flag("--version", std::string("penstock ") + penstock::version());
    app.require_subcommand(0, 1);

    CLI::App* const info = app.add_subcommand("info", about_info);
    apps::common_flags info_flags;
    apps::add_common_flags(*info, info_flags);

    CLI::App* const cat = app.add_subcommand("cat", about_cat);
    cat->footer(details_cat);
    penstock::cat::request wanted;
    cat->add_option("FILE", wanted.files, "Files to write, in this order")->required();
    cat->add_option("--out", wanted.out, "Write to this file instead of standard output")
        ->option_text("FILE");
    cat->add_flag("--stats", wanted.stats,
                  "Say in one JSON object on standard error what was done");
    apps::add_common_flags(*cat, wanted.common);

    penstock::cp::request copied;
    const CLI::App* const cp = add_cp(app, copied);

    penstock::mount_command::request served;
    served.options.allow_other = ::geteuid() == 0;
    const CLI::App* const mount = add_mount(app, served);

    penstock::bench::request measured;
    const CLI::App* const bench = add_bench(app, measured);

    penstock::replay::request replayed;
    const CLI::App* const replay = add_replay(app, replayed);

    penstock::trace_command::request traced;
    const CLI::App* const trace = penstock::trace_command::add(app, traced);

    if (const auto ended = apps::parse_command_line(app, argc, argv)) return *ended;
    if (info->parsed()) return penstock::info::run(info_flags);
    if (cat->parsed()) return penstock::cat::run(wanted);
    if (cp->parsed()) return penstock::cp::run(copied);
    if (bench->parsed()) return penstock::bench::run(measured);
    if (mount->parsed()) return penstock::mount_command::run(served);
    if (replay->parsed()) return penstock::replay::run(replayed);
    if (trace->parsed()) return penstock::trace_command::run(traced);
    apps::say("no command given; give info, cat, cp, mount, trace, replay or bench, see --help");
    return apps::exit_usage;
}

}  // namespace

int main(int argc, char** argv) {
    return apps::run_process("penstock", "do less at a time", [&] { return run(argc, argv); });
}
