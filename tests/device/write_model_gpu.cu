// The model test of writes on the GPU: the actors and the oracle of tests/model as warps of one
// kernel, over a cache of a 32nd of the files. An ordinary program and a second runtime, on the cpu
// back end, write their shares of shared files while the kernel runs. After each launch the files
// are compared with their shadows and the rules of the cache are checked on a copy of it.
//
//   penstock_write_model_gpu [--seed N] [--seeds N] [--operations N] [--drop]
//
// --drop loses one write to a file in a thousand: the run must then fail.
#include <cstdlib>
#include <iostream>
#include <string>
#include <thread>

#include "device/cache_copy.cuh"
#include "runtime/runtime_state.hpp"
#include "model/run_seeds.hpp"
#include "model/watching_environment.hpp"
#include "model/write_actor.hpp"
#include "model/write_files.hpp"

using namespace penstock;
using namespace penstock::model;

namespace {

struct run_settings {
    std::uint64_t seed = 1, seeds = 1, operations = 100000;
    bool drop = false;
};

// An array in device memory with the bytes of one on the host, and back.
template <typename T>
class device_copy {
public:
    explicit device_copy(std::size_t count) : count_(count) {
        if (cudaMalloc(&at_, count * sizeof(T) + 16) != cudaSuccess)
            std::exit((std::cerr << "no device memory\n", 1));
        cudaMemset(at_, 0, count * sizeof(T));
    }
    ~device_copy() { cudaFree(at_); }
    device_copy(const device_copy&) = delete;
    device_copy& operator=(const device_copy&) = delete;
    // The copy may return before it has ended, and the runtime's stream does not wait for it.
    void put(const T* from) {
        cudaMemcpy(at_, from, count_ * sizeof(T), cudaMemcpyHostToDevice);
        cudaStreamSynchronize(nullptr);
    }
    void get(T* to) const { cudaMemcpy(to, at_, count_ * sizeof(T), cudaMemcpyDeviceToHost); }
    T* data() const { return at_; }

private:
    T* at_ = nullptr;
    std::size_t count_;
};

constexpr std::uint32_t actors = 512;

write_shape shape_of(std::uint64_t seed) {
    constexpr std::uint64_t pages[] = {512, 4096, 1024, 65536, 16384};
    constexpr std::uint64_t frames[] = {256, 1024, 96, 600, 192};
    const std::uint64_t page_bytes = pages[seed % 5], frame_count = page_bytes > 16384 ? 64
                                                                    : page_bytes < 4096
                                                                        ? 256
                                                                        : frames[mix64(seed) % 5];
    return {
        mix64(seed + 1), page_bytes, frame_count * page_bytes, page_bytes <= 1024 ? 16800ull : 0,
        actors,          16};
}

options options_for(std::uint64_t seed, const write_shape& s, const std::string& folder) {
    options o;
    o.where = backend::gpu;
    o.writable = true;
    o.page_bytes = s.page_bytes;
    o.cache_bytes = s.cache_bytes;
    const std::optional<std::uint64_t> behind[] = {std::nullopt, 2 * s.page_bytes, s.cache_bytes};
    o.write_behind_bytes = behind[mix64(seed ^ 13) % 3];
    o.table_bytes = 512 * 1024;  // 65536 words: room for every file at once, and for what is left
                                 // of their last lives; more than 16384 pages take two levels
    o.max_files = 40;
    o.service_threads = 1 + mix64(seed ^ 8) % 3;
    o.staging_bytes = std::uint64_t{1} << (20 + mix64(seed ^ 11) % 4);
    o.frame_wait_ms = o.request_wait_ms = 60000;
    o.host_wait_ms = 10000;
    constexpr std::uint64_t tier_pages[] = {0, 64, 700};
    o.tier_bytes = tier_pages[seed % 3] * o.page_bytes;
    o.window_bytes = o.tier_bytes + (std::uint64_t{2} << 20);
    o.roots = {folder};
    return o;
}

class gpu_write_run {
public:
    gpu_write_run(const run_settings& s, std::uint64_t seed)
        : settings_(s),
          seed_(seed),
          folder_("penstock-write-model"),
          shape_(shape_of(seed)),
          files_(shape_, folder_.path()),
          system_(seed, shape_.page_bytes, s.drop ? 1000 : 0),
          records_(std::size_t{shape_.files()} * actors),
          device_records_(records_.size()),
          device_plans_(shape_.files()),
          device_shadows_(shape_.files()),
          device_report_(1),
          scratch_(scratch_stride() * actors),
          second_scratch_(scratch_stride()) {
        for (std::uint32_t file = 0; file < shape_.files(); ++file)
            device_versions_.push_back(
                std::make_unique<device_copy<model::version>>(shape_.capacity(file)));
        met_.watches_write_backs = false;
        host::runtime_hooks hooks;
        hooks.env = &system_;
        if (const status created =
                runtime::make(options_for(seed, shape_, folder_.path()), hooks, rt_);
            !created)
            complain(created.message);
        options small = options_for(seed, shape_, folder_.path());
        small.where = backend::cpu;
        small.cache_bytes = 32 * small.page_bytes;
        small.tier_bytes = 0;
        small.worker_threads = 1;
        if (const status created = runtime::make(small, second_); !created)
            complain(created.message);
    }
    ~gpu_write_run() { rt_.reset(), second_.reset(); }

