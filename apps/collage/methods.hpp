// The ways to make a collage, and the memory of the device that makes it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "common/device_memory.hpp"
#include "common/report_text.hpp"
#include "library.hpp"
#include "make_block.hpp"
#include "penstock/error.hpp"
#include "picture.hpp"

namespace penstock::collage {

// What one method did. Its one time goes from the picture in host memory to the collage there, and
// is that of four parts.
struct method_report : apps::method_report {
    // In which order the blocks are made; the picture goes to the device meanwhile.
    double order_seconds = 0;
    double upload_seconds = 0;   // what of that was left, and the order
    double compute_seconds = 0;  // kernels, and the work of CPU threads
    // The collage from the device; cuda: the winners' pixels put in place.
    double download_seconds = 0;
    std::uint64_t blocks = 0;
    std::uint64_t evaluations = 0;   // candidates compared
    std::uint64_t unique_tiles = 0;  // of these, different tiles
    std::uint64_t fallback_blocks = 0;
    // Pages of the library that were loaded (penstock), touched (cpu), staged (cuda)
    std::uint64_t pages_read = 0;
    std::uint64_t batches = 0;  // cuda only
};

struct collage_job {
    const library& from;
    const picture& in;
    const options& settings;
    bool quiet;
};

// One kernel that reads the library through Penstock.
status make_with_penstock(const collage_job& job, picture& out, method_report& report);

// Baseline: the same on CPU threads, from memory maps of the library.
status make_with_cpu(const collage_job& job, picture& out, method_report& report);

// Baseline: two kernels, the CPU gathers in between. -ENODEV and a message without a GPU.
status make_with_cuda(const collage_job& job, picture& out, method_report& report);

// What an error code of a block means for the user.
status block_error(const library& from, int code);

// Memory of the device that makes the collage, and what every method places in it.

// Owns what it allocates until it is destroyed: device memory of a GPU, or ordinary memory. Not
// thread-safe.
class collage_memory : public apps::typed_memory<collage_memory> {
public:
    using typed_memory::allocate;
    static constexpr int no_gpu = -1;
    explicit collage_memory(int device) : device_(device) {}
    ~collage_memory();
    collage_memory(const collage_memory&) = delete;
    collage_memory& operator=(const collage_memory&) = delete;

    // Null if there is not enough; cleared.
    void* allocate(std::uint64_t bytes);
    bool upload(void* to, const void* from, std::uint64_t bytes) const;
    // Returns before the bytes are there if `from` is pinned. They are there after the next upload.
    bool begin_upload(void* to, const void* from, std::uint64_t bytes) const;
    bool download(void* to, const void* from, std::uint64_t bytes) const;
    // Makes copies to and from this piece of host memory as fast as the bus; where that is refused
    // they are only slower.
    void pin(const void* address, std::uint64_t bytes);

private:
    int device_;
    std::vector<void*> pieces_;
    std::vector<void*> pinned_;
};

// Room for both pictures, the hash functions and the totals. On a CPU the view leads to the
// pictures themselves.
status place_collage(collage_memory& memory, bool on_gpu, const library_header& h,
                     const picture& in, picture& out, collage_view& v);

// Both parts of what comes before the work: the order of the blocks, which is returned too, and it
// and the picture to the device. They overlap; the report has how long each took.
status prepare_input(const collage_memory& memory, const picture& in, const collage_view& v,
                     std::uint32_t threads, std::vector<std::uint32_t>& order,
                     method_report& report);

// The collage and the totals from the device.
status download_result(const collage_memory& memory, const collage_view& v, picture& out,
                       collage_totals& totals);

// How many different tiles were compared. Not part of making a collage.
status count_seen(const collage_memory& memory, const library_header& h, const collage_view& v,
                  std::uint64_t& unique_tiles);

}  // namespace penstock::collage
