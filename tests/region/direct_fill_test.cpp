// Fills of regions by cuFile, for which a library stands in that a test tells what to say and when
// to fail (cufile_stand_in.cpp).
#include <gtest/gtest.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <mutex>

#include "fault/faulty_environment.hpp"
#include "region/cufile_stand_in.hpp"
#include "region/direct_fill.hpp"
#include "region/support.hpp"

namespace penstock::test {

namespace {

namespace cufile = host::cufile;
using content = std::vector<std::uint8_t>;
using host::storage_kind;

constexpr std::uint64_t grain = 4096, mib = 1 << 20;
// What is automatic begins with, for the stand-in.
constexpr std::uint64_t least_fill = 4 * mib;
constexpr unsigned nvme_bit = 1u << cufile::nvme;
const host::storage_facts on_nvme{storage_kind::nvme, "ext4 on nvme0n1"};

stand_in_controls& stand_in() {
    void* const library = ::dlopen(PENSTOCK_CUFILE_STAND_IN, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << ::dlerror();
    return *reinterpret_cast<stand_in_controls* (*)()>(::dlsym(library, "stand_in"))();
}

host::direct_storage_settings settings_of_stand_in() {
    return {.library = PENSTOCK_CUFILE_STAND_IN,
            .needs_cuda_driver = false,
            .least_fill_bytes = least_fill,
            .storage = on_nvme};
}

// Opens past the page cache as an ordinary open: a test's folder need not allow the real thing.
class plain_direct : public fault::faulty_environment {
public:
    int open_direct(int fd, std::uint32_t& grain_bytes) override {
        grain_bytes = grain;
        if (refuses_) return -EINVAL;
        const std::string name = "/proc/self/fd/" + std::to_string(fd);
        const int out = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
        return out < 0 ? -errno : out;
    }
    void refuse() { refuses_ = true; }

private:
    bool refuses_ = false;
};

class direct_region : public testing::TestWithParam<backend> {
protected:
    void SetUp() override {
        if (GetParam() == backend::gpu && !gpu_is_there()) GTEST_SKIP() << "no GPU in this machine";
        library_.reset();
        env_.say_cached(0);
        options_ = region_runtime(folder_, GetParam());
        options_.direct_storage = direct_mode::on;
        options_.log = [this](const std::string& line) {
            const std::lock_guard lock(mutex_);
            log_ += line + "\n";
        };
    }
    void has_nvidia_fs() {
        library_.major = 2;
        library_.minor = 17;
        library_.storage = nvme_bit;
    }
    void make(std::uint64_t size) {
        content_ = pattern(size, size);
        write_file(path_, content_);
        storage_ = std::make_unique<host::direct_storage>(of_storage_);
        host::runtime_hooks hooks;
        hooks.env = &env_;
        hooks.direct = storage_.get();
        runtime_ = make_runtime(options_, hooks);
    }
    std::unique_ptr<file_region> map(protection access = protection::read) {
        auto out = map_whole(*runtime_, path_, access);
        EXPECT_EQ(library_.files, 0) << "a file stayed open";
        EXPECT_EQ(library_.buffers, 0) << "a buffer stayed registered";
        return out;
    }
    [[nodiscard]] bool is_right(file_region& r) const {
        return peek(r, GetParam(), 0, content_.size()) == content_;
    }
    void expect_all_right(file_region& r) {
        EXPECT_TRUE(is_right(r));
        const std::uint64_t behind = (grain - content_.size() % grain) % grain;
        EXPECT_EQ(peek(r, GetParam(), content_.size(), behind), content(behind, 0));
        EXPECT_EQ(r.traffic().pages_fetched, (content_.size() + grain - 1) / grain);
    }
    [[nodiscard]] std::string log() {
        const std::lock_guard lock(mutex_);
        return log_;
    }

    const temporary_folder folder_;
    const std::string path_ = folder_ / "f";
    stand_in_controls& library_ = stand_in();
    plain_direct env_;
    host::direct_storage_settings of_storage_ = settings_of_stand_in();
    std::unique_ptr<host::direct_storage> storage_;
    content content_;
    options options_;
    std::mutex mutex_;
    std::string log_;
    std::unique_ptr<runtime> runtime_;
};

TEST_P(direct_region, a_large_cold_fill_comes_by_the_direct_path) {
    options_.direct_storage = direct_mode::automatic;
    has_nvidia_fs();
    make(least_fill + 700);
    const auto r = map();
    // All but the batch of the end, which is the larger the fewer workers there are.
    EXPECT_GE(r->traffic().pages_direct, least_fill / grain / 2);
    EXPECT_LE(r->traffic().pages_direct, least_fill / grain);
    EXPECT_EQ(library_.bytes, r->traffic().pages_direct * grain);
    EXPECT_NE(log().find("straight to the device: NVMe by nvidia-fs 2.17"), std::string::npos)
        << log();
    expect_all_right(*r);
}

// The page in which the file ends has zeros behind its bytes, which the library would not bring:
// its read would end early, and nothing more would be read by it.
TEST_P(direct_region, the_end_of_an_odd_file_is_not_asked_for) {
    for (std::uint64_t size = mib; size <= 8 * mib; size += mib) {
        make(size - 100);
        const auto r = map();
        expect_all_right(*r);
        EXPECT_EQ(library_.bytes, r->traffic().pages_direct * grain) << size;
        EXPECT_EQ(log().find("cuFile did not read it"), std::string::npos) << size << log();
        library_.bytes = 0;
    }
}

TEST_P(direct_region, a_warm_or_a_small_file_loads_nothing) {
    options_.direct_storage = direct_mode::automatic;
    has_nvidia_fs();
    make(least_fill - mib);
    expect_all_right(*map());
    env_.say_cached(1);
    make(least_fill + mib);
    const auto r = map();
    expect_all_right(*r);
    EXPECT_EQ(r->traffic().pages_direct, 0u);
    EXPECT_EQ(library_.opens, 0u);
    EXPECT_EQ(log().find("direct"), std::string::npos) << log();
}

TEST_P(direct_region, without_a_direct_path_one_line_says_so) {
    options_.direct_storage = direct_mode::automatic;
    make(least_fill);
    expect_all_right(*map());
    const auto r = map();
    EXPECT_EQ(r->traffic().pages_direct, 0u);
    EXPECT_EQ(library_.reads, 0u);
    const std::string line =
        "no direct path from storage to the device: cuFile 1.20 has its "
        "compatibility mode only: nvidia-fs is not loaded";
    const std::size_t at = log().find(line);
    EXPECT_NE(at, std::string::npos) << log();
    EXPECT_EQ(log().find(line, at + 1), std::string::npos) << "said twice";
}

TEST_P(direct_region, storage_without_a_path_loads_nothing) {
    options_.direct_storage = direct_mode::automatic;
    has_nvidia_fs();
    of_storage_.storage = {storage_kind::other, "tmpfs"};
    make(least_fill);
    expect_all_right(*map());
    EXPECT_EQ(library_.opens, 0u);
    EXPECT_NE(log().find("cuFile has no path from tmpfs"), std::string::npos) << log();
}

TEST_P(direct_region, off_loads_nothing) {
    options_.direct_storage = direct_mode::off;
    has_nvidia_fs();
    make(8 * mib);
    expect_all_right(*map());
    EXPECT_EQ(library_.opens, 0u);
}

TEST_P(direct_region, on_reads_in_compatibility_mode_too_and_says_so) {
    env_.say_cached(1);
    make(8 * mib + 5000);
    const auto r = map();
    EXPECT_GT(r->traffic().pages_direct, 0u);
    EXPECT_EQ(library_.bytes, r->traffic().pages_direct * grain);
    EXPECT_NE(log().find("by cuFile in compatibility mode"), std::string::npos) << log();
    expect_all_right(*r);
}

TEST_P(direct_region, a_region_that_is_written_has_the_bytes_as_its_base) {
    make(8 * mib + 5000);
    const auto r = map(protection::read_write);
    EXPECT_GT(r->traffic().pages_direct, 0u);
    expect_all_right(*r);
    EXPECT_EQ(r->release(), 0);
    poke(*r, GetParam(), 3 * mib, {1, 2, 3});
    EXPECT_EQ(r->release(), 1);
    std::copy_n(std::begin({1, 2, 3}), 3, content_.begin() + 3 * mib);
    EXPECT_TRUE(read_file(path_) == content_);
}

TEST_P(direct_region, what_changes_later_comes_the_ordinary_way) {
    make(8 * mib);
    const auto r = map();
    const std::uint64_t reads = library_.reads;
    let_files_settle();
    content_ = pattern(5, 8 * mib);
    patch_file(path_, 0, content_);
    EXPECT_EQ(r->acquire(), static_cast<std::int64_t>(8 * mib / grain));
    EXPECT_EQ(library_.reads, reads);
    EXPECT_TRUE(is_right(*r));
}

TEST_P(direct_region, short_reads_go_on) {
    library_.longest_read = 100'000;
    make(8 * mib);
    const auto r = map();
    EXPECT_EQ(r->traffic().pages_direct, 8 * mib / grain);
    expect_all_right(*r);
}

TEST_P(direct_region, after_a_failure_the_ordinary_way_brings_the_rest) {
    const std::pair<read_fault, const char*> faults[] = {
        {read_fault::error, "Input/output error"},
        {read_fault::library_code, "cuFile error 5011"},
        {read_fault::end, "bytes early"},
        {read_fault::too_many, "more bytes than it was asked for"}};
    for (const auto& [fault, words] : faults) {
        library_.reset();
        library_.fault = fault;
        library_.faulty_read = 3;
        log_.clear();
        make(16 * mib);
        const auto r = map();
        EXPECT_LT(r->traffic().pages_direct, 16 * mib / grain) << words;
        EXPECT_NE(log().find(words), std::string::npos) << log();
        expect_all_right(*r);
    }
}

TEST_P(direct_region, what_cannot_be_opened_is_read_the_ordinary_way) {
    const auto refused = [&](const std::string& words) {
        log_.clear();
        make(8 * mib);
        const auto r = map();
        EXPECT_EQ(r->traffic().pages_direct, 0u) << words;
        EXPECT_NE(log().find(words), std::string::npos) << log();
        expect_all_right(*r);
    };
    library_.open_code = 5001;
    refused("the nvidia-fs module is not loaded");
    library_.reset();
    library_.properties_code = 5002;
    refused("does not tell its properties");
    library_.reset();
    library_.file_code = 5008;
    refused("the file's storage is not supported");
    library_.reset();
    env_.refuse();
    refused("cannot be opened past the page cache: Invalid argument");
    of_storage_.library = folder_ / "none.so";
    refused("none.so");
    of_storage_.library = "libm.so.6";
    refused("the library has no cuFileDriverOpen");
}

TEST_P(direct_region, a_buffer_that_cannot_be_registered_is_read_to_all_the_same) {
    library_.buffer_code = 5036;
    make(8 * mib);
    const auto r = map();
    EXPECT_EQ(r->traffic().pages_direct, 8 * mib / grain);
    expect_all_right(*r);
}

TEST_P(direct_region, holes_are_zeros) {
    make(2 * mib);
    content_.resize(20 * mib);
    std::filesystem::resize_file(path_, 20 * mib);
    patch_file(path_, 17 * mib, pattern(4, mib));
    const content last = pattern(4, mib);
    std::copy(last.begin(), last.end(), content_.begin() + 17 * mib);
    EXPECT_TRUE(is_right(*map()));
}

// The comparison of these tests finds what no caller of the library could.
TEST_P(direct_region, canary_a_library_that_lies_is_found) {
    for (const read_fault fault : {read_fault::wrong_byte, read_fault::unread}) {
        library_.reset();
        library_.fault = fault;
        library_.faulty_read = 2;
        make(8 * mib);
        EXPECT_FALSE(is_right(*map()));
    }
}

INSTANTIATE_TEST_SUITE_P(on, direct_region, testing::Values(backend::cpu, backend::gpu),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace

// In its own way on a GPU only: a runtime of CPU threads has no use for cuFile.
TEST(direct_storage, cpu_threads_load_nothing) {
    stand_in().reset();
    const temporary_folder folder;
    write_file(folder / "f", pattern(1, 8 * mib));
    options o = region_runtime(folder, backend::cpu);
    o.direct_storage = direct_mode::on;
    o.cufile_library = PENSTOCK_CUFILE_STAND_IN;
    const auto rt = make_runtime(o);
    const auto r = map_whole(*rt, folder / "f", protection::read);
    EXPECT_EQ(r->traffic().pages_direct, 0u);
    EXPECT_EQ(stand_in().opens, 0u);
}

// The real library, in whichever mode it has here. PENSTOCK_CUFILE_LIBRARY names its file.
TEST(direct_storage, the_real_library_on_a_gpu) {
    if (!gpu_is_there()) GTEST_SKIP() << "no GPU in this machine";
    const temporary_folder folder;
    ::setenv("CUFILE_LOGFILE_PATH", "/dev/null", 0);
    options o = region_runtime(folder, backend::gpu);
    const char* const library = std::getenv("PENSTOCK_CUFILE_LIBRARY");
    if (library != nullptr) o.cufile_library = library;
    o.direct_storage = direct_mode::on;
    std::string log;
    o.log = [&](const std::string& line) { log += line + "\n"; };
    const auto rt = make_runtime(o);
    auto& storage = host::direct_storage::of_process(o.cufile_library);
    const host::cufile_report report = storage.report();
    if (!report.is_open) GTEST_SKIP() << report.why_not;
    std::printf("cuFile %d, nvidia-fs %u.%u, kinds %#x, by P2PDMA %#x; %s\n", report.version,
                report.nvfs_major, report.nvfs_minor, report.by_nvidia_fs, report.by_p2p,
                host::paths_of(report).words.c_str());
    const std::uint64_t size = 64 * mib + 700;
    const content bytes = pattern(3, size);
    write_file(folder / "f", bytes);
    for (const protection access : {protection::read, protection::read_write}) {
        const int fd = ::open((folder / "f").c_str(), O_RDONLY | O_CLOEXEC);
        ASSERT_EQ(::fsync(fd), 0);
        ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        ::close(fd);
        const auto r = map_whole(*rt, folder / "f", access);
        ASSERT_NE(r, nullptr);
        EXPECT_TRUE(peek(*r, backend::gpu, 0, size) == bytes);
        if (log.find("past the page cache") != std::string::npos ||
            log.find("cuFile does not take the file") != std::string::npos)
            GTEST_SKIP() << "read the ordinary way: " << log;
        EXPECT_GT(r->traffic().pages_direct, 0u) << log;
        EXPECT_EQ(r->release(), 0);
    }
    std::printf("%s", log.c_str());
}

TEST(direct_storage, a_library_that_does_not_come_back_is_given_up) {
    stand_in().reset();
    stand_in().holds_open = true;
    host::direct_storage_settings of = settings_of_stand_in();
    of.longest_open = std::chrono::milliseconds(20);
    host::direct_storage storage(of);
    const host::cufile_report report = storage.report();
    EXPECT_FALSE(report.is_open);
    EXPECT_EQ(report.why_not, "cuFile did not open within 20 ms");
    EXPECT_FALSE(storage.report().is_open) << "and is not tried again";
    while (stand_in().opens == 0) std::this_thread::yield();  // the thread may begin late
    EXPECT_EQ(stand_in().opens, 1u);
    stand_in().holds_open = false;
}

TEST(direct_storage, without_a_driver_the_library_is_not_called) {
    if (gpu_is_there()) GTEST_SKIP() << "there is a driver";
    stand_in().reset();
    host::direct_storage_settings of = settings_of_stand_in();
    of.needs_cuda_driver = true;
    host::direct_storage storage(of);
    EXPECT_NE(storage.report().why_not.find("NVIDIA driver"), std::string::npos);
    EXPECT_EQ(stand_in().opens, 0u);
}

TEST(direct_storage, a_driver_that_is_open_already_is_used) {
    stand_in().reset();
    stand_in().open_code = cufile::already_open;
    EXPECT_TRUE(host::direct_storage(settings_of_stand_in()).report().is_open);
}

TEST(direct_storage, a_child_of_fork_leaves_it_alone) {
    stand_in().reset();
    host::direct_storage storage(settings_of_stand_in());
    EXPECT_TRUE(storage.report().is_open);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        host::direct_storage fresh(settings_of_stand_in());
        const bool right =
            !storage.report().is_open && !fresh.report().is_open && stand_in().opens == 1;
        ::_exit(right ? 0 : 1);
    }
    int ended = 0;
    ASSERT_EQ(::waitpid(child, &ended, 0), child);
    EXPECT_TRUE(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
}

TEST(direct_storage, which_paths_a_report_has) {
    using host::path_from;
    host::cufile_report report;
    report.why_not = "it is not there";
    EXPECT_EQ(path_from(report, on_nvme).words, "it is not there");
    report.is_open = true;
    report.version = 1130;
    EXPECT_EQ(host::paths_of(report).words,
              "cuFile 1.13 has its compatibility mode only: nvidia-fs is not loaded, and there is "
              "no P2PDMA");
    report.by_p2p = nvme_bit;
    EXPECT_TRUE(path_from(report, on_nvme).is_direct);
    EXPECT_EQ(path_from(report, on_nvme).words, "NVMe by P2PDMA");
    EXPECT_EQ(path_from(report, {storage_kind::nfs, "NFS"}).words, "cuFile has no path from NFS");
    report.nvfs_major = 2;
    report.by_nvidia_fs = 1u << cufile::nfs;
    EXPECT_EQ(host::paths_of(report).words, "NVMe by P2PDMA, NFS by nvidia-fs 2.0");
    EXPECT_FALSE(path_from(report, {storage_kind::other, "tmpfs"}).is_direct);
    report.only_posix = true;
    EXPECT_FALSE(path_from(report, on_nvme).is_direct);
    EXPECT_FALSE(host::paths_of(report).is_direct);
}

TEST(direct_storage, what_the_library_reports_is_taken_over) {
    const auto asked = [](auto change) {
        stand_in().reset();
        change(stand_in());
        return host::direct_storage(settings_of_stand_in()).report();
    };
    EXPECT_EQ(asked([](auto& c) { c.storage = nvme_bit; }).by_nvidia_fs, 0u)
        << "without the module";
    EXPECT_EQ(asked([](auto& c) { c.storage = nvme_bit, c.major = 2; }).by_nvidia_fs, nvme_bit);
    const unsigned p2p = 1u << cufile::feature_p2p, pci = 1u << cufile::pci_p2pdma;
    EXPECT_EQ(asked([&](auto& c) { c.features = p2p, c.ways = pci; }).by_p2p, nvme_bit);
    EXPECT_EQ(asked([&](auto& c) { c.features = p2p; }).by_p2p, 0u);
    EXPECT_EQ(asked([&](auto& c) { c.ways = pci; }).by_p2p, 0u);
    EXPECT_TRUE(asked([](auto& c) { c.control = 1u << cufile::only_posix; }).only_posix);
}

TEST(storage_kind, disks_partitions_and_arrays) {
    namespace fs = std::filesystem;
    const temporary_folder folder;
    const std::string devices = folder / "dev";
    fs::create_directories(devices);
    const auto add = [&](const std::string& number, const std::string& place) {
        fs::create_directories(folder / place);
        fs::create_directory_symlink(folder / place, devices + "/" + number);
    };
    const auto put_on = [&](const std::string& place, const std::string& disk) {
        fs::create_directories(folder / (place + "/slaves"));
        const std::string name = fs::path(disk).filename().native();
        fs::create_directory_symlink(folder / disk, folder / (place + "/slaves/" + name));
    };
    add("259:1", "devices/pci/nvme/nvme0/nvme0n1/nvme0n1p1");
    add("259:2", "devices/pci/nvme/nvme1/nvme1n1");
    add("8:1", "devices/pci/ata1/host0/block/sda/sda1");
    add("254:0", "devices/pci/virtio1/block/vda");
    add("9:0", "devices/virtual/block/md0");
    put_on("devices/virtual/block/md0", "devices/pci/nvme/nvme0/nvme0n1/nvme0n1p1");
    put_on("devices/virtual/block/md0", "devices/pci/nvme/nvme1/nvme1n1");
    add("9:1", "devices/virtual/block/md1");
    put_on("devices/virtual/block/md1", "devices/pci/nvme/nvme1/nvme1n1");
    put_on("devices/virtual/block/md1", "devices/pci/ata1/host0/block/sda/sda1");
    add("9:2", "devices/virtual/block/loop");
    put_on("devices/virtual/block/loop", "devices/virtual/block/loop");
    const auto kind = [&](const char* number) {
        return host::kind_of_block_device(devices, number);
    };
    EXPECT_EQ(kind("259:1"), storage_kind::nvme);
    EXPECT_EQ(kind("259:2"), storage_kind::nvme);
    EXPECT_EQ(kind("8:1"), storage_kind::scsi);
    EXPECT_EQ(kind("254:0"), storage_kind::other);
    EXPECT_EQ(kind("9:0"), storage_kind::nvme);
    EXPECT_EQ(kind("9:1"), storage_kind::other) << "of two kinds";
    EXPECT_EQ(kind("9:2"), storage_kind::other) << "a circle ends";
    EXPECT_EQ(kind("1:1"), storage_kind::other) << "is not there";
}

TEST(storage_kind, what_the_kernel_has_for_it) {
    namespace fs = std::filesystem;
    const temporary_folder folder;
    const std::string none = folder / "none", module = folder / "module", gpu = folder / "gpu";
    const std::string driver = "/bus/pci/drivers/nvidia/0000:01:00.0";
    fs::create_directories(none + driver);
    fs::create_directories(module + "/module/nvidia_fs");
    fs::create_directories(gpu + driver + "/p2pmem");
    EXPECT_FALSE(host::kernel_reaches_gpus(folder / "not there"));
    EXPECT_FALSE(host::kernel_reaches_gpus(none));
    EXPECT_TRUE(host::kernel_reaches_gpus(module));
    EXPECT_TRUE(host::kernel_reaches_gpus(gpu));
}

}  // namespace penstock::test
