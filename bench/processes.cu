// Caches that processes share, on GPUs: ranks of one job, and a keeper that outlives its readers.
//
//   R1, R7   a process for each GPU, as torchrun starts them, with shared caches and without
//   R10      a keeper that is killed beside a reader: when its memory is free
//   R11      a file that a keeper holds, read by a new process on the same GPU
//
// Each process is this program again (part_process.hpp). Windows are open before the time begins,
// but where the first read of a process is timed. Ranks begin at one moment, and the time is from
// the first one's begin to the last one's end.
#include "rank_part.cuh"

#include "part_process.hpp"

namespace penstock::bench {

namespace {

std::string new_share() {
    static int number = 0;
    return "bench-" + std::to_string(::getpid()) + "-" + std::to_string(++number);
}

// How long the ranks of a job took together, and what each of them counted.
struct together {
    double seconds;
    double late_share;  // of the time: before the last of them began
    std::vector<std::vector<double>> counts;
};

// For a note: the time counts the lateness of a rank, and a run that has filled the caches cannot
// be done again.
std::string of_late_ranks(double late_share) {
    constexpr double most_unsaid = 0.01;
    if (late_share <= most_unsaid) return {};
    return text_of("; in the worst run the last rank began after %.0f %% of the time",
                   100 * late_share);
}

// Ranks of one job, all of which do the same at a time.
class job {
public:
    job(const context& here, std::uint32_t ranks) {
        for (std::uint32_t rank = 0; rank < ranks; ++rank)
            all_.push_back(std::make_unique<part_process>(
                std::vector<std::string>{"bench", "processes", "--quiet", "--commit", "of the case",
                                         "--backend", "gpu"},
                part_process::variables{"LOCAL_RANK=" + std::to_string(rank),
                                        "PENSTOCK_DEVICE=" + std::to_string(rank),
                                        std::string(part_variable) + "=" + here.file().path()}));
    }
    [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(all_.size()); }
    part_process& operator[](std::uint32_t rank) { return *all_[rank]; }

    // What each answers to line(rank).
    template <typename Line>
    std::vector<std::vector<double>> ask(const Line& line) {
        for (std::uint32_t rank = 0; rank < size(); ++rank) all_[rank]->tell(line(rank));
        std::vector<std::vector<double>> out;
        for (const auto& part : all_) out.push_back(part->answer());
        return out;
    }
    std::vector<std::vector<double>> ask_all(const std::string& line) {
        return ask([&](std::uint32_t) { return line; });
    }
    // The same for a line that has the moment at which all begin behind it. They answer when they
    // began and ended, in seconds after that moment, and their counts.
    template <typename Line>
    together begin_together(const Line& line) {
        constexpr std::uint64_t ready_ns = 5'000'000;  // to get the line and stand ready
        const auto moment = static_cast<std::uint64_t>(1e9 * now_s()) + ready_ns;
        together out{0, 0, ask([&](std::uint32_t rank) {
                         return line(rank) + " " + std::to_string(moment);
                     })};
        double began = out.counts.at(0).at(0), last_began = began, ended = out.counts.at(0).at(1);
        for (auto& answer : out.counts) {
            began = std::min(began, answer.at(0));
            last_began = std::max(last_began, answer.at(0));
            ended = std::max(ended, answer.at(1));
            answer.erase(answer.begin(), answer.begin() + 2);
        }
        out.seconds = ended - began;
        out.late_share = (last_began - began) / out.seconds;
        return out;
    }

