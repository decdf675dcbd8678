// Frames of a device and of the host, pages that move between them, and where the frames of a
// buffer lie: on a GPU, or in ordinary memory that stands for one.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "buffer/pool/content_hash.hpp"
#include "penstock/base/macros.hpp"
#include "penstock/error.hpp"
#include "penstock/group/concept.hpp"
#include "penstock/options.hpp"

namespace penstock::buffer {

// Frames of a device and of the host, and pages that move between them: to the host, to the device,
// or the two change places.
//
// On a GPU one kernel moves a batch, a warp a page, straight between device memory and the host's
// pinned frames, both ways at once: there are no areas where pages are gathered, and no copies of
// their own from and to them, as in the paper (Zhong and He, ICCS 2011, 3: gathered by a kernel,
// one transfer each way, put in place by the CPU). On the cpu the device's frames lie in ordinary
// memory.
inline constexpr std::uint64_t frame_grain = 16;  // the size of a frame is a multiple of it

struct frames_shape {
    std::uint64_t host_frames = 0, device_frames = 0;
    std::uint64_t frame_bytes = 4096;
    unsigned queues = 1;             // batches that move at the same time
    std::uint32_t most_moves = 256;  // of a batch
};

enum class direction : std::uint8_t { to_host, to_device, exchange };

struct frame_move {
    std::uint32_t host = 0, device = 0;  // frames; each in one move of a batch
    direction way = direction::exchange;
};

struct frame_pair {
    std::uint32_t host = 0, device = 0;
};

class device_frames {
public:
    virtual ~device_frames() = default;
    // Frame 0; the others follow. All zero at first.
    [[nodiscard]] virtual std::byte* host_frames() const = 0;
    // Begins to move them: 0, -EINVAL (more than most_moves, or no such frame; nothing is moved),
    // or -EIO, the device failed and what the frames of moves that were begun hold is not known.
    // Until end() those of this batch must not be touched, but by what is asked of this queue,
    // which comes after it; what was begun on the queue before is ended first, and its error told
    // here. By one thread a queue at a time; of batches that move at the same time no two have a
    // frame in common.
    virtual int begin(unsigned queue, const std::vector<frame_move>& batch) = 0;
    // Waits until all that was begun on the queue is done: 0 or -EIO, as above.
    virtual int end(unsigned queue) = 0;
    // Moves them and returns when that is done.
    int move(unsigned queue, const std::vector<frame_move>& batch) {
        const int code = begin(queue, batch);
        return code != 0 ? code : end(queue);
    }
    // Copies frames of the device to frames of the host (`way` is to_host), by what copies beside
    // kernels: it comes to an end also while kernels fill the device and wait for the host. By one
    // thread at a time, beside all other calls; no other frame moves to or from these meanwhile. 0;
    // -EIO; or -EOPNOTSUPP, it cannot.
    virtual int copy_out(const std::vector<frame_move>&) { return -EOPNOTSUPP; }
    // Whether the two frames of each pair hold the same bytes, by the device, which reads both.
    // Else as move().
    virtual int compare(unsigned queue, const std::vector<frame_pair>& pairs,
                        std::vector<std::uint8_t>& equal) = 0;
    // The content hashes of frames of the host, which are of a multiple of hashed_bytes. Else as
    // move().
    virtual int hash(unsigned queue, signature_kind kind, const std::vector<std::uint32_t>& host,
                     std::vector<content_hash>& out) = 0;
};

// The four also give -ENOMEM (the device has no memory to begin) and -ENODEV (the program reset
// it): treat both as -EIO.

// Null, and why; of a GPU also whether that is a lack of memory, its own or the host's.
std::unique_ptr<device_frames> make_cpu_frames(const frames_shape& shape, std::string& why);
std::unique_ptr<device_frames> make_gpu_frames(int device, const frames_shape& shape,
                                               std::string& why, bool* short_of_memory = nullptr);

inline bool are_frames_of(const frames_shape& shape, const std::vector<frame_move>& batch) {
    if (batch.size() > shape.most_moves) return false;
    for (const frame_move& moved : batch)
        if (moved.host >= shape.host_frames || moved.device >= shape.device_frames) return false;
    return true;
}

inline bool are_frames_of(const frames_shape& shape, const std::vector<frame_pair>& pairs) {
    if (pairs.size() > shape.most_moves) return false;
    for (const frame_pair& pair : pairs)
        if (pair.host >= shape.host_frames || pair.device >= shape.device_frames) return false;
    return true;
}
inline bool are_frames_of(const frames_shape& shape, const std::vector<std::uint32_t>& host) {
    if (host.size() > shape.most_moves || shape.frame_bytes % hashed_bytes != 0) return false;
    for (const std::uint32_t frame : host)
        if (frame >= shape.host_frames) return false;
    return true;
}

// A frame whose bytes go to the device can be used again at once if they are copied first, within
// the host. Up to so many bytes that takes less time than to wait for the device.
inline constexpr std::uint64_t most_copied_bytes = 32u << 10;

struct alignas(frame_grain) frame_word {
    std::uint64_t low, high;
};

// One page, by a warp of the GPU or a CPU thread. Several words of a thread are under way at once:
// a word of the host takes a microsecond to come. So those that go to the host are not kept waiting
// for those that come.
template <group Group>
PENSTOCK_HD void move_page(const Group& g, std::byte* host, std::byte* device, std::uint64_t bytes,
                           direction way) {
    constexpr unsigned at_once = 8;
    auto* const near = reinterpret_cast<frame_word*>(device);
    auto* const far = reinterpret_cast<frame_word*>(host);
    const std::uint64_t words = bytes / sizeof(frame_word);
    frame_word out[at_once], in[at_once];
    for (std::uint64_t first = g.rank(); first < words; first += at_once * g.size()) {
        for (unsigned i = 0; i < at_once; ++i) {
            const std::uint64_t at = first + i * g.size();
            if (at >= words) break;
            if (way != direction::to_host) in[i] = far[at];
            if (way != direction::to_device) out[i] = near[at];
        }
        for (unsigned i = 0; i < at_once; ++i) {
            const std::uint64_t at = first + i * g.size();
            if (at >= words) break;
            if (way != direction::to_device) far[at] = out[i];
        }
        for (unsigned i = 0; i < at_once; ++i) {
            const std::uint64_t at = first + i * g.size();
            if (at >= words) break;
            if (way != direction::to_host) near[at] = in[i];
        }
    }
}

// automatic: a GPU if there is one, and then one that has too little room is refused and not passed
// by. Without frames of a device all are ordinary memory. -ENODEV or -ENOMEM, with what there is;
// the caller adds which of its options is the cure.
status choose_frames(backend where, int device, const frames_shape& shape,
                     std::unique_ptr<device_frames>& out, bool& on_gpu);

std::uint64_t memory_of_machine();

}  // namespace penstock::buffer
