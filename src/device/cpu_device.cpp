// The cpu back end: "device memory" is ordinary memory, and the calls run on the caller's thread as
// a group of one lane.
#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "device/device.hpp"
#include "os/shared_memory.hpp"
#include "penstock/write.hpp"

namespace penstock::host {

namespace {

class cpu_device final : public cache_device, public page_lender {
public:
    ~cpu_device() override {
        for (const auto& [address, bytes] : pieces_) ::munmap(address, bytes);
        for (const auto& [address, bytes] : foreign_) unmap_memory_of(address, bytes);
    }

    [[nodiscard]] std::string name() const override {
        return "CPU threads (" + std::to_string(::sysconf(_SC_NPROCESSORS_ONLN)) + ")";
    }
    [[nodiscard]] bool is_gpu() const override { return false; }

    [[nodiscard]] std::uint64_t free_bytes() const override {
        return static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
               static_cast<std::uint64_t>(::sysconf(_SC_PAGE_SIZE));
    }

    void* allocate_device(std::uint64_t bytes) override {
        void* const address = allocate_shared(bytes);
        if (address != nullptr) allocated_bytes_ += bytes;
        return address;
    }
    [[nodiscard]] std::uint64_t allocated_bytes() const override { return allocated_bytes_; }
    void* allocate_shareable(std::uint64_t bytes) override {
        shared_memory made;
        if (const int code = made.make(bytes); code != 0) {
            refused_bytes_ = bytes;
            refused_code_ = code;
            return nullptr;
        }
        allocated_bytes_ += bytes;
        shareable_.push_back(std::move(made));
        return shareable_.back().data();
    }
    int handle_of(const void* shareable, std::uint64_t& mapped_bytes) override {
        for (const shared_memory& piece : shareable_) {
            if (piece.data() != shareable) continue;
            mapped_bytes = piece.bytes();
            const int copy = ::fcntl(piece.fd(), F_DUPFD_CLOEXEC, 0);
            return copy < 0 ? -errno : copy;
        }
        return -EINVAL;
    }
    bool may_hold_frames(const void*, std::uint64_t, std::string&) override { return true; }

