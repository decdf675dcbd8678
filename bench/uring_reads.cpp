#include "uring_reads.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <vector>

#include "scratch_file.hpp"
#include "workload.hpp"

#if defined(PENSTOCK_WITH_IO_URING)
#include <liburing.h>
#include <sys/uio.h>
#endif

namespace penstock::bench {

#if defined(PENSTOCK_WITH_IO_URING)

namespace {

constexpr std::uint64_t direct_block_bytes = 4096;

// What a read of one row asks for: the row, or the block around it where the file system reads
// nothing smaller past the page cache.
std::uint64_t unit_of(const row_file& from, int fd) {
    if (!from.direct || from.row_bytes % direct_block_bytes == 0) return from.row_bytes;
    const memory probe(backend::cpu, direct_block_bytes);
    const bool is_grain =
        ::pread(fd, probe.as<void>(), from.row_bytes, static_cast<off_t>(from.row_bytes)) ==
        static_cast<ssize_t>(from.row_bytes);
    if (is_grain) return from.row_bytes;
    expect(direct_block_bytes % from.row_bytes == 0, "a row lies in more than one block");
    return direct_block_bytes;
}

}  // namespace

struct uring_reader::ring {
    apps::unique_fd file;
    const std::uint64_t row_bytes, unit_bytes;
    std::byte* const to;
    // Where a row is less than a unit, each read in flight goes to one of these.
    const memory blocks;
    std::vector<std::uint32_t> free_blocks{};
    bool registered = false;
    io_uring queue{};

    ring(const row_file& from, std::uint32_t most, std::byte* rows, std::uint64_t bytes)
        : file(open_measured(from.path, O_RDONLY | (from.direct ? O_DIRECT : 0))),
          row_bytes(from.row_bytes),
          unit_bytes(unit_of(from, file)),
          to(rows),
          blocks(by_blocks() ? memory(backend::cpu, most * unit_bytes) : memory()) {
        require(io_uring_queue_init(most, &queue, 0), "io_uring");
        const int fd = file;
        require(io_uring_register_files(&queue, &fd, 1), "io_uring, registering a file");
        for (std::uint32_t i = 0; i < most; ++i) free_blocks.push_back(i);
        const iovec place =
            by_blocks() ? iovec{blocks.as<void>(), most * unit_bytes} : iovec{to, bytes};
        registered = io_uring_register_buffers(&queue, &place, 1) == 0;
    }
    ~ring() { io_uring_queue_exit(&queue); }
    ring(const ring&) = delete;
    ring& operator=(const ring&) = delete;

    [[nodiscard]] bool by_blocks() const { return unit_bytes != row_bytes; }
    [[nodiscard]] std::byte* block(std::uint32_t number) const {
        return blocks.as<std::byte>() + number * unit_bytes;
    }

    // Place i of the list, through that block.
    void start(const std::int64_t* numbers, std::uint64_t i, std::uint32_t number) {
        const std::uint64_t at = static_cast<std::uint64_t>(numbers[i]) * row_bytes;
        std::byte* const into = by_blocks() ? block(number) : to + i * row_bytes;
        io_uring_sqe* const entry = io_uring_get_sqe(&queue);
        expect(entry != nullptr, "io_uring has fewer entries than it was made with");
        const auto bytes = static_cast<unsigned>(unit_bytes);
        if (registered)
            io_uring_prep_read_fixed(entry, 0, into, bytes, at / unit_bytes * unit_bytes, 0);
        else io_uring_prep_read(entry, 0, into, bytes, at / unit_bytes * unit_bytes);
        io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE);
        io_uring_sqe_set_data64(entry, i << 16 | number);
    }

    // Takes what has finished; returns how many rows.
    std::uint64_t take(const std::int64_t* numbers) {
        std::uint64_t done = 0;
        for (io_uring_cqe* entry = nullptr; io_uring_peek_cqe(&queue, &entry) == 0;) {
            const std::uint64_t i = io_uring_cqe_get_data64(entry) >> 16;
            const auto number = static_cast<std::uint32_t>(io_uring_cqe_get_data64(entry) & 0xffff);
            const int got = entry->res;
            io_uring_cqe_seen(&queue, entry);
            if (got == -EAGAIN || got == -EINTR) {
                start(numbers, i, number);
                continue;
            }
            require_all(got, unit_bytes, "reading a row with io_uring");
            if (by_blocks())
                std::memcpy(
                    to + i * row_bytes,
                    block(number) + static_cast<std::uint64_t>(numbers[i]) * row_bytes % unit_bytes,
                    row_bytes);
            free_blocks.push_back(number);
            ++done;
        }
        return done;
    }
};

std::string why_no_uring() {
    io_uring queue{};
    const int code = io_uring_queue_init(1, &queue, 0);
    if (code != 0) return "the kernel refuses io_uring: " + error_text(code);
    io_uring_queue_exit(&queue);
    return "";
}

uring_reader::uring_reader(const row_file& from, std::uint32_t depth, std::byte* to,
                           std::uint64_t bytes)
    : ring_(std::make_unique<ring>(from, depth, to, bytes)) {}
uring_reader::~uring_reader() = default;

bool uring_reader::is_registered() const { return ring_->registered; }

void uring_reader::read(const std::int64_t* numbers, std::uint64_t count) {
    for (std::uint64_t begun = 0, done = 0; done < count; done += ring_->take(numbers)) {
        for (; begun < count && !ring_->free_blocks.empty(); ++begun) {
            ring_->start(numbers, begun, ring_->free_blocks.back());
            ring_->free_blocks.pop_back();
        }
        const int code = io_uring_submit_and_wait(&ring_->queue, 1);
        if (code != -EINTR && code != -EAGAIN) require(code, "io_uring");
    }
}

uring_run read_by_rings(const row_file& from, std::uint64_t threads, std::uint64_t depth,
                        const std::int64_t* numbers, std::uint64_t count, std::byte* to) {
    threads = std::min({threads, depth, count});
    const auto first = [&](std::uint64_t t) { return count * t / threads; };
    uring_run out;
    std::vector<std::unique_ptr<uring_reader>> readers;
    for (std::uint64_t t = 0; t < threads; ++t) {
        readers.push_back(std::make_unique<uring_reader>(
            from, static_cast<std::uint32_t>(depth / threads), to + first(t) * from.row_bytes,
            (first(t + 1) - first(t)) * from.row_bytes));
        out.registered = out.registered && readers.back()->is_registered();
    }
    const stopwatch watch;
    out.seconds = seconds_together(threads, [&](std::uint64_t t) {
        readers[t]->read(numbers + first(t), first(t + 1) - first(t));
    });
    out.cores = watch.cores(out.seconds);
    return out;
}

#else

struct uring_reader::ring {};

std::string why_no_uring() { return "Penstock was built without liburing"; }

uring_reader::uring_reader(const row_file&, std::uint32_t, std::byte*, std::uint64_t) {
    throw failure(-EOPNOTSUPP, why_no_uring());
}
uring_reader::~uring_reader() = default;

bool uring_reader::is_registered() const { return false; }

void uring_reader::read(const std::int64_t*, std::uint64_t) {}

uring_run read_by_rings(const row_file&, std::uint64_t, std::uint64_t, const std::int64_t*,
                        std::uint64_t, std::byte*) {
    throw failure(-EOPNOTSUPP, why_no_uring());
}

#endif

}  // namespace penstock::bench
