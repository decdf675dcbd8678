// The model test on the GPU: the same actors, operations and oracle as on the cpu (tests/model), run as groups of every
// width over a tiny cache. The host changes files between launches; the checks that hold when nobody is inside a verb run
// on a copy of the cache.
//
//   penstock_model_gpu [--seed N] [--seeds N] [--operations N] [--canary]
//
// --canary lets the kernel expect other files than there are: the run must then fail.
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>

#include "device/cache_copy.cuh"
#include "model/actor.hpp"
#include "model/host_files.hpp"
#include "penstock/penstock.hpp"

using namespace penstock;
using namespace penstock::model;

namespace {

struct settings {
    std::uint64_t seed = 1, seeds = 1, operations = 100000;
    bool canary = false;
};

template <typename T>
T* device_array(std::uint64_t count) {
    T* out = nullptr;
    if (cudaMalloc(&out, count * sizeof(T)) != cudaSuccess) std::exit((std::cerr << "no device memory\n", 1));
    cudaMemset(out, 0, count * sizeof(T));
    return out;
}

class gpu_run {
public:
    gpu_run(const settings& s, std::uint64_t seed) : settings_(s), seed_(seed), folder_(make_folder()) {
        constexpr std::uint64_t pages[] = {4096, 512, 65536, 1024, 16384};
        constexpr std::uint64_t frames[] = {256, 1024, 64, 600, 2048};
        constexpr std::uint64_t open_limits[] = {100000, 2000, 600, 100000, 1000};
        const std::uint64_t frame_count = frames[mix64(seed) % 5];
        o_.where = backend::gpu;
        o_.page_bytes = pages[seed % 5];
        o_.cache_bytes = frame_count * o_.page_bytes;
        o_.table_bytes = 256 * 1024;
        o_.max_files = 40;
        o_.service_threads = 1 + mix64(seed ^ 8) % 3;
        o_.staging_bytes = std::uint64_t{1} << (20 + mix64(seed ^ 11) % 4);
        o_.frame_wait_ms = o_.request_wait_ms = 60000;
        o_.host_wait_ms = 10000;
        o_.roots = {folder_};
        w_.seed = mix64(seed + 1);
        w_.page_bytes = o_.page_bytes;
        max_open_ = open_limits[mix64(seed ^ 13) % 5];
        max_maps_ = frame_count / 4;
        states_.resize(w_.files());
        files_ = std::make_unique<host_files>(w_, folder_, states_.data());
        if (const status created = runtime::create(o_, rt_); !created) complain(created.message);
    }
    ~gpu_run() {
        rt_.reset();
        std::error_code ignored;
        std::filesystem::remove_all(folder_, ignored);
    }

