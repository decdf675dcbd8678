// Reads through io_uring: one ring for each service thread. What the page cache has is read at
// once, past the ring: that costs less processor time for each read, and the first of many is
// answered before the last is read.
#include <liburing.h>
#include <sys/resource.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "os/env.hpp"
#include "penstock/options.hpp"

namespace penstock::host {

namespace {

class uring_engine final : public io_engine {
public:
    explicit uring_engine(std::uint32_t depth) : depth_(depth) {}
    ~uring_engine() override {
        if (!ready_) return;
        // The kernel takes a ring apart some time later. Until then the user would be charged for
        // the memory, and the next runtime be refused it. But it may wait here for a disk that
        // never answers.
        if (registered_ && in_flight_ == 0) io_uring_unregister_buffers(&ring_);
        io_uring_queue_exit(&ring_);
    }

    int init() {
        const int code = io_uring_queue_init(depth_, &ring_, 0);
        ready_ = code == 0;
        return code;
    }

    [[nodiscard]] const char* name() const override { return "io_uring"; }
    [[nodiscard]] std::uint32_t capacity() const override { return depth_; }

    [[nodiscard]] bool reads_at_once() const override { return true; }
    [[nodiscard]] bool has_finished() const override { return !finished_.empty(); }

    // Kernels before 5.13 stop the ring to register and to take it back, and some of them let
    // fork() part a process from pages that it has registered: the disk would go on writing to
    // those, and the process read others.
    int register_memory(const std::vector<memory_area>& areas) override {
        if (registered_ || (ring_.features & IORING_FEAT_RSRC_TAGS) == 0) return -EOPNOTSUPP;
        std::vector<iovec> places;
        for (const memory_area& area : areas) places.push_back({area.begin, area.bytes});
        const int code =
            io_uring_register_buffers(&ring_, places.data(), static_cast<unsigned>(places.size()));
        registered_ = code == 0;
        return code;
    }

    // A submit takes the entries out of the ring, so one is free after it unless the kernel
    // refuses. Many more than capacity() are in flight only where reads waited for blocks that
    // failed.
    void start(const read_operation& operation) override {
        if (operation.at_once) {
            const iovec place{operation.to, operation.bytes};
            const ssize_t got = ::preadv2(operation.fd, &place, 1,
                                          static_cast<off_t>(operation.offset), RWF_NOWAIT);
            finished_.push_back({operation.tag, got >= 0 ? got : -errno});
            return;
        }
        io_uring_sqe* entry = io_uring_get_sqe(&ring_);
        if (entry == nullptr) {
            submit();
            entry = io_uring_get_sqe(&ring_);
        }
        if (entry == nullptr) {
            finished_.push_back({operation.tag, -EAGAIN});
            return;
        }
        if (operation.area >= 0 && registered_)
            io_uring_prep_read_fixed(entry, operation.fd, operation.to, operation.bytes,
                                     operation.offset, operation.area);
        else
            io_uring_prep_read(entry, operation.fd, operation.to, operation.bytes,
                               operation.offset);
        io_uring_sqe_set_data64(entry, operation.tag);
        ++in_flight_;
    }

    // A refused submission (out of memory, interrupted) leaves its entries in the ring: they go
    // with the next one.
    void submit() override { io_uring_submit(&ring_); }

    void reap(std::vector<read_result>& out, std::uint64_t wait_ns) override {
        const bool some = !finished_.empty();
        out.insert(out.end(), finished_.begin(), finished_.end());
        finished_.clear();
        if (io_uring_sq_ready(&ring_) != 0) submit();
        io_uring_cqe* entry = nullptr;
        if (io_uring_peek_cqe(&ring_, &entry) != 0 && wait_ns > 0 && !some) {
            __kernel_timespec limit{0, static_cast<long long>(wait_ns)};
            io_uring_wait_cqe_timeout(&ring_, &entry, &limit);
        }
        while (io_uring_peek_cqe(&ring_, &entry) == 0) {
            out.push_back({io_uring_cqe_get_data64(entry), entry->res});
            io_uring_cqe_seen(&ring_, entry);
            --in_flight_;
        }
    }

private:
    io_uring ring_{};
    std::uint32_t depth_, in_flight_ = 0;
    bool ready_ = false, registered_ = false;
    std::vector<read_result> finished_;  // without the ring: read at once, or refused
};

}  // namespace

std::unique_ptr<io_engine> make_uring_engine(std::uint32_t depth, std::string& why) {
    auto engine = std::make_unique<uring_engine>(depth);
    const int code = engine->init();
    if (code == 0) return engine;
    why = std::string("the kernel refuses io_uring: ") + std::strerror(-code);
    // Its queues count as locked memory, of all programs of the user together.
    rlimit locked{};
    if (code == -ENOMEM && ::getrlimit(RLIMIT_MEMLOCK, &locked) == 0 &&
        locked.rlim_cur != RLIM_INFINITY)
        why += "; raise RLIMIT_MEMLOCK (ulimit -l), now " + format_size(locked.rlim_cur);
    return nullptr;
}

}  // namespace penstock::host
