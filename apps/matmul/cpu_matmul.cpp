// Baseline: all cores, vector code, memory maps.
#include <cerrno>

#include "common/message.hpp"
#include "common/report_text.hpp"
#include "common/threads.hpp"
#include "common/files.hpp"
#include "lane_multiply.hpp"
#include "methods.hpp"

namespace penstock::matmul {

namespace {

struct mapped_matrices {
    const float* a;
    const float* b;
    std::uint64_t a_columns, b_columns;

    std::int64_t fetch(const lane&, bad_file which, std::uint64_t row, std::uint64_t rows,
                       std::uint64_t column, std::uint64_t columns, float* to) const {
        const float* const from = which == bad_file::a ? a : b;
        const std::uint64_t stride = which == bad_file::a ? a_columns : b_columns;
        for (std::uint64_t i = 0; i < rows; ++i)
            std::memcpy(to + i * columns, from + (row + i) * stride + column,
                        columns * sizeof(float));
        return 0;
    }
};

status multiply_once(const matmul_job& job, const matmul_view& view,
                     const mapped_matrices& matrices, float* const* rooms, std::uint32_t threads) {
    apps::first_error errors;
    const apps::progress bar(
        "tiles", view.tile_count(lane_tile),
        [&] { return atomic_load<order::relaxed>(&view.totals->items_taken); }, !job.quiet);
    apps::on_threads(threads, [&](std::uint32_t thread) {
        const auto write = [&](const tile_place& at, const float* tile) -> std::int64_t {
            for (std::uint32_t i = 0; i < at.rows; ++i) {
                const status written = job.result->write_at(
                    tile + std::uint64_t{i} * at.columns, at.columns * sizeof(float),
                    ((at.row + i) * view.n + at.column) * sizeof(float));
                errors.note(written);
                if (!written) return written.code;
            }
            return 0;
        };
        multiply_tiles_on_lane(
            matrices, view, *reinterpret_cast<lane_room*>(rooms[thread]),
            [] { return was_interrupted(); }, write);
    });
    return errors.get();
}

}  // namespace

status multiply_with_cpu(const matmul_job& job, method_report& report) {
    apps::stopwatch watch;
    const std::uint32_t threads = apps::thread_count(job.settings.worker_threads);
    apps::mapped_file a, b;
    if (status s = a.open(job.a.path, job.a.bytes); !s) return s;
    if (status s = b.open(job.b.path, job.b.bytes); !s) return s;
    matmul_memory memory(apps::make_host_memory());
    if (status s = memory.place(job); !s) return s;
    apps::thread_scratch rooms;
    if (status s = rooms.allocate(threads, sizeof(lane_room) / sizeof(float)); !s) return s;
    report.note = std::to_string(threads) + " threads, " + chosen_tiles().name;
    report.start_seconds = watch.lap();
    const mapped_matrices matrices{reinterpret_cast<const float*>(a.data()),
                                   reinterpret_cast<const float*>(b.data()), job.k, job.n};
    return apps::repeat_timed(job.repeats, report, [&]() -> status {
        if (status s = memory.reset(); !s) return s;
        return multiply_once(job, memory.view(), matrices, rooms.pointers(), threads);
    });
}

}  // namespace penstock::matmul