    // Fresh pages of the kernel are zero, and cost memory only once they are touched.
    void* allocate_shared(std::uint64_t bytes) override {
        constexpr std::uint64_t huge = 2u << 20;
        const std::uint64_t length = (bytes + huge - 1) & ~(huge - 1);
        void* const address = ::mmap(nullptr, length, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (address == MAP_FAILED) {
            refused_bytes_ = bytes;
            refused_code_ = -errno;
            return nullptr;
        }
        if (length >= 16 * huge) ::madvise(address, length, MADV_HUGEPAGE);
        pieces_.emplace_back(address, length);
        return address;
    }

    [[nodiscard]] std::string shortage() const override {
        const char* const limit = refused_code_ == -EFBIG    ? "-f, as of a file: it is shared"
                                  : refused_code_ == -EMFILE ? "-n, as of a file: it is shared"
                                                             : "-v";
        return format_size(refused_bytes_) +
               " of memory were refused: " + error_text(refused_code_) +
               "; is there a limit (ulimit " + limit + ")?";
    }

    // Every thread of this process reaches it anyway.
    bool expose(void*, std::uint64_t, bool, std::string&) override { return true; }
    void conceal(void*) override {}

    // Words of 8 bytes, some of which groups look at meanwhile.
    int upload(void* to, const void* from, std::uint64_t bytes) override {
        auto* out = static_cast<std::uint64_t*>(to);
        const auto* in = static_cast<const std::uint64_t*>(from);
        for (std::uint64_t i = 0; i < bytes / 8; ++i) atomic_store<order::release>(out + i, in[i]);
        return 0;
    }
    // Only counters are read back while kernels run; they are 8-byte words.
    int download(void* to, const void* from, std::uint64_t bytes) override {
        auto* out = static_cast<std::uint64_t*>(to);
        const auto* in = static_cast<const std::uint64_t*>(from);
        for (std::uint64_t i = 0; i < bytes / 8; ++i) out[i] = atomic_load<order::relaxed>(in + i);
        return 0;
    }
    status prepare(const runtime_ref&) override { return {}; }
    int wait_for_groups() override { return 0; }

    int open(const runtime_ref& fs, const char* path, int flags) override {
        return penstock::open(lane{}, fs, path, flags);
    }
    int close(const runtime_ref& fs, int fd) override { return penstock::close(lane{}, fs, fd); }
    int duplicate(const runtime_ref& fs, int fd) override {
        return engine::add_reference(lane{}, fs.view, fd);
    }
    int msync(const runtime_ref& fs, int fd, std::int64_t offset, std::int64_t bytes) override {
        return penstock::msync(lane{}, fs, fd, offset, bytes);
    }
    int flush(const runtime_ref& fs, std::uint32_t slot) override {
        return static_cast<int>(engine::flush_pages(lane{}, fs.view, slot, 0, ~std::uint64_t{0}));
    }
    int forget(const runtime_ref& fs, const char* path) override {
        return static_cast<int>(engine::unlink_file(lane{}, fs.view, path, false));
    }
    // read, write, append, prefetch, advise, stat, fsync, truncate
#define PENSTOCK_CALL_AS_LANE(Result, verb, parameters, names)                     \
    Result verb(const runtime_ref& fs, int fd PENSTOCK_REST parameters) override { \
        return penstock::verb(lane{}, fs, fd PENSTOCK_REST names);                 \
    }
    PENSTOCK_FILE_VERBS(PENSTOCK_CALL_AS_LANE)
#undef PENSTOCK_CALL_AS_LANE
    std::int64_t gather(const runtime_ref&, const gather_job&, device_stream) override {
        return -EOPNOTSUPP;
    }
    int run_table(const runtime_ref&, const table_job&, device_stream) override {
        return -EOPNOTSUPP;
    }
    int while_current(const std::function<int()>&) override { return -ENODEV; }
    [[nodiscard]] bool is_of(device_stream) const override { return false; }

    [[nodiscard]] device_link link_to(const cache_device& other) const override {
        if (!other.is_gpu()) return {link_kind::same_memory, "both lie in memory of this process"};
        return {link_kind::none,
                "the other device is a GPU, and CPU threads do not reach its memory"};
    }
    bool reach(const cache_device& other, std::string& why) override {
        device_link link = link_to(other);
        why = std::move(link.reason);
        return link.kind != link_kind::none;
    }
    [[nodiscard]] std::string identity() const override { return "cpu"; }
    [[nodiscard]] device_link link_to(const std::string& identity) const override {
        if (identity == this->identity())
            return {link_kind::same_memory, "both lie in memory of this machine"};
        return {link_kind::none, "its cache is on a GPU, which CPU threads do not reach"};
    }
    const void* map_foreign(int handle, std::uint64_t bytes, std::string& why) override {
        int code = 0;
        const std::byte* const begin = map_memory_of(handle, bytes, code);
        if (begin != nullptr) foreign_.emplace_back(begin, bytes);
        else
            why = code == -EMSGSIZE     ? "its memory is smaller than it says"
                  : code == -EPERM      ? "its memory is not sealed"
                  : code == -EOPNOTSUPP ? "its memory is of huge pages, of which there may be none"
                                        : "its memory cannot be mapped: " + error_text(code);
        return begin;
    }
    void unmap_foreign(const void* mapped) override {
        std::erase_if(foreign_, [&](const auto& piece) {
            if (piece.first == mapped) unmap_memory_of(piece.first, piece.second);
            return piece.first == mapped;
        });
    }
    void part_from_parent() override {
        for (const shared_memory& piece : shareable_) piece.part_from_parent();
        for (const auto& [address, bytes] : foreign_) part_from_memory_of(address, bytes);
    }
    // An addition of 0 is a change: a group's change comes before or after it.
    int sample(std::uint64_t* out, std::uint64_t* counters, std::uint64_t count) override {
        for (std::uint64_t i = 0; i < count; ++i)
            out[i] = atomic_fetch_add<order::acq_rel>(counters + i, std::uint64_t{0});
        return 0;
    }
    status health() override { return {}; }

    page_lender& lender() override { return *this; }

    // By the caller's thread, which has room of its own for one.
    bool begin_loan(const runtime_ref& fs, loan& peer_read) override {
        thread_local std::vector<std::byte> room;
        thread_local std::vector<std::uint32_t> states;
        try {
            if (room.empty()) room.resize(most_loan_bytes);
            if (states.empty()) states.resize(most_loan_bytes / least_part_bytes);
        } catch (const std::bad_alloc&) {
            return false;
        }
        peer_read.order.to = room.data();
        peer_read.order.states = states.data();
        for (std::uint32_t part = 0; part < peer_read.order.parts(); ++part)
            engine::clear_part(&states[part]);
        for (std::uint32_t part = 0; part < peer_read.order.parts(); ++part)
            engine::lend_part(lane{}, fs.view, peer_read.order, part);
        return true;
    }
    void end_loan(loan&) override {}

private:
    std::vector<std::pair<void*, std::uint64_t>> pieces_;
    std::vector<shared_memory> shareable_;
    std::vector<std::pair<const std::byte*, std::uint64_t>> foreign_;
    std::uint64_t refused_bytes_ = 0;
    int refused_code_ = -ENOMEM;
    std::atomic<std::uint64_t> allocated_bytes_{0};
};

}  // namespace

std::unique_ptr<cache_device> make_cpu_device() { return std::make_unique<cpu_device>(); }

}  // namespace penstock::host
