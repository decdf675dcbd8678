// Lists of few and of many rows of a table on a GPU, as one call each: a launch and its wait,
// against a plain kernel over pinned memory and against two ways by hand. In those the numbers come
// to the host, one thread takes the rows to pinned memory, from a mapping of the file or with
// io_uring through the page cache, and they go to the device.
//
//   lists             16 to 65,536 rows of 256 bytes, p50 and p99; the same in a captured graph
//   one after another one warp, each row's number from the row before
#include "cases.hpp"
#include "gpu.cuh"
#include "table_plain.cuh"
#include "table_rows.hpp"
#include "uring_reads.hpp"

#include <numeric>
#include <optional>

namespace penstock::bench {

namespace {

constexpr std::uint64_t listed_row_bytes = 256, most_listed_rows = 65536,
                        most_listed_bytes = most_listed_rows * listed_row_bytes;

// What calls of one way took.
class timed_calls {
public:
    template <typename Body>
    void time(const Body& body) {
        const double used_s = apps::cpu_seconds(), began_s = now_s();
        body();
        us_.push_back(1e6 * (now_s() - began_s));
        cpu_us_ += 1e6 * (apps::cpu_seconds() - used_s);
    }
    [[nodiscard]] bool any() const { return !us_.empty(); }
    [[nodiscard]] double at(double part) {
        std::sort(us_.begin(), us_.end());
        return us_[static_cast<std::size_t>(part * static_cast<double>(us_.size() - 1))];
    }
    [[nodiscard]] double cores() const {
        return cpu_us_ / std::accumulate(us_.begin(), us_.end(), 0.0);
    }
    [[nodiscard]] std::string text() {
        return text_of("p50 %.2f us, p99 %.2f us", at(0.5), at(0.99));
    }

private:
    std::vector<double> us_{};
    double cpu_us_ = 0;
};

// All ways for lists of so many rows.
struct list_ways {
    std::uint64_t count, rounds;
    timed_calls table{}, graph{}, plain{}, mapping{}, uring{};

    void add(context& here, std::uint64_t page, const std::string& name, timed_calls& values,
             timed_calls& base, const char* baseline) const {
        measured per_second;  // turned so that more is better
        per_second.ours.add(1e6 / values.at(0.5));
        per_second.baseline.add(1e6 / base.at(0.5));
        per_second.cores.add(values.cores());
        here.add("S21", name + ", " + std::to_string(count) + " rows of 256 B", page, "calls/s",
                 per_second, baseline,
                 values.text() + "; baseline " + base.text() +
                     text_of(", %.2f cores; %llu rounds in turns", base.cores(),
                             static_cast<unsigned long long>(rounds)));
    }
    void add_all(context& here, std::uint64_t page) {
        const std::string name = "table through windows";
        add(here, page, name, table, plain, "plain kernel from pinned memory");
        add(here, page, name, table, mapping, "take from a mapping and copy");
        if (uring.any()) add(here, page, name, table, uring, "io_uring by hand and copy");
        add(here, page, "table in a graph", graph, table, "the same gather, launched");
    }
};

// A gather into `out` that a graph launches again and again.
class captured_gather {
public:
    captured_gather(const opened_table& of, const std::int64_t* numbers, std::uint64_t count,
                    void* out, cudaStream_t stream) {
        require_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
        require(of.rows->gather(numbers, count, out, {.stream = stream}), "gather");
        require_cuda(cudaStreamEndCapture(stream, &captured_), "capture");
        require_cuda(cudaGraphInstantiate(&graph_, captured_, 0), "graph");
    }
    void launch(cudaStream_t stream) const {
        require_cuda(cudaGraphLaunch(graph_, stream), "graph");
    }

private:
    apps::gpu_owner<cudaGraph_t, cudaGraphDestroy> captured_;
    apps::gpu_owner<cudaGraphExec_t, cudaGraphExecDestroy> graph_;
};

class list_bench {
public:
    list_bench(context& here, const opened_table& of, const std::byte* plain)
        : here_(here), of_(of), plain_(plain), mapped_(here.file().path(), here.bytes()) {
        require_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
        if (const std::string why = why_no_uring(); !why.empty())
            here.leave_out("io_uring by hand", why);
        else
            uring_.emplace(row_file{here.file().path(), listed_row_bytes}, 256,
                           staging_.as<std::byte>(), most_listed_bytes);
    }

    void measure(std::uint64_t count) {
        // For a 99th percentile there are 100 rounds at least.
        list_ways all{count, std::clamp<std::uint64_t>((1u << 21) / count, 100, 2000)};
        const captured_gather graph(of_, numbers(), count, out_.as<void>(), stream_);
        for (std::uint64_t round = 0; round < all.rounds; ++round)
            one_round(all, graph, round % (all.rounds / 20) == 0);
        all.add_all(here_, of_.page());
    }

private:
    [[nodiscard]] std::int64_t* numbers() const { return numbers_.as<std::int64_t>(); }
    void wait() const { require_cuda(cudaStreamSynchronize(stream_), "kernel"); }

    void choose(std::uint64_t count) {
        run_kernel<width::lane>(*of_.file.rt, count,
                                choose_uniform{numbers(), of_.rows->size(), ++lists_chosen_});
    }