    // Milliseconds of the slowest runtime.
    double make(const std::string& share, std::uint64_t cache, std::uint64_t file) {
        double slowest_s = 0;
        for (const auto& answer : ask_all(text_of("make %s %llu %llu", share.c_str(),
                                                  static_cast<unsigned long long>(cache),
                                                  static_cast<unsigned long long>(file))))
            slowest_s = std::max(slowest_s, answer.at(0));
        if (share != "-" && size() > 1) ask_all("linked " + std::to_string(size() - 1));
        return 1e3 * slowest_s;
    }
    // Each rank has a list of its own, other ones with each seed.
    together gather(std::uint64_t count, std::uint64_t seed) {
        ask([&](std::uint32_t rank) {
            return text_of("choose %llu %llu", static_cast<unsigned long long>(count),
                           static_cast<unsigned long long>(seed * size() + rank + 1));
        });
        return begin_together([](std::uint32_t) { return std::string("gather"); });
    }
    // The whole file into all caches.
    together load() {
        return begin_together(
            [&](std::uint32_t rank) { return text_of("load %u %u", rank, size()); });
    }

private:
    std::vector<std::unique_ptr<part_process>> all_;
};

// R1, between processes.
void union_of_ranks(context& here, std::uint32_t ranks) {
    const std::uint64_t count = std::uint64_t{1} << 19,
                        cache = here.bytes() * 10 / 18 / row_bytes * row_bytes;
    job linked(here, ranks), alone(here, ranks);
    linked.make(new_share(), cache, here.bytes());
    alone.make("-", cache, here.bytes());
    for (job* const side : {&linked, &alone}) side->ask_all("windows");
    const std::uint64_t warm = warm_runs(false);
    measured rates;
    double late_share = 0;
    std::vector<double> last;
    for (std::uint64_t repeat = 0; repeat < warm + here.repeats(5); ++repeat) {
        const together apart = alone.gather(count, repeat), ours = linked.gather(count, repeat);
        if (repeat < warm) continue;
        late_share = std::max({late_share, apart.late_share, ours.late_share});
        last = ours.counts.at(0);
        rates.ours.add(gigabytes_a_second(ranks * count * row_bytes, ours.seconds));
        rates.baseline.add(gigabytes_a_second(ranks * count * row_bytes, apart.seconds));
        rates.cores.add(0);
    }
    here.add("R1",
             text_of("%u processes, a GPU each, rows of a page by a table, uniform, file of 1.8 "
                     "caches, all together",
                     ranks),
             row_bytes, "GB/s", rates, "the same without a share name",
             text_of("of a row %.3f own, %.3f read through a neighbour, %.3f copied from one, %.3f "
                     "through windows",
                     last.at(0), last.at(1), last.at(2), last.at(3)) +
                 after_runs(warm) + of_late_ranks(late_share));
}

// R7, between processes.
void once_for_ranks(context& here, std::uint32_t ranks) {
    measured rates;
    double files = 0, late_share = 0;
    for (std::uint64_t repeat = 0; repeat < here.repeats(3); ++repeat) {
        double seconds[2];
        for (const bool shared : {false, true}) {
            job all(here, ranks);
            all.make(shared ? new_share() : "-", here.bytes() + here.bytes() / 8, here.bytes());
            all.ask_all("windows");
            const together loaded = all.load();
            seconds[shared ? 1 : 0] = loaded.seconds;
            late_share = std::max(late_share, loaded.late_share);
            double bytes = 0;
            for (const auto& counts : loaded.counts) bytes += counts.at(0);
            files = bytes / static_cast<double>(here.bytes());
        }
        rates.ours.add(gigabytes_a_second(ranks * here.bytes(), seconds[1]));
        rates.baseline.add(gigabytes_a_second(ranks * here.bytes(), seconds[0]));
        rates.cores.add(0);
    }
    here.add("R7",
             text_of("%u processes, a GPU each, one file into all caches, by prefetch", ranks),
             row_bytes, "GB/s", rates, "the same without a share name",
             text_of("%.3f files crossed the bus", files) + of_late_ranks(late_share));
}

// penstock keep on the first GPU, with the file in its cache.
std::unique_ptr<part_process> keeper(const context& here, const std::string& share,
                                     std::uint64_t cache) {
    auto out = std::make_unique<part_process>(
        std::vector<std::string>{"keep", here.file().path(), "--share", share, "--json",
                                 "--backend", "gpu", "--page", std::to_string(row_bytes), "--cache",
                                 std::to_string(cache)},
        part_process::variables{"PENSTOCK_DEVICE=0"});
    out->line();  // what it keeps
    return out;
}

// What a new process on the first GPU does: it begins, reads, and gathers rows.
struct new_process {
    double made_ms, first_ms;
    double rate;  // GB/s of rows

