// Regions in the page cache, read by kernels that know nothing of Penstock. Skipped, and says so,
// without a GPU.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "device/support.cuh"
#include "penstock/region.hpp"

namespace penstock::test::region_in_place_tests {

namespace {

constexpr std::uint64_t mib = 1u << 20;

__global__ void add_up(const std::uint64_t* words, std::uint64_t count, unsigned long long* sum) {
    unsigned long long own = 0;
    for (std::uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += std::uint64_t{gridDim.x} * blockDim.x)
        own += words[i];
    atomicAdd(sum, own);
}

// Counts bytes that are neither the old ones nor zero.
__global__ void count_others(const std::uint8_t* region, const std::uint8_t* old,
                             std::uint64_t count, unsigned long long* others) {
    for (std::uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += std::uint64_t{gridDim.x} * blockDim.x)
        if (region[i] != old[i] && region[i] != 0) atomicAdd(others, 1ull);
}

class region_in_place : public testing::Test {
protected:
    void SetUp() override {
        PENSTOCK_NEEDS_GPU();
        options o = gpu_options(folder_);
        o.writable = true;
        o.log = [this](const std::string& line) { log_ += line + "\n"; };
        rt_ = make_runtime(o);
        ASSERT_NE(rt_, nullptr);
    }
    void make_file(std::uint64_t bytes) {
        content_ = pattern(7, bytes);
        write_file(path_, content_);
        let_files_settle();
    }
    std::unique_ptr<file_region> map(const region_options& settings = {
                                         .placement = region_placement::in_place}) {
        std::unique_ptr<file_region> out;
        const status s = map_region(*rt_, path_, 0, 0, protection::read, settings, out);
        EXPECT_TRUE(s.ok()) << s.message;
        return out;
    }
    void write(std::uint64_t at, const std::vector<std::uint8_t>& bytes, int flags = 0) const {
        const int fd = ::open(path_.c_str(), O_WRONLY | flags);
        ASSERT_EQ(::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(at)),
                  static_cast<ssize_t>(bytes.size()));
        ::close(fd);
    }
    static unsigned long long sum_of(const std::vector<std::uint8_t>& bytes) {
        unsigned long long out = 0;
        for (std::size_t i = 0; i + 8 <= bytes.size(); i += 8) {
            std::uint64_t word = 0;
            std::memcpy(&word, bytes.data() + i, 8);
            out += word;
        }
        return out;
    }
    static unsigned long long sum_on_gpu(const file_region& r, cudaStream_t stream = nullptr) {
        const device_counters sum(1);
        add_up<<<264, 256, 0, stream>>>(static_cast<const std::uint64_t*>(r.data()),
                                        r.size_bytes() / 8, sum.get());
        EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
        return sum.read()[0];
    }
    static cudaMemoryType type_of(const void* memory) {
        cudaPointerAttributes of{};
        if (cudaPointerGetAttributes(&of, memory) != cudaSuccess) cudaGetLastError();
        return of.type;
    }

    const temporary_folder folder_;
    const std::string path_ = folder_ / "f";
    std::vector<std::uint8_t> content_;
    std::string log_;
    std::unique_ptr<runtime> rt_;
};

}  // namespace

TEST_F(region_in_place, a_kernel_adds_up_the_file_by_one_pointer_over_all_parts) {
    make_file(200 * mib + 4096 + 8);
    const auto r = map();
    ASSERT_NE(r, nullptr);
    const region_traffic t = r->traffic();
    EXPECT_EQ(t.bytes_registered, 200 * mib + 8192);
    EXPECT_EQ(t.bytes_on_device, 0u);
    EXPECT_GT(t.register_ns, 0u);
    EXPECT_EQ(sum_on_gpu(*r), sum_of(content_));
    RecordProperty("register_ns", std::to_string(t.register_ns));
    std::printf("registering %llu bytes took %.2f ms\n",
                static_cast<unsigned long long>(t.bytes_registered), 1e-6 * t.register_ns);
    EXPECT_EQ(r->close(), 0);
    EXPECT_EQ(log_, "");
}

