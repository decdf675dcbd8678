// Writes whose end is what counts: at the end of a file, and on storage.
#include <sys/stat.h>
#include <unordered_map>

#include "cases.hpp"
#include "penstock/write.hpp"

namespace penstock::bench {

// Appends: records of all groups to the one end of a file that they share, and the close that
// brings it to where other programs see it; against appends with O_APPEND by few or all processors,
// whatever is best: a write(2) for each record, and a write(2) for as many records as a buffered
// program collects.
// Every record is looked for in the file afterwards.

namespace {

constexpr std::uint64_t record_bytes = 128, record_words = record_bytes / 8;
// What a program that buffers its log hands to one write(2): no fewer would be fair, and more is no
// faster.
constexpr std::uint64_t buffered_records = 64 * kib / record_bytes;

struct append_records {
    int fd;
    const std::byte* records;  // one for each group
    std::uint64_t* failures;
    std::uint64_t rounds;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
        for (std::uint64_t i = 0; i < rounds; ++i)
            if (append(g, fs, fd, records + index * record_bytes, record_bytes) < 0 &&
                g.is_leader())
                atomic_add_relaxed(failures, std::uint64_t{1});
    }
};

// Each group's record stands in the file as often as it was appended, and nothing else does. Record
// g has the words mix64(16 g) and so on.
void check_records(const scratch_file& log, std::uint64_t groups, std::uint64_t rounds) {
    const apps::unique_fd file = log.open(O_RDONLY);
    struct stat facts {};
    const std::uint64_t end = groups * rounds * record_bytes;
    bool good = ::fstat(file, &facts) == 0 && static_cast<std::uint64_t>(facts.st_size) == end;
    std::unordered_map<std::uint64_t, std::uint64_t> group_of;
    for (std::uint64_t g = 0; g < groups; ++g) group_of.emplace(mix64(g * record_words), g);
    std::vector<std::uint64_t> seen(groups), words(mib / 8);
    for (std::uint64_t at = 0; good && at < end; at += mib) {
        const std::uint64_t bytes = std::min(mib, end - at);
        good = apps::read_all(file, words.data(), bytes, at) == 0;
        for (std::uint64_t i = 0; good && i < bytes / 8; i += record_words) {
            const auto found = group_of.find(words[i]);
            good = found != group_of.end();
            for (std::uint64_t w = 0; good && w < record_words; ++w)
                good = words[i + w] == mix64(found->second * record_words + w);
            if (good) ++seen[found->second];
        }
    }
    expect(good && std::all_of(seen.begin(), seen.end(), [=](auto n) { return n == rounds; }),
           "a record that was appended is not in the file once, or not whole");
}

// `records` records by so many threads, `together` of them by one write(2), and the close: a file
// that was cut when it was opened goes to storage with it on some file systems. The seconds are
// those of a million records.
timed_run append_by_hand(const scratch_file& log, std::uint64_t records, std::uint64_t together,
                         std::uint64_t threads) {
    apps::unique_fd file = log.open(O_WRONLY | O_TRUNC | O_APPEND);
    // Fewer than the groups append: each costs a system call, and a rate is a rate.
    const std::uint64_t most = std::min<std::uint64_t>(records, 1'000'000 * together);
    const std::uint64_t writes = std::max<std::uint64_t>(most / threads / together, 1);
    const stopwatch watch;
    double seconds = seconds_of_threads(threads, [&](std::uint64_t thread) {
        // Records are made and collected in the time, as a program that buffers them has to do.
        std::vector<std::byte> record(record_bytes, static_cast<std::byte>(thread));
        std::vector<std::byte> buffer(together * record_bytes);
        for (std::uint64_t i = 0; i < writes; ++i) {
            for (std::uint64_t at = 0; at < buffer.size(); at += record_bytes)
                std::memcpy(buffer.data() + at, record.data(), record_bytes);
            const ssize_t done = ::write(file, buffer.data(), buffer.size());
            require_all(done < 0 ? -errno : done, buffer.size(), "appending by hand");
        }
    });
    // The file has all of them.
    struct stat facts {};
    require(::fstat(file, &facts) == 0 ? 0 : -errno, "appending by hand");
    const std::uint64_t made = writes * together * threads;
    expect(static_cast<std::uint64_t>(facts.st_size) == made * record_bytes,
           "records that were appended by hand are not in the file");
    const stopwatch closing;
    file = apps::unique_fd();
    seconds += closing.seconds();
    return {1e6 * seconds / static_cast<double>(made), watch.cores(seconds)};
}

void append_with_pages_of(context& here, std::uint64_t page, const scratch_file& log,
                          std::uint64_t log_bytes) {
    const auto rt = here.make_runtime(
        {.page_bytes = page, .cache_bytes = 256 * mib, .writable = true, .file_bytes = mib});
    const std::uint64_t groups = group_count(here, *rt, record_bytes),
                        rounds = std::max<std::uint64_t>(log_bytes / record_bytes / groups, 1);
    const memory records(rt->where(), groups * record_bytes), failures(rt->where(), 8);
    run_kernel<width::warp>(*rt, groups, fill_words{records.as(), groups * record_words, groups});
    measured appends;
    by_threads single({1, 4}, here.host_threads()), buffered({1, 4}, here.host_threads());
    const auto by_hand = [&](std::uint64_t together) {
        return [&, together](std::uint64_t threads, std::uint64_t) {
            return append_by_hand(log, groups * rounds, together, threads);
        };
    };
    for (std::uint64_t repeat = 0; repeat < here.repeats(5); ++repeat) {
        const int fd = rt->open(log.path(), open_write | open_truncate);
        require(fd, "opening " + log.path());
        const stopwatch watch;
        int code = launch<width::warp>(
            *rt, groups, append_records{fd, records.as<std::byte>(), failures.as(), rounds});
        if (const int closed = rt->close(fd); code == 0) code = closed;
        const double seconds = watch.seconds();
        require(code, "appending");
        appends.add(1e-6 * (groups * rounds) / seconds, watch, seconds);
        require_none(failures, "appends failed");
        check_records(log, groups, rounds);
        single.measure(by_hand(1));
        buffered.measure(by_hand(buffered_records));
    }
    const std::string label = groups_label(here, groups) + ", each record found in the file";
    const char* const title = "records of 128 bytes appended to one file by all groups, and close";
    appends.baseline = buffered.seconds().under(1);
    here.add("append", title, page, "million/s", appends,
             "write of 512 records at a time with O_APPEND, " + buffered.name(), label);
    appends.baseline = single.seconds().under(1);
    here.add("append", title, page, "million/s", appends,
             "write of each record with O_APPEND, " + single.name(), label);
}

}  // namespace

