// A rank of a job, for the case of shared caches (processes.cu): a process with a runtime on its
// GPU that does what it is told, line by line.
#pragma once

#include "links.cuh"

#include "part_process.hpp"

namespace penstock::bench {

inline constexpr std::uint64_t row_bytes = 4096;

// Before main, as near as this program can tell.
inline const double began_s = now_s();

// A rank of a job: its GPU is LOCAL_RANK. It makes its runtime when it is told.
class rank_part {
public:
    rank_part(const context& here, std::string path) : here_(here), path_(std::move(path)) {
        const char* const rank = std::getenv("LOCAL_RANK");
        gpu_ = rank != nullptr ? std::atoi(rank) : 0;
        require_cuda(cudaSetDevice(gpu_), "cudaSetDevice");
    }

    void act(const std::vector<std::string>& words) {
        if (words.at(0) == "make") make_runtime(words.at(1), size(words.at(2)), size(words.at(3)));
        else if (words.at(0) == "linked") wait_for_links(std::atoi(words.at(1).c_str()));
        else if (words.at(0) == "windows") open_windows();
        else if (words.at(0) == "first") first_read();
        else if (words.at(0) == "choose") choose(size(words.at(1)), size(words.at(2)));
        else if (words.at(0) == "gather") gather(size(words.at(1)));
        else if (words.at(0) == "load")
            load(size(words.at(1)), size(words.at(2)), size(words.at(3)));
        else throw failure(-EINVAL, "a part does not know " + words.at(0));
    }

private:
    static std::uint64_t size(const std::string& word) {
        return std::strtoull(word.c_str(), nullptr, 10);
    }

    void make_runtime(const std::string& share, std::uint64_t cache, std::uint64_t file) {
        options o = here_.own_options();
        o.share = share == "-" ? "" : share;
        o.device = gpu_;
        o.page_bytes = row_bytes;
        o.cache_bytes = cache;
        o.table_bytes = file / row_bytes * 8 * 4 + 64 * kib;
        file_bytes_ = file;
        const stopwatch watch;
        rt_ = make_on_gpus(o);
        const double made_s = watch.seconds();
        fd_ = static_cast<int>(require(rt_->open(path_), "open"));
        say_numbers({made_s});
    }

    void wait_for_links(int wanted) const {
        const stopwatch watch;
        while (static_cast<int>(rt_->linked_processes()) < wanted) {
            if (watch.seconds() > 30) throw failure(-ETIMEDOUT, "the processes do not link");
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        say_numbers({watch.seconds()});
    }

    void open_windows() const {
        require_all(rt_->open_windows(fd_, 0, static_cast<std::int64_t>(file_bytes_)), file_bytes_,
                    "windows; give a smaller --file");
        say_numbers({0});
    }

    void first_read() const {
        std::uint64_t word = 1;
        require_all(rt_->read(fd_, &word, sizeof word, 8), sizeof word, "read");
        if (word != mix64(1)) throw failure(-EIO, "the first read is wrong");
        say_numbers({now_s() - began_s});
    }

    // Which rows the next gathers fetch, at random.
    void choose(std::uint64_t count, std::uint64_t seed) {
        if (rows_ == nullptr) {
            table_layout layout;
            layout.row_bytes = row_bytes;
            layout.pieces.push_back({path_, 0, file_bytes_ / row_bytes});
            require(table::make(*rt_, layout, {}, rows_));
            numbers_ = memory(backend::gpu, count * 8);
            out_ = memory(backend::gpu, count * row_bytes);
            wrong_ = memory(backend::gpu, 8);
        }
        count_ = count;
        require(launch<width::lane>(
                    *rt_, count,
                    choose_uniform{numbers_.as<std::int64_t>(), file_bytes_ / row_bytes, seed}),
                "launch");
        say_numbers({0});
    }

    // Waits for a moment of the steady clock, which all processes have in common. Returns it in
    // seconds.
    static double stand_ready(std::uint64_t moment_ns) {
        const double moment_s = 1e-9 * static_cast<double>(moment_ns);
        while (now_s() < moment_s) {
        }
        return moment_s;
    }

    void gather(std::uint64_t moment_ns) {
        const statistics before = rt_->stats();
        const double moment_s = stand_ready(moment_ns), began_gather_s = now_s();
        require(rows_->gather(numbers_.as<std::int64_t>(), count_, out_.as<void>()), "gather");
        require_cuda(cudaDeviceSynchronize(), "gather");
        const double ended_s = now_s();
        const statistics now = rt_->stats();
        require(launch<width::warp>(
                    *rt_, count_,
                    count_wrong_rows{out_.as<std::uint64_t>(), numbers_.as<std::int64_t>(),
                                     row_bytes / 8, wrong_.as()}),
                "launch");
        require(rows_->check());
        require_none(wrong_, "words of rows are wrong or were not delivered");
        const auto share = [&](std::uint64_t statistics::*of) {
            return static_cast<double>(now.*of - before.*of) / static_cast<double>(count_);
        };
        say_numbers({began_gather_s - moment_s, ended_s - moment_s, share(&statistics::hits),
                     share(&statistics::neighbour_reads), share(&statistics::neighbour_loads),
                     share(&statistics::through_reads)});
    }

    // The whole file, from this rank's share of it on.
    void load(std::uint64_t rank, std::uint64_t ranks, std::uint64_t moment_ns) const {
        const std::uint64_t first = file_bytes_ / ranks * rank / row_bytes * row_bytes;
        const double moment_s = stand_ready(moment_ns), began_load_s = now_s();
        require_all(rt_->prefetch(fd_, static_cast<std::int64_t>(first),
                                  static_cast<std::int64_t>(file_bytes_ - first)),
                    file_bytes_ - first, not_resident);
        if (first != 0)
            require_all(rt_->prefetch(fd_, 0, static_cast<std::int64_t>(first)), first,
                        not_resident);
        const double ended_s = now_s();
        const statistics s = rt_->stats();
        say_numbers({began_load_s - moment_s, ended_s - moment_s,
                     static_cast<double>(s.bytes_loaded - s.neighbour_loads * row_bytes)});
    }

    const context& here_;
    std::string path_;
    int gpu_ = 0, fd_ = -1;
    std::uint64_t file_bytes_ = 0, count_ = 0;
    std::unique_ptr<runtime> rt_;
    std::unique_ptr<table> rows_;
    memory numbers_, out_, wrong_;
};

}  // namespace penstock::bench