    bool run() {
        constexpr std::uint64_t steps = 64;
        for (std::uint64_t done = 0; good_ && done < settings_.operations;
             done += steps * actors, ++round_)
            round(steps);
        if (good_) finish();
        std::cout << "write model: seed " << seed_ << ", gpu, page " << shape_.page_bytes
                  << ", frames " << shape_.cache_bytes / shape_.page_bytes << ", "
                  << met_.found.steps << " operations, " << met_.found.judged_bytes
                  << " bytes judged: " << (good_ ? "passed" : "FAILED") << "\n " << met_.text()
                  << std::endl;
        return good_;
    }
    [[nodiscard]] const write_coverage& met() const { return met_; }

private:
    void complain(const std::string& complaint) {
        if (complaint.empty()) return;
        good_ = false;
        std::cout << "write model: seed " << seed_ << ", round " << round_ << ": " << complaint
                  << std::endl;
    }
    [[nodiscard]] std::uint64_t scratch_stride() const {
        return longest_write(shape_.page_bytes) * (1 + sizeof(model::version)) + 64;
    }

    // The shadows as the kernel sees them: with versions of its own, which it may write.
    void upload() {
        std::vector<file_shadow> shadows = files_.shadows();
        for (std::uint32_t file = 0; file < shape_.files(); ++file) {
            device_versions_[file]->put(shadows[file].versions);
            shadows[file].versions = device_versions_[file]->data();
            shadows[file].touched = nullptr;
        }
        device_shadows_.put(shadows.data());
        device_plans_.put(files_.plans().data());
        std::fill(records_.begin(), records_.end(), 0);
        device_records_.put(records_.data());
    }
    // What the kernel wrote; the shares of the others are known here already.
    void download() {
        std::vector<file_shadow> shadows(shape_.files());
        device_shadows_.get(shadows.data());
        device_records_.get(records_.data());
        for (std::uint32_t file = 0; file < shape_.files(); ++file) {
            const file_plan& plan = files_.plans()[file];
            file_shadow& s = files_.shadows()[file];
            s.size_begun = shadows[file].size_begun;
            s.size_done = shadows[file].size_done;
            s.there = shadows[file].there;
            std::vector<model::version> written(s.capacity);
            device_versions_[file]->get(written.data());
            for (std::uint64_t i = 0; i < s.capacity; ++i)
                if (plan.usage != use::shared || plan.owner_of(i) < plan.actors)
                    s.versions[i] = written[i];
        }
        write_report seen{};
        device_report_.get(&seen);
        met_.found = seen;
        list_failures(seen, "the kernel");
        list_failures(second_report_, "the second runtime");
    }

    void list_failures(const write_report& seen, const char* kind) {
        if (seen.failures == 0) return;
        complain("FAILED: " + std::to_string(seen.wrong_bytes) + " wrong bytes, " +
                 std::to_string(seen.wrong_results) + " wrong results in " + kind);
        for (std::uint64_t i = 0; i < seen.failures && i < 6; ++i) {
            const failure& f = seen.kept[i];
            std::cout << "  actor " << f.actor << " step " << f.step << " "
                      << name_of(static_cast<write_verb>(f.kind)) << " file " << f.file
                      << " offset " << f.offset << " length " << f.length << ": got " << f.got
                      << ", expected " << f.expected << "; versions " << f.floor << " to "
                      << f.newest << "; use " << static_cast<int>(files_.plans()[f.file].usage)
                      << ", owner "
                      << (files_.plans()[f.file].usage == use::shared
                              ? files_.plans()[f.file].owner_of(f.offset)
                              : 0)
                      << " of " << files_.plans()[f.file].actors << "+"
                      << files_.plans()[f.file].second << "+" << files_.plans()[f.file].ordinary
                      << ", stride " << files_.plans()[f.file].stride << ", size "
                      << files_.size_of(f.file) << std::endl;
        }
    }

    void round(std::uint64_t steps) {
        files_.begin_round(round_);
        const std::vector<int> holds = hold_logs();
        upload();
        const std::uint32_t files = shape_.files();
        const write_world there{shape_.seed,
                                shape_.page_bytes,
                                round_,
                                files,
                                actors,
                                device_plans_.data(),
                                device_shadows_.data(),
                                device_records_.data()};
        const write_actor actor{{{{there, device_report_.data(), true, nullptr}, 16}},
                                scratch_.data(),
                                scratch_stride(),
                                steps};
        const write_world here{
            shape_.seed,           shape_.page_bytes,       round_,         files, actors,
            files_.plans().data(), files_.shadows().data(), records_.data()};
        const write_actor other{{{{here, &second_report_, false, nullptr}, 4}},
                                second_scratch_.data(),
                                scratch_stride(),
                                steps * 4};
        std::thread second([&] { other(lane{}, second_->ref(), 0); });
        std::thread ordinary([&] {
            for (std::uint64_t i = 0; i < 200; ++i) {
                const std::uint64_t h = mixed(seed_ ^ 0xbe51de, round_, i);
                met_.ordinary_bytes +=
                    files_.write_own(static_cast<std::uint32_t>(h % shape_.shared_files), mix64(h));
            }
        });
        const int code = launch<width::warp>(*rt_, actors, actor, {128, 0});
        second.join(), ordinary.join();
        if (code != 0)
            return complain("launch gave " + error_text(code) + "; " + rt_->health().message);
        download();
        if (!good_) std::cout << "  " << rt_->stats().to_json() << std::endl;
        for (const int fd : holds)
            if (const int closed = rt_->close(fd); closed != 0)
                complain("close gave " + error_text(closed));
        check();
    }