void append_path(context& here) {
    const std::uint64_t log_bytes = here.file_bytes(4 * gib, 256 * mib) / 8;
    scratch_file log;
    log.make_empty(here.asked().directory, log_bytes);
    for (const std::uint64_t page : here.pages({64 * kib}))
        append_with_pages_of(here, page, log, log_bytes);
}

// fsync of one file with few or many dirty pages, while another file has none or as many as the
// file has pages; against pwrite of the same bytes and fdatasync. What it costs must follow the
// pages of its own file, and not what else the cache holds.

namespace {

// `count` whole pages, `step` pages from one to the next, all with the words of one page.
struct write_pages {
    int fd;
    const std::byte* page;
    std::uint64_t* failures;
    std::uint64_t count, step, groups;

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
        const auto bytes = static_cast<std::int64_t>(fs.view.page_bytes());
        for (std::uint64_t i = index; i < count; i += groups)
            if (write(g, fs, fd, page, bytes, static_cast<std::int64_t>(i * step) * bytes) !=
                    bytes &&
                g.is_leader())
                atomic_add_relaxed(failures, std::uint64_t{1});
    }
};

class fsync_case {
public:
    fsync_case(context& here, std::uint64_t page, std::uint64_t bytes)
        : here_(here), page_(page), pages_(bytes / page), expected_(page / 8) {
        here.use_file(bytes);
        other_.make_empty(here.asked().directory, bytes);
        // Room for both files: no page is written back because its frame is needed.
        rt_ = here.make_runtime(
            {.page_bytes = page, .cache_bytes = 2 * bytes + bytes / 2, .writable = true});
        groups_ = group_count(here, *rt_, page);
        words_ = memory(rt_->where(), page);
        failures_ = memory(rt_->where(), 8);
        file_ = rt_->open(here.file().path(), open_write);
        require(file_, "opening a file for writing");
        hand_ = here.file().open(O_RDWR);
    }

