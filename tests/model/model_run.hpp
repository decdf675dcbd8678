// One run of the model test on the cpu back end: a world, a tiny cache, threads that act, and a
// host that changes files.
//
// Everything a run does follows from its settings but for the interleaving of threads. It goes in
// rounds, as launches of a kernel would: within a round actors and host work at once; between
// rounds no actor holds anything, and every rule of the cache that holds then is checked.
#pragma once

#include <atomic>
#include <cstdint>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "fault/faulty_environment.hpp"
#include "runtime/runtime_state.hpp"
#include "model/actor.hpp"
#include "model/drill.hpp"
#include "model/host_files.hpp"
#include "model/run_seeds.hpp"
#include "model/window_keeper.hpp"
#include "penstock/engine/invariants.hpp"
#include "penstock/penstock.hpp"
#include "unit/frame_memory.hpp"

namespace penstock::model {

struct run_settings {
    std::uint64_t seed = 1;
    std::uint64_t operations = 40000;
    std::uint32_t threads = 8;
    std::uint64_t page_bytes = 0;  // 0: by the seed
    std::uint32_t caches = 1;      // linked with each other; an actor stays with one
    bool flip_bytes = false;       // canary: the disk delivers one wrong byte in ten thousand reads
    bool shift_numbers = false;    // canary: a list names another row than the judge believes

    // Words of the command line (model_main.hpp). False: there is no such word.
    bool take(const std::string& word) {
        if (word == "--flip") flip_bytes = true;
        else if (word == "--shift") shift_numbers = true;
        else return false;
        return true;
    }
    bool take(const std::string& word, std::uint64_t value) {
        if (word == "--threads") threads = static_cast<std::uint32_t>(value);
        else if (word == "--page") page_bytes = value;
        else if (word == "--caches" && value > 0) caches = static_cast<std::uint32_t>(value);
        else return false;
        return true;
    }
    static constexpr const char* usage =
        " [--seed N] [--seeds N] [--operations N] [--threads N] [--page BYTES] [--caches N] "
        "[--lane] [--racing] [--flip] [--shift]\n"
        "Performs random operations on tiny caches and checks every byte. --seeds runs so many "
        "seeds from --seed on;\n"
        "--flip makes the disk lie now and then, --shift asks for other rows of a table than it "
        "expects,\nand the run must then fail.\n";
};

inline const char* name_of(verb kind) {
    constexpr const char* names[verb_count] = {
        "open",  "close",    "read", "read_on", "v[i]",     "for_each", "map",
        "unmap", "prefetch", "stat", "gather",  "read_row", "nonsense"};
    return names[static_cast<std::uint32_t>(kind) % verb_count];
}

// Sizes that make every path busy: few frames, few file slots, short rings, tables in two levels.
// The seed chooses.
struct tiny_shape {
    options o;
    host::runtime_hooks hooks;
    std::unique_ptr<test::frame_memory> memory;  // of every second seed, or null
    world w;
    std::uint64_t max_open = 0, max_maps = 0;

