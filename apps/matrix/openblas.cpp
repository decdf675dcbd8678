// OpenBLAS: the library as the methods see it, and the baseline on CPU threads.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <vector>

#include "common/message.hpp"
#include "common/threads.hpp"
#include "methods.hpp"

#if defined(PENSTOCK_WITH_OPENBLAS)
#include <cblas.h>
#endif

namespace penstock::matrix {

#if defined(PENSTOCK_WITH_OPENBLAS)

namespace {

constexpr std::uint64_t piece_bytes = 64u << 20;   // of the result, computed and then written
constexpr std::uint64_t operand_bytes = 1u << 30;  // of A, so that an interrupt is soon noticed
constexpr std::uint64_t slice_bytes = 4u << 20;    // written by a thread at a time

class openblas final : public blas {
public:
    explicit openblas(std::uint32_t threads) : threads_(threads) {
        openblas_set_num_threads(static_cast<int>(threads));
    }
    status multiply(const matrix_sizes& size, const float* a, const float* b, float* c) override {
        // Its numbers of rows and columns are int.
        if (std::max({size.m, size.n, size.k}) > INT_MAX)
            return {-EOVERFLOW, "OpenBLAS takes at most " + apps::with_commas(INT_MAX) +
                                    " rows or columns; use --method penstock"};
        const int m = static_cast<int>(size.m), n = static_cast<int>(size.n),
                  k = static_cast<int>(size.k);
        if (n == 1) cblas_sgemv(CblasRowMajor, CblasNoTrans, m, k, 1, a, k, b, 1, 0, c, 1);
        else
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1, a, k, b, n, 0, c, n);
        return {};
    }
    [[nodiscard]] std::string name() const override {
        return "OpenBLAS, " + std::to_string(threads_) + " threads";
    }

private:
    std::uint32_t threads_;
};

// Rows of the result from `first` on, written by all threads.
status write_rows(const matrix_job& job, const std::vector<float>& from, std::uint64_t first,
                  std::uint64_t rows, std::uint32_t threads) {
    const std::uint64_t row_bytes = job.size.n * sizeof(float), bytes = rows * row_bytes,
                        slices = (bytes + slice_bytes - 1) / slice_bytes;
    const auto* const begin = reinterpret_cast<const char*>(from.data());
    const auto use = static_cast<std::uint32_t>(std::min<std::uint64_t>(threads, slices));
    apps::first_error errors;
    apps::on_threads(use, [&](std::uint32_t thread) {
        for (std::uint64_t slice = thread; slice < slices && !errors.stop(); slice += use) {
            const std::uint64_t at = slice * slice_bytes;
            errors.note(job.result->write_at(begin + at, std::min(slice_bytes, bytes - at),
                                             first * row_bytes + at));
        }
    });
    return errors.get();
}

struct mapped_product {
    const matrix_job& job;
    blas& library;
    const float* a;
    const float* b;
    std::uint32_t threads;
    std::uint64_t rows_at_once;
    std::vector<float> piece;

    status run() {
        std::atomic<std::uint64_t> done{0};
        const apps::progress bar(
            "rows", job.size.m, [&] { return done.load(); }, !job.quiet);
        for (std::uint64_t first = 0; first < job.size.m; first += rows_at_once) {
            if (was_interrupted()) return {-ECANCELED, "interrupted; nothing was written"};
            const std::uint64_t rows = std::min(rows_at_once, job.size.m - first);
            if (status s = library.multiply({rows, job.size.n, job.size.k}, a + first * job.size.k,
                                            b, piece.data());
                !s)
                return s;
            if (status s = write_rows(job, piece, first, rows, threads); !s) return s;
            done = first + rows;
        }
        return {};
    }
};

}  // namespace

status make_openblas(const std::string&, std::uint32_t threads, std::unique_ptr<blas>& out) {
    out = std::make_unique<openblas>(threads);
    return {};
}

status multiply_with_cpu(const matrix_job& job, method_report& report) {
    apps::stopwatch watch;
    const std::uint32_t threads = apps::thread_count(job.settings.worker_threads);
    apps::mapped_file a, b;
    if (status s = a.open(job.a.path, job.a.bytes); !s) return s;
    if (status s = b.open(job.b.path, job.b.bytes); !s) return s;
    openblas library(threads);
    const std::uint64_t rows = rows_within(job.size, piece_bytes, operand_bytes);
    mapped_product all{job,
                       library,
                       reinterpret_cast<const float*>(a.data()),
                       reinterpret_cast<const float*>(b.data()),
                       threads,
                       rows,
                       std::vector<float>(rows * job.size.n)};
    report.note = library.name();
    report.start_seconds = watch.lap();
    return apps::repeat_timed(job.repeats, report, [&] { return all.run(); });
}

#else

status make_openblas(const std::string& asked_by, std::uint32_t, std::unique_ptr<blas>&) {
    return {-ENODEV, asked_by +
                         ": this program was built without OpenBLAS; install "
                         "libopenblas-dev and build it again, or use --method penstock"};
}

status multiply_with_cpu(const matrix_job&, method_report&) {
    std::unique_ptr<blas> none;
    return make_openblas("--method cpu", 1, none);
}

#endif

}  // namespace penstock::matrix