    void run() {
        const int other = rt_->open(other_.path(), open_write);
        require(other, "opening a file for writing");
        rows("no dirty page");
        mark_dirty(other, pages_, 1);
        rows(std::to_string(pages_) + " dirty pages");
        require(rt_->close(other), "closing");
        require(rt_->close(file_), "closing");
    }

private:
    void mark_dirty(int fd, std::uint64_t count, std::uint64_t step) {
        ++seed_;
        for (std::uint64_t i = 0; i < expected_.size(); ++i)
            expected_[i] = mix64(seed_ * expected_.size() + i);
        run_kernel<width::warp>(
            *rt_, groups_,
            fill_words{words_.as(), expected_.size(), groups_, seed_ * expected_.size()});
        run_kernel<width::warp>(
            *rt_, groups_,
            write_pages{fd, words_.as<std::byte>(), failures_.as(), count, step, groups_});
        require_none(failures_, "pages could not be written");
    }

    // The file has what was written, as other programs see it.
    void check(std::uint64_t count, std::uint64_t step) const {
        std::vector<std::uint64_t> got(expected_.size());
        for (std::uint64_t i = 0; i < count; ++i)
            expect(
                apps::read_all(hand_, got.data(), page_, i * step * page_) == 0 && got == expected_,
                "a page is not in the file after fsync");
    }

    // Microseconds. Zeros, so that the next fsync has something to show.
    [[nodiscard]] double by_hand(std::uint64_t count, std::uint64_t step) const {
        const std::vector<std::byte> zeros(page_);
        const stopwatch watch;
        for (std::uint64_t i = 0; i < count; ++i)
            require(apps::write_exactly(here_.file().path(), hand_, zeros.data(), page_,
                                        i * step * page_));
        if (::fdatasync(hand_) != 0) require(-errno, "fdatasync by hand");
        return 1e6 * watch.seconds();
    }

    void rows(const std::string& others) {
        std::vector<std::uint64_t> counts = {1, std::min<std::uint64_t>(1000, pages_), pages_};
        counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
        for (const std::uint64_t count : counts) {
            measured times;
            const std::uint64_t step = pages_ / count;
            for (std::uint64_t repeat = 0; repeat < here_.repeats(5); ++repeat) {
                mark_dirty(file_, count, step);
                const stopwatch watch;
                const int code = rt_->fsync(file_);
                const double seconds = watch.seconds();
                require(code, "fsync");
                times.add(1e6 * seconds, watch, seconds);
                check(count, step);
                times.baseline.add(by_hand(count, step));
            }
            here_.add("fsync",
                      "fsync of a file of " + std::to_string(pages_) + " pages, " +
                          std::to_string(count) + " of them dirty; another file has " + others,
                      page_, "us", times, "pwrite of the same bytes and fdatasync, one thread",
                      "each page found in the file");
        }
    }

    context& here_;
    scratch_file other_;
    std::unique_ptr<runtime> rt_;
    memory words_, failures_;
    const std::uint64_t page_, pages_;
    std::vector<std::uint64_t> expected_;
    std::uint64_t groups_ = 1, seed_ = 0;
    int file_ = -1;
    apps::unique_fd hand_;
};

}  // namespace

void fsync_path(context& here) {
    const std::uint64_t bytes = here.file_bytes(gib, 64 * mib);
    for (const std::uint64_t page : here.pages({64 * kib})) {
        fsync_case(here, page, bytes).run();
        here.forget_file();
    }
}

}  // namespace penstock::bench
