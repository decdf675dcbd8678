// The model test on the GPU: the same actors, operations and oracle as on the cpu (tests/model),
// run as groups of every width over a tiny cache. Between launches the host changes files, opens
// and closes windows, and runs the drill of tests/model/far_drill.hpp; files that it keeps open
// have changed under their windows when the next launch reads them. The checks that hold when
// no group is inside a verb run on a copy of the cache.
//
//   penstock_model_gpu [--seed N] [--seeds N] [--operations N] [--gpus N] [--canary] [--shift]
//
// With --gpus the caches of several devices are linked. Each device has actors of its own, and what
// these share lies in its memory; they meet those of other devices in the files and the caches
// only.
//
// --canary lets the kernel expect other files than there are, --shift lets it ask for other rows of
// tables than it expects: the run must then fail.
#if defined(PENSTOCK_NEIGHBOUR_CANARY)
// Readers do not look again at a page that they took from a linked cache: the run must deliver
// wrong bytes.
#include "penstock/engine/neighbour.hpp"
#define is_as_seen(c, f, page) true
#endif

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>

#include "device/cache_copy.cuh"
#include "runtime/runtime_state.hpp"
#include "model/actor.hpp"
#include "model/far_drill.hpp"
#include "model/host_files.hpp"
#include "model/run_seeds.hpp"
#include "model/window_keeper.hpp"
#include "penstock/penstock.hpp"

using namespace penstock;
using namespace penstock::model;

namespace {

struct run_settings {
    std::uint64_t seed = 1, seeds = 1, operations = 100000;
    int gpus = 1;
    bool canary = false, shift = false;
};

template <typename T>
T* device_array(std::uint64_t count) {
    T* out = nullptr;
    if (cudaMalloc(&out, count * sizeof(T)) != cudaSuccess)
        std::exit((std::cerr << "no device memory\n", 1));
    cudaMemset(out, 0, count * sizeof(T));
    return out;
}

// In blocks of 128.
constexpr std::uint64_t threads_of(width wide) {
    switch (wide) {
        case width::lane: return 1;
        case width::tile8: return 8;
        case width::warp: return 32;
        default: return 128;
    }
}

// What a group does in one launch is bounded in bytes too. A lane loads and judges its pages alone,
// and the lanes of a warp do so one after the other: with 100 steps a warp of lanes would judge 57
// MiB by single threads if pages have 64 KiB, and 3.6 MiB if they have 4 KiB.
constexpr std::uint64_t most_steps = 100, least_steps = 16;
constexpr std::uint64_t most_page_bytes = std::uint64_t{1} << 20;  // a thread, one page a step
constexpr std::uint64_t usual_access_bytes = 4096;                 // a thread

constexpr std::uint64_t steps_of(width wide, std::uint64_t page_bytes) {
    return std::clamp(most_page_bytes * threads_of(wide) / page_bytes, least_steps, most_steps);
}

// What the actors of a device share, in its memory.
struct device_side {
    report* found = nullptr;
    file_state* states = nullptr;
    std::byte* scratch = nullptr;
    table_desk* desks = nullptr;
    report last{};

    static constexpr std::uint64_t most_actors = 1024;