    // The host's ways have rows of their own: what one of them took lies in a processor's cache.
    void one_round(list_ways& all, const captured_gather& graph, bool looks) {
        const std::uint64_t count = all.count;
        choose(count);
        all.plain.time([&] {
            launch_plain(plain_, listed_row_bytes, numbers(), count, out_.as<void>(), stream_);
            wait();
        });
        all.table.time([&] {
            require(of_.rows->gather(numbers(), count, out_.as<void>(), {.stream = stream_}),
                    "gather");
            wait();
        });
        if (looks) expect_right_rows(of_, numbers_, out_, count, wrong_);
        // Rows that the gather before has just brought would be found.
        choose(count);
        all.graph.time([&] {
            graph.launch(stream_);
            wait();
        });
        if (looks) expect_right_rows(of_, numbers_, out_, count, wrong_);
        choose(count);
        all.mapping.time([&] {
            by_hand(count, [&](const std::int64_t* list) {
                for (std::uint64_t i = 0; i < count; ++i)
                    std::memcpy(
                        staging_.as<std::byte>() + i * listed_row_bytes,
                        mapped_.get() + static_cast<std::uint64_t>(list[i]) * listed_row_bytes,
                        listed_row_bytes);
            });
        });
        if (looks) expect_right_rows(of_, numbers_, out_, count, wrong_);
        if (!uring_) return;
        choose(count);
        all.uring.time(
            [&] { by_hand(count, [&](const std::int64_t* list) { uring_->read(list, count); }); });
        if (looks) expect_right_rows(of_, numbers_, out_, count, wrong_);
    }

    // take(list) brings the rows to the pinned memory.
    template <typename Take>
    void by_hand(std::uint64_t count, const Take& take) const {
        require_cuda(cudaMemcpyAsync(list_.as<void>(), numbers(), count * 8, cudaMemcpyDeviceToHost,
                                     stream_),
                     "copy");
        wait();
        take(list_.as<std::int64_t>());
        require_cuda(cudaMemcpyAsync(out_.as<void>(), staging_.as<void>(), count * listed_row_bytes,
                                     cudaMemcpyHostToDevice, stream_),
                     "copy");
        wait();
    }

    context& here_;
    const opened_table& of_;
    std::uint64_t lists_chosen_ = 0;
    const std::byte* const plain_;
    const mapped_file mapped_;
    apps::gpu_stream stream_;
    const memory numbers_ = memory(backend::gpu, most_listed_rows * 8),
                 out_ = memory(backend::gpu, most_listed_bytes), wrong_ = memory(backend::gpu, 8),
                 staging_ = memory::pinned(most_listed_bytes),
                 list_ = memory::pinned(most_listed_rows * 8);
    std::optional<uring_reader> uring_;
};

// One warp; the next number depends on the row, and on where the chain began: chains that meet part
// again.
__global__ void chase_table(const __grid_constant__ runtime_ref fs,
                            const __grid_constant__ table_ref rows, std::uint64_t first,
                            std::uint64_t count, std::uint64_t* row, std::uint64_t* sum) {
    const warp g;
    std::uint64_t number = first;
    for (std::uint64_t i = 0; i < count; ++i) {
        read_row(g, fs, rows, number, row);
        number = mix64(row[0] + first + i) % rows.size();
        g.sync();
    }
    if (g.is_leader()) *sum = number;
}
__global__ void chase_plain(const std::byte* plain, std::uint64_t row_bytes, std::uint64_t rows,
                            std::uint64_t first, std::uint64_t count, std::uint64_t* row,
                            std::uint64_t* sum) {
    const warp g;
    std::uint64_t number = first;
    for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t* const from =
            reinterpret_cast<const std::uint64_t*>(plain + number * row_bytes);
        for (std::uint64_t w = g.rank(); w < row_bytes / 8; w += 32) row[w] = __ldcg(from + w);
        g.sync();
        number = mix64(row[0] + first + i) % rows;
        g.sync();
    }
    if (g.is_leader()) *sum = number;
}

void after_another(context& here, const opened_table& of, const std::byte* rows) {
    constexpr std::uint64_t count = 2000;
    const memory row(backend::gpu, listed_row_bytes), sum(backend::gpu, 8);
    measured rates;
    for (std::uint64_t repeat = 0; repeat <= here.repeats(5); ++repeat) {
        // Other rows each time: those of the repeat before were drawn into the cache.
        const std::uint64_t first = mix64(repeat) % of.rows->size();
        const double ours = kernel_seconds([&] {
            chase_table<<<1, 32>>>(of.file.rt->ref(), of.rows->ref(), first, count,
                                   row.as<std::uint64_t>(), sum.as());
        });
        const double plain = kernel_seconds([&] {
            chase_plain<<<1, 32>>>(rows, listed_row_bytes, of.rows->size(), first, count,
                                   row.as<std::uint64_t>(), sum.as());
        });
        require(of.rows->check());
        if (repeat == 0) continue;
        rates.ours.add(1e-3 * count / ours);
        rates.baseline.add(1e-3 * count / plain);
    }
    here.add("S21", "table through windows, one warp, rows of 256 B one after another", of.page(),
             "thousand rows/s", rates, "plain kernel from pinned memory",
             text_of("%.2f us a row; baseline %.2f us", 1e3 / rates.ours.median(),
                     1e3 / rates.baseline.median()));
}

}  // namespace

void lists_on_gpu(context& here) {
    const std::uint64_t span = here.use_file(here.file_bytes(gib));
    const huge_host_memory plain(span);
    {
        const opened_table of(here, listed_row_bytes, span / 16);
        open_all_windows(here, of.file);
        list_bench all(here, of, plain.get());
        for (const std::uint64_t count : {16, 64, 256, 1024, 4096, 16384, 65536})
            all.measure(count);
    }
    const opened_table of(here, listed_row_bytes, span / 16);
    open_all_windows(here, of.file);
    after_another(here, of, plain.get());
}

}  // namespace penstock::bench
