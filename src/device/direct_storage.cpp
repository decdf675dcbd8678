#include "device/direct_storage.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <exception>
#include <map>
#include <thread>
#include <utility>

#include "penstock/error.hpp"

namespace penstock::host {

namespace {

struct known_storage {
    storage_kind kind;
    unsigned bit;
    const char* words;
};

constexpr std::array<known_storage, 5> known_kinds{{
    {storage_kind::nvme, cufile::nvme, "NVMe"},
    {storage_kind::scsi, cufile::scsi, "SCSI"},
    {storage_kind::nfs, cufile::nfs, "NFS"},
    {storage_kind::lustre, cufile::lustre, "Lustre"},
    {storage_kind::gpfs, cufile::gpfs, "GPFS"},
}};

bool has(unsigned bits, unsigned bit) { return (bits >> bit & 1) != 0; }

std::string nvidia_fs_words(const cufile_report& report) {
    return "nvidia-fs " + std::to_string(report.nvfs_major) + "." +
           std::to_string(report.nvfs_minor);
}

// Why no kind of storage has a path; empty: some may have.
std::string why_none(const cufile_report& report) {
    if (!report.is_open) return report.why_not;
    if (report.only_posix) return "cufile.json has all reads go through host memory";
    if ((report.by_nvidia_fs | report.by_p2p) != 0) return {};
    return "cuFile" +
           (report.version == 0 ? std::string()
                                : " " + std::to_string(report.version / 1000) + "." +
                                      std::to_string(report.version % 1000 / 10)) +
           " has its compatibility mode only: " +
           (report.nvfs_major == 0 ? "nvidia-fs is not loaded, and there is no P2PDMA"
                                   : nvidia_fs_words(report) + " has no kind of storage");
}

// To open cuFile takes a while and leaves cufile.log behind.
constexpr const char* no_part_of_kernel =
    "the kernel has no part in one (neither nvidia-fs nor p2pmem of a GPU)";

// What a thread that opens cuFile leaves behind, also after the caller has gone on.
struct opening {
    std::mutex mutex;
    std::condition_variable ends;
    bool has_ended = false;
    cufile::error result{};
};

// A thread that is made meanwhile gets no signals.
class no_signals_here {
public:
    no_signals_here() {
        sigset_t all;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~no_signals_here() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    no_signals_here(const no_signals_here&) = delete;
    no_signals_here& operator=(const no_signals_here&) = delete;

private:
    sigset_t before_;
};

// Bounded: release 1.20 does not come back from the call where there is no CUDA driver.
bool open_within(cufile::error (*open)(), std::chrono::milliseconds longest, cufile::error& out) {
    const auto shared = std::make_shared<opening>();
    {
        const no_signals_here signals;  // they belong to the program's own threads
        std::thread([shared, open] {
            const cufile::error result = open();
            const std::lock_guard lock(shared->mutex);
            shared->result = result;
            shared->has_ended = true;
            shared->ends.notify_all();
        }).detach();
    }
    std::unique_lock lock(shared->mutex);
    if (!shared->ends.wait_for(lock, longest, [&] { return shared->has_ended; })) return false;
    out = shared->result;
    return true;
}

// A child of fork() inherits the library as it is, and neither its threads nor the device.
std::atomic<const process_owner*> opened_by{nullptr};

// In this process: a runtime on a GPU has loaded it.
bool is_cuda_driver_there() {
    void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (driver == nullptr) return false;
    ::dlclose(driver);
    return true;
}

}  // namespace

direct_path path_from(const cufile_report& report, const storage_facts& storage) {
    if (std::string why = why_none(report); !why.empty()) return {false, std::move(why)};
    for (const known_storage& known : known_kinds) {
        if (known.kind != storage.kind) continue;
        if (has(report.by_nvidia_fs, known.bit))
            return {true, std::string(known.words) + " by " + nvidia_fs_words(report)};
        if (has(report.by_p2p, known.bit)) return {true, std::string(known.words) + " by P2PDMA"};
    }
    return {false, "cuFile has no path from " +
                       (storage.words.empty() ? "the file's storage" : storage.words)};
}

direct_path paths_of(const cufile_report& report) {
    if (std::string why = why_none(report); !why.empty()) return {false, std::move(why)};
    direct_path out{true, ""};
    for (const known_storage& known : known_kinds) {
        const direct_path path = path_from(report, {known.kind, ""});
        if (path.is_direct) out.words += (out.words.empty() ? "" : ", ") + path.words;
    }
    if (out.words.empty())
        return {false,
                "cuFile has a path for kinds of storage only that "
                "Penstock does not know"};
    return out;
}

direct_storage& direct_storage::of_process(const std::string& library) {
    struct all_libraries {
        std::mutex mutex;
        std::map<std::string, std::unique_ptr<direct_storage>> by_name;
    };
    auto& all = one_of_process<all_libraries>();
    const std::lock_guard lock(all.mutex);
    std::unique_ptr<direct_storage>& found = all.by_name[library];
    if (found == nullptr) {
        direct_storage_settings settings;
        settings.library = library;
        found = std::make_unique<direct_storage>(std::move(settings));
    }
    return *found;
}

cufile_report direct_storage::report() {
    if (!owner_.here()) return {.why_not = "cuFile belongs to the parent of this process"};
    const std::lock_guard lock(mutex_);
    if (!report_) {
        cufile_report fresh;
        open_library(fresh);
        report_ = std::move(fresh);
    }
    return *report_;
}

bool direct_storage::may_have_path() const {
    return settings_.storage ? true : kernel_reaches_gpus();
}

void direct_storage::open_library(cufile_report& out) try {
    if (settings_.needs_cuda_driver && !is_cuda_driver_there()) {
        out.why_not = "the NVIDIA driver (libcuda.so.1) is not in use";
        return;
    }
    // Acquire: pairs with the exchange below, so that the owner is whole.
    const process_owner* const first = opened_by.load(std::memory_order_acquire);
    if (first != nullptr && !first->here()) {
        out.why_not = "cuFile was opened by the parent of this process";
        return;
    }
    if (!cufile::load(settings_.library, calls_, out.why_not)) return;
    // Release: pairs with the load above. Kept until the process ends.
    const process_owner* none = nullptr;
    auto here = std::make_unique<process_owner>();
    if (opened_by.compare_exchange_strong(none, here.get(), std::memory_order_acq_rel))
        static_cast<void>(here.release());
    cufile::error result{};
    if (!open_within(calls_.open, settings_.longest_open, result)) {
        out.why_not =
            "cuFile did not open within " + std::to_string(settings_.longest_open.count()) + " ms";
        return;
    }
    if (result.code != 0 && result.code != cufile::already_open) {
        out.why_not = "cuFile did not open: " + cufile::text_of(result);
        return;
    }
    ask(out);
} catch (const std::exception&) {  // no memory, or no thread
    out = {.why_not = "the system has no memory or thread left for cuFile"};
}

void direct_storage::ask(cufile_report& out) const {
    cufile::properties told{};
    if (const cufile::error e = calls_.get_properties(&told); e.code != 0) {
        out.why_not = "cuFile does not tell its properties: " + cufile::text_of(e);
        return;
    }
    out.is_open = true;
    if (calls_.get_version != nullptr && calls_.get_version(&out.version).code != 0)
        out.version = 0;
    out.nvfs_major = told.major_version;
    out.nvfs_minor = told.minor_version;
    out.only_posix = has(told.control, cufile::only_posix);
    if (out.nvfs_major != 0 || out.nvfs_minor != 0) out.by_nvidia_fs = told.storage;
    if (!has(told.features, cufile::feature_p2p) || calls_.get_ways == nullptr) return;
    for (const known_storage& known : known_kinds) {
        unsigned ways = 0;
        if (calls_.get_ways(static_cast<int>(known.bit), &ways).code != 0) continue;
        if (has(ways, cufile::pci_p2pdma) || has(ways, cufile::chip_to_chip))
            out.by_p2p |= 1u << known.bit;
    }
}

std::unique_ptr<direct_file> direct_storage::open(environment& env, int fd, direct_mode mode,
                                                  std::string& why) {
    const storage_facts storage = settings_.storage ? *settings_.storage : storage_of(fd);
    // The library is not even loaded for storage that it has no path from.
    if (mode != direct_mode::on && storage.kind == storage_kind::other) {
        why = "cuFile has no path from " + storage.words;
        return nullptr;
    }
    if (mode != direct_mode::on && !may_have_path()) {
        why = no_part_of_kernel;
        return nullptr;
    }
    const cufile_report known = report();
    direct_path path = path_from(known, storage);
    if (!known.is_open || (mode != direct_mode::on && !path.is_direct)) {
        why = path.words;
        return nullptr;
    }
    std::uint32_t grain_bytes = 0;
    const int direct = env.open_direct(fd, grain_bytes);
    if (direct < 0) {
        why = "the file cannot be opened past the page cache: " + error_text(direct);
        return nullptr;
    }
    cufile::description description{};
    description.type = cufile::by_descriptor;
    description.fd = direct;
    cufile::file_handle handle = nullptr;
    if (const cufile::error e = calls_.add_file(&handle, &description); e.code != 0) {
        env.close(direct);
        why = "cuFile does not take the file: " + cufile::text_of(e);
        return nullptr;
    }
    return std::make_unique<direct_file>(*this, env, direct, handle, std::move(path));
}

bool direct_storage::add_buffer(std::byte* memory, std::uint64_t bytes) {
    return calls_.add_buffer(memory, bytes, 0).code == 0;
}

void direct_storage::remove_buffer(std::byte* memory) {
    static_cast<void>(calls_.remove_buffer(memory));
}

bool direct_storage::is_news(const std::string& text) {
    const std::lock_guard lock(mutex_);
    return said_.insert(text).second;
}

direct_file::direct_file(direct_storage& storage, environment& env, int fd,
                         cufile::file_handle handle, direct_path path)
    : storage_(storage), env_(env), fd_(fd), handle_(handle), path_(std::move(path)) {}

direct_file::~direct_file() {
    storage_.calls_.remove_file(handle_);  // before the descriptor may become another file's
    env_.close(fd_);
}

// A read may give fewer bytes than asked for; then the rest is asked for, as long as some come.
bool direct_file::read(std::byte* to, std::uint64_t bytes, std::uint64_t offset) {
    std::uint64_t got = 0;
    // Relaxed: another thread's failure orders nothing; the flag only saves calls.
    while (got < bytes && !failed_.load(std::memory_order_relaxed)) {
        errno = 0;
        const ssize_t more = storage_.calls_.read(
            handle_, to, bytes - got, static_cast<off_t>(offset + got), static_cast<off_t>(got));
        if (more > 0 && static_cast<std::uint64_t>(more) <= bytes - got)
            got += static_cast<std::uint64_t>(more);
        else if (more > 0) fail("a read gave more bytes than it was asked for");
        else if (more == 0) fail("a read ended " + std::to_string(bytes - got) + " bytes early");
        else if (more == -1) fail("a read failed: " + error_text(errno != 0 ? -errno : -EIO));
        else fail("a read failed: " + cufile::text_of({static_cast<int>(-more), 0}));
    }
    return got == bytes;
}

void direct_file::fail(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = why;
    failed_.store(true, std::memory_order_relaxed);
}

std::string direct_file::failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
}

}  // namespace penstock::host
