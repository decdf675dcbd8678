// Rows of a table whose file is not in memory, against what is written by hand: io_uring past the
// page cache into host memory and, on a GPU, one copy to the device. All rows of a run differ, and
// none comes again before all others came.
//
// The disk's best is that of io_uring at the best of several depths, without the copy. Among them
// is the number of reads that the runtime itself can have in flight.
#include <numeric>
#include <optional>

#include "cases.hpp"
#include "table_rows.hpp"
#include "uring_reads.hpp"

#if defined(__CUDACC__)
#include "gpu.cuh"
#endif

namespace penstock::bench {

namespace {

constexpr std::uint64_t most_cold_bytes = 256 * mib;  // of one run
constexpr double cold_run_s = 0.25;                   // about, at a depth that suits the disk

// All rows in no order of place, handed out piece by piece. What was read a moment ago may lie in a
// cache below the operating system.
class shuffled_rows {
public:
    explicit shuffled_rows(std::uint64_t count) : rows_(count) {
        std::iota(rows_.begin(), rows_.end(), std::int64_t{0});
        for (std::uint64_t i = count; i > 1; --i) std::swap(rows_[i - 1], rows_[mix64(i) % i]);
    }
    const std::int64_t* draw(std::uint64_t count) {
        if (next_ + count > rows_.size()) next_ = 0;
        const std::int64_t* const out = rows_.data() + next_;
        next_ += count;
        return out;
    }

private:
    std::vector<std::int64_t> rows_;
    std::uint64_t next_ = 0;
};

// The numbers and rows of a run where kernels reach them; on a GPU also host memory in which the
// rows arrive by hand.
class run_memory {
public:
    explicit run_memory(backend where)
        : numbers(where, most_cold_bytes / 512 * 8),
          out(where, most_cold_bytes),
          wrong(where, 8),
          on_gpu_(where == backend::gpu) {
#if defined(__CUDACC__)
        if (!on_gpu_) return;
        require_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
        list_ = memory::pinned(most_cold_bytes / 512 * 8);
        rows_.emplace(most_cold_bytes);
#endif
    }

    void put_numbers(const std::int64_t* list, std::uint64_t count) const {
#if defined(__CUDACC__)
        if (on_gpu_) return copy(numbers.as<void>(), list, count * 8, cudaMemcpyHostToDevice);
#endif
        std::memcpy(numbers.as<void>(), list, count * 8);
    }
    // Where rows arrive by hand.
    [[nodiscard]] std::byte* host_rows() const {
#if defined(__CUDACC__)
        if (on_gpu_) return rows_->get();
#endif
        return out.as<std::byte>();
    }
    // Brings the numbers to the host and the rows that arrived there to `out`.
    [[nodiscard]] double copy_seconds([[maybe_unused]] std::uint64_t count,
                                      [[maybe_unused]] std::uint64_t bytes) const {
        const stopwatch watch;
#if defined(__CUDACC__)
        if (on_gpu_) {
            copy(list_.as<void>(), numbers.as<void>(), count * 8, cudaMemcpyDeviceToHost);
            copy(out.as<void>(), rows_->get(), bytes, cudaMemcpyHostToDevice);
        }
#endif
        return on_gpu_ ? watch.seconds() : 0;
    }
    void gather(table& from, std::uint64_t count) const {
        row_options settings;
#if defined(__CUDACC__)
        if (on_gpu_) settings.stream = stream_;
#endif
        require(from.gather(numbers.as<std::int64_t>(), count, out.as<void>(), settings), "gather");
#if defined(__CUDACC__)
        if (on_gpu_) require_cuda(cudaStreamSynchronize(stream_), "gather");
#endif
    }

