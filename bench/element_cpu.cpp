// Elements on the cpu back end: v[i] at random and in order, and for_each, with all pages resident,
// against the same loads from a plain array.
#include <atomic>

#include "cases.hpp"
#include "penstock/view.hpp"
#include "resident.hpp"
#include "together.hpp"

namespace penstock::bench {

namespace {

struct element_run {
    context& here;
    resident_file& file;
    std::uint64_t page, elements, threads;

    // sum(thread) over the same elements, from the plain array and through the view.
    template <typename Plain, typename View>
    status compare(const char* name, std::uint64_t rounds, const Plain& from_plain,
                   const View& from_view) const {
        series plain, viewed, cores;
        const auto run = [&](const auto& body, std::uint64_t& sum) {
            std::vector<std::uint64_t> sums(threads * 8);
            const double seconds =
                seconds_together(threads, [&](std::uint64_t t) { sums[t * 8] = body(t); });
            sum = 0;
            for (const std::uint64_t one : sums) sum += one;
            return 1e-9 * static_cast<double>(threads * rounds) / seconds;
        };
        for (std::uint64_t repeat = 0; repeat < here.repeats(11); ++repeat) {
            std::uint64_t expected = 0, got = 0;
            plain.add(run(from_plain, expected));
            const stopwatch watch;
            viewed.add(run(from_view, got));
            cores.add(watch.cores(watch.seconds()));
            if (expected != got) return {-EIO, "the elements differ from the file"};
        }
        char slower[40];
        std::snprintf(slower, sizeof slower, "%.3f times slower; ",
                      plain.median() / viewed.median());
        return here.add({"S3", name, "", page, viewed, "billion/s",
                         "the same loads from plain memory", plain, cores,
                         slower + std::to_string(threads) +
                             (threads == 1 ? " thread, " : " threads, ") +
                             format_size(elements * 8) + " resident"});
    }
};

status measure_element_page(context& here, std::uint64_t bytes, std::uint64_t page) {
    resident_file file;
    if (status s = file.make(here, bytes, page); !s) return s;
    const element_run run{here, file, page, bytes / 8, here.threads(1)};
    const runtime_ref fs = file.rt->ref();
    const view<std::uint64_t> v(fs, file.fd);
    const auto* const plain = reinterpret_cast<const std::uint64_t*>(file.plain.get());
    const std::uint64_t rounds = std::min<std::uint64_t>(run.elements / run.threads, 4'000'000);
    const auto sum_over = [&](const auto& element, const auto& place) {
        return [&, rounds](std::uint64_t t) {
            std::uint64_t sum = 0;
            for (std::uint64_t i = 0; i < rounds; ++i) sum += element(place(t * rounds + i));
            return sum;
        };
    };
    const auto of_array = [plain](std::uint64_t i) { return plain[i]; };
    const auto of_view = [&v](std::uint64_t i) { return v[i]; };
    const auto random = [&](std::uint64_t i) { return mix64(i) % run.elements; };
    const auto in_order = [](std::uint64_t i) { return i; };
    if (status s = run.compare("random 8-byte elements", rounds, sum_over(of_array, random),
                               sum_over(of_view, random));
        !s)
        return s;
    if (status s = run.compare("8-byte elements in order, v[i]", rounds,
                               sum_over(of_array, in_order), sum_over(of_view, in_order));
        !s)
        return s;
    const auto each = [&](std::uint64_t t) {
        std::uint64_t sum = 0;
        v.for_each(lane{}, t * rounds, rounds,
                   [&](std::uint64_t, std::uint64_t element) { sum += element; });
        return sum;
    };
    if (status s = run.compare("8-byte elements in order, for_each", rounds,
                               sum_over(of_array, in_order), each);
        !s)
        return s;
    return file.rt->view_status();
}

}  // namespace

status element_on_cpu(context& here) {
    for (const std::uint64_t page : here.pages({4 * kib, 64 * kib}))
        if (status s = measure_element_page(here, here.file_bytes(64 * mib), page); !s) return s;
    return {};
}

}  // namespace penstock::bench