    bool run() {
        if (!good_) return false;
        constexpr width widths[] = {width::warp, width::block, width::lane, width::tile8};
        report_ = device_array<report>(1);
        device_states_ = device_array<file_state>(w_.files());
        std::uint64_t actor = 0;
        for (std::uint64_t done = 0, round = 0; good_ && done < settings_.operations; ++round) {
            const width wide = widths[(seed_ + round) % 4];
            const std::uint64_t actors = wide == width::block ? 256 : 1024, steps = 100;
            launch_round(wide, actor, actors, steps);
            actor += actors;
            done += actors * steps;
            check();
            for (std::uint32_t i = 0; i < w_.small_files; ++i)
                if (mix(seed_, round, i) % 3 == 0) files_->change(i);
        }
        std::cout << "model: seed " << seed_ << ", gpu, page " << o_.page_bytes << ", frames " << o_.cache_bytes / o_.page_bytes
                  << ", " << last_.steps << " operations, " << last_.checks << " judged, " << files_->changes()
                  << " host changes: " << (good_ ? "passed" : "FAILED") << "\n  " << rt_->stats().to_json() << std::endl;
        cudaFree(report_), cudaFree(device_states_), cudaFree(scratch_);
        return good_;
    }

private:
    static std::string make_folder() {
        std::string name = (std::filesystem::temp_directory_path() / "penstock-model-XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) std::abort();
        return std::filesystem::canonical(name).string();
    }

    void complain(const std::string& what) {
        good_ = false;
        std::cout << "model: seed " << seed_ << ": " << what << std::endl;
    }

    void launch_round(width wide, std::uint64_t first, std::uint64_t actors, std::uint64_t steps) {
        const std::uint64_t stride = (10 * w_.page_bytes + 2 * guard_bytes + 16 + 63) & ~std::uint64_t{63};
        if (scratch_ == nullptr) scratch_ = device_array<std::byte>(stride * 1024);
        cudaMemcpy(device_states_, states_.data(), states_.size() * sizeof(file_state), cudaMemcpyHostToDevice);
        world expected = w_;
        if (settings_.canary) expected.seed ^= 1;
        const model_actor actor_of{expected, device_states_, report_, scratch_, stride, steps, first, max_open_, max_maps_};
        const launch_shape shape{128, 0};
        int code = 0;
        switch (wide) {
            case width::block: code = launch<width::block>(*rt_, actors, actor_of, shape); break;
            case width::lane: code = launch<width::lane>(*rt_, actors, actor_of, shape); break;
            case width::tile8: code = launch<width::tile8>(*rt_, actors, actor_of, shape); break;
            default: code = launch<width::warp>(*rt_, actors, actor_of, shape); break;
        }
        if (code != 0) complain("launch gave " + error_text(code) + "; " + rt_->health().message);
    }

    void check() {
        if (!good_) return;
        cudaMemcpy(states_.data(), device_states_, states_.size() * sizeof(file_state), cudaMemcpyDeviceToHost);
        if (cudaMemcpy(&last_, report_, sizeof last_, cudaMemcpyDeviceToHost) != cudaSuccess) return complain("no report");
        if (last_.failures > 0) {
            complain("FAILED: " + std::to_string(last_.wrong_bytes) + " wrong bytes, " + std::to_string(last_.wrong_results) +
                     " wrong results, " + std::to_string(last_.written_outside) + " written outside, " +
                     std::to_string(last_.changed_mappings) + " changed mappings");
            for (std::uint64_t i = 0; i < last_.failures && i < 4; ++i) {
                const failure& f = last_.kept[i];
                std::cout << "  actor " << f.actor << " step " << f.step << " verb " << f.what << " file " << f.file << " offset "
                          << f.offset << " length " << f.length << ": got " << f.got << ", expected " << f.expected
                          << "; versions " << f.floor << " to " << f.newest << std::endl;
            }
        }
        if (last_.open_held != 0 || last_.maps_held != 0) complain("the test itself lost count of what its actors hold");
        const test::cache_copy copy(*rt_);
        const auto found = engine::check_invariants(copy.view());
        if (found.rule != nullptr) complain("broken rule: " + std::string(found.rule) + ", at " + std::to_string(found.where));
        const statistics s = rt_->stats();
        if (s.opens != last_.opens || s.bytes_read != last_.bytes_read || s.errors != last_.errors || s.bad_requests != 0)
            complain("statistics differ from what the actors counted: " + s.to_json());
    }

    const settings settings_;
    const std::uint64_t seed_;
    const std::string folder_;
    options o_;
    world w_;
    std::uint64_t max_open_ = 0, max_maps_ = 0;
    std::vector<file_state> states_;
    std::unique_ptr<host_files> files_;
    std::unique_ptr<runtime> rt_;
    report* report_ = nullptr;
    file_state* device_states_ = nullptr;
    std::byte* scratch_ = nullptr;
    report last_{};
    bool good_ = true;
};

}  // namespace

int main(int count, char** words) {
    settings s;
    for (int i = 1; i < count; ++i) {
        const std::string word = words[i];
        if (word == "--canary") s.canary = true;
        else if (i + 1 < count && word == "--seed") s.seed = std::strtoull(words[++i], nullptr, 0);
        else if (i + 1 < count && word == "--seeds") s.seeds = std::strtoull(words[++i], nullptr, 0);
        else if (i + 1 < count && word == "--operations") s.operations = std::strtoull(words[++i], nullptr, 0);
        else return std::cerr << "usage: " << words[0] << " [--seed N] [--seeds N] [--operations N] [--canary]\n", 2;
    }
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return std::cout << "skipped: no GPU in this machine\n", 77;
    bool good = true;
    for (std::uint64_t i = 0; i < s.seeds; ++i) good = gpu_run(s, s.seed + i).run() && good;
    return good ? 0 : 1;
}
