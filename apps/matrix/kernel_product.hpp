// A product by kernels that read the operands and write the result through Penstock: what both
// shapes have in common.
#pragma once

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>

#include "common/command_line.hpp"
#include "common/device_memory.hpp"
#include "common/threads.hpp"
#include "methods.hpp"
#include "views.hpp"

namespace penstock::matrix {

class kernel_product {
public:
    kernel_product(runtime& rt, const matrix_job& job)
        : rt_(rt),
          job_(job),
          on_gpu_(rt.where() == backend::gpu),
          threads_(apps::thread_count(job.settings.worker_threads)),
          memory_(on_gpu_ ? apps::make_gpu_memory(rt.settings().device)
                          : apps::make_host_memory()) {}
    virtual ~kernel_product() = default;
    kernel_product(const kernel_product&) = delete;
    kernel_product& operator=(const kernel_product&) = delete;

    // Repeats it: from the files of the operands to the result in its own, where other programs see
    // it.
    status multiply(apps::stopwatch& watch, method_report& report) {
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
        return apps::repeat_timed(job_.repeats, rt_, report, [this]() -> status {
            if (status s = reset(); !s) return s;
            int result = -1;
            if (status s = apps::open_result(rt_, *job_.result, result); !s) return s;
            const int code = launch_for(result);
            return apps::close_result(rt_, result,
                                      code != 0 ? apps::launch_error(rt_, code) : outcome());
        });
    }

protected:
    // Memory of the device, and how many groups the kernel has.
    virtual status place() = 0;
    // Launches that do nothing, so that kernels and their stacks are on the device before the clock
    // runs.
    virtual int rehearse() = 0;
    virtual int launch_for(int result) = 0;
    // How a GPU computes, in a few words.
    [[nodiscard]] virtual std::string gpu_note() const = 0;

    runtime& rt_;
    const matrix_job& job_;
    const bool on_gpu_;
    const std::uint32_t threads_;
    std::unique_ptr<apps::device_memory> memory_;
    apps::work_totals* totals_ = nullptr;  // there
    int a_ = -1, b_ = -1;                  // descriptors
    std::uint64_t groups_ = 1;

private:
    // Before each product, so that one may follow another.
    status reset() {
        const apps::work_totals zero{};
        return memory_->upload(totals_, &zero, sizeof zero) ? status{} : copy_failed();
    }
    // What went wrong in the kernel, with a message that names the file.
    status outcome() {
        apps::work_totals totals{};
        if (!memory_->download(&totals, totals_, sizeof totals)) return copy_failed();
        if (totals.code == 0) return {};
        const auto failed = static_cast<bad_file>(totals.failed);
        if (failed == bad_file::result) return apps::write_error(totals.code);
        return apps::read_error(failed == bad_file::a ? job_.a : job_.b, totals.code);
    }
    static status copy_failed() {
        return {-EIO,
                "the state of the product could not be copied to or from the device; is the GPU "
                "in order?"};
    }
};

template <typename Product>
status multiply_with(const matrix_job& job, method_report& report) {
    apps::stopwatch watch;
    if (status s = apps::start_runtime(job.settings, report); !s) return s;
    return Product(*report.rt, job).multiply(watch, report);
}

}  // namespace penstock::matrix