    tiny_shape(const run_settings& s, const std::string& folder) {
        constexpr std::uint64_t pages[] = {512, 4096, 1024, 512, 65536};
        constexpr std::uint64_t frames[] = {16, 64, 24, 33, 200};
        o.where = backend::cpu;
        for (std::uint32_t i = 0; i < s.caches && s.caches > 1; ++i)
            o.devices.push_back(static_cast<int>(i));
        o.page_bytes = s.page_bytes != 0 ? s.page_bytes : pages[s.seed % 5];
        const std::uint64_t frame_count = frames[mix64(s.seed) % 5];
        o.cache_bytes = frame_count * o.page_bytes;
        if (mix64(s.seed ^ 16) % 2 != 0 && s.caches == 1) {
            memory = std::make_unique<test::frame_memory>(*o.cache_bytes);
            o.cache_memory = memory->data();
        }
        o.table_bytes = 256 * 1024;  // 32768 words, leaves of 512
        o.max_files = mix64(s.seed ^ 7) % 3 != 0 ? 20 : 48;
        o.service_threads = 1 + mix64(s.seed ^ 8) % 2;
        o.staging_bytes = std::uint64_t{1} << 20;
        o.worker_threads = s.threads;
        o.direct_io = reads_directly(s.seed) ? direct_mode::on : direct_mode::automatic;
        o.io = mix64(s.seed ^ 9) % 3 == 0 ? io_method::pread : io_method::automatic;
        // Long enough that a busy machine is not taken for a full cache or a dead host.
        o.frame_wait_ms = o.request_wait_ms = o.host_wait_ms = 60000;
        o.roots = {folder};
        o.log = [](const std::string&) {};
        // A budget so small that windows are refused: a small file takes a chunk's room, and leaves
        // what it does not need.
        constexpr std::uint64_t budgets_mib[] = {4, 6, 10, 32};
        o.window_bytes = budgets_mib[mix64(s.seed ^ 12) % 4] << 20;
        constexpr std::uint64_t tier_pages[] = {0, 24, 300};
        o.tier_bytes = tier_pages[s.seed % 3] * o.page_bytes;
        *o.window_bytes += o.tier_bytes * s.caches;  // so that windows have their budget as it was
        constexpr std::uint32_t rates[] = {1, 2, 4, 1000};
        o.admit_one_in = rates[mix64(s.seed ^ 15) % 4];
        hooks.windows_on_cpu = true;
        hooks.max_handles = mix64(s.seed ^ 10) % 2 != 0 ? 8 : 0;
        constexpr std::uint32_t slots[] = {4, 16, 64};
        hooks.ring_slots = slots[mix64(s.seed ^ 11) % 3];
        hooks.rings_per_thread = 1 + static_cast<std::uint32_t>(mix64(s.seed ^ 12) % 3);
        w.seed = mix64(s.seed + 1);
        w.page_bytes = o.page_bytes;
        w.big_pages = std::uint64_t{1} << 18;
        w.small_pages = 20;
        max_open = o.max_files / 2;
        o.max_files += most_windowed + most_held;
        max_maps = frame_count / 4;
    }
};

template <typename Group>
class model_run {
public:
    using settings_type = run_settings;
    using met_type = coverage;

    explicit model_run(const run_settings& s)
        : settings_(s),
          folder_("penstock-model"),
          shape_(s, folder_.path()),
          states_(new file_state[shape_.w.files()]{}),
          files_(shape_.w, folder_.path(), states_.get()),
          pins_(s.flip_bytes ? static_cast<host::environment&>(disk_) : host::linux_environment(),
                false, s.seed) {
        if (s.flip_bytes) {
            fault::fault_plan plan;
            plan.flip_every = 10000;
            disk_.set(plan);
        }
        shape_.hooks.env = &pins_;
        met_.is_alone = s.caches == 1;
        met_.no_direct_reads = !files_.can_be_read_directly();
        files_.before_shrink = [this](const std::string& path, std::uint64_t size_bytes) {
            pins_.before_shrink(path, size_bytes);
        };
        const status created = runtime::make(shape_.o, shape_.hooks, rt_);
        if (!created) complain(created.message);
        else windows_ = std::make_unique<window_keeper>(*rt_, shape_.w, states_.get(), met_);
    }
    ~model_run() {
        windows_.reset();
        rt_.reset();
    }
    model_run(const model_run&) = delete;
    model_run& operator=(const model_run&) = delete;

    // True if all was well; what was not goes to standard output.
    bool run() {
        if (!good_) return false;
        const std::uint64_t stretch = 500;
        std::uint64_t actor = 0;
        std::cout << describe() << std::flush;
        for (std::uint64_t done = 0; good_ && done < settings_.operations;
             done += stretch * settings_.threads) {
            round(actor, stretch);
            actor += settings_.threads;
            check_quiescent();
            check_views();
            exercise(mix(settings_.seed, actor));
            // No actor has anything open now, so the next round must see exactly the newest version
            // of these.
            for (std::uint32_t i = 0; i < 4; ++i)
                files_.change(static_cast<std::uint32_t>(mix64(actor + i) % shape_.w.small_files));
        }
        windows_->let_go_of_all();
        windows_->close_all();
        check_quiescent();
        check_whole_files();
        check_statistics();
        check_all_frames_usable();
        if (shape_.memory != nullptr && !shape_.memory->are_guards_whole())
            complain("bytes beside the memory of the frames were written");
        std::cout << summary() << std::flush;
        return good_;
    }

