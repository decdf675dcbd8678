// Runs a product by kernels several times, each from files to a file.
#include "kernel_product.hpp"

#include <cerrno>

#include "common/command_line.hpp"
#include "common/threads.hpp"
#include "views.hpp"

namespace penstock::matrix {

namespace {

status copy_failed() {
    return {-EIO,
            "the state of the product could not be copied to or from the device; is the GPU "
            "in order?"};
}

}  // namespace

kernel_product::kernel_product(runtime& rt, const matrix_job& job)
    : rt_(rt),
      job_(job),
      on_gpu_(rt.where() == backend::gpu),
      threads_(apps::thread_count(job.settings.worker_threads)),
      memory_(on_gpu_ ? apps::make_gpu_memory(rt.settings().device) : apps::make_host_memory()) {}

// Before each product, so that one may follow another.
status kernel_product::reset() {
    const apps::work_totals zero{};
    return memory_->upload(totals_, &zero, sizeof zero) ? status{} : copy_failed();
}

// What went wrong in the kernel, with a message that names the file.
status kernel_product::outcome() {
    apps::work_totals totals{};
    if (!memory_->download(&totals, totals_, sizeof totals)) return copy_failed();
    if (totals.code == 0) return {};
    const auto failed = static_cast<bad_file>(totals.failed);
    if (failed == bad_file::result) return apps::write_error(totals.code);
    return apps::read_error(failed == bad_file::a ? job_.a : job_.b, totals.code);
}

status kernel_product::multiply(apps::stopwatch& watch, method_report& report) {
    if (status s = apps::open_input(rt_, job_.a, a_); !s) return s;
    if (status s = apps::open_input(rt_, job_.b, b_); !s) return s;
    if (status s = place(); !s) return s;
    if (status s = reset(); !s) return s;
    report.note =
        on_gpu_ ? gpu_note() : std::to_string(threads_) + " threads, " + chosen_kernels().name;
    if (const int code = rehearse(); code != 0) return apps::launch_error(rt_, code);
    report.start_seconds = watch.lap();
    if (on_gpu_ && job_.windows) report.window_bytes = apps::open_windows(rt_, {a_, b_});
    report.window_seconds = watch.lap();
    return apps::repeat_timed(job_.repeats, rt_, report, [&]() -> status {
        if (status s = reset(); !s) return s;
        int result = -1;
        if (status s = apps::open_result(rt_, *job_.result, result); !s) return s;
        const int code = launch_for(result);
        return apps::close_result(rt_, result,
                                  code != 0 ? apps::launch_error(rt_, code) : outcome());
    });
}

}  // namespace penstock::matrix
