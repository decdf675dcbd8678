// penstock-matrix: multiplies a matrix in a file with a vector or a matrix. Its commands, from
// their options to their reports; the texts below say what it promises.
#include <cerrno>
#include <nlohmann/json.hpp>
#include <string>

#include "common/files.hpp"
#include "common/message.hpp"
#include "common/methods.hpp"
#include "common/numbers.hpp"
#include "common/program.hpp"
#include "common/report_text.hpp"
#include "common/threads.hpp"
#include "methods.hpp"

namespace penstock::matrix {

namespace {

using apps::failure;
using apps::shown;
using apps::text_of;
using apps::words;
using nlohmann::json;

constexpr const char* about =
    "Multiplies a matrix in a file of single-precision numbers with a vector or with another "
    "matrix.\n"
    "Matrices may be larger than any memory: they are read as they are needed.\n";

constexpr const char* details =
    "\nA file is nothing but its numbers, of 4 bytes each in the byte order of the machine; a "
    "matrix row by row. The method penstock adds in one\n"
    "order (docs/apps/matrix.md), so its result is the same bit by bit on every machine; libraries "
    "add in orders of their own. The file of the\n"
    "result appears whole or not at all.\n"
    "\n"
    "Exit status: 0 done; 1 failed; 2 wrong usage.\n";

// Of a vector and of a matrix.
constexpr apps::command_text product_texts[] = {
    {"vector", "A matrix times a vector: y = A x", details, apps::command_kind::run},
    {"product", "A matrix times a matrix: C = A B, A of M rows of K numbers, B of K rows of N",
     details, apps::command_kind::run}};
constexpr apps::command_text make_texts[] = {
    {"make-vector",
     "Make a matrix and a vector of random numbers, even from -1 to 1, that the seed alone decides",
     "", apps::command_kind::make},
    {"make-product",
     "Make two matrices of random numbers, even from -1 to 1, that the seed alone decides", "",
     apps::command_kind::make}};

constexpr std::uint64_t most_numbers = std::uint64_t{1} << 44;  // 64 TiB

status multiply_with_penstock(const matrix_job& job, method_report& report) {
    return job.is_vector() ? multiply_vector(job, report) : multiply_matrices(job, report);
}

using matrix_method = apps::method<status(const matrix_job&, method_report&)>;
constexpr matrix_method methods[] = {
    {"penstock", apps::runs_on::anywhere, multiply_with_penstock},
    {"cpu", apps::runs_on::cpu, multiply_with_cpu},
    {"region", apps::runs_on::anywhere, multiply_regions},
    {"cuda", apps::runs_on::gpu, multiply_with_cuda},
};

void add_sizes(apps::option_list& add, matrix_sizes& size) {
    add.number("--m", size.m, {1, most_numbers, ""}, "Rows of A and C", "M").required();
    add.number("--n", size.n, {1, most_numbers, ""}, "Columns of B and C", "N").required();
    add.number("--k", size.k, {1, most_numbers, ""}, "Columns of A, rows of B", "K").required();
}

status check_sizes(const matrix_sizes& size) {
    if (size.m <= most_numbers / size.k && size.n <= most_numbers / size.k &&
        size.m <= most_numbers / size.n)
        return {};
    return failure(-EINVAL, "--m, --n, --k: of ", std::to_string(size.m), ", ",
                   std::to_string(size.n), ", ", std::to_string(size.k),
                   " one matrix has more than ", most_numbers, " numbers; give smaller ones");
}

status open_matrix(const std::string& path, std::uint64_t rows, std::uint64_t columns,
                   const std::string& flags, apps::number_file& out) {
    if (status s = apps::open_numbers(path, "matrix", out); !s) return s;
    const std::uint64_t expected = rows * columns * sizeof(float);
    if (out.bytes == expected) return {};
    return failure(-EINVAL, shown(path), ": has ", out.bytes, " bytes and should have ", expected,
                   " for ", rows, " rows of ", columns, "; give ", flags,
                   " as it was made, or copy it again if it was cut short");
}

// The vector says how many columns the matrix has.
status size_by_vector(matrix_job& job) {
    const std::uint64_t columns = job.b.count();
    job.size = {job.a.count() / columns, 1, columns};
    if (job.a.count() % columns == 0) return {};
    return failure(-EINVAL, shown(job.a.path), ": has ", job.a.bytes,
                   " bytes, which are no whole number of rows of ", columns, " columns (",
                   job.b.bytes, " bytes) as ", shown(job.b.path),
                   " says; copy the matrix again if it was cut short, or name the vector that "
                   "belongs to it");
}

// A product with a vector is measured by the reading of the matrix.
double gigabytes_of(const matrix_job& job) {
    return 1e-9 * static_cast<double>(job.is_vector()
                                          ? job.a.bytes
                                          : job.a.bytes + job.b.bytes + job.result_bytes());
}

// A multiplication and an addition for each product.
double gigaflop_of(const matrix_job& job) {
    return 2e-9 * static_cast<double>(job.size.m) * static_cast<double>(job.size.n) *
           static_cast<double>(job.size.k);
}

class product_command : public apps::command {
public:
    explicit product_command(product_shape shape)
        : command(product_texts[static_cast<int>(shape)]) {
        job.shape = shape;
    }