    const memory numbers, out, wrong;

private:
#if defined(__CUDACC__)
    void copy(void* to, const void* from, std::uint64_t bytes, cudaMemcpyKind kind) const {
        require_cuda(cudaMemcpyAsync(to, from, bytes, kind, stream_), "copy");
        require_cuda(cudaStreamSynchronize(stream_), "copy");
    }
    apps::gpu_stream stream_;
    memory list_;
    std::optional<huge_host_memory> rows_;
#endif
    const bool on_gpu_;
};

// io_uring at one depth: thousand rows a second of the reads alone, and with the copies.
struct hand_rates {
    std::uint64_t depth;
    series reads{}, copied{}, cores{};
    bool registered = true;
};

// How many reads of rows the runtime can have in flight. A worker of the cpu back end reads row
// after row. Of a GPU's requests each service thread has at most 1024 on their way, and each has
// room of its own for a page.
std::uint64_t most_in_flight(const runtime& rt) {
    const options& o = rt.settings();
    if (rt.where() == backend::cpu) return *o.worker_threads;
    if (o.io == io_method::pread) return *o.service_threads;
    return std::min(*o.staging_bytes / std::max<std::uint64_t>(o.page_bytes, 4096),
                    std::uint64_t{1024} * *o.service_threads);
}

// A table and what its gathers took.
struct cold_table {
    opened_table opened;
    std::uint64_t workers, depth;  // 0 workers: on a GPU
    measured rates{};
    double first_rate = 0;
    statistics before{};

    cold_table(context& here, std::uint64_t row_bytes, std::uint64_t worker_threads)
        : opened(here, row_bytes, here.bytes() / 16, worker_threads),
          workers(worker_threads),
          depth(most_in_flight(*opened.file.rt)) {}
};

class cold_bench {
public:
    cold_bench(context& here, const row_file& from)
        : here_(here),
          from_(from),
          shuffled_(here.bytes() / from.row_bytes),
          memory_(here.on_gpu() ? backend::gpu : backend::cpu) {
        std::vector<std::uint64_t> workers = {0};
        // A thread waits for the disk most of the time.
        if (!here.on_gpu()) workers = {here.host_threads(), here.threads(64)};
        if (workers.back() == workers.front()) workers.resize(1);
        for (const std::uint64_t number : workers)
            tables_.push_back(std::make_unique<cold_table>(here, from.row_bytes, number));
        for (const std::uint64_t depth : {32, 128, 256, 1024}) hands_.push_back({depth});
        for (const auto& each : tables_)
            if (find(each->depth) == hands_.end()) hands_.push_back({each->depth});
    }

    void measure() {
        const std::uint64_t rows = here_.bytes() / from_.row_bytes;
        count_ = std::min<std::uint64_t>(4096, rows / 4);
        hand_rates trial{256};
        read_by_hand(trial);
        // The runs of a turn have rows of their own.
        const std::uint64_t most =
            std::min(rows / (hands_.size() + tables_.size()), most_cold_bytes / from_.row_bytes);
        count_ = std::clamp(static_cast<std::uint64_t>(1e3 * trial.reads.last() * cold_run_s),
                            count_, std::max(count_, most));
        for (const auto& each : tables_) {
            measured first;
            gather(*each, first);
            each->first_rate = first.ours.last();
            each->before = each->opened.file.rt->stats();
        }
        const std::uint64_t repeats = here_.repeats(here_.on_gpu() ? 3 : 5);
        for (std::uint64_t repeat = 0; repeat < repeats; ++repeat) {
            for (hand_rates& hand : hands_) read_by_hand(hand);
            for (const auto& each : tables_) gather(*each, each->rates);
        }
        report();
    }

private:
    [[nodiscard]] std::vector<hand_rates>::iterator find(std::uint64_t depth) {
        return std::find_if(hands_.begin(), hands_.end(),
                            [&](const hand_rates& hand) { return hand.depth == depth; });
    }
    [[nodiscard]] const hand_rates& best(series hand_rates::*which) const {
        return *std::max_element(hands_.begin(), hands_.end(), [&](const auto& a, const auto& b) {
            return (a.*which).median() < (b.*which).median();
        });
    }

    // The file is cold, and the numbers lie where kernels run.
    const std::int64_t* begin_run() {
        left_ = std::max(left_, here_.file().drop_from_page_cache());
        const std::int64_t* const list = shuffled_.draw(count_);
        memory_.put_numbers(list, count_);
        memory_.out.fill(0xff, count_ * from_.row_bytes);
        return list;
    }
    void expect_all(const opened_table& of) const {
        expect_right_rows(of, memory_.numbers, memory_.out, count_, memory_.wrong);
    }

    void read_by_hand(hand_rates& to) {
        const std::int64_t* const list = begin_run();
        const uring_run run =
            read_by_rings(from_, here_.host_threads(), to.depth, list, count_, memory_.host_rows());
        const double copies_s = memory_.copy_seconds(count_, count_ * from_.row_bytes);
        expect_all(tables_.front()->opened);
        const double thousands = 1e-3 * static_cast<double>(count_);
        to.reads.add(thousands / run.seconds);
        to.copied.add(thousands / (run.seconds + copies_s));
        to.cores.add(run.cores);
        to.registered = to.registered && run.registered;
    }

