// Libraries that multiply plain memory: OpenBLAS with the baseline on CPU threads, and the method
// that hands files to OpenBLAS or cuBLAS as regions.
//
// OpenBLAS is loaded when a method asks for it. Linked in, it would take memory and start threads
// in every process before main(), and a process with little memory would not end.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <dlfcn.h>
#include <optional>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "common/message.hpp"
#include "common/threads.hpp"
#include "common/work_items.hpp"
#include "methods.hpp"
#include "penstock/region.hpp"

namespace penstock::matrix {

namespace {

constexpr int by_rows = 101, as_it_is = 111;  // CblasRowMajor, CblasNoTrans

// OpenBLAS waits without end for memory that a limit refuses, so the room is tried before: some
// 144 MiB for each thread that it may start.
status try_room(std::uint32_t threads) {
    const std::size_t bytes = (std::size_t{144} << 20) * (threads + std::size_t{1});
    void* const room = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return {-ENOMEM, "OpenBLAS needs some " + format_size(bytes) +
                             " of memory that is not free; raise the limit (ulimit -v), or use "
                             "--method penstock"};
    ::munmap(room, bytes);
    return {};
}

constexpr std::uint64_t piece_bytes = 64u << 20;   // of the result, computed and then written
constexpr std::uint64_t operand_bytes = 1u << 30;  // of A, so that an interrupt is soon noticed
constexpr std::uint64_t slice_bytes = 4u << 20;    // written by a thread at a time

class openblas final : public blas {
public:
    status load(const std::string& asked_by, std::uint32_t threads) {
        if (status s = try_room(std::max(threads, apps::thread_count(std::nullopt))); !s) return s;
        void* library = nullptr;
        for (const char* const name : {"libopenblas.so.0", "libopenblas.so"})
            if (library == nullptr) library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
        if (library == nullptr || !find(library, "openblas_set_num_threads", set_threads_) ||
            !find(library, "cblas_sgemv", sgemv_) || !find(library, "cblas_sgemm", sgemm_))
            return {-ENODEV, asked_by +
                                 ": libopenblas.so.0 is not there or not usable; install "
                                 "libopenblas0, or use --method penstock"};
        threads_ = threads;
        set_threads_(static_cast<int>(threads));
        return {};
    }
    status multiply(const matrix_sizes& size, const float* a, const float* b, float* c) override {
        // Its numbers of rows and columns are int.
        if (std::max({size.m, size.n, size.k}) > INT_MAX)
            return apps::failure(-EOVERFLOW, "OpenBLAS takes at most ", INT_MAX,
                                 " rows or columns; use --method penstock");
        const int m = static_cast<int>(size.m), n = static_cast<int>(size.n),
                  k = static_cast<int>(size.k);
        if (n == 1) sgemv_(by_rows, as_it_is, m, k, 1, a, k, b, 1, 0, c, 1);
        else sgemm_(by_rows, as_it_is, as_it_is, m, n, k, 1, a, k, b, n, 0, c, n);
        return {};
    }
    [[nodiscard]] std::string name() const override {
        return "OpenBLAS, " + std::to_string(threads_) + " threads";
    }

private:
    template <typename Function>
    static bool find(void* library, const char* name, Function& out) {
        out = reinterpret_cast<Function>(::dlsym(library, name));
        return out != nullptr;
    }

