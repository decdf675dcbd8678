// One run of the model test of writes on the cpu back end: files 32 times as large as the cache,
// threads that write and read them in rounds, in some rounds beside a second runtime and an
// ordinary program, and after each round the files compared with their shadows.
#pragma once

#include <atomic>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "runtime/runtime_state.hpp"
#include "model/run_seeds.hpp"
#include "model/watching_environment.hpp"
#include "model/write_actor.hpp"
#include "model/write_files.hpp"
#include "penstock/engine/invariants.hpp"
#include "penstock/penstock.hpp"
#include "unit/frame_memory.hpp"

namespace penstock::model {

struct write_settings {
    std::uint64_t seed = 1, operations = 40000;
    std::uint32_t threads = 8;
    bool drop_writes = false;  // canary: one write in a thousand does not come to the file

    // Words of the command line (model_main.hpp). False: there is no such word.
    bool take(const std::string& word) {
        drop_writes = drop_writes || word == "--drop";
        return word == "--drop";
    }
    bool take(const std::string& word, std::uint64_t value) {
        if (word != "--threads" || value == 0 || value > 64) return false;
        threads = static_cast<std::uint32_t>(value);
        return true;
    }
    static constexpr const char* usage =
        " [--seed N] [--seeds N] [--operations N] [--threads 1..64] [--lane] [--racing] [--drop]\n"
        "Writes and reads files at random through tiny caches and compares every byte. --seeds "
        "runs so many seeds from --seed on;\n"
        "--drop loses one write to a file in a thousand, and the run must then fail.\n";
};

// Sizes that make every path busy: few frames, few file slots, short rings. The seed chooses.
struct write_run_shape {
    options o;
    host::runtime_hooks hooks;
    std::unique_ptr<test::frame_memory> memory;  // of every second seed, or null
    write_shape files;

    write_run_shape(const write_settings& s, const std::string& folder) {
        constexpr std::uint64_t pages[] = {512, 4096, 1024, 65536, 16384};
        constexpr std::uint64_t frames[] = {16, 64, 24, 33, 48};
        o.where = backend::cpu;
        o.writable = true;
        o.page_bytes = pages[s.seed % 5];
        const std::uint64_t frame_count = o.page_bytes > 16384 ? 16 : frames[mix64(s.seed) % 5];
        o.cache_bytes = frame_count * o.page_bytes;
        if (mix64(s.seed ^ 16) % 2 != 0) {
            memory = std::make_unique<test::frame_memory>(*o.cache_bytes);
            o.cache_memory = memory->data();
        }
        const std::optional<std::uint64_t> behind[] = {std::nullopt, 2 * o.page_bytes,
                                                       o.cache_bytes};
        o.write_behind_bytes = behind[mix64(s.seed ^ 13) % 3];
        // 16384 words, leaves of 256: more than 4096 pages take two levels.
        o.table_bytes = 128 * 1024;
        o.max_files = 24;
        o.service_threads = 1 + mix64(s.seed ^ 8) % 3;
        o.staging_bytes = std::uint64_t{1} << 20;
        o.worker_threads = s.threads;
        o.io = mix64(s.seed ^ 9) % 3 == 0 ? io_method::pread : io_method::automatic;
        // Long enough that a busy machine is not taken for a full cache or a dead host.
        o.frame_wait_ms = o.request_wait_ms = o.host_wait_ms = 60000;
        o.roots = {folder};
        o.log = [](const std::string&) {};
        constexpr std::uint64_t tier_pages[] = {0, 24, 300};
        o.tier_bytes = tier_pages[s.seed % 3] * o.page_bytes;
        o.window_bytes = o.tier_bytes + (std::uint64_t{2} << 20);
        constexpr std::uint32_t slots[] = {4, 16, 64};
        hooks.ring_slots = slots[mix64(s.seed ^ 11) % 3];
        hooks.rings_per_thread = 1 + static_cast<std::uint32_t>(mix64(s.seed ^ 12) % 2);
        files = {mix64(s.seed + 1), o.page_bytes,
                 *o.cache_bytes,    o.page_bytes <= 1024 ? 4200ull : 0,
                 s.threads,         8};
    }
};

template <typename Group>
class write_run {
public:
    using settings_type = write_settings;
    using met_type = write_coverage;

