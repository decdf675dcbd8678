#include "request.hpp"

#include <CLI/CLI.hpp>

#include "common/message.hpp"
#include "common/report_text.hpp"
#include "common/numbers.hpp"
#include "penstock/version.hpp"

namespace penstock::matmul {

namespace {

constexpr const char* about =
    "Multiplies two matrices, C = A B, all three in files of single-precision numbers. They may be "
    "larger than any memory: tiles are read as\n"
    "they are needed.\n";

constexpr const char* details =
    "\nA file is nothing but its numbers, of 4 bytes each in the byte order of the machine, row by "
    "row: A of M rows of K, B of K rows of N, C of\n"
    "M rows of N. All methods add in one order (docs/apps/matrix.md), so C is the same bit by bit. "
    "The "
    "file of C appears whole or not at all.\n"
    "\n"
    "Exit status: 0 done; 1 failed; 2 wrong usage.\n";

constexpr std::uint64_t most_numbers = std::uint64_t{1} << 44;  // 64 TiB

struct numbers_given {
    std::string m, n, k, seed, repeats;
};

void add_required(CLI::App& app, const std::string& flag, std::string& out,
                  const std::string& about, const char* form) {
    apps::add_value(app, flag, out, about, form);
    app.get_option(flag.substr(flag.rfind(',') + 1))->required();
}

void add_sizes(CLI::App& app, numbers_given& given) {
    add_required(app, "--m", given.m, "Rows of A and C", "M");
    add_required(app, "--n", given.n, "Columns of B and C", "N");
    add_required(app, "--k", given.k, "Columns of A, rows of B", "K");
}

void add_run(CLI::App& app, request& out, numbers_given& given) {
    CLI::App* const run = app.add_subcommand("run", "Multiply: C = A B");
    run->footer(details);
    run_request& r = out.run;
    run->add_option("A", r.a, "File of the first matrix")->required();
    run->add_option("B", r.b, "File of the second matrix")->required();
    add_sizes(*run, given);
    add_required(*run, "-o,--out", r.out, "File that gets C", "FILE");
    apps::add_value(
        *run, "--method", r.method,
        "penstock, or a baseline: cpu (all cores, memory maps), cuda (GPU, the host reads)",
        "NAME");
    apps::add_value(*run, "--repeat", given.repeats,
                    "Multiply so many times, 1 to 1000, and report the time of each; default: 1. "
                    "What is in the cache stays there",
                    "R");
    run->add_flag("--check", r.check,
                  "Compare C with a reference in double precision, and fail if it deviates by more "
                  "than roundings can; of large matrices one row in 128");
    run->add_flag("!--no-windows", r.windows,
                  "Read every page by a request to the host, even what the OS page cache has. GPU "
                  "only; for measuring");
    apps::add_common_flags(*run, out.common);
}

CLI::App* add_make(CLI::App& app, request& out, numbers_given& given) {
    CLI::App* const make = app.add_subcommand(
        "make",
        "Make two matrices of random numbers, even from -1 to 1, that the seed alone decides");
    add_sizes(*make, given);
    apps::add_value(*make, "--seed", given.seed, "Of the random numbers; default: 1", "S");
    add_required(*make, "-a,--first", out.make.a, "File that gets A", "FILE");
    add_required(*make, "-b,--second", out.make.b, "File that gets B", "FILE");
    apps::add_value(*make, "--workers", out.common.workers,
                    "Threads; default: one for every processor", "N");
    make->add_flag("--json", out.common.json, "Print exactly one JSON object on standard output");
    make->add_flag("--quiet", out.common.quiet,
                   "Print no summary; errors and warnings still appear");
    return make;
}

status check_sizes(const numbers_given& given, matrix_sizes& out) {
    const std::string range = "from 1 to " + apps::with_commas(most_numbers);
    if (status s = apps::parse_number<std::uint64_t>("--m", given.m, 1, most_numbers, range, out.m);
        !s)
        return s;
    if (status s = apps::parse_number<std::uint64_t>("--n", given.n, 1, most_numbers, range, out.n);
        !s)
        return s;
    if (status s = apps::parse_number<std::uint64_t>("--k", given.k, 1, most_numbers, range, out.k);
        !s)
        return s;
    if (out.m <= most_numbers / out.k && out.n <= most_numbers / out.k &&
        out.m <= most_numbers / out.n)
        return {};
    return {-EINVAL, "--m, --n, --k: of " + given.m + ", " + given.n + ", " + given.k +
                         " one matrix has more than " + apps::with_commas(most_numbers) +
                         " numbers; give smaller ones"};
}

status check_all(request& out, const numbers_given& given) {
    if (status s = check_sizes(given, out.size); !s) return s;
    if (status s = apps::check_method(out.run.method); !s) return s;
    if (status s = apps::parse_number<std::uint32_t>("--repeat", given.repeats, 1, 1000,
                                                     "from 1 to 1000", out.run.repeats);
        !s)
        return s;
    if (status s = apps::parse_number<std::uint64_t>("--seed", given.seed, 0, UINT64_MAX,
                                                     "that fits 64 bits and is not negative",
                                                     out.make.seed);
        !s)
        return s;
    return apps::settle_options(out.common, out.settings);
}

}  // namespace

std::optional<int> read_request(int argc, char** argv, request& out) {
    CLI::App app(about, "penstock-matmul");
    numbers_given given;
    app.set_version_flag("--version", std::string("penstock ") + version());
    app.require_subcommand(1);
    add_run(app, out, given);
    const CLI::App* const make = add_make(app, out, given);
    if (const std::optional<int> ended = apps::parse_command_line(app, argc, argv)) return ended;
    out.is_make = make->parsed();
    const status bad = check_all(out, given);
    if (bad.ok()) return std::nullopt;
    apps::say(bad.message);
    return apps::exit_usage;
}

}  // namespace penstock::matmul
