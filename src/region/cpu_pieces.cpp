// Pieces on the cpu back end: a part of the process's addresses, of which pieces have memory.
// Absent ones have none, or all of them the same memory, which is full of poison.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "os/anonymous_memory.hpp"
#include "penstock/pieces.hpp"
#include "region/piece_memory.hpp"

namespace penstock::region {

namespace {

class cpu_pieces final : public piece_memory {
public:
    ~cpu_pieces() override {
        if (begin_ != nullptr) ::munmap(begin_, shape_.pieces * shape_.piece_bytes);
        if (poison_ >= 0) ::close(poison_);
    }

    int take(const piece_shape& shape) {
        shape_ = shape;
        slots_ = static_cast<std::uint32_t>(
            std::min(shape.pieces, shape.device_bytes / shape.piece_bytes));
        workers_ = std::clamp(std::thread::hardware_concurrency(), 1u, most_piece_threads);
        void* const at = map(nullptr, shape.pieces * shape.piece_bytes, PROT_NONE, 0, -1);
        if (at == MAP_FAILED) return -ENOMEM;
        begin_ = static_cast<std::byte*>(at);
        if (!host_.take(std::max<std::uint64_t>(shape.host_places, 1) * shape.piece_bytes))
            return -ENOMEM;
        return shape.poison ? make_poison() : 0;
    }

    [[nodiscard]] std::byte* data() const override { return begin_; }
    [[nodiscard]] std::uint32_t slots() const override { return slots_; }
    [[nodiscard]] unsigned workers() const override { return workers_; }
    [[nodiscard]] bool reads_in_place() const override { return true; }

    int place(const std::vector<placed_piece>& pieces) override {
        for (const placed_piece& p : pieces)
            if (const int code =
                    is_mapped(map(at(p.number), shape_.piece_bytes, PROT_READ, MAP_FIXED, -1));
                code != 0) {
                static_cast<void>(remove(pieces));
                return code;
            }
        return 0;
    }
    int remove(const std::vector<placed_piece>& pieces) override {
        int code = 0;
        for (const placed_piece& p : pieces)
            if (const int failed = make_absent(p.number); code == 0) code = failed;
        return code;
    }
    // Programs only read: a store is a fault, but for the time of a fill.
    int begin_fill(std::uint64_t piece) override {
        return ::mprotect(at(piece), shape_.piece_bytes, PROT_READ | PROT_WRITE) == 0 ? 0 : -errno;
    }
    int end_fill(std::uint64_t piece) override {
        return ::mprotect(at(piece), shape_.piece_bytes, PROT_READ) == 0 ? 0 : -errno;
    }
    std::byte* buffer(unsigned, unsigned, std::uint64_t offset) override { return begin_ + offset; }
    int send(unsigned, unsigned, std::uint64_t, std::uint64_t) override { return 0; }
    int clear(unsigned, std::uint64_t offset, std::uint64_t bytes) override {
        std::memset(begin_ + offset, 0, bytes);
        return 0;
    }
    int to_host(std::uint64_t piece, std::uint64_t place) override {
        std::memcpy(host_.at(place * shape_.piece_bytes), at(piece), shape_.piece_bytes);
        return 0;
    }
    int from_host(unsigned, std::uint64_t piece, std::uint64_t place) override {
        std::memcpy(at(piece), host_.at(place * shape_.piece_bytes), shape_.piece_bytes);
        return 0;
    }
    int mark_workers(stream_mark&) override { return 0; }
    int mark(void*, stream_mark&) override { return 0; }
    int wait(const stream_mark&) override { return 0; }
    [[nodiscard]] bool has_passed(const stream_mark&) const override { return true; }
    int order(void*, const stream_mark&) override { return 0; }
    int check(void*) override { return 0; }

private:
    [[nodiscard]] std::byte* at(std::uint64_t piece) const {
        return begin_ + piece * shape_.piece_bytes;
    }
    static void* map(void* where, std::uint64_t bytes, int access, int flags, int fd) {
        const int kind = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
        return ::mmap(where, bytes, access, kind | flags, fd, 0);
    }
    static int is_mapped(void* at) { return at == MAP_FAILED ? -errno : 0; }
    int make_absent(std::uint64_t piece) {
        return is_mapped(map(at(piece), shape_.piece_bytes, poison_ < 0 ? PROT_NONE : PROT_READ,
                             MAP_FIXED, poison_));
    }
    int make_poison() {
        poison_ = ::memfd_create("penstock-poison", MFD_CLOEXEC);
        if (poison_ < 0 || ::ftruncate(poison_, static_cast<off_t>(shape_.piece_bytes)) != 0)
            return -ENOMEM;
        void* const bytes = map(nullptr, shape_.piece_bytes, PROT_READ | PROT_WRITE, 0, poison_);
        if (bytes == MAP_FAILED) return -ENOMEM;
        std::memset(bytes, poison_byte, shape_.piece_bytes);
        ::munmap(bytes, shape_.piece_bytes);
        for (std::uint64_t piece = 0; piece < shape_.pieces; ++piece)
            if (const int code = make_absent(piece); code != 0) return code;
        return 0;
    }

    piece_shape shape_;
    std::byte* begin_ = nullptr;
    std::uint32_t slots_ = 0;
    unsigned workers_ = 1;
    int poison_ = -1;
    host::anonymous_memory host_;
};

}  // namespace

std::unique_ptr<piece_memory> make_cpu_pieces(const piece_shape& shape, status& why) {
    auto memory = std::make_unique<cpu_pieces>();
    const int code = memory->take(shape);
    if (code == 0 && memory->slots() > 0) return memory;
    why = {-ENOMEM, code != 0 ? "the system gives no " +
                                    std::to_string(shape.pieces * shape.piece_bytes) +
                                    " bytes of addresses"
                              : "there is no room for one piece"};
    return nullptr;
}

}  // namespace penstock::region