    explicit write_run(const write_settings& s)
        : settings_(s),
          folder_("penstock-write-model"),
          shape_(s, folder_.path()),
          files_(shape_.files, folder_.path()),
          system_(s.seed, shape_.o.page_bytes, s.drop_writes ? 1000 : 0),
          records_(std::size_t{shape_.files.files()} * s.threads) {
        system_.watch(files_.shadows());
        shape_.hooks.env = &system_;
        shape_.hooks.keeps_large_files = true;
        if (const status created = runtime::make(shape_.o, shape_.hooks, rt_); !created)
            complain(created.message);
        options small = shape_.o;
        small.cache_memory = nullptr;  // which has one owner
        small.cache_bytes =
            std::max<std::uint64_t>(8, *shape_.o.cache_bytes / shape_.o.page_bytes / 2) *
            shape_.o.page_bytes;
        small.tier_bytes = 0;
        small.service_threads = 1;
        if (const status created = runtime::make(small, second_); !created)
            complain(created.message);
    }
    ~write_run() { rt_.reset(), second_.reset(); }
    write_run(const write_run&) = delete;
    write_run& operator=(const write_run&) = delete;

    // True if all was well; what was not goes to standard output.
    bool run() {
        if (!good_) return false;
        std::cout << describe() << std::flush;
        constexpr std::uint64_t steps = 500;
        for (std::uint64_t done = 0, number = 0; good_ && done < settings_.operations;
             done += steps * settings_.threads)
            round(number++, steps);
        if (good_) check_all("when all rounds are over");
        take_statistics();
        second_.reset(), rt_.reset();
        if (good_) check_all("when the runtime is gone");
        if (shape_.memory != nullptr && !shape_.memory->are_guards_whole())
            complain("bytes beside the memory of the frames were written");
        std::cout << summary() << std::flush;
        return good_;
    }

    // What the run has met.
    [[nodiscard]] const write_coverage& met() const { return met_; }

private:
    void complain(const std::string& complaint) {
        if (complaint.empty()) return;
        good_ = false;
        std::cout << "write model: seed " << settings_.seed << ", round " << round_ << ": "
                  << complaint << std::endl;
    }

    [[nodiscard]] write_actor actor_for(bool first_runtime, std::uint64_t steps) {
        const std::uint64_t longest = longest_write(shape_.o.page_bytes),
                            stride = longest * (1 + sizeof(version)) + 64;
        std::vector<std::byte>& scratch = first_runtime ? scratch_ : second_scratch_;
        scratch.resize(stride * settings_.threads);
        const write_world w{shape_.files.seed,       shape_.o.page_bytes, round_,
                            shape_.files.files(),    settings_.threads,   files_.plans().data(),
                            files_.shadows().data(), records_.data()};
        return {
            {{{w, &report_, first_runtime, files_.handles()}, 4}}, scratch.data(), stride, steps};
    }

    void round(std::uint64_t number, std::uint64_t steps) {
        round_ = number;
        files_.begin_round(number);
        files_.open_handles();
        std::fill(records_.begin(), records_.end(), 0);
        const std::vector<held> holds = hold_some();
        const write_actor actor = actor_for(true, steps), other = actor_for(false, steps / 2);
        std::vector<std::thread> threads;
        for (std::uint32_t i = 0; i < settings_.threads; ++i)
            threads.emplace_back([&, i] { actor(Group{}, rt_->ref(), i); });
        threads.emplace_back([&] { other(Group{}, second_->ref(), 0); });
        threads.emplace_back([&] { write_beside(steps / 4); });
        for (std::thread& thread : threads) thread.join();
        if (report_.failures > 0) list_failures();
        note_tables();
        check_held(holds);
        check_rules(*rt_);
        check_rules(*second_);
        check_closed();
    }