    // On the current device.
    void make(std::uint64_t files, std::uint64_t stride) {
        found = device_array<report>(1);
        states = device_array<file_state>(files);
        scratch = device_array<std::byte>(stride * most_actors);
        desks = device_array<table_desk>(most_actors);
    }
    void free() const { cudaFree(found), cudaFree(states), cudaFree(scratch), cudaFree(desks); }
};

class gpu_run {
public:
    gpu_run(const run_settings& s, std::uint64_t seed)
        : settings_(s),
          seed_(seed),
          folder_("penstock-model"),
          pins_(host::linux_environment(), true, seed) {
        constexpr std::uint64_t pages[] = {4096, 512, 65536, 1024, 16384};
        constexpr std::uint64_t frames[] = {256, 1024, 64, 600, 2048};
        constexpr std::uint64_t open_limits[] = {100000, 2000, 600, 100000, 1000};
        const std::uint64_t frame_count = frames[mix64(seed) % 5];
        o_.where = backend::gpu;
        for (int i = 0; i < s.gpus && s.gpus > 1; ++i) o_.devices.push_back(i);
        o_.page_bytes = pages[seed % 5];
        o_.cache_bytes = frame_count * o_.page_bytes;
        o_.table_bytes = 256 * 1024;
        o_.max_files = 40 + most_windowed + most_held;
        constexpr std::uint64_t budgets_mib[] = {4, 6, 10, 32};
        o_.window_bytes = budgets_mib[mix64(seed ^ 12) % 4] << 20;
        constexpr std::uint64_t tier_pages[] = {0, 64, 700};
        o_.tier_bytes = tier_pages[seed % 3] * o_.page_bytes;
        *o_.window_bytes += o_.tier_bytes * static_cast<std::uint64_t>(s.gpus);
        o_.direct_io = reads_directly(seed) ? direct_mode::on : direct_mode::automatic;
        o_.service_threads = 1 + mix64(seed ^ 8) % 3;
        o_.staging_bytes = std::uint64_t{1} << (20 + mix64(seed ^ 11) % 4);
        o_.frame_wait_ms = o_.request_wait_ms = 60000;
        o_.host_wait_ms = 10000;
        o_.roots = {folder_.path()};
        w_.seed = mix64(seed + 1);
        w_.page_bytes = o_.page_bytes;
        max_open_ = open_limits[mix64(seed ^ 13) % 5];
        max_maps_ = frame_count / 4;
        states_.resize(w_.files());
        files_ = std::make_unique<host_files>(w_, folder_.path(), states_.data());
        met_.is_alone = s.gpus == 1;
        met_.no_direct_reads = !files_->can_be_read_directly();
        files_->before_shrink = [this](const std::string& path, std::uint64_t size_bytes) {
            pins_.before_shrink(path, size_bytes);
        };
        host::runtime_hooks hooks;
        hooks.env = &pins_;
        if (const status created = runtime::make(o_, hooks, rt_); !created)
            complain(created.message);
        else windows_ = std::make_unique<window_keeper>(*rt_, w_, states_.data(), met_);
    }
    ~gpu_run() {
        windows_.reset();
        rt_.reset();
    }

    bool run() {
        if (!good_) return false;
        constexpr width widths[] = {width::warp, width::block, width::lane, width::tile8};
        sides_.resize(rt_->device_count());
        for (std::uint32_t i = 0; i < sides_.size(); ++i) {
            cudaSetDevice(static_cast<int>(i));
            sides_[i].make(w_.files(), stride());
        }
        std::uint64_t actor = 0;
        for (std::uint64_t done = 0, round = 0; good_ && done < settings_.operations; ++round) {
            const width wide = widths[(seed_ + round) % 4];
            const std::uint64_t actors = wide == width::block ? 256 : 1024,
                                steps = steps_of(wide, w_.page_bytes);
            launch_round(wide, actor, actors, steps);
            actor += actors;
            done += actors * steps;
            look_at_report();
            check();
            exercise(mix(seed_ ^ 0x3a, round));
            for (std::uint32_t i = 0; i < w_.small_files; ++i)
                if (mix(seed_, round, i) % 3 == 0) files_->change(i);
        }
        if (good_) finish();
        std::cout << "model: seed " << seed_ << ", gpu, page " << o_.page_bytes << ", frames "
                  << *o_.cache_bytes / o_.page_bytes << ", direct_io " << name_of(o_.direct_io)
                  << (o_.direct_io == direct_mode::on && met_.no_direct_reads
                          ? ", which the file system refuses for these pages"
                          : "")
                  << ", GPUs " << sides_.size() << ", " << sum(&report::steps) << " operations, "
                  << sum(&report::checks) << " judged, " << files_->changes()
                  << " host changes: " << (good_ ? "passed" : "FAILED") << "\n " << met_.text()
                  << "\n  " << rt_->stats().to_json() << std::endl;
        for (const device_side& side : sides_) side.free();
        return good_;
    }

    // What the run has met.
    [[nodiscard]] const coverage& met() const { return met_; }

private:
    void complain(const std::string& complaint) {
        good_ = false;
        std::cout << "model: seed " << seed_ << ": " << complaint << std::endl;
    }

    [[nodiscard]] std::uint64_t stride() const {
        return (10 * w_.page_bytes + 2 * guard_bytes + 16 + 63) & ~std::uint64_t{63};
    }
    // Of all devices.
    [[nodiscard]] std::uint64_t sum(std::uint64_t report::*count) const {
        std::uint64_t out = 0;
        for (const device_side& side : sides_) out += side.last.*count;
        return out;
    }