    void add_options(apps::option_list& add) override {
        add.operand("A", a_path,
                    job.is_vector() ? "File of the matrix" : "File of the first matrix");
        if (job.is_vector()) {
            add.operand("X", b_path, "File of the vector; A has rows of the same length");
        } else {
            add.operand("B", b_path, "File of the second matrix");
            add_sizes(add, job.size);
        }
        add.text("-o,--out", out, job.is_vector() ? "File that gets y" : "File that gets C", "FILE")
            .required();
        add.choice("--method", method, apps::names_of(methods), "method",
                   "penstock; region (cuBLAS, or OpenBLAS on CPU threads, on files that are mapped "
                   "as plain pointers); or a baseline: cpu (OpenBLAS, memory maps), cuda (the host "
                   "reads and copies, cuBLAS multiplies)",
                   "NAME");
        add.number("--repeat", job.repeats, {1, 1000, ""},
                   "Multiply so many times, 1 to 1000, and report the time of each; default: 1. "
                   "What is in the cache stays there",
                   "R");
        add.flag("--check", wants_check,
                 "Compare the result with a reference in double precision, and fail if it deviates "
                 "by more than roundings can; of large products of matrices one row in 128");
        add.windows_flag(job.windows);
    }

    status check() override {
        if (status s = apps::check_not_report(common.json, out); !s) return s;
        return job.is_vector() ? status{} : check_sizes(job.size);
    }

    status open() override {
        job.quiet = common.quiet;
        job.settings = settings;
        job.settings.writable = true;
        if (status s = open_operands(); !s) return s;
        if (status s = apps::check_not_input(out, {a_path, b_path}); !s) return s;
        job.result = &result;
        return result.open_named(out);
    }

    // The result is in its file, under a passing name, until it is checked.
    status run() override {
        const matrix_method& by = apps::method_named(methods, method);
        report.name = by.name;
        const status ended = by.run(job, report);
        if (status s = apps::not_interrupted(); !s) return s;
        if (!ended.ok()) return ended;
        const bool in_order = by.run == multiply_with_penstock;
        if (wants_check)
            if (status s = check_result(job, in_order, checked); !s) return s;
        return result.commit();
    }

    [[nodiscard]] json json_of() const override {
        const double median = report.median_seconds();
        json all = {{"m", job.size.m},
                    {"n", job.size.n},
                    {"k", job.size.k},
                    {"a", job.a.path},
                    {"b", job.b.path},
                    {"result", out},
                    {"a_bytes", job.a.bytes},
                    {"b_bytes", job.b.bytes},
                    {"result_bytes", job.result_bytes()},
                    {"gflops", median > 0 ? gigaflop_of(job) / median : 0.0},
                    {"gigabytes_a_second", median > 0 ? gigabytes_of(job) / median : 0.0},
                    {"check", nullptr}};
        all.update(apps::json_of(report));
        if (wants_check)
            all["check"] = {{"rows", checked.rows},
                            {"greatest_deviation", checked.greatest_deviation},
                            {"row", checked.worst_row},
                            {"column", checked.worst_column},
                            {"tolerance", checked.tolerance},
                            {"numbers_not_judged", checked.not_judged},
                            {"seconds", checked.seconds}};
        return all;
    }

    void say_summary() const override {
        apps::say_notes(report);
        const matrix_sizes& size = job.size;
        const std::string work =
            job.is_vector()
                ? words(size.m, " rows of ", size.k, " columns, ", format_size(job.a.bytes), ",")
                : words(size.m, " x ", size.k, " by ", size.k, " x ", size.n);
        apps::say(words(report.name, " on ", report.backend, " (", report.note, "): ", work, " in ",
                        job.is_vector() ? apps::times_of(report, gigabytes_of(job), "GB/s")
                                        : apps::times_of(report, gigaflop_of(job), "GFLOP/s")));
        if (!wants_check) return;
        apps::say(words("checked ", checked.rows, " rows in ", text_of("%.2f s", checked.seconds),
                        ": greatest deviation ", text_of("%.3g", checked.greatest_deviation),
                        " of the products of row ", checked.worst_row,
                        job.is_vector() ? "" : words(", column ", checked.worst_column),
                        ", allowed ", text_of("%.3g", checked.tolerance),
                        checked.not_judged == 0
                            ? ""
                            : words("; numbers that could not be judged: ", checked.not_judged)));
    }

private:
    status open_operands() {
        if (job.is_vector()) {
            if (status s = apps::open_numbers(a_path, "matrix", job.a); !s) return s;
            if (status s = apps::open_numbers(b_path, "vector", job.b); !s) return s;
            return size_by_vector(job);
        }
        const auto& [m, n, k] = job.size;
        if (status s = open_matrix(a_path, m, k, "--m and --k", job.a); !s) return s;
        return open_matrix(b_path, k, n, "--k and --n", job.b);
    }