TEST_F(region_in_place, a_file_of_one_and_a_half_times_the_memory_that_it_may_use) {
    make_file(96 * mib);
    const auto r = map({.device_bytes = 64 * mib, .placement = region_placement::automatic});
    ASSERT_NE(r, nullptr);
    EXPECT_EQ(r->placement(), region_placement::in_place) << r->placement_reason();
    EXPECT_NE(log_.find("in place, because"), std::string::npos) << log_;
    EXPECT_EQ(sum_on_gpu(*r), sum_of(content_));
    const auto fits = map({.placement = region_placement::automatic});
    EXPECT_EQ(fits->placement(), region_placement::filled) << fits->placement_reason();
    EXPECT_EQ(sum_on_gpu(*fits), sum_of(content_));
}

TEST_F(region_in_place, a_kernel_after_an_acquire_reads_what_a_program_wrote) {
    make_file(8 * mib);
    const auto r = map();
    ASSERT_NE(r, nullptr);
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    for (int round = 0; round < 50; ++round) {
        EXPECT_EQ(sum_on_gpu(*r, stream), sum_of(content_)) << "round " << round;
        const auto bytes = pattern(static_cast<std::uint64_t>(round) + 100, 3000);
        const std::uint64_t at = static_cast<std::uint64_t>(round) * 123457 % (7 * mib);
        write(at, bytes);
        std::copy(bytes.begin(), bytes.end(), content_.begin() + static_cast<std::ptrdiff_t>(at));
        EXPECT_EQ(r->acquire(stream), 0);
    }
    EXPECT_EQ(sum_on_gpu(*r, stream), sum_of(content_));
    cudaStreamDestroy(stream);
}

TEST_F(region_in_place, a_captured_graph_may_use_it) {
    make_file(8 * mib);
    const auto r = map();
    ASSERT_NE(r, nullptr);
    const device_counters sum(1);
    cudaStream_t stream = nullptr;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t ready = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), cudaSuccess);
    EXPECT_EQ(r->acquire(stream), 0);
    add_up<<<264, 256, 0, stream>>>(static_cast<const std::uint64_t*>(r->data()),
                                    r->size_bytes() / 8, sum.get());
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&ready, graph, 0), cudaSuccess);
    write(5 * mib, pattern(99, 5000));
    const auto changed = pattern(99, 5000);
    std::copy(changed.begin(), changed.end(), content_.begin() + 5 * mib);
    EXPECT_EQ(r->acquire(stream), 0);
    ASSERT_EQ(cudaGraphLaunch(ready, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(sum.read()[0], sum_of(content_));
    cudaGraphExecDestroy(ready);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
}

TEST_F(region_in_place, nothing_stays_registered) {
    make_file(4 * mib);
    std::size_t before = 0, after = 0, all = 0;
    map()->close();
    cudaMemGetInfo(&before, &all);
    for (int i = 0; i < 100; ++i) {
        const auto r = map(), second = map();
        ASSERT_NE(r, nullptr);
        ASSERT_NE(second, nullptr);
        const void* const at = r->data();
        EXPECT_EQ(type_of(at), cudaMemoryTypeHost);
        if (i % 10 == 0) {
            EXPECT_EQ(sum_on_gpu(*second), sum_of(content_));
        }
        EXPECT_EQ(r->close(), 0);
        EXPECT_EQ(type_of(at), cudaMemoryTypeUnregistered) << "round " << i;
    }
    cudaMemGetInfo(&after, &all);
    EXPECT_LE(before, after + 4 * mib) << "of device memory";
}

TEST_F(region_in_place, a_file_that_is_cut_is_stale_and_kernels_do_not_fault) {
    make_file(6 * mib + 100);
    const auto r = map();
    ASSERT_NE(r, nullptr);
    shared_array<std::uint8_t> old(content_.size());
    std::copy(content_.begin(), content_.end(), old.get());
    ASSERT_EQ(::truncate(path_.c_str(), 3 * mib + 10), 0);
    EXPECT_EQ(r->acquire(), -ESTALE);
    EXPECT_NE(log_.find("shorter than the region"), std::string::npos) << log_;
    // The GPU has pages that were the file's: the old bytes, or zeros behind the cut.
    const device_counters others(1);
    count_others<<<264, 256>>>(static_cast<const std::uint8_t*>(r->data()), old.get(),
                               content_.size(), others.get());
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(others.read()[0], 0u);
    EXPECT_EQ(r->close(), 0);
}

// Its pages are others then, which are registered at the same addresses.
TEST_F(region_in_place, a_file_that_is_written_anew_is_read_after_an_acquire) {
    make_file(140 * mib + 100);
    const auto r = map();
    ASSERT_NE(r, nullptr);
    EXPECT_EQ(sum_on_gpu(*r), sum_of(content_));
    const void* const at = r->data();
    for (const std::uint64_t seed : {8u, 9u, 10u}) {
        content_ = pattern(seed, content_.size());
        write(0, content_, O_TRUNC);
        EXPECT_EQ(r->acquire(), 0);
        EXPECT_EQ(r->data(), at);
        EXPECT_EQ(sum_on_gpu(*r), sum_of(content_)) << "seed " << seed;
    }
    EXPECT_GT(r->traffic().bytes_registered, 4 * 140 * mib);
    EXPECT_EQ(r->close(), 0);
    EXPECT_EQ(type_of(at), cudaMemoryTypeUnregistered);
}

TEST_F(region_in_place, holes_and_writes_past_the_page_cache_are_seen_after_an_acquire) {
    make_file(8 * mib);
    const auto r = map();
    ASSERT_NE(r, nullptr);
    EXPECT_EQ(sum_on_gpu(*r), sum_of(content_));
    const int direct = ::open(path_.c_str(), O_RDWR | O_DIRECT);
    if (direct >= 0) {
        const auto bytes = pattern(50, mib);
        void* aligned = nullptr;
        ASSERT_EQ(::posix_memalign(&aligned, 4096, mib), 0);
        std::memcpy(aligned, bytes.data(), mib);
        ASSERT_EQ(::pwrite(direct, aligned, mib, 2 * mib), static_cast<ssize_t>(mib));
        std::free(aligned);
        ::close(direct);
        std::copy(bytes.begin(), bytes.end(), content_.begin() + 2 * mib);
        EXPECT_EQ(r->acquire(), 0);
        EXPECT_EQ(sum_on_gpu(*r), sum_of(content_)) << "a write past the page cache";
    }
    const int fd = ::open(path_.c_str(), O_RDWR);
    const int holed =
        ::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 5 * mib, 64 << 10);
    ::close(fd);
    if (holed != 0) return;
    std::fill_n(content_.begin() + 5 * mib, 64 << 10, 0);
    EXPECT_EQ(r->acquire(), 0);
    EXPECT_EQ(sum_on_gpu(*r), sum_of(content_)) << "a hole";
}

