#include "request.hpp"

#include <CLI/CLI.hpp>

#include "common/message.hpp"

namespace penstock::grep {

namespace {

constexpr const char* about =
    "Counts how often each word of a dictionary occurs in each file, as grep -o -w -F -- WORD FILE "
    "| wc -l does in the C\n"
    "locale, with kernels that open and read the files themselves. Prints word, path and count, "
    "separated by tabs, one line\n"
    "for each count that is not zero, sorted by path and then word. A backslash, tab or line end "
    "in a path is printed as\n"
    "\\\\, \\t or \\n; --null prints it as it is.\n";

constexpr const char* details =
    "\nPATH may be a file or a directory; directories are searched with all below them, links "
    "inside are not followed, and\n"
    "only regular files are read. Each path counts once. The dictionary has one word per line, at "
    "most 255 bytes each.\n"
    "As in grep, matches of a file are no longer counted from the piece on in which a zero byte is "
    "read.\n"
    "Kernels may open what the PATHs name and nothing else; PENSTOCK_ROOTS is not used.\n"
    "\n"
    "A PATH or dictionary that cannot be read ends the program before it prints anything. A file "
    "below a directory that\n"
    "cannot be read, or a file that changes while it is read, costs one line on standard error and "
    "its counts; the rest is\n"
    "printed and the exit status is 1. With --out, the file appears whole or not at all.\n"
    "\n"
    "Exit status: 0 done, also if nothing was found; 1 failed; 2 wrong usage.\n";

status size_flag(const char* flag, const std::string& text, std::uint64_t& out) {
    if (text.empty()) return {};
    if (status s = parse_size(flag, text, out); !s) return s;
    if (out != 0) return {};
    return {-EINVAL, std::string(flag) + ": '" + text +
                         "' is no usable size; give one, such as 1MiB, or leave " + flag + " out"};
}

status check(request& r, const std::string& record_bytes, const std::string& piece_bytes) {
    if (r.method != "penstock" && r.method != "cpu" && r.method != "cuda")
        return {-EINVAL,
                "--method: " + apps::shown(r.method) + " is no method; give penstock, cpu or cuda"};
    if (status s = size_flag("--result-buffer", record_bytes, r.record_bytes); !s) return s;
    if (status s = size_flag("--piece", piece_bytes, r.piece_bytes); !s) return s;
    if (r.piece_bytes > (1u << 20))
        return {-EINVAL,
                "--piece: " + apps::shown(piece_bytes) + " is more than 1MiB; give 1MiB or less"};
    return apps::settle_options(r.common, r.settings);
}

}  // namespace

std::optional<int> read_request(int argc, char** argv, request& out) {
    CLI::App app(about, "penstock-grep");
    app.footer(details);
    std::string record_bytes, piece_bytes;
    apps::add_value(app, "--dict", out.dictionary, "File with the words to count, one per line",
                    "WORDS");
    app.get_option("--dict")->required();
    apps::add_value(app, "--out", out.out,
                    "Write the lines to this file instead of standard output", "FILE");
    app.add_option("PATH", out.paths, "Files and directories to search")->required();
    apps::add_value(app, "--method", out.method,
                    "penstock, or a baseline: cpu (all cores, plain reads), cuda (GPU, host reads)",
                    "NAME");
    app.add_flag("--compare", out.compare,
                 "Run every method there is, after a run of cpu that warms the OS page cache; "
                 "check that all agree and report their times");
    app.add_flag("--strict", out.strict,
                 "Make a repeated word in the dictionary an error; else it is a warning");
    app.add_flag("--null", out.null_ends,
                 "End every word, path and count by a zero byte, and print paths as they are");
    apps::add_value(app, "--result-buffer", record_bytes,
                    "Room for counts between two launches; at least one per word is made", "SIZE");
    apps::add_value(app, "--piece", piece_bytes,
                    "Size of the pieces in which groups share a file; at most 1MiB", "SIZE");
    apps::add_common_flags(app, out.common);
    if (const std::optional<int> ended = apps::parse_command_line(app, argc, argv)) return ended;
    const status s = check(out, record_bytes, piece_bytes);
    if (s.ok()) return std::nullopt;
    apps::say(s.message);
    return apps::exit_usage;
}

}  // namespace penstock::grep