    void launch_round(width wide, std::uint64_t first, std::uint64_t actors, std::uint64_t steps) {
        std::vector<int> codes(sides_.size());
        std::vector<std::thread> launches;
        for (std::uint32_t i = 0; i < sides_.size(); ++i)
            launches.emplace_back([&, i] {
                codes[i] =
                    launch_side(i, wide, first + i * device_side::most_actors, actors, steps);
            });
        for (std::thread& launching : launches) launching.join();
        for (const int code : codes)
            if (code != 0)
                complain("launch gave " + error_text(code) + "; " + rt_->health().message);
    }

    // Descriptors that the window keeper holds are those of the first device, so only there a file
    // may be in use before the launch.
    int launch_side(std::uint32_t device, width wide, std::uint64_t first, std::uint64_t actors,
                    std::uint64_t steps) {
        const device_side& side = sides_[device];
        std::vector<file_state> states = states_;
        for (file_state& state : states)
            if (device != 0) state.period = 0;
        cudaSetDevice(static_cast<int>(device));
        cudaMemcpy(side.states, states.data(), states.size() * sizeof(file_state),
                   cudaMemcpyHostToDevice);
        world expected = w_;
        expected.usual_bytes = std::min(w_.page_bytes, usual_access_bytes * threads_of(wide));
        if (settings_.canary) expected.seed ^= 1;
        const model_actor actor_of{
            {{{expected, side.states, side.found}, stride()}, settings_.shift},
            side.scratch,
            side.desks,
            steps,
            first,
            max_open_,
            max_maps_};
        const launch_shape shape{128, 0};
        switch (wide) {
            case width::block:
                return launch_on<width::block>(*rt_, device, actors, actor_of, shape);
            case width::lane: return launch_on<width::lane>(*rt_, device, actors, actor_of, shape);
            case width::tile8:
                return launch_on<width::tile8>(*rt_, device, actors, actor_of, shape);
            default: return launch_on<width::warp>(*rt_, device, actors, actor_of, shape);
        }
    }

    // After a launch: what the actors found, and what the runtime noted about elements that they
    // could not have.
    void look_at_report() {
        for (std::uint32_t i = 0; i < sides_.size() && good_; ++i) look_at_report_of(i);
    }

    void look_at_report_of(std::uint32_t device) {
        device_side& side = sides_[device];
        if (device == 0)
            cudaMemcpy(states_.data(), side.states, states_.size() * sizeof(file_state),
                       cudaMemcpyDeviceToHost);
        report& last = side.last;
        if (cudaMemcpy(&last, side.found, sizeof last, cudaMemcpyDeviceToHost) != cudaSuccess)
            return complain("no report");
        if (last.failures > 0) {
            complain("FAILED: " + std::to_string(last.wrong_bytes) + " wrong bytes, " +
                     std::to_string(last.wrong_results) + " wrong results, " +
                     std::to_string(last.written_outside) + " written outside, " +
                     std::to_string(last.changed_mappings) + " changed mappings, on device " +
                     std::to_string(device));
            for (std::uint64_t i = 0; i < last.failures && i < 4; ++i) {
                const failure& f = last.kept[i];
                std::cout << "  actor " << f.actor << " step " << f.step << " verb " << f.kind
                          << " file " << f.file << " offset " << f.offset << " length " << f.length
                          << ": got " << f.got << ", expected " << f.expected << "; versions "
                          << f.floor << " to " << f.newest << std::endl;
            }
        }
        if (last.open_held != 0 || last.maps_held != 0)
            complain("the test itself lost count of what its actors hold");
        engine::fault_record fault{};
        cudaMemcpy(&fault, rt_->ref(device).view.fault, sizeof fault, cudaMemcpyDeviceToHost);
        const status said = rt_->state(device).view_status();
        if (const std::string wrong = judge_view_status(fault, said, last); !wrong.empty())
            complain(wrong);
        if (!said.ok()) ++met_.view_faults;
        zero_elements_ += last.missing - last.out_of_range;
        rt_->state(device).device->upload(rt_->ref(device).view.fault, &no_fault_, sizeof fault);
        cudaMemset(&side.found->missing, 0, sizeof last.missing);
        cudaMemset(&side.found->out_of_range, 0, sizeof last.out_of_range);
    }