    // Holds the logs open, so that a later open does not cut them.
    std::vector<int> hold_logs() {
        std::vector<int> out;
        for (std::uint32_t file = 0; file < shape_.files(); ++file) {
            if (files_.plans()[file].usage != use::log) continue;
            out.push_back(
                rt_->open(files_.path_of(file), open_write | open_create | open_truncate));
            if (out.back() < 0) complain("open of a log gave " + error_text(out.back()));
        }
        return out;
    }

    void check() {
        const test::cache_copy copy(rt_->ref());
        const auto found = engine::check_invariants(copy.view());
        if (found.rule != nullptr)
            complain("broken rule: " + std::string(found.rule) + ", at " +
                     std::to_string(found.where));
        const engine::cache_view& c = copy.view();
        for (std::uint32_t slot = 0; slot < c.file_slots; ++slot) {
            if (!engine::is_granted(c, slot)) continue;
            if (c.file_records[slot].growth >= engine::growth_first) ++met_.grown_tables;
            if (c.file_records[slot].two_level != 0) ++met_.two_level_tables;
        }
        // Also after wrong bytes in the kernel: whether the file has them tells where they were
        // lost.
        for (std::uint32_t file = 0; file < shape_.files(); ++file) {
            const file_plan& plan = files_.plans()[file];
            if (plan.usage == use::log)
                complain(files_.compare_log(file, round_, &records_[std::size_t{file} * actors],
                                            actors, met_.records));
            else if (plan.usage != use::idle) complain(files_.compare(file, "after close"));
        }
    }

    void finish() {
        const statistics s = rt_->stats();
        met_.dirty_victims = s.dirty_victims;
        met_.written_behind = s.written_behind;
        met_.write_backs = s.write_backs;
        met_.tier_loads = s.tier_loads;
        met_.tier_saves = s.tier_saves;
        met_.second_bytes = second_->stats().bytes_written;
        if (s.write_back_errors != 0 || s.bad_requests != 0) complain("statistics: " + s.to_json());
        second_.reset(), rt_.reset();
        for (std::uint32_t file = 0; good_ && file < shape_.files(); ++file)
            if (!shape_.is_log(file)) complain(files_.compare(file, "when the runtime is gone"));
    }

    const run_settings settings_;
    const std::uint64_t seed_;
    const run_folder folder_;
    const write_shape shape_;
    written_files files_;
    watching_environment system_;
    std::vector<std::uint32_t> records_;
    device_copy<std::uint32_t> device_records_;
    device_copy<file_plan> device_plans_;
    device_copy<file_shadow> device_shadows_;
    device_copy<write_report> device_report_;
    device_copy<std::byte> scratch_;
    std::vector<std::byte> second_scratch_;
    std::vector<std::unique_ptr<device_copy<model::version>>> device_versions_;
    std::unique_ptr<runtime> rt_, second_;
    write_report second_report_{};
    write_coverage met_;
    std::uint64_t round_ = 0;
    bool good_ = true;
};

// Shorter runs need not have met everything.
constexpr std::uint64_t operations_for_all = 400000;

}  // namespace

int main(int count, char** words) {
    run_settings s;
    for (int i = 1; i < count; ++i) {
        const std::string word = words[i];
        if (word == "--drop") s.drop = true;
        else if (i + 1 < count && word == "--seed") s.seed = std::strtoull(words[++i], nullptr, 0);
        else if (i + 1 < count && word == "--seeds")
            s.seeds = std::strtoull(words[++i], nullptr, 0);
        else if (i + 1 < count && word == "--operations")
            s.operations = std::strtoull(words[++i], nullptr, 0);
        else
            return std::cerr << "usage: " << words[0]
                             << " [--seed N] [--seeds N] [--operations N] [--drop]\n",
                   2;
    }
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
        return std::cout << "skipped: no GPU in this machine\n", 77;
    write_coverage met;
    const bool good = run_seeds("write model", s, s.seeds, operations_for_all, met,
                                [](const run_settings& of_seed, write_coverage& all) {
                                    gpu_write_run test(of_seed, of_seed.seed);
                                    const bool right = test.run();
                                    all.add(test.met());
                                    return right;
                                });
    return good ? 0 : 1;
}