    // With the types of cblas.h: its enumerations are ints.
    void (*set_threads_)(int threads) = nullptr;
    void (*sgemv_)(int order, int transposed, int rows, int columns, float alpha, const float* a,
                   int row_floats, const float* x, int step_x, float beta, float* y,
                   int step_y) = nullptr;
    void (*sgemm_)(int order, int transposed_a, int transposed_b, int m, int n, int k, float alpha,
                   const float* a, int row_floats_a, const float* b, int row_floats_b, float beta,
                   float* c, int row_floats_c) = nullptr;
    std::uint32_t threads_ = 1;
};

// Rows of the result from `first` on, written by all threads.
status write_rows(const matrix_job& job, const std::vector<float>& from, std::uint64_t first,
                  std::uint64_t rows, std::uint32_t threads) {
    const std::uint64_t row_bytes = job.size.n * sizeof(float), bytes = rows * row_bytes;
    const auto use = std::min<std::uint64_t>(threads, apps::pieces_of(bytes, slice_bytes));
    const auto* const begin = reinterpret_cast<const char*>(from.data());
    return apps::on_pieces(static_cast<std::uint32_t>(use), bytes, slice_bytes,
                           [&](std::uint32_t, std::uint64_t at, std::uint64_t count) {
                               return job.result->write_at(begin + at, count,
                                                           first * row_bytes + at);
                           });
}

// Some rows after the others, each made and then written.
status multiply_maps(const matrix_job& job, blas& library, const float* a, const float* b,
                     std::uint32_t threads, std::vector<float>& piece) {
    const auto& [m, n, k] = job.size;
    const std::uint64_t rows_at_once = piece.size() / n;
    std::atomic<std::uint64_t> done{0};
    const apps::progress bar(
        "rows", m, [&] { return done.load(); }, !job.quiet);
    for (std::uint64_t first = 0; first < m; first += rows_at_once) {
        if (was_interrupted()) return {-ECANCELED, "interrupted; nothing was written"};
        const std::uint64_t rows = std::min(rows_at_once, m - first);
        if (status s = library.multiply({rows, n, k}, a + first * k, b, piece.data()); !s) return s;
        if (status s = write_rows(job, piece, first, rows, threads); !s) return s;
        done = first + rows;
    }
    return {};
}

}  // namespace

status make_openblas(const std::string& asked_by, std::uint32_t threads,
                     std::unique_ptr<blas>& out) {
    auto made = std::make_unique<openblas>();
    if (status s = made->load(asked_by, threads); !s) return s;
    out = std::move(made);
    return {};
}

status multiply_with_cpu(const matrix_job& job, method_report& report) {
    apps::stopwatch watch;
    const std::uint32_t threads = apps::thread_count(job.settings.worker_threads);
    apps::mapped_file a, b;
    if (status s = a.open(job.a.path, job.a.bytes); !s) return s;
    if (status s = b.open(job.b.path, job.b.bytes); !s) return s;
    std::unique_ptr<blas> library;
    if (status s = make_openblas("--method cpu", threads, library); !s) return s;
    std::vector<float> piece(rows_within(job.size, piece_bytes, operand_bytes) * job.size.n);
    report.note = library->name();
    report.start_seconds = watch.lap();
    return apps::repeat_timed(job.repeats, report, [&] {
        return multiply_maps(job, *library, reinterpret_cast<const float*>(a.data()),
                             reinterpret_cast<const float*>(b.data()), threads, piece);
    });
}

// Files as regions, which are plain pointers to a library.

namespace {

status region_failed(const std::string& path, const char* verb, std::int64_t code) {
    return apps::failure(static_cast<int>(code), apps::shown(path), ": ", verb, ": ",
                         error_text(code),
                         code == -ESTALE ? "; the file became shorter, copy it again"
                                         : "; see that there is room, and that it can be read");
}

// Operands and result as regions of a runtime.
struct three_regions {
    std::unique_ptr<file_region> a, b, c;

    status open(runtime& rt, const matrix_job& job) {
        const std::string& result = job.result->passing_path();
        // A region has the size that the file has.
        if (::truncate(result.c_str(), static_cast<off_t>(job.result_bytes())) != 0)
            return apps::write_error(-errno);
        if (status s = map_region(rt, job.a.path, 0, job.a.bytes, protection::read, {}, a); !s)
            return s;
        if (status s = map_region(rt, job.b.path, 0, job.b.bytes, protection::read, {}, b); !s)
            return s;
        // The file has a passing name that no other program knows.
        region_options alone;
        alone.outside_writers = false;
        return map_region(rt, result, 0, job.result_bytes(), protection::read_write, alone, c);
    }
    // From the files of the operands to the result in its own, as other programs see it. The first
    // time maps them, which reads them.
    status multiply(runtime& rt, const matrix_job& job, blas& library) {
        if (c == nullptr)
            if (status s = open(rt, job); !s) return s;
        if (const std::int64_t code = a->acquire(); code < 0)
            return region_failed(job.a.path, "acquire", code);
        if (const std::int64_t code = b->acquire(); code < 0)
            return region_failed(job.b.path, "acquire", code);
        const auto* const a_numbers = static_cast<const float*>(a->data());
        const auto* const b_numbers = static_cast<const float*>(b->data());
        auto* const c_numbers = static_cast<float*>(c->data());
        if (status s = library.multiply(job.size, a_numbers, b_numbers, c_numbers); !s) return s;
        if (const std::int64_t code = c->release(); code < 0)
            return apps::write_error(static_cast<int>(code));
        return apps::not_interrupted();
    }
    [[nodiscard]] std::uint64_t bytes_fetched() const {
        constexpr std::uint64_t traffic_page = 4096;
        return (a->traffic().pages_fetched + b->traffic().pages_fetched) * traffic_page;
    }
};

}  // namespace

status multiply_regions(const matrix_job& job, method_report& report) {
    apps::stopwatch watch;
    options settings = job.settings;
    settings.cache_bytes = 256u << 20;  // none of its pages is used, so the regions get the memory
    if (status s = apps::start_runtime(settings, report); !s) return s;
    runtime& rt = *report.rt;
    const bool on_gpu = rt.where() == backend::gpu;
    const std::uint32_t threads = apps::thread_count(settings.worker_threads);
    constexpr const char* asked_by = "--method region";
    std::unique_ptr<blas> library;
    if (status s = on_gpu ? make_cublas(asked_by, rt.settings().device, library)
                          : make_openblas(asked_by, threads, library);
        !s)
        return s;
    three_regions files;
    report.note = library->name() + " on regions";
    report.start_seconds = watch.lap();
    const auto once = [&] { return files.multiply(rt, job, *library); };
    if (status s = apps::repeat_timed(job.repeats, report, once); !s) return s;
    report.bytes_read = files.bytes_fetched();
    return {};
}

}  // namespace penstock::matrix