    struct held {
        std::uint32_t file;
        int fd;
    };
    // Logs are held, so that a later open does not cut them. Other files are held for half of the
    // time, for reading or writing.
    std::vector<held> hold_some() {
        std::vector<held> out;
        for (std::uint32_t file = 0; file < shape_.files.files(); ++file) {
            const file_plan& plan = files_.plans()[file];
            const std::uint64_t h = mixed(settings_.seed ^ 0x401d, round_, file);
            if (plan.usage == use::idle || files_.shadows()[file].there == 0 ||
                (plan.usage != use::log && h % 2 == 0))
                continue;
            const int flags = plan.usage == use::log ? open_write | open_create | open_truncate
                              : h % 3 == 0           ? open_read
                                                     : open_read_write;
            const int fd = rt_->open(files_.path_of(file), flags);
            if (fd < 0) complain("open of a held file gave " + error_text(fd));
            else out.push_back({file, fd});
        }
        return out;
    }

    // What an ordinary program does meanwhile, with the bytes that are its own.
    void write_beside(std::uint64_t times) {
        for (std::uint64_t i = 0; i < times; ++i) {
            const std::uint64_t h = mixed(settings_.seed ^ 0xbe51de, round_, i);
            met_.ordinary_bytes += files_.write_own(
                static_cast<std::uint32_t>(h % shape_.files.shared_files), mix64(h));
            if (i % 8 == 0) std::this_thread::yield();
        }
    }

    // With the descriptor still open: after fsync the file is what it has to be. Of shared company
    // each looks after his own.
    void check_held(const std::vector<held>& holds) {
        for (const held& hold : holds) {
            if (const int code = rt_->fsync(hold.fd); code != 0)
                complain("fsync gave " + error_text(code));
            if (good_ && files_.plans()[hold.file].usage != use::log)
                complain(files_.compare(hold.file, "after fsync"));
            if (const int code = rt_->close(hold.fd); code != 0)
                complain("close gave " + error_text(code));
        }
    }

    void check_rules(const runtime& rt) {
        const auto found = engine::check_invariants(rt.ref().view);
        if (found.rule != nullptr)
            complain("broken rule: " + std::string(found.rule) + ", at " +
                     std::to_string(found.where));
        if (const status s = rt.health(); !s) complain("health: " + s.message);
    }

    // After close, as an ordinary program sees it; and one of them through the runtime, which opens
    // it again.
    void check_closed() {
        for (std::uint32_t file = 0; good_ && file < shape_.files.files(); ++file) {
            const file_plan& plan = files_.plans()[file];
            if (plan.usage == use::log)
                complain(files_.compare_log(file, round_,
                                            &records_[std::size_t{file} * settings_.threads],
                                            settings_.threads, met_.records));
            else if (plan.usage != use::idle) complain(files_.compare(file, "after close"));
        }
        const auto again = static_cast<std::uint32_t>(
            mixed(settings_.seed, round_) % (shape_.files.shared_files + shape_.files.alone_files));
        if (good_ && files_.shadows()[again].there != 0) read_again(again);
    }
    void read_again(std::uint32_t file) {
        char name[16];
        name_of_written(file, name);
        const Group g;
        const int fd = penstock::open(g, rt_->ref(), name);
        std::vector<std::uint8_t> bytes(longest_write(shape_.o.page_bytes));
        const std::uint64_t begin =
            file == 0 && shape_.files.wide_pages != 0 ? files_.size_of(file) * 15 / 16 : 0;
        for (std::uint64_t at = begin; good_ && at <= files_.size_of(file); at += bytes.size()) {
            const std::int64_t got = penstock::read(g, rt_->ref(), fd, bytes.data(),
                                                    static_cast<std::int64_t>(bytes.size()),
                                                    static_cast<std::int64_t>(at));
            if (got != static_cast<std::int64_t>(
                           std::min<std::uint64_t>(bytes.size(), files_.size_of(file) - at)))
                complain(files_.path_of(file) + ": read after reopen gave " + std::to_string(got) +
                         " at " + std::to_string(at) + " of " +
                         std::to_string(files_.size_of(file)));
            else
                complain(files_.compare_bytes(file, at, bytes.data(),
                                              static_cast<std::uint64_t>(got),
                                              "opened again by the runtime"));
        }
        if (penstock::close(g, rt_->ref(), fd) != 0) complain("close failed");
    }
    void check_all(const char* when) {
        for (std::uint32_t file = 0; good_ && file < shape_.files.files(); ++file)
            if (!shape_.files.is_log(file)) complain(files_.compare(file, when));
    }

