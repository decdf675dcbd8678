#include "request.hpp"

#include <CLI/CLI.hpp>

#include "common/message.hpp"
#include "common/report_text.hpp"
#include "common/numbers.hpp"
#include "penstock/version.hpp"

namespace penstock::matvec {

namespace {

constexpr const char* about =
    "Multiplies a matrix with a vector, y = A x, all three in files of single-precision numbers. "
    "The matrix may be larger than any memory:\n"
    "it is read as it is needed, row by row.\n";

constexpr const char* details =
    "\nA file is nothing but its numbers, of 4 bytes each in the byte order of the machine; the "
    "matrix row by row. The number of columns is that of\n"
    "the numbers in X, and rows are as many as A has of that length. All methods add in one order "
    "(docs/apps/matrix.md), so y is the same bit\n"
    "by bit. The file of y appears whole or not at all.\n"
    "\n"
    "Exit status: 0 done; 1 failed; 2 wrong usage.\n";

constexpr std::uint64_t most_numbers = std::uint64_t{1} << 44;  // 64 TiB

struct numbers_given {
    std::string rows, columns, seed, repeats;
};

CLI::App* add_run(CLI::App& app, request& out, numbers_given& given) {
    CLI::App* const run = app.add_subcommand("run", "Multiply: y = A x");
    run->footer(details);
    run_request& r = out.run;
    run->add_option("A", r.matrix, "File of the matrix")->required();
    run->add_option("X", r.vector, "File of the vector")->required();
    apps::add_value(*run, "-o,--out", r.out, "File that gets y", "FILE");
    run->get_option("--out")->required();
    apps::add_value(
        *run, "--method", r.method,
        "penstock, or a baseline: cpu (all cores, memory maps), cuda (GPU, the host reads)",
        "NAME");
    apps::add_value(*run, "--repeat", given.repeats,
                    "Multiply so many times, 1 to 1000, and report the time of each; default: 1. "
                    "What is in the cache stays there",
                    "K");
    run->add_flag("--check", r.check,
                  "Compare y with a reference in double precision, and fail if it deviates by more "
                  "than roundings can");
    run->add_flag("!--no-windows", r.windows,
                  "Read every page by a request to the host, even what the OS page cache has. GPU "
                  "only; for measuring");
    apps::add_common_flags(*run, out.common);
    return run;
}

CLI::App* add_make(CLI::App& app, request& out, numbers_given& given) {
    CLI::App* const make = app.add_subcommand("make",
                                              "Make a matrix and a vector of random numbers, even "
                                              "from -1 to 1, that the seed alone decides");
    make_request& m = out.make;
    apps::add_value(*make, "--rows", given.rows, "Rows of the matrix", "N");
    make->get_option("--rows")->required();
    apps::add_value(*make, "--cols", given.columns,
                    "Columns of the matrix, and numbers of the vector", "M");
    make->get_option("--cols")->required();
    apps::add_value(*make, "--seed", given.seed, "Of the random numbers; default: 1", "S");
    apps::add_value(*make, "-o,--out", m.matrix, "File that gets the matrix", "FILE");
    make->get_option("--out")->required();
    apps::add_value(*make, "-x,--vector", m.vector, "File that gets the vector", "FILE");
    make->get_option("--vector")->required();
    apps::add_value(*make, "--workers", out.common.workers,
                    "Threads; default: one for every processor", "N");
    make->add_flag("--json", out.common.json, "Print exactly one JSON object on standard output");
    make->add_flag("--quiet", out.common.quiet,
                   "Print no summary; errors and warnings still appear");
    return make;
}

status check_run(request& out, const numbers_given& given) {
    run_request& r = out.run;
    if (status s = apps::check_method(r.method); !s) return s;
    if (status s = apps::parse_number<std::uint32_t>("--repeat", given.repeats, 1, 1000,
                                                     "from 1 to 1000", r.repeats);
        !s)
        return s;
    return apps::settle_options(out.common, out.settings);
}

status check_make(request& out, const numbers_given& given) {
    make_request& m = out.make;
    const std::string range = "from 1 to " + apps::with_commas(most_numbers);
    if (status s =
            apps::parse_number<std::uint64_t>("--rows", given.rows, 1, most_numbers, range, m.rows);
        !s)
        return s;
    if (status s = apps::parse_number<std::uint64_t>("--cols", given.columns, 1, most_numbers,
                                                     range, m.columns);
        !s)
        return s;
    if (status s = apps::parse_number<std::uint64_t>(
            "--seed", given.seed, 0, UINT64_MAX, "that fits 64 bits and is not negative", m.seed);
        !s)
        return s;
    if (m.rows > most_numbers / m.columns)
        return {-EINVAL, "--rows: " + given.rows + " rows of " + given.columns +
                             " columns are more than " + apps::with_commas(most_numbers) +
                             " numbers; give fewer"};
    return apps::settle_options(out.common, out.settings);
}

}  // namespace

std::optional<int> read_request(int argc, char** argv, request& out) {
    CLI::App app(about, "penstock-matvec");
    numbers_given given;
    app.set_version_flag("--version", std::string("penstock ") + version());
    app.require_subcommand(1);
    add_run(app, out, given);
    const CLI::App* const make = add_make(app, out, given);
    if (const std::optional<int> ended = apps::parse_command_line(app, argc, argv)) return ended;
    out.is_make = make->parsed();
    const status bad = out.is_make ? check_make(out, given) : check_run(out, given);
    if (bad.ok()) return std::nullopt;
    apps::say(bad.message);
    return apps::exit_usage;
}

}  // namespace penstock::matvec