    // What the run has met.
    [[nodiscard]] const coverage& met() const { return met_; }

private:
    void complain(const std::string& complaint) {
        good_ = false;
        std::cout << "model: seed " << settings_.seed << ": " << complaint << "\n";
    }

    void round(std::uint64_t first_actor, std::uint64_t steps) {
        const std::uint64_t stride =
            (10 * shape_.w.page_bytes + 2 * guard_bytes + 16 + 63) & ~std::uint64_t{63};
        if (scratch_.empty()) scratch_.resize(stride * settings_.threads);
        desks_.resize(settings_.threads);
        const model_actor actor{
            {{{shape_.w, states_.get(), &report_}, stride}, settings_.shift_numbers},
            scratch_.data(),
            desks_.data(),
            steps,
            first_actor,
            shape_.max_open,
            shape_.max_maps};
        std::atomic<std::uint32_t> running{settings_.threads};
        std::vector<std::thread> threads;
        for (std::uint32_t i = 0; i < settings_.threads; ++i)
            threads.emplace_back([&, i] {
                actor(Group{}, rt_->ref(i % settings_.caches), i);
                --running;
            });
        for (std::uint64_t i = 0; running > 0; ++i) {
            const std::uint64_t h = mix(settings_.seed, first_actor, i);
            files_.change(static_cast<std::uint32_t>(h % shape_.w.small_files));
            std::this_thread::sleep_for(std::chrono::microseconds(50 + (h >> 32) % 500));
        }
        for (std::thread& thread : threads) thread.join();
        if (report_.failures > 0) list_failures();
    }

    void check_quiescent() {
        for (std::uint32_t i = 0; i < settings_.caches; ++i) {
            const auto found = engine::check_invariants(
                rt_->ref(i).view, {.references = i == 0 ? windows_->references() : 0});
            if (found.rule != nullptr)
                complain("broken rule: " + std::string(found.rule) + ", at " +
                         std::to_string(found.where));
        }
        if (report_.open_held != 0 || report_.maps_held != 0)
            complain("the test itself lost count of what its actors hold");
        if (const status s = rt_->health(); !s) complain("health: " + s.message);
    }

    // Of the first device that has one.
    [[nodiscard]] const engine::fault_record* first_fault() const {
        std::uint32_t i = 0;
        while (i + 1 < settings_.caches && rt_->ref(i).view.fault->claimed == 0) ++i;
        return rt_->ref(i).view.fault;
    }

    void check_views() {
        const std::string wrong = judge_view_status(*first_fault(), rt_->view_status(), report_);
        if (!wrong.empty()) complain(wrong);
        if (!rt_->view_status().ok()) ++met_.view_faults;
        rt_->clear_view_status();
        report_.missing = report_.out_of_range = 0;
    }

    // What is done with windows while no actor is there: some are opened or closed for the next
    // round, and the drill.
    void exercise(std::uint64_t h) {
        if (settings_.caches == 1) drill_all(h);
        if (const std::string wrong = windows_->between_rounds(h); !wrong.empty()) complain(wrong);
        rt_->clear_view_status();
        check_quiescent();
    }

    // The drill knows from where each page must come. With linked caches a neighbour may have it.
    void drill_all(std::uint64_t h) {
        for (std::uint64_t i = 0; i < 3 && good_; ++i) {
            drill<Group> drilling(*rt_, files_, pins_, shape_.w, states_.get(), met_, drilled_);
            int windowed = -1;
            if (const std::string wrong = drilling.run(mix64(h + i), windowed); !wrong.empty())
                complain(wrong);
            if (windowed >= 0) windows_->has_window_too(windowed);
        }
        far_drill other(*rt_, files_, pins_, shape_.w, states_.get(), met_, drilled_);
        int windowed = -1;
        if (const std::string wrong = other.run(mix64(h ^ 77), windowed); !wrong.empty())
            complain(wrong);
        if (windowed >= 0) windows_->has_window_too(windowed);
        if (drilled_.wrong_bytes > 0) list_failures();
    }

