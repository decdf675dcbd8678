// The method that hands files to a library as plain pointers, and what methods share.
#include "methods.hpp"

#include <algorithm>
#include <cerrno>
#include <unistd.h>

#include "common/command_line.hpp"
#include "common/numbers.hpp"
#include "common/message.hpp"
#include "common/process.hpp"
#include "common/threads.hpp"
#include "penstock/region.hpp"
#include "views.hpp"

namespace penstock::matrix {

namespace {

status region_failed(const std::string& path, const char* verb, std::int64_t code) {
    return {static_cast<int>(code),
            apps::shown(path) + ": " + verb + ": " + error_text(code) +
                (code == -ESTALE ? "; the file became shorter, copy it again"
                                 : "; see that there is room, and that it can be read")};
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
        if (status s = library.multiply(job.size, static_cast<const float*>(a->data()),
                                        static_cast<const float*>(b->data()),
                                        static_cast<float*>(c->data()));
            !s)
            return s;
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
    std::unique_ptr<blas> library;
    if (status s = on_gpu ? make_cublas("--method region", rt.settings().device, library)
                          : make_openblas("--method region",
                                          apps::thread_count(settings.worker_threads), library);
        !s)
        return s;
    three_regions files;
    report.note = library->name() + " on regions";
    report.start_seconds = watch.lap();
    if (status s = apps::repeat_timed(job.repeats, report,
                                      [&] { return files.multiply(rt, job, *library); });
        !s)
        return s;
    report.bytes_read = files.bytes_fetched();
    return {};
}

status outcome_of(apps::device_memory& memory, const apps::work_totals* from,
                  const matrix_job& job) {
    apps::work_totals totals{};
    if (!memory.download(&totals, from, sizeof totals)) return copy_failed();
    if (totals.code == 0) return {};
    const auto failed = static_cast<bad_file>(totals.failed);
    return failed == bad_file::result
               ? apps::write_error(totals.code)
               : apps::read_error(failed == bad_file::a ? job.a : job.b, totals.code);
}

status copy_failed() {
    return {-EIO,
            "the state of the product could not be copied to or from the device; is the GPU "
            "in order?"};
}

std::uint64_t rows_within(const matrix_sizes& size, std::uint64_t result_bytes,
                          std::uint64_t a_bytes) {
    const std::uint64_t rows =
        std::min(result_bytes / (size.n * sizeof(float)), a_bytes / (size.k * sizeof(float)));
    return std::clamp<std::uint64_t>(rows, 1, size.m);
}

}  // namespace penstock::matrix
