// runtime::gather: in which order the rows are fetched, and the cpu back end's half of the
// fetching.
#include "device/device.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <memory>
#include <new>

#include "os/exceptions.hpp"
#include "runtime/runtime_state.hpp"

namespace penstock {

namespace host {

namespace {

constexpr std::uint64_t many_rows = 65536, far_bytes = std::uint64_t{2} << 30;

// Whether and how the rows are put in order. 0 or a negative errno.
std::int64_t choose_spans(runtime& rt, const gather_options& settings, gather_job& job) {
    if (!std::has_single_bit(settings.span_bytes) ||
        settings.span_bytes < engine::window_chunk_bytes)
        return -EINVAL;
    job.must_order = settings.order == gather_order::by_span;
    if (settings.order == gather_order::as_given || (!job.must_order && job.count < many_rows))
        return 0;
    file_stat facts{};
    if (const int code = rt.stat(job.fd, &facts); code != 0) return code;
    // What fits into the cache comes from it most of the time, and there the order is worth
    // nothing.
    if (!job.must_order &&
        (facts.size_bytes <= far_bytes || facts.size_bytes <= *rt.settings().cache_bytes))
        return 0;
    auto shift = static_cast<std::uint32_t>(std::countr_zero(settings.span_bytes));
    while (facts.size_bytes >> shift >= max_spans) ++shift;
    job.spans = {static_cast<std::uint32_t>(facts.size_bytes >> shift) + 1, shift};
    return 0;
}

// The positions of the list by span, in each span as they are given.
void sort_by_span(const gather_job& job, const engine::row_geometry& rows, std::uint32_t* order) {
    std::uint32_t next[max_spans + 1] = {};
    for (std::uint64_t i = 0; i < job.count; ++i)
        ++next[job.spans.span_of(rows, job.indices[i]) + 1];
    for (std::uint32_t span = 1; span < job.spans.spans; ++span) next[span] += next[span - 1];
    for (std::uint64_t i = 0; i < job.count; ++i)
        order[next[job.spans.span_of(rows, job.indices[i])]++] = static_cast<std::uint32_t>(i);
}

// piece(first, rows): a count or a negative errno. 0, or the first error; the pieces that follow it
// are left out.
template <typename Piece>
std::int64_t run_pieces(runtime& rt, const gather_job& job, const Piece& piece) {
    const std::uint64_t rows_at_a_time =
        rows_of_a_piece(job.count, job.shape.row_bytes, *rt.settings().worker_threads);
    std::atomic<std::uint64_t> next{0};
    std::atomic<std::int64_t> failed{0};
    const auto work = [&](std::uint32_t, std::uint32_t) {
        for (std::uint64_t first = next.fetch_add(rows_at_a_time); first < job.count && failed == 0;
             first = next.fetch_add(rows_at_a_time)) {
            const std::int64_t done = piece(first, std::min(rows_at_a_time, job.count - first));
            std::int64_t none = 0;
            if (done < 0) failed.compare_exchange_strong(none, done);
        }
    };
    // A thread costs as much to start as some hundred rows to copy.
    if (job.count * job.shape.row_bytes < 65536) work(0, 1);
    else if (const int code = rt.run_on_workers(work); code != 0) return code;
    return failed;
}

}  // namespace

std::int64_t gather_on_cpu(runtime& rt, const gather_job& whole) {
    const runtime_ref fs = rt.ref();
    const row_view rows(fs, whole.fd, whole.shape);
    if (rows.code() != 0) return rows.code();
    std::unique_ptr<std::uint32_t[]> order;
    gather_job job = whole;
    if (job.spans.spans > 0) {
        order.reset(new (std::nothrow) std::uint32_t[std::min(whole.count, ordered_rows_at_once)]);
        if (order == nullptr && job.must_order) return -ENOMEM;
    }
    for (std::uint64_t done = 0; done < whole.count; done += job.count) {
        job.indices = whole.indices + done;
        job.out = whole.out + done * whole.shape.row_bytes;
        job.count =
            order != nullptr ? std::min(whole.count - done, ordered_rows_at_once) : whole.count;
        if (order != nullptr) sort_by_span(job, rows.geometry(), order.get());
        const std::int64_t code =
            run_pieces(rt, job, [&](std::uint64_t first, std::uint64_t count) {
                if (order == nullptr)
                    return gather(lane{}, rows, job.indices + first, count,
                                  job.out + first * job.shape.row_bytes);
                return detail::gather_list(lane{}, rows,
                                           engine::ordered_rows{job.indices, order.get() + first},
                                           count, job.out);
            });
        if (code < 0) return code;
    }
    return static_cast<std::int64_t>(whole.count);
}

}  // namespace host

std::int64_t runtime::gather(int fd, const row_shape& shape, const std::uint64_t* indices,
                             std::uint64_t count, void* out, const gather_options& settings) try {
    if (shape.row_bytes == 0) return -EINVAL;
    if (const int code = process_code(); code != 0) return code;
    if (const std::int64_t code = detail::check_gather(indices, count, out, shape.row_bytes);
        code != 0)
        return code;
    host::gather_job job{fd, shape, indices, count, static_cast<std::byte*>(out), {}, false};
    if (const std::int64_t code = host::choose_spans(*this, settings, job); code != 0) return code;
    if (count == 0) {
        file_stat ignored{};
        return stat(fd, &ignored);
    }
    state().expect_requests();
    return state().device->is_gpu() ? state().device->gather(state().ref, job, settings.stream)
                                    : host::gather_on_cpu(*this, job);
} catch (...) {
    return host::status_of_exception("").code;
}

}  // namespace penstock
