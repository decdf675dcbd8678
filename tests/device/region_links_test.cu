// Regions of one file on two GPUs, the second filled from the memory of the first. Skipped, and
// says so, on a machine with one GPU.
#include <fcntl.h>
#include <unistd.h>

#include "device/support.cuh"
#include "penstock/region.hpp"

namespace penstock::test {

namespace {

constexpr std::uint64_t page_bytes = 4096, pages = 20000, bytes = pages * page_bytes;
constexpr unsigned long long longest_ns = 20'000'000'000;

// A byte of every `step`th page becomes another.
__global__ void change_pages(std::uint8_t* region, std::uint64_t step) {
    const std::uint64_t page = (blockIdx.x * blockDim.x + threadIdx.x) * step;
    if (page < pages) region[page * page_bytes + 17] ^= 0x5a;
}

// Changes a byte of every page, over and over, until the host says that it is enough. It only loads
// that word: where the bus knows no atomic operations, one that changes nothing would store what it
// read over what the host stored.
__global__ void keep_changing(std::uint8_t* region, unsigned* started, const unsigned* enough) {
    unsigned long long began = 0, now = 0;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(began));
    for (now = began; now - began < longest_ns;) {
        for (std::uint64_t page = blockIdx.x * blockDim.x + threadIdx.x; page < pages;
             page += std::uint64_t{gridDim.x} * blockDim.x)
            region[page * page_bytes + 100] += 1;
        if (blockIdx.x == 0 && threadIdx.x == 0)
            atomic_store<order::relaxed, scope::system>(started, 1u);
        __nanosleep(1000);
        if (atomic_load<order::relaxed, scope::system>(enough) != 0) return;
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    }
}

class region_links : public testing::Test {
protected:
    void SetUp() override {
        int count = 0;
        if (cudaGetDeviceCount(&count) != cudaSuccess) cudaGetLastError();
        if (count < 2) GTEST_SKIP() << "this machine has fewer than two GPUs";
        int reached = 0;
        cudaDeviceCanAccessPeer(&reached, 1, 0);
        if (reached == 0) GTEST_SKIP() << "these GPUs do not reach each other's memory";
        write_file(path_, content_);
        let_files_settle();
        options o = gpu_options(folder_);
        o.devices = {0, 1};
        o.writable = true;
        o.log = [this](const std::string& line) { log_ += line + "\n"; };
        rt_ = make_runtime(o);
        ASSERT_NE(rt_, nullptr);
    }
    void TearDown() override { cudaSetDevice(0); }

    std::unique_ptr<file_region> map(std::uint32_t device, protection access,
                                     std::optional<std::uint64_t> device_bytes = std::nullopt) {
        std::unique_ptr<file_region> out;
        const status s = map_region(
            *rt_, path_, 0, 0, access,
            {.outside_writers = false, .device_bytes = device_bytes, .device = device}, out);
        EXPECT_TRUE(s.ok()) << s.message;
        return out;
    }
    // The file gets other bytes, which no part of Penstock is told of: so it shows where pages come
    // from.
    void change_unheard() const {
        const auto other = pattern(8, bytes);
        const int fd = ::open(path_.c_str(), O_WRONLY);
        ASSERT_EQ(::pwrite(fd, other.data(), bytes, 0), static_cast<ssize_t>(bytes));
        ::close(fd);
    }
    void change(file_region& r, std::uint64_t step) {
        cudaSetDevice(0);
        change_pages<<<(pages + 255) / 256, 256>>>(static_cast<std::uint8_t*>(r.data()), step);
        ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
        for (std::uint64_t page = 0; page < pages; page += step)
            content_[page * page_bytes + 17] ^= 0x5a;
    }
    [[nodiscard]] bool is_right(const file_region& r, int device) const {
        cudaSetDevice(device);
        std::vector<std::uint8_t> there(bytes);
        EXPECT_EQ(cudaMemcpy(there.data(), r.data(), bytes, cudaMemcpyDefault), cudaSuccess);
        return there == content_;
    }

    const temporary_folder folder_;
    const std::string path_ = folder_ / "f";
    std::vector<std::uint8_t> content_ = pattern(7, bytes);
    std::string log_;
    std::unique_ptr<runtime> rt_;
};

}  // namespace

TEST_F(region_links, a_region_is_filled_from_the_other_gpu) {
    for (const protection of_first : {protection::read, protection::read_write})
        for (const std::uint32_t device : {1u, 0u}) {
            const auto first = map(0, of_first);
            change_unheard();
            const auto second = map(device, protection::read_write);
            EXPECT_EQ(second->traffic().pages_from_neighbours, pages);
            EXPECT_TRUE(is_right(*second, static_cast<int>(device)));
            EXPECT_EQ(second->release(), 0) << "what was copied is its base too";
            write_file(path_, content_);
            let_files_settle();
        }
    EXPECT_EQ(log_, "");
}

TEST_F(region_links, released_pages_come_from_the_gpu_that_changed_them) {
    const auto writer = map(0, protection::read_write), reader = map(1, protection::read),
               other = map(1, protection::read_write);
    for (const std::uint64_t step : {1, 3, 100}) {
        change(*writer, step);
        const std::uint64_t changed = (pages + step - 1) / step,
                            before = reader->traffic().pages_from_neighbours;
        EXPECT_EQ(writer->release(), static_cast<std::int64_t>(changed));
        EXPECT_EQ(reader->acquire(), static_cast<std::int64_t>(changed));
        EXPECT_EQ(reader->traffic().pages_from_neighbours, before + changed);
        EXPECT_TRUE(is_right(*reader, 1)) << "every " << step << "th page";
        EXPECT_EQ(other->acquire(), static_cast<std::int64_t>(changed));
        EXPECT_TRUE(is_right(*other, 1)) << "every " << step << "th page";
    }
}

// Kernels change pages and never bases, so one that runs meanwhile neither shows nor is waited for.
TEST_F(region_links, a_kernel_that_changes_the_other_region_meanwhile_does_not_show) {
    const auto writer = map(0, protection::read_write), reader = map(1, protection::read);
    change(*writer, 1);
    EXPECT_EQ(writer->release(), static_cast<std::int64_t>(pages));
    const shared_array<unsigned> words(2);
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    keep_changing<<<8, 256, 0, stream>>>(static_cast<std::uint8_t*>(writer->data()), words.get(),
                                         words.get() + 1);
    ASSERT_EQ(cudaGetLastError(), cudaSuccess);
    const std::atomic_ref<unsigned> started(words[0]), enough(words[1]);
    while (started == 0 && cudaStreamQuery(stream) == cudaErrorNotReady) std::this_thread::yield();
    EXPECT_EQ(reader->acquire(), static_cast<std::int64_t>(pages));
    EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady) << "the acquire waited for the kernel";
    enough = 1;
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    cudaStreamDestroy(stream);
    EXPECT_EQ(reader->traffic().pages_from_neighbours, 2 * pages);
    EXPECT_TRUE(is_right(*reader, 1));
}

TEST_F(region_links, a_region_that_lies_in_host_memory_in_part_is_no_source) {
    const auto first = map(0, protection::read, bytes / 2);
    const auto second = map(1, protection::read);
    EXPECT_EQ(second->traffic().pages_from_neighbours, 0u);
    EXPECT_NE(log_.find("host memory"), std::string::npos) << log_;
    EXPECT_TRUE(is_right(*second, 1));
}

}  // namespace penstock::test
