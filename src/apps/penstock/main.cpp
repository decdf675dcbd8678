// penstock: looks at what Penstock can do here (info) and reads files through it (cat).
#include "cat.hpp"
#include "common/command_line.hpp"
#include "common/message.hpp"
#include "info.hpp"
#include "penstock/version.hpp"

namespace {

namespace apps = penstock::apps;

constexpr const char* about = "Penstock: files for GPU kernels and CPU threads, through one page cache.\n";

constexpr const char* about_info =
    "Says which devices there are, what works on this machine and why not, the limits, and the options in force.\n"
    "Makes a runtime with these options to find out; exit status 1 if that fails.\n";

constexpr const char* about_cat =
    "Writes files to standard output, read through the page cache; byte for byte what cat writes.\n";

constexpr const char* details_cat =
    "\nOnly regular files can be read. All are opened before the first byte is written; one that cannot be opened ends the\n"
    "program with nothing written. A file that is appended to meanwhile is written as long as it was when it was opened.\n"
    "With --out, the file appears whole or not at all. --json needs --out, since standard output can hold only one thing.\n"
    "\nExit status: 0 done; 1 failed; 2 wrong usage.\n";

}  // namespace

int main(int argc, char** argv) {
    apps::set_program_name("penstock");
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
    cat->add_option("--out", wanted.out, "Write to this file instead of standard output")->option_text("FILE");
    cat->add_flag("--stats", wanted.stats, "Say in one JSON object on standard error what was done");
    apps::add_common_flags(*cat, wanted.common);

    if (const auto ended = apps::parse_command_line(app, argc, argv)) return *ended;
    if (info->parsed()) return penstock::info::run(info_flags);
    if (cat->parsed()) return penstock::cat::run(wanted);
    apps::say("no command given; give info or cat, see --help");
    return apps::exit_usage;
}
