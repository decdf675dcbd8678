#include "mount/first_exchange.hpp"

#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "os/shared_memory.hpp"

namespace penstock::mount {

namespace {

constexpr int longest_wait_ms = 10'000;

// In the second word of flags, of which they are bits 36 and 37. Younger than some headers.
constexpr std::uint32_t direct_maps = 1u << (36 - 32);     // FUSE_DIRECT_IO_ALLOW_MMAP
constexpr std::uint32_t passes_through = 1u << (37 - 32);  // FUSE_PASSTHROUGH

struct first_request {
    fuse_in_header head;
    fuse_init_in body;
};

// `layers` is max_stack_depth in headers from 6.9 on, and unused in those before.
struct first_answer {
    fuse_out_header head;
    fuse_init_out body;

    void set_layers(std::uint32_t layers) {
        std::memcpy(reinterpret_cast<std::byte*>(&body) + offsetof(fuse_init_out, flags2) +
                        sizeof body.flags2,
                    &layers, sizeof layers);
    }
};

// What the kernel offers of the two.
std::uint32_t offered(const fuse_buf& request) {
    first_request told{};
    if (request.size < sizeof told) return 0;
    std::memcpy(&told, request.mem, sizeof told);
    return told.head.opcode == FUSE_INIT && (told.body.flags & FUSE_INIT_EXT) != 0
               ? told.body.flags2
               : 0;
}

// False: it is an error, or the short answer to an old kernel.
bool add(std::uint32_t wanted, std::uint32_t layers, std::byte* answer, std::size_t bytes) {
    first_answer out{};
    if (bytes != sizeof out) return false;
    std::memcpy(&out, answer, sizeof out);
    if (out.head.error != 0) return false;
    out.body.flags |= FUSE_INIT_EXT;
    out.body.flags2 |= wanted;
    // The kernel keeps no writes back, with this agreement or without.
    if ((wanted & passes_through) != 0) out.set_layers(layers);
    std::memcpy(answer, &out, sizeof out);
    return true;
}

// A socket in the place of the session's device for as long as libfuse answers.
class device_stand_in {
public:
    explicit device_stand_in(int device) : device_(device) {
        int ends[2];
        const int copy = ::fcntl(device, F_DUPFD_CLOEXEC, 0);
        if (copy < 0) return;
        real_ = host::owned_fd(copy);
        if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
        const host::owned_fd near(ends[0]);
        far_ = host::owned_fd(ends[1]);
        stands_ = ::dup3(near.get(), device, O_CLOEXEC) >= 0;
    }
    ~device_stand_in() { end(); }
    device_stand_in(const device_stand_in&) = delete;
    device_stand_in& operator=(const device_stand_in&) = delete;

    [[nodiscard]] bool stands() const { return stands_; }
    [[nodiscard]] ssize_t take_answer(std::byte* to, std::size_t room) const {
        return ::recv(far_.get(), to, room, MSG_DONTWAIT);
    }
    void end() {
        if (stands_) ::dup3(real_.get(), device_, O_CLOEXEC);
        stands_ = false;
    }

private:
    const int device_;
    bool stands_ = false;
    host::owned_fd real_, far_;
};

// With `wanted` added to libfuse's answer. True: the kernel has been told so.
bool answer_with(fuse_session* session, const fuse_buf& request, std::uint32_t wanted,
                 std::uint32_t layers) {
    const int device = fuse_session_fd(session);
    device_stand_in stand_in(device);
    fuse_session_process_buf(session, &request);
    if (!stand_in.stands()) return false;
    std::array<std::byte, 4096> answer{};
    const ssize_t bytes = stand_in.take_answer(answer.data(), answer.size());
    stand_in.end();
    if (bytes <= 0) return false;
    const bool added = add(wanted, layers, answer.data(), static_cast<std::size_t>(bytes));
    return ::write(device, answer.data(), static_cast<std::size_t>(bytes)) == bytes && added;
}

}  // namespace

status exchange_first(fuse_session* session, agreements& both) {
    pollfd device{fuse_session_fd(session), POLLIN, 0};
    int ready = 0;
    do ready = ::poll(&device, 1, longest_wait_ms);
    while (ready < 0 && errno == EINTR);
    if (ready != 1)
        return {-ETIMEDOUT, "/dev/fuse: the kernel said nothing to the new mount for 10 seconds"};
    fuse_buf request{};
    const int got = fuse_session_receive_buf(session, &request);
    if (got <= 0) {
        std::free(request.mem);
        const int code = got < 0 ? got : -ENODEV;
        return {code, "/dev/fuse: " + error_text(code) + "; was the mount taken away again?"};
    }
    std::uint32_t wanted = 0;
    if (both.uncached.wanted) wanted |= direct_maps;
    if (both.passing.wanted) wanted |= passes_through;
    wanted &= offered(request);
    bool reached = false;
    if (wanted != 0) reached = answer_with(session, request, wanted, both.passing.layers);
    else fuse_session_process_buf(session, &request);
    std::free(request.mem);
    both.uncached.reached = reached && (wanted & direct_maps) != 0;
    both.passing.reached = reached && (wanted & passes_through) != 0;
    return {};
}

}  // namespace penstock::mount