    std::string a_path, b_path, out;
    std::string method = "penstock";
    bool wants_check = false;
    matrix_job job;
    apps::output_file result;
    method_report report;
    check_report checked;
};

// Two files of random numbers, from a seed. Numbers even from -1 to 1; docs/apps/matrix.md says
// which. All threads make and write pieces of their own.
class make_command : public apps::command {
public:
    explicit make_command(product_shape shape)
        : command(make_texts[static_cast<int>(shape)]),
          is_vector_(shape == product_shape::vector) {}

    void add_options(apps::option_list& add) override {
        if (is_vector_) {
            add.number("--rows", size.m, {1, most_numbers, ""}, "Rows of the matrix", "N")
                .required();
            add.number("--cols", size.k, {1, most_numbers, ""},
                       "Columns of the matrix, and numbers of the vector", "M")
                .required();
            add.text("-o,--out", a_path, "File that gets the matrix", "FILE").required();
            add.text("-x,--vector", b_path, "File that gets the vector", "FILE").required();
        } else {
            add_sizes(add, size);
            add.text("-a,--first", a_path, "File that gets A", "FILE").required();
            add.text("-b,--second", b_path, "File that gets B", "FILE").required();
        }
        add.number("--seed", seed, {0, UINT64_MAX, ""}, "Of the random numbers; default: 1", "S");
    }

    status check() override {
        for (const std::string& path : {a_path, b_path})
            if (status s = apps::check_not_report(common.json, path); !s) return s;
        if (!is_vector_) return check_sizes(size);
        if (size.m <= most_numbers / size.k) return {};
        return failure(-EINVAL, "--rows: ", std::to_string(size.m), " rows of ",
                       std::to_string(size.k), " columns are more than ", most_numbers,
                       " numbers; give fewer");
    }

    status run() override {
        apps::stopwatch watch;
        if (apps::same_file(a_path, b_path))
            return failure(-EINVAL, is_vector_ ? "-x: " : "-b: ", shown(b_path),
                           " is the file of the matrix A too; give another name");
        threads = apps::thread_count(settings.worker_threads);
        const std::uint64_t a_count = size.m * size.k, b_count = size.k * size.n;
        const auto fill = [&](const apps::output_file& file, std::uint64_t part,
                              std::uint64_t count) {
            return apps::fill_with_numbers(file, apps::random_start(seed, part), count, threads);
        };
        const std::uint64_t a_bytes = a_count * sizeof(float), b_bytes = b_count * sizeof(float);
        constexpr const char* cure = "give smaller sizes, or another place";
        const auto a_place = apps::place_of(a_path), b_place = apps::place_of(b_path);
        const bool is_one_place = a_place && b_place && a_place->device == b_place->device;
        const std::uint64_t for_a = is_one_place ? a_bytes + b_bytes : a_bytes,
                            for_b = is_one_place ? a_bytes + b_bytes : b_bytes;
        if (status s = apps::check_room(a_path, for_a, cure); !s) return s;
        if (status s = apps::check_room(b_path, for_b, cure); !s) return s;
        apps::output_file a, b;
        if (status s = a.open_named(a_path); !s) return s;
        if (status s = b.open_named(b_path); !s) return s;
        if (status s = fill(a, 0, a_count); !s) return s;
        if (status s = fill(b, 1, b_count); !s) return s;
        if (status s = a.finish(); !s) return s;
        if (status s = b.finish(); !s) return s;
        if (status s = a.commit(); !s) return s;
        if (status s = b.commit(); !s) return s;
        bytes = a_bytes + b_bytes;
        seconds = watch.lap();
        return {};
    }

    [[nodiscard]] json json_of() const override {
        return {{"m", size.m},    {"n", size.n},        {"k", size.k},
                {"a", a_path},    {"b", b_path},        {"seed", seed},
                {"bytes", bytes}, {"threads", threads}, {"seconds", {{"total", seconds}}}};
    }

    void say_summary() const override {
        apps::say(words(a_path, " and ", b_path, ": ", format_size(bytes), " in ",
                        text_of("%.2f s", seconds), " by ", std::to_string(threads), " threads"));
    }

private:
    bool is_vector_;
    matrix_sizes size;
    std::string a_path, b_path;
    std::uint64_t seed = 1;
    std::uint64_t bytes = 0;  // of both files
    double seconds = 0;
    std::uint32_t threads = 0;
};

template <typename Command, product_shape Shape>
struct command_for final : Command {
    command_for() : Command(Shape) {}
};

}  // namespace

}  // namespace penstock::matrix

int main(int argc, char** argv) {
    using namespace penstock::matrix;
    constexpr auto vector = product_shape::vector, matrix = product_shape::matrix;
    return penstock::apps::run_program<
        command_for<product_command, vector>, command_for<product_command, matrix>,
        command_for<make_command, vector>, command_for<make_command, matrix>>(
        {"penstock-matrix", about, "use smaller matrices"}, argc, argv);
}