// What is known of a copy by CUDA over the border of two parts: it is right, or refused.
TEST_F(region_in_place, a_copy_over_the_border_of_two_parts_is_right_or_refused) {
    make_file(160 * mib);
    const auto r = map();
    ASSERT_NE(r, nullptr);
    std::vector<std::uint8_t> out(content_.size());
    const cudaError_t code = cudaMemcpy(out.data(), r->data(), content_.size(), cudaMemcpyDefault);
    cudaGetLastError();
    std::printf("a copy over parts: %s\n", cudaGetErrorString(code));
    if (code == cudaSuccess) EXPECT_TRUE(out == content_);
    else EXPECT_EQ(code, cudaErrorInvalidValue);
    EXPECT_EQ(sum_on_gpu(*r), sum_of(content_)) << "the context is whole";
}

TEST_F(region_in_place, system_is_for_devices_that_read_pageable_memory) {
    make_file(8 * mib);
    int pageable = 0;
    cudaDeviceGetAttribute(&pageable, cudaDevAttrPageableMemoryAccess, 0);
    std::unique_ptr<file_region> r;
    const status s =
        map_region(*rt_, path_, 0, 0, protection::read, {.placement = region_placement::system}, r);
    if (pageable == 0) {
        EXPECT_EQ(s.code, -EOPNOTSUPP);
        EXPECT_NE(s.message.find("use in_place"), std::string::npos) << s.message;
        return;
    }
    ASSERT_TRUE(s.ok()) << s.message;
    EXPECT_EQ(r->traffic().bytes_registered, 0u);
    EXPECT_EQ(sum_on_gpu(*r), sum_of(content_));
    write(100, {1, 2, 3});
    content_[100] = 1, content_[101] = 2, content_[102] = 3;
    EXPECT_EQ(r->acquire(), 0);
    EXPECT_EQ(sum_on_gpu(*r), sum_of(content_));
}

}  // namespace penstock::test::region_in_place_tests