    void gather(const cold_table& with, measured& to) {
        begin_run();
        const stopwatch watch;
        memory_.gather(*with.opened.rows, count_);
        const double seconds = watch.seconds();
        to.add(1e-3 * static_cast<double>(count_) / seconds, watch, seconds);
        expect_all(with.opened);
    }

    void report() {
        const std::string rows = "rows of " + format_size(from_.row_bytes),
                          name = "cold " + rows + " of a table";
        // Of a small file, as tests have, a few large pages that are in use are most of it.
        if (here_.bytes() >= 64 * mib && !here_.is_cold(name, left_)) return;
        const std::string way = from_.direct ? "io_uring by hand with O_DIRECT"
                                             : "io_uring by hand through the page cache";
        const hand_rates& of_disk = best(&hand_rates::reads);
        for (const auto& each : tables_) report(*each, rows, way);
        for (const hand_rates& hand : hands_)
            here_.add(
                "S7",
                "no Penstock: " + way + ", cold " + rows + ", depth " + std::to_string(hand.depth),
                0, "thousand rows/s", {hand.reads, of_disk.reads, hand.cores},
                "the best of these, depth " + std::to_string(of_disk.depth),
                hand.registered ? "registered memory" : "the kernel registers no memory");
    }

    void report(const cold_table& with, const std::string& rows, const std::string& way) {
        const std::string threads = with.workers == 0 ? "" : ", " + counted(with.workers, "thread"),
                          name = "table, cold " + rows + threads, note = note_of(with);
        const auto add = [&](const std::string& against, const hand_rates& hand,
                             series hand_rates::*which, const std::string& baseline) {
            measured values = with.rates;
            values.baseline = hand.*which;
            here_.add("S7", name + against, with.opened.page(), "thousand rows/s", values,
                      way + ", depth " + std::to_string(hand.depth) + baseline,
                      text_of("baseline %.2f cores; ", hand.cores.median()) + note);
        };
        add("", best(&hand_rates::reads), &hand_rates::reads, ", the disk's best: reads alone");
        add(", the same depth", *find(with.depth), &hand_rates::reads,
            ", as many as the runtime has in flight at most: reads alone");
        if (here_.on_gpu())
            add(", beside a copy", best(&hand_rates::copied), &hand_rates::copied,
                " and a copy to the device, the best depth");
    }

    [[nodiscard]] std::string note_of(const cold_table& with) const {
        const statistics now = with.opened.file.rt->stats();
        const double fetched = static_cast<double>(count_ * with.rates.ours.size()),
                     direct = static_cast<double>(now.direct_reads - with.before.direct_reads),
                     row_kilobytes = 1e-3 * static_cast<double>(from_.row_bytes);
        return text_of(
                   "%.1f MB/s; %llu rows a run, all compared; first call %.4g; %.3f reads past "
                   "the page cache a row; ",
                   with.rates.ours.median() * row_kilobytes,
                   static_cast<unsigned long long>(count_), with.first_rate, direct / fetched) +
               text_of("%.2f %% of the file stayed in the page cache when it was dropped",
                       100 * left_);
    }

    context& here_;
    const row_file from_;
    shuffled_rows shuffled_;
    std::vector<std::unique_ptr<cold_table>> tables_;
    std::vector<hand_rates> hands_;
    std::uint64_t count_ = 0;
    double left_ = 0;  // the largest share of the file that stayed in memory when it was dropped
    const run_memory memory_;
};

bool has_direct_reads(const scratch_file& file) {
    return apps::unique_fd(::open(file.path().c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC)) >= 0;
}

}  // namespace

void cold_rows(context& here) {
    if (const std::string why = why_no_uring(); !why.empty())
        return here.leave_out("cold rows of a table", why);
    here.use_file(here.file_bytes(2 * gib, gib));
    if (!here.can_be_cold("cold rows of a table")) return;
    const bool direct = has_direct_reads(here.file());
    for (const std::uint64_t row_bytes : {4096, 512})
        cold_bench(here, {here.file().path(), row_bytes, direct}).measure();
}

}  // namespace penstock::bench