    // Every byte of every file through fresh opens.
    void check_whole_files() {
        std::vector<std::uint8_t> bytes(64 * 1024);
        for (std::uint32_t file = 0; file < shape_.w.files() && good_; ++file) {
            const std::uint64_t version = states_[file].done;
            char name[16];
            name_of_file(file, file % 3, name);
            const runtime_ref fs = rt_->ref(file % settings_.caches);
            const int fd = penstock::open(Group{}, fs, name);
            const bool there = exists(shape_.w, file, version);
            if (!there && fd != -ENOENT)
                complain(std::string(name) + " was removed, but open gave " + std::to_string(fd));
            if (there && fd < 0) complain(std::string(name) + ": open gave " + error_text(fd));
            ++opens_;
            if (fd < 0) ++errors_;
            if (fd < 0) continue;
            const std::uint64_t size = size_of(shape_.w, file, version);
            const std::uint64_t begin =
                shape_.w.is_big(file) ? size - (region_pages + 2) * shape_.w.page_bytes : 0;
            for (std::uint64_t at = begin; at < size && good_; at += bytes.size()) {
                const std::int64_t got = penstock::read(Group{}, fs, fd, bytes.data(),
                                                        static_cast<std::int64_t>(bytes.size()),
                                                        static_cast<std::int64_t>(at));
                std::uint64_t first_bad = ~std::uint64_t{0};
                if (got !=
                    static_cast<std::int64_t>(std::min<std::uint64_t>(bytes.size(), size - at)))
                    complain(std::string(name) + ": read gave " + std::to_string(got));
                else if (const std::uint64_t wrong =
                             wrong_bytes(shape_.w, file, {version, version}, at, bytes.data(),
                                         static_cast<std::uint64_t>(got), 0, 1, first_bad);
                         wrong != 0)
                    complain("FAILED: " + std::to_string(wrong) + " wrong bytes in " + name +
                             ", the first at " + std::to_string(first_bad));
                bytes_read_ += static_cast<std::uint64_t>(got > 0 ? got : 0);
            }
            if (penstock::close(Group{}, fs, fd) != 0) complain("close failed");
        }
    }

    void expect(const char* label, std::uint64_t got, std::uint64_t expected) {
        if (got != expected)
            complain("statistics: " + std::string(label) + " " + std::to_string(got) +
                     ", expected " + std::to_string(expected));
    }

    void check_statistics() {
        const statistics s = rt_->stats();
        expect("opens", s.opens, report_.opens + opens_ + windows_->opens() + drilled_.opens);
        expect("bytes_read", s.bytes_read, report_.bytes_read + bytes_read_ + drilled_.bytes_read);
        expect("errors", s.errors, report_.errors + errors_ + drilled_.errors);
        expect("bad_requests", s.bad_requests, 0);
        std::uint64_t answered = 0, valid = 0;
        for (const std::uint64_t n : s.latency_ns) answered += n;
        // No caller waits for the answer to a fill, which asks for one page or more, or to a list
        // of wishes.
        if (answered > s.requests ||
            s.requests - answered > s.read_ahead_pages + report_.table_wishes)
            expect("answers", answered, s.requests);
        for (std::uint32_t device = 0; device < settings_.caches; ++device) {
            const engine::cache_view& c = rt_->ref(device).view;
            for (std::uint64_t i = 0; i < c.word_count; ++i)
                valid += engine::is_valid(c.words[i]) ? 1 : 0;
        }
        const std::uint64_t elsewhere = s.window_loads + s.tier_loads + s.neighbour_loads;
        if (s.misses < s.evictions + valid)
            complain("statistics: fewer misses than evictions and pages in the cache");
        if (s.file_read_bytes + elsewhere * shape_.w.page_bytes < s.bytes_loaded)
            complain("statistics: more bytes loaded than files, windows, tier and neighbours gave");
        if (s.tier_evictions > s.tier_saves + s.read_ahead_pages)
            complain("statistics: tier " + s.to_json());
        if (elsewhere > s.misses || s.window_bytes != 0)
            complain("statistics: windows " + s.to_json());
        met_.take(report_);
        met_.window_loads = s.window_loads;
        met_.through_reads = s.through_reads;
        met_.neighbour_reads = s.neighbour_reads;
        met_.neighbour_loads = s.neighbour_loads;
        met_.request_loads = s.misses - elsewhere;
        // Met by the program as a whole; a run without a tier meets nothing of it.
        met_.tier_loads = s.tier_loads;
        met_.tier_saves = s.tier_saves;
        met_.pages_read_ahead = s.read_ahead_pages;
        met_.direct_reads = s.direct_reads;
        if (shape_.o.direct_io == direct_mode::on && !met_.no_direct_reads && s.direct_reads == 0)
            complain(
                "statistics: no direct read, though direct_io is on and the file system has them");
        met_.orphan_pages = pins_.orphans();
        if (s.open_requests > s.opens * 8) complain("statistics: more than eight requests an open");
    }