    // It is started here and gone in the end, so its start holds no other's.
    new_process(context& here, const std::string& share, std::uint64_t cache, std::uint64_t seed) {
        constexpr std::uint64_t count = std::uint64_t{1} << 19;
        const bool has_keeper = share != "-";
        job fresh(here, 1);
        made_ms = fresh.make(share, cache, here.bytes());
        first_ms = 1e3 * fresh.ask_all("first").at(0).at(0);
        // A job of one waits for no link, so the keeper is asked for by name.
        if (has_keeper) fresh.ask_all("linked 1");
        else fresh.load();
        fresh.gather(count, seed);  // the first touches what was never used before
        rate = gigabytes_a_second(count * row_bytes, fresh.gather(count, seed).seconds);
    }
};

// R11.
void kept_file(context& here) {
    const std::uint64_t whole = here.bytes() + here.bytes() / 8, small = here.bytes() / 64;
    const std::string share = new_share();
    const auto holder = keeper(here, share, whole);
    measured first, rates;
    series made;
    for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat)
        // In turns, so that neither always comes first.
        for (const bool has_keeper : {repeat % 2 == 0, repeat % 2 != 0}) {
            const new_process got(here, has_keeper ? share : "-", has_keeper ? small : whole,
                                  repeat);
            (has_keeper ? first.ours : first.baseline).add(got.first_ms);
            (has_keeper ? rates.ours : rates.baseline).add(got.rate);
            if (has_keeper) made.add(got.made_ms);
        }
    here.add("R11", "first read of a new process, a keeper on its GPU has the file", row_bytes,
             "ms", first, "the same without a keeper",
             text_of("since the process began, each started when the one before was gone; its "
                     "runtime took %.0f ms of it",
                     made.median()));
    here.add("R11", "rows of a page that a keeper on the same GPU holds, by a table", row_bytes,
             "GB/s", rates, "a process that has them in its own cache",
             "the reader's cache holds a 64th of the file");
}

// R10: the keeper has 8 GiB, or a quarter of what is free.
void memory_after_kill(context& here) {
    const auto free_bytes = [] {
        const on_gpu first(0);  // that of the keeper and the reader
        std::size_t free = 0, total = 0;
        require_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
        return static_cast<double>(free);
    };
    const auto cache =
        std::min<std::uint64_t>(8 * gib, static_cast<std::uint64_t>(free_bytes()) / 4 / gib * gib);
    measured times;
    for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat) {
        double ms[2];
        for (const bool with_reader : {false, true}) {
            const std::string share = new_share();
            std::unique_ptr<job> reader;
            if (with_reader) {
                reader = std::make_unique<job>(here, 1);
                reader->make(share, here.bytes() / 64, here.bytes());
                reader->gather(65536, 1);
            }
            const double before = free_bytes();
            const auto holder = keeper(here, share, cache);
            if (with_reader) {
                reader->ask_all("linked 1");
                reader->gather(65536, 2);
                for (int i = 0; i < 50; ++i) (*reader)[0].tell("gather 0");
            }
            const stopwatch watch;
            holder->kill();
            while (free_bytes() < before - 64 * static_cast<double>(mib))
                if (watch.seconds() > 30) throw failure(-ETIMEDOUT, "its memory stays taken");
            ms[with_reader ? 1 : 0] = 1e3 * watch.seconds();
            for (int i = 0; with_reader && i < 50; ++i) (*reader)[0].answer();
        }
        times.ours.add(ms[1]);
        times.baseline.add(ms[0]);
        times.cores.add(0);
    }
    here.add("R10",
             "memory of a killed keeper of " + format_size(cache) + " is free, beside a reader",
             row_bytes, "ms", times, "the same without a reader",
             "from SIGKILL; the reader gathers meanwhile, and its rows are right");
}

}  // namespace

void processes_on_gpus(context& here) {
    if (const char* const path = std::getenv(part_variable); path != nullptr) {
        rank_part part(here, path);
        serve_lines([&](const auto& words) { part.act(words); });
        std::_Exit(0);
    }
    here.use_file(here.file_bytes(gib));
    const std::uint32_t gpus = gpus_here();
    if (gpus < 2) here.leave_out("ranks", "this machine has fewer than two GPUs");
    else {
        union_of_ranks(here, gpus);
        once_for_ranks(here, gpus);
    }
    kept_file(here);
    memory_after_kill(here);
}

}  // namespace penstock::bench