    // Tables of files that are written, by their kind.
    void note_tables() {
        const engine::cache_view& c = rt_->ref().view;
        for (std::uint32_t slot = 0; slot < c.file_slots; ++slot) {
            if (!engine::is_granted(c, slot)) continue;
            if (c.file_records[slot].growth >= engine::growth_first) ++met_.grown_tables;
            if (c.file_records[slot].two_level != 0) ++met_.two_level_tables;
        }
    }
    void take_statistics() {
        const statistics s = rt_->stats();
        met_.found = report_;
        met_.dirty_victims = s.dirty_victims;
        met_.written_behind = s.written_behind;
        met_.write_backs = s.write_backs;
        met_.tier_loads = s.tier_loads;
        met_.tier_saves = s.tier_saves;
        met_.overlaps = system_.overlaps();
        met_.second_bytes = second_->stats().bytes_written;
        if (good_ && (s.write_back_errors != 0 || s.bad_requests != 0))
            complain("statistics: " + s.to_json());
        last_statistics_ = s.to_json();
    }

    void list_failures() {
        std::ostringstream text;
        text << "FAILED: " << report_.wrong_bytes << " wrong bytes, " << report_.wrong_results
             << " wrong results";
        for (std::uint64_t i = 0; i < report_.failures && i < kept_failures; ++i) {
            const failure& f = report_.kept[i];
            const file_plan& plan = files_.plans()[f.file];
            text << "\n  actor " << f.actor << " step " << f.step << " "
                 << name_of(static_cast<write_verb>(f.kind)) << " file " << f.file << " offset "
                 << f.offset << " length " << f.length << ": got " << f.got << ", expected "
                 << f.expected << "; versions " << f.floor << " to " << f.newest << "; use "
                 << static_cast<int>(plan.usage) << ", owners " << plan.actors << "+" << plan.second
                 << "+" << plan.ordinary << ", stride " << plan.stride << ", size "
                 << files_.size_of(f.file);
        }
        complain(text.str());
    }

    [[nodiscard]] std::string describe() const {
        std::ostringstream text;
        text << "write model: seed " << settings_.seed << ", "
             << (std::is_same_v<Group, lane> ? "lane" : "racing") << ", " << settings_.operations
             << " operations, " << settings_.threads << " threads, page " << shape_.o.page_bytes
             << ", frames " << rt_->ref().view.frame_count
             << (shape_.memory != nullptr ? " of the caller" : "") << ", tier "
             << shape_.o.tier_bytes / shape_.o.page_bytes << ", rings " << *shape_.o.service_threads
             << " x " << shape_.hooks.rings_per_thread << " x " << shape_.hooks.ring_slots << ", "
             << rt_->io_name() << "\n";
        return text.str();
    }
    [[nodiscard]] std::string summary() {
        std::ostringstream text;
        text << "write model: seed " << settings_.seed << ": " << report_.steps << " operations, "
             << report_.judged_bytes << " bytes judged, "
             << report_.exact_bytes * 100 / std::max<std::uint64_t>(1, report_.judged_bytes)
             << " % exactly: " << (good_ ? "passed" : "FAILED") << "\n " << met_.text() << "\n  "
             << last_statistics_ << "\n";
        return text.str();
    }

    const write_settings settings_;
    const run_folder folder_;
    write_run_shape shape_;
    written_files files_;
    watching_environment system_;
    std::vector<std::uint32_t> records_;
    std::unique_ptr<runtime> rt_, second_;
    write_report report_{};
    write_coverage met_;
    std::vector<std::byte> scratch_, second_scratch_;
    std::string last_statistics_;
    std::uint64_t round_ = 0;
    bool good_ = true;
};

}  // namespace penstock::model