    void check_all_frames_usable() {
        if (!good_) return;
        const engine::cache_view& c = rt_->ref().view;
        char name[16];
        name_of_file(shape_.w.small_files, 0, name);
        const int fd = penstock::open(Group{}, rt_->ref(), name);
        std::vector<mapping> held;
        for (std::uint32_t i = 0; i < c.frame_count; ++i) {
            held.push_back(penstock::map(Group{}, rt_->ref(), fd,
                                         static_cast<std::int64_t>(i * shape_.w.page_bytes), 1));
            if (held.back().bytes != 1)
                complain("frame " + std::to_string(i) + " of " + std::to_string(c.frame_count) +
                         " is lost: " + error_text(held.back().bytes));
            if (!good_) break;
        }
        for (const mapping& mapped : held) penstock::unmap(Group{}, rt_->ref(), mapped);
        penstock::close(Group{}, rt_->ref(), fd);
    }

    void list_failures() {
        std::ostringstream text;
        text << "FAILED: " << report_.wrong_bytes + drilled_.wrong_bytes << " wrong bytes, "
             << report_.wrong_results << " wrong results, " << report_.written_outside
             << " bytes written outside, " << report_.changed_mappings << " changed mappings";
        for (std::uint64_t i = 0; i < report_.failures && i < kept_failures; ++i) {
            const failure& f = report_.kept[i];
            text << "\n  actor " << f.actor << " step " << f.step << " "
                 << name_of(static_cast<verb>(f.kind)) << " file " << f.file << " offset "
                 << f.offset << " length " << f.length << ": got " << f.got << ", expected "
                 << f.expected << "; versions " << f.floor << " to " << f.newest;
        }
        complain(text.str());
    }

    [[nodiscard]] std::string describe() const {
        std::ostringstream text;
        text << "model: seed " << settings_.seed << ", "
             << (std::is_same_v<Group, lane> ? "lane" : "racing") << ", " << settings_.operations
             << " operations, " << settings_.threads << " threads, page " << shape_.w.page_bytes
             << ", frames " << rt_->ref().view.frame_count
             << (shape_.memory != nullptr ? " of the caller" : "")
             << (settings_.caches > 1 ? ", caches " + std::to_string(settings_.caches) : "")
             << ", file slots " << shape_.o.max_files << ", rings "
             << *rt_->settings().service_threads << " x " << shape_.hooks.rings_per_thread << " x "
             << shape_.hooks.ring_slots << ", handles " << shape_.hooks.max_handles << ", "
             << rt_->io_name() << ", direct_io " << name_of(shape_.o.direct_io)
             << (shape_.o.direct_io == direct_mode::on && met_.no_direct_reads
                     ? ", which the file system refuses for these pages"
                     : "")
             << "\n";
        return text.str();
    }

    [[nodiscard]] std::string summary() {
        std::ostringstream text;
        text << "model: seed " << settings_.seed << ": " << report_.steps << " operations, "
             << report_.checks << " judged, "
             << report_.exact_checks * 100 / std::max<std::uint64_t>(1, report_.checks)
             << " % exactly, " << report_.stale << " stale, " << files_.changes()
             << " host changes: " << (good_ ? "passed" : "FAILED") << "\n  "
             << met_.text().substr(1) << "\n  " << rt_->stats().to_json() << "\n";
        return text.str();
    }

    const run_settings settings_;
    const run_folder folder_;
    tiny_shape shape_;
    std::unique_ptr<file_state[]> states_;
    host_files files_;
    fault::faulty_environment disk_;
    pinning_environment pins_;
    std::unique_ptr<runtime> rt_;
    std::unique_ptr<window_keeper> windows_;
    coverage met_;
    drill_counts drilled_;
    report report_{};
    std::vector<std::byte> scratch_;
    std::vector<table_desk> desks_;
    std::uint64_t opens_ = 0, bytes_read_ = 0, errors_ = 0;
    bool good_ = true;
};

}  // namespace penstock::model
