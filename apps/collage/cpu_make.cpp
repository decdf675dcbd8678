// Baseline: all cores, vector code, memory maps.

#include <atomic>

#include "common/message.hpp"
#include "common/process.hpp"
#include "common/threads.hpp"
#include "common/vectors.hpp"
#include "library.hpp"
#include "make_block.hpp"
#include "methods.hpp"

namespace penstock::collage {

status block_error(const library& from, int code) {
    if (code == 0) return {};
    if (code == -EBADMSG)
        return {
            code,
            "library " + apps::shown(from.path) +
                ": a hash table is damaged; make the library again with penstock-collage index"};
    if (code == -ESTALE)
        return {code, "library " + apps::shown(from.path) +
                          ": a file changed while it was read; "
                          "run again when no program writes to it"};
    return {code, "library " + apps::shown(from.path) + ": " + error_text(code)};
}

status make_with_cpu(const collage_job& job, picture& out, method_report& report) {
    apps::stopwatch watch;
    const library_header& h = job.from.header;
    mapped_library mapped;
    if (status s = mapped.open(job.from); !s) return s;
    collage_memory memory(collage_memory::no_gpu);
    collage_view view{};
    if (status s = place_collage(memory, false, h, job.in, out, view); !s) return s;
    const std::uint32_t threads = apps::thread_count(job.settings.worker_threads);
    report.note = std::to_string(threads) + " threads, vectors of " + vector_name();
    report.blocks = view.blocks();
    report.start_seconds = watch.lap();

    const double cpu_before = apps::cpu_seconds();
    std::vector<std::uint32_t> order;
    if (status s = prepare_input(memory, job.in, view, threads, order, report); !s) return s;
    apps::stopwatch part;
    std::atomic<std::uint64_t> next{0};
    {
        const apps::progress bar(
            "blocks", view.blocks(), [&] { return next.load(); }, !job.quiet);
        apps::on_threads(threads, [&](std::uint32_t) {
            state_of<lane> state;
            for (std::uint64_t block = next++; block < view.blocks() && !was_interrupted();
                 block = next++) {
                state.block = view.order[block];
                make_block(lane{}, mapped, view, state);
            }
        });
    }
    report.compute_seconds = part.lap();
    collage_totals totals{};
    status copied = download_result(memory, view, out, totals);
    report.download_seconds = part.lap();
    report.seconds = {watch.lap()};
    report.cpu_seconds = apps::cpu_seconds() - cpu_before;
    if (copied.ok()) copied = count_seen(memory, h, view, report.unique_tiles);
    report.evaluations = totals.evaluations;
    report.fallback_blocks = totals.fallback_blocks;
    report.pages_read = report.unique_tiles;
    if (status s = apps::not_interrupted(); !s) return s;
    return totals.code != 0 ? block_error(job.from, totals.code) : copied;
}

PENSTOCK_CLONES("avx512f", "avx2", "default")
std::uint32_t distance_of(const std::uint32_t* a, const std::uint32_t* b, std::uint32_t count) {
    std::uint32_t sum = 0;
    for (std::uint32_t i = 0; i < count; ++i) sum += squared_difference(a[i], b[i]);
    return sum;
}

const char* vector_name() {
#if defined(__x86_64__)
    const apps::vectors here = apps::vectors_here();
    return here == apps::vectors::avx512 ? "AVX-512"
           : here == apps::vectors::avx2 ? "AVX2"
                                         : "SSE2";
#else
    return "the compiler's vectors";
#endif
}

}  // namespace penstock::collage