    // Between launches: every rule of the cache, and the counts.
    void check() {
        if (!good_) return;
        for (std::uint32_t i = 0; i < rt_->device_count(); ++i) {
            const test::cache_copy copy(rt_->ref(i));
            const auto found = engine::check_invariants(
                copy.view(), {.references = i == 0 ? windows_->references() : 0});
            if (found.rule != nullptr)
                complain("broken rule: " + std::string(found.rule) + ", at " +
                         std::to_string(found.where) + ", on device " + std::to_string(i));
        }
        const statistics s = rt_->stats();
        // A page that elements wait for counts one error when it cannot be had, and leaves one or
        // more of them zero.
        const std::uint64_t errors = sum(&report::errors) + drilled_.errors;
        if (s.opens != sum(&report::opens) + windows_->opens() + drilled_.opens ||
            s.bytes_read != sum(&report::bytes_read) + drilled_.bytes_read || s.errors < errors ||
            s.errors > errors + zero_elements_ || s.bad_requests != 0)
            complain("statistics differ from what the actors counted: " + s.to_json());
        coverage of_devices;
        for (const device_side& side : sides_) {
            coverage of_side;
            of_side.take(side.last);
            of_devices.add(of_side);
        }
        met_.take(of_devices);
        met_.window_loads = s.window_loads;
        met_.through_reads = s.through_reads;
        met_.neighbour_reads = s.neighbour_reads;
        met_.neighbour_loads = s.neighbour_loads;
        met_.request_loads = s.misses - s.window_loads - s.tier_loads - s.neighbour_loads;
        met_.tier_loads = s.tier_loads;
        met_.tier_saves = s.tier_saves;
        met_.pages_read_ahead = s.read_ahead_pages;
        met_.direct_reads = s.direct_reads;
        met_.orphan_pages = pins_.orphans();
    }

    // What is done with windows while no kernel runs.
    void exercise(std::uint64_t h) {
        // The drill knows from where each page must come; a neighbour may have it.
        for (std::uint64_t i = 0; i < 2 && good_ && sides_.size() == 1; ++i) {
            far_drill drilling(*rt_, *files_, pins_, w_, states_.data(), met_, drilled_);
            int windowed = -1;
            if (const std::string wrong = drilling.run(mix64(h + i), windowed); !wrong.empty())
                complain(wrong);
            if (windowed >= 0) windows_->has_window_too(windowed);
        }
        if (!good_) return;
        if (const std::string wrong = windows_->between_rounds(h); !wrong.empty()) complain(wrong);
        check();
    }

    void finish() {
        windows_->let_go_of_all();
        windows_->close_all();
        check();
    }

    const run_settings settings_;
    const std::uint64_t seed_;
    const run_folder folder_;
    options o_;
    world w_;
    std::uint64_t max_open_ = 0, max_maps_ = 0;
    std::vector<file_state> states_;
    std::unique_ptr<host_files> files_;
    pinning_environment pins_;
    std::unique_ptr<runtime> rt_;
    std::unique_ptr<window_keeper> windows_;
    coverage met_;
    drill_counts drilled_;
    // In files that had changed, so that an error may be behind each.
    std::uint64_t zero_elements_ = 0;
    const engine::fault_record no_fault_{};
    std::vector<device_side> sides_;
    bool good_ = true;
};

// Shorter runs need not have met everything.
constexpr std::uint64_t operations_for_all = 900000;

}  // namespace

int main(int count, char** words) {
    run_settings s;
    for (int i = 1; i < count; ++i) {
        const std::string word = words[i];
        if (word == "--canary") s.canary = true;
        else if (word == "--shift") s.shift = true;
        else if (i + 1 < count && word == "--seed") s.seed = std::strtoull(words[++i], nullptr, 0);
        else if (i + 1 < count && word == "--gpus") s.gpus = std::atoi(words[++i]);
        else if (i + 1 < count && word == "--seeds")
            s.seeds = std::strtoull(words[++i], nullptr, 0);
        else if (i + 1 < count && word == "--operations")
            s.operations = std::strtoull(words[++i], nullptr, 0);
        else
            return std::cerr << "usage: " << words[0]
                             << " [--seed N] [--seeds N] [--operations N] [--gpus N] [--canary] "
                                "[--shift]\n",
                   2;
    }
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
        return std::cout << "skipped: no GPU in this machine\n", 77;
    if (s.gpus < 1 || s.gpus > devices)
        return std::cout << "skipped: fewer GPUs than that in this machine\n", 77;
    coverage met;
    const bool good = run_seeds("model", s, s.seeds, operations_for_all, met,
                                [](const run_settings& of_seed, coverage& all) {
                                    gpu_run test(of_seed, of_seed.seed);
                                    const bool right = test.run();
                                    all.add(test.met());
                                    return right;
                                });
    return good ? 0 : 1;
}
