// penstock-matrix: multiplies a matrix in a file with a vector or a matrix. The texts below say
// what it promises.
#include <cerrno>

#include "common/message.hpp"
#include "common/methods.hpp"
#include "common/numbers.hpp"
#include "common/process.hpp"
#include "common/threads.hpp"
#include "session.hpp"

namespace penstock::matrix {

namespace {

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

constexpr std::uint64_t most_numbers = std::uint64_t{1} << 44;  // 64 TiB

status multiply_with_penstock(const matrix_job& job, method_report& report) {
    return job.shape == product_shape::vector ? multiply_vector(job, report)
                                              : multiply_matrices(job, report);
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
    return {-EINVAL, "--m, --n, --k: of " + std::to_string(size.m) + ", " + std::to_string(size.n) +
                         ", " + std::to_string(size.k) + " one matrix has more than " +
                         apps::with_commas(most_numbers) + " numbers; give smaller ones"};
}

status open_matrix(const std::string& path, std::uint64_t rows, std::uint64_t columns,
                   const std::string& flags, apps::number_file& out) {
    if (status s = apps::open_numbers(path, "matrix", out); !s) return s;
    const std::uint64_t expected = rows * columns * sizeof(float);
    if (out.bytes == expected) return {};
    return {-EINVAL, apps::shown(path) + ": has " + apps::with_commas(out.bytes) +
                         " bytes and should have " + apps::with_commas(expected) + " for " +
                         apps::with_commas(rows) + " rows of " + apps::with_commas(columns) +
                         "; give " + flags +
                         " as it was made, or copy it again if it was cut short"};
}

// The vector says how many columns the matrix has.
status size_by_vector(matrix_job& job) {
    const std::uint64_t columns = job.b.count();
    job.size = {job.a.count() / columns, 1, columns};
    if (job.a.count() % columns == 0) return {};
    return {-EINVAL,
            apps::shown(job.a.path) + ": has " + apps::with_commas(job.a.bytes) +
                " bytes, which are no whole number of rows of " + apps::with_commas(columns) +
                " columns (" + apps::with_commas(job.b.bytes) + " bytes) as " +
                apps::shown(job.b.path) +
                " says; copy the matrix again if it was cut short, or name the vector that belongs "
                "to it"};
}

}  // namespace

void product_command::add_options(apps::option_list& add) {
    add.operand("A", a_path, is_vector() ? "File of the matrix" : "File of the first matrix");
    if (is_vector()) {
        add.operand("X", b_path, "File of the vector; A has rows of the same length");
    } else {
        add.operand("B", b_path, "File of the second matrix");
        add_sizes(add, job.size);
    }
    add.text("-o,--out", out, is_vector() ? "File that gets y" : "File that gets C", "FILE")
        .required();
    add.choice("--method", method, apps::names_of(methods), "method",
               "penstock; region (cuBLAS, or OpenBLAS on CPU threads, on files that are mapped as "
               "plain pointers); or a baseline: cpu (OpenBLAS, memory maps), cuda (the host reads "
               "and copies, cuBLAS multiplies)",
               "NAME");
    add.number("--repeat", job.repeats, {1, 1000, ""},
               "Multiply so many times, 1 to 1000, and report the time of each; default: 1. What "
               "is in the cache stays there",
               "R");
    add.flag("--check", wants_check,
             "Compare the result with a reference in double precision, and fail if it deviates by "
             "more than roundings can; of large products of matrices one row in 128");
    add.flag("!--no-windows", job.windows,
             "Read every page by a request to the host, even what the OS page cache has. GPU "
             "only; for measuring");
}

status product_command::check() { return is_vector() ? status{} : check_sizes(job.size); }

status product_command::open_operands() {
    if (is_vector()) {
        if (status s = apps::open_numbers(a_path, "matrix", job.a); !s) return s;
        if (status s = apps::open_numbers(b_path, "vector", job.b); !s) return s;
        return size_by_vector(job);
    }
    if (status s = open_matrix(a_path, job.size.m, job.size.k, "--m and --k", job.a); !s) return s;
    return open_matrix(b_path, job.size.k, job.size.n, "--k and --n", job.b);
}

status product_command::open() {
    job.quiet = common.quiet;
    job.settings = settings;
    job.settings.writable = true;
    if (status s = open_operands(); !s) return s;
    if (status s = apps::check_not_input(out, {&job.a, &job.b}); !s) return s;
    job.result = &result;
    return result.open_named(out);
}

// The result is in its file, under a passing name, until it is checked.
status product_command::run() {
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

void make_command::add_options(apps::option_list& add) {
    if (shape_ == product_shape::vector) {
        add.number("--rows", size.m, {1, most_numbers, ""}, "Rows of the matrix", "N").required();
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

status make_command::check() {
    if (shape_ == product_shape::matrix) return check_sizes(size);
    if (size.m <= most_numbers / size.k) return {};
    return {-EINVAL, "--rows: " + std::to_string(size.m) + " rows of " + std::to_string(size.k) +
                         " columns are more than " + apps::with_commas(most_numbers) +
                         " numbers; give fewer"};
}

status make_command::run() {
    apps::stopwatch watch;
    if (apps::same_file(a_path, b_path))
        return {-EINVAL, (shape_ == product_shape::vector ? "-x: " : "-b: ") + apps::shown(b_path) +
                             " is the file of the matrix A too; give another name"};
    threads = apps::thread_count(settings.worker_threads);
    apps::output_file a, b;
    if (status s = a.open_named(a_path); !s) return s;
    if (status s = b.open_named(b_path); !s) return s;
    if (status s =
            apps::fill_with_numbers(a, apps::random_start(seed, 0), size.m * size.k, threads);
        !s)
        return s;
    if (status s =
            apps::fill_with_numbers(b, apps::random_start(seed, 1), size.k * size.n, threads);
        !s)
        return s;
    if (status s = a.commit(); !s) return s;
    if (status s = b.commit(); !s) return s;
    bytes = (size.m + size.n) * size.k * sizeof(float);
    seconds = watch.lap();
    return {};
}

struct vector_command : product_command {
    vector_command()
        : product_command(
              {"vector", "A matrix times a vector: y = A x", details, apps::command_kind::run},
              product_shape::vector) {}
};
struct matrix_command : product_command {
    matrix_command()
        : product_command({"product",
                           "A matrix times a matrix: C = A B, A of M rows of K numbers, "
                           "B of K rows of N",
                           details, apps::command_kind::run},
                          product_shape::matrix) {}
};
struct make_vector_command : make_command {
    make_vector_command()
        : make_command({"make-vector",
                        "Make a matrix and a vector of random numbers, even from -1 to 1, that the "
                        "seed alone decides",
                        "", apps::command_kind::make},
                       product_shape::vector) {}
};
struct make_product_command : make_command {
    make_product_command()
        : make_command({"make-product",
                        "Make two matrices of random numbers, even from -1 to 1, that the seed "
                        "alone decides",
                        "", apps::command_kind::make},
                       product_shape::matrix) {}
};

}  // namespace penstock::matrix

int main(int argc, char** argv) {
    using namespace penstock::matrix;
    return penstock::apps::run_program<vector_command, matrix_command, make_vector_command,
                                       make_product_command>(
        {"penstock-matrix", about, "use smaller matrices"}, argc, argv);
}
